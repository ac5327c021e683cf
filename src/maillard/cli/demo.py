"""The `demo` command: a service in its own process, and simulated visitors."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from maillard.cli.terminal import VERDICT_STYLES, text_table
from maillard.errors import Conflict, InvalidValue

if TYPE_CHECKING:
    from maillard.client import Client

EXPERIMENT = "buttons"
ARMS = ("green", "blue", "orange")
_RATES = (0.1, 0.18, 0.3)
# The floor keeps every arm probable enough for off-policy evaluation of the log.
_POLICY = "ms+:booster=8,floor=0.1"
_WINDOW = 3.0  # seconds; without a click in this time the reward is 0
_MEAN_DELAY = 0.6  # seconds until a click
_LATE_PROBABILITY, _REPEAT_PROBABILITY = 0.03, 0.1  # of a click


class StopSignal:
    """Handles Ctrl-C and SIGTERM: sets `requested` if a loop checks it, else raises KeyboardInterrupt."""

    checked = False
    "Whether a loop checks `requested`."
    requested = False

    def __enter__(self) -> StopSignal:
        self._previous = [
            (number, signal.signal(number, self._handle)) for number in (signal.SIGINT, signal.SIGTERM)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous:
            signal.signal(number, handler)

    def _handle(self, *_: object) -> None:
        if not self.checked:
            raise KeyboardInterrupt
        self.checked, self.requested = False, True


class Visitors:
    """Simulated visitors. They arrive at random, `rate` per second, see a button, and may click it."""

    def __init__(self, client: Client, rate: float) -> None:
        self._client, self._rate = client.bandit(EXPERIMENT), rate
        rates = list(_RATES)
        random.shuffle(rates)
        self.true_rates = dict(zip(ARMS, rates, strict=True))
        self.shown: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        "The service's outcomes for the reported clicks."
        self.last = "waiting for the first visitor"
        self._scheduled: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count(1)

    def start(self) -> None:
        """Create the experiment, or continue an existing one."""
        from maillard.decisions import Reward

        rule = Reward(low=0, high=1, window=_WINDOW, default=0, mature_only=True)
        try:
            self._client.create(EXPERIMENT, list(ARMS), _POLICY, reward=rule)
        except Conflict:
            if not set(self._client.arms) <= set(ARMS):
                allowed = (
                    f"a database without an experiment {EXPERIMENT!r} with arms other than {', '.join(ARMS)}"
                )
                raise InvalidValue("--database", self._client.arms, allowed) from None
        self._schedule(time.monotonic(), self._arrive)

    def run(self, seconds: float | None, stop: StopSignal) -> None:
        """Simulate visitors for the given time, or until a stop is requested."""
        end = float("inf") if seconds is None else time.monotonic() + seconds
        stop.checked = True
        while not stop.requested and (now := time.monotonic()) < end:
            wait = min(self._scheduled[0][0], end) - now
            if wait > 0:
                time.sleep(min(wait, 0.1))
                continue
            _, _, act = heapq.heappop(self._scheduled)
            act()
        stop.checked = False

    def _schedule(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._scheduled, (when, next(self._sequence), act))

    def _arrive(self) -> None:
        now = time.monotonic()
        self._schedule(now + random.expovariate(self._rate), self._arrive)
        decision = self._client.choose(unit=f"visitor-{self.shown.total() + 1}")
        self.shown[decision.arm] += 1
        self.last = f"{decision.unit} sees {decision.arm}, p = {decision.probability:.3f}"
        if random.random() < self.true_rates[decision.arm]:
            delay = min(random.expovariate(1 / _MEAN_DELAY), _WINDOW - 1)
            if random.random() < _LATE_PROBABILITY:
                delay += _WINDOW
            self._schedule(now + delay, lambda: self._click(decision.id))

    def _click(self, decision: str) -> None:
        self.outcomes[self._client.reward(decision, 1.0)] += 1
        if random.random() < _REPEAT_PROBABILITY:
            self._schedule(time.monotonic() + random.random(), lambda: self._click(decision))

    @property
    def status(self) -> str:
        """Two lines: the totals so far, and the last event."""
        total = self.shown.total()
        percentages = ", ".join(f"{arm} {self.shown[arm] / max(total, 1):.0%}" for arm in ARMS)
        clicks = self.outcomes.total() - self.outcomes["duplicate"]
        unusual = f"{self.outcomes['late']:,} late, {self.outcomes['duplicate']:,} reported twice"
        return f"{total:,} shown: {percentages}; {clicks:,} clicks, {unusual}\n{self.last}"


@contextlib.contextmanager
def live_status(visitors: Visitors) -> Iterator[None]:
    """Show the visitors' status during the block, if stderr is a terminal."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield
        return

    def lines() -> Text:
        return Text(visitors.status, no_wrap=True, overflow="ellipsis")

    with Live(get_renderable=lines, console=console, refresh_per_second=8):
        yield


def print_report(client: Client, visitors: Visitors) -> None:
    """Print the true rates, the estimated rates, and the verdict of the log's audit."""
    bandit = client.bandit(EXPERIMENT)
    with Console(stderr=True).status("recomputing every probability from the log"):
        verified, summary = bandit.verify(), bandit.summary()
    console = Console(highlight=False)
    level = f"{summary['interval']['confidence']:.0%} interval"
    table = text_table("button", right=("true rate", "estimate", level, "rewards", "shown this time"))
    for arm, rate in visitors.true_rates.items():
        found = summary["arms"][arm]
        mean, lower, upper = (found[each] for each in ("mean", "lower", "upper"))
        estimate = "none yet" if mean is None else f"{mean:.3f}"
        interval = "" if lower is None else f"{lower:.3f} to {upper:.3f}"
        counts = f"{found['pulls']:,}", f"{visitors.shown[arm]:,}"
        table.add_row(arm, f"{rate:.3f}", estimate, interval, *counts)
    console.print(table)
    rows = f"{verified['recomputed']:,} of {verified['decisions']:,} probabilities recomputed from the log"
    verdict = (verified["verdict"], VERDICT_STYLES[verified["verdict"]])
    console.print(
        Text.assemble("\naudit: ", verdict, f" ({rows}, largest difference {verified['largest_error']:.1g})")
    )
