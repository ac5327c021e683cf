"""Makes decisions inside a transaction: samples arms, logs the distribution, and honours idempotency keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from maillard.decisions.decision import Decision
from maillard.decisions.events import configurations
from maillard.decisions.identifiers import new_ids
from maillard.decisions.reward_rule import Reward
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Transaction
from maillard.errors import Archived, Conflict, MaillardError, Paused


class Request(NamedTuple):
    """The arguments of a `choose` call."""

    unit: str | None
    eligible: frozenset[str] | None
    key: str | None
    size: int


class Repeated(list[Decision]):
    """The decisions of an earlier call with the same idempotency key."""


def decide(
    transaction: Transaction,
    experiment: str,
    state: State,
    requests: Sequence[Request],
    rng: np.random.Generator,
) -> list[list[Decision] | MaillardError]:
    """Make and log the decisions of each request, or return those of an earlier call with the same key."""
    results: list[list[Decision] | MaillardError] = [[] for _ in requests]
    new: list[Decision] = []
    new_keys: dict[str, int] = {}  # key -> index of the first request with it
    repeated: list[int] = []  # requests that repeat a key of this batch, or of another process
    maker = _DecisionMaker(transaction, experiment, state, rng, requests)
    keys = [request.key for request in requests if request.key is not None]
    stored = transaction.decisions_by_key(keys) if keys else {}

    def lock_order(index: int) -> tuple[str, str]:
        """Process units and keys in a fixed order, so that two processes cannot deadlock."""
        unit, key = requests[index].unit, requests[index].key
        return (unit or "") if state.sticky else "", key or ""

    def decide_one(index: int, request: Request) -> list[Decision]:
        if request.key is not None and request.key in stored:
            return _check_repeated(transaction, state, request, stored[request.key])
        if state.sticky and request.unit is not None:
            return _decide_for_unit(transaction, maker, request)
        if request.key in new_keys:
            repeated.append(index)
            return []
        rows = maker.make(request)
        if request.key is None:
            new.extend(rows)
        else:
            new_keys[request.key] = index
        return rows

    def run(indices: Sequence[int], find: Callable[[int, Request], list[Decision]]) -> None:
        for index in indices:
            try:
                results[index] = find(index, requests[index])
            except MaillardError as error:  # it concerns only this request
                results[index] = error

    run(sorted(range(len(requests)), key=lock_order), decide_one)
    if new_keys:
        stored = {key: rows for key, index in new_keys.items() if isinstance(rows := results[index], list)}
        added = transaction.add_if_absent([rows[0] for rows in stored.values()])
        lost = {
            key for key, rows in stored.items() if rows[0].id not in added
        }  # another process used the key first
        new += [row for key, rows in stored.items() if key not in lost for row in rows]
        if lost:
            stored |= transaction.decisions_by_key(lost)
        repeated += [new_keys[key] for key in lost]
        run(
            repeated,
            lambda _, request: _check_repeated(transaction, state, request, stored[request.key or ""]),
        )
    _log(transaction, state.reward, new)
    return results


def _log(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> None:
    """Add decisions. The first decision of a request with a key was added before, to claim the key."""
    rest = [row for row in rows if row.idempotency_key is None or row.position]
    if rest:
        transaction.add_decisions(rest)
    schedule_windows(transaction, rule, rows)


def schedule_windows(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> None:
    """Schedule the closing of the decisions' reward windows, if closing one has an effect."""
    if rule.settles and rows:
        transaction.add_pending({row.id: rule.closes(row.time) or 0 for row in rows})


