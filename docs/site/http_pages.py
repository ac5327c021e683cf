"""The reference of the HTTP API, from the service's OpenAPI document. `maillard serve` has it at /docs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from maillard.service import api_reference as reference
from maillard.service.openapi import openapi_document


def page() -> str:
    """The text of the page."""
    document = openapi_document(personalizer=True)
    return "\n".join(_page(document)) + "\n"


def _page(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield from ("# HTTP API", "", info["description"])
    yield "A running service has this page at `/docs`, and an OpenAPI document at `/openapi.json`."
    yield from ("Send the key in the header `Authorization: Bearer KEY`. Bodies are JSON.", "")
    common = reference.common_outcomes(document)
    for tag in document["tags"]:
        yield from (f"## {tag['name']}", "")
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(method.upper(), path, operation, common)
    yield from ("(http-errors)=", "## Errors", "", "Errors that many operations return:", "")
    yield from ("| status | meaning | body |", "| --- | --- | --- |")
    for (status, meaning), bodies in common.items():
        yield f"| {status} | {_cell(reference.parse(meaning))} | {' or '.join(map(_cell, bodies))} |"
    yield ""
    yield from ("## Objects", "")
    for name, schema in sorted(document["components"]["schemas"].items()):
        description = _text(reference.parse(schema.get("description", "")))
        yield from (f"({_anchor(name)})=", f"### {name}", "", description, "")
        yield from _fields(schema)


def _operation(method: str, path: str, operation: dict[str, Any], common: Any) -> Iterator[str]:
    yield from (f"### {method} {path.replace('{', chr(92) + '{')}", "")
    yield from (f"{operation['summary']} {operation.get('description', 'No key.')}", "")
    for parameter in operation["parameters"]:
        facts = _text(reference.parameter_in_words(parameter))
        yield from (f"`{parameter['name']}`", f": {facts}".rstrip(), "")
    if body := operation.get("requestBody"):
        yield from (f"**Request body**: {_text(reference.body_in_words(body))}", "")
        yield from _example(body)
    own, others = reference.outcomes_of(operation, common)
    yield from ("| status | meaning | body |", "| --- | --- | --- |")
    for status, response in own.items():
        meaning = _cell(reference.parse(response["description"]))
        yield f"| {status} | {meaning} | {_cell(reference.body_in_words(response))} |"
    yield from ("", f"Also [{', '.join(others)}](#http-errors).", "")
    for status, response in own.items():
        if reference.example_of(response) is not None:
            yield from (f"An example with status {status}:", "")
            yield from _example(response)


def _example(message: dict[str, Any]) -> Iterator[str]:
    example = reference.example_of(message)
    if example is not None:
        yield from ("```json", json.dumps(example, indent=1), "```", "")


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    """A table of the fields of an object."""
    if "properties" not in schema:
        yield from (_text(reference.type_in_words(schema)), "")
        return
    yield from ("| field | value |", "| --- | --- |")
    for name, field in reference.fields_of(schema):
        yield f"| `{name}` | {_cell(field)} |"
    yield ""


def _text(text: reference.Text) -> str:
    """A text in Markdown, with links to schemas."""
    parts = []
    for part in text:
        if isinstance(part, reference.Code):
            parts.append(f"`{part.text}`")
        elif isinstance(part, reference.SchemaName):
            parts.append(f"[{part.name}](#{_anchor(part.name)})")
        else:
            parts.append(part)
    return "".join(parts)


def _cell(text: reference.Text) -> str:
    return _text(text).replace("|", r"\|")


def _anchor(name: str) -> str:
    return f"http-{name.lower()}"
