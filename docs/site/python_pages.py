"""The reference of the Python API: one page for each area, with the public names of its packages."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import maillard
from docs.site.docstrings import restructured
from maillard.cli.policy_commands import describe
from maillard.policies import Policy

# The packages whose `__all__` is public, and other names, by page. What `maillard` exports is shown so.
_AREAS = {
    "decisions": ("Decisions", ["maillard.decisions"]),
    "evaluation": ("Evaluation", ["maillard.evaluation", "maillard.evaluation.settings.Settings"]),
    "policies": (
        "Policies",
        ["maillard.policies", "maillard.tally", "maillard.linear_tally", "maillard.segment_tally"],
    ),
    "features": ("Features", ["maillard.features"]),
    "exploration": ("Exploration", ["maillard.exploration"]),
    "simulation": ("Simulation", ["maillard.simulation"]),
    "problems": ("Problems", ["maillard.problems"]),
    "client": ("Client and service", ["maillard.client", "maillard.service"]),
    "errors": ("Errors", ["maillard.errors"]),
}
# Base classes whose members are documented once, with the base class.
_BASES = (
    "Policy, Sampled, Indexed, Perturbed, LinearPolicy, LinearSampled, Problem, ContextualProblem, "
    "Exception, tuple"
)
_INTRODUCTION = """\
# Python API

Every public name, with its types. Names that `maillard` exports are imported from there, as in
`from maillard import Bandit`.
"""


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    built_in = sorted(
        (cls for cls in Policy.registry.values() if cls.__module__.startswith("maillard.policies.")),
        key=lambda cls: cls.__name__,
    )
    areas = {
        area: (title, [(place, thing) for place, thing in _public(places) if thing not in built_in])
        for area, (title, places) in _AREAS.items()
    }
    entries = {area: [_entry(place, thing) for place, thing in public] for area, (_, public) in areas.items()}
    areas["policy-classes"] = ("Policy classes", [(f"maillard.{cls.__name__}", cls) for cls in built_in])
    entries["policy-classes"] = [_policy(cls) for cls in built_in]
    index = [_INTRODUCTION]
    for area, (title, public) in areas.items():
        names = ", ".join(f"{{py:obj}}`{place.rpartition('.')[2]} <{place}>`" for place, _ in public)
        index.append(f"- [{title}]({area}.rst): {names}")
    index.append("\n```{toctree}\n:hidden:\n\n" + "\n".join(areas) + "\n```\n")
    texts = {
        f"{area}.rst": "\n".join([title, "=" * len(title), "", *entries[area]])
        for area, (title, _) in areas.items()
    }
    return texts | {"python.md": "\n".join(index)}


def _public(places: list[str]) -> list[tuple[str, Any]]:
    """The public names of these places, each with what it stands for, at the place it is imported from."""
    exported = dir(maillard)
    found: dict[str, Any] = {}
    for place in places:
        package, _, name = place.rpartition(".")
        if name[0].isupper():
            found[place] = getattr(importlib.import_module(package), name)
            continue
        loaded = importlib.import_module(place)
        own = (name for name in exported if getattr(getattr(maillard, name), "__module__", "") == place)
        for name in getattr(loaded, "__all__", own):
            thing = getattr(loaded, name)
            at_top = name in exported and getattr(maillard, name) is thing
            found[f"{'maillard' if at_top else place}.{name}"] = thing
    return list(found.items())


def _entry(place: str, thing: Any) -> str:
    """The directive that documents a name."""
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return f".. autoexception:: {place}\n"
    if inspect.isclass(thing):
        # Members of a base class that is public itself are documented there.
        bases = _BASES if thing is Policy or not issubclass(thing, Policy) else f"{_BASES}, PolicyDisplay"
        return f".. autoclass:: {place}\n   :members:\n   :inherited-members: {bases}\n"
    if callable(thing):
        return f".. autofunction:: {place}\n"
    return f".. autodata:: {place}\n   :no-value:\n"


def _policy(cls: type[Policy]) -> str:
    """The directive that documents a policy. The methods that all policies share are those of `Policy`."""
    facts = describe(cls)
    parameters = [
        each["name"] if each["default"] is None else f"{each['name']}={each['default']!r}"
        for each in facts["parameters"]
    ]
    signature = f"(*, {', '.join(parameters)})" if parameters else "()"
    lines = [
        f"Spec ``{facts['name']}``, formula ``{facts['formula']}``, "
        f"probabilities: {_inline(facts['probabilities'])}.",
        "",
        f"Reference: {_inline(facts['reference'])}.",
    ]
    body = "\n".join(f"   {line}".rstrip() for line in lines)
    return f".. autoclass:: maillard.{cls.__name__}{signature}\n\n{body}\n"


def _inline(text: str) -> str:
    return " ".join(restructured([text]))
