"""Checks of the arguments of a bandit: policies, rewards, decisions, snapshots and tallies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from maillard.decisions.actors import current_actor
from maillard.decisions.call_arguments import check_arms, check_rule, default_policy
from maillard.decisions.context_data import read_statistics, rule_from_data
from maillard.decisions.context_rules import ContextRule
from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.encoded_contexts import row_of_chosen_arm
from maillard.decisions.event_payloads import read_tally
from maillard.decisions.events import Restore, Simulate, Start
from maillard.decisions.experiment_configuration import Configuration
from maillard.decisions.identifiers import check_id, check_name, id_of_decision
from maillard.decisions.linear_contexts import LinearContexts, check_model
from maillard.decisions.raw_contexts import read_context
from maillard.decisions.reward_rule import Reward
from maillard.decisions.segment_contexts import SegmentContexts, check_segments
from maillard.decisions.state import State
from maillard.decisions.timestamps import END_OF_TIME, NOW, to_microseconds
from maillard.errors import InvalidValue, MaillardError, UnknownName
from maillard.features import Features
from maillard.policies import LinearPolicy, Policy, WithFloor, policy, uses_context
from maillard.policies.segmented_policy import SegmentedPolicy
from maillard.tally import Tally


def start_event(
    arms: list[str],
    policy: str | Policy | None,
    reward: Reward | None,
    sticky: bool | None,
    context: ContextRule | None = None,
) -> Start:
    """The first event of a new experiment, whose arms have been checked."""
    rule = check_rule(reward)
    policy = default_policy(rule, linear=isinstance(context, LinearContexts)) if policy is None else policy
    if not isinstance(sticky, bool | None):
        raise InvalidValue("sticky", sticky, "true or false")
    spec, formula = describe_policy(policy, rule, context, new=True)
    if not arms and not (context and context.dynamic):
        raise InvalidValue("arms", arms, "at least one name")
    return Start(
        number=1, arms=tuple(arms), policy=spec, formula=formula, reward=rule, sticky=bool(sticky),
        context=context, by=current_actor(),
    )  # fmt: skip


def _have_attributes(arms: object) -> bool:
    """Whether arms are a mapping of names to attributes. Other mappings are lists of their keys."""
    return isinstance(arms, Mapping) and any(isinstance(each, Mapping) for each in arms.values())


def context_rule(arms: object, features: object, model: object, segments: object) -> ContextRule | None:
    """How a new experiment uses contexts; None if it only stores them. `arms` may be a mapping."""
    if segments is not None:
        if features is not None or model is not None:
            allowed = "None: an experiment has segments or features, not both"
            raise InvalidValue("features" if model is None else "model", features or model, allowed)
        return SegmentContexts(keys=check_segments(segments))
    if features is None:
        if model is not None or _have_attributes(arms):
            allowed = "Features({...}), which declare how attributes become numbers"
            raise InvalidValue("features", None, allowed)
        return None
    if not isinstance(features, Features):
        raise InvalidValue("features", features, "Features({'device': ['phone', 'desktop'], ...})")
    rule = LinearContexts(features=features, model=check_model("disjoint" if model is None else model))
    if rule.model == "disjoint":
        if isinstance(arms, Mapping):
            allowed = "a list of names; features of arms need model='shared'"
            raise InvalidValue("arms", arms, allowed)
        return rule
    if not arms:
        return dataclasses.replace(rule, dynamic=True)
    if not isinstance(arms, Mapping):
        allowed = "a mapping from each arm to its features, or [] if every decision has arms of its own"
        raise InvalidValue("arms", arms, f"{allowed}, because all arms share one model")
    checked = {arm: rule.check_attributes(arm, attributes) for arm, attributes in arms.items()}
    return dataclasses.replace(rule, arms=checked)


def policy_hints(state: State) -> list[str]:
    """Advice on the policy of an experiment."""
    inner = state.policy
    while isinstance(inner, WithFloor | SegmentedPolicy):
        inner = inner.policy
    if isinstance(inner, LinearPolicy):
        return []
    sigma2 = getattr(inner, "sigma2", None)
    fractional = bool((state.tally.sums % 1 != 0).any())
    if not state.reward.is_binary or fractional or sigma2 is None:
        return []
    return [
        f"{inner.name} assumes a reward variance of {sigma2:g}. Rewards of 0 and 1, such as clicks, usually "
        "have a smaller one, so kl-ms+ or thompson (Beta-Bernoulli) learn faster. "
        "See docs/reference/policies.md."
    ]


def check_simulation(seed: object, clock: object) -> Simulate | None:
    """The event that records a seed or a clock of the caller; None if there is neither."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if seed is not None and not (whole and 0 <= seed < 2**63):  # type: ignore[operator]  # it is a number
        raise InvalidValue("seed", seed, "a whole number from 0 to 2**63 - 1")
    if seed is None and clock is None:
        return None
    return Simulate(seed=None if seed is None else int(seed), clock=clock is not None)  # type: ignore[call-overload]


