"""Generates the OpenAPI 3.1 document from the table of operations and the wire schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

import maillard
from maillard import wire_schema as wire
from maillard.service.operations import OPERATIONS, PERSONALIZER_OPERATIONS, Operation

_REFERENCE = "#/components/schemas/{name}"
_TEXT = {"type": "string", "minLength": 1, "maxLength": 512}
_PATH_PARAMETERS = {
    "experiment": {**_TEXT, "pattern": "^[^/\\x00]+$"},
    "id": {"type": "string", "pattern": wire.DECISION_ID},
    "arm": _TEXT,
    "eventId": {**_TEXT, "maxLength": 256},
}


def openapi_document(*, personalizer: bool = False) -> dict[str, Any]:
    """The OpenAPI document of all operations, with or without those of Personalizer's API."""
    operations = (*OPERATIONS, *PERSONALIZER_OPERATIONS) if personalizer else OPERATIONS
    types = {operation.body for operation in operations}
    types |= {body for operation in operations for body, _ in operation.responses.values()}
    structs = [each for each in types if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    structs.sort(key=lambda struct: struct.__name__)
    structs.append(wire.ErrorResponse)
    schemes: dict[str, Any] = {"key": {"type": "http", "scheme": "bearer"}}
    if personalizer:
        structs.append(wire.PersonalizerErrorResponse)
        schemes["subscription"] = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
    _, components = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = operation.path.replace(":anything}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "maillard",
            "version": maillard.__version__,
            "description": "Bandit decisions with exact probabilities, durable before they are returned. "
            "Callers need an API key, unless the service was started with --no-keys for development.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": schemes,
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    error = wire.PersonalizerErrorResponse if operation.of_personalizer else wire.ErrorResponse
    failures = {status: (error, text) for status, text in operation.failures.items()}
    responses = dict(sorted(operation.responses.items())) | failures
    document: dict[str, Any] = {
        "operationId": operation.name,
        "summary": " ".join((operation.handler.__doc__ or "").split()),
        "parameters": list(_parameters(operation)),
        "responses": {
            str(status): {"description": description, **_content(body_type)}
            for status, (body_type, description) in responses.items()
        },
    }
    if operation.scope is not None:
        document["security"] = [{"key": []}]
        if operation.of_personalizer:
            document["security"].append({"subscription": []})
        needs = "Any key." if operation.scope == "any" else f"Needs the scope `{operation.scope}`."
        document["description"] = needs
    if operation.body is not None:
        document["requestBody"] = {"required": True, **_content(operation.body)}
    return document


def _parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)", operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS[name]}
    for name, required, description in operation.headers:
        header = {"name": name, "in": "header", "required": required, "description": description}
        yield {**header, "schema": _TEXT}
    for name, description in operation.query:
        schema = _TEXT if name == "by" else {"type": "boolean"}
        yield {"name": name, "in": "query", "description": description, "schema": schema}


def _content(body_type: type | str | None) -> dict[str, Any]:
    """A body of this type as JSON, or of this media type; nothing for an empty body."""
    if body_type is None:
        return {}
    if isinstance(body_type, str):
        return {"content": {body_type: {}}}
    schema = {"type": "object"} if body_type is dict else {"$ref": _REFERENCE.format(name=body_type.__name__)}
    return {"content": {"application/json": {"schema": schema}}}
