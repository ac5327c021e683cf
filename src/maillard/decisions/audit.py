"""A statistical test whether the choices in a log agree with the logged probabilities.

For each arm, z = Σ (1{chosen} - p) / √Σ p (1 - p) is a martingale divided by its predictable standard
deviation, for any adaptive policy. A second test uses the importance weights of off-policy evaluation,
restricted to p >= d: Σ (1{p >= d} / p - number of arms with p >= d), also divided by its predictable standard
deviation. If the standard deviation is too small compared with a single term for a normal approximation, the
verdict is "not enough data". If no decision has the probabilities of all arms, it is "cannot be audited".
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

Verdict = Literal["consistent", "broken", "not enough data", "cannot be audited"]

_MIN_RELATIVE_VARIANCE = 25.0  # variance / largest term squared, from which the normal approximation is used
TRUNCATION = 0.01
_FALSE_ALARM_PROBABILITY = 1e-4  # of all scores together, for a correct log
_MAX_BUFFERED = 400_000  # log probabilities


@dataclass(frozen=True)
class Score:
    """A sum with its expectation and variance under the logged probabilities."""

    name: str
    observed: float
    expected: float
    variance: float
    largest: float
    "The largest possible absolute value of a single term."

    @property
    def z(self) -> float | None:
        """Standardized deviation from the expectation; None if there is not enough data."""
        if self.variance < _MIN_RELATIVE_VARIANCE * self.largest * self.largest or not self.variance:
            return None
        return float((self.observed - self.expected) / np.sqrt(self.variance))


class Audit:
    """Accumulates the scores of decisions, in any order.

    >>> from maillard.decisions import Bandit
    >>> audit = Audit()
    >>> for decision in Bandit(["red", "blue"], "uniform").choose(size=1000): audit.add(decision)
    >>> audit.verdict
    'consistent'
    """

    def __init__(self) -> None:
        self.left_out = 0
        "Decisions that repeat another's choice, or whose probabilities are not all known."
        self.incomplete = 0
        "Those decisions whose probabilities are not all known."
        self.impossible = 0
        "Decisions whose chosen arm has a logged probability of 0."
        self._arms: dict[str, NDArray[np.float64]] = {}  # chosen, expected, variance
        self._weights = np.zeros(3)  # Σ 1{p >= d} / p, Σ number of arms with p >= d, variance
        self._largest = 0.0
        self._buffered = 0
        self._buffer: dict[tuple[str, ...], list[tuple[int, tuple[float, ...]]]] = {}

    def add(self, row: Decision) -> None:
        """Add a decision."""
        known = row.arm in row.eligible and len(row.eligible) == len(row.log_probabilities)
        if row.origin is not None or not known:
            self.left_out += 1
            self.incomplete += row.origin is None
            return
        buffer = self._buffer.setdefault(row.eligible, [])
        buffer.append((row.eligible.index(row.arm), row.log_probabilities))
        self._buffered += len(row.eligible)
        if self._buffered >= _MAX_BUFFERED:
            self._flush()

    def _flush(self) -> None:
        buffer, self._buffer, self._buffered = self._buffer, {}, 0
        for arms, rows in buffer.items():
            self.add_batch(arms, np.array([place for place, _ in rows]), np.array([logs for _, logs in rows]))

    def add_batch(self, arms: Sequence[str], chosen: NDArray[np.int64], logs: NDArray[np.float64]) -> None:
        """Add decisions with the same eligible arms: indices of chosen arms, and all log probabilities."""
        with np.errstate(over="ignore"):
            p = np.exp(logs)
        known = np.isfinite(p).all(axis=1)
        self.left_out += int((~known).sum())
        self.incomplete += int((~known).sum())
        p, chosen = p[known], chosen[known]
        self.impossible += int((p[np.arange(chosen.size), chosen] == 0).sum())
        sums = np.array([np.bincount(chosen, minlength=len(arms)), p.sum(axis=0), (p * (1 - p)).sum(axis=0)])
        for arm, column in zip(arms, sums.T, strict=True):
            self._arms[arm] = self._arms.get(arm, np.zeros(3)) + column
        heavy = p >= TRUNCATION
        inverse = np.divide(1.0, p, out=np.zeros_like(p), where=heavy)
        count = heavy.sum(axis=1)
        weight = inverse[np.arange(chosen.size), chosen]
        self._weights += [weight.sum(), count.sum(), (inverse.sum(axis=1) - count * count).sum()]
        if chosen.size:
            self._largest = max(self._largest, float((inverse.max(axis=1) - count).max()), float(count.max()))

    def add_columns(self, arms: Sequence[str], columns: Columns) -> None:
        """Add a batch of decisions, except repeats and those without known probabilities."""
        originals = columns.filter(~columns.repeated)
        if originals.log_probabilities is not None:
            self.add_batch(arms, originals.arm, originals.log_probabilities)
        else:
            self.incomplete += len(originals)

    def __add__(self, other: Audit) -> Audit:
        """Return the audit of the decisions of both."""
        both = Audit()
        for each in (self, other):
            each._flush()
            both.left_out += each.left_out
            both.impossible += each.impossible
            both.incomplete += each.incomplete
            for arm, sums in each._arms.items():
                both._arms[arm] = both._arms.get(arm, np.zeros(3)) + sums
            both._weights = both._weights + each._weights
            both._largest = max(both._largest, each._largest)
        return both

    def scores(self) -> list[Score]:
        """Return the score of each arm."""
        self._flush()
        sums = [(arm, *each.tolist()) for arm, each in self._arms.items()]
        return [Score(arm, chosen, expected, variance, 1.0) for arm, chosen, expected, variance in sums]

    def weights(self) -> Score:
        """Return the score of the truncated importance weights."""
        self._flush()
        total, expected, variance = self._weights.tolist()
        return Score("weights", total, expected, max(variance, 0.0), self._largest)

    @property
    def limit(self) -> float:
        """The largest allowed |z|. A correct log exceeds it in any score with probability 1 in 10,000."""
        return self.limit_for(len(self.scores()))

    @staticmethod
    def limit_for(arms: int) -> float:
        """Return the limit for a log with this number of arms."""
        return -NormalDist().inv_cdf(_FALSE_ALARM_PROBABILITY / 2 / (arms + 1))

    @property
    def verdict(self) -> Verdict:
        """Whether the choices agree with the logged probabilities."""
        if self.impossible:
            return "broken"
        found = verdict_for([*self.scores(), self.weights()])
        none_known = self.incomplete and not any(score.expected for score in self.scores())
        return "cannot be audited" if found == "not enough data" and none_known else found


def verdict_for(scores: Sequence[Score]) -> Verdict:
    """Return the verdict for the scores of a log: one per arm, and that of the weights."""
    found = [abs(score.z) for score in scores if score.z is not None]
    if not found:
        return "not enough data"
    return "broken" if max(found) > Audit.limit_for(len(scores) - 1) else "consistent"
