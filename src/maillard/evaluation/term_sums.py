"""Sums of powers of weighted rewards in each quarter of a log, to test for constant means and for skewness.

For the rows of quarter q with weights w and rewards r (minus the center), the sums are of w^i r^j. With the
value v of the target, the residuals w (r - v) have mean 0 given the past if the means of the arms are
constant. So Σ_q w (r - v) is close to normal with variance Σ_q w² (r - v)², and the sum of squares of its
standardised values is close to chi-square.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.columns import Columns
from maillard.evaluation.weighted_rows import WeightedRows

QUARTERS = 4
_ROWS, _W, _WR, _W2, _W2R, _W2R2, _W3, _W3R, _W3R2, _W3R3 = range(10)
_MIN_EFFECTIVE = 10.0  # effective rows of a quarter, from which its mean is used
_LEVEL = 0.005  # of each of the two tests for constant means
_MIN_CELL = 5.0  # rewards of an arm in a quarter, from which they are used


@dataclass(frozen=True)
class ConstancyTest:
    """A test whether the value of the target was the same in all quarters of the log."""

    p_value: float
    "Of the target's value in the quarters; 1 if it cannot be tested."
    arms_p_value: float
    "Of the means of all arms in the quarters, which is the stronger test if the target's arms are rare."
    values: tuple[float | None, ...]
    "The estimated value in each quarter; None for quarters with too few rows."
    errors: tuple[float | None, ...]
    "Their standard errors."

    @property
    def changed(self) -> bool:
        """Whether constant means are rejected, which happens by chance in at most 1 of 100 logs."""
        return min(self.p_value, self.arms_p_value) < _LEVEL


def term_sums(rows: WeightedRows, size: int) -> Floats:
    """The sums of some rows, in log order, of a log with `size` rows: quarters x sums."""
    ends = np.searchsorted(rows.row, [1 + quarter * size // QUARTERS for quarter in range(1, QUARTERS)])
    parts = [slice(*ends_of) for ends_of in pairwise([0, *ends.tolist(), len(rows)])]
    w, r = rows.weight, rows.reward - rows.center
    wr = w * r
    ww, wwr, wwrr = w * w, w * wr, wr * wr
    terms = (w, wr, ww, wwr, wwrr, ww * w, ww * wr, wwr * wr, wwrr * wr)
    return np.array(
        [[part.stop - part.start, *(each[part].sum() for each in terms)] for part in parts], np.float64
    )


def arm_sums(columns: Columns, arms: int, size: int, center: float) -> Floats:
    """By arm and quarter: the number of rewards, their sum and the sum of their squares, minus the center.

    In each quarter, only rows with the most common set of eligible arms count. Otherwise those who saw an arm
    may differ over time.
    """
    chosen = columns.filter(~np.isnan(columns.reward) & ~columns.repeated)
    quarter = quarters_of(chosen.row, size)
    if chosen.eligible is not None:
        usual = _has_usual_arms(chosen.eligible, quarter)
        chosen, quarter = chosen.filter(usual), quarter[usual]
    r, cell = chosen.reward - center, chosen.arm * QUARTERS + quarter
    sums = [np.bincount(cell, weights=each, minlength=arms * QUARTERS) for each in (None, r, r * r)]
    return np.stack(sums, axis=1).astype(np.float64).reshape(arms, QUARTERS, 3)


def quarters_of(row: Ints, size: int) -> Ints:
    """The quarter of each row of a log with `size` rows: 0 to 3.

    >>> quarters_of(np.array([1, 2, 3, 4, 5]), 5).tolist()
    [0, 0, 1, 2, 3]
    """
    if row.size > 2:  # divisions are slow, and most batches of a long log are in one quarter
        first, last = quarters_of(np.array([row.min(), row.max()]), size)
        if first == last:
            return np.full(row.size, first)
    return np.clip(QUARTERS * (row - 1) // max(size, 1), 0, QUARTERS - 1)


def _has_usual_arms(eligible: Bools, quarter: Ints) -> Bools:
    """Whether each row has the set of eligible arms that is the most common one in its quarter."""
    keys = np.random.default_rng(0).integers(1, 2**53, eligible.shape[1])
    code, usual = eligible @ keys, np.zeros(quarter.size, np.bool_)
    for each in np.unique(quarter):
        sets, counts = np.unique(code[quarter == each], return_counts=True)
        usual |= (quarter == each) & (code == sets[counts.argmax()])
    return usual


@np.errstate(all="ignore")
def arms_p_value(sums: Floats, inflation: float = 1.0) -> float:
    """The p-value of constant means of all arms; `inflation` is that of the variance (a design effect).

    The rewards of an arm are a martingale difference sequence whenever it is chosen, so they need no weights.
    """
    from scipy.special import gammaincc

    count, total, squares = (sums[:, :, place] for place in range(3))
    used = count >= _MIN_CELL
    count, total = np.where(used, count, 0.0), np.where(used, total, 0.0)
    rows = count.sum(axis=1, keepdims=True)
    mean = total.sum(axis=1, keepdims=True) / rows
    variance = np.where(used, squares, 0.0).sum(axis=1, keepdims=True) / rows - mean**2
    terms = (total - count * mean) ** 2 / (count * variance)
    tested = used & (variance > 0) & np.isfinite(terms) & (used.sum(axis=1, keepdims=True) > 1)
    freedom = float(np.maximum(tested.sum(axis=1) - 1, 0).sum())
    if not freedom:
        return 1.0
    return float(gammaincc(freedom / 2, terms[tested].sum() / max(inflation, 1.0) / 2))


@np.errstate(all="ignore")  # sums of large weights overflow
def skewness(sums: Floats) -> float | None:
    """The skewness of the residuals w (r - v); None without variation."""
    total = sums.sum(axis=0)
    if not total[_W] > 0:
        return None
    v, n = total[_WR] / total[_W], total[_ROWS]
    second = total[_W2R2] - 2 * v * total[_W2R] + v * v * total[_W2]
    third = total[_W3R3] - 3 * v * total[_W3R2] + 3 * v * v * total[_W3R] - v**3 * total[_W3]
    found = float(third / n / (second / n) ** 1.5)
    return found if np.isfinite(found) else None


@np.errstate(all="ignore")
def constancy_test(
    sums: Floats, center: float, arms_p_value: float, inflation: float = 1.0
) -> ConstancyTest | None:
    """The test for constant means; None if nothing can be tested."""
    from scipy.special import gammaincc

    effective = np.where(sums[:, _W2] > 0, sums[:, _W] ** 2 / sums[:, _W2], 0.0)
    used = np.flatnonzero(effective >= _MIN_EFFECTIVE)
    untested = ConstancyTest(1.0, arms_p_value, (None,) * QUARTERS, (None,) * QUARTERS)
    if used.size < 2:
        return untested if arms_p_value < 1.0 else None
    part = sums[used]
    pooled = part[:, _WR].sum() / part[:, _W].sum()
    for _ in range(3):  # the common value, weighted by precision, and the variances given that value
        own = part[:, _W2R2] - 2 * pooled * part[:, _W2R] + pooled**2 * part[:, _W2]
        # A quarter without successes seems to have no variance: use at least that of all quarters.
        variance = np.maximum(own, part[:, _W2] * own.sum() / part[:, _W2].sum())
        if not ((variance > 0) & np.isfinite(variance)).all():
            return untested if arms_p_value < 1.0 else None
        precision = part[:, _W] ** 2 / variance
        pooled = (part[:, _WR] / part[:, _W] * precision).sum() / precision.sum()
    squares = (part[:, _WR] - pooled * part[:, _W]) ** 2 / variance
    p_value = float(gammaincc((used.size - 1) / 2, squares.sum() / max(inflation, 1.0) / 2))
    values: list[float | None] = [None] * QUARTERS
    errors: list[float | None] = [None] * QUARTERS
    for place, row, each in zip(used.tolist(), part, variance.tolist(), strict=True):
        values[place] = float(row[_WR] / row[_W]) + center
        errors[place] = float(np.sqrt(each) / row[_W])
    return ConstancyTest(p_value, arms_p_value, tuple(values), tuple(errors))
