"""Generates the OpenAPI 3.1 document from the table of operations and the wire schema."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

import maillard
from maillard import wire_schema as wire
from maillard.service import api_examples as examples
from maillard.service.operations import OPERATIONS, PERSONALIZER_OPERATIONS, Operation

_TAGS = {  # of the operations whose handlers are in these modules
    "decision_handlers": "Decisions",
    "reward_handlers": "Rewards",
    "experiment_handlers": "Experiments",
    "read_handlers": "State and evaluation",
    "context_handlers": "State and evaluation",
    "service_handlers": "Service",
    "personalizer_handlers": "Azure Personalizer",
}
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
    structs: list[Any] = [each for each in types if _is_struct(each)]
    structs.sort(key=lambda struct: struct.__name__)
    structs.append(wire.ErrorResponse)
    tags = list(dict.fromkeys(_tag(each) for each in operations))
    schemes: dict[str, Any] = {"key": {"type": "http", "scheme": "bearer"}}
    if personalizer:
        structs.append(wire.PersonalizerErrorResponse)
        schemes["subscription"] = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
    _, components = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    _describe_fields(components)
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
        "tags": [{"name": name} for name in dict.fromkeys(_TAGS.values()) if name in tags],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": schemes,
        },
    }


def _describe_fields(components: dict[str, Any]) -> None:
    """Add the docstrings of the fields of all structs, which msgspec does not read, to their schemas."""
    docstrings = _docstrings()
    for name, component in components.items():
        for base in getattr(wire, name).__mro__:
            for field, text in docstrings.get(base.__name__, {}).items():
                component["properties"].get(field, {}).setdefault("description", text)


@functools.cache
def _docstrings() -> dict[str, dict[str, str]]:
    """The texts after the fields of each class of the wire schema."""
    modules = {sys.modules[each.__module__] for each in vars(wire).values() if _is_struct(each)}
    classes = [node for module in modules for node in ast.parse(inspect.getsource(module)).body]
    return {each.name: dict(_field_docstrings(each)) for each in classes if isinstance(each, ast.ClassDef)}


def _field_docstrings(struct: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in itertools.pairwise(struct.body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, text


def _is_struct(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, msgspec.Struct)


def _tag(operation: Operation) -> str:
    return _TAGS[operation.handler.__module__.rpartition(".")[2]]


def _operation(operation: Operation) -> dict[str, Any]:
    error = wire.PersonalizerErrorResponse if operation.of_personalizer else wire.ErrorResponse
    failures = {status: (error, text) for status, text in operation.failures.items()}
    responses = dict(sorted(operation.responses.items())) | failures
    name = operation.name
    document: dict[str, Any] = {
        "operationId": name,
        "tags": [_tag(operation)],
        "summary": " ".join((operation.handler.__doc__ or "").split()),
        "parameters": list(_parameters(operation)),
        "responses": {
            str(status): {"description": description, **_content(body_type)}
            for status, (body_type, description) in responses.items()
        },
    }
    if name in examples.RESPONSES:
        success = str(next(iter(operation.responses)))
        document["responses"][success]["content"]["application/json"]["example"] = examples.RESPONSES[name]
    if operation.scope is not None:
        document["security"] = [{"key": []}]
        if operation.of_personalizer:
            document["security"].append({"subscription": []})
        needs = "Any key." if operation.scope == "any" else f"Needs the scope `{operation.scope}`."
        document["description"] = needs
    if operation.body is not None:
        content = _content(operation.body)
        content["content"]["application/json"]["example"] = examples.REQUESTS[name]
        document["requestBody"] = {"required": True, **content}
    return document


def _parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)", operation.path):
        parameter = {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS[name]}
        yield {**parameter, "example": examples.PARAMETERS[name]}
    for name, required, description in operation.headers:
        header = {"name": name, "in": "header", "required": required, "description": description}
        if required:
            header["example"] = examples.PARAMETERS[name]
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
