"""Recomputing every logged probability from the log alone, and auditing the draws."""

from __future__ import annotations

import itertools
import math
import reprlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maillard.decisions.audit import Audit, Score, Verdict
from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import AdministrativeEvent, Event, Reset, Restore
from maillard.decisions.log import MALFORMED, DecisionLog, Row, apply_events
from maillard.decisions.log_locations import redact
from maillard.decisions.opening import read_log
from maillard.decisions.reward_rule import Reward
from maillard.decisions.state import State
from maillard.errors import InvalidLog, MaillardError

__all__ = ["Problem", "Verification", "verify"]

_TOLERANCE = 1e-12
_SHOWN = 20
_FEW = 10  # rewards of a decision, every choice of which is tried
# What a repeat (sticky assignment) has from the decision that drew its arm.
_REPEATED = (
    "unit", "epoch", "arm", "eligible", "log_probabilities", "log_probability", "policy_version", "formula_version", "cold",
)  # fmt: skip


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
    not_recomputed: Counter[str] = field(default_factory=Counter)
    "Decisions whose law could not be, and why."
    not_audited: int = 0
    "Decisions that the audit does not count as draws: repeats of a sticky assignment, and laws that are not known in whole."
    largest_error: float = 0.0
    "Greatest |logged - recomputed| / max(1, |log p|) over all log probabilities."
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    "The first few."
    arms: list[Score] = field(default_factory=list)
    weights: Score | None = None
    limit: float = math.inf
    audit_verdict: Verdict = "not enough data"
    "Whether the draws agree with the probabilities."

    @property
    def verdict(self) -> Verdict:
        """Broken, if anything is; not enough data, if nothing can be said of the draws."""
        return "broken" if self.problem_count else self.audit_verdict

    def note(self, decision: str | None, what: str) -> None:
        """Remember a problem."""
        self.problem_count += 1
        if len(self.problems) < _SHOWN:
            self.problems.append(Problem(decision, what))


def verify(
    log: Any, experiment: str | None = None, *, on_rows: Callable[[int], None] | None = None
) -> Verification:
    """Recompute every logged log probability to 1e-12 max(1, |log p|), and audit the draws.

    `log` is anything that `read_log` reads; `on_rows` is told now and then how many decisions have been read. Probabilities by
    quadrature are compared to their stated bound.

    >>> from maillard.decisions import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], "ms", reward=Reward(low=0, high=1))
    >>> for decision in bandit.choose(size=200): _ = bandit.reward(decision.id, decision.arm == "red")
    >>> found = verify(bandit)
    >>> found.recomputed, found.problem_count, found.verdict
    (200, 0, 'consistent')
    """
    try:
        opened = read_log(log, experiment)
    except InvalidLog as error:
        found = Verification(experiment=experiment or "", source=redact(log))
        found.note(None, f"the log cannot be read: {error}")
        return found
    opened.on_rows = on_rows or opened.on_rows
    found = Verification(experiment=opened.experiment, source=opened.source)
    audit = Audit()
    try:
        if opened.foreign:
            for row in opened.rows():
                audit.add(row.decision)
                found.decisions += 1
            found.not_recomputed["the log has no states to recompute from"] = found.decisions
        else:
            _replay(opened, found, audit)
    finally:
        if opened is not log:
            opened.close()
    found.arms, found.weights = audit.scores(), audit.weights()
    found.limit, found.audit_verdict, found.not_audited = audit.limit, audit.verdict, audit.left_out
    if audit.impossible:
        found.note(None, f"{audit.impossible} decisions are for an arm whose logged probability is 0")
    return found


def _replay(log: DecisionLog, found: Verification, audit: Audit) -> None:
    """Check every decision against the state that it was drawn from, rebuilt on the way through the log."""
    events: list[Event] = []
    state: State | None = None
    try:
        checks = _Checks(log, found)
        for each in log.history():
            if isinstance(each, Event):
                events.append(each)
                continue
            if events or state is None:
                state, events = apply_events(state, events, log.source), []
            found.decisions += 1
            audit.add(each.decision)
            checks.check(each, state)
        apply_events(state, events, log.source)
        checks.finish()
    except MaillardError as error:
        found.note(None, f"the rest of the log cannot be replayed: {error}")


