"""The targets of what-if evaluations, as callers of the service write them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from maillard import errors, specs
from maillard.policies import Policy, Uniform
from maillard.policies.base.policy import ALIASES, resolve_alias
from maillard.policies.targets import FixedArm, FixedDistribution

if TYPE_CHECKING:
    from maillard.decisions import DecisionLog
    from maillard.evaluation.bound_targets import Target
    from maillard.evaluation.rules import Clause

_ALLOWED = (
    "arm:NAME, uniform, logged, dist:NAME=PROBABILITY,..., a rule, as in rule:device=phone->blue,else->red, "
    "frozen:NUMBER, or a policy, as in ms+:booster=16"
)
_RULE, _FROZEN = "rule:", "frozen:"
_LOGGED = "the mean reward that the experiment's own policy earned"
_MAX_LISTED = 6  # arms that a text lists


class ParsedTarget(NamedTuple):
    """A target of this log."""

    spec: str
    estimand: str
    "What its evaluation estimates."
    learns: bool = False
    "Whether it is a policy that learns, which is replayed."
    keys: tuple[str, ...] = ()
    "The keys of the context that a rule uses."


def parse_target(target: object, log: DecisionLog, field: str = "target") -> ParsedTarget:
    """Check a target of a log. It must refer to arms by name and not by index; errors name the field."""
    try:
        return _parse(target, log)
    except errors.InvalidValue as error:
        raise errors.InvalidValue(field, error.value, error.allowed) from None
    except errors.UnknownName as error:
        raise errors.UnknownName(error.kind.replace("target", field), error.name, error.known) from None


def _parse(target: object, log: DecisionLog) -> ParsedTarget:
    arms = log.arms
    if not isinstance(target, str):
        raise errors.InvalidValue("target", target, _ALLOWED)
    if log.has_actions:
        return _parse_action_target(target, log)
    if target == "logged" and target not in arms:
        return ParsedTarget(target, _LOGGED)
    if target.strip().startswith(_RULE):
        return _parse_rule(target, arms)
    if target.startswith(_FROZEN):
        return _parse_frozen(target, log)
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
        policy_name = resolve_alias(policy_name, log.reward.range if log.reward else None)
        spec = specs.write(specs.Spec(policy_name, values, options))
    if policy_name not in Policy.registry:
        raise errors.UnknownName("target", policy_name, sorted([*Policy.registry, *ALIASES]))
    if not issubclass(Policy.registry[policy_name], Uniform | FixedArm | FixedDistribution):
        return ParsedTarget(spec, f"the mean reward if the policy had been {target}", learns=True)
    if "floor_decay" in options:
        raise errors.InvalidValue("target", target, "a target with constant probabilities, so no floor_decay")
    return ParsedTarget(spec, _estimand(_bind(spec, arms, target), arms))


def _parse_rule(target: str, arms: Sequence[str] | None) -> ParsedTarget:
    """Check a rule; `arms` are those that it may choose, None for any."""
    from maillard.evaluation.rules import Rule

    try:
        rule = Rule.read(target)
    except errors.InvalidValue as error:
        _, _, place = error.field.partition(": ")
        found = f" after {place}, instead of {repr(error.value)[:60]}" if place else ""
        raise errors.InvalidValue("target", target, error.allowed + found) from None
    for clause in rule.clauses:
        if arms is not None and clause.arm is not None and clause.arm not in arms:
            raise errors.UnknownName("target arm", clause.arm, arms)
    *first, last = rule.clauses
    parts = [f"{_choice(clause)} where {clause.when}" for clause in first[:_MAX_LISTED]]
    parts += [f"{len(first) - _MAX_LISTED} more conditions"] * (len(first) > _MAX_LISTED)
    chosen = ", else ".join([*parts, _choice(last)])
    return ParsedTarget(str(rule), f"the mean reward if visitors had been shown {chosen}", keys=rule.keys)


def _choice(clause: Clause) -> str:
    return "any arm with equal probability" if clause.arm is None else repr(clause.arm)


def rule_error(error: errors.MaillardError, targets: dict[str, ParsedTarget]) -> None:
    """Raise the error of an evaluation again, with the field of the query, if a target or a key is wrong."""
    if isinstance(error, errors.UnknownName) and error.kind == "key of the context":
        fields = [f"{field} key" for field, each in targets.items() if error.name in each.keys]
        raise errors.UnknownName(fields[0] if fields else "by", error.name, error.known) from None
    if isinstance(error, errors.UnknownName) and error.kind == "target: action":
        wrong = [f"{field} arm" for field, each in targets.items() if error.name in each.spec]
        raise errors.UnknownName((wrong or ["target arm"])[0], error.name, error.known) from None
    if isinstance(error, errors.InvalidValue) and error.field == "target":
        for field, each in targets.items():
            if error.value == each.spec:
                raise errors.InvalidValue(field, error.value, error.allowed) from None
    if isinstance(error, errors.InvalidValue) and error.field.startswith("rule: "):
        condition, found = error.field.removeprefix("rule: "), repr(error.value)[:60]
        allowed = f"a rule that fits the log: {condition} needs {error.allowed}, and one is {found}"
        for field, each in targets.items():
            if condition in each.spec:
                raise errors.InvalidValue(field, each.spec, allowed) from None


def _parse_frozen(target: str, log: DecisionLog) -> ParsedTarget:
    number, first = target.removeprefix(_FROZEN), max(log.first_event - 1, 1)
    digits = number.isascii() and number.isdecimal() and len(number) < 19
    if not digits or not first <= int(number) <= log.number:
        allowed = f"frozen: and the number of an event of the log, from {first} to {log.number}"
        raise errors.InvalidValue("target", target, allowed)
    spec = f"{_FROZEN}{int(number)}"
    estimand = f"the mean reward if the policy had stayed as it was after event {int(number):,}"
    return ParsedTarget(spec, estimand)


def _parse_action_target(target: str, log: DecisionLog) -> ParsedTarget:
    """Check a target of an experiment whose arms differ at every decision."""
    if target.strip().startswith(_RULE):
        return _parse_rule(target, None)
    if target.startswith(_FROZEN):
        return _parse_frozen(target, log)
    kind, _, rest = target.partition(":")
    estimands = {
        "uniform": "the mean reward if all actions had been chosen with equal probability",
        "logged": _LOGGED,
        "rank": f"the mean reward if the action at rank {rest} of the list had always been chosen",
        "arm": f"the mean reward if everyone who could have been shown {rest!r} had been shown it",
    }
    if kind not in estimands or bool(rest) != (kind in ("rank", "arm")):
        allowed = (
            "uniform, logged, rank:1, arm:NAME, a rule, as in rule:device=phone->uniform,else->article-17, "
            "or frozen:NUMBER, because the arms differ at every decision"
        )
        raise errors.InvalidValue("target", target, allowed)
    return ParsedTarget(target, estimands[kind])


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
