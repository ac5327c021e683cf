"""Statistics of replays: from the rewards that they collected to a learning curve with its interval."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from maillard.array_types import Floats, Ints

LOGS, PARTS, CHOICES = "independent logs", "parts of the log", "choices made"
MIN_PARTS = 5  # logs or parts that Student's t needs


class PartTotals(NamedTuple):
    """What the replays on one part of the rows collected, as arrays of replay x checkpoint."""

    sums: Floats
    "Sums of rewards."
    variances: Floats
    "Sums of the reward variances of the chosen arms."
    lengths: Ints
    "The number of rounds of each replay."


class CurveEstimate(NamedTuple):
    """The mean reward of the first n rounds, at each checkpoint n."""

    least: Floats
    most: Floats
    "Bounds on the estimate; where both are equal, the estimate itself."
    lower: Floats
    upper: Floats
    reached: Floats
    "The fraction of the replays that reached round n."


def interval_basis(logs: int, parts: int) -> str:
    """Whether the interval is computed over logs, over parts of them, or from the choices made."""
    return LOGS if logs >= MIN_PARTS else PARTS if parts >= MIN_PARTS else CHOICES


def summarise(
    parts: Sequence[PartTotals],
    rounds: Ints,
    basis: str,
    *,
    queued: bool,
    reward_range: tuple[float, float] | None,
    confidence: float,
) -> CurveEstimate:
    """The learning curve: the mean over parts of the mean over their replays.

    With rejection and matching, the mean is over the replays that reached round n. Whether a replay reached
    it is independent of its rewards, because each row is accepted with a constant probability. With queues,
    all replays count. The rounds after a queue ran out get the smallest reward in the lower bound and the
    largest reward in the upper bound.
    """
    low, high, noise, reached = [], [], [], []
    for part in parts:
        missing = np.maximum(rounds - part.lengths[:, None], 0)
        reached.append(missing == 0)
        if queued:
            worst, best = reward_range or (0.0, 0.0)  # without a range, no round may be missing
            low.append((part.sums + worst * missing) / rounds)
            high.append((part.sums + best * missing) / rounds)
            noise.append(part.variances + missing * (best - worst) ** 2 / 4)
        else:
            low.append(np.where(missing == 0, part.sums, np.nan) / rounds)
            high.append(low[-1])
            noise.append(np.where(missing == 0, part.variances, np.nan))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a round that no replay reached has no mean
        half = _martingale_half_width(noise, rounds, confidence) if basis == CHOICES else None
        least, below = _mean_and_half_width(low, half, confidence)
        most, above = _mean_and_half_width(high, half, confidence)
        lower, upper = least - below, most + above
        if reward_range is not None:
            lower, upper = np.clip(lower, *reward_range), np.clip(upper, *reward_range)
    return CurveEstimate(least, most, lower, upper, np.concatenate(reached).mean(axis=0))


def _mean_and_half_width(
    values: Sequence[Floats], half: Floats | None, confidence: float
) -> tuple[Floats, Floats]:
    """The mean over parts, and the half-width of its interval.

    The half-width is `half` if given, otherwise that of Student's t over the means of the parts. Given all
    earlier rows, the expected mean of a part is that of the policy. So the errors of the parts are martingale
    differences, which are uncorrelated like those of independent logs.
    """
    from scipy.special import stdtrit

    means = np.array([np.nanmean(each, axis=0) for each in values])
    centre = np.nanmean(means, axis=0)
    if half is None:
        count = np.isfinite(means).sum(axis=0)
        error = np.nanstd(means, axis=0, ddof=1) / np.sqrt(count)
        half = -stdtrit(np.maximum(count - 1, 1), (1.0 - confidence) / 2) * error
    # Equal rewards do not show how much rewards vary, so a width of 0 becomes infinite.
    return centre, np.where(half > 0, half, np.where(np.isnan(centre), np.nan, np.inf))


def _martingale_half_width(noise: Sequence[Floats], rounds: Ints, confidence: float) -> Floats:
    """The half-width z √(Σ σ²(arm)) / n, summed over the choices made.

    It uses the martingale variance of one replay, an upper bound on the variance of the mean over replays.
    """
    from scipy.special import ndtri

    variance = np.sum([np.nanmean(each, axis=0) for each in noise], axis=0) / len(noise) ** 2
    return np.asarray(-float(ndtri((1.0 - confidence) / 2)) * np.sqrt(variance) / rounds)