class _Checks:
    """What must be so of a row, given the state that it was drawn from."""

    def __init__(self, log: DecisionLog, found: Verification) -> None:
        self.found = found
        assert log.reward is not None  # it is not foreign
        self.accounts = _Accounts(log.reward, log.events, found)
        self.sticky = log.sticky
        # Of one state: the draws that others may repeat, and the repeats. Ids tell which was first only within a process.
        self.state = 0
        self.origins: dict[str, Decision] = {}
        self.repeats: list[Decision] = []

    def check(self, row: Row, state: State) -> None:
        decision = row.decision
        if decision.state != self.state:
            self.finish()
            self.state = decision.state
        if decision.origin is not None:
            self.repeats.append(decision)
        elif self.sticky and decision.unit is not None:
            self.origins[decision.id] = decision
        try:
            self.accounts.check(row)
            self._check_law(decision, state)
        except (*MALFORMED, MaillardError) as error:
            self.found.note(decision.id, f"it cannot be checked in state {state.number}: {error!r}")

    def _check_law(self, decision: Decision, state: State) -> None:
        if what := _contradiction(decision, state):
            self.found.note(decision.id, what)
        elif decision.formula_version != state.policy.formula_version:
            version = f"formula version {decision.formula_version} of {state.policy.name} is not the one here"
            self.found.not_recomputed[version] += 1
        else:
            self._recompute(decision, state)

    def _recompute(self, decision: Decision, state: State) -> None:
        eligible = frozenset(decision.eligible)
        if (
            state.choice_distribution(eligible).log_probabilities == decision.log_probabilities
        ):  # bit for bit: the usual case
            self.found.recomputed += 1
            return
        exact = state.distribution(eligible)
        logged = np.array(decision.log_probabilities)
        possible = np.isfinite(exact.log_probabilities)
        scale = np.where(possible, np.maximum(1.0, np.abs(exact.log_probabilities)), 1.0)
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
            self.found.largest_error = max(self.found.largest_error, float((error / scale).max()))

    def finish(self) -> None:
        """Check the repeats of a state, all of whose rows have been seen."""
        for row in self.repeats:
            origin = self.origins.get(row.origin or "")
            if not self.sticky:
                self.found.note(row.id, f"repeats {row.origin}, in an experiment that is not sticky")
            elif origin is None:
                self.found.note(row.id, f"repeats {row.origin}, which was not drawn from state {row.state}")
            else:
                other = [name for name in _REPEATED if getattr(row, name) != getattr(origin, name)]
                if other:
                    self.found.note(row.id, f"repeats {row.origin}, with another {other[0]}")
        self.repeats, self.origins = [], {}


