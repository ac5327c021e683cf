"""Regenerate the pictures of the dashboard, with Chromium: a service with logs of simulated visitors."""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from maillard import Bandit, Features, Reward
from maillard.service import running

PICTURES = Path(__file__).parent / "pictures"
START = datetime(2026, 11, 16, 9, tzinfo=UTC)
DAYS = 3
TOGETHER = 20  # visitors at one time, to write the log faster
ARMS = ["blue", "orange", "green"]
CLICK = Reward(low=0, high=1)
ARTICLES = {"Plain and short": 0.02, "A question": 0.08, "Numbers first": 0.14, "With a picture": 0.1}
FEATURES = Features({"device": ["phone", "desktop"], "age": (20, 50), "member": bool})


class Clock:
    """A clock that the simulation sets. Visitors are more frequent during the day."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def times(self, visitors: int, rng: np.random.Generator) -> list[datetime]:
        """The times of the visits, over some days."""
        seconds = np.sort(rng.random(3 * visitors)) * DAYS * 86_400
        busy = 0.55 - 0.45 * np.cos(2 * math.pi * (seconds / 86_400 + 9 / 24 - 3 / 24))
        kept = seconds[rng.random(seconds.size) < busy][:visitors]
        return [START + timedelta(seconds=each) for each in kept.tolist()]


def simulate(log: Path, experiment: str, rates: Mapping[str, float], visitors: int) -> None:
    """An experiment with visitors who click at these rates."""
    clock, rng = Clock(), np.random.default_rng()
    with Bandit(list(rates), reward=CLICK, log=log, experiment=experiment, clock=clock) as bandit:
        for time in clock.times(visitors // TOGETHER, rng):
            clock.now = time
            made = bandit.choose(size=TOGETHER)
            clicks = [float(rng.random() < rates[each.arm]) for each in made]
            bandit.rewards([{"decision": d.id, "value": x} for d, x in zip(made, clicks, strict=True)])


def simulate_contexts(log: Path, visitors: int) -> None:
    """An experiment in which the best arm depends on the device. Some values are not declared."""
    clock, rng = Clock(), np.random.default_rng()
    options: dict[str, Any] = {"reward": CLICK, "log": log, "experiment": "offers", "clock": clock}
    with Bandit(ARMS, features=FEATURES, **options) as bandit:
        for time in clock.times(visitors // TOGETHER, rng):
            clock.now = time
            devices = rng.choice(["phone", "desktop", "tablet"], TOGETHER, p=[0.5, 0.4, 0.1]).tolist()
            members = (rng.random(TOGETHER) < 0.3).tolist()
            contexts = [
                {"device": device, "age": int(rng.normal(36, 10)), "member": member}
                for device, member in zip(devices, members, strict=True)
            ]
            made = bandit.choose(context=contexts)
            rates = [
                0.3 if (decision.arm == "blue") == (device == "phone") else 0.15
                for decision, device in zip(made, devices, strict=True)
            ]
            clicks = (rng.random(TOGETHER) < rates).astype(float).tolist()
            bandit.rewards([{"decision": d.id, "value": x} for d, x in zip(made, clicks, strict=True)])


def seeded() -> Callable[..., np.random.Generator]:
    """A replacement of `default_rng`. A bandit with a seed would tell so on the dashboard."""
    made, numbers = np.random.default_rng, itertools.count(1)
    return lambda seed=None: made(next(numbers) if seed is None else seed)


def main() -> None:
    """Write the pictures."""
    np.random.default_rng = seeded()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.db")
        simulate(log, "headline", ARTICLES, 9000)
        simulate(log, "button-colour", {"blue": 0.1, "orange": 0.16, "green": 0.3}, 2500)
        simulate(log, "signup-form", {"short": 0.05, "long": 0.05}, 400)
        simulate_contexts(log, 3000)
        with running(log, no_keys=True) as url, sync_playwright() as playwright:
            path = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            draw(browser, url)
            browser.close()


def draw(browser: Any, url: str) -> None:
    """Write a picture of the list, of an experiment, and of its segments."""
    page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page.goto(url)
    page.wait_for_selector("#list .leader")
    page.locator(".traffic-summary", has_text="at least").first.wait_for(state="hidden")
    page.screenshot(path=PICTURES / "dashboard-list.png", clip={"x": 0, "y": 0, "width": 1280, "height": 640})
    page.set_viewport_size({"width": 1280, "height": 1340})
    page.goto(f"{url}/#/experiments/headline")
    page.wait_for_selector("#tile-light[data-light=good]")
    page.wait_for_selector("#chart path")
    page.screenshot(path=PICTURES / "dashboard.png")
    page.goto(f"{url}/#/experiments/offers")
    page.wait_for_selector("#features-rows tr")
    page.click("#segments-arms summary")
    page.locator("#segments").screenshot(path=PICTURES / "dashboard-segments.png")


if __name__ == "__main__":
    main()
