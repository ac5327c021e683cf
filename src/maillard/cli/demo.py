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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from maillard.cli.terminal import VERDICT_STYLES, text_table
from maillard.errors import Conflict, InvalidValue

if TYPE_CHECKING:
    from maillard.client import Client

_LATE_PROBABILITY, _REPEAT_PROBABILITY = 0.03, 0.1  # of a click


@dataclass(frozen=True)
class Scenario:
    """An experiment with simulated visitors."""

    experiment: str
    title: str
    "What an arm is."
    arms: tuple[str, ...]
    rates: tuple[float, ...]
    "The click rates; `shuffled` ones are assigned to the arms at random."
    window: float
    "Seconds; without a click in this time the reward is 0."
    mean_delay: float | None = None
    "Seconds until a click, on average; None: uniformly distributed over the window."
    shuffled: bool = True
    about: str = ""

    def delay(self) -> float:
        """A random time from a decision to a click."""
        if self.mean_delay is None:
            return random.random() * self.window
        delay = min(random.expovariate(1 / self.mean_delay), self.window - 1)
        return delay + self.window * (random.random() < _LATE_PROBABILITY)


SCENARIOS = {
    "buttons": Scenario(
        experiment="buttons",
        title="button",
        arms=("blue", "orange", "green"),  # the first colours of the dashboard's chart, in this order
        rates=(0.1, 0.18, 0.3),
        window=3.0,
        mean_delay=0.6,
    ),
    "late-clicks": Scenario(
        experiment="headlines",
        title="headline",
        arms=("A", "B", "C", "D"),
        rates=(0.05, 0.08, 0.04, 0.06),
        window=20.0,
        shuffled=False,
        about="Clicks on four headlines arrive up to an hour late; here, 20 seconds stand for an hour. Until "
        "the first window closes, no mean is shown and all arms are equally likely.",
    ),
}


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
    """Simulated visitors. They arrive at random, `rate` per second, see an arm, and may click it."""

    def __init__(self, client: Client, rate: float, scenario: Scenario) -> None:
        self._client, self._rate, self.scenario = client.bandit(scenario.experiment), rate, scenario
        rates = list(scenario.rates)
        if scenario.shuffled:
            random.shuffle(rates)
        self.true_rates = dict(zip(scenario.arms, rates, strict=True))
        self.shown: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        "The service's outcomes for the reported clicks."
        self.last = "waiting for the first visitor"
        self._scheduled: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count(1)

    def start(self) -> None:
        """Create the experiment, or continue an existing one."""
        from maillard.decisions import Reward

        name, arms = self.scenario.experiment, self.scenario.arms
        rule = Reward.clicks(window=self.scenario.window)
        try:
            self._client.create(name, list(arms), reward=rule)
        except Conflict:
            if not set(self._client.arms) <= set(arms):
                allowed = f"a database without an experiment {name!r} with arms other than {', '.join(arms)}"
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
            self._schedule(now + self.scenario.delay(), lambda: self._click(decision.id))

    def _click(self, decision: str) -> None:
        self.outcomes[self._client.reward(decision, 1.0)] += 1
        if random.random() < _REPEAT_PROBABILITY:
            self._schedule(time.monotonic() + random.random(), lambda: self._click(decision))

    @property
    def status(self) -> str:
        """Two lines: the totals so far, and the last event."""
        total = self.shown.total()
        percentages = ", ".join(f"{arm} {self.shown[arm] / max(total, 1):.0%}" for arm in self.true_rates)
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
    bandit = client.bandit(visitors.scenario.experiment)
    with Console(stderr=True).status("recomputing every probability from the log"):
        verified, summary = bandit.verify(), bandit.summary()
    console = Console(highlight=False)
    level = f"{summary['interval']['confidence']:.0%} interval"
    columns = ("true rate", "estimate", level, "final", "pending", "shown this time")
    table = text_table(visitors.scenario.title, right=columns)
    for arm, rate in visitors.true_rates.items():
        found = summary["arms"][arm]
        mean, lower, upper = (found[each] for each in ("mean", "lower", "upper"))
        estimate = "none yet" if mean is None else f"{mean:.3f}"
        interval = "" if lower is None else f"{lower:.3f} to {upper:.3f}"
        counts = f"{found['final']:,}", f"{found['pending']:,}", f"{visitors.shown[arm]:,}"
        table.add_row(arm, f"{rate:.3f}", estimate, interval, *counts)
    console.print(table)
    console.print(f"\n{summary['refusal'] or summary['verdict']['text']}")
    rows = f"{verified['recomputed']:,} of {verified['decisions']:,} probabilities recomputed from the log"
    verdict = (verified["verdict"], VERDICT_STYLES[verified["verdict"]])
    console.print(
        Text.assemble("\naudit: ", verdict, f" ({rows}, largest difference {verified['largest_error']:.1g})")
    )
