"""Runs calls of several experiments of one log in one commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from maillard.decisions.simple_decisions import SimpleBatch, decide_simply
from maillard.decisions.stores.contract import NotNewError, SharedCommitStore
from maillard.errors import MaillardError

if TYPE_CHECKING:
    from maillard.decisions.session import Call, Session


def run_together(store: SharedCommitStore, calls: Sequence[tuple[Session, Call]]) -> list[Any]:
    """Run calls of several experiments in one transaction; return the result or the error of each call."""
    batches: dict[Session, list[int]] = {}
    for place, (session, _) in enumerate(calls):
        batches.setdefault(session, []).append(place)
    parts = {session: [calls[place][1] for place in places] for session, places in batches.items()}
    answers: list[Any] = [None] * len(calls)
    for session, found in _run_parts(store, parts):
        for place, answer in zip(batches[session], found, strict=True):
            answers[place] = answer
    return answers


class PartFailedError(Exception):
    """An error that concerns one of several experiments."""


def _run_parts(
    store: SharedCommitStore, parts: Mapping[Session, Sequence[Call]]
) -> Iterator[tuple[Session, Sequence[Any]]]:
    found = None
    if len(parts) > 1:
        batches = {session: session.simple_batch(calls) for session, calls in parts.items()}
        simple = {session: batch for session, batch in batches.items() if batch is not None}
        with suppress(PartFailedError, NotNewError):  # nothing was written
            try:
                found = run_in_one_commit(store, parts, simple)
            except NotNewError:  # nothing was written
                found = run_in_one_commit(store, parts, {})
    if found is not None:
        yield from found.items()
        return
    for session, calls in parts.items():
        try:
            yield session, session.run(calls)
        except MaillardError as error:
            yield session, [type(error)(*error.args) for _ in calls]


def run_in_one_commit(
    store: SharedCommitStore,
    parts: Mapping[Session, Sequence[Call]],
    simple: Mapping[Session, SimpleBatch],
) -> dict[Session, list[Any]]:
    """Run the calls of some experiments in one commit; return the results of each.

    `simple` has those that need not go through `Session.run_in`. Raises NotNewError or PartFailedError if
    nothing was written.
    """
    known = {
        session: simple[session].state if session in simple else session.prepare(calls)
        for session, calls in parts.items()
    }
    states = {}
    with store.together() as shared:
        made = decide_simply(shared, list(simple.values())) if simple else []
        found = {
            session: answers for session, answers in zip(simple, made, strict=True) if answers is not None
        }
        rest = {session: calls for session, calls in parts.items() if session not in found}
        transactions = shared.parts({each.experiment: _keys_of(calls) for each, calls in rest.items()})
        for session, calls in rest.items():
            try:
                transaction = transactions[session.experiment]
                found[session], states[session] = session.run_in(
                    transaction, known[session], calls, locked=True
                )
            except MaillardError as error:
                raise PartFailedError from error
    for session, state in states.items():
        session.publish(state)
    return found


def _keys_of(calls: Sequence[Call]) -> list[str]:
    return [call.argument.key for call in calls if call.kind == "decide" and call.argument.key is not None]
