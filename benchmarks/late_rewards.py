"""Regret of the three values of `Reward(learn=)` when clicks are late, against an oracle without delay.

`python -m benchmarks.late_rewards` prints the table of docs/how-to/late-rewards.md (a few minutes) and writes
its figure and docs/data/late-rewards.json. Decision t gets a click with the rate of its arm; it arrives after
a random number of rounds within the window. Many trials run side by side, as rows of arrays.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maillard import policy
from maillard.policies import Sampled

Floats = NDArray[np.float64]
Rates = tuple[float, ...]
Arms = NDArray[np.int64]
Choose = Callable[[Floats, Floats, np.random.Generator], Arms]

DOCS = Path(__file__).parent.parent / "docs"
RATES = (0.05, 0.08, 0.04, 0.06)
METHODS = ("no delay", "on_close", "provisional", "on_arrival")
POLICIES = ("kl-ms+", "kl-ms+:floor=0.1", "ts-bernoulli")


@dataclass(frozen=True)
class Setting:
    """A window, in rounds, and how fast clicks are."""

    window: int
    mean_delay: float | None
    "Rounds, exponentially distributed up to the window; None: uniformly distributed over the window."

    @property
    def name(self) -> str:
        """The setting in words."""
        spread = "throughout" if self.mean_delay is None else f"after {self.mean_delay:g} on average"
        return f"window of {self.window:,} decisions, clicks {spread}"

    def delays(self, rng: np.random.Generator, trials: int) -> Arms:
        """The delay of a click in each trial: 0 to window - 1 rounds."""
        if self.mean_delay is None:
            return rng.integers(0, self.window, trials)
        return np.minimum(rng.exponential(self.mean_delay, trials).astype(np.int64), self.window - 1)


SETTINGS = (Setting(1_000, None), Setting(1_000, 20.0), Setting(5_000, None), Setting(5_000, 100.0))


def probabilities(chosen: Sampled, n: Floats, s: Floats) -> Floats:
    """The probabilities of a sampled policy for many tallies at once, one per row."""
    with np.errstate(all="ignore"):
        t, cold = 1.0 + n.sum(axis=1, keepdims=True), n == 0
        mean = np.where(cold, -np.inf, chosen.estimate(n, s))
        best = mean.max(axis=1, keepdims=True)
        rival = chosen.rival(n, np.where(cold, 0.0, mean), np.where(np.isinf(best), 0.0, best), t)
        log = np.where(mean == best, chosen.leader(n, t), rival)
        log = np.where(cold, 0.0, log)
        weights = np.exp(log - log.max(axis=1, keepdims=True))
    normalised: Floats = weights / weights.sum(axis=1, keepdims=True)
    return normalised


def chooser(spec: str) -> Choose:
    """The function that chooses an arm in every trial."""
    name, _, floor = spec.partition(":floor=")
    epsilon, made = float(floor or 0), policy(name)

    def choose_sampled(n: Floats, s: Floats, rng: np.random.Generator) -> Arms:
        assert isinstance(made, Sampled)
        p = (1.0 - epsilon) * probabilities(made, n, s) + epsilon / n.shape[1]
        position = rng.random((len(n), 1)) * p.sum(axis=1, keepdims=True)
        chosen: Arms = np.minimum((p.cumsum(axis=1) <= position).sum(axis=1), n.shape[1] - 1)
        return chosen

    def choose_thompson(n: Floats, s: Floats, rng: np.random.Generator) -> Arms:
        chosen: Arms = rng.beta(1.0 + s, 1.0 + n - s).argmax(axis=1)
        return chosen

    return choose_thompson if name == "ts-bernoulli" else choose_sampled


def regrets(
    spec: str, method: str, setting: Setting, *, horizon: int, trials: int, seed: int, rates: Rates = RATES
) -> Floats:
    """The regret of each trial at 50 checkpoints: an array of checkpoints x trials."""
    rng, choose = np.random.default_rng([seed, METHODS.index(method)]), chooser(spec)
    mean, every = np.array(rates), np.arange(trials)
    n, s = np.zeros((trials, mean.size)), np.zeros((trials, mean.size))
    window = setting.window
    # What is due in each of the next rounds, in a circular buffer: pulls and clicks of each arm.
    due_pulls, due_clicks = (np.zeros((window + 1, trials, mean.size)) for _ in range(2))
    checkpoints = set(np.linspace(horizon / 50, horizon, 50).astype(int).tolist())
    lost, found = np.zeros(trials), []
    for t in range(1, horizon + 1):
        arm = choose(n, s, rng)
        lost += mean.max() - mean[arm]
        clicked = rng.random(trials) < mean[arm]
        slot = t % (window + 1)
        arrival, close = (t + setting.delays(rng, trials)) % (window + 1), (t + window) % (window + 1)
        if method == "no delay":
            n[every, arm] += 1
            s[every, arm] += clicked
        elif method == "on_close":
            due_pulls[close, every, arm] += 1
            due_clicks[close, every, arm] += clicked
        elif method == "provisional":
            n[every, arm] += 1
            np.add.at(due_clicks, (arrival, every, arm), clicked)
        else:
            counts = np.where(clicked, arrival, close)
            np.add.at(due_pulls, (counts, every, arm), 1)
            np.add.at(due_clicks, (counts, every, arm), clicked)
        n += due_pulls[slot]
        s += due_clicks[slot]
        due_pulls[slot] = due_clicks[slot] = 0
        if t in checkpoints:
            found.append(lost.copy())
    return np.array(found)


def main() -> None:
    """Run every combination, print the table, and write the data and the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.late_rewards", description=__doc__)
    parser.add_argument("--horizon", type=int, default=20_000)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=DOCS / "data" / "late-rewards.json")
    args = parser.parse_args()
    rows = []
    for setting in SETTINGS:
        print(f"\n{setting.name}")
        for spec in POLICIES:
            curves = {}
            for method in METHODS:
                found = regrets(
                    spec, method, setting, horizon=args.horizon, trials=args.trials, seed=args.seed
                )
                curves[method] = found.mean(axis=1).round(2).tolist()
                error = float(found[-1].std(ddof=1) / np.sqrt(args.trials))
                row = {"setting": setting.name, "policy": spec, "method": method, "curve": curves[method]}
                rows.append(row | {"regret": round(float(found[-1].mean()), 1), "error": round(error, 1)})
            last = rows[-len(METHODS) :]
            cells = "  ".join(f"{row['method']} {row['regret']} ± {row['error']}" for row in last)
            print(f"  {spec:18} {cells}", flush=True)
    data = {"horizon": args.horizon, "trials": args.trials, "seed": args.seed, "rates": RATES, "rows": rows}
    args.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf8")
    draw(data, DOCS / "pictures" / "late-rewards")


