"""Verification of some commits of a log, in the order of its hash chain.

`verify` reads a whole log in the order of states. This module reads only the rows that some links name, so
that a prefix can be verified before it is pruned, and the commits after those that were verified before. The
checks of a row are the same.

A decision of a later commit may have been made in an earlier state, because its process had not read the
latest events yet. So some states of the last blocks are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import NamedTuple

from maillard.decisions import chain
from maillard.decisions.audit import Audit
from maillard.decisions.chain import Link
from maillard.decisions.chain_verification import ChainChecker
from maillard.decisions.decision import Decision
from maillard.decisions.events import Event
from maillard.decisions.log import MALFORMED, DecisionLog, apply_events
from maillard.decisions.reward_verification import epoch_ends
from maillard.decisions.state import State
from maillard.decisions.stores.contract import ChainRows, Row, Transaction
from maillard.decisions.stores.sql_chain import ids_of
from maillard.decisions.verification import RowChecker, Verification
from maillard.errors import CannotAnswer, InvalidLog, MaillardError
from maillard.policies import policy
from maillard.policies.base.formula_versions import earlier_version

_MAX_LINKS = 1_000  # per block
_MAX_ROWS = 2_000
_MAX_EVENTS = 10_000  # per read
_KEPT_STATES, _STATE_INTERVAL = 8, 2_500  # states that are kept; events between two of them

Read = Callable[[], AbstractContextManager[Transaction]]


class StateBefore(CannotAnswer):
    """A decision was made in a state that is older than the oldest known one."""


def block_of(links: Sequence[Link]) -> list[Link]:
    """The first of these links: one at least, and no more than have a limited number of rows."""
    size, rows = 0, 0
    for link in links:
        rows += len(link.decisions) // chain.ID_SIZE + link.events
        rows += len(link.rewards) // chain.REWARD_KEY_SIZE
        if size and rows > _MAX_ROWS:
            break
        size += 1
    return list(links[:size])


class _Block(NamedTuple):
    """Some consecutive links with their rows."""

    links: list[Link]
    chained: ChainRows
    rows: list[Row]
    "Their decisions, in the order of states."
    rewarded: list[Row]
    "Other decisions whose rewards or tally updates the links name."
    origins: dict[str, Decision]
    "The decisions that some of the rows repeat."


class StateHistory:
    """Rebuilds the states after some events. Requests may go back a little."""

    def __init__(self, read: Read, base: State | None, source: str) -> None:
        self._read, self._base, self._source = read, base, source
        self._recent: deque[State] = deque(maxlen=_KEPT_STATES)
        self._latest = base

    @property
    def first(self) -> int:
        """The number of the first state that can be rebuilt."""
        return 1 if self._base is None else self._base.number

    def before(self, events: int, last_event: int) -> State | None:
        """A state some events before the last one, or the first state if there are only a few more."""
        if last_event - self.first <= 2 * events:
            return self._base
        return self.at(last_event - events)

    def states(self, numbers: Iterable[int]) -> Iterator[State]:
        """Yield the state of each of these numbers, which must not fall."""
        state: State | None = None
        events: Iterator[Event] = iter(())
        begun = False
        for number in numbers:
            if not begun:
                state, begun = self._before(number), True
                events = self._events(0 if state is None else state.number)
            missing = number - (0 if state is None else state.number)
            if missing:
                state = apply_events(state, [next(events) for _ in range(missing)], self._source)
            assert state is not None  # number >= 1
            yield state
        if state is not None:
            self._latest = state
            if not self._recent or state.number >= self._recent[-1].number + _STATE_INTERVAL:
                self._recent.append(state)

    def at(self, number: int) -> State:
        """The state after the event with this number."""
        (found,) = self.states([number])
        return found

    def _before(self, number: int) -> State | None:
        states = (*self._recent, self._latest)
        known = [state for state in states if state is not None and state.number <= number]
        if known:
            return max(known, key=lambda state: state.number)
        if self._base is not None and self._base.number > number:
            reason = f"state {number} cannot be rebuilt from state {self._base.number}"
            raise StateBefore(f"{self._source}: {reason}")
        return self._base

    def _events(self, after: int) -> Iterator[Event]:
        while True:
            with self._read() as transaction:
                events = transaction.events(after, after + _MAX_EVENTS)
            for event in events:
                after += 1
                if event.number != after:
                    break
                yield event
            else:
                if events:
                    continue
            raise InvalidLog(f"{self._source}: event", after + 1, "an event of the log (it is missing)")


class LinkVerifier:
    """Verifies the commits after some commit, up to another.

    `log` is the open log, and `states` rebuilds its states from one that is not after the first of these
    commits. With `recheck`, decisions of earlier commits are checked again if they have got rewards.
    """

    def __init__(
        self,
        log: DecisionLog,
        found: Verification,
        audit: Audit,
        *,
        checker: ChainChecker,
        states: StateHistory,
        recheck: bool = False,
    ) -> None:
        assert log.read_chain is not None  # only a log in a store has links
        self.log, self.found, self.audit, self.read = log, found, audit, log.read_chain
        self.chain, self.states, self.rows = checker, states, RowChecker(log, found)
        self._seen: set[str] | None = set() if recheck else None

    def run(self, through: int) -> None:
        """Verify the commits up to this one; stop at the first that cannot be read."""
        while self.chain.report.commits < through:
            try:
                block = self._read_block(through)
            except InvalidLog as error:
                commit = self.chain.report.commits
                self.found.add_problem(None, f"the log cannot be read after commit {commit}: {error}")
                return
            if not block.links:
                return
            for link in block.links:
                self.chain.check(link, block.chained)
            try:
                self._check_rows(block)
            except StateBefore:
                raise
            except MaillardError as error:
                self.found.add_problem(None, f"the rest of the log cannot be replayed: {error}")
                return
            if self.log.on_rows is not None:
                self.log.on_rows(self.found.decisions)

    def _read_block(self, through: int) -> _Block:
        with self.read() as transaction:
            first = transaction.links(self.chain.report.commits, _MAX_LINKS)
            links = block_of([link for link in first if link.number <= through])
            if not links:
                return _Block([], ChainRows({}, {}, {}), [], [], {})
            chained = transaction.chain_rows(links)
            made = {key: row for key, (row, _) in chained.decisions.items()}
            rows = _with_rewards(transaction, made.values())
            others = transaction.decisions(self._decisions_to_recheck(links, chained))
            rewarded = _with_rewards(transaction, others.values())
            origins = transaction.decisions({row.origin for row in made.values() if row.origin is not None})
            self.chain.count_lost_rewards(transaction, links)
            self.rows.epoch_ends = epoch_ends(transaction.administrative_events())
        rows.sort(key=lambda row: (row.decision.state, row.decision.id))
        return _Block(links, chained, rows, rewarded, origins)

    def _decisions_to_recheck(self, links: Sequence[Link], chained: ChainRows) -> set[str]:
        """Decisions of earlier commits than those that are verified now."""
        if self._seen is None:
            return set()
        decisions, rewarded = ids_of(links)
        self._seen.update(decisions)
        updated = [row[3] for row in chained.events.values() if row[3] is not None]
        return {*rewarded, *updated} - self._seen

    def _check_rows(self, block: _Block) -> None:
        originals = [row for row in block.rows if row.decision.origin is None]
        states = self.states.states(row.decision.state for row in originals)
        for row, state in zip(originals, states, strict=True):
            self.rows.check(row, state)
        for row in block.rows:
            self.found.decisions += 1
            self.audit.add(row.decision)
            if row.decision.origin is not None:
                self._check_repeat(row, block.origins.get(row.decision.origin))
        for row in block.rewarded:
            self._check_rewards(row)

    def _check_repeat(self, row: Row, origin: Decision | None) -> None:
        same_state = origin is not None and origin.state == row.decision.state and origin.origin is None
        self.rows.check_repeat(row.decision, origin if same_state else None)
        version, spec = row.decision.formula_version, self.log.policies.get(row.decision.policy_version)
        if spec is not None and _knows_version(spec, version):
            self.found.recomputed += 1  # with its original
        else:
            self.found.not_recomputed["it repeats a decision that was not recomputed"] += 1
        self._check_rewards(row)

    def _check_rewards(self, row: Row) -> None:
        try:
            self.rows.check_rewards(row)
        except (*MALFORMED, MaillardError) as error:
            self.found.add_problem(row.decision.id, f"its rewards cannot be checked: {error!r}")


@lru_cache
def _knows_version(spec: str, version: int) -> bool:
    return earlier_version(policy(spec), version) is not None


def _with_rewards(transaction: Transaction, decisions: Iterable[Decision]) -> list[Row]:
    made = list(decisions)
    ids = [row.id for row in made]
    rewards, updates = transaction.reward_events(ids), transaction.updates(ids)
    for each in rewards.values():
        each.sort(key=lambda reward: (reward.arrived, reward.event))
    return [Row(row, tuple(rewards.get(row.id, ())), tuple(updates.get(row.id, ()))) for row in made]