def describe_policy(
    given: str | Policy, rule: Reward, context: ContextRule | None = None, *, new: bool = False
) -> tuple[str, int]:
    """The complete spec of a policy and the version of its formula, as the log stores them.

    A `new` policy must be defined for every reward that the rule accepts.
    """
    if not isinstance(given, str | Policy):
        raise InvalidValue("policy", given, "a spec such as 'ms+:booster=8', or a policy")
    if context is None and uses_context(given):
        allowed = (
            "a policy without a context, such as kl-ms+: this experiment has no features and no segments"
        )
        how = "declare features=Features({...}) for linear policies, or segments=['device'] for others"
        raise InvalidValue("policy", str(given), f"{allowed} ({how})")
    try:
        made = policy(given, reward_range=rule.range) if rule.range else policy(given)
    except InvalidValue as error:
        if error.field.endswith("sigma2") and error.value is None:
            allowed = (
                "a finite number > 0, as in ms+:sigma2=1; or declare low and high of the rewards, "
                "which imply sigma2 = (high - low)^2 / 4"
            )
            raise InvalidValue(error.field, None, allowed) from None
        raise
    if context is not None:
        made = context.check_policy(made)
    spec, same = str(made), False
    with suppress(MaillardError):
        same = policy(spec) == made
    if not same:
        allowed = "a policy that its spec describes completely, so that the log can store it"
        raise InvalidValue("policy", given, allowed)
    inner = made.policy if isinstance(made, WithFloor) else made
    if getattr(inner, "has_memory", False):
        allowed = "a policy whose whole state is a tally (this one works only in simulations)"
        raise InvalidValue("policy", spec, allowed)
    (low, high), (least, most) = made.support, rule.bounds
    if least < low or most > high:
        limit = f" and high <= {high:g}" if high < math.inf else ""
        allowed = f"rewards that {made.name} supports: low >= {low:g}{limit}"
        raise InvalidValue("reward: (low, high)", (rule.low, rule.high), allowed)
    if new and made.requires_positive_rewards and not least > 0:
        raise InvalidValue("reward: low", rule.low, f"a number > 0, because {spec} needs rewards > 0")
    if new and made.requires_binary_rewards and not rule.binary:
        allowed = f"true, because {made.name} needs rewards of 0 or 1"
        raise InvalidValue("reward: binary", rule.binary, allowed)
    return spec, made.formula_version


