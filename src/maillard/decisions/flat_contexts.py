"""Nested contexts of other programs as flat ones: one value for each key. This needs no NumPy.

The keys of nested objects are joined with a dot. An object in a list counts as if it stood in place of the
list; any other item gets its index as its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from maillard.decisions.raw_contexts import MAX_ACTIONS_BYTES, MAX_CONTEXT_BYTES, Values, check_values
from maillard.errors import InvalidValue

_MAX_DEPTH = 30
# No context can have longer keys. Joined keys may be much longer than the object that they come from, so they
# are limited while they are made.
_MAX_PATH, _MAX_PATHS = MAX_CONTEXT_BYTES, MAX_ACTIONS_BYTES  # characters of one key, and of all


def flatten(given: object, where: str, *, hidden: str | None = None) -> Values:
    """Return an object, or a list of objects, as one flat object. A flat one stays as it is.

    Keys that begin with `hidden` are left out, with everything in them. Two different values for the same key
    are an error.

    >>> flatten({"user": {"age": 36, "plan": {"name": "free"}}, "sizes": [3, 4], "new": None}, "context")
    {'user.age': 36, 'user.plan.name': 'free', 'sizes.0': 3, 'sizes.1': 4, 'new': None}
    >>> flatten([{"device": "phone"}, {"user": {"_id": 7, "age": 36}}], "context", hidden="_")
    {'device': 'phone', 'user.age': 36}
    """
    if not isinstance(given, Mapping | list):
        raise InvalidValue(where, given, "an object, or a list of objects")
    found: dict[str, Any] = {}
    length = 0
    for key, value in _leaves(given, "", where, hidden, 0):
        # 1 and True are equal in Python, but not the same value.
        if key in found and (type(found[key]), found[key]) != (type(value), value):
            raise InvalidValue(f"{where}: {key}", [found[key], value], "one value for each key")
        length += 0 if key in found else len(key)
        if length > _MAX_PATHS:
            raise InvalidValue(
                where, f"over {_MAX_PATHS} characters", f"at most {_MAX_PATHS} characters of keys"
            )
        found[key] = value
    return check_values(found, where)


def _leaves(
    value: object, path: str, where: str, hidden: str | None, depth: int
) -> Iterator[tuple[str, object]]:
    """Yield the values that are no objects and no lists, with their paths."""
    if depth > _MAX_DEPTH:
        raise InvalidValue(
            f"{where}: {path[:60]}", f"{depth} levels", f"at most {_MAX_DEPTH} levels of nesting"
        )
    if isinstance(value, Mapping):
        items = (
            (_joined(path, key, where), each) for key, each in value.items() if not _is_hidden(key, hidden)
        )
    elif isinstance(value, list):
        items = (
            (path if isinstance(each, Mapping) else _joined(path, str(index), where), each)
            for index, each in enumerate(value)
        )
    else:
        yield path, value
        return
    for name, each in items:
        yield from _leaves(each, name, where, hidden, depth + 1)


def _is_hidden(key: object, hidden: str | None) -> bool:
    return hidden is not None and isinstance(key, str) and key.startswith(hidden)


def _joined(path: str, key: object, where: str) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidValue(where, key, "names as keys, which are not empty")
    if len(path) + len(key) >= _MAX_PATH:
        allowed = f"keys of less than {_MAX_PATH} characters, with those of the objects that they are in"
        raise InvalidValue(where, f"{path or key:.60}...", allowed)
    return f"{path}.{key}" if path else key
