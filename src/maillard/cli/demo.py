"""A live experiment: a service in a process of its own, and visitors who click as they are simulated to."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from maillard.errors import Conflict, InvalidValue
from maillard.service.background import running

if TYPE_CHECKING:
    from maillard.client import Client

__all__ = ["Stop", "Visitors", "print_report", "serving", "showing"]

EXPERIMENT = "buttons"
ARMS = ("green", "blue", "orange")
_RATES = (0.1, 0.18, 0.3)
# The floor leaves something to be said of every arm, when the log is asked for what would have been.
_POLICY = "ms+:booster=8,floor=0.1"
_WINDOW = 3.0  # seconds in which a click counts; who has not clicked by then did not
_DELAY = 0.6  # seconds until a click, on average
_LATE, _TWICE = 0.03, 0.1  # shares of the clicks
_STYLES = {"consistent": "bold green", "broken": "bold red", "not enough data": "bold yellow"}


@contextlib.contextmanager
def serving(database: str | None, port: int) -> Iterator[str]:
    """The address of a service on this machine that ends with the block; without a database, its log does too."""
    with (
        tempfile.TemporaryDirectory(prefix="maillard-demo-") as folder,
        running(database or Path(folder, "demo.db"), port=port) as url,
    ):
        yield url


class Stop:
    """Ctrl-C and SIGTERM: an interrupt, so that whatever was started is ended; but a wish, where one is waited for."""

    awaited = False
    asked = False

    def __enter__(self) -> Stop:
        self._before = [
            (number, signal.signal(number, self._handle)) for number in (signal.SIGINT, signal.SIGTERM)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _handle(self, *_: object) -> None:
        if not self.awaited:
            raise KeyboardInterrupt
        self.awaited, self.asked = False, True


class Visitors:
    """People who come at random, `rate` of them a second, are shown a button, and click it or not."""

    def __init__(self, client: Client, rate: float) -> None:
        self._client, self._rate = client.bandit(EXPERIMENT), rate
        rates = list(_RATES)
        random.shuffle(rates)
        self.true_rates = dict(zip(ARMS, rates, strict=True))
        self.shown: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        "Of the clicks that were reported."
        self.last = "waiting for the first visitor"
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)

    def begin(self) -> None:
        """Make the experiment, or go on with the one that there is."""
        from maillard.decisions import Reward

        rule = Reward(low=0, high=1, window=_WINDOW, default=0, mature_only=True)
        try:
            self._client.create(EXPERIMENT, list(ARMS), _POLICY, reward=rule)
        except Conflict:
            if not set(self._client.arms) <= set(ARMS):
                known = (
                    f"a database without an experiment {EXPERIMENT!r} of other arms than {', '.join(ARMS)}"
                )
                raise InvalidValue("--database", self._client.arms, known) from None
        self._at(time.monotonic(), self._come)

    def run(self, seconds: float | None, stop: Stop) -> None:
        """Let them come, for so many seconds or until it is to stop."""
        end = float("inf") if seconds is None else time.monotonic() + seconds
        stop.awaited = True
        while not stop.asked and (now := time.monotonic()) < end:
            wait = min(self._plan[0][0], end) - now
            if wait > 0:
                time.sleep(min(wait, 0.1))
                continue
            _, _, act = heapq.heappop(self._plan)
            act()
        stop.awaited = False

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._plan, (when, next(self._numbers), act))

    def _come(self) -> None:
        now = time.monotonic()
        self._at(now + random.expovariate(self._rate), self._come)
        decision = self._client.choose(unit=f"visitor-{self.shown.total() + 1}")
        self.shown[decision.arm] += 1
        self.last = f"{decision.unit} sees {decision.arm}, p = {decision.probability:.3f}"
        if random.random() < self.true_rates[decision.arm]:
            delay = min(random.expovariate(1 / _DELAY), _WINDOW - 1)
            if random.random() < _LATE:
                delay += _WINDOW
            self._at(now + delay, lambda: self._click(decision.id))

    def _click(self, decision: str) -> None:
        self.outcomes[self._client.reward(decision, 1.0)] += 1
        if random.random() < _TWICE:
            self._at(time.monotonic() + random.random(), lambda: self._click(decision))

    @property
    def lines(self) -> str:
        """What has happened so far, and what happened last."""
        total = self.shown.total()
        shares = ", ".join(f"{arm} {self.shown[arm] / max(total, 1):.0%}" for arm in ARMS)
        clicks = self.outcomes.total() - self.outcomes["duplicate"]
        odd = f"{self.outcomes['late']:,} late, {self.outcomes['duplicate']:,} reported twice"
        return f"{total:,} shown: {shares}; {clicks:,} clicks, {odd}\n{self.last}"


@contextlib.contextmanager
def showing(visitors: Visitors) -> Iterator[None]:
    """Two live lines, on a terminal."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield
        return

    def lines() -> Text:
        return Text(visitors.lines, no_wrap=True, overflow="ellipsis")

    with Live(get_renderable=lines, console=console, refresh_per_second=8):
        yield


def print_report(client: Client, visitors: Visitors) -> None:
    """What is true, what was learned, and what the audit says of the log."""
    bandit = client.bandit(EXPERIMENT)
    with Console(stderr=True).status("recomputing every probability from the log"):
        verified, summary = bandit.verify(), bandit.summary()
    console = Console(highlight=False)
    level = f"{summary['interval']['confidence']:.0%} interval"
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("button")
    for name in ("true rate", "learned", level, "learned from", "shown this time"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm, rate in visitors.true_rates.items():
        found = summary["arms"][arm]
        mean, lower, upper = (found[each] for each in ("mean", "lower", "upper"))
        learned = "nothing yet" if mean is None else f"{mean:.3f}"
        interval = "" if lower is None else f"{lower:.3f} to {upper:.3f}"
        counts = f"{found['pulls']:,}", f"{visitors.shown[arm]:,}"
        table.add_row(arm, f"{rate:.3f}", learned, interval, *counts)
    console.print(table)
    rows = f"{verified['recomputed']:,} of {verified['decisions']:,} probabilities recomputed from the log"
    verdict = (verified["verdict"], _STYLES[verified["verdict"]])
    console.print(
        Text.assemble("\naudit: ", verdict, f" ({rows}, largest difference {verified['largest_error']:.1g})")
    )
