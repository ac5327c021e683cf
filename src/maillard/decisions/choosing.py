"""Makes decisions inside a transaction: samples arms, logs the distribution, and honours idempotency keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, islice

import numpy as np

from maillard.decisions.call_arguments import Request
from maillard.decisions.decision import Decision
from maillard.decisions.events import configurations
from maillard.decisions.identifiers import new_ids
from maillard.decisions.raw_contexts import NO_CONTEXT, RawContext
from maillard.decisions.reward_rule import Reward
from maillard.decisions.state import ChoiceDistribution, State
from maillard.decisions.stores.contract import Transaction
from maillard.errors import Archived, Conflict, MaillardError, Paused


class RandomSource:
    """The random numbers and ids of new decisions.

    With a seed, both are reproducible. With `simulated_clock`, ids contain the time of the caller's clock.
    """

    def __init__(self, seed: Sequence[int] | None = None, *, simulated_clock: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self._bytes = os.urandom if seed is None else self.rng.bytes
        self._simulated_clock = simulated_clock
        self.is_default = seed is None and not simulated_clock
        "Whether the random numbers and the ids are those of a program that simulates nothing."

    def new_ids(self, count: int, now: int) -> list[str]:
        """New ids in ascending order; `now` is the time of the transaction."""
        return new_ids(count, now if self._simulated_clock else None, self._bytes)


def sampled_decision(  # noqa: PLR0917  # one call per decision, and keywords take time
    identifier: str,
    experiment: str,
    now: int,
    state: State,
    request: Request,
    distribution: ChoiceDistribution,
    index: int,
    position: int = 0,
    raw: RawContext = NO_CONTEXT,
) -> Decision:
    """The decision for the arm at this index, which was sampled from the distribution."""
    arms, logs = distribution.arms, distribution.log_probabilities
    return Decision(
        identifier, experiment, now, request.unit, arms[index], arms, logs, logs[index],
        state.policy_version, state.policy.formula_version, state.number, state.epoch,
        distribution.cold[index], request.key, position, None, raw.text, raw.actions_text,
        distribution.encoded, state.feature_version,
    )  # fmt: skip


class Repeated(list[Decision]):
    """The decisions of an earlier call with the same idempotency key."""


def schedule_windows(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> None:
    """Schedule the closing of the decisions' reward windows."""
    if rule.window is not None and rows:
        transaction.add_pending({row.id: rule.closes(row.time) or 0 for row in rows})


