"""Decisions of simple requests, for all experiments of a shared commit in one pass.

Most requests want one decision, with a new idempotency key or none, from the state that is already known.
`DecisionBatch` handles every request, but needs several objects for each experiment and commit. This module
makes the same decisions for all experiments at once. Nothing is looked up: if a key turns out to be used, the
store keeps nothing of the commit, and `DecisionBatch` handles its requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maillard.decisions.call_arguments import Request
from maillard.decisions.choosing import RandomSource, sampled_decision
from maillard.decisions.decision import Decision
from maillard.decisions.identifiers import new_ids
from maillard.decisions.state import ChoiceDistribution, State
from maillard.decisions.stores.contract import SharedTransaction
from maillard.errors import MaillardError


class SimpleBatch(NamedTuple):
    """Simple requests for decisions of one experiment, with the distribution of each."""

    experiment: str
    state: State
    requests: Sequence[Request]
    distributions: Sequence[ChoiceDistribution]
    random: RandomSource


def simple_batch(
    experiment: str, state: State, requests: Sequence[Request], random: RandomSource
) -> SimpleBatch | None:
    """The requests with their distributions, or None if `DecisionBatch` must handle them."""
    if state.sticky or state.paused or state.archived:
        return None
    if state.reward.learn == "provisional" or not random.is_default:
        return None
    distributions = []
    for _, eligible, _, size, contexts in requests:
        if size != 1:
            return None
        try:
            distributions.append(state.choice_distribution(eligible, contexts[0]))
        except MaillardError:
            return None
    return SimpleBatch(experiment, state, requests, distributions, random)


def decide_simply(
    transaction: SharedTransaction, batches: Sequence[SimpleBatch]
) -> list[list[list[Decision]] | None]:
    """Make and add the decisions of each batch; None if the state of its experiment is not the known one.

    If a reward window is due, the state must change before decisions are made.
    """
    if not transaction.expects_new:
        return [None] * len(batches)
    numbers = transaction.last_events([batch.experiment for batch in batches])
    due = transaction.due([batch.experiment for batch in batches if batch.state.reward.window is not None])
    ids = iter(new_ids(sum([len(batch.requests) for batch in batches])))
    now = transaction.now
    answers: list[list[list[Decision]] | None] = []
    new: list[tuple[str, list[Decision], int | None]] = []
    for experiment, state, requests, distributions, random in batches:
        if numbers.get(experiment) != state.number or experiment in due:
            answers.append(None)
            continue
        first = distributions[0]
        if len(requests) > 1 and all(each is first for each in distributions):
            sampled = first.sample(random.rng, len(requests))
        else:
            sampled = [each.sample(random.rng, 1)[0] for each in distributions]
        rows = [
            sampled_decision(
                next(ids), experiment, now, state, request, distribution, index, 0, request.contexts[0]
            )
            for request, distribution, index in zip(requests, distributions, sampled, strict=True)
        ]
        new.append((experiment, rows, state.reward.closes(now)))
        answers.append([[row] for row in rows])
    transaction.add_new(new)
    return answers