def check_same(given: Mapping[str, Any], first: Configuration, state: State) -> None:
    """Raise InvalidValue if the arguments contradict the experiment that is resumed.

    A program that is restarted after a change may still give the original arguments, those of `first`.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    if "policy" in asked:
        asked["policy"] = describe_policy(asked["policy"], state.reward, state.context)[0]
    for name, value in vars(check_rule(asked.pop("reward", state.reward))).items():
        if value != (logged := getattr(state.reward, name)):
            how = "start another experiment; the reward rule of an experiment cannot change"
            raise InvalidValue(f"reward: {name}", value, f"{logged!r}, as in the log (to change it, {how})")
    arms = [state.active_arms, list(first.arms)]
    accepted: dict[str, tuple[str, list[Any]]] = {
        "arms": ("open the log without arms=, then add_arm and retire_arm", arms),
        "policy": ("open the log without policy=, then change_policy", [str(state.policy), first.spec]),
        "sticky": ("start another experiment", [state.sticky]),
        "context": ("open the log without features=, then change_features", [state.context, first.context]),
    }
    for name, value in asked.items():
        how, values = accepted[name]
        if value not in values:
            raise InvalidValue(name, value, f"{values[0]}, as in the log (to change it, {how})")


def check_reward_event(
    rule: Reward, decision: object, value: object, at: Any = None, event: object = None, *, where: str = ""
) -> RewardEvent:
    """Check the arguments of `reward`. The transaction that writes the reward sets missing times."""
    identifier = id_of_decision(decision, f"{where}decision")
    return RewardEvent(
        decision=identifier,
        event=identifier if event is None else check_name(f"{where}event", event),
        value=rule.check(value, f"{where}value"),
        at=NOW if at is None else to_microseconds(f"{where}at", at),
        arrived=NOW,
    )


def check_decision(row: object, experiment: str, state: State) -> None:
    """Raise InvalidValue unless `row` can be a decision of this experiment."""
    if not isinstance(row, Decision) or row.experiment != experiment:
        raise InvalidValue("decision", row, f"a Decision of experiment {experiment!r}")
    check_id(row.id, "decision: id")
    for name, value in (("unit", row.unit), ("idempotency_key", row.idempotency_key)):
        if value is not None:
            check_name(f"decision: {name}", value)
    limits = {
        "time": END_OF_TIME,
        "policy_version": state.policy_version,
        "formula_version": 2**31,
        "state": state.number,
        "epoch": state.epoch,
    }
    if state.pruned and isinstance(row.state, int) and row.state < state.pruned:
        allowed = f"at least {state.pruned}, because earlier states were pruned"
        raise InvalidValue("decision: state", row.state, allowed)
    for name, maximum in limits.items():
        number = getattr(row, name)
        if type(number) is not int or not 1 <= number <= maximum:
            raise InvalidValue(f"decision: {name}", number, f"a whole number from 1 to {maximum}")
    eligible, logs = row.eligible, row.log_probabilities
    for arm in eligible:
        if arm not in state.arms and not state.dynamic:
            raise UnknownName("decision: eligible arm", str(arm), state.arms)
    valid = all(type(log) is float and log <= 0 for log in logs)
    whole = valid and len(set(eligible)) == len(eligible) == len(logs)
    if not whole or row.arm not in eligible or row.log_probability != logs[eligible.index(row.arm)]:
        allowed = "a number <= 0 for each eligible arm, including the chosen arm"
        raise InvalidValue("decision: log_probabilities", logs, allowed)
    placed = type(row.position) is int and row.position >= 0
    if type(row.cold) is not bool or not placed or row.origin is not None:
        raise InvalidValue("decision", row, "cold true or false, a position >= 0, and no origin")
    read_context(row.context, row.actions)
    if (row.encoded is None) != (state.context is None):
        allowed = "the encoded context" if state.context else "None: the experiment does not use contexts"
        raise InvalidValue("decision: encoded", row.encoded, allowed)
    if not 0 <= row.feature_version <= state.feature_version:
        allowed = f"a whole number from 0 to {state.feature_version}"
        raise InvalidValue("decision: feature_version", row.feature_version, allowed)
    row_of_chosen_arm(row)  # raises if it cannot be decoded


def check_snapshot(snapshot: object, state: State) -> Restore:
    """The event that restores a snapshot, or InvalidValue."""
    names, more = {"arms", "active", "policy", "formula", "tally"}, {"context", "statistics"}
    if not isinstance(snapshot, Mapping) or set(snapshot) - more != names:
        raise InvalidValue("snapshot", snapshot, "a dictionary that snapshot() returned")
    rule, context = state.reward, rule_from_data(snapshot.get("context"))
    if type(context) is not type(state.context):
        uses = "features" if isinstance(state.context, LinearContexts) else "segments"
        allowed = (
            f"a snapshot of an experiment with {uses}" if state.context else "a snapshot without contexts"
        )
        raise InvalidValue("snapshot: context", snapshot.get("context"), allowed)
    dynamic = context is not None and context.dynamic
    arms, active = check_arms(snapshot["arms"], allow_none=dynamic), snapshot["active"]
    tally = read_tally(snapshot["tally"])
    flags = isinstance(active, list) and {type(on) for on in active} <= {bool}
    if not flags or any(active) == dynamic:
        raise InvalidValue("snapshot: active", active, "a list of true and false with at least one true")
    if not len(arms) == len(active) == len(tally) - dynamic:
        allowed = f"as many arms as there are names ({len(arms)}) and flags"
        raise InvalidValue("snapshot: tally", len(tally), allowed)
    check_range(tally, arms or ["all"], rule)
    spec, formula = describe_policy(snapshot["policy"], rule, context, new=True)
    return Restore(
        arms=tuple(arms), active=tuple(active), policy=spec, formula=formula, tally=tally, context=context,
        statistics=read_statistics(snapshot.get("statistics")),
    )  # fmt: skip


def check_range(tally: Tally, arms: Iterable[str], rule: Reward) -> None:
    """Raise InvalidValue if the rewards of an arm cannot add up to its sum."""
    low, high = rule.bounds
    bad = (tally.sums < low * tally.pulls) | (tally.sums > high * tally.pulls)
    for place in np.flatnonzero(bad).tolist():
        arm, pulls = list(arms)[place], int(tally.pulls[place])
        allowed = f"{low * pulls:g} to {high * pulls:g} for {pulls} rewards from {low:g} to {high:g}"
        raise InvalidValue(f"tally: sum of {arm!r}", float(tally.sums[place]), allowed)
