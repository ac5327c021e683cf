"""Supports of binomial scores: all points, or, if there are too many, cells of neighbouring points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.policies.numerics.binomial import log_binomial
from maillard.policies.numerics.support_windows import rare_windows

BUDGET = 2**15  # maximum number of listed support points (or 12 per component); above it, points share cells
MOST_POINTS = 2**20  # maximum number of single points where the largest score is likely
MOST_WINDOW_POINTS = 2**16  # maximum number of single points for arms that are rarely the largest
TAIL_CELLS = 512  # of a component, on each side
SPREAD = 12.0  # standard deviations around the mean of a component


@dataclass(frozen=True)
class BinomialScores:
    """Score distributions as mixtures, one entry per component. A component is (offset + J) / size."""

    arm: Ints  # the arm that the component belongs to (0..K-1), ascending
    weight: Floats  # the probability of this component in the mixture of the arm
    offset: Floats  # S >= 0
    trials: Ints  # m >= 0 of J ~ Binomial(m, p)
    probability: Floats  # p in [0, 1]
    size: Ints  # n >= 1


def cells(
    scores: BinomialScores, copies: Floats, *, everywhere: bool = False
) -> tuple[Ints, Ints, Ints, Ints, Floats, Floats]:
    """Return component, first J, J that gets the mass, last J, log mass and its error bound of each cell."""
    low = np.where(scores.probability == 1, scores.trials, 0)
    high = np.where(scores.probability == 0, 0, scores.trials)
    count = high - low + 1
    if count.sum() <= max(MOST_POINTS if everywhere else BUDGET, 12 * len(count)):
        row = np.repeat(np.arange(len(count)), count)
        first = np.arange(len(row)) + np.repeat(low - np.cumsum(count) + count, count)
    else:
        row, first = (_even_cuts if everywhere else _cuts)(scores, copies, low, high)
    last = np.where(np.append(row[1:], -1) == row, np.append(first[1:], 0) - 1, first)
    place, p = first.copy(), scores.probability[row]
    log_mass = log_binomial(first, scores.trials[row] - first, p, 1.0 - p)
    # The mass function is log-concave. The mass of a cell with several points therefore lies between two
    # geometric sums: one through the first point of this cell and of the next, one with the ratio at the
    # heavier end.
    wide, slack = np.flatnonzero(last > first), np.zeros_like(log_mass)
    n, here, after = (last - first)[wide] + 1, log_mass[wide], log_mass[wide + 1]
    p, down = scores.probability[row[wide]], after < here
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


def _cuts(scores: BinomialScores, copies: Floats, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return component and first J of each cell: single points where they decide a probability."""
    mean, count = scores.trials * scores.probability, copies[scores.arm] * scores.weight
    unit = np.maximum(np.sqrt(mean * (1 - scores.probability)), 1)
    centre, scale = ((scores.offset + mean) / scores.size)[:, None], (unit / scores.size)[:, None]
    # A rough approximation, used only to place cells: P(largest < ends[0]) ~ exp(-110) and
    # P(largest > ends[1]) ~ 1e-30.
    ends, width = np.full(2, centre.min()), (centre + 20 * scale).max() - centre.min()
    for step in width / 2.0 ** np.arange(1, 31):
        z = np.clip((ends + step - centre) / scale, -40, 40)
        deficit = count @ np.where(z < 0, 0.7 + z * z / 2, 0.5 * np.exp(-z * z / 2))
        ends += step * (deficit > [110, 1e-30])
    bottom, top = ((ends - centre) / scale).T
    left = np.clip(mean + unit * np.clip(bottom, -SPREAD, SPREAD), low, high).astype(np.int64)
    right = np.clip(mean + unit * np.clip(top, -SPREAD, SPREAD), low, high).astype(np.int64)
    # A component whose scores are far below the likely ones has no single points, but cells at them.
    far = np.clip(mean + unit * np.stack([bottom, top]), low, high).astype(np.int64)
    if int((right - left).sum()) > MOST_POINTS:
        return _even_cuts(scores, copies, low, high)
    share = max(4, BUDGET // 2 // len(low))
    tails = np.linspace(0, 1, max(2, min(TAIL_CELLS, share // 4)))
    windows: dict[int, list[Ints]] = {}
    for component, first, last in rare_windows(scores, copies, MOST_WINDOW_POINTS):
        windows.setdefault(component, []).append(np.arange(first, last + 1))
    pieces = []
    for i, (a, b, c, d) in enumerate(
        zip(low.tolist(), high.tolist(), left.tolist(), right.tolist(), strict=True)
    ):
        if b - a < share:
            pieces.append(np.arange(a, b + 1))
            continue
        u = float(unit[i])
        # The smallest point is a cell of its own: it decides which arms can have the largest score at all.
        edges = [
            np.array([a, a + 1, d + 1, b]),
            c - u * np.expm1(tails * np.log1p((c - a) / u)),
            np.arange(c, d + 1),
            d + u * np.expm1(tails * np.log1p((b - d) / u)),
            np.linspace(far[0, i], far[1, i], tails.size),
            *windows.get(i, []),
        ]
        pieces.append(np.unique(np.clip(np.concatenate(edges).astype(np.int64), a, b)))
    return np.repeat(np.arange(len(low)), [piece.size for piece in pieces]), np.concatenate(pieces)


def _even_cuts(scores: BinomialScores, copies: Floats, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the same for too many points: cells are smallest where the largest score is likely."""
    mean, count = scores.trials * scores.probability, copies[scores.arm] * scores.weight
    unit = np.maximum(np.sqrt(mean * (1 - scores.probability)), 1)
    centre, scale = ((scores.offset + mean) / scores.size)[:, None], (unit / scores.size)[:, None]
    # A rough approximation, used only to place cells: P(largest < ends[0]) ~ exp(-25), P(largest > ends[1]) ~
    # 1e-10.
    ends, width = np.full(2, centre.min()), (centre + 10 * scale).max() - centre.min()
    for step in width / 2.0 ** np.arange(1, 31):
        z = np.clip((ends + step - centre) / scale, -40, 40)
        deficit = count @ np.where(z < 0, 0.7 + z * z / 2, 0.5 * np.exp(-z * z / 2))
        ends += step * (deficit > [25, 1e-10])
    z, top = ((ends - centre) / scale).T
    left = np.clip(mean + unit * np.clip(z, -9, 3), low, high)
    right = np.clip(mean + unit * np.where(z > 4, top, np.minimum(top, 9)), low, high)
    found = []
    for group in (np.flatnonzero(z > 4), np.flatnonzero(z <= 4)):
        most = min(2**16, max(8, MOST_POINTS // 2 // max(1, len(group))))
        a, b, c, d, u = (x[group, None] for x in (low, high, left, right, unit))
        t = np.arange(1, 1 + most // 8) / (1 + most // 8)
        # The smallest point is a cell of its own: it decides which arms can have the largest score at all.
        down, up = (u * np.expm1(t * np.log1p(x / u)) for x in (c - a, b - d))
        inner = c + (d - c) * np.linspace(0, 1, most - 2 * len(t) - 3)
        edges = np.concatenate([a, a + 1, c - down, inner, d + up, b], axis=1)
        edges = np.sort(np.clip(edges.astype(np.int64), a, b), axis=1)
        edges = np.where(b - a < most, np.minimum(a + np.arange(most), b), edges)
        row, column = np.nonzero(np.diff(edges, append=b + 1))
        found.append(np.stack([group[row], edges[row, column]]))
    component, first = np.concatenate(found, axis=1)
    return component, first
