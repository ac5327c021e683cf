"""Bandit policies, one per module.

`names()` lists them, `policy("ms+:booster=8", sigma2=0.25)` creates one from a spec string, and every class
is an attribute of this package. A subclass of `Sampled`, `Indexed`, `Perturbed` or `LinearPolicy` with a
`name` is added to the list, wherever it is defined.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from maillard import specs
from maillard.errors import InvalidValue, MaillardError, UnknownName
from maillard.policies.base.guarantees import Guarantees as Guarantees
from maillard.policies.base.indexed_policy import Indexed as Indexed
from maillard.policies.base.linear_policy import LinearIndexed as LinearIndexed
from maillard.policies.base.linear_policy import LinearNoise as LinearNoise
from maillard.policies.base.linear_policy import LinearPolicy as LinearPolicy
from maillard.policies.base.linear_policy import LinearSampled as LinearSampled
from maillard.policies.base.parameters import choice as choice
from maillard.policies.base.parameters import flag as flag
from maillard.policies.base.parameters import real as real
from maillard.policies.base.parameters import whole as whole
from maillard.policies.base.perturbed_policy import Perturbed as Perturbed
from maillard.policies.base.policy import ALIASES, resolve_alias
from maillard.policies.base.policy import Distribution as Distribution
from maillard.policies.base.policy import Policy as Policy
from maillard.policies.base.policy import policy_class as policy_class
from maillard.policies.base.sampled_policy import Sampled as Sampled
from maillard.policies.floors import WithFloor as WithFloor
from maillard.policies.segmented_policy import SegmentedPolicy as SegmentedPolicy
from maillard.policies.targets import FixedArm as FixedArm
from maillard.policies.targets import FixedDistribution as FixedDistribution

if TYPE_CHECKING:
    # The classes that the loop below finds. Type checkers cannot see them in `__all__`, so it is hidden from
    # them, and `as` marks the other names as exported.
    from maillard.policies.exports import *  # noqa: F403


for _module in pkgutil.iter_modules(__path__):  # noqa: F405  # defined by Python
    importlib.import_module(f"{__name__}.{_module.name}")

_BUILT_IN = {cls.__name__: cls for cls in Policy.registry.values()}
globals().update(_BUILT_IN)

if not TYPE_CHECKING:
    __all__ = [  # noqa: PLE0604  # the policy classes are discovered, not listed
        "Distribution",
        "Guarantees",
        "Indexed",
        "LinearIndexed",
        "LinearNoise",
        "LinearPolicy",
        "LinearSampled",
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
        "uses_context",
        "whole",
        *sorted(_BUILT_IN),
    ]

    def __dir__() -> list[str]:
        return sorted(__all__)


# Keywords that callers pass for every policy; a policy without such a parameter ignores them.
_CONTEXT = ("sigma2", "reward_range", "horizon")


def names() -> list[str]:
    """Return the names of all policies, including user-defined ones, but not targets such as `arm`.

    >>> names()[:3], "lin-ms" in names()
    (['adaucb', 'aoucb', 'apt'], True)
    """
    targets = (FixedArm, FixedDistribution)
    return sorted(name for name, cls in Policy.registry.items() if not issubclass(cls, targets))


def uses_context(given: str | Policy) -> bool:
    """Return whether the `given` policy, or that of a spec, depends on features or segments.

    >>> uses_context("lin-ms:ridge=2"), uses_context("ms+")
    (True, False)
    """
    if isinstance(given, Policy):
        return given.uses_context
    with contextlib.suppress(MaillardError):  # the code that makes the policy reports what is wrong
        return policy_class(specs.read(given).name).uses_context
    return False


def policy(spec: str | Policy, **parameters: Any) -> Policy:
    """Create a policy from a `spec` string; keywords set parameters that it does not contain.

    Policies that do not use `sigma2`, `reward_range` or `horizon` ignore these keywords. `floor=` adds a
    floor to any policy, and `floor_decay=` makes the floor decay. There are aliases: `thompson` is
    `ts-bernoulli` for rewards from 0 to 1 and `ts` for others, `softmax` is `boltzmann`, `ucb` is `ucb1`.

    >>> policy("ms+:booster=8", sigma2=0.25)
    MaillardSamplingPlus(sigma2=0.25, booster=8.0, c=0.01, d=0.01)
    >>> str(policy("ms+:booster=8,floor=0.05", sigma2=0.25))
    'ms+:booster=8,floor=0.05,sigma2=0.25'
    >>> str(policy("arm:blue"))
    'arm:blue'
    """
    if isinstance(spec, Policy):
        return _fill(spec, parameters)
    _check_spelling(spec)
    name, values, read = specs.read(spec)
    options: dict[str, Any] = dict(read)
    alias, name = name, resolve_alias(name, options.get("reward_range", parameters.get("reward_range")))
    cls = policy_class(name)
    if alias != name and not hasattr(cls, "reward_range"):
        options.pop("reward_range", None)  # it has determined the policy
    if issubclass(cls, FixedArm | FixedDistribution):
        floor = _take_floor(options)
        return _floored(_fill(cls.from_spec(values, options), parameters), *floor)
    if values:
        raise InvalidValue(f"spec {spec!r}", values[0], "parameters as key=value")
    if issubclass(cls, SegmentedPolicy):
        # The keywords are for the policy inside, apart from a floor.
        inside = {key: parameters.pop(key) for key in _CONTEXT if key in parameters}
        if isinstance(inner := options.get("policy", parameters.get("policy")), str | Policy):
            parameters.pop("policy", None)
            options["policy"] = policy(inner, **inside)
    context = _context(cls, parameters, options)
    _check_conflicts(name, context, options, "as in the spec (or leave the keyword out)")
    options = {**context, **options}
    floor = _take_floor(options)
    _check_known(cls, options)
    return _floored(cls(**options), *floor)


def _check_spelling(spec: str) -> None:
    """Raise `UnknownName`, which suggests the right name, for one that is written as in other libraries."""
    name = spec.partition(":")[0].strip() if isinstance(spec, str) else ""
    usual = name.lower().replace("_", "-").replace(" ", "-")
    known = sorted([*Policy.registry, *ALIASES])
    if usual != name and usual in known:
        raise UnknownName("policy", name, known)


def _take_floor(options: dict[str, Any]) -> tuple[Any, Any]:
    """Remove the floor and its decay from the options and return them."""
    return options.pop("floor", None), options.pop("floor_decay", None)


def _floored(made: Policy, floor: Any, decay: Any) -> Policy:
    if floor is None:
        if decay is not None:
            raise InvalidValue("floor_decay", decay, "a floor as well, as in floor=1,floor_decay=0.7")
        return made
    return WithFloor(made, floor, decay=0.0 if decay is None else decay)


def _check_known(cls: type[Policy], options: dict[str, Any]) -> None:
    known = [*_known(cls), "floor", "floor_decay"]
    for key in options:
        if key not in known:
            raise UnknownName(f"parameter of {cls.name}", key, known)


def _known(cls: type[Policy]) -> list[str]:
    fields = [name for name, _, _ in cls.parameters()]
    return [*fields, "reward_range"] if hasattr(cls, "reward_range") else fields


def _check_conflicts(name: str, given: dict[str, Any], existing: dict[str, Any], reason: str) -> None:
    for key, value in given.items():
        if existing.get(key) not in (None, value):
            raise InvalidValue(f"{name}: {key}", value, f"{existing[key]} {reason}")


def _context(cls: type[Policy], parameters: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords without those that the policy ignores."""
    known = _known(cls)
    taken = {k: v for k, v in parameters.items() if k in known or k not in _CONTEXT}
    if "sigma2" in options and not issubclass(cls, LinearPolicy):  # a linear policy uses the range, too
        taken.pop("reward_range", None)
    if "reward_range" in options:
        taken.pop("sigma2", None)
    return taken


def _fill(given: Policy, parameters: dict[str, Any]) -> Policy:
    """Return a policy with the parameters that it does not have yet."""
    parameters = dict(parameters)
    floor, decay = _take_floor(parameters)
    if isinstance(given, WithFloor):
        if floor is not None or decay is not None:
            allowed = f"no second floor; the policy already has the floor {given.epsilon}"
            raise InvalidValue("floor", decay if floor is None else floor, allowed)
        return dataclasses.replace(given, policy=_fill(given.policy, parameters))
    if isinstance(given, SegmentedPolicy):
        return _floored(dataclasses.replace(given, policy=_fill(given.policy, parameters)), floor, decay)
    parameters = _context(type(given), parameters, {})
    _check_known(type(given), parameters)
    parameters.pop("reward_range", None)  # an existing policy already has its sigma2
    _check_conflicts(given.name, parameters, vars(given), "as in the policy (or leave the keyword out)")
    # Every subclass is a dataclass by Policy.__init_subclass__, which mypy cannot see here.
    filled: Policy = dataclasses.replace(given, **parameters)  # type: ignore[type-var]
    return _floored(filled, floor, decay)