class _Accounts:
    """Whether what was learned of a decision is what its rewards come to."""

    def __init__(self, rule: Reward, events: Sequence[AdministrativeEvent], found: Verification) -> None:
        self.rule, self.found = rule, found
        self.ends = [event.number for event in events if isinstance(event, Reset | Restore)]
        "Of each epoch but the last, the event that ended it."

    def check(self, row: Row) -> None:
        decision, rule = row.decision, self.rule
        low, high = rule.bounds
        for each in row.rewards:
            if not low <= each.value <= high:
                self.found.note(decision.id, f"reward {each.event!r} is {each.value!r}, out of its range")
                return
        ended = 0 < decision.epoch <= len(self.ends)
        timely = [each for each in row.rewards if not each.late]
        problems = [
            f"event {event.number} {what}"
            for place, event in enumerate(row.applied)
            if (what := self._event(row, timely, place))
        ]
        problems += filter(
            None, [self._lateness(row, timely, ended=ended), self._total(row, timely, ended=ended)]
        )
        for problem in problems:
            self.found.note(decision.id, problem)

    def _event(self, row: Row, timely: Sequence[RewardEvent], place: int) -> str | None:
        """What is wrong with one of the events that a decision's rewards made."""
        decision, rule, event = row.decision, self.rule, row.applied[place]
        before = row.applied[place - 1] if place else None
        closes = rule.closes(decision.time)
        early = closes is not None and event.time < closes
        what = None
        if event.number <= decision.state:
            what = "learned its reward before it was drawn"
        elif 0 < decision.epoch <= len(self.ends) and event.number > self.ends[decision.epoch - 1]:
            what = "learned its reward after its epoch"
        elif event.arm != decision.arm:
            what = f"is of {event.arm!r}, the decision of {decision.arm!r}"
        elif event.kind == "revision":
            if (
                before is None
                or before.kind == "default"
                or rule.mature_only
                or event.previous != before.value
            ):
                what = "revises what had not been learned"
        elif before is not None:
            what = "counts its reward twice"
        elif event.kind == "default":
            if rule.default is None or event.value != rule.default or timely or early:
                what = f"is a default of {event.value!r}, for {len(timely)} rewards"
        elif rule.mature_only and early:
            what = "learned its reward before its window closed"
        return what

    def _lateness(self, row: Row, timely: Sequence[RewardEvent], *, ended: bool) -> str | None:
        """What is wrong with who was late: a window that has been settled stays closed, even if the clock is set back."""
        rule, closes = self.rule, self.rule.closes(row.decision.time)
        late = [each for each in row.rewards if each.late]
        if closes is None:
            return f"reward {late[0].event!r} is late, where there is no window" if late else None
        for each in timely:
            if each.arrived >= closes:
                return f"reward {each.event!r} came after the window closed, and is not late"
        settled = rule.settles and bool(row.applied or ended or (rule.default is None and not timely))
        if late and not settled and not any(each.arrived >= closes for each in late):
            return f"reward {late[0].event!r} is late, and came before the window closed"
        return None

    def _total(self, row: Row, timely: Sequence[RewardEvent], *, ended: bool) -> str | None:
        """What is wrong with what was learned last. Rewards that come after the decision's epoch are logged only."""
        rule, total = self.rule, self.rule.total(timely)
        if not row.applied:
            if total is not None and not ended and not rule.mature_only:
                return f"its reward, {total!r}, was never learned"
        elif row.applied[0].kind != "default":
            value = row.applied[-1].value
            if value != total and (rule.mature_only or not ended or not _is_part(value, timely, rule)):
                return f"its reward was learned as {value!r}, its rows come to {total!r}"
        return None


def _is_part(value: float | None, rows: Sequence[RewardEvent], rule: Reward) -> bool:
    """Whether the rows that came before an epoch ended may come to a value.

    They are the first ones by arrival, unless the clock was set back or stood still: then any of them.
    """
    if value is None or rule.combine != "sum":
        return any(row.value == value for row in rows)
    if any(rule.total(rows[:size]) == value for size in range(1, len(rows))):
        return True
    if len(rows) > _FEW:
        least, most = (math.fsum(pick(row.value, 0.0) for row in rows) for pick in (min, max))
        return least <= value <= most
    sizes = range(1, len(rows))
    return any(rule.total(some) == value for size in sizes for some in itertools.combinations(rows, size))


def _contradiction(decision: Decision, state: State) -> str | None:
    """What in a row does not fit the state that it names."""
    eligible, logs, number = decision.eligible, decision.log_probabilities, state.number
    if number != decision.state:
        return f"drawn from state {decision.state}, which the log does not reach"
    if state.paused:
        return f"drawn from state {number}, in which the experiment was paused"
    allowed = set(eligible)
    if (
        tuple(arm for arm, on in zip(state.arms, state.active, strict=True) if on and arm in allowed)
        != eligible
    ):
        return f"eligible arms {_some(eligible)} are not among those of state {number}, in their order"
    if decision.arm not in allowed or len(logs) != len(eligible):
        return f"arm {decision.arm!r} with {len(logs)} log probabilities, for the eligible arms {_some(eligible)}"
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


def _some(names: Sequence[str]) -> str:
    return reprlib.repr(list(names))
