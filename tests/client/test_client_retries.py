"""The delays between attempts, and when the client gives up, tested without a clock or a service."""

from __future__ import annotations

import ssl
from typing import Any

import httpx2

from maillard.client.api_calls import ApiCall, ApiResponse, Steps
from maillard.client.retries import RetryLimits, SendRequest, Sleep, send_with_retries
from maillard.errors import MaillardError, Unavailable


def simulate_call(limits: dict[str, Any], *replies: Any, **call: Any) -> tuple[list[float], Any]:
    """Return the delays between attempts that get these replies, and the final response or error."""
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


def test_delays_double_with_full_jitter() -> None:
    refused = [httpx2.ConnectError("refused")] * 9
    assert simulate_call({}, *refused)[0] == [0.25, 0.5, 1.0, 2.0]
    assert simulate_call({"retries": 8, "timeout": 60.0}, *refused)[0] == [0.25, 0.5, 1, 2, 4, 8, 10, 10]
    assert simulate_call({"random": lambda: 0.5}, *refused)[0] == [0.125, 0.25, 0.5, 1.0]
    assert simulate_call({"random": lambda: 0.0}, *refused)[0] == [0.0] * 4
    assert simulate_call({"retries": 0}, *refused)[0] == []


def test_retry_after_is_added_to_the_delay() -> None:
    waits, found = simulate_call({}, (503, {"retry-after": "2"}), (200, {}))
    assert waits == [2.25]
    assert found.status == 200
    assert found.uncertain
    assert simulate_call({}, (429, {"retry-after": "2"}), (200, {}))[1].uncertain is False
    for header in ("", "soon", "-5", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 99 Nov", "9" * 5000):
        waits, _ = simulate_call({}, (503, {"retry-after": header}), (200, {}))
        assert waits == ([] if header.startswith("9") else [0.25])


def test_the_total_time_of_all_attempts_is_bounded() -> None:
    waits, error = simulate_call({"retries": 4}, *[httpx2.ReadTimeout("slow")] * 9)
    assert isinstance(error, Unavailable)
    assert sum(waits) + 5.0 * (len(waits) + 1) <= 25.0 + 5.0
    waits, error = simulate_call({}, *[httpx2.ReadTimeout("slow")] * 9, response_timeout=300.0)
    assert waits == []  # one attempt used up the total time
    assert "1 attempt in 300.0 s" in str(error)


def test_an_untrusted_certificate_is_not_retried() -> None:
    untrusted = httpx2.ConnectError("certificate verify failed")
    untrusted.__cause__ = ssl.SSLCertVerificationError("self-signed")
    waits, error = simulate_call({}, untrusted)
    assert waits == []
    assert "certificate verify failed" in str(error)
