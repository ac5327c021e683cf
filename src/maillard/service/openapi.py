"""The OpenAPI 3.1 document of the API, made from the table of operations and the types of its messages."""

from __future__ import annotations

import re
from typing import Any

import msgspec

import maillard
from maillard import wire_schema
from maillard.service.operations import OPERATIONS, Operation

__all__ = ["describe"]

_REFERENCE = "#/components/schemas/{name}"
_PARAMETERS = {
    "experiment": {"type": "string", "minLength": 1, "maxLength": 512, "pattern": "^[^/\\x00]+$"},
    "id": {
        "type": "string",
        "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$",
    },
    "arm": {"type": "string", "minLength": 1, "maxLength": 512},
}


def describe() -> dict[str, Any]:
    """The document."""
    types = {operation.body for operation in OPERATIONS} | {
        kind for operation in OPERATIONS for kind, _ in operation.answers.values()
    }
    wanted = sorted((kind for kind in types - {None, dict} if kind), key=lambda kind: str(kind.__name__))
    _, components = msgspec.json.schema_components(
        [*wanted, wire_schema.ErrorResponse], ref_template=_REFERENCE
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        path = operation.path.replace(":anything}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "maillard",
            "version": maillard.__version__,
            "description": "Decisions whose every choice comes with its exact probability, logged before it is answered.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    words = " ".join((operation.handler.__doc__ or "").split())
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": words,
        "parameters": [*_path_parameters(operation.path), *_others(operation)],
        "responses": {
            **{str(status): _success(operation, status) for status in sorted(operation.answers)},
            **{
                str(status): _json(words, wire_schema.ErrorResponse)
                for status, words in operation.failures.items()
            },
        },
    }
    if operation.scope is not None:
        described["security"] = [{"key": []}, {}]
        described["description"] = (
            "Any key." if operation.scope == "any" else f"Needs the scope `{operation.scope}`."
        )
    if operation.body is not None:
        schema = {"$ref": _REFERENCE.format(name=operation.body.__name__)}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
        for name in re.findall(r"{(\w+)", path)
    ]


def _others(operation: Operation) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1, "maxLength": 512}
    headers = [
        {"name": name, "in": "header", "required": needed, "description": words, "schema": text}
        for name, needed, words in operation.headers
    ]
    query = [
        {"name": name, "in": "query", "description": words, "schema": {"type": "boolean"}}
        for name, words in operation.query
    ]
    return headers + query


def _success(operation: Operation, status: int) -> dict[str, Any]:
    kind, words = operation.answers[status]
    if kind is not None:
        return _json(words, kind)
    return {"description": words, "content": {operation.media_type: {}}}


def _json(words: str, kind: type) -> dict[str, Any]:
    schema = {"type": "object"} if kind is dict else {"$ref": _REFERENCE.format(name=kind.__name__)}
    return {"description": words, "content": {"application/json": {"schema": schema}}}
