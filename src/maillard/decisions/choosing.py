"""What a transaction does with choices: the law that is drawn from is the law that is logged, once for each key."""

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

__all__ = ["Repeated", "Request", "await_rewards", "decide"]


class Request(NamedTuple):
    """A call of `choose`."""

    unit: str | None
    eligible: frozenset[str] | None
    key: str | None
    size: int


class Repeated(list[Decision]):
    """The decisions of an earlier call with the same key."""


def decide(
    transaction: Transaction,
    experiment: str,
    state: State,
    requests: Sequence[Request],
    rng: np.random.Generator,
) -> list[list[Decision] | MaillardError]:
    """Draw from a state and log the draws, or find what an earlier call with the same key or unit logged."""
    results: list[list[Decision] | MaillardError] = [[] for _ in requests]
    plain: list[Decision] = []
    fresh: dict[str, int] = {}  # by its key, the call that drew
    again: list[int] = []
    draws = _Draws(transaction, experiment, state, rng, requests)
    keys = [request.key for request in requests if request.key is not None]
    stored = transaction.decisions_by_key(keys) if keys else {}

    def turn(place: int) -> tuple[str, str]:
        """Units and keys in one order everywhere, so that two processes that want the same ones do not wait for each other."""
        unit, key = requests[place].unit, requests[place].key
        return (unit or "") if state.sticky else "", key or ""

    def answer(place: int, request: Request) -> list[Decision]:
        if request.key is not None and request.key in stored:
            return _same(transaction, state, request, stored[request.key])
        if state.sticky and request.unit is not None:
            return _decide_for_unit(transaction, draws, request)
        if request.key in fresh:
            again.append(place)
            return []
        rows = draws.make(request)
        if request.key is None:
            plain.extend(rows)
        else:
            fresh[request.key] = place
        return rows

    def settle(places: Sequence[int], find: Callable[[int, Request], list[Decision]]) -> None:
        for place in places:
            try:
                results[place] = find(place, requests[place])
            except MaillardError as error:  # of this call alone
                results[place] = error

    settle(sorted(range(len(requests)), key=turn), answer)
    if fresh:
        stored = {key: rows for key, place in fresh.items() if isinstance(rows := results[place], list)}
        added = transaction.add_if_absent([rows[0] for rows in stored.values()])
        lost = {key for key, rows in stored.items() if rows[0].id not in added}  # another process was quicker
        plain += [row for key, rows in stored.items() if key not in lost for row in rows]
        if lost:
            stored |= transaction.decisions_by_key(lost)
        again += [fresh[key] for key in lost]
        settle(again, lambda _, request: _same(transaction, state, request, stored[request.key or ""]))
    _log(transaction, state.reward, plain)
    return results


