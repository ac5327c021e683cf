"""The columns of a log table, and the conversion of rows to and from plain values.

Plain values are str, int, float, bool, None, and lists and dicts of them. Times are microseconds since 1970.
All table formats contain the same values. Values read from a file are checked here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE, Decision, RewardEvent
from maillard.decisions.encoded_contexts import encoded_text, read_encoded_text, row_of_chosen_arm
from maillard.decisions.events import UPDATE_KINDS, TallyUpdate
from maillard.decisions.identifiers import check_id, check_name
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores.contract import Row
from maillard.decisions.timestamps import END_OF_TIME
from maillard.errors import InvalidValue

Values = Mapping[str, Any]  # by column

# The type of each column; `strings`, `floats`, `rewards` and `applied` are lists.
COLUMNS = {
    "id": "string", "experiment": "string", "time": "time", "unit": "string", "arm": "string",
    "probability": "float", "log_probability": "float", "eligible": "strings", "log_probabilities": "floats",
    "policy": "string", "policy_version": "integer", "formula_version": "integer", "state": "integer",
    "epoch": "integer", "cold": "boolean", "idempotency_key": "string", "position": "integer",
    "origin": "string", "reward": "float", "closed": "boolean", "rewards": "rewards", "applied": "applied",
    "context": "text", "actions": "text", "encoded": "encoded", "feature_version": "version",
}  # fmt: skip
CONTEXT = "context"  # a column of JSON texts, structs or encoded rows: what was known about the visitor
REWARDS = {"event": "string", "value": "float", "at": "time", "arrived": "time", "late": "boolean"}
APPLIED = {"number": "integer", "kind": "string", "value": "float", "previous": "float", "time": "time"}
# The columns that are read back. The others are derived from these and the events, and written for other
# readers.
LATER_COLUMNS = frozenset({"context", "actions", "encoded", "feature_version"})
"The columns that files of earlier versions do not have."
NEEDED = COLUMNS.keys() - {"experiment", "probability", "policy", "reward", "closed"} - LATER_COLUMNS

_OPTIONAL = {"unit", "idempotency_key", "origin", "previous", "expires", "row"}
# The columns of a decision whose values are checked by their types alone.
_CHECKED_TOGETHER = {
    "id", "experiment", "arm", "log_probability", "eligible", "log_probabilities", *LATER_COLUMNS
}  # fmt: skip
_PLAIN_COLUMNS = {name: COLUMNS[name] for name in Decision._fields if name not in _CHECKED_TOGETHER}
Converter = Callable[[str, Any], Any]  # receives the name of a field and its value


def _within(cls: type, low: Any, high: Any, allowed: str) -> Converter:
    """Return a function that checks the type and the range of a value."""

    def check(field: str, value: Any) -> Any:
        if type(value) is not cls or not low <= value <= high:
            raise InvalidValue(field, value, allowed)
        return value

    return check


# The check of each type of value.
CHECKS: dict[str, Converter] = {
    "id": lambda field, value: check_id(value, field),
    "string": check_name,
    "integer": _within(int, 0, 2**63 - 1, "a whole number >= 0"),
    "float": _within(float, -sys.float_info.max, sys.float_info.max, "a finite number"),
    "boolean": _within(bool, False, True, "true or false"),
    "time": _within(int, 0, END_OF_TIME - 1, "a time within the years 1970 to 9999"),
}


def fields_of(
    converters: Mapping[str, Converter], types: Mapping[str, str], where: str = ""
) -> list[tuple[str, str, Converter]]:
    """Return for each field its name, its name in errors, and the converter of its type."""

    def optional(convert: Converter) -> Converter:
        return lambda field, value: None if value is None else convert(field, value)

    found = [(name, converters.get(kind, lambda _, value: value)) for name, kind in types.items()]
    return [(name, where + name, optional(each) if name in _OPTIONAL else each) for name, each in found]


def convert_values(fields: Iterable[tuple[str, str, Converter]], values: Values) -> dict[str, Any]:
    """Convert these fields of a record."""
    return {name: convert(field, values[name]) for name, field, convert in fields}


_DECISION_FIELDS = fields_of(CHECKS, _PLAIN_COLUMNS)
_REWARD_FIELDS = fields_of(CHECKS, REWARDS, "rewards: ")
_APPLIED_FIELDS = fields_of(CHECKS, APPLIED, "applied: ")


def values_of(log: DecisionLog, row: Row) -> tuple[Any, ...]:
    """Return the values of a row, in column order."""
    d = row.decision
    rewards = [{name: getattr(each, name) for name in REWARDS} for each in row.rewards]
    applied = [{name: getattr(each, name) for name in APPLIED} for each in row.applied]
    return (
        d.id, d.experiment, d.time, d.unit, d.arm, d.probability, d.log_probability, d.eligible,
        d.log_probabilities, log.policies.get(d.policy_version), d.policy_version, d.formula_version, d.state,
        d.epoch, d.cold, d.idempotency_key, d.position, d.origin, log.reward_of(row), log.is_closed(d),
        rewards, applied, d.context, d.actions, encoded_text(d.encoded), d.feature_version,
    )  # fmt: skip


def make_rows(
    make: Callable[[Any, int], Row | list[Row]], items: Iterable[Any], where: str, first: int = 1
) -> Iterator[Row]:
    """Make rows from items. `make` receives an item and the row's index. It may return several rows, or none.

    The rows of an experiment must be in order of state and id. An error names the item: `where` and its
    number, counted from `first`.
    """
    before: dict[str, tuple[int, str]] = {}
    place = 0
    for number, values in enumerate(items, first):
        try:
            made = make(values, place)
            rows = made if isinstance(made, list) else (made,)
            for row in rows:
                experiment, here = row.decision.experiment, (row.decision.state, row.decision.id)
                if here <= before.get(experiment, (-1, "")):
                    allowed = "rows in order of state and id, each once"
                    raise InvalidValue("(state, id)", here, allowed)  # noqa: TRY301  # to add `where`
                before[experiment] = here
        except InvalidValue as error:
            raise error.with_location(f"{where} {number}") from None
        place += len(rows)
        yield from rows


def row_of(experiment: str, values: Values, _place: int) -> Row:
    """Make a row of an experiment from plain values; the inverse of `values_of`."""
    decision = make_decision(values, check_id(values["id"], "id"), experiment)
    if any(map(math.isnan, decision.log_probabilities)):
        raise InvalidValue("log_probabilities", math.nan, "numbers <= 0")
    rewards = [
        RewardEvent(decision.id, **convert_values(_REWARD_FIELDS, each))
        for each in _items(values["rewards"] or [], "rewards")
    ]
    updates = _items(values["applied"] or [], "applied")
    features = row_of_chosen_arm(decision) if updates else None
    applied = [_applied_event(each, decision, features) for each in updates]
    return Row(decision, tuple(rewards), tuple(applied))


def make_decision(values: Values, identifier: str, experiment: str) -> Decision:
    """Make a decision from plain values."""
    arm, eligible = values["arm"], _names(values["eligible"])
    logs = _items(values["log_probabilities"], "log_probabilities")
    if arm not in eligible or len(logs) != len(eligible):
        given = f"with one log probability per arm ({len(logs)} given)"
        raise InvalidValue("eligible", list(eligible), f"a list with the chosen arm ({arm!r}) and {given}")
    log = values["log_probability"]
    if not isinstance(log, float) or not -math.inf < log <= LOG_PROBABILITY_TOLERANCE:
        raise InvalidValue("log_probability", log, "a finite number <= 0")
    return Decision(
        id=identifier,
        experiment=experiment,
        arm=arm,
        eligible=eligible,
        log_probabilities=tuple(map(_log, logs)),
        log_probability=log,
        **convert_values(_DECISION_FIELDS, values),
        **_context_fields(values),
    )


def _context_fields(values: Values) -> dict[str, Any]:
    """The fields of a decision that files of earlier versions do not have."""
    texts = {name: values.get(name) for name in ("context", "actions", "encoded")}
    version = values.get("feature_version")
    if version is None and not any(texts.values()):
        return {}
    for name, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise InvalidValue(name, text, "text")
    encoded, number = texts["encoded"], 0 if version is None else version
    return {
        **texts,
        "encoded": None if encoded is None else read_encoded_text(encoded),
        "feature_version": CHECKS["integer"]("feature_version", number),
    }


def _applied_event(each: Values, decision: Decision, row: str | None) -> TallyUpdate:
    values = convert_values(_APPLIED_FIELDS, each)
    number, kind, revises = values["number"], values["kind"], values["previous"] is not None
    if number <= decision.state:
        raise InvalidValue("applied: number", number, f"more than {decision.state}, the decision's state")
    if kind not in UPDATE_KINDS or revises != (kind == "revision"):
        raise InvalidValue("applied: kind", kind, "reward or default, or revision with its previous value")
    return TallyUpdate(decision=decision.id, arm=decision.arm, row=row, **values)


def _names(value: object) -> tuple[str, ...]:
    try:
        return _check_names(tuple(_items(value, "eligible")))
    except TypeError:  # a list in the list, which cannot be cached
        raise InvalidValue("eligible", value, "names of arms") from None


@lru_cache(maxsize=256)
def _check_names(names: tuple[Any, ...]) -> tuple[str, ...]:
    """Check names. Cached, because most rows have the same eligible arms."""
    if not all(isinstance(name, str) for name in names):
        raise InvalidValue("eligible", list(names), "names of arms")
    checked = [check_name("eligible", name) for name in names]
    if len(set(checked)) < len(checked):
        raise InvalidValue("eligible", checked, "each name once")
    return names


def _log(value: object) -> float:
    """Check a log probability; None and NaN mean unknown."""
    if value is None:
        return math.nan
    if not isinstance(value, float) or value > LOG_PROBABILITY_TOLERANCE:
        raise InvalidValue("log_probabilities", value, "numbers <= 0")
    # Always the same NaN object, so that equal rows compare equal.
    return math.nan if math.isnan(value) else value


def _items(value: Any, field: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidValue(field, value, "a list")
    return value
