"""The parts of binomial supports that decide the probabilities of arms that are rarely the largest.

Such an arm is the largest at scores between its own and those of the leaders. Large deviations give a rough
approximation of where: ln P(J = j) is about -D(j), with D the divergence of m coins from their bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from maillard.array_types import Bools, Floats, Indices, Ints

if TYPE_CHECKING:
    from maillard.policies.numerics.support_cells import BinomialScores

_RARE = -30.0  # rough log probability of an arm that needs a window
_DEPTH = 60.0  # a window ends where the logarithm is lower by this; the approximation is off by a few units
_TAIL = 45.0  # points below it are listed as far as their mass matters
_STEPS = 28  # of a search in thirds
_HALVINGS = 18
_SPREAD = 12.0
_MOST_ARMS = 256


def rare_windows(scores: BinomialScores, copies: Floats, most: int) -> list[tuple[int, int, int]]:
    """Return component, first J and last J of ranges that together have at most about `most` points."""
    if copies.size > _MOST_ARMS:
        return []
    order = np.argsort(scores.arm, kind="stable")
    scores = type(scores)(*(getattr(scores, each.name)[order] for each in fields(scores)))
    mean = (scores.offset + scores.trials * scores.probability) / scores.size
    start = np.flatnonzero(np.diff(scores.arm, prepend=-1))
    top = np.maximum.reduceat((scores.offset + scores.trials) / scores.size, start)
    own = np.minimum.reduceat(mean, start)
    arms = np.flatnonzero(own < mean.max())
    logs = _Logs(scores, copies, start, arms)
    low, high = own[arms], np.maximum(np.minimum(top[arms], mean.max()), own[arms])
    for _ in range(_STEPS):
        third = (high - low) / 3.0
        rising = logs(low + third) <= logs(high - third)
        low, high = np.where(rising, low + third, low), np.where(rising, high, high - third)
    peak = 0.5 * (low + high)
    height = logs(peak)
    floor = height - _DEPTH
    left = _bisect(lambda x: logs(x) > floor, peak, np.zeros(arms.size))
    right = _bisect(lambda x: logs(x) > floor, peak, np.maximum(top[arms], peak))
    rare = np.flatnonzero((height < _RARE) & (height > -np.inf))
    found: list[tuple[int, int, int]] = []
    unit = np.maximum(np.sqrt(scores.trials * scores.probability * (1.0 - scores.probability)), 1.0)
    for i in rare[np.argsort(-height[rare])].tolist():
        first = _lower_end(scores, float(left[i]))
        upper = np.where(scores.arm == arms[i], np.inf, scores.trials * scores.probability + _SPREAD * unit)
        last = np.ceil(np.minimum(right[i] * scores.size - scores.offset, upper)) + 1.0
        first, last = np.maximum(first, 0.0), np.minimum(last, scores.trials)
        some = np.flatnonzero((last > first) & (upper > left[i] * scores.size - scores.offset))
        most -= int((last - first)[some].sum())
        if most < 0:
            break
        found += zip(
            order[some].tolist(),
            first[some].astype(int).tolist(),
            last[some].astype(int).tolist(),
            strict=True,
        )
    return found


class _Logs:
    """Rough logarithms of the terms of each arm's probability, by the score of the arm."""

    def __init__(self, scores: BinomialScores, copies: Floats, start: Indices, arms: Indices) -> None:
        self._scores, self._copies, self._start, self._arms = scores, copies, start, arms

    def __call__(self, x: Floats) -> Floats:
        each = self._scores
        columns = each.trials[:, None], each.probability[:, None], each.size[:, None], each.offset[:, None]
        divergence, above = _divergence(x, *columns)
        divergence -= np.log(self._scores.weight)[:, None]
        masses = np.minimum.reduceat(divergence, self._start)
        below = np.minimum.reduceat(np.where(above, 0.0, divergence), self._start)
        place = np.arange(self._arms.size)
        with np.errstate(invalid="ignore"):
            log: Floats = -masses[self._arms, place] + below[self._arms, place] - self._copies @ below
        return np.where(np.isnan(log), -np.inf, log)


def _divergence(x: Floats, trials: Ints, p: Floats, size: Ints, offset: Floats) -> tuple[Floats, Bools]:
    """Return D at each score, inf outside of the support, and whether the score is above the mean."""
    j = x * size - offset
    rest = trials - j
    with np.errstate(all="ignore"):
        ones = np.where(j > 0.0, j * np.log(j / (trials * p)), 0.0)
        zeros = np.where(rest > 0.0, rest * np.log(rest / (trials * (1.0 - p))), 0.0)
        divergence = np.maximum(ones + zeros, 0.0)
    outside = (j < 0.0) | (rest < 0.0) | np.isnan(divergence)
    return np.where(outside, np.inf, divergence), j >= trials * p


def _bisect(inside: Callable[[Floats], Bools], start: Floats, end: Floats) -> Floats:
    """Return points between start, which is inside, and end, just outside."""
    near, far = start, end
    for _ in range(_HALVINGS):
        middle = 0.5 * (near + far)
        within = inside(middle)
        near, far = np.where(within, middle, near), np.where(within, far, middle)
    return far


def _lower_end(scores: BinomialScores, x: float) -> Floats:
    """Return the J of each component below which its mass does not matter for scores above x."""
    columns = scores.trials, scores.probability, scores.size, scores.offset
    at = np.minimum(x, (scores.offset + scores.trials * scores.probability) / scores.size)
    level = _divergence(at, *columns)[0] + _TAIL
    end = _bisect(lambda y: _divergence(y, *columns)[0] < level, at, scores.offset / scores.size)
    return np.floor(end * scores.size - scores.offset)
