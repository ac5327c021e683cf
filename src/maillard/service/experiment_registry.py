"""The open experiments of a service, its threads for the log, and the experiment of each recent decision."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from maillard.decisions import Bandit, Reward, ledger
from maillard.decisions.actors import acting_as
from maillard.decisions.call_arguments import Request
from maillard.decisions.decision import Decision, Outcome, RewardEvent
from maillard.decisions.group_commit import AsyncGroupCommit
from maillard.decisions.identifiers import check_name
from maillard.decisions.outcomes import Outcomes, read_outcomes
from maillard.decisions.session import Call, Session
from maillard.decisions.shared_batches import run_together
from maillard.decisions.state import State
from maillard.decisions.stores import Store
from maillard.decisions.stores.contract import Head, SharedCommitStore, Visits
from maillard.errors import InvalidValue, MaillardError
from maillard.service.service_errors import Busy, ExperimentExists, NotFound

_GENERATION_SIZE = 25_000  # decisions; two generations of them are remembered with their experiment
# Separate threads, so that decisions wait for neither changes nor reads.
_COMMIT_THREADS, _ADMIN_THREADS, _READ_THREADS = 16, 4, 4
_MAX_CALLS = 500  # concurrent calls of `run` and `change`
_SLOW_OUTCOMES = 0.1  # seconds

Result = TypeVar("Result")


# The group commit of a store in which experiments share commits.
_Together = AsyncGroupCommit[tuple[Session, Call], Any]


class OpenExperiment:
    """An open experiment and its group commits."""

    def __init__(
        self, bandit: Bandit, threads: ThreadPoolExecutor, created_at: int, together: _Together | None = None
    ) -> None:
        self.bandit, self.created_at, self._together = bandit, created_at, together
        self._changes = AsyncGroupCommit[Call, Any](bandit.session.run, threads)
        # Decisions change no state. If the store allows, they do not wait for rewards and changes.
        concurrent = bandit.session.store.concurrent_decisions
        self._decisions = AsyncGroupCommit(bandit.session.run, threads) if concurrent else self._changes
        self._encoded: tuple[tuple[float, ...], tuple[str, ...], Raw, Raw] | None = None
        self._outcomes: tuple[State, Outcomes, float] | None = None  # and until when to reuse them
        self._visits: tuple[int, Visits, float] | None = None  # of an epoch, and until when to reuse them

    def decide(self, request: Request) -> Awaitable[list[Decision]]:
        """Make a decision and log it."""
        return self._submit(Call("decide", request), self._decisions)

    def apply_rewards(self, rows: Sequence[RewardEvent]) -> Awaitable[list[Outcome | MaillardError]]:
        """Log rewards and apply them to the tally."""
        return self._submit(Call("rewards", rows), self._changes)

    def _submit(self, call: Call, group: AsyncGroupCommit[Call, Any]) -> Awaitable[Any]:
        if self._together is None:
            return group.submit(call)
        return self._together.submit((self.bandit.session, call))

    def read_outcomes(self) -> tuple[State, Outcomes]:
        """The state and the outcomes of the decisions so far.

        Reading the outcomes of very many decisions takes long. Then the result is reused, so that repeated
        requests take at most a twentieth of a thread's time.
        """
        began, cached, session = time.monotonic(), self._outcomes, self.bandit.session
        if cached is not None and began < cached[2]:
            state = session.refresh()
            if state.administrative == cached[0].administrative:
                return state, cached[1]
        visits, began = self._read_visits(), time.monotonic()
        state, found = session.refresh_with(partial(read_outcomes, visits=visits))
        taken = time.monotonic() - began
        if taken > _SLOW_OUTCOMES:
            self._outcomes = state, found, began + 20 * taken
        return state, found

    def _read_visits(self) -> Visits:
        """How often units returned; reused in the same way, because this reads all decisions of the epoch."""
        began, cached, session = time.monotonic(), self._visits, self.bandit.session
        if cached is not None and cached[0] == session.state.epoch and began < cached[2]:
            return cached[1]
        state, found = session.refresh_with(lambda transaction, state: transaction.visits(state.epoch))
        taken = time.monotonic() - began
        if taken > _SLOW_OUTCOMES:
            self._visits = state.epoch, found, began + 20 * taken
        return found

    def encoded_probabilities(self, row: Decision) -> tuple[Raw, Raw]:
        """The probabilities and log probabilities as JSON. Decisions from the same state share them."""
        cached = self._encoded
        if cached is None or cached[0] is not row.log_probabilities or cached[1] is not row.eligible:
            logs = dict(zip(row.eligible, row.log_probabilities, strict=True))
            probabilities = Raw(msgspec.json.encode(row.probabilities))
            cached = row.log_probabilities, row.eligible, probabilities, Raw(msgspec.json.encode(logs))
            self._encoded = cached
        return cached[2], cached[3]


class _ServiceBandit(Bandit):
    """A bandit whose hints are sent to the client instead of being shown as warnings."""

    _warns = False


class ExperimentRegistry:
    """All experiments of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._commit_threads = ThreadPoolExecutor(_COMMIT_THREADS, thread_name_prefix="commit")
        self._admin_threads = ThreadPoolExecutor(_ADMIN_THREADS, thread_name_prefix="admin")
        self._read_threads = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="read")
        self._calls = 0
        self.opened: dict[str, OpenExperiment] = {}
        "The open experiments by name."
        self._opening: dict[str, asyncio.Future[OpenExperiment]] = {}
        # The experiments of decisions. When the recent generation is full, the older one is dropped as a
        # whole.
        self._recent: dict[str, str] = {}
        self._older: dict[str, str] = {}
        self._lookups = AsyncGroupCommit[str, str | None](self._look_up, self._commit_threads)
        self._parking = AsyncGroupCommit[RewardEvent, Outcome](self._park, self._commit_threads)
        self._together = None
        if isinstance(store, SharedCommitStore):
            self._together = _Together(partial(run_together, store), self._commit_threads)

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run a function that reads the log in a thread."""
        return await self._run_in(self._read_threads, function, *arguments)

    async def change(self, function: Callable[..., Result], *arguments: Any, by: str | None = None) -> Result:
        """Run a function that changes the log, other than decisions and rewards, in a thread.

        `by` is the id of the API key that asked for the change.
        """

        def act() -> Result:
            with acting_as(by):
                return function(*arguments)

        return await self._run_in(self._admin_threads, act)

    async def _run_in(
        self, threads: ThreadPoolExecutor, function: Callable[..., Result], *arguments: Any
    ) -> Result:
        if self._calls >= _MAX_CALLS:
            raise Busy("too many requests are in progress; try again")
        self._calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
        finally:
            self._calls -= 1

    async def get(self, key: str) -> OpenExperiment:
        """An experiment by name. Raises `NotFound`."""
        found = self.opened.get(key)
        if found is not None:
            return found
        try:
            check_name("experiment", key)
        except InvalidValue:
            raise NotFound("experiment", key) from None
        if key not in self._opening:
            self._opening[key] = asyncio.ensure_future(self._start(key, {}))
            self._opening[key].add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(self._opening[key])

    async def create(self, key: str, *, by: str | None = None, **given: Any) -> OpenExperiment:
        """Create an experiment for the API key with the id `by`. Raises `ExperimentExists`."""
        return await self._start(key, given, by)

    async def _start(self, key: str, given: dict[str, Any], by: str | None = None) -> OpenExperiment:
        run = partial(self.change, by=by) if given else self.run
        bandit, created_at = await run(self._open_bandit, key, given)
        if given:  # forget a deleted experiment of the same name
            self.opened.pop(key, None)
        made = OpenExperiment(bandit, self._commit_threads, created_at, self._together)
        return self.opened.setdefault(key, made)

    def _open_bandit(self, key: str, given: dict[str, Any]) -> tuple[Bandit, int]:
        with self.store.reading(key) as transaction:
            exists = transaction.head is not None and transaction.head.number > 0
        if not exists and not given:
            raise NotFound("experiment", key)
        taken = ExperimentExists(f"experiment {key!r} already exists")
        if exists and given:
            raise taken
        try:
            bandit = _ServiceBandit(log=self.store, experiment=key, **given)
        except InvalidValue:
            with self.store.reading(key) as transaction:
                if given and transaction.head is not None:  # another process has just created it
                    raise taken from None
            raise
        if given and not bandit.session.created:
            raise taken
        with self.store.reading(key) as transaction:
            (first,) = transaction.events(0, through=1)
        return bandit, first.time

    async def all_experiments(
        self, wanted: Callable[[str], bool]
    ) -> tuple[list[OpenExperiment], dict[str, MaillardError]]:
        """The experiments that are wanted, and the errors of those that cannot be opened."""
        heads = await self.run(self._heads)
        found: list[OpenExperiment] = []
        broken: dict[str, MaillardError] = {}
        for name in filter(wanted, heads):
            try:
                experiment = await self.get(name)
                if experiment.bandit.state.number < heads[name].number:
                    await self.run(experiment.bandit.session.refresh)
                found.append(experiment)
            except MaillardError as error:
                broken[name] = error
        return found, broken

    def _heads(self) -> dict[str, Head]:
        with self.store.reading("") as transaction:
            return transaction.heads()

    async def due(self) -> list[str]:
        """The experiments in which reward windows are due, found with one query."""
        return await self.run(self._due)

    async def settle(self, name: str) -> None:
        """Close due windows of an experiment, a limited number of them."""
        experiment = await self.get(name)
        await self.change(experiment.bandit.session.settle_batch)

    def _due(self) -> list[str]:
        with self.store.reading("") as transaction:
            return transaction.due_experiments()

    # The experiment of a decision.

    def remember(self, decision_id: str, key: str) -> None:
        """Remember the experiment of a new decision, because its reward will probably come soon."""
        if len(self._recent) >= _GENERATION_SIZE:
            self._recent, self._older = {}, self._recent
        self._recent[decision_id] = key

    async def experiment_of(self, decision_id: str) -> str | None:
        """The name of the experiment of a decision, or None."""
        known = self._recent.get(decision_id) or self._older.get(decision_id)
        return known or await self._lookups.submit(decision_id)

    def _look_up(self, ids: Sequence[str]) -> list[str | None]:
        with self.store.reading("") as transaction:
            found = transaction.experiments_of(ids)
        return [found.get(each) for each in ids]

    # Parked rewards: their decisions are not in the log yet.

    def park(self, row: RewardEvent) -> Awaitable[Outcome]:
        """Keep a reward until its decision is known."""
        return self._parking.submit(row)

    def _park(self, rows: Sequence[RewardEvent]) -> list[Outcome | MaillardError]:
        with self.store.transaction("", lock=True, exclusive=True) as transaction:
            return ledger.park(transaction, rows)

    async def apply_parked(self) -> list[RewardEvent]:
        """Apply parked rewards whose decisions exist now. Returns those outside the range."""
        waiting = await self.run(self._ready_parked)
        refused: list[RewardEvent] = []
        for key in {key for _, key in waiting}:
            experiment = await self.get(key)
            rows = [row for row, owner in waiting if owner == key]
            valid = [row for row in rows if _in_range(row, experiment.bandit.state.reward)]
            await experiment.apply_rewards(valid)
            await self.change(self._unpark, rows)
            refused += [row for row in rows if row not in valid]
        return refused

    def _ready_parked(self) -> list[tuple[RewardEvent, str]]:
        with self.store.reading("") as transaction:
            parked = [each.row for each in transaction.all_parked()]
            owners = transaction.experiments_of({row.decision for row in parked}) if parked else {}
        return [(row, owners[row.decision]) for row in parked if row.decision in owners]

    def _unpark(self, rows: Sequence[RewardEvent]) -> None:
        with self.store.transaction("", lock=True, exclusive=True) as transaction:
            transaction.unpark(rows)

    def close(self) -> None:
        """Wait for the threads and close the log."""
        for threads in (self._read_threads, self._admin_threads, self._commit_threads):
            threads.shutdown(wait=True)
        self.store.close()


def _in_range(row: RewardEvent, rule: Reward) -> bool:
    try:
        rule.check(row.value)
    except InvalidValue:
        return False
    return True
