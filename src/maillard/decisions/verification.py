"""Verification of a log: recomputes all probabilities, and tests whether the choices agree with them."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from maillard.decisions.audit import Audit, Score, Verdict
from maillard.decisions.chain_process import ChainResult, check_log_chain, started_chain_process
from maillard.decisions.chain_verification import ChainReport, check_anchor, refuse_pruned_meanwhile
from maillard.decisions.columns import columns_of
from maillard.decisions.context_verification import context_problem, row_problem
from maillard.decisions.decision import Decision
from maillard.decisions.events import Event, Simulate
from maillard.decisions.log import MALFORMED, DecisionLog, apply_events
from maillard.decisions.log_arrays import LogArrays
from maillard.decisions.log_locations import redact
from maillard.decisions.opening import read_log
from maillard.decisions.pipeline_audit import PipelineAudit
from maillard.decisions.reward_verification import epoch_ends, reward_problems
from maillard.decisions.screening import NotScreened, Screening
from maillard.decisions.state import State
from maillard.decisions.state_verification import state_problem
from maillard.decisions.stores.bulk_columns import OddRows
from maillard.decisions.stores.contract import Row
from maillard.decisions.stores.native_reads import bulk_reader
from maillard.decisions.verification_display import VerificationDisplay
from maillard.errors import InvalidLog, InvalidValue, MaillardError
from maillard.policies.base.formula_versions import earlier_version

_TOLERANCE = 1e-12
_MAX_LISTED_PROBLEMS = 20
# The fields that a repeated decision (sticky assignment) has in common with the original.
_REPEATED_FIELDS = (
    "unit", "epoch", "arm", "eligible", "log_probabilities", "log_probability", "policy_version",
    "formula_version", "cold", "encoded", "feature_version",
)  # fmt: skip


@dataclass(frozen=True)
class LogProblem:
    """A contradiction in the log."""

    decision: str | None
    "Id of the decision; None if the problem concerns the whole log."
    what: str


@dataclass(kw_only=True, repr=False)
class Verification(VerificationDisplay):
    """The result of `verify`.

    >>> from maillard import Bandit, Reward
    >>> found = verify(Bandit(["red", "blue"], reward=Reward(low=0, high=1)))
    >>> found.decisions, found.problems, found.verdict
    (0, [], 'not enough data')
    """

    experiment: str
    source: str
    decisions: int = 0
    recomputed: int = 0
    not_recomputed: Counter[str] = field(default_factory=Counter)
    "Decisions whose probabilities could not be recomputed, by reason."
    notes: list[str] = field(default_factory=list)
    "What is unusual about a table of another program, and which faults cannot be found in it."
    not_audited: int = 0
    "Decisions without a choice of their own (sticky assignments), or with unknown probabilities."
    largest_error: float = 0.0
    "Largest |logged - recomputed| / max(1, |log p|) over all log probabilities."
    problem_count: int = 0
    problems: list[LogProblem] = field(default_factory=list)
    "The first problems; `problem_count` is the number of all."
    arms: list[Score] = field(default_factory=list)
    weights: Score | None = None
    "The audit's score of the importance weights; `arms` has that of each arm."
    limit: float = math.inf
    "The largest |z| of a score that is consistent with the probabilities."
    seeded: bool = False
    "Whether choices were made with a seed, so that anyone who knows it can predict them."
    simulated_clock: bool = False
    "Whether times come from a clock that the caller provided."
    chain: ChainReport | None = None
    "What the hash chain says; None if the log is not in a store."
    verified_before: int = 0
    "Those decisions that an earlier verification has checked, which saved a checkpoint."
    erased_contexts: int = 0
    "Decisions whose context was erased, so that only its encoded form could be checked."
    audit_verdict: Verdict = "not enough data"
    "Whether the choices agree with the logged probabilities."

    @property
    def verdict(self) -> Verdict:
        """The verdict of the audit; "broken" if there is any problem."""
        return "broken" if self.problem_count else self.audit_verdict

    def add_problem(self, decision: str | None, what: str) -> None:
        """Record a problem."""
        self.problem_count += 1
        if len(self.problems) < _MAX_LISTED_PROBLEMS:
            self.problems.append(LogProblem(decision, what))


def verify(
    log: Any,
    experiment: str | None = None,
    *,
    anchor: str | None = None,
    checkpoint: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> Verification:
    """Recompute every logged probability, and test whether the choices agree with the probabilities.

    `log` is anything that `read_log` opens, and `experiment` the name of the experiment, if the log contains
    several. Log probabilities may differ by 1e-12 max(1, |log p|), or by the
    error bound of policies that use quadrature. A log in a store has a hash chain, which is checked too:
    with `anchor`, a hash that was published earlier, the log must extend the log of that time. `checkpoint`
    is a file in which a successful verification saves its result, so that the next one with this file
    verifies only later commits. `columns` is as in `read_log`. `on_rows` is called with the decisions so far.

    >>> from maillard.decisions import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], "ms", reward=Reward(low=0, high=1))
    >>> for decision in bandit.choose(size=200): _ = bandit.reward(decision.id, decision.arm == "red")
    >>> found = verify(bandit)
    >>> found.recomputed, found.problem_count, found.verdict
    (200, 0, 'consistent')
    """
    expected = None if anchor is None else check_anchor(anchor)
    try:
        opened = read_log(log, experiment, columns=columns)
    except InvalidLog as error:
        found = Verification(experiment=experiment or "", source=redact(log))
        found.add_problem(None, f"the log cannot be read: {error}")
        return found
    opened.on_rows = on_rows or opened.on_rows
    found = Verification(experiment=opened.experiment, source=opened.source)
    simulations = [event for event in opened.events if isinstance(event, Simulate)]
    found.seeded = any(event.seed is not None for event in simulations)
    found.simulated_clock = any(event.clock for event in simulations)
    with nullcontext() if opened is log else opened:
        if checkpoint is None:
            audit = _verify_all(opened, found, expected)
        else:
            from maillard.decisions.verification_checkpoint import verify_from

            audit = verify_from(Path(checkpoint), opened, found, expected)
        if found.problem_count and opened.read_chain is not None:
            refuse_pruned_meanwhile(opened.read_chain, opened.pruned)
        for problem in opened.changed_files():
            found.add_problem(None, problem)
    order = {arm: place for place, arm in enumerate(opened.arms)}
    found.arms = sorted(audit.scores(), key=lambda score: order.get(score.name, len(order)))
    found.weights = audit.weights()
    found.limit, found.audit_verdict, found.not_audited = audit.limit, audit.verdict, audit.left_out
    if audit.impossible:
        found.add_problem(None, f"{audit.impossible} decisions are for an arm whose logged probability is 0")
    return found


def _verify_all(log: DecisionLog, found: Verification, anchor: str | None) -> Audit:
    """Verify every row of a log, in the order of states, and its hash chain."""
    if log.read_chain is None:
        if anchor is not None:
            raise InvalidValue("anchor", anchor, f"a log in a store; {log.source} has no hash chain")
        return _check_all_rows(log, found)
    with started_chain_process(log, anchor) as process:
        if process is None:
            _add_chain(found, check_log_chain(log, anchor))
        audit = _check_all_rows(log, found)
        if process is not None:
            _add_chain(found, process.result() or check_log_chain(log, anchor))
    return audit


def _add_chain(found: Verification, result: ChainResult) -> None:
    """Add what the check of the chain found, before the problems of rows."""
    found.chain = result.report
    listed = [*(LogProblem(*each) for each in result.problems), *found.problems]
    found.problems = listed[:_MAX_LISTED_PROBLEMS]
    found.problem_count += result.problem_count


def _check_all_rows(log: DecisionLog, found: Verification) -> Audit:
    """Check the rows of a log as far as its states can be rebuilt; return the audit of the choices."""
    if not log.foreign and log.selection.selects_all:
        return _check_rows(log, found)
    audit = Audit()
    _audit_rows(log, found, audit)
    reason = "the log has no events" if log.foreign else "a part of a log does not have all events"
    found.not_recomputed[f"{reason} to rebuild states from"] = found.decisions
    return audit


def _audit_rows(log: DecisionLog, found: Verification, audit: Audit) -> None:
    """Audit the rows of a log whose states cannot be rebuilt."""
    pipeline = PipelineAudit()
    try:
        log.check_rows()
    except InvalidLog as error:
        found.add_problem(None, str(error))

    def rows() -> Iterator[Row]:
        for row in log.rows():
            audit.add(row.decision)
            found.decisions += 1
            yield row

    every = rows()
    try:
        for columns in columns_of(log, every):
            pipeline.add_columns(columns, foreign=log.foreign)
        found.notes = [*pipeline.doubts, *pipeline.unchecked] if log.foreign else []
    except InvalidValue as error:  # a row that cannot be evaluated; the audit of choices goes on
        found.add_problem(None, str(error))
        for _ in every:
            pass
    for fault in pipeline.located_faults if audit.verdict != "broken" else ():
        found.add_problem(None, fault)


def _check_rows(log: DecisionLog, found: Verification) -> Audit:
    """Check all rows of a log against its states, many at once if possible; return the audit."""
    screened, audit = copy.deepcopy(found), Audit()
    if _screen_store(log, screened, audit):
        vars(found).update(vars(screened))
        return audit
    audit = Audit()
    _verify_rows(log, found, audit)
    return audit


def _verify_rows(log: DecisionLog, found: Verification, audit: Audit) -> None:
    """Rebuild the states of the log in order, and check every decision against its state."""
    events: list[Event] = []
    try:
        state = log.base_state()
        checker = RowChecker(log, found)
        for each in log.history():
            if isinstance(each, Event):
                events.append(each)
                continue
            if events or state is None:
                state, events = apply_events(state, events, log.source), []
            found.decisions += 1
            audit.add(each.decision)
            checker.check(each, state)
        apply_events(state, events, log.source)
        checker.check_repeats()
    except MaillardError as error:
        found.add_problem(None, f"the rest of the log cannot be replayed: {error}")


def _screen_rows(log: DecisionLog, parts: Iterable[LogArrays], found: Verification, audit: Audit) -> None:
    """Do the same as `_verify_rows` with arrays: check only the rows that are not certainly correct.

    Raises NotScreened if the log must be checked row by row.
    """
    screening, checker = Screening(log), RowChecker(log, found)
    for part in parts:
        found.decisions += len(part)
        audit.add_arrays(part, log.arms)
        for row, state in screening.add(part):
            checker.check(row, state)
        if log.on_rows is not None:
            log.on_rows(found.decisions)
    screening.finish()
    checker.check_repeats()
    found.recomputed += screening.recomputed
    found.not_recomputed += screening.not_recomputed
    found.largest_error = max(found.largest_error, screening.largest_error)


def _screen_store(log: DecisionLog, found: Verification, audit: Audit) -> bool:
    """Screen a log in a store that has bulk reads; return False if it must be checked row by row."""
    if log.read_chain is None or log.reward is None or log.pruned is not None or log.uses_contexts:
        return False
    try:
        with log.read_chain() as transaction:
            parts = bulk_reader(transaction).arrays(log.arms, log.number, log.reward.learn)
            _screen_rows(log, parts, found, audit)
    except (NotScreened, OddRows, MaillardError):
        return False
    return True


class RowChecker:
    """Checks rows against the states in which they were chosen."""

    def __init__(self, log: DecisionLog, found: Verification) -> None:
        assert log.reward is not None  # only a foreign log has no reward rule
        self.found, self.sticky, self.rule = found, log.sticky, log.reward
        self.epoch_ends = epoch_ends(log.events)
        # Decisions of the current state: originals by id, and repeats. Ids are not in order of time.
        self.state = 0
        self.origins: dict[str, Decision] = {}
        self.repeats: list[Decision] = []
        self._earlier: tuple[State, State] | None = None  # a state, and the same with an earlier formula

    def check(self, row: Row, state: State) -> None:
        decision = row.decision
        if decision.state != self.state:
            self.check_repeats()
            self.state = decision.state
        if decision.origin is not None:
            self.repeats.append(decision)
        elif self.sticky and decision.unit is not None:
            self.origins[decision.id] = decision
        try:
            self.check_rewards(row)
            problem = state_problem(decision, state) or self._recompute(decision, state)
            if problem := problem or context_problem(decision, state):
                self.found.add_problem(decision.id, problem)
            elif decision.encoded is not None and decision.context is None and decision.actions is None:
                self.found.erased_contexts += 1
        except (*MALFORMED, MaillardError) as error:
            self.found.add_problem(decision.id, f"cannot be checked in state {state.number}: {error!r}")

    def check_rewards(self, row: Row) -> None:
        """Check that the reward events of a decision agree with the rewards that were applied."""
        for problem in reward_problems(row, self.rule, self.epoch_ends.get(row.decision.epoch)):
            self.found.add_problem(row.decision.id, problem)
        if other := row_problem(row):
            self.found.add_problem(row.decision.id, other)

    def _recompute(self, decision: Decision, state: State) -> str | None:
        """Recompute the probabilities of a decision; return the problem with the logged ones."""
        version, name = decision.formula_version, state.policy.name
        versioned = self._with_version(state, version)
        if versioned is None:
            reason = f"formula version {version} of {name} is not the installed one"
            self.found.not_recomputed[reason] += 1
            return None
        state = versioned
        eligible, encoded = decision.eligible, decision.encoded
        again = (
            state.choice_distribution(frozenset(eligible))
            if state.context is None
            else state.choice_from(eligible, encoded)
        )
        cold = again.cold[eligible.index(decision.arm)]
        if cold != decision.cold:  # with contexts; otherwise it was compared before
            return f"cold is {decision.cold!r}, but was {cold!r} in state {state.number}"
        if again.log_probabilities != decision.log_probabilities:  # rare
            logged = np.array(decision.log_probabilities)
            whole = state.distribution(eligible, encoded)
            exact, finite = whole.log_probabilities, np.isfinite(whole.log_probabilities)
            scale = np.where(finite, np.maximum(1.0, np.abs(exact)), 1.0)
            with np.errstate(invalid="ignore"):
                error = np.where(logged == exact, 0.0, np.abs(logged - exact))
            bad = ~(error <= np.maximum(_TOLERANCE * scale, 2.0 * whole.error))
            if bad.any():
                place = int(np.argmax(bad))
                was, should = float(logged[place]), float(exact[place])
                return f"log probability of {decision.eligible[place]!r} is {was!r}, but should be {should!r}"
            self.found.largest_error = max(self.found.largest_error, float((error / scale).max()))
        self.found.recomputed += 1
        return None

    def _with_version(self, state: State, version: int) -> State | None:
        """Return the state with this version of the policy's formula; None if it is not known."""
        if version == state.policy.formula_version:
            return state
        known, earlier = self._earlier or (None, state)
        if state is not known or earlier.policy.formula_version != version:
            policy = earlier_version(state.policy, version)
            if policy is None:
                return None
            earlier = replace(state, policy=policy, _bound=[], _segments={})
            self._earlier = state, earlier
        return earlier

    def check_repeats(self) -> None:
        """Check the repeats of the current state, after all of its rows have been read."""
        for row in self.repeats:
            self.check_repeat(row, self.origins.get(row.origin or ""))
        self.repeats, self.origins = [], {}

    def check_repeat(self, row: Decision, origin: Decision | None) -> None:
        """Check a repeated decision against the original, if the log has it."""
        other = [name for name in _REPEATED_FIELDS if getattr(row, name) != getattr(origin, name, None)]
        if not self.sticky:
            problem = "but the experiment is not sticky"
        elif origin is None:
            problem = f"which was not chosen in state {row.state}"
        elif other:
            problem = f"but has another {other[0]}"
        else:
            return
        self.found.add_problem(row.id, f"repeats {row.origin}, {problem}")
