"""Joint Thompson sampling on a shared linear model, for rows whose differences have rank 1 or 2.

The coefficients have the distribution N(theta, v V^-1). Only their products with the differences of the arms'
rows matter. In two dimensions, after whitening, u ~ N(m, I), and an arm at a corner of the convex hull of the
rows is chosen if u lies between the normals of the two edges that meet there.
"""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue
from maillard.feature_grid import STEPS
from maillard.policies.base.policy import rounding_error
from maillard.policies.numerics.independent_scores import sensitivity
from maillard.policies.numerics.linear_scores import LinearScores
from maillard.policies.numerics.sector_integrals import sector_log_probabilities
from maillard.policies.numerics.triangular import sum_in_order

Point = tuple[int, int]


def joint_log_probabilities(scores: LinearScores, variance: float, centre: float) -> tuple[Floats, Floats]:
    """Return the log probability that each arm is the best for sampled coefficients, and error bounds."""
    units = scores.units
    differences = units - units[:, :1]
    basis, coordinates = plane_coordinates(differences)
    log = np.full(units.shape[1], -np.inf)
    if not basis.shape[1]:  # all rows are equal
        log[:] = -np.log(log.size)
        return log, rounding_error(log)
    y = scores.whitened(basis)
    mean = sum_in_order(basis / STEPS * scores.models.theta)
    deviation = np.sqrt(variance)
    first = np.sqrt(sum_in_order(y[:, 0] * y[:, 0]))
    unit, relative = (float(each[0]) for each in scores.model_errors(centre))
    rounding = np.sum(np.abs(basis) / STEPS * np.abs(scores.models.theta)) * len(units) * 2.0**-50
    off, stretch = float(unit + rounding / first) / deviation, relative
    if basis.shape[1] == 1:
        from scipy.special import log_ndtr

        ends = coordinates[0].max(), coordinates[0].min()
        for end, sign in zip(ends, (1.0, -1.0), strict=True):
            wins = coordinates[0] == end
            log[wins] = log_ndtr(sign * mean[0] / (deviation * first)) - np.log(np.count_nonzero(wins))
        return log, rounding_error(log) + sensitivity(log, off, stretch, 1)
    along = sum_in_order(y[:, 0] * y[:, 1]) / first
    rest = y[:, 1] - along / first * y[:, 0]
    second = np.sqrt(sum_in_order(rest * rest))
    whitening = float(first), float(along), float(second)
    m0 = float(mean[0] / first)
    m = m0 / deviation, float((mean[1] - along * m0) / second) / deviation
    points = list(zip(coordinates[0].tolist(), coordinates[1].tolist(), strict=True))
    corners = convex_hull(points)
    value, error = _corner_log_probabilities(corners, whitening, m)
    place = {corner: i for i, corner in enumerate(corners)}
    arm = np.array([place.get(point, -1) for point in points])
    copies = np.bincount(arm[arm >= 0], minlength=len(corners))
    log = np.where(arm >= 0, value[arm] - np.log(copies[arm]), -np.inf)
    # Nearly parallel differences magnify the errors of the whitened coordinates.
    skew = (first * first + along * along + second * second) / (first * second)
    total = np.where(arm >= 0, error[arm], 0.0) + rounding_error(log)
    return log, total + sensitivity(log, float(skew) * off, float(skew) * stretch, 2)


def plane_coordinates(differences: Ints) -> tuple[Ints, Ints]:
    """Return a basis of the differences, given as columns, and the coordinates of all of them in it.

    Everything is exact in integers. Coordinates are multiplied by a common positive number.
    """
    size, arms = differences.shape
    lengths = np.abs(differences).max(axis=0)
    if not lengths.any():
        return np.zeros((size, 0), np.int64), np.zeros((0, arms), np.int64)
    one = differences[:, int(np.argmax(lengths))]
    p = int(np.argmax(np.abs(one)))
    minors = differences * one[p] - one[:, None] * differences[p]
    if not minors.any():
        return one[:, None], (differences[p] * np.sign(one[p]))[None]
    q, column = (int(i) for i in np.unravel_index(np.argmax(np.abs(minors)), minors.shape))
    two, determinant = differences[:, column], minors[q, column]
    alpha = differences[p] * two[q] - differences[q] * two[p]
    beta = one[p] * differences[q] - one[q] * differences[p]
    # Every product is at most 2**52, because grid units are at most 2**16.
    if (differences * determinant != one[:, None] * alpha + two[:, None] * beta).any():
        allowed = (
            "independent (or the policy lin-rand-ucb), because the differences of these arms' rows have rank "
            "3 or more, and joint probabilities are computed for rank 1 and 2"
        )
        raise InvalidValue("lin-ts: draws", "joint", allowed)
    sign = np.sign(determinant)
    return np.stack([one, two], axis=1), np.stack([alpha * sign, beta * sign])


def convex_hull(points: list[Point]) -> list[Point]:
    """Return the corners of the convex hull, counter-clockwise, in exact arithmetic (Andrew's algorithm).

    >>> convex_hull([(0, 0), (2, 0), (1, 0), (0, 2), (2, 2), (1, 1)])
    [(0, 0), (2, 0), (2, 2), (0, 2)]
    """
    ordered = sorted(set(points))

    def chain(these: list[Point]) -> list[Point]:
        kept: list[Point] = []
        for point in these:
            while len(kept) > 1 and _cross(_edge(kept[-2], kept[-1]), _edge(kept[-1], point)) <= 0:
                kept.pop()
            kept.append(point)
        return kept[:-1]

    return chain(ordered) + chain(ordered[::-1])


def _edge(start: Point, end: Point) -> Point:
    return end[0] - start[0], end[1] - start[1]


def _cross(one: Point, two: Point) -> int:
    return one[0] * two[1] - one[1] * two[0]


def _corner_log_probabilities(
    corners: list[Point], whitening: tuple[float, float, float], m: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Return the log probability of the sector of each corner, for u ~ N(m, I)."""
    first, along, second = whitening
    edges = [_edge(a, b) for a, b in zip(corners, [*corners[1:], corners[0]], strict=True)]
    x = np.array([first * a + along * b for a, b in edges])
    y = np.array([second * b for _, b in edges])
    # The sector of a corner begins at the normal of the edge before it.
    before = np.roll(np.arange(len(edges)), 1)
    turn = np.array([float(_cross(edges[i - 1], edges[i])) for i in range(len(edges))]) * first * second
    width = np.arctan2(turn, x[before] * x + y[before] * y)
    normal_x, normal_y = y[before], -x[before]
    start = np.arctan2(m[0] * normal_y - m[1] * normal_x, m[0] * normal_x + m[1] * normal_y)
    if m == (0.0, 0.0):
        start = np.zeros(len(edges))
    return sector_log_probabilities(start, width, float(np.hypot(*m)))
