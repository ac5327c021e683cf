"""The reference of the HTTP API, from the service's OpenAPI document."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from maillard.service.openapi import openapi_document

_SCHEMA = "#/components/schemas/"
_COMMON = 10  # an outcome of at least so many operations is described once
_LIMITS = re.compile(r"m(in|ax)[A-Z]\w*|(exclusiveM|m)(in|ax)imum|pattern|format")

_Outcomes = dict[tuple[str, str], set[str]]  # the bodies of each status with a meaning


def page() -> str:
    """The text of the page."""
    document = openapi_document(personalizer=True)
    return "\n".join(_page(document)) + "\n"


def _page(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield from ("# HTTP API", "", info["description"])
    yield "A running service has the same description as an OpenAPI document at `/openapi.json`."
    yield from ("Send the key in the header `Authorization: Bearer KEY`. Bodies are JSON.", "")
    yield from ("## Operations", "")
    common = _common_outcomes(document)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield from _operation(method.upper(), path, operation, common)
    yield from ("(http-errors)=", "## Errors", "", "Errors that many operations return:", "")
    yield from ("| status | meaning | body |", "| --- | --- | --- |")
    for (status, meaning), bodies in sorted(common.items()):
        yield f"| {status} | {_text(meaning)} | {' or '.join(sorted(bodies))} |"
    yield ""
    yield from ("## Objects", "")
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from (f"({_anchor(name)})=", f"### {name}", "", _text(schema.get("description", "")), "")
        yield from _fields(schema)


def _common_outcomes(document: dict[str, Any]) -> _Outcomes:
    """The outcomes of many operations."""
    bodies = defaultdict(list)
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                bodies[status, response["description"]].append(_content(response))
    return {outcome: set(found) for outcome, found in bodies.items() if len(found) >= _COMMON}


def _operation(method: str, path: str, operation: dict[str, Any], common: _Outcomes) -> Iterator[str]:
    yield from (f"### {method} {path.replace('{', chr(92) + '{')}", "")
    yield from (f"{operation['summary']} {operation.get('description', 'No key.')}", "")
    for parameter in operation["parameters"]:
        required = "required" if parameter.get("required") else "optional"
        facts = f"{_type(parameter['schema'])}, in the {parameter['in']}, {required}"
        description = parameter.get("description", "")
        yield from (f"`{parameter['name']}`", f": {facts}. {_text(description)}".rstrip(), "")
    if body := operation.get("requestBody"):
        yield from (f"**Request body**: {_content(body)}", "")
    yield from ("| status | meaning | body |", "| --- | --- | --- |")
    others = []
    for status, response in operation["responses"].items():
        if (status, response["description"]) in common:
            others.append(status)
            continue
        meaning = _text(response["description"]).replace("|", r"\|")
        yield f"| {status} | {meaning} | {_content(response)} |"
    yield from ("", f"Also [{', '.join(sorted(others))}](#http-errors).", "")


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    """A table of the fields of an object."""
    if "properties" not in schema:
        yield from (_type(schema), "")
        return
    yield from ("| field | value |", "| --- | --- |")
    for name, field in schema["properties"].items():
        optional = "" if name in schema.get("required", ()) else ", optional"
        if optional and field.get("default") is not None:
            optional += f", by default `{field['default']}`"
        description = f". {_text(field['description'])}" if "description" in field else ""
        value = f"{_type(field)}{optional}{description}".replace("|", r"\|")
        yield f"| `{name}` | {value} |"
    yield ""


def _content(message: dict[str, Any]) -> str:
    """The body of a request or response."""
    parts = []
    for media_type, content in message.get("content", {}).items():
        parts.append(_type(content["schema"]) if content else f"`{media_type}`")
    return ", ".join(parts) or "none"


def _type(schema: dict[str, Any]) -> str:
    """A type in words, with a link to its object."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_SCHEMA)
        return f"[{name}](#{_anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    limits = ", ".join(f"{key} `{value}`" for key, value in schema.items() if _LIMITS.fullmatch(key))
    limits = f" ({limits})" if limits else ""
    kind = schema.get("type", "any value")
    if kind == "array" and "items" in schema:
        return f"array of {_type(schema['items'])}{limits}"
    if isinstance(values := schema.get("additionalProperties"), dict):
        return f"{kind} with values of type ({_type(values)}){limits}"
    return f"{kind}{limits}"


def _anchor(name: str) -> str:
    return f"http-{name.lower()}"


def _text(text: str) -> str:
    return " ".join(text.split())