def table(data: dict) -> str:  # type: ignore[type-arg]  # read from JSON
    """The regrets as a Markdown table."""
    lines = [
        "| setting | policy | " + " | ".join(METHODS) + " |",
        "| --- | --- " + "| --- " * len(METHODS) + "|",
    ]
    rows = data["rows"]
    for start in range(0, len(rows), len(METHODS)):
        part = rows[start : start + len(METHODS)]
        cells = [f"{row['regret']} ± {row['error']}" for row in part]
        lines.append(f"| {part[0]['setting']} | `{part[0]['policy']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(data: dict, path: Path) -> None:  # type: ignore[type-arg]  # read from JSON
    """Draw the regret over time of each method, for clicks that are spread over the longer window."""
    from maillard import figures

    setting, spec = SETTINGS[2].name, POLICIES[1]
    shown = [row for row in data["rows"] if row["setting"] == setting and row["policy"] == spec]
    rounds = np.linspace(data["horizon"] / 50, data["horizon"], 50)
    curves = np.array([row["curve"] for row in shown])
    figure = figures.curves(
        rounds, [row["method"] for row in shown], curves, curves, curves,
        label="regret", title=f"{spec}, {setting}",
    )  # fmt: skip
    for suffix in ("svg", "png"):
        figures.save(figure, path.with_suffix(f".{suffix}"))


if __name__ == "__main__":
    main()