def _log(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> None:
    """Add decisions. Where a call has a key, its first one has been added: that was to claim the key."""
    rest = [row for row in rows if row.idempotency_key is None or row.position]
    if rest:
        transaction.add_decisions(rest)
    await_rewards(transaction, rule, rows)


def await_rewards(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> None:
    """Remember when the windows of these decisions close, if anything happens then."""
    if rule.settles and rows:
        transaction.add_pending({row.id: rule.closes(row.time) or 0 for row in rows})


class _Draws:
    """The one place where choices are made: the law that is drawn from is the law that is logged."""

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
        # Some more: a sticky call may draw for nothing, where another process is quicker.
        spare = len(requests) if state.sticky else 0
        self.ids = iter(new_ids(sum(self.sizes.values()) + spare))
        self.places: dict[frozenset[str] | None, Iterator[int]] = {}

    def make(self, request: Request) -> list[Decision]:
        """The decisions of a call."""
        state, eligible = self.state, request.eligible
        self.check_running()
        distribution = state.choice_distribution(eligible)
        if eligible not in self.places:  # for all calls with the same arms at once
            self.places[eligible] = iter(distribution.sample(self.rng, self.sizes[eligible]))
        return [
            Decision(
                id=next(self.ids),
                experiment=self.experiment,
                time=self.now,
                unit=request.unit,
                arm=distribution.arms[place],
                eligible=distribution.arms,
                log_probabilities=distribution.log_probabilities,
                log_probability=distribution.log_probabilities[place],
                policy_version=state.policy_version,
                formula_version=state.policy.formula_version,
                state=state.number,
                epoch=state.epoch,
                cold=distribution.cold[place],
                idempotency_key=request.key,
                position=position,
            )
            for position, place in enumerate(islice(self.places[eligible], request.size))
        ]

    def repeat(self, origin: Decision, request: Request) -> list[Decision]:
        """Decisions that keep the arm, and the law, of another."""
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
        """Refuse to choose while the experiment is paused."""
        if self.state.archived:
            raise Archived(f"experiment {self.experiment!r} is archived; resume() brings it back")
        if self.state.paused:
            raise Paused(f"experiment {self.experiment!r} is paused; resume() lets it choose again")


def _decide_for_unit(transaction: Transaction, draws: _Draws, request: Request) -> list[Decision]:
    """The decisions of a call for a unit that keeps its arm: written at once, for the next call may be for the same unit."""
    key = request.key
    if key is not None and (
        stored := transaction.decisions_by_key([key])
    ):  # by a call of this very transaction
        return _same(transaction, draws.state, request, stored[key])
    rows = _stick(transaction, draws, request)
    if key is not None and not transaction.add_if_absent(rows[:1]):
        return _find(transaction, draws.state, request)  # another process was quicker
    _log(transaction, draws.state.reward, rows)
    return rows


def _find(transaction: Transaction, state: State, request: Request) -> list[Decision]:
    """What the first call with this idempotency key logged."""
    key = request.key or ""
    return _same(transaction, state, request, transaction.decisions_by_key([key])[key])


def _same(transaction: Transaction, state: State, request: Request, stored: list[Decision]) -> list[Decision]:
    """What was logged under an idempotency key, if this is the same call again."""
    first, what = stored[0], None
    if first.unit != request.unit:
        what = f"for another unit than {request.unit!r}"
    elif len(stored) != request.size:
        what = f"for {len(stored)} decisions, not {request.size}"
    elif not _among(transaction, state, request, first):
        what = f"among other arms: {', '.join(map(repr, first.eligible[:20]))}"
    if what is not None:
        raise Conflict(f"idempotency_key {request.key!r} belongs to a call {what}")
    return Repeated(stored)


def _among(transaction: Transaction, state: State, request: Request, first: Decision) -> bool:
    """Whether a call asks for a choice among the arms that a decision was drawn among."""
    if first.origin is not None:  # it has its law from another call, whose arms these are
        return request.eligible is None or first.arm in request.eligible
    return set(first.eligible) == (request.eligible or _arms_at(transaction, state, first.state))


def _arms_at(transaction: Transaction, state: State, number: int) -> set[str]:
    """The arms that were not retired after so many events."""
    if state.administrative <= number <= state.number:
        return set(state.active_arms)
    events = [event for event in transaction.administrative_events() if event.number <= number]
    *_, configuration = configurations(events)
    return set(configuration.active_arms)


def _stick(transaction: Transaction, draws: _Draws, request: Request) -> list[Decision]:
    """A unit keeps the arm that was drawn for it first, with that draw's law, as long as the arm is eligible."""
    unit, epoch, eligible = request.unit or "", draws.state.epoch, draws.state.allowed(request.eligible)
    fresh: list[Decision] = []
    while True:
        found = transaction.assignment(epoch, unit)
        origin = None if found is None else transaction.decisions([found]).get(found)
        if origin is not None and origin.arm in eligible:
            return draws.repeat(origin, request)
        fresh = fresh or draws.make(request._replace(size=1))
        if transaction.assign(epoch, unit, fresh[0].id, instead_of=found):
            rest = draws.repeat(fresh[0], request)[1:] if request.size > 1 else []
            return [*fresh, *rest]
