"""Decides when a call is repeated, after what delay, and when to give up.

The clock and the random numbers are arguments, so that tests can replace them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import ssl
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple, TypeAlias, TypeVar

import httpx2

from maillard.client.api_calls import ApiCall, ApiResponse, Steps, resume
from maillard.client.decoding import RETRYABLE_STATUSES, describe_error, describe_retryable_entries
from maillard.errors import InvalidValue, Unavailable

Result = TypeVar("Result")

_FIRST_DELAY = 0.25  # seconds, at most, before the second attempt; doubles with each attempt
_MAX_DELAY = 10.0
_REJECTED = (408, 429, 503)
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class SendRequest(NamedTuple):
    """An instruction to the transport: send a call and read the response before `until` (monotonic clock)."""

    call: ApiCall
    connect: float
    "Seconds to connect."
    timeout: float
    "Seconds to wait for each part of the response."
    until: float


class Sleep(NamedTuple):
    """An instruction to the transport: wait."""

    seconds: float


# A generator of instructions. The client sends it each response, or throws the transport's error into it.
Actions: TypeAlias = Generator[SendRequest | Sleep, ApiResponse | None, Result]


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Limits of the time and the number of attempts of a call."""

    timeout: float
    retries: int
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random
    "Uniform on [0, 1)."

    def __post_init__(self) -> None:
        number = isinstance(self.timeout, int | float) and not isinstance(self.timeout, bool)
        if not number or not 1e-3 <= self.timeout <= 86_400:
            raise InvalidValue("timeout", self.timeout, "seconds, from 0.001 to 86400")
        whole = isinstance(self.retries, int) and not isinstance(self.retries, bool)
        if not whole or not 0 <= self.retries <= 100:
            raise InvalidValue("retries", self.retries, "a whole number from 0 to 100")


def send_with_retries(steps: Steps[Result], limits: RetryLimits, url: str) -> Actions[Result]:
    """Run a method: yields one instruction after the other and returns the result of the method."""
    received: ApiResponse | Exception | None = None
    while True:
        try:
            call = resume(steps, received)
        except StopIteration as done:
            result: Result = done.value
            return result
        try:
            received = yield from _send_call(call, limits, url)
        except Exception as error:  # noqa: BLE001  # the method may have to clean up
            received = error


class _FailedAttempt(NamedTuple):
    """Why an attempt failed."""

    cause: str
    rejected: bool
    "Whether the service rejected the request or never received it."
    maybe_done: bool
    "Whether the service may have carried out the request."
    permanent: bool = False
    wait: float = 0.0
    "Seconds that the service asks the client to wait."


def _send_call(call: ApiCall, limits: RetryLimits, url: str) -> Actions[ApiResponse]:
    """The response to a call, after repeated attempts within the limits."""
    began, uncertain = limits.clock(), False
    timeout = max(limits.timeout, call.response_timeout)
    deadline = began + max(call.response_timeout, limits.timeout * (limits.retries + 1))
    until = math.inf if call.output_file else deadline  # a download may last while data keep arriving
    for attempts in itertools.count(1):
        left = max(deadline - limits.clock(), 1e-3)
        result = yield from _attempt(SendRequest(call, min(limits.timeout, left), min(timeout, left), until))
        if isinstance(result, ApiResponse):
            return dataclasses.replace(result, uncertain=True) if uncertain else result
        failure, uncertain = result, uncertain or result.maybe_done
        wait = failure.wait + limits.random() * min(_MAX_DELAY, _FIRST_DELAY * 2 ** (attempts - 1))
        again = (call.repeatable or failure.rejected) and not failure.permanent
        if not again or attempts > limits.retries or limits.clock() + wait > deadline:
            break
        yield Sleep(wait)
    often, spent = f"{attempts} attempts" if attempts > 1 else "1 attempt", limits.clock() - began
    message = f"{call} at {url}: gave up after {often} in {spent:.1f} s; the last error: {failure.cause}"
    if uncertain and not call.repeatable:
        message += "; the service may have carried it out: check before you repeat it"
    raise Unavailable(message)


def _attempt(send: SendRequest) -> Actions[ApiResponse | _FailedAttempt]:
    try:
        response = yield send
    except httpx2.HTTPError as error:
        return _failure_of_error(error)
    assert response is not None, "the client sends a response for every request"
    return _failure_in_response(response) or response


def _failure_of_error(error: httpx2.HTTPError) -> _FailedAttempt:
    cause = f"{type(error).__name__}, {error}" if str(error) else type(error).__name__
    untrusted = isinstance(_root(error), ssl.SSLCertVerificationError)
    permanent = untrusted or isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError)
    unsent = permanent or isinstance(error, _NOT_SENT)
    return _FailedAttempt(cause, rejected=unsent, maybe_done=not unsent, permanent=permanent)


def _root(error: BaseException) -> BaseException:
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def _failure_in_response(response: ApiResponse) -> _FailedAttempt | None:
    status, wait = response.status, _retry_after(response.headers.get("retry-after", ""))
    if status in RETRYABLE_STATUSES:
        asks = f" (it asks for {wait:.0f} s)" if wait else ""
        # A service that cannot write may have committed the request without learning of it.
        maybe_done = status not in (408, 429)
        return _FailedAttempt(
            describe_error(response) + asks, rejected=status in _REJECTED, maybe_done=maybe_done, wait=wait
        )
    if response.call.batch and response.ok and (cause := describe_retryable_entries(response)):
        return _FailedAttempt(cause, rejected=True, maybe_done=True, wait=wait)
    return None


def _retry_after(header: str) -> float:
    """The seconds to wait according to a Retry-After header, which has seconds or a date."""
    if header.isdecimal():
        return float(header[:9])
    try:
        return max((parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError):  # missing or invalid
        return 0.0
