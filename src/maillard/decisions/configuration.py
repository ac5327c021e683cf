"""What an experiment is opened with, checked where it enters: arms, policy, rules; snapshots and tallies."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from maillard.decisions.choosing import Request
from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import Restore, Start, payload_of, read_tally
from maillard.decisions.identifiers import check_id, check_name
from maillard.decisions.reward_rule import Reward
from maillard.decisions.state import State
from maillard.decisions.timestamps import END_OF_TIME, NOW, to_microseconds
from maillard.errors import InvalidValue, MaillardError, UnknownName
from maillard.policies import Policy, WithFloor, policy
from maillard.tally import Tally

__all__ = [
    "check_arms",
    "check_decision",
    "check_request",
    "check_reward_event",
    "check_same",
    "check_snapshot",
    "describe_policy",
    "start_event",
    "tally_for",
]

_MOST_DRAWS = 100_000  # of one call


def start_event(
    arms: Iterable[str] | None, policy: str | Policy | None, reward: Reward | None, sticky: bool | None
) -> Start:
    """The first event of a new experiment."""
    if arms is None:
        raise InvalidValue("arms", None, "names, as in ['red', 'blue']")
    if policy is None:
        raise InvalidValue("policy", None, "a policy, as in 'ms+:booster=8'")
    rule = check_rule(reward)
    if not isinstance(sticky, bool | None):
        raise InvalidValue("sticky", sticky, "true or false")
    spec, formula = describe_policy(policy, rule)
    return Start(
        number=1, arms=tuple(check_arms(arms)), policy=spec, formula=formula, reward=rule, sticky=bool(sticky)
    )


def check_rule(reward: Reward | None) -> Reward:
    """The rules given, or those of any finite reward."""
    if reward is not None and not isinstance(reward, Reward):
        raise InvalidValue("reward", reward, "Reward(low=..., high=..., ...)")
    return reward or Reward()


def check_arms(arms: Iterable[str]) -> list[str]:
    """Names of arms, each once."""
    if isinstance(arms, str | bytes) or not isinstance(arms, Iterable):
        raise InvalidValue("arms", arms, "a list of names")
    names = [check_name("arm", arm) for arm in arms]
    if not names:
        raise InvalidValue("arms", names, "at least one name")
    if len(set(names)) < len(names):
        raise InvalidValue("arms", max(names, key=Counter(names).__getitem__), "each name once")
    return names


def describe_policy(given: str | Policy, rule: Reward) -> tuple[str, int]:
    """The complete spec of a policy and the version of its formula, as the log stores them."""
    if not isinstance(given, str | Policy):
        raise InvalidValue("policy", given, "a spec such as 'ms+:booster=8', or a policy")
    try:
        made = policy(given, reward_range=rule.range) if rule.range else policy(given)
    except InvalidValue as error:
        if error.field.endswith("sigma2") and error.value is None:
            allowed = "a finite number > 0 (or give reward=Reward(low=..., high=...), which means sigma2 = (high - low)^2 / 4)"
            raise InvalidValue(error.field, None, allowed) from None
        raise
    spec = str(made)
    try:
        same = policy(spec) == made
    except MaillardError:
        same = False
    if not same:
        raise InvalidValue("policy", given, "a policy with a name, so that the log can name it")
    inner = made.policy if isinstance(made, WithFloor) else made
    if getattr(inner, "has_memory", False):
        raise InvalidValue(
            "policy", spec, "a policy whose whole state is a tally (this one is for simulation)"
        )
    low, high = made.support
    least, most = rule.bounds
    if least < low or most > high:
        allowed = f"rewards that {made.name} has a meaning for: low >= {low:g}" + (
            f" and high <= {high:g}" if high < math.inf else ""
        )
        raise InvalidValue("reward: (low, high)", (rule.low, rule.high), allowed)
    return spec, made.formula_version


def check_same(given: Mapping[str, Any], start: Start, state: State) -> None:
    """Refuse to resume an experiment under another configuration than its own."""
    rule, started = state.reward, payload_of(start)
    now = {"arms": state.active_arms, "policy": str(state.policy)}
    how = {
        "arms": "open the log without arms=, then add_arm and retire_arm",
        "policy": "open the log without policy=, then change_policy",
        "reward": "begin another experiment: what a reward is does not change within one",
        "sticky": "begin another experiment",
    }
    asked: dict[str, Any] = {}
    if given["arms"] is not None:
        asked["arms"] = check_arms(given["arms"])
    if given["policy"] is not None:
        asked["policy"] = describe_policy(given["policy"], rule)[0]
    if given["reward"] is not None:
        asked["reward"] = dataclasses.asdict(check_rule(given["reward"]))
    if given["sticky"] is not None:
        asked["sticky"] = given["sticky"]
    if "reward" in asked:  # field by field: so much is easily overlooked
        for name, value in asked["reward"].items():
            if value != (kept := started["reward"].get(name)):
                raise InvalidValue(
                    f"reward: {name}", value, f"{kept!r}, as the log has it (to change it: {how['reward']})"
                )
    for name, value in asked.items():
        # The same program, started again after a change, is no contradiction.
        if value not in (started[name], now.get(name)):
            raise InvalidValue(
                name, value, f"{now.get(name, started[name])}, as the log has it (to change it: {how[name]})"
            )


def check_request(unit: object, eligible: object, idempotency_key: object, size: object = 1) -> Request:
    """A call of `choose`."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 0 <= size <= _MOST_DRAWS:
        raise InvalidValue("size", size, f"a whole number from 0 to {_MOST_DRAWS}")
    return Request(
        unit=None if unit is None else check_name("unit", unit),
        eligible=None if eligible is None else _check_eligible(eligible),
        key=None if idempotency_key is None else check_name("idempotency_key", idempotency_key),
        size=int(size),
    )


