"""How long a client waits between tries, and when it gives up: without a clock, and without a service."""

from __future__ import annotations

import ssl
from typing import Any

import httpx2

from maillard.client.api_calls import ApiCall, ApiResponse, Steps
from maillard.client.retries import RetryLimits, SendRequest, Sleep, send_with_retries
from maillard.errors import MaillardError, Unavailable


def conversation(limits: dict[str, Any], *replies: Any, **call: Any) -> tuple[list[float], Any]:
    """How long a call waits between tries that bring these replies, and what comes of it."""
    spent = [0.0]

    def steps() -> Steps[ApiResponse]:
        return (yield ApiCall("GET", "/v1/me", **call))

    options = {"timeout": 5.0, "retries": 4, "random": lambda: 1.0, **limits}
    actions = send_with_retries(steps(), RetryLimits(clock=lambda: sum(spent), **options), "http://host")
    waits: list[float] = []
    rest = iter(replies)
    action = next(actions)
    try:
        while True:
            if isinstance(action, Sleep):
                waits.append(action.seconds)
                spent.append(action.seconds)
                action = actions.send(None)
                continue
            assert isinstance(action, SendRequest)
            reply = next(rest)
            if isinstance(reply, httpx2.HTTPError):
                spent.append(action.timeout if isinstance(reply, httpx2.TimeoutException) else 0.0)
                action = actions.throw(reply)
            else:
                status, headers = reply
                action = actions.send(ApiResponse(action.call, status, headers, b""))
    except StopIteration as done:
        return waits, done.value
    except MaillardError as error:
        return waits, error


def test_waits_double_and_are_drawn_from_their_whole_range() -> None:
    refused = [httpx2.ConnectError("refused")] * 9
    assert conversation({}, *refused)[0] == [0.25, 0.5, 1.0, 2.0]
    assert conversation({"retries": 8, "timeout": 60.0}, *refused)[0] == [0.25, 0.5, 1, 2, 4, 8, 10, 10]
    assert conversation({"random": lambda: 0.5}, *refused)[0] == [0.125, 0.25, 0.5, 1.0]
    assert conversation({"random": lambda: 0.0}, *refused)[0] == [0.0] * 4
    assert conversation({"retries": 0}, *refused)[0] == []


def test_what_the_service_asks_for_comes_on_top() -> None:
    waits, found = conversation({}, (503, {"retry-after": "2"}), (200, {}))
    assert waits == [2.25]
    assert found.status == 200
    assert found.uncertain
    assert conversation({}, (429, {"retry-after": "2"}), (200, {}))[1].uncertain is False
    for nonsense in ("", "soon", "-5", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 99 Nov", "9" * 5000):
        waits, _ = conversation({}, (503, {"retry-after": nonsense}), (200, {}))
        assert waits == ([] if nonsense.startswith("9") else [0.25])


def test_all_tries_together_have_an_end() -> None:
    waits, error = conversation({"retries": 4}, *[httpx2.ReadTimeout("slow")] * 9)
    assert isinstance(error, Unavailable)
    assert sum(waits) + 5.0 * (len(waits) + 1) <= 25.0 + 5.0
    waits, error = conversation({}, *[httpx2.ReadTimeout("slow")] * 9, response_timeout=300.0)
    assert waits == []  # who waited five minutes has waited enough
    assert "1 attempt in 300.0 s" in str(error)


def test_a_certificate_that_is_not_trusted_is_not_asked_again() -> None:
    untrusted = httpx2.ConnectError("certificate verify failed")
    untrusted.__cause__ = ssl.SSLCertVerificationError("self-signed")
    waits, error = conversation({}, untrusted)
    assert waits == []
    assert "certificate verify failed" in str(error)
