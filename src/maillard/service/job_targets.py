"""The targets of what-if evaluations, as callers of the service write them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from maillard import errors, specs
from maillard.policies import Policy, Uniform
from maillard.policies.base.policy import ALIASES, resolve_alias
from maillard.policies.targets import FixedArm, FixedDistribution

if TYPE_CHECKING:
    from maillard.evaluation.bound_targets import Target

_ALLOWED = "arm:NAME, uniform, dist:NAME=PROBABILITY,... or a policy, as in ms+:booster=16"
_MAX_LISTED = 6  # arms that a text lists


def parse_target(
    target: object, arms: Sequence[str], reward_range: object = None
) -> tuple[str, str, Target | None]:
    """The spec of a target, what it estimates, and the target (None if it is a policy that learns).

    A target must refer to arms by name and not by index.
    """
    if not isinstance(target, str):
        raise errors.InvalidValue("target", target, _ALLOWED)
    if target in arms and target not in Policy.registry:
        raise errors.InvalidValue("target", target, f"arm:{target}, if the arm of that name is meant")
    kind, _, name = target.partition(":")
    # The name of an arm needs no quotes here, even if it contains special characters.
    spec = specs.write(specs.Spec("arm", (name,), {})) if kind == "arm" and name in arms else target
    try:
        policy_name, values, options = specs.read(spec)
    except errors.InvalidValue:
        raise errors.InvalidValue("target", target, _ALLOWED) from None
    if policy_name in ALIASES:
        policy_name = resolve_alias(policy_name, reward_range)
        spec = specs.write(specs.Spec(policy_name, values, options))
    if policy_name not in Policy.registry:
        raise errors.UnknownName("target", policy_name, sorted([*Policy.registry, *ALIASES]))
    if not issubclass(Policy.registry[policy_name], Uniform | FixedArm | FixedDistribution):
        return spec, f"the mean reward if the policy had been {target}", None
    if "floor_decay" in options:
        raise errors.InvalidValue("target", target, "a target with constant probabilities, so no floor_decay")
    bound = _bind(spec, arms, target)
    return spec, _estimand(bound, arms), bound


def parse_action_target(target: object) -> tuple[str, str, str]:
    """The same for an experiment whose arms differ at every decision; its targets are bound to the log later.

    >>> parse_action_target("rank:1")[1]
    'the mean reward if the action at rank 1 of the list had always been chosen'
    """
    kind, _, rest = target.partition(":") if isinstance(target, str) else ("", "", "")
    estimands = {
        "uniform": "the mean reward if all actions had been chosen with equal probability",
        "logged": "the mean reward that the experiment's own policy earned",
        "rank": f"the mean reward if the action at rank {rest} of the list had always been chosen",
        "arm": f"the mean reward if everyone who could have been shown {rest!r} had been shown it",
    }
    if kind not in estimands or bool(rest) != (kind in ("rank", "arm")):
        allowed = "uniform, logged, rank:1 or arm:NAME, because the arms differ at every decision"
        raise errors.InvalidValue("target", target, allowed)
    return str(target), estimands[kind], str(target)


def _bind(spec: str, arms: Sequence[str], target: str) -> Target:
    from maillard.evaluation.bound_targets import bind, by_place

    with suppress(errors.InvalidValue):  # its message is about Python classes
        if not by_place(spec):
            return bind(spec, arms)
    allowed = "arm:NAME, or dist:NAME=PROBABILITY,... with probabilities >= 0 that add up to 1, of the arms"
    raise errors.InvalidValue(
        "target", target, f"{allowed} {', '.join(map(repr, arms[:_MAX_LISTED]))}{_more(arms)}"
    )


def _estimand(target: Target, arms: Sequence[str]) -> str:
    """What an evaluation of the target estimates.

    >>> from maillard.evaluation.bound_targets import bind
    >>> _estimand(bind("dist:red=0.75,blue=0.25", ["red", "green", "blue"]), ["red", "green", "blue"])
    "the mean reward if the arms had been shown with these probabilities: 'red' 0.75, 'blue' 0.25"
    """
    [probabilities] = target.probabilities.tolist()
    possible = [(arm, p) for arm, p in zip(arms, probabilities, strict=True) if p]
    if len(possible) == 1:
        return f"the mean reward if everyone had been shown {possible[0][0]!r}"
    if max(probabilities) - min(probabilities) < 1e-12:
        return "the mean reward if all arms had been shown with equal probability"
    listed = ", ".join(f"{arm!r} {p:.4g}" for arm, p in possible[:_MAX_LISTED])
    return f"the mean reward if the arms had been shown with these probabilities: {listed}{_more(possible)}"


def _more(items: Sequence[object]) -> str:
    return f" and {len(items) - _MAX_LISTED:,} more" if len(items) > _MAX_LISTED else ""
