"""Conversion between rows of the SQL tables and records.

Every value that is read is checked: a damaged or modified database can contain any value in any column.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from maillard.decisions.chain import Link
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE, Decision, LoggedContext, RewardEvent
from maillard.decisions.event_payloads import parse_event, payload_of
from maillard.decisions.events import UPDATE_KINDS, AdministrativeEvent, TallyUpdate
from maillard.decisions.stores.contract import Parked
from maillard.decisions.stores.vectors import Vector, read_arms, read_vector
from maillard.decisions.timestamps import END_OF_TIME
from maillard.errors import InvalidLog

# Columns in the order of the rows.
EVENT = "number, kind, time, decision, arm, value, previous, payload"
_DECISION_COLUMNS = (
    "id, time, unit, arm, log_probability, eligible, log_probabilities, policy_version, formula_version, "
    "state, epoch, cold, idempotency_key, position, origin, seal"
)
_CONTEXT_COLUMNS = "context, actions, encoded, feature_version"
DECISION = ", ".join(f"d.{column}" for column in _DECISION_COLUMNS.split(", ")) + ", l.names, v.data, "
DECISION += ", ".join(f"d.{column}" for column in _CONTEXT_COLUMNS.split(", "))
DECISIONS = (  # the tables of these columns
    "decisions d "
    "LEFT JOIN vectors v ON v.experiment = d.experiment AND v.state = d.state AND v.variant = d.variant "
    "LEFT JOIN arm_lists l ON l.experiment = v.experiment AND l.arms = v.arms"
)
NEW_DECISION = f"{_DECISION_COLUMNS}, variant, {_CONTEXT_COLUMNS}"
LINK = "number, hash, time, first_event, events, decisions, rewards"
REWARD = "decision, event, value, at, arrived"  # the first fields of a RewardEvent


def write_event(event: AdministrativeEvent | TallyUpdate) -> tuple[Any, ...]:
    """The row of an event."""
    if isinstance(event, AdministrativeEvent):
        payload = payload_of(event)
        text = json.dumps(payload, ensure_ascii=False) if payload else None
        return event.number, event.kind, event.time, None, None, None, None, text
    return tuple(event)


def read_event(row: Sequence[Any]) -> AdministrativeEvent | TallyUpdate:
    """The event of a row."""
    return read_administrative_event(row) if row[3] is None else read_update(row)


def read_administrative_event(row: Sequence[Any]) -> AdministrativeEvent:
    """The administrative event of a row."""
    types = "whole text time text? text? real? real? text?"
    number, kind, time, *_, text = check_row("events", row[0], row, types)
    try:
        payload = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise InvalidLog(f"events, row {number}: payload", text, f"JSON ({error})") from None
    return parse_event(number, kind, time, payload)


def read_update(row: Sequence[Any]) -> TallyUpdate:
    """The tally update of a row."""
    update = TallyUpdate(*check_row("events", row[0], row, "whole text time text text real real? text?"))
    revises = update.previous is not None
    if update.kind not in UPDATE_KINDS or revises != (update.kind == "revision"):
        allowed = "reward or default, or revision with a previous value"
        raise InvalidLog(f"events, row {update.number}: kind", update.kind, allowed)
    return update


_numbers = json.JSONDecoder(parse_int=float)


@lru_cache(maxsize=256)
def _read_logs(content: str) -> tuple[float, ...]:
    """Parse the log probabilities of a decision that was logged as text, with null for -inf."""
    data = _numbers.decode(content)
    logs = [-math.inf if log is None else log for log in data] if isinstance(data, list) else []
    if not logs or not all(type(log) is float and log <= LOG_PROBABILITY_TOLERANCE for log in logs):
        raise ValueError("log_probabilities: a list of numbers <= 0")
    return tuple(logs)


def write_decision(row: Decision, seal: bytes | None, vector: Vector) -> tuple[Any, ...]:
    """The row of a decision, without the experiment's id. Its distribution is a row of another table."""
    return (
        row.id, row.time, row.unit, row.arm, row.log_probability, "", "", row.policy_version,
        row.formula_version, row.state, row.epoch, int(row.cold), row.idempotency_key, row.position,
        row.origin, seal, vector.variant, row.context, row.actions, row.encoded,
        row.feature_version or None,
    )  # fmt: skip


