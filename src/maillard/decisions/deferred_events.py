"""Decisions whose activation is deferred, and rewards that arrive before the decision with their key.

A deferred decision is sampled from the exact distribution of a state, like all others, but it may never be
shown. So it is logged only when it is activated. Until then it is a document of the store, which is as
durable as the log: it survives a restart, and the activation logs what was sampled. `verify` recomputes its
probabilities from the state in which it was sampled. A decision that is not activated leaves no trace in the
log, so no policy learns from it, and no evaluation counts it as shown.

Callers name a decision by its idempotency key. A reward whose key is not in the log yet waits in the same
way. What waits expires when the reward window closes, which begins with the choice; without a window, after
a day.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from maillard.decisions import ledger
from maillard.decisions.call_arguments import Request
from maillard.decisions.choosing import DecisionBatch, RandomSource
from maillard.decisions.configuration import check_decision
from maillard.decisions.decision import Decision, Outcome, RewardEvent
from maillard.decisions.reward_rule import Reward
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Transaction
from maillard.errors import Conflict, InvalidLog, InvalidValue, MaillardError

_LIFETIME = 86_400_000_000  # microseconds, if the reward rule has no window


class WaitingEvent(NamedTuple):
    """What is known about a key that is not in the log yet."""

    expires: int
    "In microseconds since 1970, by the store's clock."
    decision: Decision | None = None
    "The decision, if it waits for its activation."
    rewards: tuple[RewardEvent, ...] = ()
    "Rewards that wait for the decision. Their field `decision` is empty until it is logged."


def read_waiting(transaction: Transaction, key: str) -> WaitingEvent | None:
    """What waits under a key; None if nothing does, or if it has expired."""
    text = transaction.document(_kind(transaction), key)
    found = None if text is None else _read(text)
    return None if found is None or found.expires <= transaction.now else found


def defer(transaction: Transaction, state: State, request: Request, random: RandomSource) -> list[Decision]:
    """Choose an arm, and keep the decision until it is activated.

    A repeated key returns the earlier decision, whether it is in the log or waits.
    """
    assert request.key is not None  # without a key nobody could activate the decision
    state = state.after(transaction.events(state.number))
    waiting = read_waiting(transaction, request.key)
    kept = None if waiting is None else waiting.decision
    batch = DecisionBatch(transaction, transaction.name, state, [request], random)
    rows = batch.sample_unlogged(kept)
    if request.key not in batch.stored:
        rewards = () if waiting is None else waiting.rewards
        expires = _expires(state.reward, rows[0].time)
        _put(transaction, request.key, WaitingEvent(expires, rows[0], rewards))
    return rows


def activate(
    transaction: Transaction, state: State, key: str, random: RandomSource
) -> tuple[Decision, bool] | None:
    """Log the decision that waits under a key, and apply its rewards. Returns it, and whether it is new.

    It gets its id now, because readers find new decisions by their ids; its time stays that of the choice.
    Returns None if there is no such decision, or if its reward window has closed.
    """
    logged = transaction.decisions_by_key([key]).get(key)
    if logged:
        return logged[0], False
    waiting = read_waiting(transaction, key)
    if waiting is None or waiting.decision is None:
        return None
    state = state.after(transaction.events(state.number))
    row = waiting.decision._replace(id=random.new_ids(1, transaction.now)[0])
    check_decision(row, transaction.name, state)
    ledger.append(transaction, state.reward, [row])
    _apply(transaction, state, row.id, waiting.rewards)
    transaction.remove_document(_kind(transaction), key)
    return row, True


def add_reward(transaction: Transaction, state: State, key: str, row: RewardEvent) -> Outcome:
    """Apply a reward to the decision with this key if it is in the log; otherwise let the reward wait."""
    logged = transaction.decisions_by_key([key]).get(key)
    if logged:
        (outcome,) = _apply(transaction, state, logged[0].id, [row])
        if isinstance(outcome, MaillardError):
            raise outcome
        return outcome
    now = transaction.now
    waiting = read_waiting(transaction, key) or WaitingEvent(_expires(state.reward, now))
    for known in waiting.rewards:
        if known.event == row.event and known.value == row.value:
            return "duplicate"
        if known.event == row.event:
            before = f"the reward is already {known.value!r}, not {row.value!r}"
            raise Conflict(f"key {key!r}, event {row.event!r}: {before}")
    if len(waiting.rewards) >= ledger.MAX_REWARD_EVENTS:
        allowed = f"at most {ledger.MAX_REWARD_EVENTS} reward events per decision"
        raise InvalidValue("event", row.event, allowed)
    rewards = (*waiting.rewards, row._replace(at=now, arrived=now))
    _put(transaction, key, waiting._replace(rewards=rewards))
    return "parked"


def release(transaction: Transaction, state: State, key: str) -> None:
    """Apply the rewards that have waited for a decision that is in the log now."""
    logged = transaction.decisions_by_key([key]).get(key)
    text = transaction.document(_kind(transaction), key)
    if logged and text is not None:
        _apply(transaction, state, logged[0].id, _read(text).rewards)
        transaction.remove_document(_kind(transaction), key)


def sweep(transaction: Transaction, state: State) -> int:
    """Remove what has expired, and apply rewards whose decisions are in the log. Returns how many wait.

    A process that ends after it has logged a decision may leave its rewards to this.
    """
    kind, left = _kind(transaction), 0
    for key, text in transaction.documents(kind).items():
        waiting = _read(text)
        logged = None if waiting.decision else transaction.decisions_by_key([key]).get(key)
        if logged and logged[0].time < waiting.expires:
            release(transaction, state, key)
        elif waiting.expires <= transaction.now:
            transaction.remove_document(kind, key)
        else:
            left += 1
    return left


def _apply(
    transaction: Transaction, state: State, identifier: str, rewards: Iterable[RewardEvent]
) -> list[Outcome | MaillardError]:
    offered = [row._replace(decision=identifier) for row in rewards]
    return (
        ledger.apply_rewards(transaction, state.reward, offered, pruned=bool(state.pruned)) if offered else []
    )


def _expires(rule: Reward, since: int) -> int:
    closes = rule.closes(since)
    return since + _LIFETIME if closes is None else closes


def _kind(transaction: Transaction) -> str:
    return f"waiting:{transaction.name}"


def _put(transaction: Transaction, key: str, waiting: WaitingEvent) -> None:
    decision = waiting.decision
    data: dict[str, Any] = {
        "expires": waiting.expires,
        "decision": None if decision is None else _to_data(decision),
        "rewards": [list(row) for row in waiting.rewards],
    }
    transaction.put_document(_kind(transaction), key, json.dumps(data))


def _to_data(decision: Decision) -> dict[str, Any]:
    encoded = None if decision.encoded is None else base64.b64encode(decision.encoded).decode()
    return decision._asdict() | {"encoded": encoded}


def _read(text: str) -> WaitingEvent:
    try:
        data = json.loads(text)
        decision = None if data["decision"] is None else _from_data(data["decision"])
        rewards = tuple(RewardEvent(*row) for row in data["rewards"])
        return WaitingEvent(int(data["expires"]), decision, rewards)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidLog(
            "documents: content", text[:80], f"a decision or rewards that wait ({error})"
        ) from None


def _from_data(data: dict[str, Any]) -> Decision:
    encoded = None if data["encoded"] is None else base64.b64decode(data["encoded"], validate=True)
    lists = {name: tuple(data[name]) for name in ("eligible", "log_probabilities")}
    return Decision(**{**data, **lists, "encoded": encoded})
