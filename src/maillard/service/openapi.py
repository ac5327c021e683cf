"""Generates the OpenAPI 3.1 document from the table of operations and the wire schema."""

from __future__ import annotations

import re
from typing import Any

import msgspec

import maillard
from maillard import wire_schema
from maillard.service.operations import OPERATIONS, Operation

_REFERENCE = "#/components/schemas/{name}"
_PARAMETERS = {
    "experiment": {"type": "string", "minLength": 1, "maxLength": 512, "pattern": "^[^/\\x00]+$"},
    "id": {
        "type": "string",
        "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$",
    },
    "arm": {"type": "string", "minLength": 1, "maxLength": 512},
}


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of all operations."""
    types = {operation.body for operation in OPERATIONS} | {
        body_type for operation in OPERATIONS for body_type, _ in operation.responses.values()
    }
    structs = sorted((each for each in types - {None, dict} if each), key=lambda each: str(each.__name__))
    _, components = msgspec.json.schema_components(
        [*structs, wire_schema.ErrorResponse], ref_template=_REFERENCE
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
            "description": "Bandit decisions with exact probabilities, durable before they are returned.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    summary = " ".join((operation.handler.__doc__ or "").split())
    document: dict[str, Any] = {
        "operationId": operation.name,
        "summary": summary,
        "parameters": [*_path_parameters(operation.path), *_other_parameters(operation)],
        "responses": {
            **{str(status): _success(operation, status) for status in sorted(operation.responses)},
            **{
                str(status): _json(description, wire_schema.ErrorResponse)
                for status, description in operation.failures.items()
            },
        },
    }
    if operation.scope is not None:
        document["security"] = [{"key": []}, {}]
        document["description"] = (
            "Any key." if operation.scope == "any" else f"Needs the scope `{operation.scope}`."
        )
    if operation.body is not None:
        schema = {"$ref": _REFERENCE.format(name=operation.body.__name__)}
        document["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return document


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
        for name in re.findall(r"{(\w+)", path)
    ]


def _other_parameters(operation: Operation) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1, "maxLength": 512}
    headers = [
        {"name": name, "in": "header", "required": required, "description": description, "schema": text}
        for name, required, description in operation.headers
    ]
    query = [
        {"name": name, "in": "query", "description": description, "schema": {"type": "boolean"}}
        for name, description in operation.query
    ]
    return headers + query


def _success(operation: Operation, status: int) -> dict[str, Any]:
    body_type, description = operation.responses[status]
    if body_type is not None:
        return _json(description, body_type)
    return {"description": description, "content": {operation.media_type: {}}}


def _json(description: str, body_type: type) -> dict[str, Any]:
    schema = {"type": "object"} if body_type is dict else {"$ref": _REFERENCE.format(name=body_type.__name__)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}
