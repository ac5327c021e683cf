"""The columns of a log table, and the conversion of rows to and from plain values.

Plain values are str, int, float, bool, None, and lists and dicts of them. Times are microseconds since 1970.
All table formats contain the same values. Values read from a file are checked here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE, Decision, RewardEvent
from maillard.decisions.events import TallyUpdate
from maillard.decisions.identifiers import check_id, check_name
from maillard.decisions.log import Row
from maillard.decisions.timestamps import END_OF_TIME
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from maillard.decisions.log import DecisionLog

# The type of each column; `strings`, `floats`, `rewards` and `applied` are lists.
COLUMNS = {
    "id": "string", "experiment": "string", "time": "time", "unit": "string", "arm": "string",
    "probability": "float", "log_probability": "float", "eligible": "strings", "log_probabilities": "floats",
    "policy": "string", "policy_version": "integer", "formula_version": "integer", "state": "integer",
    "epoch": "integer", "cold": "boolean", "idempotency_key": "string", "position": "integer",
    "origin": "string", "reward": "float", "closed": "boolean", "rewards": "rewards", "applied": "applied",
}  # fmt: skip
REWARDS = {"event": "string", "value": "float", "at": "time", "arrived": "time", "late": "boolean"}
APPLIED = {"number": "integer", "kind": "string", "value": "float", "previous": "float", "time": "time"}
# The columns that are read back. The others are derived from these and the events, and written for other
# readers.
NEEDED = COLUMNS.keys() - {"experiment", "probability", "policy", "reward", "closed"}

_KINDS = ("reward", "revision", "default")


def values_of(log: DecisionLog, row: Row) -> tuple[Any, ...]:
    """Return the values of a row, in column order."""
    d = row.decision
    rewards = [{name: getattr(each, name) for name in REWARDS} for each in row.rewards]
    applied = [{name: getattr(each, name) for name in APPLIED} for each in row.applied]
    return (
        d.id, d.experiment, d.time, d.unit, d.arm, d.probability, d.log_probability, d.eligible,
        d.log_probabilities, log.policies.get(d.policy_version), d.policy_version, d.formula_version, d.state,
        d.epoch, d.cold, d.idempotency_key, d.position, d.origin, log.reward_of(row), log.is_closed(d),
        rewards, applied,
    )  # fmt: skip


def rows_of(records: Iterable[Mapping[str, Any]], experiment: str, source: str) -> Iterator[Row]:
    """Convert plain values to rows; the inverse of `values_of`. Errors name the row."""
    before: tuple[int, str] | None = None
    for place, values in enumerate(records, 1):
        try:
            row = _row(values, experiment)
        except InvalidValue as error:
            raise error.with_location(f"{source}, row {place}") from None
        here = row.decision.state, row.decision.id
        if before is not None and here <= before:
            allowed = "rows in order of state and id, each once"
            raise InvalidValue(f"{source}, row {place}: (state, id)", here, allowed)
        before = here
        yield row


def _row(values: Mapping[str, Any], experiment: str) -> Row:
    decision = make_decision(values, check_id(values["id"], "id"), experiment)
    if any(map(math.isnan, decision.log_probabilities)):
        raise InvalidValue("log_probabilities", math.nan, "numbers <= 0")
    rewards = tuple(_reward_event(each, decision) for each in _items(values["rewards"] or [], "rewards"))
    applied = tuple(_applied_event(each, decision) for each in _items(values["applied"] or [], "applied"))
    return Row(decision, rewards, applied)


def make_decision(values: Mapping[str, Any], identifier: str, experiment: str) -> Decision:
    """Make a decision from plain values."""
    arm, eligible = values["arm"], _names(values["eligible"])
    logs = _items(values["log_probabilities"], "log_probabilities")
    if arm not in eligible or len(logs) != len(eligible):
        allowed = (
            f"a list with the chosen arm ({arm!r}) and with one log probability per arm ({len(logs)} given)"
        )
        raise InvalidValue("eligible", list(eligible), allowed)
    log = values["log_probability"]
    if not isinstance(log, float) or not -math.inf < log <= LOG_PROBABILITY_TOLERANCE:
        raise InvalidValue("log_probability", log, "a finite number <= 0")
    return Decision(
        id=identifier,
        experiment=experiment,
        time=check_time(values["time"], "time"),
        unit=_optional(values, "unit"),
        arm=arm,
        eligible=eligible,
        log_probabilities=tuple(map(_log, logs)),
        log_probability=log,
        policy_version=check_whole(values["policy_version"], "policy_version"),
        formula_version=check_whole(values["formula_version"], "formula_version"),
        state=check_whole(values["state"], "state"),
        epoch=check_whole(values["epoch"], "epoch"),
        cold=_truth(values["cold"], "cold"),
        idempotency_key=_optional(values, "idempotency_key"),
        position=check_whole(values["position"], "position"),
        origin=_optional(values, "origin"),
    )


def _reward_event(each: Mapping[str, Any], decision: Decision) -> RewardEvent:
    return RewardEvent(
        decision=decision.id,
        event=check_name("rewards: event", each["event"]),
        value=check_real(each["value"], "rewards: value"),
        at=check_time(each["at"], "rewards: at"),
        arrived=check_time(each["arrived"], "rewards: arrived"),
        late=_truth(each["late"], "rewards: late"),
    )


def _applied_event(each: Mapping[str, Any], decision: Decision) -> TallyUpdate:
    number, kind, previous = check_whole(each["number"], "number"), each["kind"], each["previous"]
    if number <= decision.state:
        raise InvalidValue("applied: number", number, f"more than {decision.state}, the decision's state")
    if kind not in _KINDS or (kind == "revision") == (previous is None):
        raise InvalidValue("applied: kind", kind, "reward or default, or revision with its previous value")
    return TallyUpdate(
        number=number,
        kind=kind,
        time=check_time(each["time"], "applied: time"),
        decision=decision.id,
        arm=decision.arm,
        value=check_real(each["value"], "applied: value"),
        previous=None if previous is None else check_real(previous, "applied: previous"),
    )


def check_time(value: object, field: str) -> int:
    """Check a time in microseconds since 1970."""
    if type(value) is not int or not 0 <= value < END_OF_TIME:
        raise InvalidValue(field, value, "a time within the years 1970 to 9999")
    return value


def _names(value: object) -> tuple[str, ...]:
    names = _items(value, "eligible")
    if not all(isinstance(name, str) for name in names):
        raise InvalidValue("eligible", value, "names of arms")
    return _check_names(tuple(names))


@lru_cache(maxsize=256)
def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Check names. Cached, because most rows have the same eligible arms."""
    for name in names:
        check_name("eligible", name)
    if len(set(names)) < len(names):
        raise InvalidValue("eligible", list(names), "each name once")
    return names


def _log(value: object) -> float:
    """Check a log probability; None and NaN mean unknown."""
    if value is None:
        return math.nan
    if not isinstance(value, float) or value > LOG_PROBABILITY_TOLERANCE:
        raise InvalidValue("log_probabilities", value, "numbers <= 0")
    return (
        math.nan if math.isnan(value) else value
    )  # always the same NaN object, so that equal rows compare equal


def _items(value: Any, field: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidValue(field, value, "a list")
    return value


def _optional(values: Mapping[str, Any], name: str) -> str | None:
    value = values[name]
    return None if value is None else check_name(name, value)


def check_whole(value: object, field: str) -> int:
    """Check an integer >= 0."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise InvalidValue(field, value, "a whole number >= 0")
    return value


def check_real(value: object, field: str) -> float:
    """Check a finite number."""
    if not isinstance(value, float) or not math.isfinite(value):
        raise InvalidValue(field, value, "a finite number")
    return value


def _truth(value: object, field: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(field, value, "true or false")
    return value