def check_reward_event(
    rule: Reward, decision: object, value: object, at: Any = None, event: object = None, *, where: str = ""
) -> RewardEvent:
    """A reward as it arrives: its times are the transaction's, unless it says when it occurred."""
    identifier = check_id(decision, f"{where}decision_id")
    return RewardEvent(
        decision=identifier,
        event=identifier if event is None else check_name(f"{where}event", event),
        value=rule.check(value, f"{where}value"),
        at=NOW if at is None else to_microseconds(f"{where}at", at),
        arrived=NOW,
    )


def _check_eligible(eligible: object) -> frozenset[str]:
    """Names of arms that may be drawn."""
    if isinstance(eligible, str | bytes) or not isinstance(eligible, Iterable):
        raise InvalidValue("eligible", eligible, "names of arms, as in ['red', 'blue']")
    names = frozenset(check_name("eligible arm", arm) for arm in eligible)
    if not names:
        raise InvalidValue("eligible", [], "at least one arm")
    return names


def check_decision(row: object, experiment: str, state: State) -> None:
    """Refuse what is no decision drawn from a state of this experiment."""
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
    for name, most in limits.items():
        number = getattr(row, name)
        if type(number) is not int or not 1 <= number <= most:
            raise InvalidValue(f"decision: {name}", number, f"a whole number from 1 to {most}")
    eligible, logs = row.eligible, row.log_probabilities
    for arm in eligible:
        if arm not in state.arms:
            raise UnknownName("decision: eligible arm", str(arm), state.arms)
    whole = len(set(eligible)) == len(eligible) == len(logs) and all(
        type(log) is float and log <= 0 for log in logs
    )
    if not whole or row.arm not in eligible or row.log_probability != logs[eligible.index(row.arm)]:
        raise InvalidValue(
            "decision: log_probabilities", logs, "one <= 0 for each eligible arm, the drawn one's among them"
        )
    if (
        type(row.cold) is not bool
        or type(row.position) is not int
        or row.position < 0
        or row.origin is not None
    ):
        raise InvalidValue("decision", row, "cold true or false, a position >= 0, and a draw of its own")


def check_snapshot(snapshot: object, rule: Reward) -> Restore:
    """A snapshot, if it is one."""
    names = {"arms", "active", "policy", "formula", "tally"}
    if not isinstance(snapshot, Mapping) or set(snapshot) != names:
        raise InvalidValue("snapshot", snapshot, "what snapshot() returned")
    arms, active, tally = check_arms(snapshot["arms"]), snapshot["active"], read_tally(snapshot["tally"])
    if not isinstance(active, list) or {type(on) for on in active} != {bool} or not any(active):
        raise InvalidValue("snapshot: active", active, "a list of true and false, one of them true")
    if not len(arms) == len(active) == len(tally):
        raise InvalidValue(
            "snapshot: tally", len(tally), f"as many arms as there are names ({len(arms)}) and flags"
        )
    _check_range(tally, arms, rule)
    spec, formula = describe_policy(snapshot["policy"], rule)
    return Restore(arms=tuple(arms), active=tuple(active), policy=spec, formula=formula, tally=tally)


def tally_for(given: Tally | Mapping[str, Any], state: State) -> Tally:
    """What was learned elsewhere, in the order of the state's arms."""
    if isinstance(given, Tally):
        if len(given) != len(state.arms):
            raise InvalidValue("tally", len(given), f"as many arms as the experiment has ({len(state.arms)})")
        tally = given
    else:
        for arm in given:
            if arm not in state.arms:
                raise UnknownName("arm", str(arm), state.arms)
        parts = [_lone(arm, given[arm]) if arm in given else Tally.empty(1) for arm in state.arms]
        tally = Tally.joined(parts)
    _check_range(tally, state.arms, state.reward)
    return tally


def _lone(arm: str, value: object) -> Tally:
    if isinstance(value, Tally) and len(value) == 1:
        return value
    try:
        pulls, total = list[Any](value)  # type: ignore[call-overload]  # checked by failing
        if total is None:  # NumPy would read it as nan
            raise TypeError  # noqa: TRY301  # it is one
        return Tally([pulls], [total])
    except (TypeError, ValueError):
        allowed = "(pulls, sum): how many rewards, and what they add up to"
        raise InvalidValue(f"tally of {arm!r}", value, allowed) from None


def _check_range(tally: Tally, arms: Iterable[str], rule: Reward) -> None:
    low, high = rule.bounds
    bad = (tally.sums < low * tally.pulls) | (tally.sums > high * tally.pulls)
    for place in np.flatnonzero(bad).tolist():
        arm, pulls = list(arms)[place], int(tally.pulls[place])
        allowed = f"{low * pulls:g} to {high * pulls:g} for {pulls} rewards from {low:g} to {high:g}"
        raise InvalidValue(f"tally: sum of {arm!r}", float(tally.sums[place]), allowed)
