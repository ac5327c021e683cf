"""The reference of the Python API: one page for each area, with the public names of its packages."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from functools import cached_property
from typing import Any

import maillard
from docs.site.docstrings import restructured
from maillard.cli.policy_commands import describe
from maillard.policies import Policy

# The packages whose `__all__` is public, and other names, by page. What `maillard` exports is shown so.
_AREAS = {
    "decisions": ("Decisions", ["maillard.decisions"]),
    "evaluation": ("Evaluation", ["maillard.evaluation"]),
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
    "Exception, Mapping, tuple"
)
# Members that other modules of the package use, but that are of no use to its users.
_INTERNAL = {
    "Bandit": ["session"],
    "Comparison": ["json_fields"],
    "ContextualProblem": ["reward_distribution", "true_means"],
    "DecisionLog": [
        "action_columns", "arms_unordered", "base_state", "changed_files", "check_rows", "column_parts",
        "configurations", "events_elsewhere", "first_event", "has_windows", "lists_actions", "read_chain",
        "read_lost_updates", "row_count", "set_column_parts", "set_pruned_part",
    ],
    "Features": ["encode_units", "rest_column"],
    "LinearPolicy": ["models"],
    "Policy": ["solves_many"],
    "Report": ["json_fields"],
    "Reward": ["from_fields", "is_ordered", "settles", "total_with_late", "totals"],
    "Verification": ["add_problem"],
    "WithFloor": ["solves_many"],
}  # fmt: skip
_INTRODUCTION = """\
# Python API

Every public name, with its types. Names that `maillard` exports are imported from there, as in
`from maillard import Bandit`.
"""


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    built_in = _built_in()
    areas = {
        area: (title, [(place, thing) for place, thing in _public(places).items() if thing not in built_in])
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


def public_objects() -> dict[str, Any]:
    """Every public object of the package, by the place that it is imported from."""
    return _public([place for _, places in _AREAS.values() for place in places])


def public_members(cls: type) -> dict[str, Any]:
    """The methods and properties of a class that the reference shows with it."""
    if cls in _built_in() or issubclass(cls, BaseException):
        return {}
    bases = [base for base in cls.__mro__ if base is cls or base.__name__ not in _BASES.split(", ")]
    return {
        name: member
        for base in reversed(bases)
        if base.__module__.startswith("maillard.")
        for name, member in vars(base).items()
        if not name.startswith("_") and name not in _INTERNAL.get(cls.__name__, ()) and _is_member(member)
    }


def _built_in() -> list[type[Policy]]:
    """The policies that have a page of their own."""
    return sorted(
        (cls for cls in Policy.registry.values() if cls.__module__.startswith("maillard.policies.")),
        key=lambda cls: cls.__name__,
    )


def _is_member(value: object) -> bool:
    """Whether this is a method or a property."""
    return inspect.isroutine(value) or isinstance(value, property | cached_property)


def _public(places: list[str]) -> dict[str, Any]:
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
    return found


def _entry(place: str, thing: Any) -> str:
    """The directive that documents a name."""
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return f".. autoexception:: {place}\n"
    if inspect.isclass(thing):
        # Members of a base class that is public itself are documented there.
        bases = _BASES if thing is Policy or not issubclass(thing, Policy) else f"{_BASES}, PolicyDisplay"
        internal = ", ".join(_INTERNAL.get(thing.__name__, ()))
        return (
            f".. autoclass:: {place}\n   :members:\n   :inherited-members: {bases}\n"
            f"   :exclude-members: {internal}\n"
        )
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
    signature = f"(*, {', '.join(parameters)})" if parameters else f"({', '.join(_fields(cls))})"
    lines = [
        f"Spec ``{facts['name']}``, formula ``{facts['formula']}``, "
        f"probabilities: {_inline(facts['probabilities'])}.",
        "",
        f"Reference: {_inline(facts['reference'])}.",
    ]
    body = "\n".join(f"   {line}".rstrip() for line in lines)
    return f".. autoclass:: maillard.{cls.__name__}{signature}\n\n{body}\n"


def _fields(cls: type[Policy]) -> list[str]:
    """The names of the fields of a policy that are no parameters: targets have some."""
    return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]  # every policy is one


def _inline(text: str) -> str:
    return " ".join(restructured([text]))
