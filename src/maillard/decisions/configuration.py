"""Checks of the arguments of a bandit: policies, rewards, decisions, snapshots and tallies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from maillard.decisions.call_arguments import check_arms, check_rule, default_policy
from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.event_payloads import read_tally
from maillard.decisions.events import Configuration, Restore, Simulate, Start, current_actor
from maillard.decisions.identifiers import check_id, check_name, id_of_decision
from maillard.decisions.reward_rule import Reward
from maillard.decisions.state import State
from maillard.decisions.timestamps import END_OF_TIME, NOW, to_microseconds
from maillard.errors import InvalidValue, MaillardError, UnknownName
from maillard.policies import Policy, WithFloor, policy, uses_context
from maillard.tally import Tally


def start_event(
    arms: list[str], policy: str | Policy | None, reward: Reward | None, sticky: bool | None
) -> Start:
    """The first event of a new experiment, whose arms have been checked."""
    rule = check_rule(reward)
    policy = default_policy(rule) if policy is None else policy
    if not isinstance(sticky, bool | None):
        raise InvalidValue("sticky", sticky, "true or false")
    spec, formula = describe_policy(policy, rule, new=True)
    return Start(
        number=1, arms=tuple(arms), policy=spec, formula=formula, reward=rule, sticky=bool(sticky),
        by=current_actor(),
    )  # fmt: skip


def policy_hints(state: State) -> list[str]:
    """Advice on the policy of an experiment."""
    inner = state.policy.policy if isinstance(state.policy, WithFloor) else state.policy
    sigma2 = getattr(inner, "sigma2", None)
    fractional = bool((state.tally.sums % 1 != 0).any())
    if not state.reward.is_binary or fractional or sigma2 is None:
        return []
    return [
        f"{inner.name} assumes a reward variance of {sigma2:g}. Rewards of 0 and 1, such as clicks, usually "
        "have a smaller one, so kl-ms+ or thompson (Beta-Bernoulli) learn faster. See docs/policies.md."
    ]


def check_simulation(seed: object, clock: object) -> Simulate | None:
    """The event that records a seed or a clock of the caller; None if there is neither."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if seed is not None and not (whole and 0 <= seed < 2**63):  # type: ignore[operator]  # it is a number
        raise InvalidValue("seed", seed, "a whole number from 0 to 2**63 - 1")
    if seed is None and clock is None:
        return None
    return Simulate(seed=None if seed is None else int(seed), clock=clock is not None)  # type: ignore[call-overload]


