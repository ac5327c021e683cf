"""Rate limits: a token bucket for each caller."""

from __future__ import annotations

import time
from collections.abc import Callable

from maillard.errors import InvalidValue

_BURST = 2.0  # seconds: a full bucket has the tokens of this time
_MAX_CALLERS = 50_000  # callers that are remembered


class RateLimiter:
    """A token bucket for each caller: `rate` tokens per second, at most the tokens of `burst` seconds.

    A request that costs more than a full bucket is admitted when the bucket is full; later requests wait
    until it is paid for. The limiter remembers the `callers` most recent callers; any other caller starts
    with a full bucket. Without a `rate`, only callers with a rate of their own are limited.

    >>> now = 0.0
    >>> limiter = RateLimiter(8, clock=lambda: now)
    >>> [limiter.acquire("web") for _ in range(17)][-2:]
    [0.0, 0.125]
    >>> now = 0.125
    >>> limiter.acquire("web"), limiter.acquire("web"), limiter.acquire("shop")
    (0.0, 0.125, 0.0)
    """

    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        callers: int = _MAX_CALLERS,
        burst: float = _BURST,
    ) -> None:
        if rate is not None and not 0 < rate < float("inf"):
            raise InvalidValue("rate", rate, "requests per second, a finite number > 0, or None for no limit")
        self._rate, self._clock, self._half, self._burst = rate, clock, max(1, callers // 2), burst
        # The time when each caller's bucket is full again. There are two generations of callers: when the
        # recent one is full, the older one is dropped as a whole.
        self._recent: dict[str, float] = {}
        self._older: dict[str, float] = {}

    def acquire(self, caller: str, cost: float = 1, rate: float | None = None) -> float:
        """Take tokens and return 0, or return the seconds to wait. `rate` replaces the limiter's rate."""
        rate = rate or self._rate
        if rate is None:
            return 0.0
        now = self._clock()
        full_at, price = self._full_at(caller, now), cost / rate
        # A bucket holds at least one token. A cost above its capacity needs a full bucket.
        wait = full_at - now - max(max(self._burst, 1 / rate) - price, 0.0)
        if wait <= 1e-9:  # tolerate rounding of the clock
            self._recent[caller] = full_at + price
            return 0.0
        self._recent[caller] = full_at
        return wait

    def acquire_more(self, caller: str, cost: float, rate: float | None = None) -> float:
        """Take the other tokens of a request that has taken one, as if it had taken all of them at once."""
        self.charge(caller, -1, rate)
        wait = self.acquire(caller, 1 + cost, rate)
        if wait:
            self.charge(caller, 1, rate)
        return wait

    def charge(self, caller: str, cost: float, rate: float | None = None) -> None:
        """Take tokens unconditionally. A negative cost returns tokens."""
        rate = rate or self._rate
        if rate is not None:
            self._recent[caller] = self._full_at(caller, self._clock()) + cost / rate

    def _full_at(self, caller: str, now: float) -> float:
        full_at = self._recent.get(caller)
        if full_at is None:
            if len(self._recent) >= self._half:
                self._recent, self._older = {}, self._recent
            full_at = self._older.get(caller, now)
        return max(full_at, now)