class DecisionBatch:
    """Makes the decisions of several requests in one transaction.

    No other code samples arms, so the logged distribution is the one that was sampled from.
    """

    def __init__(
        self,
        transaction: Transaction,
        experiment: str,
        state: State,
        requests: Sequence[Request],
        random: RandomSource,
    ) -> None:
        self.transaction, self.experiment, self.state = transaction, experiment, state
        self.requests, self.rng, self.now = requests, random.rng, transaction.now
        self.results: list[list[Decision] | MaillardError] = [[] for _ in requests]
        self.new: list[Decision] = []
        self.logged: list[Decision] = []
        self.new_keys: dict[str, int] = {}  # key -> index of the first request with it
        self.repeated: list[int] = []  # requests that repeat a key of this batch, or of another process
        keys = [request.key for request in requests if request.key is not None]
        self.stored = transaction.decisions_by_key(keys) if keys else {}
        self.sizes: dict[frozenset[str] | None, int] = {}
        for request in requests:
            self.sizes[request.eligible] = self.sizes.get(request.eligible, 0) + request.size
        # Spare ids: a sticky request may sample an arm in vain, if another process assigns one first.
        spare = len(requests) if state.sticky else 0
        self.ids = iter(random.new_ids(sum(self.sizes.values()) + spare, self.now))
        self.samples: dict[frozenset[str] | None, Iterator[int]] = {}

    def decide(self) -> list[list[Decision] | MaillardError]:
        """Make and log the decisions of each request, or return those of an earlier call with its key."""
        self._run(sorted(range(len(self.requests)), key=self._lock_order), self._decide_one)
        if self.new_keys:
            self._claim_keys()
        self._log(self.new)
        return self.results

    def sample_unlogged(self, kept: Decision | None) -> list[Decision]:
        """The decision of the only request, which the caller keeps; or that of an earlier call with its key.

        `kept` is a decision that the caller has kept for this key.
        """
        (request,) = self.requests
        if kept is not None and request.key is not None:
            self.stored.setdefault(request.key, [kept])
        return self._repeat_call(0) if request.key in self.stored else self._sample(request)

    def _run(self, indices: Iterable[int], find: Callable[[int], list[Decision]]) -> None:
        for index in indices:
            try:
                self.results[index] = find(index)
            except MaillardError as error:  # it concerns only this request
                self.results[index] = error

    def _lock_order(self, index: int) -> tuple[str, str]:
        """Units and keys are processed in a fixed order, so that two processes cannot deadlock."""
        request = self.requests[index]
        return (request.unit or "") if self.state.sticky else "", request.key or ""

    def _decide_one(self, index: int) -> list[Decision]:
        request = self.requests[index]
        if request.key is not None and request.key in self.stored:
            return self._repeat_call(index)
        if self.state.sticky and request.unit is not None:
            return self._decide_for_unit(index)
        if request.key in self.new_keys:
            self.repeated.append(index)
            return []
        rows = self._sample(request)
        if request.key is None:
            self.new.extend(rows)
        else:
            self.new_keys[request.key] = index
        return rows

    def _claim_keys(self) -> None:
        """Add the first decision of each new key, unless another process used the key first."""
        results = {key: self.results[index] for key, index in self.new_keys.items()}
        made = {key: rows for key, rows in results.items() if isinstance(rows, list)}
        added = self.transaction.add_if_absent([rows[0] for rows in made.values()])
        lost = {key for key, rows in made.items() if rows[0].id not in added}
        self.new += [row for key, rows in made.items() if key not in lost for row in rows]
        self.stored = made | (self.transaction.decisions_by_key(lost) if lost else {})
        self._run(self.repeated + [self.new_keys[key] for key in lost], self._repeat_call)

    def _log(self, rows: Sequence[Decision]) -> None:
        """Add decisions. The first decision of a request with a key was added before, to claim the key."""
        rest = [row for row in rows if row.idempotency_key is None or row.position]
        if rest:
            self.transaction.add_decisions(rest)
        schedule_windows(self.transaction, self.state.reward, rows)
        self.logged.extend(rows)

    def _sample(self, request: Request) -> list[Decision]:
        """New decisions for a request."""
        state, eligible = self.state, request.eligible
        self._check_running()
        if state.context is not None:
            return self._sample_contexts(request)
        distribution = state.choice_distribution(eligible, request.contexts[0])
        if eligible not in self.samples:  # sample for all requests with the same eligible arms at once
            self.samples[eligible] = iter(distribution.sample(self.rng, self.sizes[eligible]))
        samples = islice(self.samples[eligible], request.size)
        return [
            sampled_decision(
                next(self.ids), self.experiment, self.now, state, request, distribution, index, position, raw
            )
            for position, (index, raw) in enumerate(zip(samples, request.each_context, strict=True))
        ]

    def _sample_contexts(self, request: Request) -> list[Decision]:
        """New decisions that depend on a context, or each on its own."""
        contexts, each = request.contexts, request.each_context
        found = [self.state.choice_distribution(request.eligible, raw) for raw in each]
        samples = (
            found[0].sample(self.rng, request.size)
            if len(contexts) == 1
            else [distribution.sample(self.rng, 1)[0] for distribution in found]
        )
        return [
            sampled_decision(
                next(self.ids),
                self.experiment,
                self.now,
                self.state,
                request,
                distribution,
                index,
                position,
                raw,
            )
            for position, (distribution, index, raw) in enumerate(zip(found, samples, each, strict=True))
        ]

    def _check_running(self) -> None:
        if self.state.archived:
            raise Archived(f"experiment {self.experiment!r} is archived; resume it first (bandit.resume())")
        if self.state.paused:
            raise Paused(f"experiment {self.experiment!r} is paused; resume it first (bandit.resume())")

    # Idempotency keys.

    def _repeat_call(self, index: int) -> list[Decision]:
        """The stored decisions of an idempotency key, or Conflict if the request differs from the first."""
        request = self.requests[index]
        stored = self.stored[request.key or ""]
        first = stored[0]
        if first.unit != request.unit:
            difference = f"for a unit other than {request.unit!r}"
        elif len(stored) != request.size:
            difference = f"for {len(stored)} decisions, not {request.size}"
        elif not self._has_contexts_of(request, stored):
            difference = "with another context, or with other actions"
        elif not self._has_arms_of(request, first):
            difference = f"among other arms: {', '.join(map(repr, first.eligible[:20]))}"
        else:
            return Repeated(stored)
        raise Conflict(f"idempotency_key {request.key!r} was used by a call {difference}")

    @staticmethod
    def _has_contexts_of(request: Request, stored: Sequence[Decision]) -> bool:
        """Whether a request has the same contexts as the stored decisions with its key."""
        return all(
            (raw.text, raw.actions_text) == (row.context, row.actions)
            for raw, row in zip(request.each_context, stored, strict=True)
        )

    def _has_arms_of(self, request: Request, first: Decision) -> bool:
        """Whether a request has the same eligible arms as the first decision with its key."""
        if self.state.dynamic:  # the actions were compared
            return True
        if first.origin is not None:  # the eligible arms are those of another call
            return request.eligible is None or first.arm in request.eligible
        return set(first.eligible) == (request.eligible or self._active_arms_at(first.state))

    def _active_arms_at(self, number: int) -> set[str]:
        """The active arms after event `number`."""
        if self.state.administrative <= number <= self.state.number:
            return set(self.state.active_arms)
        events = [event for event in self.transaction.administrative_events() if event.number <= number]
        return set(configurations(events)[-1].active_arms)

    # Sticky assignment.

    def _decide_for_unit(self, index: int) -> list[Decision]:
        """Decide for a sticky unit. This writes at once: the next request may be for the same unit."""
        request, key = self.requests[index], self.requests[index].key
        if key is not None and self._find(key):  # used by another request of this transaction
            return self._repeat_call(index)
        rows = self._keep_or_assign(request)
        if key is not None and not self.transaction.add_if_absent(rows[:1]):
            self._find(key)  # another process used it first
            return self._repeat_call(index)
        self._log(rows)
        return rows

    def _find(self, key: str) -> bool:
        """Look up the stored decisions of a key; return whether there are any."""
        self.stored |= self.transaction.decisions_by_key([key])
        return key in self.stored

    def _keep_or_assign(self, request: Request) -> list[Decision]:
        """Repeat the arm that was first chosen for the unit if it is eligible; else choose and assign one."""
        unit, state, transaction = request.unit or "", self.state, self.transaction
        for raw in request.contexts if state.context is not None else ():
            state.choice_distribution(request.eligible, raw)  # raises if the context does not fit
        if state.dynamic:
            eligible = set(request.contexts[0].actions or ())
        else:
            eligible = set(compress(state.arms, state.mask(request.eligible)))
        fresh: list[Decision] = []
        while True:
            found = transaction.assignment(state.epoch, unit)
            origin = None if found is None else transaction.decisions([found]).get(found)
            if origin is not None and origin.arm in eligible:
                return self._repeat_choice(origin, request)
            fresh = fresh or self._sample(request._replace(size=1, contexts=request.contexts[:1]))
            if transaction.assign(state.epoch, unit, fresh[0].id, instead_of=found):
                rest = self._repeat_choice(fresh[0], request)[1:] if request.size > 1 else []
                return [*fresh, *rest]

    def _repeat_choice(self, origin: Decision, request: Request) -> list[Decision]:
        """Decisions that repeat the arm and the distribution of an earlier one."""
        self._check_running()
        same = origin._replace(time=self.now, idempotency_key=request.key, origin=origin.id)
        return [
            same._replace(id=next(self.ids), position=position, context=raw.text, actions=raw.actions_text)
            for position, raw in enumerate(request.each_context)
        ]
