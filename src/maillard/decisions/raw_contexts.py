"""Contexts as callers give them: checked, and as the JSON that the log stores. This needs no NumPy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from maillard.decisions.identifiers import check_name
from maillard.errors import InvalidValue

MAX_CONTEXT_BYTES = 16_384
"The largest size of a context, as JSON in UTF-8."
MAX_ACTIONS_BYTES = 262_144
"The largest size of all actions of a decision, as JSON in UTF-8."
MAX_ACTIONS = 1_000

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_PLAIN_TYPES = frozenset((str, int, bool, type(None)))

Values = dict[str, Any]  # str, int, float, bool or None


class RawContext(NamedTuple):
    """What the caller of a decision knows about it."""

    values: Values | None = None
    text: str | None = None
    "The values as JSON."
    actions: dict[str, Values] | None = None
    "The arms of this decision with their attributes, if the arms differ at every decision."
    actions_text: str | None = None
    "The actions as JSON."


NO_CONTEXT = RawContext()


def check_context(context: object, actions: object = None, *, where: str = "") -> RawContext:
    """Check a context and the actions of a decision; both may be None.

    >>> check_context({"device": "phone", "age": 36}).text
    '{"device":"phone","age":36}'
    """
    values, text = None, None
    if context is not None:
        values = check_values(context, f"{where}context")
        text = _write(values, f"{where}context", MAX_CONTEXT_BYTES)
    if actions is None:
        return RawContext(values, text) if context is not None else NO_CONTEXT
    if not isinstance(actions, Mapping) or not actions:
        allowed = "a mapping from the name of each arm to its attributes, such as {'article-17': {...}}"
        raise InvalidValue(f"{where}actions", actions, allowed)
    if len(actions) > MAX_ACTIONS:
        raise InvalidValue(f"{where}actions", len(actions), f"at most {MAX_ACTIONS} actions")
    checked = {
        check_name(f"{where}actions", name): check_values(attributes, f"{where}actions: {name}")
        for name, attributes in actions.items()
    }
    return RawContext(values, text, checked, _write(checked, f"{where}actions", MAX_ACTIONS_BYTES))


def check_values(given: object, where: str) -> Values:
    """Check a mapping of names to text, numbers, flags and None. NaN becomes None."""
    if not isinstance(given, Mapping):
        raise InvalidValue(where, given, "a mapping of names to values, such as {'device': 'phone'}")
    values: Values = {}
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise InvalidValue(where, name, "names as keys, which are not empty")
        if type(value) in _PLAIN_TYPES or (type(value) is float and -math.inf < value < math.inf):
            values[name] = value
        else:
            values[name] = _plain(value, f"{where}: {name}")
    return values


def _plain(value: object, where: str) -> Any:
    if type(value).__name__ in ("NAType", "NaTType"):  # of pandas
        return None
    if not isinstance(value, str | int | float) and hasattr(value, "item") and not getattr(value, "shape", 1):
        value = value.item()  # a NumPy scalar
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise InvalidValue(where, value, "a finite number, text, True, False or None")
        return None if math.isnan(value) else float(value)
    if isinstance(value, str | int):
        return str(value) if isinstance(value, str) else int(value)
    raise InvalidValue(where, value, "a number, text, True, False or None")


def _write(values: object, where: str, limit: int) -> str:
    try:
        text = _encode(values)
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidValue(where, values, "text that can be encoded as UTF-8") from None
    except ValueError:  # Python refuses to write an integer of more than 4300 digits
        raise InvalidValue(where, "a number of thousands of digits", f"at most {limit} bytes") from None
    if size > limit:
        raise InvalidValue(where, f"{size} bytes of JSON", f"at most {limit} bytes")
    return text


def read_context(text: str | None, actions_text: str | None) -> RawContext:
    """Parse a context and actions that the log stores; InvalidValue if they are malformed."""
    try:
        context = None if text is None else json.loads(text)
        actions = None if actions_text is None else json.loads(actions_text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue("context", text, f"JSON ({error})") from None
    if text is None or actions_text is not None or "\\u" in text or len(text) > MAX_CONTEXT_BYTES:
        made = check_context(context, actions)
        return made._replace(text=text, actions_text=actions_text)
    # The log has the JSON already, so it need not be made again.
    return RawContext(None if context is None else check_values(context, "context"), text)
