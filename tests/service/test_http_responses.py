"""The translation of exceptions to HTTP error responses."""

from __future__ import annotations

import pytest

from maillard.errors import CannotAnswer, InvalidLog, InvalidValue
from maillard.service.http_responses import http_error


@pytest.mark.parametrize("field", ["log", "log version", "log_probability", "logo: arms", "events, row 3"])
def test_only_the_type_of_an_error_tells_a_damaged_log_from_an_invalid_request(field: str) -> None:
    """The field of an error may begin with "log" and still be a field of the request."""
    invalid = http_error(InvalidValue(field, "/data/shop.db", "something else"))
    assert (invalid.status, invalid.code) == (422, "invalid_value")
    damaged = http_error(InvalidLog(field, "/data/shop.db", "something else"))
    assert (damaged.status, damaged.code, damaged.path) == (500, "invalid_log", None)
    assert "/data/shop.db" not in damaged.message


def test_an_unexpected_error_reveals_nothing() -> None:
    for error in (RuntimeError("/data/shop.db"), CannotAnswer("/data/shop.db")):
        failure = http_error(error)
        assert (failure.status, failure.code) == (500, "internal")
        assert "/data/shop.db" not in failure.message
