"""How often a caller may call."""

from __future__ import annotations

import time
from collections.abc import Callable

from maillard.errors import InvalidValue

__all__ = ["Limiter"]

_BURST = 2.0  # seconds' worth of requests that a rested caller may make at once
_CALLERS = 50_000


class Limiter:
    """A bucket of tokens for each caller: it fills at `rate` tokens a second, up to two seconds' worth.

    A call that costs more than a bucket holds is allowed when the bucket is full, and paid off afterwards. At most `callers`
    of them are remembered, those who called last: for the others a bucket is full again. Without a `rate` only those callers
    are limited who have one of their own.

    >>> now = 0.0
    >>> limiter = Limiter(8, clock=lambda: now)
    >>> [limiter.wait("web") for _ in range(17)][-2:]
    [0.0, 0.125]
    >>> now = 0.125
    >>> limiter.wait("web"), limiter.wait("web"), limiter.wait("shop")
    (0.0, 0.125, 0.0)
    """

    def __init__(
        self, rate: float | None, *, clock: Callable[[], float] = time.monotonic, callers: int = _CALLERS
    ) -> None:
        if rate is not None and not 0 < rate < float("inf"):
            raise InvalidValue("rate", rate, "requests a second, a finite number > 0, or None for no limit")
        self._rate, self._clock, self._half = rate, clock, max(1, callers // 2)
        # When a caller's bucket is full again: all that there is to know. Two generations of callers, so that forgetting
        # the older one costs nothing.
        self._young: dict[str, float] = {}
        self._old: dict[str, float] = {}

    def wait(self, caller: str, cost: float = 1, rate: float | None = None) -> float:
        """0 if the caller may go on, and has paid; otherwise the seconds until it may. `rate` is one of its own."""
        rate = rate or self._rate
        if rate is None:
            return 0.0
        now = self._clock()
        full, price = self._full(caller, now), cost / rate
        # A bucket holds at least one token; who wants more than there can be must wait for a full one.
        wait = full - now - max(max(_BURST, 1 / rate) - price, 0.0)
        if wait <= 1e-9:  # a rounding of the clock is no reason to refuse
            self._young[caller] = full + price
            return 0.0
        self._young[caller] = full
        return wait

    def spend(self, caller: str, cost: float, rate: float | None = None) -> None:
        """Pay for more than was known when the caller was let in, whatever is left in the bucket."""
        rate = rate or self._rate
        if rate is not None:
            self._young[caller] = self._full(caller, self._clock()) + cost / rate

    def _full(self, caller: str, now: float) -> float:
        full = self._young.get(caller)
        if full is None:
            if len(self._young) >= self._half:
                self._young, self._old = {}, self._young
            full = self._old.get(caller, now)
        return max(full, now)