class _DecisionMaker:
    """Samples arms. No other code does, so the logged distribution is the one that was sampled from."""

    def __init__(
        self,
        transaction: Transaction,
        experiment: str,
        state: State,
        rng: np.random.Generator,
        requests: Sequence[Request],
    ) -> None:
        self.experiment, self.state, self.rng, self.now = experiment, state, rng, transaction.now
        self.sizes: dict[frozenset[str] | None, int] = {}
        for request in requests:
            self.sizes[request.eligible] = self.sizes.get(request.eligible, 0) + request.size
        # Spare ids: a sticky request may sample an arm in vain, if another process assigns one first.
        spare = len(requests) if state.sticky else 0
        self.ids = iter(new_ids(sum(self.sizes.values()) + spare))
        self.samples: dict[frozenset[str] | None, Iterator[int]] = {}

    def make(self, request: Request) -> list[Decision]:
        """New decisions for a request."""
        state, eligible = self.state, request.eligible
        self.check_running()
        distribution = state.choice_distribution(eligible)
        if eligible not in self.samples:  # sample for all requests with the same eligible arms at once
            self.samples[eligible] = iter(distribution.sample(self.rng, self.sizes[eligible]))
        return [
            Decision(
                id=next(self.ids),
                experiment=self.experiment,
                time=self.now,
                unit=request.unit,
                arm=distribution.arms[index],
                eligible=distribution.arms,
                log_probabilities=distribution.log_probabilities,
                log_probability=distribution.log_probabilities[index],
                policy_version=state.policy_version,
                formula_version=state.policy.formula_version,
                state=state.number,
                epoch=state.epoch,
                cold=distribution.cold[index],
                idempotency_key=request.key,
                position=position,
            )
            for position, index in enumerate(islice(self.samples[eligible], request.size))
        ]

    def repeat(self, origin: Decision, request: Request) -> list[Decision]:
        """Decisions that repeat the arm and the distribution of an earlier one."""
        self.check_running()
        return [
            origin._replace(
                id=next(self.ids),
                time=self.now,
                idempotency_key=request.key,
                position=position,
                origin=origin.id,
            )
            for position in range(request.size)
        ]

    def check_running(self) -> None:
        """Raise Paused or Archived if the experiment makes no decisions."""
        if self.state.archived:
            raise Archived(f"experiment {self.experiment!r} is archived; call resume() first")
        if self.state.paused:
            raise Paused(f"experiment {self.experiment!r} is paused; call resume() first")


def _decide_for_unit(transaction: Transaction, maker: _DecisionMaker, request: Request) -> list[Decision]:
    """Decide for a sticky unit. This writes at once, because the next request may be for the same unit."""
    key = request.key
    if key is not None and (
        stored := transaction.decisions_by_key([key])
    ):  # by another request of this transaction
        return _check_repeated(transaction, maker.state, request, stored[key])
    rows = _decide_sticky(transaction, maker, request)
    if key is not None and not transaction.add_if_absent(rows[:1]):
        return _find(transaction, maker.state, request)  # another process used the key first
    _log(transaction, maker.state.reward, rows)
    return rows


def _find(transaction: Transaction, state: State, request: Request) -> list[Decision]:
    """The decisions of the first call with this idempotency key."""
    key = request.key or ""
    return _check_repeated(transaction, state, request, transaction.decisions_by_key([key])[key])


def _check_repeated(
    transaction: Transaction, state: State, request: Request, stored: list[Decision]
) -> list[Decision]:
    """The stored decisions of an idempotency key, or Conflict if the request differs from the first one."""
    first, difference = stored[0], None
    if first.unit != request.unit:
        difference = f"for a unit other than {request.unit!r}"
    elif len(stored) != request.size:
        difference = f"for {len(stored)} decisions, not {request.size}"
    elif not _same_arms(transaction, state, request, first):
        difference = f"among other arms: {', '.join(map(repr, first.eligible[:20]))}"
    if difference is not None:
        raise Conflict(f"idempotency_key {request.key!r} was used by a call {difference}")
    return Repeated(stored)


def _same_arms(transaction: Transaction, state: State, request: Request, first: Decision) -> bool:
    """Whether a request has the same eligible arms as the first decision."""
    if first.origin is not None:  # the eligible arms are those of another call
        return request.eligible is None or first.arm in request.eligible
    return set(first.eligible) == (request.eligible or _active_arms_at(transaction, state, first.state))


def _active_arms_at(transaction: Transaction, state: State, number: int) -> set[str]:
    """The active arms after event `number`."""
    if state.administrative <= number <= state.number:
        return set(state.active_arms)
    events = [event for event in transaction.administrative_events() if event.number <= number]
    *_, configuration = configurations(events)
    return set(configuration.active_arms)


def _decide_sticky(transaction: Transaction, maker: _DecisionMaker, request: Request) -> list[Decision]:
    """Repeat the arm that was first chosen for the unit if it is eligible; else choose and assign one."""
    unit, epoch, eligible = request.unit or "", maker.state.epoch, maker.state.allowed(request.eligible)
    fresh: list[Decision] = []
    while True:
        found = transaction.assignment(epoch, unit)
        origin = None if found is None else transaction.decisions([found]).get(found)
        if origin is not None and origin.arm in eligible:
            return maker.repeat(origin, request)
        fresh = fresh or maker.make(request._replace(size=1))
        if transaction.assign(epoch, unit, fresh[0].id, instead_of=found):
            rest = maker.repeat(fresh[0], request)[1:] if request.size > 1 else []
            return [*fresh, *rest]
