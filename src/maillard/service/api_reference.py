"""The OpenAPI document in words, for pages: types, limits, fields, and errors that many operations share.

A text is a list of fragments: plain text, code, or the name of a schema, which a page makes a link.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SCHEMA = "#/components/schemas/"
_COMMON = 10  # an outcome of at least so many operations is described once
_LIMITS = re.compile(r"m(in|ax)[A-Z]\w*|(exclusiveM|m)(in|ax)imum|pattern|format")


@dataclass(frozen=True)
class Code:
    """A part of a text that is code."""

    text: str


@dataclass(frozen=True)
class SchemaName:
    """The name of a schema in a text."""

    name: str


Text = list[str | Code | SchemaName]


def parse(text: str) -> Text:
    """A description as fragments; code is between backticks.

    >>> parse("An `id` of 2")
    ['An ', Code(text='id'), ' of 2']
    """
    parts = re.split(r"`([^`]*)`", " ".join(text.split()))
    return [Code(part) if index % 2 else part for index, part in enumerate(parts) if part]


def type_in_words(schema: Mapping[str, Any]) -> Text:
    """The type of a value.

    >>> type_in_words({"type": "array", "items": {"type": "string"}, "maxItems": 3})
    ['array of ', 'string', ' (', 'maxItems ', Code(text='3'), ')']
    """
    if "$ref" in schema:
        return [SchemaName(schema["$ref"].removeprefix(_SCHEMA))]
    if "anyOf" in schema:
        parts = [type_in_words(each) for each in schema["anyOf"]]
        return _joined([part for index, part in enumerate(parts) if part not in parts[:index]], " or ")
    if "enum" in schema:
        return _joined([[Code(str(value))] for value in schema["enum"]], " or ")
    limits = _joined([[f"{k} ", Code(str(v))] for k, v in schema.items() if _LIMITS.fullmatch(k)], ", ")
    if limits:
        limits = [" (", *limits, ")"]
    kind = schema.get("type", "any value")
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if kind == "array" and "items" in schema:
        return ["array of ", *type_in_words(schema["items"]), *limits]
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        return [f"{kind} with values of type (", *type_in_words(values), ")", *limits]
    return [kind, *limits]


def body_in_words(message: Mapping[str, Any]) -> Text:
    """The type of the body of a request or response."""
    content = message.get("content", {})
    types: list[Text] = [
        type_in_words(each["schema"]) if each else [Code(media)] for media, each in content.items()
    ]
    return _joined(types, ", ") or ["none"]


def example_of(message: Mapping[str, Any]) -> Any:
    """The example of a body; None if it has none."""
    return message.get("content", {}).get("application/json", {}).get("example")


def fields_of(schema: Mapping[str, Any]) -> Iterator[tuple[str, Text]]:
    """The name of each field of an object, with its type and meaning."""
    for name, field in schema["properties"].items():
        found = type_in_words(field)
        if name not in schema.get("required", ()):
            found.append(", optional")
            if field.get("default") is not None:
                found += [", by default ", Code(str(field["default"]))]
        if "description" in field:
            found += [". ", *parse(field["description"])]
        yield name, found


def parameter_in_words(parameter: Mapping[str, Any]) -> Text:
    """The type, place and meaning of a parameter."""
    required = "required" if parameter.get("required") else "optional"
    facts = [*type_in_words(parameter["schema"]), f", in the {parameter['in']}, {required}. "]
    return facts + parse(parameter.get("description", ""))


def outcomes_of(operation: Mapping[str, Any], common: Mapping[tuple[str, str], Any]) -> tuple[Any, list[str]]:
    """The statuses of an operation with their responses, and those that are among the common outcomes."""
    own, others = {}, []
    for status, response in operation["responses"].items():
        if (status, response["description"]) in common:
            others.append(status)
        else:
            own[status] = response
    return own, sorted(others)


def common_outcomes(document: Mapping[str, Any]) -> dict[tuple[str, str], list[Text]]:
    """The outcomes of many operations: a status with its meaning, and the bodies it has."""
    bodies = defaultdict(list)
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                bodies[status, response["description"]].append(body_in_words(response))
    return {
        outcome: [body for index, body in enumerate(found) if body not in found[:index]]
        for outcome, found in sorted(bodies.items())
        if len(found) >= _COMMON
    }


def _joined(texts: list[Text], separator: str) -> Text:
    """Texts with a separator between them."""
    found: Text = []
    for text in texts:
        found += [separator, *text] if found else text
    return found
