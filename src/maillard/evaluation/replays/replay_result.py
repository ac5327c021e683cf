"""What `replay` returns: a learning curve, its uncertainty, and what it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Replay"]

_LINES = 6


@dataclass(frozen=True, eq=False, kw_only=True)
class Replay:
    """Another policy's learning curve on a log: at each of `rounds`, n, the mean reward of its first n rounds."""

    policy: str
    method: str
    source: str
    rounds: NDArray[np.int64]
    mean: Floats
    "The estimate; NaN where only bounds are known."
    least: Floats
    most: Floats
    "Bounds on what the replays averaged: equal to `mean` but for queues that may have run out."
    lower: Floats
    upper: Floats
    "The interval, sampling error and bounds together."
    reached: Floats
    "Of the replays, how many got to round n."
    interval: str
    "What the interval is over: independent logs, parts of the log, or the choices made."
    assumes: tuple[str, ...]
    confidence: float
    replays: int
    "On the same rows, each with random numbers of its own."
    parts: int
    "Disjoint parts of the rows; in each the policy begins anew."
    logs: int
    rows: int
    "Of all logs, those that are read."
    accepted: float
    "Rows that a replay of all stretches uses, on average."
    acceptance_probability: float
    "With which probability a row is accepted; 0 for queues."
    guaranteed: int
    logged_mean: float
    "The mean reward of the log itself."
    left_out: dict[str, int]
    seed: int

    @property
    def reward(self) -> Floats:
        """The reward collected in the first n rounds."""
        return np.asarray(self.mean * self.rounds)

    @property
    def reward_lower(self) -> Floats:
        """The lower end of its interval."""
        return np.asarray(self.lower * self.rounds)

    @property
    def reward_upper(self) -> Floats:
        """The upper end of its interval."""
        return np.asarray(self.upper * self.rounds)

    @property
    def bounded(self) -> bool:
        """Whether part of the curve is known by bounds alone."""
        return bool(np.isnan(self.mean[self.reached > 0]).any())

    def curve(self, title: str | None = None) -> Figure:
        """A figure: the mean reward per round with its interval, or its bounds, and the log's own mean."""
        from maillard import figures

        title = f"Had it been {self.policy}: {self.method}" if title is None else title
        middle, low, high, names = self.mean, self.lower, self.upper, [self.policy]
        if self.bounded:
            names = ["at least", "at most"]
            middle = np.array([self.least, self.most])
            low, high = np.array([self.lower, self.most]), np.array([self.least, self.upper])
        logged = figures.Reference("as logged", self.rounds, np.full(self.rounds.size, self.logged_mean))
        return figures.curves(
            self.rounds,
            names,
            middle,
            low,
            high,
            label="mean reward of a round",
            title=title,
            references=[logged],
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values; None where there is no number."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["reward"] = self.reward
        return {name: _plain(value) for name, value in values.items()}

    def __str__(self) -> str:
        """A short report: how, the curve at a few rounds, and what it rests on."""
        times = f"{self.replays} replays" + f" on each of {self.parts} parts" * (self.parts > self.logs)
        where = self.source if self.logs == 1 else f"{self.logs} logs"
        lines = [
            f"{self.policy} on {where}: {self.method}, {times}, {self.rows} rows of which {self.accepted:.4g} are used at a time",
            f"{'round':>8}  {'mean reward':>12}  {f'{self.confidence:.0%} interval':>20}  {'share':>5}",
        ]
        for place in np.unique(np.linspace(0, self.rounds.size - 1, _LINES).astype(int)):
            between = f"{self.least[place]:.3f}..{self.most[place]:.3f}"  # bounds, where no more is known
            mean = between if math.isnan(self.mean[place]) else f"{self.mean[place]:.4f}"
            ends = f"{self.lower[place]:.4f} to {self.upper[place]:.4f}"
            lines.append(f"{self.rounds[place]:>8}  {mean:>12}  {ends:>20}  {self.reached[place]:>5.0%}")
        lines.append(f"  logged  {self.logged_mean:>12.4f}")
        some = [f"{count} {why}" for why, count in self.left_out.items() if count]
        lines += [f"left out: {', '.join(some)}"] if some else []
        return "\n".join([*lines, "assumes:", *(f"  - {each}" for each in self.assumes)])


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in value.tolist()]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, tuple):
        return list(value)
    return value