def read_decision(row: Sequence[Any], experiment: str) -> Decision:
    """The decision of a row."""
    check_row("decisions", row[0], row, _DECISION_TYPES)
    identifier, time, unit, arm, log, eligible, logs, *rest = row
    version, formula, state, epoch, cold, key, position, origin, _, names, data, *more = rest
    context, actions, encoded, features = more
    try:
        if names is not None and data is not None and not eligible and not logs:
            arms, log_probabilities = read_vector(names, data)
        elif eligible and data is None:
            arms, log_probabilities = read_arms(eligible), _read_logs(logs)
        else:
            raise ValueError("one distribution, in the table vectors")  # noqa: TRY301  # like other damage
    except (ValueError, RecursionError) as error:
        raise InvalidLog(f"decisions, row {identifier}", names or eligible, str(error)) from None
    if arm not in arms or len(arms) != len(log_probabilities):
        allowed = f"one of its {len(arms)} eligible arms, with {len(arms)} log probabilities"
        raise InvalidLog(f"decisions, row {identifier}: arm", arm, allowed)
    return Decision(
        identifier, experiment, time, unit, arm, arms, log_probabilities, log,
        version, formula, state, epoch, cold == 1, key, position, origin, context,
        actions, encoded, features or 0,
    )  # fmt: skip


def read_context(row: Sequence[Any]) -> LoggedContext:
    """The context of a row."""
    identifier, arm, context, features = check_row("decisions", row[0], row, "text text text? whole?")
    return LoggedContext(identifier, arm, context, features or 0)


def read_reward(row: Sequence[Any]) -> RewardEvent:
    """The reward event of a row."""
    check_row("rewards", row[0], row, "text text real time time truth")
    decision, event, value, at, arrived, late = row
    return RewardEvent(decision, event, value, at, arrived, late == 1)


def read_parked(row: Sequence[Any]) -> Parked:
    """The parked reward of a row."""
    *reward, expires = check_row("parked", row[0], row, "text text real time time time?")
    return Parked(RewardEvent(*reward), expires)


def read_link(row: Sequence[Any]) -> Link:
    """The link of a row."""
    return Link(*check_row("links", row[0], row, "whole bytes time whole whole bytes bytes"))


_DECISION_TYPES = (
    "text time text? text log text text whole whole whole whole truth text? whole text? bytes? text? bytes? "
    "text? text? bytes? whole?"
)
_COLUMN_TYPES: dict[str, tuple[type, Any, Any]] = {
    "text": (str, None, None),
    "bytes": (bytes, None, None),
    "whole": (int, 0, 2**62),
    "time": (int, 0, END_OF_TIME - 1),
    "truth": (int, 0, 1),
    "real": (float, -sys.float_info.max, sys.float_info.max),
    "log": (float, -math.inf, LOG_PROBABILITY_TOLERANCE),
}


@lru_cache
def _columns(types: str) -> list[tuple[bool, type, Any, Any]]:
    return [(name.endswith("?"), *_COLUMN_TYPES[name.rstrip("?")]) for name in types.split()]


def check_row(table: str, key: object, row: Sequence[Any], types: str) -> Sequence[Any]:
    """Return the row if every value has the type of its column, else raise InvalidLog."""
    for value, (optional, cls, low, high) in zip(row, _columns(types), strict=True):
        if type(value) is cls:
            if low is None or low <= value <= high:
                continue
        elif value is None and optional:
            continue
        bounds = "" if low is None else f" from {low:g} to {high:g}"
        allowed = f"a value of type {cls.__name__}{bounds}{' or NULL' * optional}"
        raise InvalidLog(f"{table}, row {key!r}", value, allowed)
    return row
