"""Spec strings, "name:key=value,...", to and from keyword arguments.

A value is written the way a person types it: ``8``, ``0.25``, ``true``, ``gaussian``, a range as ``0..1``,
several numbers as ``0.2/0.05``. `write` sorts the keys and spells numbers as briefly as they
round-trip, so that equal things have equal specs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from maillard.errors import InvalidValue

__all__ = ["Spec", "Value", "read", "write"]

Value = bool | int | float | str | tuple[float, ...]

_NAME = re.compile(r"[a-z][a-z0-9+-]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]*")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})", re.IGNORECASE)


class Spec(NamedTuple):
    """What a spec string says: a name, values without a key, values with one."""

    name: str
    values: tuple[Value, ...]
    options: dict[str, Value]


def read(text: str) -> Spec:
    """Parse a spec string.

    >>> read("ms+:booster=8,reward_range=0..1")
    Spec(name='ms+', values=(), options={'booster': 8, 'reward_range': (0.0, 1.0)})
    >>> read("bernoulli:0.1,0.05").values
    (0.1, 0.05)
    """
    allowed = "name or name:key=value,... (as in 'ms+:booster=8,sigma2=0.25')"
    if not isinstance(text, str):
        raise InvalidValue("spec", text, allowed)
    name, colon, rest = text.strip().partition(":")
    if not _NAME.fullmatch(name) or (colon and not rest.strip()):
        raise InvalidValue("spec", text, allowed)
    values: list[Value] = []
    options: dict[str, Value] = {}
    for item in rest.split(",") if rest else ():
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            key, value = "", key
        if not value or (equals and not _KEY.fullmatch(key)) or (not equals and options):
            raise InvalidValue(f"spec {text!r}, item", item, "key=value with a plain key")
        if key in options:
            raise InvalidValue(f"spec {text!r}, key {key}", value, "each key once")
        if equals:
            options[key] = _read_value(value)
        else:
            values.append(_read_value(value))
    return Spec(name, tuple(values), options)


def write(name: str, options: Mapping[str, Value], values: tuple[Value, ...] = ()) -> str:
    """The canonical spec string: keys sorted, numbers as briefly as they round-trip.

    >>> write("ms+", {"sigma2": 0.25, "booster": 8.0})
    'ms+:booster=8,sigma2=0.25'
    """
    items = [_write_value(value) for value in values]
    items += [f"{key}={_write_value(options[key])}" for key in sorted(options)]
    return f"{name}:{','.join(items)}" if items else name


def _read_value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if match := _RANGE.fullmatch(text):
        return float(match[1]), float(match[2])
    numbers = [_read_number(part) for part in text.split("/")]
    if any(number is None for number in numbers):
        return text
    if len(numbers) == 1:
        return numbers[0]  # type: ignore[return-value]  # None was excluded above
    return tuple(float(number) for number in numbers if number is not None)


def _read_number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _write_value(value: Value) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float() if value.is_integer() and abs(value) < 1e16:
            return str(int(value))
        case tuple():
            return "/".join(_write_value(part) for part in value)
        case _:
            return str(value)
