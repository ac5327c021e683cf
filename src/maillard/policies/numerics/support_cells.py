"""The supports of lattice scores, listed point by point or, where that is too many, cut into cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maillard.policies.numerics.binomial import log_binomial

__all__ = ["BinomialScores", "cells"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BUDGET = 2**20  # support points listed at most (or 12 a component); beyond, they share cells


@dataclass(frozen=True)
class BinomialScores:
    """Scores as mixtures, one entry per component; a component's score is (offset + J)/size."""

    arm: Ints  # whose component it is (0..K-1), ascending
    weight: Floats  # the chance that the arm draws this component
    offset: Floats  # S >= 0
    trials: Ints  # m >= 0 of J ~ Binomial(m, p)
    chance: Floats  # p in [0, 1]
    size: Ints  # n >= 1


def cells(scores: BinomialScores, copies: Floats) -> tuple[Ints, Ints, Ints, Ints, Floats, Floats]:
    """Cells of J: component, first J, where the mass goes, last J, log mass, bound on its error."""
    low = np.where(scores.chance == 1, scores.trials, 0)
    high = np.where(scores.chance == 0, 0, scores.trials)
    count = high - low + 1
    if count.sum() <= max(BUDGET, 12 * len(count)):
        row = np.repeat(np.arange(len(count)), count)
        first = np.arange(len(row)) + np.repeat(low - np.cumsum(count) + count, count)
    else:
        row, first = _cuts(scores, copies, low, high)
    last = np.where(np.append(row[1:], -1) == row, np.append(first[1:], 0) - 1, first)
    place, log_mass = (
        first.copy(),
        log_binomial(first, scores.trials[row] - first, scores.chance[row], 1.0 - scores.chance[row]),
    )
    # Log-concave mass: a wider cell, which always has a next one, holds more than the geometric
    # sum between its ends and less than the one with the ratio at its heavier end.
    wide, slack = np.flatnonzero(last > first), np.zeros_like(log_mass)
    n, here, after = (last - first)[wide] + 1, log_mass[wide], log_mass[wide + 1]
    p, down = scores.chance[row[wide]], after < here
    j = np.where(down, first[wide], last[wide])
    ratio = np.log((high[row[wide]] - j) / (j + 1)) + np.log(p) - np.log1p(-p)
    step = np.stack([(after - here) / n, np.where(down, ratio, -ratio)])
    size = np.maximum(np.abs(step), 1e-200)
    sums = np.maximum(step, 0) * (n - 1) + np.log(np.expm1(-size * n) / np.expm1(-size))
    least, most = here + sums[0], np.where(down, here, after - ratio) + sums[1]
    slack[wide] = np.maximum(np.minimum(most, 0) - least, 0)
    log_mass[wide] = least + slack[wide] / 3
    place[wide] = np.where(np.abs(after - here) > 4, j, first[wide] + n // 2)
    return row, first, place, last, log_mass, slack


def _cuts(scores: BinomialScores, copies: Floats, low: Ints, high: Ints) -> Ints:
    """Component and first J of each cell, closest together where the winner is decided."""
    mean, share = scores.trials * scores.chance, copies[scores.arm] * scores.weight
    unit = np.maximum(np.sqrt(mean * (1 - scores.chance)), 1)
    centre, scale = ((scores.offset + mean) / scores.size)[:, None], (unit / scores.size)[:, None]
    # A sketch, to place cells only: P(largest < ends[0]) ~ exp(-25), P(largest > ends[1]) ~ 1e-10.
    ends, width = np.full(2, centre.min()), (centre + 10 * scale).max() - centre.min()
    for step in width / 2.0 ** np.arange(1, 31):
        z = np.clip((ends + step - centre) / scale, -40, 40)
        deficit = share @ np.where(z < 0, 0.7 + z * z / 2, 0.5 * np.exp(-z * z / 2))
        ends += step * (deficit > [25, 1e-10])
    z, top = ((ends - centre) / scale).T
    left = np.clip(mean + unit * np.clip(z, -9, 3), low, high)
    right = np.clip(mean + unit * np.where(z > 4, top, np.minimum(top, 9)), low, high)
    found = []
    for group in (np.flatnonzero(z > 4), np.flatnonzero(z <= 4)):
        most = min(2**16, max(8, BUDGET // 2 // max(1, len(group))))
        a, b, c, d, u = (x[group, None] for x in (low, high, left, right, unit))
        t = np.arange(1, 1 + most // 8) / (1 + most // 8)
        # The least point stays on its own: it decides who can win at all.
        down, up = (u * np.expm1(t * np.log1p(x / u)) for x in (c - a, b - d))
        inner = c + (d - c) * np.linspace(0, 1, most - 2 * len(t) - 3)
        edges = np.concatenate([a, a + 1, c - down, inner, d + up, b], axis=1)
        edges = np.sort(np.clip(edges.astype(np.int64), a, b), axis=1)
        edges = np.where(b - a < most, np.minimum(a + np.arange(most), b), edges)
        row, column = np.nonzero(np.diff(edges, append=b + 1))
        found.append(np.stack([group[row], edges[row, column]]))
    return np.concatenate(found, axis=1)
