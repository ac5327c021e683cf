"""Diagnostics of an evaluation: the distribution of the weights, and the overlap of target and log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.decisions.audit import TRUNCATION, Score
from maillard.decisions.columns import Columns
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.mergeable_sums import MergeableSums, merged
from maillard.evaluation.query import Query
from maillard.evaluation.term_sums import ConstancyTest, arms_p_value, constancy_test, skewness
from maillard.evaluation.weighted_rows import WeightedRows

if TYPE_CHECKING:
    from maillard.evaluation.log_sums import LogSums

_MIN_LATE, _MAX_LATE_CHANGE = 5, 0.1  # late rewards of an arm, and how much of its mean they may change
ALL_ACTIONS = "all actions"
MIN_POWER, MAX_POWER = -10, 30  # powers of two between which weights are counted


Rows = TypeVar("Rows", Columns, WeightedRows)


def parts_by_epoch(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """The rows of each epoch; without a copy if there is only one."""
    if len(rows) and rows.epoch.min() == rows.epoch.max():
        yield int(rows.epoch[0]), rows
        return
    for epoch in np.unique(rows.epoch).tolist():
        yield epoch, rows.filter(rows.epoch == epoch)


def overlap_of(columns: Columns, arms: int) -> dict[int, Floats]:
    """By epoch, for each arm: rows in which it was eligible, how often it was chosen, Σ p, the smallest p.

    If the log has only the probabilities of chosen arms, Σ p is NaN and the smallest p is that of chosen
    arms.
    """
    found = {}
    for epoch, part in parts_by_epoch(columns):
        eligible = np.full(arms, len(part)) if part.eligible is None else part.eligible.sum(axis=0)
        if part.probabilities is None or not part.has_all_probabilities:
            total, least = np.full(arms, np.nan), np.full(arms, np.inf)
            np.minimum.at(least, part.arm, part.probability)
        else:
            p, can = part.probabilities, True if part.eligible is None else part.eligible
            total, least = p.sum(axis=0), np.min(p, axis=0, initial=np.inf, where=can)
        chosen = np.bincount(part.arm, minlength=arms)
        found[epoch] = np.array([eligible, chosen, total, least])
    return found


def merge_overlaps(one: Mapping[int, Floats], other: Mapping[int, Floats]) -> dict[int, Floats]:
    """The overlap in the rows of both."""
    return merged(one, other, lambda a, b: np.vstack([a[:3] + b[:3], np.minimum(a[3], b[3])]))


def _overlap_table(overlap: Mapping[int, Floats], arms: Sequence[str]) -> list[dict[str, object]]:
    """A dictionary for each epoch and arm."""
    return [
        {
            "epoch": epoch,
            "arm": arm,
            "rows": int(eligible),
            "chosen": int(chosen),
            "mean_probability": _number(total / eligible),
            "smallest_probability": _number(least),
        }
        for epoch, table in sorted(overlap.items())
        for arm, (eligible, chosen, total, least) in zip(arms, table.T, strict=True)
        if eligible
    ]


@dataclass(frozen=True, eq=False)
class Spread(MergeableSums):
    """Sums over weights: count, Σ w, Σ w², Σ w r, the largest, the number above 0, a histogram."""

    count: int
    total: float
    squares: float
    product: float
    largest: float
    positive: int
    histogram: Ints
    low: float = np.inf
    high: float = -np.inf
    "The smallest and largest reward with a positive weight."
    at_low: int = 0
    at_high: int = 0
    "How many of those rewards are at either end of the reward range."
    roots: float = np.nan
    "Σ √e, e = 1 / Σ π² / p; NaN without the probabilities of all arms."
    merge_by: ClassVar = {"largest": max, "low": min, "high": max}

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
        if not self.count:
            return math.nan
        return math.sqrt(max(self.squares / self.count - self.mean**2, 0.0) / self.count)

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
        int((positive & (rows.reward == rows.bounds[0])).sum()),
        int((positive & (rows.reward == rows.bounds[1])).sum()),
        np.nan if rows.propensity is None else float(np.sqrt(rows.propensity).sum()),
    )


@dataclass(frozen=True, eq=False)
class WeightTest(MergeableSums):
    """A test of the mean weight, from weights with p >= 0.01.

    The fields are their sum, its conditional expectation and variance, and the largest possible weight.
    """

    observed: float = 0.0
    expected: float = 0.0
    variance: float = 0.0
    largest: float = 0.0
    merge_by: ClassVar = {"largest": max}

    @property
    def z(self) -> float | None:
        """The deviation from the expectation, in standard deviations; None without enough data."""
        sums = vars(self) | {"variance": max(self.variance, 0.0)}
        return Score(name="", **sums).z


def weight_test(rows: WeightedRows) -> WeightTest:
    """The test of the weights of some rows; empty if only the probability of the chosen arm is known."""
    rows = rows.filter(~rows.repeated)
    if rows.probabilities is None or not len(rows):
        return WeightTest()
    of_chosen = rows.probabilities[np.arange(len(rows)), rows.arm]
    observed = np.where(of_chosen >= TRUNCATION, rows.weight, 0.0).sum()
    arms = rows.target_probabilities.any(axis=0)  # the other arms add nothing
    p, target = rows.probabilities.T[arms].T, rows.target_probabilities[:, arms]
    if len(target) > 1:  # otherwise the only position is broadcast to all rows
        target = target[rows.target_row]
    heavy = p >= TRUNCATION
    expected = (target * heavy).sum(axis=1)
    weight = np.divide(np.abs(target), p, out=np.zeros_like(p), where=heavy)
    variance = (weight * np.abs(target)).sum() - (expected * expected).sum()
    return WeightTest(float(observed), float(expected.sum()), float(variance), float(weight.max(initial=0.0)))


@dataclass(frozen=True, kw_only=True)
class LateRewards:
    """The rewards of an arm, and what they would be if those after the window counted."""

    count: int
    "Decisions with late rewards."
    mean: float
    "The mean reward, without weights."
    mean_with_late: float

    @property
    def change(self) -> float:
        """How much the mean would change."""
        return abs(self.mean_with_late - self.mean)

    @property
    def matter(self) -> bool:
        """Whether late rewards would change the mean by more than a tenth, and are not just a few."""
        return self.count >= _MIN_LATE and self.change > _MAX_LATE_CHANGE * abs(self.mean)


def _late_rewards(sums: Floats | None, log: EvaluationLog) -> dict[str, LateRewards]:
    if sums is None or not sums[:, 2].any():
        return {}
    arms: Sequence[str] = log.arms
    if log.action_names is not None:  # a rank is no arm whose mean could be compared
        sums, arms = sums.sum(axis=0, keepdims=True), [ALL_ACTIONS]
    return {
        arm: LateRewards(count=int(late), mean=total / rows, mean_with_late=with_late / rows)
        for arm, (rows, total, late, with_late) in zip(arms, sums.tolist(), strict=True)
        if rows
    }


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
    "How many of these rewards differ from the most common end of their range: for clicks, the rarer value."
    binary: bool
    "Whether all of these rewards are at either end of their range, such as 0 and 1."
    mean_weight_z: float | None
    "The deviation of the mean weight (p >= 0.01) from 1, in standard deviations; None without enough data."
    mean_weight_error: float
    "The standard error of the mean weight, as if rows were independent."
    audit: str
    """Whether the chosen arms agree with the probabilities: consistent, broken, not enough data, or cannot be
    audited (the log has only the probabilities of chosen arms)."""
    faults: list[str]
    "The likely faults of the program that wrote the log, in words."
    unsupported: float
    "The fraction of rows in which an arm of the target could not have been chosen."
    missing: float
    "The fraction of rows whose reward is missing."
    floor: float | None
    "A lower bound, by design, on the probability of each arm of the target."
    adaptive: bool
    "Whether the probabilities changed within the log."
    design_effect: float | None
    "How much dependence within units raises the variance; None if no unit has several rows."
    filled: float
    "The fraction of rows whose missing rewards were replaced by the ends of their range."
    late: Mapping[str, LateRewards]
    "By arm, the rewards that arrived after the window had closed."
    constancy: ConstancyTest | None
    "The test whether the target's value was the same in all quarters of the log; None if it cannot be made."
    skewness: float | None
    "Of the residuals w (r - v). Normal intervals need more than 25 skewness² rows (Cochran)."
    overlap: list[dict[str, object]]
    epochs: Mapping[int, EpochDiagnostics]
    histogram: Mapping[int, int]
    "The number of weights in [2^k, 2^(k + 1)), by k; weights of 0 are not counted."

    @property
    def open(self) -> int:
        """The number of decisions that are not used because their reward windows are open."""
        return self.left_out.get("window not closed", 0)

    @classmethod
    def of(cls, log: EvaluationLog, query: Query, sums: LogSums, place: int) -> Diagnostics:
        """Diagnostics of the query's target at this place, from the sums of the log."""
        found, floors, adaptive = sums.targets[place], log.floor_probabilities, query.settings.adaptive
        whole, left_out = _sum_of(found.spread), sums.left_out + found.left_out
        at_ends, chosen_arms = (whole.at_low, whole.at_high), query.targets[place].chosen_arms
        unsupported = left_out.get("without support", 0)
        effect = None if found.units is None else found.units.design_effect()
        over_arms = 1.0 if sums.arm_quarters is None else arms_p_value(sums.arm_quarters, effect or 1.0)
        return cls(
            rows=whole.count,
            left_out={why: count for why, count in left_out.items() if count},
            effective_sample_size=whole.effective_size,
            mean_weight=whole.mean,
            max_weight=whole.largest,
            positive=whole.positive,
            effective_pulls=whole.effective_pulls,
            alike=whole.low >= whole.high,
            rare=whole.positive - max(at_ends) if whole.positive else None,
            binary=0 < whole.positive == sum(at_ends),
            mean_weight_z=found.test.z,
            mean_weight_error=whole.error,
            audit=sums.verdict(),
            faults=sums.faults,
            unsupported=unsupported / max(whole.count + unsupported, 1),
            missing=left_out.get("without a reward", 0)
            / max(whole.count + sum(left_out.values()) - left_out.get("window not closed", 0), 1),
            floor=None if floors is None else float(floors[chosen_arms].min(initial=1.0)),
            adaptive=(not sums.constant) if adaptive is None else adaptive,
            design_effect=effect,
            filled=sums.filled / max(sums.rows, 1),
            late=_late_rewards(sums.late, log),
            constancy=None
            if found.terms is None
            else constancy_test(found.terms, log.center, over_arms, effect or 1.0),
            skewness=None if found.terms is None else skewness(found.terms),
            overlap=_overlap_table(sums.overlap, log.arms),
            epochs={
                epoch: EpochDiagnostics(
                    rows=each.count,
                    effective_sample_size=each.effective_size,
                    mean_weight=each.mean,
                    max_weight=each.largest,
                    snips=each.product / each.total if each.total else None,
                )
                for epoch, each in sorted(found.spread.items())
            },
            histogram={k + MIN_POWER: int(count) for k, count in enumerate(whole.histogram) if count},
        )


def _sum_of(spread: Mapping[int, Spread]) -> Spread:
    """The sum over all epochs."""
    nothing = Spread(0, 0.0, 0.0, 0.0, 0.0, 0, np.zeros(MAX_POWER - MIN_POWER + 1, np.int64))
    first, *others = list(spread.values()) or [nothing]
    return sum(others, first)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def share_text(share: float) -> str:
    """Return a positive share as a percentage, never as 0.

    >>> share_text(0.25), share_text(0.0001)
    ('25.0%', 'less than 0.1%')
    """
    return "less than 0.1%" if share < 0.001 else f"{share:.1%}"
