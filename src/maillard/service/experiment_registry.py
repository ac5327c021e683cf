"""The experiments of a service: those that are open, and which one a decision belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from maillard.decisions import Bandit, Reward, ledger
from maillard.decisions.choosing import Request
from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.group_commit import AsyncGroupCommit
from maillard.decisions.identifiers import check_name
from maillard.decisions.ledger import Outcome
from maillard.decisions.session import Call
from maillard.decisions.stores import Store
from maillard.decisions.stores.contract import Head
from maillard.errors import InvalidValue, MaillardError
from maillard.service.service_errors import Busy, ExperimentExists, NotFound

__all__ = ["ExperimentRegistry", "OpenExperiment"]

_REMEMBERED = 25_000  # decisions, twice, whose experiment is known without asking the log
_WRITING, _CHANGING, _READING = (
    16,
    4,
    4,
)  # threads: neither who changes nor who reads keeps a decision waiting
_MOST_READING = 500  # calls

Result = TypeVar("Result")


class OpenExperiment:
    """An experiment that is open, with the group commits that its calls go through."""

    def __init__(self, bandit: Bandit, threads: ThreadPoolExecutor, created_at: int) -> None:
        self.bandit, self.created_at = bandit, created_at
        self._changes: AsyncGroupCommit[Call, Any] = AsyncGroupCommit(bandit.session.run, threads)
        # Decisions change no state, so where the store can, they do not wait for what does.
        apart = bandit.session.store.concurrent_decisions
        self._choices = AsyncGroupCommit(bandit.session.run, threads) if apart else self._changes
        self._written: tuple[tuple[float, ...], tuple[str, ...], Raw, Raw] | None = None

    def decide(self, request: Request) -> Awaitable[list[Decision]]:
        """Draw and log."""
        return self._choices.submit(Call("draws", request))

    def apply_rewards(self, rows: Sequence[RewardEvent]) -> Awaitable[list[Outcome | MaillardError]]:
        """Log rewards and learn from them."""
        return self._changes.submit(Call("rewards", rows))

    def written(self, row: Decision) -> tuple[Raw, Raw]:
        """The probabilities of a decision and their logarithms, as JSON. Decisions of one law share them."""
        known = self._written
        if known is None or known[0] is not row.log_probabilities or known[1] is not row.eligible:
            logs = dict(zip(row.eligible, row.log_probabilities, strict=True))
            chances = Raw(msgspec.json.encode(row.probabilities))
            known = row.log_probabilities, row.eligible, chances, Raw(msgspec.json.encode(logs))
            self._written = known
        return known[2], known[3]


class ExperimentRegistry:
    """All experiments of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._threads = ThreadPoolExecutor(_WRITING, thread_name_prefix="lane")
        self._changers = ThreadPoolExecutor(_CHANGING, thread_name_prefix="change")
        self._readers = ThreadPoolExecutor(_READING, thread_name_prefix="reader")
        self._reading = 0
        self._open: dict[str, OpenExperiment] = {}
        self._opening: dict[str, asyncio.Future[OpenExperiment]] = {}
        self._young: dict[
            str, str
        ] = {}  # experiments of decisions, in two generations: to forget the older one costs nothing
        self._old: dict[str, str] = {}
        self._lookups: AsyncGroupCommit[str, str | None] = AsyncGroupCommit(self._look_up, self._threads)
        self._parking: AsyncGroupCommit[RewardEvent, Outcome] = AsyncGroupCommit(self._park, self._threads)

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Whatever reads the log, in a thread."""
        return await self._bounded(self._readers, function, *arguments)

    async def change(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Whatever writes to the log and is no decision or reward, in a thread."""
        return await self._bounded(self._changers, function, *arguments)

    async def _bounded(
        self, threads: ThreadPoolExecutor, function: Callable[..., Result], *arguments: Any
    ) -> Result:
        if self._reading >= _MOST_READING:
            raise Busy("too many requests are in progress; try again")
        self._reading += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
        finally:
            self._reading -= 1

    async def get(self, key: str) -> OpenExperiment:
        """An experiment; NotFound where there is none."""
        found = self._open.get(key)
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

    async def create(self, key: str, **given: Any) -> OpenExperiment:
        """Begin an experiment; ExperimentExists where there is one of this name."""
        return await self._start(key, given)

    async def _start(self, key: str, given: dict[str, Any]) -> OpenExperiment:
        bandit, created_at = await (self.change if given else self.run)(self._open_bandit, key, given)
        if given:  # it is new, whatever was known of one of this name
            self._open.pop(key, None)
        return self._open.setdefault(key, OpenExperiment(bandit, self._threads, created_at))

    def _open_bandit(self, key: str, given: dict[str, Any]) -> tuple[Bandit, int]:
        with self.store.reading(key) as transaction:
            exists = transaction.head is not None and transaction.head.number > 0
        if not exists and not given:
            raise NotFound("experiment", key)
        taken = ExperimentExists(f"there is an experiment {key!r} already")
        if exists and given:
            raise taken
        try:
            bandit = Bandit(log=self.store, experiment=key, **given)
        except InvalidValue:
            with self.store.reading(key) as transaction:
                if given and transaction.head is not None:  # somebody was quicker, with something else
                    raise taken from None
            raise
        if given and not bandit.session.began:
            raise taken
        with self.store.reading(key) as transaction:
            (first,) = transaction.events(0, through=1)
        return bandit, first.time

    @property
    def opened(self) -> Iterable[OpenExperiment]:
        """Those that are open."""
        return list(self._open.values())

    async def every(
        self, wanted: Callable[[str], bool]
    ) -> tuple[list[OpenExperiment], dict[str, MaillardError]]:
        """Those that are wanted, as they are now; and those that cannot be opened, with the reason."""
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

    # Which experiment a decision belongs to.

    def remember(self, decision_id: str, key: str) -> None:
        """A decision was just made, so its reward will soon come."""
        if len(self._young) >= _REMEMBERED:
            self._young, self._old = {}, self._young
        self._young[decision_id] = key

    async def of(self, decision_id: str) -> str | None:
        """The experiment of a decision, if it is known."""
        known = self._young.get(decision_id) or self._old.get(decision_id)
        return known or await self._lookups.submit(decision_id)

    def _look_up(self, ids: Sequence[str]) -> list[str | None]:
        with self.store.reading("") as transaction:
            found = transaction.experiments_of(ids)
        return [found.get(each) for each in ids]

    # Rewards of decisions that no experiment knows yet.

    async def park(self, row: RewardEvent) -> Outcome:
        """Keep a reward until its decision is known."""
        outcome: Outcome = await self._parking.submit(row)
        return outcome

    def _park(self, rows: Sequence[RewardEvent]) -> list[Outcome | MaillardError]:
        with self.store.transaction("", lock=True, alone=True) as transaction:
            return ledger.park(transaction, rows)

    async def adopt(self) -> list[RewardEvent]:
        """Give rewards that waited to the experiments that know their decisions by now; those that are not in the experiment's range."""
        waiting = await self.run(self._waiting)
        refused: list[RewardEvent] = []
        for key in {key for _, key in waiting}:
            experiment = await self.get(key)
            rows = [row for row, owner in waiting if owner == key]
            fit = [row for row in rows if _fits(row, experiment.bandit.state.reward)]
            await experiment.apply_rewards(fit)
            await self.change(self._forget, rows)
            refused += [row for row in rows if row not in fit]
        return refused

    def _waiting(self) -> list[tuple[RewardEvent, str]]:
        with self.store.reading("") as transaction:
            parked = [each.row for each in transaction.all_parked()]
            owners = transaction.experiments_of({row.decision for row in parked}) if parked else {}
        return [(row, owners[row.decision]) for row in parked if row.decision in owners]

    def _forget(self, rows: Sequence[RewardEvent]) -> None:
        with self.store.transaction("", lock=True, alone=True) as transaction:
            transaction.unpark(rows)

    def close(self) -> None:
        """Let go of the log."""
        for threads in (self._readers, self._changers, self._threads):
            threads.shutdown(wait=True)
        self.store.close()


def _fits(row: RewardEvent, rule: Reward) -> bool:
    try:
        rule.check(row.value)
    except InvalidValue:
        return False
    return True
