"""Checks of a decision against the state that it names."""

from __future__ import annotations

import reprlib

from maillard.decisions.decision import Decision
from maillard.decisions.state import State


def state_problem(decision: Decision, state: State) -> str | None:
    """Return how a decision contradicts the state that it names; None if it does not."""
    eligible, logs, number = decision.eligible, decision.log_probabilities, state.number
    if number != decision.state:
        return f"chosen in state {decision.state}, which the log does not contain"
    if state.paused:
        return f"chosen in state {number}, in which the experiment was paused"
    allowed = set(eligible)
    if not state.dynamic and tuple(arm for arm in state.active_arms if arm in allowed) != eligible:
        names = reprlib.repr(list(eligible))
        return f"eligible arms {names} are not active arms of state {number}, in their order"
    if decision.arm not in allowed or len(logs) != len(eligible):
        names = reprlib.repr(list(eligible))
        return f"arm {decision.arm!r} and {len(logs)} log probabilities do not fit the eligible arms {names}"
    cold = decision.cold if state.context else not state.tally.pulls[state.arms.index(decision.arm)]
    for name, logged, exact in (
        ("epoch", decision.epoch, state.epoch),
        ("policy_version", decision.policy_version, state.policy_version),
        ("log_probability", decision.log_probability, logs[eligible.index(decision.arm)]),
        ("cold", decision.cold, cold),
        ("feature_version", decision.feature_version, state.feature_version),
    ):
        if logged != exact:
            return f"{name} is {logged!r}, but was {exact!r} in state {number}"
    return None
