"""Parsing and writing of spec strings, "name:key=value,...".

A value is ``8``, ``0.25``, ``true``, ``gaussian``, a range such as ``0..1`` or several numbers such as
``0.2/0.05``. Single quotes mark a word that would otherwise be read as something else. `write` sorts the keys
and writes the shortest number that reads back as the same float, so equal objects have equal specs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from maillard.errors import InvalidValue

Value = bool | int | float | str | tuple[float, ...]

_NAME = re.compile(r"[a-z][a-z0-9+-]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]*")
_QUOTED = re.compile(r"'(?:[^']|'')*'")
_ITEM = re.compile(r"(?:[^,']|'(?:[^']|'')*')*")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_RANGE = re.compile(rf"({_NUMBER.pattern})\.\.({_NUMBER.pattern})")
_FORMAT = "name or name:key=value,... (as in 'ms+:booster=8,sigma2=0.25')"


class Range(NamedTuple):
    """A value that is written as low..high. It equals the tuple that `read` returns for it."""

    low: float
    high: float


class Spec(NamedTuple):
    """A parsed spec string: the name, the values without a key, and the values with a key."""

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
    if not isinstance(text, str):
        raise InvalidValue("spec", text, _FORMAT)
    name, colon, rest = text.strip().partition(":")
    if not _NAME.fullmatch(name) or (colon and not rest.strip()):
        raise InvalidValue("spec", text, _FORMAT)
    values: list[Value] = []
    options: dict[str, Value] = {}
    for item in _split(rest) if rest else ():
        key, equals, value = _partition(item)
        if not value or (equals and not key) or (not equals and options):
            raise InvalidValue(
                f"spec {text!r}, item", item, "key=value: values without a key must come first"
            )
        if key in options:
            raise InvalidValue(f"spec {text!r}, key {key}", value, "each key only once")
        if equals:
            options[key] = _read_value(value)
        else:
            values.append(_read_value(value))
    return Spec(name, tuple(values), options)


def write(spec: Spec) -> str:
    """Return the canonical spec string: keys sorted, numbers as short as possible.

    >>> write(Spec("ms+", (), {"sigma2": 0.25, "booster": 8.0}))
    'ms+:booster=8,sigma2=0.25'
    >>> write(Spec("arm", ("2",), {}))
    "arm:'2'"
    """
    name, values, options = spec
    items = [write_value(value) for value in values]
    items += [f"{_write_word(key)}={write_value(options[key])}" for key in sorted(options)]
    return f"{name}:{','.join(items)}" if items else name


def _split(text: str) -> list[str]:
    """Split at commas that are not inside quotes."""
    items, start = [], 0
    while True:
        match = _ITEM.match(text, start)
        end = match.end() if match else start
        if end < len(text) and text[end] != ",":
            raise InvalidValue("spec", text, "closed quotes")
        items.append(text[start:end])
        if end == len(text):
            return items
        start = end + 1


def _partition(item: str) -> tuple[str, str, str]:
    item = item.strip()
    if quoted := _QUOTED.match(item):
        key, rest = _unquote(quoted[0]), item[quoted.end() :].lstrip()
        return (key, "=", rest[1:].strip()) if rest.startswith("=") else ("", "", item)
    key, equals, value = (part.strip() for part in item.partition("="))
    if not equals:
        return "", "", key
    return (key if _WORD.fullmatch(key) else ""), equals, value


def _read_value(text: str) -> Value:
    if _QUOTED.fullmatch(text):
        return _unquote(text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if match := _RANGE.fullmatch(text):
        return float(match[1]), float(match[2])
    parts = text.split("/")
    if len(parts) > 1 and all(_NUMBER.fullmatch(part) for part in parts if part):
        return tuple(float(part) for part in parts if part)
    if _WHOLE.fullmatch(text) and len(text) < 400:  # longer numbers exceed the range of floats
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def write_value(value: Value) -> str:  # noqa: PLR0911  # one for each type
    """Return a value as it is written in a spec string."""
    match value:
        case bool():
            return str(value).lower()
        case float() if value.is_integer() and abs(value) < 1e16:
            return str(int(value))
        case Range():
            return f"{write_value(value.low)}..{write_value(value.high)}"
        case tuple() if len(value) == 1:
            return write_value(value[0]) + "/"
        case tuple():
            return "/".join(write_value(part) for part in value)
        case str():
            return _write_word(value)
        case _:
            return str(value)


def _write_word(text: str) -> str:
    plain = _WORD.fullmatch(text) and text == text.strip() and _read_value(text) == text
    return text if plain else "'" + text.replace("'", "''") + "'"


def _unquote(text: str) -> str:
    return text[1:-1].replace("''", "'")