def describe_policy(given: str | Policy, rule: Reward, *, new: bool = False) -> tuple[str, int]:
    """The complete spec of a policy and the version of its formula, as the log stores them.

    A `new` policy must be defined for every reward that the rule accepts.
    """
    if not isinstance(given, str | Policy):
        raise InvalidValue("policy", given, "a spec such as 'ms+:booster=8', or a policy")
    if uses_context(given):
        allowed = (
            "a policy without a context, such as kl-ms+: this experiment has no features and no segments"
        )
        raise InvalidValue("policy", str(given), allowed)
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
        asked["policy"] = describe_policy(asked["policy"], state.reward)[0]
    for name, value in vars(check_rule(asked.pop("reward", state.reward))).items():
        if value != (logged := getattr(state.reward, name)):
            how = "start another experiment; the reward rule of an experiment cannot change"
            raise InvalidValue(f"reward: {name}", value, f"{logged!r}, as in the log (to change it, {how})")
    arms = [state.active_arms, list(first.arms)]
    accepted: dict[str, tuple[str, list[Any]]] = {
        "arms": ("open the log without arms=, then add_arm and retire_arm", arms),
        "policy": ("open the log without policy=, then change_policy", [str(state.policy), first.spec]),
        "sticky": ("start another experiment", [state.sticky]),
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
        if arm not in state.arms:
            raise UnknownName("decision: eligible arm", str(arm), state.arms)
    valid = all(type(log) is float and log <= 0 for log in logs)
    whole = valid and len(set(eligible)) == len(eligible) == len(logs)
    if not whole or row.arm not in eligible or row.log_probability != logs[eligible.index(row.arm)]:
        allowed = "a number <= 0 for each eligible arm, including the chosen arm"
        raise InvalidValue("decision: log_probabilities", logs, allowed)
    placed = type(row.position) is int and row.position >= 0
    if type(row.cold) is not bool or not placed or row.origin is not None:
        raise InvalidValue("decision", row, "cold true or false, a position >= 0, and no origin")


def check_snapshot(snapshot: object, rule: Reward) -> Restore:
    """The event that restores a snapshot, or InvalidValue."""
    names = {"arms", "active", "policy", "formula", "tally"}
    if not isinstance(snapshot, Mapping) or set(snapshot) != names:
        raise InvalidValue("snapshot", snapshot, "a dictionary that snapshot() returned")
    arms, active, tally = check_arms(snapshot["arms"]), snapshot["active"], read_tally(snapshot["tally"])
    if not isinstance(active, list) or {type(on) for on in active} != {bool} or not any(active):
        raise InvalidValue("snapshot: active", active, "a list of true and false with at least one true")
    if not len(arms) == len(active) == len(tally):
        allowed = f"as many arms as there are names ({len(arms)}) and flags"
        raise InvalidValue("snapshot: tally", len(tally), allowed)
    _check_range(tally, arms, rule)
    spec, formula = describe_policy(snapshot["policy"], rule, new=True)
    return Restore(arms=tuple(arms), active=tuple(active), policy=spec, formula=formula, tally=tally)


def tally_for(given: Tally | Mapping[str, Any], state: State) -> Tally:
    """The tally of a warm start, in the order of the experiment's arms."""
    if isinstance(given, Tally):
        if len(given) != len(state.arms):
            raise InvalidValue("tally", len(given), f"as many arms as the experiment has ({len(state.arms)})")
        tally = given
    else:
        for arm in given:
            if arm not in state.arms:
                raise UnknownName("arm", str(arm), state.arms)
        parts = [_single_arm_tally(arm, given[arm]) if arm in given else Tally.empty(1) for arm in state.arms]
        tally = Tally.joined(parts)
    _check_range(tally, state.arms, state.reward)
    return tally


def _single_arm_tally(arm: str, value: object) -> Tally:
    if isinstance(value, Tally) and len(value) == 1:
        return value
    try:
        pulls, total = list[Any](value)  # type: ignore[call-overload]  # raises TypeError or ValueError
        return Tally([pulls], [total])
    except (TypeError, ValueError):
        allowed = "(pulls, sum): the number of rewards and their sum"
        raise InvalidValue(f"tally of {arm!r}", value, allowed) from None


def _check_range(tally: Tally, arms: Iterable[str], rule: Reward) -> None:
    low, high = rule.bounds
    bad = (tally.sums < low * tally.pulls) | (tally.sums > high * tally.pulls)
    for place in np.flatnonzero(bad).tolist():
        arm, pulls = list(arms)[place], int(tally.pulls[place])
        allowed = f"{low * pulls:g} to {high * pulls:g} for {pulls} rewards from {low:g} to {high:g}"
        raise InvalidValue(f"tally: sum of {arm!r}", float(tally.sums[place]), allowed)


def read_tallies(log: str | Path, experiment: str | None) -> dict[str, Tally]:
    """The tally of each arm of a log: of its last epoch, or of all rows if the log has no epochs."""
    from maillard.decisions.opening import read_log

    with read_log(log, experiment) as opened:
        if not opened.foreign:
            state = opened.final_state()
            tallies = {arm: state.tally.only(position) for position, arm in enumerate(state.arms)}
        else:
            tallies = {arm: Tally.empty(1) for arm in opened.arms}
            for row in opened.rows():
                if (value := opened.reward_of(row)) is not None:
                    tallies.setdefault(row.decision.arm, Tally.empty(1)).add(0, value)
    return {arm: tally for arm, tally in tallies.items() if tally.pulls[0]}
