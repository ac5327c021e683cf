"""The quick way: where a log has nothing but arms, their probabilities and rewards, one compiled loop adds up all of it.

It gives what sums.py gives, to rounding, at a tenth of the cost a row; sums.py is its reference. Used where nothing is asked for but
estimators of unshrunken weights, without a model of rewards, a target's positions, or units.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.audit import Audit
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE
from maillard.decisions.files.arrow import pyarrow
from maillard.decisions.files.parquet import ParquetPart
from maillard.decisions.files.table_columns import TableColumns, cast, places_of
from maillard.evaluation.diagnostics import MAX_POWER, MIN_POWER, Overlap, Spread, WeightTest
from maillard.evaluation.log_sums import Asked, Sums, TargetSums, sums_of, total_of
from maillard.evaluation.moments import PRODUCT, REWARD, WEIGHT, Moments
from maillard.evaluation.sequential.kernels import compiled
from maillard.evaluation.weighted_rows import MIN_PROBABILITY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from maillard.decisions.columns import Columns

    Floats = NDArray[np.float64]

__all__ = ["applies", "applies_to", "quick_sums", "scan"]

_ROWS = 1 << 17
# Columns that this way does not look at: a table that has one goes the other.
_UNSEEN = {"eligible", "log_probabilities", "state", "epoch", "position", "origin", "closed", "experiment"}
# What a row adds, w its weight and r its reward from the centre.
_W, _R, _WR, _WW, _RR, _WWR, _WRR, _WWRR, _LARGEST, _POSITIVE, _LOW, _HIGH, _AT_LOW, _AT_HIGH = range(14)
_SIZE = 14


def applies(part: Any, asked: Asked) -> bool:
    """Whether a part of a log, and what is asked of it, can go this way."""
    return (
        isinstance(part, TableColumns)
        and isinstance(part.batches, ParquetPart)
        and "reward" in part.names
        and not _UNSEEN & set(part.names)
        and _plain(asked)
    )


def applies_to(some: Columns, asked: Asked) -> bool:
    """The same for rows that have been read."""
    return (
        some.log_probabilities is None
        and some.eligible is None
        and some.epoch.min() == some.epoch.max()
        and not some.repeated.any()
        and _plain(asked)
    )


def _plain(asked: Asked) -> bool:
    return (
        asked.foreign
        and not asked.requires_closed_windows
        and {each.key for each in asked.estimators} == {("none", None)}
        and all(q.target.positions == 1 and q.model is None and not q.by_unit for q in asked.questions)
    )


def scan(part: TableColumns, asked: Asked) -> Sums | None:
    """The sums of a part of a log; None where it has no rows."""
    made = list(_batches(part, asked))
    if None in made:  # the careful way says which row it is that cannot be, and why
        return total_of(sums_of(some, asked) for some in part() if len(some))
    return total_of(made)


def _batches(part: TableColumns, asked: Asked) -> Iterator[Sums | None]:
    pa = pyarrow()
    arms, logs = pa.array(part.arms, pa.string()), "log_probability" in part.names
    names = ["arm", "log_probability" if logs else "probability", "reward"]
    for batch in part.batches(names, _ROWS):
        chance, reward = (cast(batch, name, part.source).to_numpy(zero_copy_only=False) for name in names[1:])
        yield _sums(places_of(batch.column("arm"), arms), np.exp(chance) if logs else chance, reward, asked)


def quick_sums(some: Columns, asked: Asked) -> Sums | None:
    """The sums of rows that have been read; None where the careful way has to say what is wrong with them."""
    return _sums(some.arm, np.exp(some.log_probability), some.reward, asked, int(some.epoch[0]))


def _sums(
    arm: NDArray[np.int64], chance: Floats, reward: Floats, asked: Asked, epoch: int = 0
) -> Sums | None:
    laws = np.stack([question.target.laws[0] for question in asked.questions])
    low, high = asked.reward_range or (-np.inf, np.inf)
    n, k, centre = arm.size, len(asked.arms), asked.questions[0].centre
    sums, ends = np.zeros((len(laws), _SIZE)), asked.questions[0].ends
    sums[:, [_LOW, _HIGH]] = np.inf, -np.inf
    histogram = np.zeros((len(laws), MAX_POWER - MIN_POWER + 1), np.int64)
    overlap = np.array([np.full(k, n), np.zeros(k), np.full(k, np.nan), np.full(k, np.inf), np.zeros(k)])
    # A cached kernel freezes the globals that it reads: constants of other modules are arguments.
    limits, powers = (low, high, MIN_PROBABILITY, 1.0 + LOG_PROBABILITY_TOLERANCE), (MIN_POWER, MAX_POWER)
    if not _add(arm, chance, reward, laws, centre, ends, limits, powers, sums, histogram, overlap):
        return None
    with np.errstate(divide="ignore"):
        chances = {0: np.log(overlap[3:])}
    targets = tuple(
        TargetSums(
            {epoch: _spread(n, each, counts, centre)},
            {("none", None): _moments(n, each)},
            WeightTest(),
            Counter(),
        )
        for each, counts in zip(sums, histogram, strict=True)
    )
    return Sums(n, False, False, 0, Counter(), Audit(), Overlap({epoch: overlap[:4]}), chances, targets)


@compiled
def _add(  # noqa: PLR0917  # compiled functions take no keywords
    arm: NDArray[np.int64],
    chance: Floats,
    reward: Floats,
    laws: Floats,
    centre: float,
    ends: tuple[float, float],
    limits: tuple[float, float, float, float],
    powers: tuple[int, int],
    sums: Floats,
    histogram: NDArray[np.int64],
    overlap: Floats,
) -> bool:
    """Add up rows; false where one of them cannot be."""
    low, high, min_probability, max_probability = limits
    min_power, max_power = powers
    for i in range(arm.size):
        a, p, r = arm[i], chance[i], reward[i]
        if (
            a < 0
            or a >= overlap.shape[1]
            or not (min_probability < p <= max_probability)
            or not (low <= r <= high)
            or r - r != 0.0
        ):
            return False
        overlap[1, a] += 1.0
        overlap[3, a] = min(overlap[3, a], p)
        overlap[4, a] = max(overlap[4, a], p)
        r -= centre
        for t in range(laws.shape[0]):
            w = laws[t, a] / p
            row = sums[t]
            row[_R] += r
            row[_RR] += r * r
            if w == 0.0:
                continue
            row[_W] += w
            row[_WR] += w * r
            row[_WW] += w * w
            row[_WWR] += w * w * r
            row[_WRR] += w * r * r
            row[_WWRR] += w * w * r * r
            row[_LARGEST] = max(row[_LARGEST], w)
            row[_POSITIVE] += 1.0
            row[_LOW] = min(row[_LOW], reward[i])
            row[_HIGH] = max(row[_HIGH], reward[i])
            row[_AT_LOW] += reward[i] == ends[0]
            row[_AT_HIGH] += reward[i] == ends[1]
            power = int(np.floor(np.log2(w)))
            histogram[t, min(max(power, min_power), max_power) - min_power] += 1
    return True


def _spread(count: int, sums: Floats, histogram: NDArray[np.int64], centre: float) -> Spread:
    w, ww, product = float(sums[_W]), float(sums[_WW]), float(sums[_WR] + centre * sums[_W])
    ends = int(sums[_AT_LOW]), int(sums[_AT_HIGH])
    most, positive = float(sums[_LARGEST]), int(sums[_POSITIVE])
    return Spread(
        count, w, ww, product, most, positive, histogram, float(sums[_LOW]), float(sums[_HIGH]), ends
    )


def _moments(count: int, sums: Floats) -> Moments:
    """Of w, w r and r."""
    w, r, wr, ww, rr, wwr, wrr, wwrr = sums[:_LARGEST]
    places = [WEIGHT, PRODUCT, REWARD]
    first = np.array([w, wr, r]) / count
    second = np.array([[ww, wwr, wr], [wwr, wwrr, wrr], [wr, wrr, rr]])
    mean, scatter = np.zeros(5), np.zeros((5, 5))
    mean[places] = first
    scatter[np.ix_(places, places)] = second - np.outer(first, first) * count
    return Moments(count, mean, scatter)
