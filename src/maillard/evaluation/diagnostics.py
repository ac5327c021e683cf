"""Diagnostics of an evaluation: the distribution of the weights, and the overlap of target and log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from maillard.decisions.audit import TRUNCATION, Score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.columns import Columns
    from maillard.evaluation.weighted_rows import WeightedRows

    Floats = NDArray[np.float64]

MIN_POWER, MAX_POWER = -10, 30  # powers of two between which weights are counted


@dataclass(frozen=True, eq=False)
class Overlap:
    """For each epoch and arm: rows in which it was eligible, how often it was chosen, Σ p, the smallest p."""

    epochs: Mapping[int, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Columns, arms: int) -> Overlap:
        """The overlap in these rows.

        If the log has only the probabilities of chosen arms, Σ p is NaN and the smallest p is that of chosen
        arms.
        """
        found = {}
        for epoch in np.unique(columns.epoch):
            part = columns.filter(columns.epoch == epoch)
            chosen = np.bincount(part.arm, minlength=arms).astype(np.float64)
            if part.log_probabilities is None or not part.has_all_probabilities:
                eligible = (
                    np.full(arms, float(len(part))) if part.eligible is None else part.eligible.sum(axis=0)
                )
                total, least = np.full(arms, np.nan), np.full(arms, np.inf)
                np.minimum.at(least, part.arm, np.exp(part.log_probability))
            else:
                p = np.exp(part.log_probabilities)
                can = np.ones_like(p, np.bool_) if part.eligible is None else part.eligible
                eligible, total = can.sum(axis=0), p.sum(axis=0)
                least = np.min(p, axis=0, initial=np.inf, where=can)
            found[int(epoch)] = np.array([eligible, chosen, total, least])
        return cls(found)

    def __add__(self, other: Overlap) -> Overlap:
        epochs = dict(self.epochs)
        for epoch, table in other.epochs.items():
            mine = epochs.get(epoch)
            epochs[epoch] = (
                table if mine is None else np.vstack([mine[:3] + table[:3], np.minimum(mine[3], table[3])])
            )
        return Overlap(epochs)

    def table(self, arms: Sequence[str]) -> list[dict[str, object]]:
        """A dictionary for each epoch and arm."""
        rows: list[dict[str, object]] = []
        for epoch, (eligible, chosen, total, least) in sorted(self.epochs.items()):
            for place, arm in enumerate(arms):
                if eligible[place]:
                    rows.append(
                        {
                            "epoch": epoch,
                            "arm": arm,
                            "rows": int(eligible[place]),
                            "chosen": int(chosen[place]),
                            "mean_probability": _number(total[place] / eligible[place]),
                            "smallest_probability": _number(least[place]),
                        }
                    )
        return rows


@dataclass(frozen=True, eq=False)
class Spread:
    """Sums over weights: count, Σ w, Σ w², Σ w r, the largest, the number above 0, a histogram."""

    count: int
    total: float
    squares: float
    product: float
    largest: float
    positive: int
    histogram: NDArray[np.int64]
    low: float = np.inf
    high: float = -np.inf
    "The smallest and largest reward with a positive weight."
    ends: tuple[int, int] = (0, 0)
    "How many of those rewards are at either end of the reward range."
    roots: float = np.nan
    "Σ √e, e = 1 / Σ π² / p; NaN without the probabilities of all arms."

    def __add__(self, other: Spread) -> Spread:
        return Spread(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            self.product + other.product,
            max(self.largest, other.largest),
            self.positive + other.positive,
            self.histogram + other.histogram,
            min(self.low, other.low),
            max(self.high, other.high),
            (self.ends[0] + other.ends[0], self.ends[1] + other.ends[1]),
            self.roots + other.roots,
        )

    @property
    def effective_size(self) -> float:
        """(Σ w)² / Σ w²: the number of rows chosen by the target itself that would be equally informative."""
        return self.total / self.squares * self.total if self.squares else 0.0

    @property
    def effective_pulls(self) -> float | None:
        """(Σ √e)² / n, the sample size of variance-stabilising weights; None without all probabilities."""
        return None if math.isnan(self.roots) else self.roots**2 / max(self.count, 1)

    @property
    def error(self) -> float:
        """The standard error of the mean weight, as if rows were independent."""
        return (
            math.sqrt(max(self.squares / self.count - self.mean**2, 0.0) / self.count)
            if self.count
            else math.nan
        )

    @property
    def mean(self) -> float:
        """The mean weight: 1 except for random variation, if the probabilities are right."""
        return self.total / self.count if self.count else math.nan


def spread_of(rows: WeightedRows) -> Spread:
    """The sums over the weights of some rows."""
    w = np.abs(rows.weight)
    positive = w > 0
    power = np.clip(np.frexp(w[positive])[1] - 1, MIN_POWER, MAX_POWER) - MIN_POWER
    histogram = np.bincount(power, minlength=MAX_POWER - MIN_POWER + 1)
    return Spread(
        len(rows),
        float(rows.weight.sum()),
        float((w * w).sum()),
        float((rows.weight * rows.reward).sum()),
        float(w.max(initial=0.0)),
        int(positive.sum()),
        histogram,
        float(rows.reward.min(initial=np.inf, where=positive)),
        float(rows.reward.max(initial=-np.inf, where=positive)),
        (
            int((positive & (rows.reward == rows.bounds[0])).sum()),
            int((positive & (rows.reward == rows.bounds[1])).sum()),
        ),
        np.nan if rows.propensity is None else float(np.sqrt(rows.propensity).sum()),
    )


@dataclass(frozen=True)
class WeightTest:
    """A test of the mean weight, from weights with p >= 0.01.

    The fields are their sum, its conditional expectation and variance, and the largest possible weight.
    """

    observed: float = 0.0
    expected: float = 0.0
    variance: float = 0.0
    largest: float = 0.0

    def __add__(self, other: WeightTest) -> WeightTest:
        return WeightTest(
            self.observed + other.observed,
            self.expected + other.expected,
            self.variance + other.variance,
            max(self.largest, other.largest),
        )

    @property
    def z(self) -> float | None:
        """The deviation from the expectation, in standard deviations; None without enough data."""
        variance = max(self.variance, 0.0)
        return Score(
            name="", observed=self.observed, expected=self.expected, variance=variance, largest=self.largest
        ).z


def weight_test(rows: WeightedRows) -> WeightTest:
    """The test of the weights of some rows; empty if only the probability of the chosen arm is known."""
    rows = rows.filter(~rows.repeated)
    if rows.probabilities is None or not len(rows):
        return WeightTest()
    p = rows.probabilities
    heavy = p >= TRUNCATION
    target = rows.target_probabilities  # of one position, which is broadcast to all rows, or of several
    if len(target) > 1:
        target = target[rows.target_row]
    expected = np.multiply(target, heavy, order="C").sum(axis=1)
    ratio = np.divide(target * target, p, out=np.zeros_like(p), where=heavy)
    found = np.where(heavy[np.arange(len(rows)), rows.arm], rows.weight, 0.0)
    largest = float(np.divide(np.abs(target), p, out=np.zeros_like(p), where=heavy).max(initial=0.0))
    variance = float((ratio.sum(axis=1) - expected**2).sum())
    return WeightTest(float(found.sum()), float(expected.sum()), variance, largest)


@dataclass(frozen=True, kw_only=True)
class EpochDiagnostics:
    """The weights of one epoch, and its estimate."""

    rows: int
    effective_sample_size: float
    mean_weight: float
    max_weight: float
    snips: float | None


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """What to check before you trust an estimate."""

    rows: int
    "Rows that the estimates use."
    left_out: Mapping[str, int]
    "Rows that they do not use, by reason."
    effective_sample_size: float
    mean_weight: float
    max_weight: float
    positive: int
    "Rows whose arm the target can choose."
    effective_pulls: float | None
    """(Σ √e)² / n, the sample size of aipw-sqrt and aipw-two-point; for a single arm, e is its probability.
    None if the log does not have the probability of every arm."""
    alike: bool
    "Whether all rewards of those rows are equal."
    rare: int | None
    "If these rewards have two values, the ends of their range: the count of the rarer one."
    mean_weight_z: float | None
    "The deviation of the mean weight (p >= 0.01) from 1, in standard deviations; None without enough data."
    mean_weight_error: float
    "The standard error of the mean weight, as if rows were independent."
    audit: str
    "Whether the chosen arms agree with the probabilities: consistent, broken or not enough data."
    unsupported: float
    "The fraction of rows in which an arm of the target could not have been chosen."
    missing: float
    "The fraction of rows whose reward is missing."
    floor: float | None
    "A lower bound, by design, on the probability of each arm of the target."
    adaptive: bool
    "Whether the probabilities changed within the log."
    overlap: list[dict[str, object]]
    epochs: Mapping[int, EpochDiagnostics]
    histogram: Mapping[int, int]
    "The number of weights in [2^k, 2^(k + 1)), by k; weights of 0 are not counted."

    @classmethod
    def of(
        cls,
        spread: Mapping[int, Spread],
        test: WeightTest,
        left_out: Mapping[str, int],
        audit: str,
        overlap: list[dict[str, object]],
        *,
        floor: float | None,
        adaptive: bool,
    ) -> Diagnostics:
        """Diagnostics from the sums over weights by epoch."""
        whole = sum_of(spread)
        unsupported = left_out.get("without support", 0)
        return cls(
            rows=whole.count,
            left_out={why: count for why, count in left_out.items() if count},
            effective_sample_size=whole.effective_size,
            mean_weight=whole.mean,
            max_weight=whole.largest,
            positive=whole.positive,
            effective_pulls=whole.effective_pulls,
            alike=whole.low >= whole.high,
            rare=min(whole.ends) if sum(whole.ends) == whole.positive else None,
            mean_weight_z=test.z,
            mean_weight_error=whole.error,
            audit=audit,
            unsupported=unsupported / max(whole.count + unsupported, 1),
            missing=left_out.get("without a reward", 0)
            / max(whole.count + sum(left_out.values()) - left_out.get("window not closed", 0), 1),
            floor=floor,
            adaptive=adaptive,
            overlap=overlap,
            epochs={
                epoch: EpochDiagnostics(
                    rows=each.count,
                    effective_sample_size=each.effective_size,
                    mean_weight=each.mean,
                    max_weight=each.largest,
                    snips=each.product / each.total if each.total else None,
                )
                for epoch, each in sorted(spread.items())
            },
            histogram={k + MIN_POWER: int(count) for k, count in enumerate(whole.histogram) if count},
        )


def sum_of(spread: Mapping[int, Spread]) -> Spread:
    """The sum over all epochs."""
    nothing = Spread(0, 0.0, 0.0, 0.0, 0.0, 0, np.zeros(MAX_POWER - MIN_POWER + 1, np.int64))
    first, *others = list(spread.values()) or [nothing]
    return sum(others, first)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
