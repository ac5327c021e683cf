"""The audit that a log allows by itself: whether the draws agree with the probabilities.

Per arm, z = Σ (1{chosen} - p) / √Σ p (1 - p): a martingale over its predictable standard deviation, whatever the policy did with
what it learned. And of the weights that evaluation will use, truncated at p >= d: Σ (1{p >= d} / p - number of arms with p >= d),
over its predictable standard deviation. Where that is too small against a single term to be judged by a normal law, the answer
is "not enough data".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from maillard.decisions.decision import Decision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.columns import Columns

__all__ = ["TRUNCATION", "Audit", "Score", "Verdict", "verdict_for"]

Verdict = Literal["consistent", "broken", "not enough data"]

_LEAST = 25.0  # variance, in units of the square of the largest single term, from which a normal law is near enough
TRUNCATION = 0.01
_FALSE_ALARMS = 1e-4  # in all, for a log whose probabilities are right
_BATCH = 400_000  # log probabilities


@dataclass(frozen=True, kw_only=True)
class Score:
    """A sum that should be near 0, against its standard deviation."""

    name: str
    observed: float
    expected: float
    variance: float
    largest: float
    "The greatest single term that there could have been."

    @property
    def z(self) -> float | None:
        """Standard deviations from what is expected; None where there is not enough data."""
        if self.variance < _LEAST * self.largest * self.largest or not self.variance:
            return None
        return float((self.observed - self.expected) / np.sqrt(self.variance))


class Audit:
    """Adds up decisions, in any order, and judges.

    >>> from maillard.decisions import Bandit
    >>> audit = Audit()
    >>> for decision in Bandit(["red", "blue"], "uniform").choose(size=1000): audit.add(decision)
    >>> audit.verdict
    'consistent'
    """

    def __init__(self) -> None:
        self.left_out = 0
        "Decisions that repeat another's draw, or whose law is not known in whole."
        self.impossible = 0
        "Decisions for an arm whose probability is said to be 0."
        self._arms: dict[str, NDArray[np.float64]] = {}  # chosen, expected, variance
        self._weights = np.zeros(3)  # Σ 1{p >= d} / p, Σ number of arms with p >= d, variance
        self._largest = 0.0
        self._size = 0
        self._waiting: dict[tuple[str, ...], list[tuple[int, tuple[float, ...]]]] = {}

    def add(self, row: Decision) -> None:
        """Count a decision."""
        if (
            row.origin is not None
            or row.arm not in row.eligible
            or len(row.eligible) != len(row.log_probabilities)
        ):
            self.left_out += 1
            return
        waiting = self._waiting.setdefault(row.eligible, [])
        waiting.append((row.eligible.index(row.arm), row.log_probabilities))
        self._size += len(row.eligible)
        if self._size >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        for arms in list(self._waiting):
            self._add_buffered(arms)
        self._size = 0

    def _add_buffered(self, arms: tuple[str, ...]) -> None:
        rows = self._waiting.pop(arms)
        self.add_batch(arms, np.array([place for place, _ in rows]), np.array([logs for _, logs in rows]))

    def add_batch(self, arms: Sequence[str], chosen: NDArray[np.int64], logs: NDArray[np.float64]) -> None:
        """Count decisions between the same arms: the place of each that was chosen, and the log probabilities of all."""
        with np.errstate(over="ignore"):
            p = np.exp(logs)
        known = np.isfinite(p).all(axis=1)
        self.left_out += int((~known).sum())
        p, chosen = p[known], chosen[known]
        self.impossible += int((p[np.arange(chosen.size), chosen] == 0).sum())
        sums = np.array([np.bincount(chosen, minlength=len(arms)), p.sum(axis=0), (p * (1 - p)).sum(axis=0)])
        for arm, column in zip(arms, sums.T, strict=True):
            self._arms[arm] = self._arms.get(arm, np.zeros(3)) + column
        heavy = p >= TRUNCATION
        inverse = np.divide(1.0, p, out=np.zeros_like(p), where=heavy)
        count = heavy.sum(axis=1)
        drawn = inverse[np.arange(chosen.size), chosen]
        self._weights += [drawn.sum(), count.sum(), (inverse.sum(axis=1) - count * count).sum()]
        if chosen.size:
            self._largest = max(self._largest, float((inverse.max(axis=1) - count).max()), float(count.max()))

    def add_columns(self, arms: Sequence[str], some: Columns) -> None:
        """Count the decisions of a batch that drew for themselves, where their laws were written down."""
        once = some.filter(~some.repeated)
        if once.log_probabilities is not None:
            self.add_batch(arms, once.arm, once.log_probabilities)

    def __add__(self, other: Audit) -> Audit:
        """The audit of both's decisions."""
        both = Audit()
        for each in (self, other):
            each._flush()
            both.left_out += each.left_out
            both.impossible += each.impossible
            for arm, sums in each._arms.items():
                both._arms[arm] = both._arms.get(arm, np.zeros(3)) + sums
            both._weights = both._weights + each._weights
            both._largest = max(both._largest, each._largest)
        return both

    def scores(self) -> list[Score]:
        """One for each arm."""
        self._flush()
        return [
            Score(
                name=arm,
                observed=float(chosen),
                expected=float(expected),
                variance=float(variance),
                largest=1.0,
            )
            for arm, (chosen, expected, variance) in self._arms.items()
        ]

    def weights(self) -> Score:
        """The sum of the truncated weights against what it should be."""
        self._flush()
        total, expected, variance = self._weights.tolist()
        return Score(
            name="weights",
            observed=total,
            expected=expected,
            variance=max(variance, 0.0),
            largest=self._largest,
        )

    @property
    def limit(self) -> float:
        """How far a score may be from 0: one false alarm in 10,000 honest logs, all scores together."""
        return self.limit_for(len(self.scores()))

    @staticmethod
    def limit_for(arms: int) -> float:
        """The limit of a log with so many arms."""
        return -NormalDist().inv_cdf(_FALSE_ALARMS / 2 / (arms + 1))

    @property
    def verdict(self) -> Verdict:
        """Whether the draws agree with the probabilities."""
        return "broken" if self.impossible else verdict_for([*self.scores(), self.weights()])


def verdict_for(scores: Sequence[Score]) -> Verdict:
    """Whether all scores of a log are near 0: those of its arms, and that of its weights."""
    found = [abs(score.z) for score in scores if score.z is not None]
    if not found:
        return "not enough data"
    return "broken" if max(found) > Audit.limit_for(len(scores) - 1) else "consistent"
