"""The most common job, simulated: four headlines, clicks that arrive up to an hour late."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator

RATES = {"A": 0.05, "B": 0.08, "C": 0.04, "D": 0.06}
WINDOW = 3600.0
RULE = {"low": 0, "high": 1, "window": WINDOW, "default": 0}
VISITORS, BATCH, INTERVAL = 6_000, 10, 60.0  # ten visitors every minute, for ten hours


class Clicks:
    """The clicks that are still to come. Whether and when a decision gets one depends on the seed."""

    def __init__(self, seed: int) -> None:
        self._random, self._queue = random.Random(seed), list[tuple[float, int, str]]()
        self._numbers = itertools.count()

    def see(self, decision: str, arm: str, now: float) -> None:
        """A visitor sees an arm and may click it within the hour."""
        clicked, delay = self._random.random() < RATES[arm], WINDOW * self._random.random()
        if clicked:
            heapq.heappush(self._queue, (now + delay, next(self._numbers), decision))

    def due(self, now: float) -> Iterator[str]:
        """The decisions whose clicks have happened by now."""
        while self._queue and self._queue[0][0] <= now:
            yield heapq.heappop(self._queue)[2]


def run(
    choose: Callable[[], list[tuple[str, str]]],
    click: Callable[[str], object],
    set_clock: Callable[[float], object],
    *,
    seconds: tuple[float, float],
    clicks: Clicks,
) -> None:
    """Visitors come from the first to the second time.

    `choose` makes the decisions of a batch and returns the id and the arm of each.
    """
    begin, end = (round(each / INTERVAL) for each in seconds)
    for number in range(begin, end):
        now = number * INTERVAL
        set_clock(now)
        for decision in clicks.due(now):
            click(decision)
        for identifier, arm in choose():
            clicks.see(identifier, arm, now)
