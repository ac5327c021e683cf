"""A statistical test whether the choices in a log agree with the logged probabilities.

For each arm, z = Σ (1{chosen} - p) / √Σ p (1 - p) is a martingale divided by its predictable standard
deviation, for any adaptive policy. A second test uses the importance weights of off-policy evaluation,
restricted to p >= d: Σ (1{p >= d} / p - number of arms with p >= d), also divided by its predictable standard
deviation. If the standard deviation is too small compared with a single term for a normal approximation, the
verdict is "not enough data". If no decision has the probabilities of all arms, it is "cannot be audited".

A fixed limit of |z| is valid for one look at a log. A monitor looks after every decision, and needs a limit
that z exceeds at any time with a small probability. A term X of an arm's sum S is at most 1, so that
E exp(λX) <= exp(v ψ(λ)) for its variance v = p (1 - p), ψ(λ) = exp(λ) - 1 - λ and every λ >= 0 (Bennett). The
same holds for -X. So exp(λS - Vψ(λ)) is a supermartingale that begins at 1, and so is the mean of several
with different λ. It ever reaches 1 / α with probability at most α (Ville), for any number of decisions and
any V. The limit is the z at which the mean is 1 / α. With λ = 1.5^-i, i < 24, it hardly depends on V from 25
to 10^9. The terms of the weights are at most c = 1, 2, 4, ... or 128, whichever bounds the largest so far:
S / c has terms of at most 1, and each of the eight c gets an eighth of α.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from maillard.decisions.columns import Columns, select_rows
from maillard.decisions.decision import Decision
from maillard.decisions.log_arrays import runs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from maillard.decisions.log_arrays import LogArrays

Verdict = Literal["consistent", "broken", "not enough data", "cannot be audited"]

_MIN_RELATIVE_VARIANCE = 25.0  # variance / largest term squared, from which the normal approximation is used
TRUNCATION = 0.01
_FALSE_ALARM_PROBABILITY = 1e-4  # of all scores together, for a correct log
_RATES = 1.5 ** -np.arange(24.0)  # λ of the limit for continuous watching
_WEIGHT_SCALES = 8  # powers of 2 that bound a truncated weight, which is at most 100
_MAX_BUFFERED = 400_000  # log probabilities
_MAX_BLOCK = 1 << 16  # log probabilities: fast while a matrix fits into the cache


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

    def add_arrays(self, part: LogArrays, arms: Sequence[str]) -> None:
        """Add the decisions of a part of a log with these arms."""
        self.left_out += int(part.repeated.sum())
        for code, eligible in enumerate(part.eligible_sets):
            places = {arm: place for place, arm in enumerate(eligible)}
            place = np.array([*(places.get(arm, -1) for arm in arms), -1])[part.arm]
            rows = ~part.repeated & (part.eligible == code)
            fits = rows & (place >= 0) & (part.vector_lengths[part.vector] == len(eligible))
            unknown = int(rows.sum() - fits.sum())
            self.left_out += unknown
            self.incomplete += unknown
            chosen = np.flatnonzero(fits)
            size = max(1, _MAX_BLOCK // max(len(eligible), 1))
            for start in range(0, chosen.size, size):
                block = chosen[start : start + size]
                starts, run = runs(part.vector[block])
                logs = part.vectors(part.vector[block[starts]]).reshape(starts.size, -1).T
                with np.errstate(over="ignore"):
                    p = np.exp(logs, order="C")
                self._add_probabilities(
                    eligible, place[block], (p if starts.size == run.size else p[:, run]).T
                )

    def add_batch(self, arms: Sequence[str], chosen: NDArray[np.int64], logs: NDArray[np.float64]) -> None:
        """Add decisions with the same eligible arms: indices of chosen arms, and all log probabilities."""
        with np.errstate(over="ignore"):
            self._add_probabilities(arms, chosen, np.exp(logs))

    def _add_probabilities(
        self, arms: Sequence[str], chosen: NDArray[np.int64], p: NDArray[np.float64]
    ) -> None:
        known = np.asarray(np.isfinite(p).all(axis=1))
        if not known.all():
            self.left_out += int((~known).sum())
            self.incomplete += int((~known).sum())
            p, chosen = select_rows(p, known), chosen[known]
        self.impossible += int((p[np.arange(chosen.size), chosen] == 0).sum())
        sums = np.array([np.bincount(chosen, minlength=len(arms)), p.sum(axis=0), (p * (1 - p)).sum(axis=0)])
        for arm, column in zip(arms, sums.T, strict=True):
            self._arms[arm] = self._arms.get(arm, np.zeros(3)) + column
        heavy = p >= TRUNCATION
        with np.errstate(divide="ignore", over="ignore"):
            inverse = np.where(heavy, 1.0 / p, 0.0)
        count = np.where(heavy, 1.0, 0.0).sum(axis=1)  # sums of booleans are slow
        weight = inverse[np.arange(chosen.size), chosen]
        self._weights += [weight.sum(), count.sum(), inverse.sum() - (count * count).sum()]
        if chosen.size:
            self._largest = max(self._largest, float((inverse.max(axis=1) - count).max()), float(count.max()))

    def add_columns(self, arms: Sequence[str], columns: Columns) -> None:
        """Add a batch of decisions, except repeats and those without known probabilities."""
        originals = columns.filter(~columns.repeated)
        if originals.probabilities is not None:
            self._add_probabilities(arms, originals.arm, originals.probabilities)
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

    def to_dict(self) -> dict[str, Any]:
        """The sums, to continue the audit later."""
        self._flush()
        counts = {name: getattr(self, name) for name in ("left_out", "incomplete", "impossible")}
        arms = {arm: sums.tolist() for arm, sums in self._arms.items()}
        return {**counts, "arms": arms, "weights": self._weights.tolist(), "largest": self._largest}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Audit:
        """Continue an audit from the result of `to_dict`."""
        audit = cls()
        audit.left_out, audit.incomplete = int(saved["left_out"]), int(saved["incomplete"])
        audit.impossible, audit._largest = int(saved["impossible"]), float(saved["largest"])
        audit._arms = {arm: np.array(sums, np.float64).reshape(3) for arm, sums in saved["arms"].items()}
        audit._weights = np.array(saved["weights"], np.float64).reshape(3)
        return audit

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
    def limit_for(arms: int, variance: float | None = None) -> float:
        """Return the limit for a log with this number of arms, for one look at it.

        With the variance of an arm's sum, return the limit for continuous watching: a correct log exceeds it
        at any time and in any score with probability 1 in 10,000.
        """
        share = _FALSE_ALARM_PROBABILITY / (arms + 1)
        if variance is None:
            return -NormalDist().inv_cdf(share / 2)
        return float(time_uniform_limit(variance, share))

    @property
    def verdict(self) -> Verdict:
        """Whether the choices agree with the logged probabilities."""
        if self.impossible:
            return "broken"
        found = verdict_for([*self.scores(), self.weights()])
        return "cannot be audited" if found == "not enough data" and self.lacks_probabilities else found

    @property
    def lacks_probabilities(self) -> bool:
        """Whether there are decisions, but none of them has the probabilities of all arms."""
        return bool(self.incomplete) and not any(score.expected for score in self.scores())


def verdict_for(scores: Sequence[Score], limit: float | None = None) -> Verdict:
    """Return the verdict for the scores of a log: one per arm, and that of the weights.

    The default limit is for one look at the log.
    """
    found = [abs(score.z) for score in scores if score.z is not None]
    if not found:
        return "not enough data"
    limit = Audit.limit_for(len(scores) - 1) if limit is None else limit
    return "broken" if max(found) > limit else "consistent"


def time_uniform_limit(variance: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Return the |z| that a sum with terms of at most 1 exceeds at any time with probability alpha.

    `variance` is the variance of the sum at the time of the look.

    >>> time_uniform_limit([25.0, 1e6], 1e-5).round(2).tolist()
    [6.52, 5.53]
    """
    v = np.asarray(variance, np.float64)[..., None]
    slope, drift = _RATES * np.sqrt(v), v * (np.expm1(_RATES) - _RATES)
    low, high = np.zeros(v.shape[:-1]), np.full(v.shape[:-1], 1e3)
    for _ in range(40):  # bisection
        z = (low + high) / 2
        reached = np.logaddexp.reduce(slope * z[..., None] - drift, axis=-1) > math.log(
            _RATES.size * 2 / alpha
        )
        low, high = np.where(reached, low, z), np.where(reached, z, high)
    return high


def live_limit(arms: Sequence[Score], weights: Score) -> float:
    """Return the limit of |z| for continuous watching: the largest limit of a score with enough data."""
    share = _FALSE_ALARM_PROBABILITY / (len(arms) + 1)
    variances = [score.variance for score in arms if score.z is not None] or [_MIN_RELATIVE_VARIANCE]
    limit = float(time_uniform_limit(variances, share).max())
    if weights.z is None:
        return limit
    scale = 2.0 ** max(0, math.ceil(math.log2(weights.largest)))
    return max(limit, float(time_uniform_limit(weights.variance / scale**2, share / _WEIGHT_SCALES)))
