"""The application finds the same route as Starlette's router, which tries all routes in order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from starlette.routing import Match, Route

from maillard.service.application import all_routes, route_finder
from maillard.service.operations import OPERATIONS, PERSONALIZER_OPERATIONS

VALUES = ["home", "decisions", "reward", "a b", "a/b", "x/decisions", "", "decisions\n", "é"]
ROUTES = all_routes(personalizer=True)


def scope_of(method: str, path: str) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "root_path": ""}


def find_in_order(scope: dict[str, Any]) -> tuple[Route, dict[str, str]] | None:
    for route in ROUTES:
        match, child = route.matches(scope)
        if match is Match.FULL:
            return route, child["path_params"]
    return None


def paths(template: str) -> list[str]:
    """The path with each combination of parameters."""
    parts = template.replace("{", "}").split("}")
    fixed, parameters = parts[::2], len(parts) // 2
    found = [
        "".join(itertools.chain(*itertools.zip_longest(fixed, values, fillvalue="")))
        for values in itertools.product(VALUES, repeat=parameters)
    ]
    return [*found, *(f"{path}/" for path in found), *(f"{path}\n" for path in found)]


TEMPLATES = {operation.path for operation in OPERATIONS + PERSONALIZER_OPERATIONS} | {"/", "/docs", "/none"}


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_it_finds_the_route_that_starlette_finds(template: str) -> None:
    find, found_any = route_finder(ROUTES), False
    for path in paths(template):
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            scope = scope_of(method, path)
            found, wanted = find(scope), find_in_order(scope)
            if found is not None:
                assert wanted is not None
                assert found == (wanted[0].app, wanted[1])
                found_any = True
    slow = "{" in template.rpartition("/")[2] or ":anything}" in template
    assert found_any or slow or template == "/none"


def test_other_requests_are_left_to_starlette() -> None:
    find = route_finder(ROUTES)
    decisions = scope_of("POST", "/v1/experiments/home/decisions")
    assert find(decisions) is not None
    assert find({**decisions, "root_path": "/v1"}) is None
    assert find({"type": "lifespan"}) is None
