"""Administrative events as plain data, as the SQL tables and the log files store them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from maillard.decisions.context_data import features_from, read_statistics, rule_from_data, write_statistics
from maillard.decisions.context_rules import ContextRule
from maillard.decisions.events import AdministrativeEvent
from maillard.decisions.identifiers import check_name
from maillard.decisions.raw_contexts import check_values
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidLog, InvalidValue
from maillard.features import Features
from maillard.linear_tally import LinearTally
from maillard.segment_tally import SegmentTally
from maillard.tally import Tally

_TYPES = {each.kind: each for each in AdministrativeEvent.__subclasses__()}
# Fields that are left out if they are None: earlier versions did not have them.
_LATER_FIELDS = {"by", "context", "statistics", "attributes"}


def payload_of(event: AdministrativeEvent) -> dict[str, Any]:
    """The fields of an administrative event, except its number and time, as plain data."""
    names = [each.name for each in dataclasses.fields(event) if each.name not in ("number", "time")]
    plain = {name: _plain(getattr(event, name)) for name in names}
    return {name: value for name, value in plain.items() if value is not None or name not in _LATER_FIELDS}


def _plain(value: Any) -> Any:
    if isinstance(value, Tally):
        return write_tally(value)
    if isinstance(value, Reward):
        return dataclasses.asdict(value)
    if isinstance(value, ContextRule):
        return value.to_data()
    if isinstance(value, LinearTally | SegmentTally):
        return write_statistics(value)
    if isinstance(value, Features):
        return json.loads(value.to_json())
    return list(value) if isinstance(value, tuple) else value


def parse_event(number: int, kind: object, time: int, payload: object) -> AdministrativeEvent:
    """The administrative event with this kind and payload, or InvalidLog."""
    where = f"event {number}"
    cls = _TYPES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InvalidLog(f"{where}: kind", kind, "one of " + ", ".join(_TYPES))
    if not isinstance(payload, Mapping):
        raise InvalidLog(f"{where}: payload", payload, "an object")
    values: dict[str, Any] = {}
    try:
        for field in dataclasses.fields(cls):
            if field.name not in ("number", "time"):
                values[field.name] = _PARSERS[field.name](payload.get(field.name))
        return cls(number=number, time=time, **values)
    except InvalidValue as error:
        raise InvalidLog(f"{where}: {error.field}", error.value, error.allowed) from None


def _of_type(field: str, cls: type, allowed: str) -> Callable[[object], Any]:
    def parse(value: object) -> Any:
        if type(value) is not cls:
            raise InvalidValue(field, value, allowed)
        return value

    return parse


def _number_of(field: str) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if type(value) is not int or not 0 <= value < 2**62:
            raise InvalidValue(field, value, "a whole number >= 0")
        return value

    return parse


def _digest_of(field: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
            raise InvalidValue(field, value, "64 hexadecimal digits")
        return value

    return parse


def _parse_arms(value: object) -> tuple[str, ...]:
    arms = [check_name("arms", arm) for arm in value] if isinstance(value, list) else []
    if not isinstance(value, list) or len(set(arms)) < len(arms):
        raise InvalidValue("arms", value, "a list of different names")
    return tuple(arms)


def _parse_active(value: object) -> tuple[bool, ...]:
    if not isinstance(value, list) or not all(type(on) is bool for on in value):
        raise InvalidValue("active", value, "a list of true and false")
    return tuple(value)


def _parse_reward(value: object) -> Reward:
    try:
        return Reward.from_fields(value)  # type: ignore[arg-type]  # a TypeError if it is not a mapping
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue("reward", value, "the fields of a Reward") from None


def read_tally(data: object) -> Tally:
    """Parse the tally that `write_tally` wrote."""
    try:
        return Tally.from_json(json.dumps(data))
    except (TypeError, RecursionError):
        raise InvalidValue("tally", data, "pulls and sums, as Tally.to_json writes them") from None


def write_tally(tally: Tally) -> dict[str, Any]:
    """A tally as plain data."""
    data: dict[str, Any] = json.loads(tally.to_json())
    return data


_PARSERS: dict[str, Callable[[object], Any]] = {
    "arms": _parse_arms,
    "arm": lambda value: check_name("arm", value),
    "active": _parse_active,
    "policy": _of_type("policy", str, "the spec of a policy"),
    "formula": _of_type("formula", int, "the version of the policy's formula"),
    "reward": _parse_reward,
    "sticky": _of_type("sticky", bool, "true or false"),
    "tally": read_tally,
    "token": _of_type("token", str, "a string"),
    "seed": lambda value: None if value is None else _of_type("seed", int, "a whole number")(value),
    "by": lambda value: None if value is None else _of_type("by", str, "the id of an API key")(value),
    "clock": _of_type("clock", bool, "true or false"),
    "context": rule_from_data,
    "statistics": read_statistics,
    "attributes": lambda value: None if value is None else check_values(value, "attributes"),
    "features": features_from,
    "new_epoch": _of_type("new_epoch", bool, "true or false"),
    **{name: _number_of(name) for name in ("commit", "last_event", "base", "decisions", "before")},
    **{name: _digest_of(name) for name in ("hash", "base_digest", "events_digest")},
}
