"""Policies: one file each, found by themselves.

`names()` lists them, `policy("ms+:booster=8", sigma2=0.25)` makes one from a spec, and every class is
an attribute of this module. A subclass of `Sampled`, `Indexed` or `Perturbed` with a `name`,
in anybody's file, joins the list.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from maillard import specs
from maillard.errors import InvalidValue, UnknownName
from maillard.policies.base.guarantees import Guarantees
from maillard.policies.base.indexed_policy import Indexed
from maillard.policies.base.parameters import choice, flag, real, whole
from maillard.policies.base.perturbed_policy import Perturbed
from maillard.policies.base.policy import Distribution, Policy, policy_class
from maillard.policies.base.sampled_policy import Sampled
from maillard.policies.floors import WithFloor
from maillard.policies.targets import FixedArm, FixedDistribution

if TYPE_CHECKING:
    from maillard.policies.exports import *  # noqa: F403  # what the loop below finds


for _module in pkgutil.iter_modules(__path__):  # noqa: F405  # Python defines it
    importlib.import_module(f"{__name__}.{_module.name}")

_BUILT_IN = {cls.__name__: cls for cls in Policy.registry.values()}
globals().update(_BUILT_IN)

__all__ = [  # noqa: PLE0604  # the policies' classes are found, not listed
    "Distribution",
    "Guarantees",
    "Indexed",
    "Perturbed",
    "Policy",
    "Sampled",
    "WithFloor",
    "choice",
    "flag",
    "policy_class",
    "names",
    "policy",
    "real",
    "whole",
    *sorted(_BUILT_IN),
]

# What the surroundings of a policy know: given to the policies that ask for it, no matter to others.
_CONTEXT = ("sigma2", "reward_range", "horizon")


def names() -> list[str]:
    """The name of every policy, a user's own among them (targets such as `arm:blue` aside)."""
    targets = (FixedArm, FixedDistribution)
    return sorted(name for name, cls in Policy.registry.items() if not issubclass(cls, targets))


def policy(spec: str | Policy, **parameters: Any) -> Policy:
    """A policy from its spec; keywords fill what the spec leaves open.

    `sigma2`, `reward_range` and `horizon` are given to the policies that use them and do not matter to others;
    `floor=` wraps any policy, and `floor_decay=` lets the floor sink.

    >>> policy("ms+:booster=8", sigma2=0.25)
    MaillardSamplingPlus(sigma2=0.25, booster=8.0, c=0.01, d=0.01)
    >>> str(policy("ms+:booster=8,floor=0.05", sigma2=0.25))
    'ms+:booster=8,floor=0.05,sigma2=0.25'
    >>> str(policy("arm:blue"))
    'arm:blue'
    """
    if isinstance(spec, Policy):
        return _fill(spec, parameters)
    name, values, options = specs.read(spec)
    cls = policy_class(name)
    if issubclass(cls, FixedArm | FixedDistribution):
        floor = _take_floor(options)
        return _floored(_fill(cls.from_spec(values, options), parameters), *floor)
    if values:
        raise InvalidValue(f"spec {spec!r}", values[0], "key=value")
    context = _context(cls, parameters, options)
    for key in set(options) & set(context):
        if options[key] != context[key]:
            raise InvalidValue(f"{name}: {key}", context[key], f"{options[key]} as the spec has it")
    options = {**context, **options}
    floor = _take_floor(options)
    _check_known(cls, options)
    return _floored(cls(**options), *floor)


def _take_floor(options: dict[str, Any]) -> tuple[Any, Any]:
    """A floor and its decay, taken out of the options."""
    return options.pop("floor", None), options.pop("floor_decay", None)


def _floored(made: Policy, floor: Any, decay: Any) -> Policy:
    if floor is None:
        if decay is not None:
            raise InvalidValue("floor_decay", decay, "a floor with it, as in floor=1,floor_decay=0.7")
        return made
    return WithFloor(made, floor, decay=0.0 if decay is None else decay)


def _known(cls: type[Policy]) -> list[str]:
    fields = [name for name, _, _ in cls.parameters()]
    return [*fields, "reward_range"] if hasattr(cls, "reward_range") else fields


def _check_known(cls: type[Policy], options: dict[str, Any]) -> None:
    known = [*_known(cls), "floor", "floor_decay"]
    for key in options:
        if key not in known:
            raise UnknownName(f"parameter of {cls.name}", key, known)


def _context(cls: type[Policy], parameters: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The keywords that a policy takes, those that do not matter to it dropped."""
    known = _known(cls)
    taken = {k: v for k, v in parameters.items() if k in known or k not in _CONTEXT}
    if "sigma2" in options:
        taken.pop("reward_range", None)
    if "reward_range" in options:
        taken.pop("sigma2", None)
    return taken


def _fill(given: Policy, parameters: dict[str, Any]) -> Policy:
    parameters = dict(parameters)
    floor, decay = _take_floor(parameters)
    if isinstance(given, WithFloor):
        if floor is not None or decay is not None:
            second = decay if floor is None else floor
            raise InvalidValue("floor", second, f"no second floor (it has {given.epsilon})")
        return dataclasses.replace(given, policy=_fill(given.policy, parameters))
    parameters = _context(type(given), parameters, {})
    _check_known(type(given), parameters)
    parameters.pop("reward_range", None)  # a policy that exists has its sigma2
    for key, value in parameters.items():
        if getattr(given, key) not in (None, value):
            raise InvalidValue(f"{given.name}: {key}", value, f"{getattr(given, key)}, as it has")
    # Every subclass is a dataclass by Policy.__init_subclass__, which mypy cannot see here.
    filled: Policy = dataclasses.replace(given, **parameters)  # type: ignore[type-var]
    return _floored(filled, floor, decay)
