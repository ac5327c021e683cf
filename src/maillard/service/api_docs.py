"""The page /docs: all operations of the HTTP API, from the OpenAPI document. It contains no data."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, tostring

from maillard.service import api_reference as reference

ADDRESS = "http://localhost:8000"
"The address of the service in examples. The script of the page replaces it."

# The calls of a first experiment, in this order.
_FIRST_STEPS = {
    "create_experiment": ("Create an experiment", " with its arms. The dashboard can do this, too."),
    "decide": ("Choose an arm", " for each visitor and show it; keep the id of the decision."),
    "reward": ("Report the reward", " of the decision when it is known, such as 1 for a click."),
}

_Child = Element | str
_Document = Mapping[str, Any]


def docs_page(document: _Document) -> bytes:
    """The page, as HTML."""
    head = _node(
        "head",
        _node("meta", charset="utf-8"),
        _node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _node("meta", name="color-scheme", content="light dark"),
        _node("meta", name="referrer", content="no-referrer"),
        _node("title", "HTTP API · maillard"),
        _node("link", rel="icon", href="icon.svg"),
        _node("link", rel="stylesheet", href="dashboard.css"),
        _node("link", rel="stylesheet", href="api_docs.css"),
        _node("script", type="module", src="api_docs.js"),
    )
    header = _node("header", _node("a", "maillard", class_="brand", href="./"), class_="top")
    skip = _node("a", "Skip to the content", class_="skip", href="#main")
    body = _node("body", skip, header, _node("main", *_content(document), id="main", tabindex="-1"))
    page = tostring(_node("html", head, body, lang="en"), encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{page}\n".encode()


def _content(document: _Document) -> Iterator[Element]:
    info = document["info"]
    yield _node("h1", "HTTP API")
    key = "Send it in the header "
    yield _node("p", info["description"], " ", key, _node("code", "Authorization: Bearer KEY"), ".")
    download = _node("a", "OpenAPI document", href="openapi.json")
    yield _node("p", f"Version {info['version']}. Other programs can read the ", download, ".", class_="note")
    yield _node("h2", "First steps")
    steps = (
        _node("li", _node("a", title, href=f"#operation-{name}"), text)
        for name, (title, text) in _FIRST_STEPS.items()
    )
    yield _node("ol", *steps, class_="first-steps")
    field = _node("input", id="filter", type="search", placeholder="decisions, reward, admin, …")
    yield _node(
        "p", _node("label", "Filter the operations", for_="filter"), field,
        _node("span", id="filtered", class_="note", role="status"), class_="field", id="filter-field",
        hidden="",
    )  # fmt: skip
    common = reference.common_outcomes(document)
    for tag in document["tags"]:
        operations = [
            _operation(method.upper(), path, operation, common)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if tag["name"] in operation["tags"]
        ]
        yield _node("section", _node("h2", tag["name"]), *operations, class_="group")
    rows = [
        (status, _fragments(reference.parse(meaning)), _separated(map(_fragments, bodies), " or "))
        for (status, meaning), bodies in common.items()
    ]
    yield _node(
        "section", _node("h2", "Errors"), _node("p", "Errors that many operations return:"),
        _table(("Status", "Meaning", "Body"), rows), id="errors",
    )  # fmt: skip
    schemas = sorted(document["components"]["schemas"].items())
    objects = [_object(name, schema) for name, schema in schemas]
    yield _node("section", _node("h2", "Objects"), *objects, id="objects")


def _operation(method: str, path: str, operation: _Document, common: Any) -> Element:
    name = operation["operationId"]
    title = _node("h3", _node("span", method, class_="method"), " ", _node("code", path))
    scope = operation.get("description", "No key.")
    parts: list[_Child] = [_node("p", *_fragments(reference.parse(scope)), class_="scope")]
    if operation["parameters"]:
        parameters: list[Any] = [
            ([_node("code", each["name"])], _fragments(reference.parameter_in_words(each)))
            for each in operation["parameters"]
        ]
        parts += [_node("h4", "Parameters"), _table(("Name", "Value"), parameters)]
    request = operation.get("requestBody")
    if request is not None:
        parts += [_node("h4", "Request body"), _node("p", *_fragments(reference.body_in_words(request)))]
    parts += [_node("h4", "Example"), _code(curl_command(method, path, operation))]
    own, others = reference.outcomes_of(operation, common)
    rows = [
        (status, _fragments(reference.parse(each["description"])), _fragments(reference.body_in_words(each)))
        for status, each in own.items()
    ]
    errors = _node("p", "Also ", _node("a", ", ".join(others), href="#errors"), ".", class_="note")
    parts += [_node("h4", "Responses"), _table(("Status", "Meaning", "Body"), rows), errors]
    for status, response in own.items():
        example = reference.example_of(response)
        if example is not None:
            parts += [_node("p", f"An example with status {status}:"), _code(json.dumps(example, indent=2))]
    summary = _node("summary", title, _node("span", *_fragments(reference.parse(operation["summary"]))))
    needs = scope.replace("`", "")
    attributes = {"data-method": method, "data-path": path, "data-text": f"{name} {needs}"}
    media = operation["responses"].get("200", {}).get("content", {})
    if method == "GET" and not media.keys().isdisjoint(("application/json", "text/plain")):
        parameters = [
            {key: each.get(key) for key in ("name", "in", "example")} for each in operation["parameters"]
        ]
        attributes["data-try"] = json.dumps(parameters)
    content = _node("div", *parts, class_="content")
    return _node("details", summary, content, class_="operation", id=f"operation-{name}", **attributes)


def curl_command(method: str, path: str, operation: _Document) -> str:
    """A curl command for an operation, with the examples of its parameters and body."""
    headers = ['-H "Authorization: Bearer $MAILLARD_KEY"'] if "security" in operation else []
    for each in operation["parameters"]:
        if each["in"] == "path":
            path = path.replace("{" + each["name"] + "}", quote(each["example"], safe=""))
        elif each.get("required"):
            headers.append(f"-H {shlex.quote(each['name'] + ': ' + each['example'])}")
    request = operation.get("requestBody")
    if request is not None:
        body = json.dumps(reference.example_of(request))
        headers += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(body)}"]
    download = "application/vnd.apache.parquet" in operation["responses"].get("200", {}).get("content", {})
    options = " -o log.parquet" if download else ""
    return " \\\n  ".join([f"curl -X {method}{options} {shlex.quote(ADDRESS + path)}", *headers])


def _object(name: str, schema: _Document) -> Element:
    parts: list[_Child] = [_node("p", *_fragments(reference.parse(schema.get("description", ""))))]
    if "properties" in schema:
        rows = [([_node("code", field)], _fragments(text)) for field, text in reference.fields_of(schema)]
        parts.append(_table(("Field", "Value"), rows))
    else:
        parts.append(_node("p", *_fragments(reference.type_in_words(schema))))
    summary = _node("summary", _node("h3", _node("code", name)))
    return _node("details", summary, _node("div", *parts, class_="content"), id=f"object-{name}")


def _table(heads: tuple[str, ...], rows: list[Any]) -> Element:
    """A table; the first cell of each row is its heading."""
    head = _node("thead", _node("tr", *(_node("th", each, scope="col") for each in heads)))
    body = _node("tbody")
    for first, *others in rows:
        body.append(_node("tr", _node("th", *first, scope="row"), *(_node("td", *cell) for cell in others)))
    return _node("table", head, body, class_="facts")


def _code(text: str) -> Element:
    return _node("pre", _node("code", text), tabindex="0")


def _fragments(text: reference.Text) -> list[_Child]:
    """A text as HTML, with links to objects."""
    return [_fragment(part) for part in text]


def _fragment(part: str | reference.Code | reference.SchemaName) -> _Child:
    if isinstance(part, reference.Code):
        return _node("code", part.text)
    if isinstance(part, reference.SchemaName):
        return _node("a", part.name, href=f"#object-{part.name}")
    return part


def _separated(texts: Iterator[list[_Child]], separator: str) -> list[_Child]:
    found: list[_Child] = []
    for text in texts:
        found += [separator, *text] if found else text
    return found


def _node(tag: str, *children: _Child, **attributes: str) -> Element:
    """An element. Strings become text, which is escaped."""
    made = Element(tag, {name.removesuffix("_"): value for name, value in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + child
        else:
            made.text = (made.text or "") + child
    return made
