"""From what replays collected to a curve with its interval. Formulas only."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]

__all__ = [
    "CHOICES",
    "LOGS",
    "MIN_PARTS",
    "PARTS",
    "CurveEstimate",
    "PartTotals",
    "interval_basis",
    "summarise",
]

LOGS, PARTS, CHOICES = "independent logs", "parts of the log", "choices made"
MIN_PARTS = 5  # logs or stretches for Student's t


class PartTotals(NamedTuple):
    """What the replays on one part of the rows collected: arrays of replay x checkpoint."""

    sums: Floats
    "Of rewards."
    variances: Floats
    "Of the variances of the arms that were played."
    lengths: Places
    "How many rounds each had."


class CurveEstimate(NamedTuple):
    """At each checkpoint n, of the mean reward of the first n rounds."""

    least: Floats
    most: Floats
    "Where both are the same, the estimate; else what it is between."
    lower: Floats
    upper: Floats
    reached: Floats
    "Of the replays that got to round n."


def interval_basis(logs: int, parts: int) -> str:
    """What the interval is over: logs, or stretches of them, where there are enough."""
    return LOGS if logs >= MIN_PARTS else PARTS if parts >= MIN_PARTS else CHOICES


def summarise(
    parts: Sequence[PartTotals],
    rounds: Places,
    kind: str,
    *,
    queued: bool,
    reward_range: tuple[float, float] | None,
    confidence: float,
) -> CurveEstimate:
    """The curve, as the mean over parts of the mean over their replays.

    Thinned rows: of the replays that got to round n. Whether one did is independent of what it saw, as each row is accepted with
    one constant probability. Queues: rounds after a queue is empty count as the least reward in the lower bound and as the most in
    the upper, so that every replay counts (FORMULAS D, queue replay).
    """
    low, high, noise, there = [], [], [], []
    for part in parts:
        missing = np.maximum(rounds - part.lengths[:, None], 0)
        there.append(missing == 0)
        if queued:
            worst, best = reward_range or (0.0, 0.0)  # without a range, nothing may be missing
            low.append((part.sums + worst * missing) / rounds)
            high.append((part.sums + best * missing) / rounds)
            noise.append(part.variances + missing * (best - worst) ** 2 / 4)
        else:
            low.append(np.where(missing == 0, part.sums, np.nan) / rounds)
            high.append(low[-1])
            noise.append(np.where(missing == 0, part.variances, np.nan))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a round that no replay got to has no mean
        half = _half_within(noise, rounds, confidence) if kind == CHOICES else None
        least, below = _centre_and_half(low, half, confidence)
        most, above = _centre_and_half(high, half, confidence)
        lower, upper = least - below, most + above
        if reward_range is not None:
            lower, upper = np.clip(lower, *reward_range), np.clip(upper, *reward_range)
    return CurveEstimate(least, most, lower, upper, np.concatenate(there).mean(axis=0))


def _centre_and_half(
    values: Sequence[Floats], half: Floats | None, confidence: float
) -> tuple[Floats, Floats]:
    """The mean over parts, and half the width of its interval: as given, or Student's t over the parts' own means.

    Given all that came before it in the log, a stretch's mean has the policy's expectation: the errors are martingale
    differences, uncorrelated as those of logs are independent.
    """
    from scipy.special import stdtrit

    means = np.array([np.nanmean(each, axis=0) for each in values])
    centre = np.nanmean(means, axis=0)
    if half is None:
        count = np.isfinite(means).sum(axis=0)
        error = np.nanstd(means, axis=0, ddof=1) / np.sqrt(count)
        half = -stdtrit(np.maximum(count - 1, 1), (1.0 - confidence) / 2) * error
    # Rewards that are all alike say nothing about how they vary.
    return centre, np.where(half > 0, half, np.where(np.isnan(centre), np.nan, np.inf))


def _half_within(noise: Sequence[Floats], rounds: Places, confidence: float) -> Floats:
    """z √(Σ σ²(arm)) / n over the choices made: the martingale variance of one replay, than which their mean has no more."""
    from scipy.special import ndtri

    variance = np.sum([np.nanmean(each, axis=0) for each in noise], axis=0) / len(noise) ** 2
    half: Floats = -float(ndtri((1.0 - confidence) / 2)) * np.sqrt(variance) / rounds
    return half
