"""Contexts and attributes of arms as the features of Vowpal Wabbit's JSON, and back.

In "c", an object is a namespace of features, and "_multi" has an object for each arm. A number is the value
of its feature, a text becomes part of the feature's name, and true is a feature with the value 1. Vowpal
Wabbit ignores false, 0 and null, and keys that begin with an underscore.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from maillard.decisions.decision import Decision
from maillard.decisions.flat_contexts import flatten
from maillard.decisions.linear_contexts import LinearContexts
from maillard.decisions.log import DecisionLog
from maillard.errors import InvalidValue

_IGNORED = "_"  # how the names of keys begin that are no features
_MAX_NUMBER = 3.4e38  # of single precision, which Vowpal Wabbit computes in
_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ArmAttributes:
    """The attributes of the arms of a shared model whose arms are fixed, at any state of the experiment."""

    def __init__(self, log: DecisionLog) -> None:
        self._numbers = [event.number for event in log.events]
        rules = [each.context for each in log.configurations]
        self._arms = [rule.arms if isinstance(rule, LinearContexts) else {} for rule in rules]

    def at(self, state: int) -> Mapping[str, Mapping[str, Any]]:
        """The attributes of each arm that has some."""
        place = bisect_right(self._numbers, state) - 1
        return self._arms[place] if place >= 0 else {}


def write_features(d: Decision, fixed: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the object "c" of a decision. `fixed` are the attributes of arms that every decision has."""
    context = _read_object(d.context, "context")
    attributes = fixed if d.actions is None else _read_object(d.actions, "actions")
    arms = [{"Arm": {"name": arm}} | _namespace("Features", attributes.get(arm) or {}) for arm in d.eligible]
    return _namespace("Context", context) | {"_multi": arms}


def _read_object(text: str | None, field: str) -> dict[str, Any]:
    try:
        found = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidValue(field, text, "a JSON object")
    return found


def _namespace(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a namespace with these features; nothing without any."""
    features = {
        f".{key}" if key.startswith(_IGNORED) else key: _feature(value)
        for key, value in values.items()
        if value is not None
    }
    return {name: features} if features else {}


def _feature(value: Any) -> Any:
    too_large = isinstance(value, int | float) and abs(value) > _MAX_NUMBER
    return str(value) if too_large or isinstance(value, dict | list) else value


def read_context(content: Mapping[str, Any]) -> str | None:
    """Return the features that all arms share as the text of a context; None if there are none."""
    values = flatten(content, "c", hidden=_IGNORED)
    return _write(values) if values else None


def read_names(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the arms: Arm.name, _tag or id, otherwise their numbers from 1."""
    inner = [arm.get("Arm") for arm in arms]
    of_namespace = [each.get("name") if isinstance(each, dict) else None for each in inner]
    for given in (of_namespace, *([arm.get(key) for arm in arms] for key in ("_tag", "id"))):
        names = [name for name in given if isinstance(name, str) and name]
        if len(set(names)) == len(arms):
            return names
    return [str(number) for number in range(1, len(arms) + 1)]


def read_attributes(names: Sequence[str], arms: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the features of the arms as JSON text; None if they have no others than their names."""
    attributes: dict[str, dict[str, Any]] = {}
    for name, arm in zip(names, arms, strict=True):
        found = flatten(arm, f"_multi: {name}", hidden=_IGNORED)
        attributes[name] = {key: value for key, value in found.items() if (key, value) != ("Arm.name", name)}
    return _write(attributes) if any(attributes.values()) else None
