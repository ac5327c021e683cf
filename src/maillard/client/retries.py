"""When a call is made again, after how long, and when it is given up. The clock and the dice come from outside."""

from __future__ import annotations

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

from maillard.client.answers import BUSY, unsettled, words_of
from maillard.client.calls import Answer, Call, Steps
from maillard.errors import InvalidValue, Unavailable

__all__ = ["Actions", "Limits", "Send", "Wait", "converse"]

Result = TypeVar("Result")

_FIRST_WAIT = 0.25  # seconds, at most, before the second try; twice as many before each one after it
_LONGEST_WAIT = 10.0
_REFUSED = (408, 429, 503)
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class Send(NamedTuple):
    """Send a call and read its answer, before a moment of the monotonic clock."""

    call: Call
    connect: float
    "Seconds to connect."
    timeout: float
    "Seconds to wait for each part of the answer."
    until: float


class Wait(NamedTuple):
    """Do nothing for some seconds."""

    seconds: float


# What a transport does: it yields what to do, and is sent the answer or thrown the error that came of it.
Actions: TypeAlias = Generator[Send | Wait, Answer | None, Result]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long, and how often, a call is tried."""

    timeout: float
    retries: int
    clock: Callable[[], float] = time.monotonic
    dice: Callable[[], float] = random.random
    "Uniform on [0, 1)."

    def __post_init__(self) -> None:
        number = isinstance(self.timeout, int | float) and not isinstance(self.timeout, bool)
        if not number or not 1e-3 <= self.timeout <= 86_400:
            raise InvalidValue("timeout", self.timeout, "seconds, from 0.001 to 86400")
        whole = isinstance(self.retries, int) and not isinstance(self.retries, bool)
        if not whole or not 0 <= self.retries <= 100:
            raise InvalidValue("retries", self.retries, "a whole number from 0 to 100")


def converse(steps: Steps[Result], limits: Limits, url: str) -> Actions[Result]:
    """Everything that a verb needs done, one action after the other; its result."""
    step: Callable[..., Call] = steps.send
    given: Answer | Exception | None = None
    while True:
        try:
            call = step(given)
        except StopIteration as done:
            result: Result = done.value
            return result
        try:
            given, step = (yield from _carry_out(call, limits, url)), steps.send
        except Exception as error:  # noqa: BLE001  # the verb may have something to put away
            given, step = error, steps.throw


class _Trouble(NamedTuple):
    """Why a try brought nothing."""

    cause: str
    refused: bool
    "Whether the service said that it would not do it now, or was not reached at all."
    done: bool
    "Whether it may have done it all the same."
    hopeless: bool = False
    wait: float = 0.0
    "Seconds that the service asks for."


def _carry_out(call: Call, limits: Limits, url: str) -> Actions[Answer]:
    """The answer to a call, after as many tries as it takes and the limits allow."""
    began, uncertain = limits.clock(), False
    timeout = max(limits.timeout, call.patience)
    deadline = began + max(call.patience, limits.timeout * (limits.retries + 1))
    until = (
        math.inf if call.sink else deadline
    )  # a file may be of any size: it may take as long as it keeps coming
    for tries in itertools.count(1):
        left = max(deadline - limits.clock(), 1e-3)
        result = yield from _try(Send(call, min(limits.timeout, left), min(timeout, left), until))
        if isinstance(result, Answer):
            return result.after(uncertain=uncertain)
        trouble, uncertain = result, uncertain or result.done
        wait = trouble.wait + limits.dice() * min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (tries - 1))
        again = (call.repeatable or trouble.refused) and not trouble.hopeless
        if not again or tries > limits.retries or limits.clock() + wait > deadline:
            break
        yield Wait(wait)
    often, spent = f"{tries} tries" if tries > 1 else "1 try", limits.clock() - began
    words = f"{call} at {url}: given up after {often} in {spent:.1f} s, the last of them: {trouble.cause}"
    if uncertain and not call.repeatable:
        words += "; it may have been carried out: look before you repeat it"
    raise Unavailable(words)


def _try(send: Send) -> Actions[Answer | _Trouble]:
    try:
        answer = yield send
    except httpx2.HTTPError as error:
        return _trouble_of(error)
    assert answer is not None, "it is the answer to what was sent"
    return _trouble_in(answer) or answer


def _trouble_of(error: httpx2.HTTPError) -> _Trouble:
    cause = f"{type(error).__name__}, {error}" if str(error) else type(error).__name__
    untrusted = isinstance(_root(error), ssl.SSLCertVerificationError)
    hopeless = untrusted or isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError)
    unsent = hopeless or isinstance(error, _NOT_SENT)
    return _Trouble(cause, refused=unsent, done=not unsent, hopeless=hopeless)


def _root(error: BaseException) -> BaseException:
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def _trouble_in(answer: Answer) -> _Trouble | None:
    status, wait = answer.status, _asked_for(answer.headers.get("retry-after", ""))
    if status in BUSY:
        asks = f" (it asks for {wait:.0f} s)" if wait else ""
        # A service that cannot write now may have written: a commit whose answer it lost.
        done = status not in (408, 429)
        return _Trouble(words_of(answer) + asks, refused=status in _REFUSED, done=done, wait=wait)
    if answer.call.batch and answer.good and (cause := unsettled(answer)):
        return _Trouble(cause, refused=True, done=True, wait=wait)
    return None


def _asked_for(header: str) -> float:
    """Seconds to wait, from a Retry-After header: seconds, or a date."""
    if header.isdecimal():
        return float(header[:9])
    try:
        return max((parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError):  # none, or neither
        return 0.0
