"""Recomputing every logged probability from the log alone, and auditing the draws."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maillard.decisions.audit import Audit, Score, Verdict
from maillard.decisions.log import DecisionLog, Row, open_log
from maillard.decisions.records import Decision, Event
from maillard.decisions.rules import Reward
from maillard.decisions.state import State, replay
from maillard.errors import MaillardError

__all__ = ["Problem", "Verification", "verify"]

_TOLERANCE = 1e-12
_SHOWN = 20


@dataclass(frozen=True)
class Problem:
    """Something in the log that contradicts the rest of it."""

    decision: str | None
    what: str


@dataclass(kw_only=True)
class Verification:
    """What `verify` found."""

    experiment: str
    source: str
    decisions: int = 0
    recomputed: int = 0
    "Decisions whose whole law was computed again."
    left_out: Counter[str] = field(default_factory=Counter)
    "Decisions whose law could not be, and why."
    largest_error: float = 0.0
    "Greatest |logged - recomputed| / max(1, |log p|) over all log probabilities."
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    "The first few."
    arms: list[Score] = field(default_factory=list)
    weights: Score | None = None
    limit: float = math.inf
    draws: Verdict = "not enough data"
    "Whether the draws agree with the probabilities."

    @property
    def verdict(self) -> Verdict:
        """Broken, if anything is; not enough data, if nothing can be said of the draws."""
        return "broken" if self.problem_count else self.draws

    def note(self, decision: str | None, what: str) -> None:
        """Remember a problem."""
        self.problem_count += 1
        if len(self.problems) < _SHOWN:
            self.problems.append(Problem(decision, what))


def verify(log: Any, experiment: str | None = None) -> Verification:
    """Recompute every logged log probability to 1e-12 max(1, |log p|), and audit the draws.

    `log` is anything that `read_log` reads. Probabilities by quadrature are compared to their stated bound.

    >>> from maillard.decisions import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], "ms", reward=Reward(low=0, high=1))
    >>> for decision in bandit.choose(size=200): _ = bandit.reward(decision.id, decision.arm == "red")
    >>> found = verify(bandit)
    >>> found.recomputed, found.problem_count, found.verdict
    (200, 0, 'holds')
    """
    opened = open_log(log, experiment)
    found = Verification(experiment=opened.experiment, source=opened.source)
    audit = Audit()
    try:
        if opened.foreign:
            for row in opened.rows():
                audit.add(row.decision)
                found.decisions += 1
            found.left_out["the log has no states to recompute from"] = found.decisions
        else:
            _replay(opened, found, audit)
    finally:
        if opened is not log:
            opened.close()
    found.arms, found.weights = audit.scores(), audit.weights()
    found.limit, found.draws = audit.limit, audit.verdict
    if audit.impossible:
        found.note(None, f"{audit.impossible} decisions are for an arm whose logged probability is 0")
    return found


def _replay(log: DecisionLog, found: Verification, audit: Audit) -> None:
    """Check every decision against the state that it was drawn from, rebuilt on the way through the log."""
    checks = _Checks(log, found)
    events: list[Event] = []
    state: State | None = None
    try:
        for each in log.history():
            if isinstance(each, Event):
                events.append(each)
                continue
            state, events = _after(state, events), []
            found.decisions += 1
            audit.add(each.decision)
            checks.check(each, state)
        checks.finish(_after(state, events))
    except MaillardError as error:
        found.note(None, f"the rest of the log cannot be replayed: {error}")


def _after(state: State | None, events: list[Event]) -> State:
    try:
        return replay(events) if state is None else state.after(events)
    except (KeyError, TypeError, AttributeError) as error:  # a log that was tampered with
        raise MaillardError(
            f"event {events[0].number} or one of the next {len(events)} cannot be applied ({error!r})"
        ) from None


class _Checks:
    """What must be so of a row, given the state that it was drawn from."""

    def __init__(self, log: DecisionLog, found: Verification) -> None:
        self.log, self.found = log, found
        assert log.reward is not None  # it is not foreign
        self.rule: Reward = log.reward
        self.unlearned: list[tuple[Decision, float]] = []

    def check(self, row: Row, state: State) -> None:
        decision = row.decision
        self._check_rewards(row)
        if decision.formula_version != state.policy.formula_version:
            version = f"formula version {decision.formula_version} of {state.policy.name} is not the one here"
            self.found.left_out[version] += 1
        elif what := _contradiction(decision, state):
            self.found.note(decision.id, what)
        else:
            self._recompute(decision, state)

    def _recompute(self, decision: Decision, state: State) -> None:
        eligible = frozenset(decision.eligible)
        if state.law(eligible).log_probabilities == decision.log_probabilities:  # bit for bit: the usual case
            self.found.recomputed += 1
            return
        exact = state.distribution(eligible)
        logged = np.array(decision.log_probabilities)
        scale = np.maximum(1.0, np.abs(exact.log_probabilities))
        allowed = np.maximum(_TOLERANCE * scale, 2.0 * exact.error)
        with np.errstate(invalid="ignore"):
            error = np.where(logged == exact.log_probabilities, 0.0, np.abs(logged - exact.log_probabilities))
        bad = ~(error <= allowed)
        if bad.any():
            place = int(np.argmax(bad))
            was, should = float(logged[place]), float(exact.log_probabilities[place])
            arm = decision.eligible[place]
            self.found.note(decision.id, f"log probability of {arm!r} is {was!r}, should be {should!r}")
        else:
            self.found.recomputed += 1
            self.found.largest_error = max(
                self.found.largest_error, float((error / scale)[np.isfinite(scale)].max())
            )

    def _check_rewards(self, row: Row) -> None:
        """What was learned of a decision is what its rewards come to."""
        decision, total = row.decision, self.rule.total(row.rewards)
        previous: float | None = None
        for event in row.learned:
            if event.number <= decision.state:
                self.found.note(decision.id, f"learned in event {event.number}, before it was drawn")
            if event.arm != decision.arm or (event.kind == "revision" and event.previous != previous):
                self.found.note(
                    decision.id, f"event {event.number} contradicts the decision or the event before it"
                )
            if event.kind != "revision" and previous is not None:
                self.found.note(decision.id, f"event {event.number} counts its reward twice")
            previous = event.value
        if row.learned and row.learned[-1].kind != "default":
            if total is None or (previous != total and not self._moved_on(decision)):
                self.found.note(
                    decision.id, f"its reward was learned as {previous!r}, its rows come to {total!r}"
                )
        elif total is not None and not row.learned and not self.rule.mature_only:
            self.unlearned.append((decision, total))

    def _moved_on(self, decision: Decision) -> bool:
        """Whether a later epoch has begun, whose rewards this decision's no longer belong to."""
        return any(
            event.kind in ("reset", "restore") and event.number > decision.state for event in self.log.events
        )

    def finish(self, state: State) -> None:
        """What only the end of the log tells."""
        for decision, total in self.unlearned:
            if decision.epoch == state.epoch:
                self.found.note(decision.id, f"its reward, {total!r}, was never learned")


def _contradiction(decision: Decision, state: State) -> str | None:
    """What in a row does not fit the state that it names."""
    eligible, logs, number = decision.eligible, decision.log_probabilities, state.number
    if number != decision.state:
        return f"drawn from state {decision.state}, which the log does not reach"
    known = set(state.active_arms)
    if [arm for arm in state.arms if arm in known and arm in eligible] != list(eligible):
        return f"eligible arms {list(eligible)} are not among those of state {number}, in their order"
    if decision.arm not in eligible or len(logs) != len(eligible):
        return (
            f"arm {decision.arm!r} with {len(logs)} log probabilities, for the eligible arms {list(eligible)}"
        )
    cold = not state.tally.pulls[state.arms.index(decision.arm)]
    for name, logged, exact in (
        ("epoch", decision.epoch, state.epoch),
        ("policy_version", decision.policy_version, state.policy_version),
        ("log_probability", decision.log_probability, logs[eligible.index(decision.arm)]),
        ("cold", decision.cold, cold),
    ):
        if logged != exact:
            return f"{name} is {logged!r}, in state {number} it was {exact!r}"
    return None
