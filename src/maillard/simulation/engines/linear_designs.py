"""How LinMED chooses an arm of a shared model: the weights of its design follow a search in every round.

The search is that of `policies/numerics/optimal_design.py`, number by number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.policies.numerics.linear_scores import TIE
from maillard.policies.numerics.optimal_design import NEGLIGIBLE
from maillard.simulation.compiling import call, rare
from maillard.simulation.engines import linear_choices
from maillard.simulation.engines.linear_choices import largest, sample_by_weight
from maillard.simulation.engines.ridge_models import MU, SCORE, TOLERANCE, dot


def choose_shared_divergence(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Choose an arm by its divergence from the leaders, with a design on the rows of all arms."""
    best = largest(w, MU, arms)
    edge = best - g[TOLERANCE]
    leaders, count = np.empty(arms, np.int64), 0
    for arm in range(arms):
        if w[MU, arm] >= edge:
            leaders[count] = arm
            count += 1
    beta = call(f[1], f[0], growth, 1.0, 0.0, 0.0, 0.0)
    exponent = np.zeros(arms)
    for arm in range(arms):
        if w[MU, arm] < edge:
            width = squared_width(x, arm, leaders, count, inverse[0])
            exponent[arm] = call(f[2], f[0], best - w[MU, arm], beta * width, 0.0, 0.0, 0.0)
    weights, total = design_of(x, exponent), 0.0
    for arm in range(arms):
        lead = 1.0 / count if w[MU, arm] >= edge else 0.0
        share = call(f[3], f[0], weights[arm], lead, float(arms), 0.0, 0.0)
        w[SCORE, arm] = share * np.exp(exponent[arm])
        if not w[SCORE, arm] < np.inf:
            return -1 - arm
        total += w[SCORE, arm]
    return sample_by_weight(w, SCORE, arms, total, rng)


def squared_width(x: Any, arm: int, leaders: Any, count: int, inverse: Any) -> float:
    """Return the largest squared norm, in V^-1, of the difference of an arm's row from that of a leader."""
    widest, d = 0.0, x.shape[1]
    for place in range(count):
        leader, total = leaders[place], 0.0
        for i in range(d):
            row = 0.0
            for j in range(d):
                row += inverse[i, j] * (x[arm, j] - x[leader, j])
            total += row * (x[arm, i] - x[leader, i])
        widest = max(widest, total)
    return widest


@rare
def design_of(x: Any, exponent: Any) -> Any:
    """Return weights of the rows sqrt(exp(exponent)) x whose largest leverage is at most twice the rank."""
    arms, d = x.shape
    top = -np.inf
    for arm in range(arms):
        if exponent[arm] > top and np.any(x[arm] != 0.0):
            top = exponent[arm]
    y, leverage, weights = np.zeros((arms, d)), np.zeros(arms), np.zeros(arms)
    for arm in range(arms):
        # Without the common factor, all rows other than 0 may underflow.
        scale = np.exp(min(0.5 * (exponent[arm] - top), 0.0)) if top > -np.inf else 0.0
        for i in range(d):
            y[arm, i] = scale * x[arm, i]
    basis = whiten(y)
    rank = basis.size
    if rank == 0:
        return np.full(arms, 1.0 / arms)
    for place in range(rank):
        weights[basis[place]] = 1.0 / rank
    for _ in range(100 + 20 * rank * rank):
        most = squared_lengths(y, leverage)
        if not most > 2.0 * rank * (1.0 + TIE):
            break
        row = first_above(leverage, most * (1.0 - TIE))
        high = leverage[row]
        step = (high / rank - 1.0) / (high - 1.0)
        for arm in range(arms):
            weights[arm] *= 1.0 - step
        weights[row] += step
        # In the new coordinates, the weighted sum of the products of rows is the identity again.
        shorter = 1.0 - np.sqrt((1.0 - step) / (1.0 - step + step * high))
        direction, longer = y[row].copy(), 1.0 / np.sqrt(1.0 - step)
        for arm in range(arms):
            along = dot(direction, y[arm]) * shorter / high
            for i in range(rank):
                y[arm, i] = (y[arm, i] - along * direction[i]) * longer
    return weights


def whiten(rows: Any) -> Any:
    """Replace rows by coordinates in which a basis of them, at equal weights, has the identity as moments.

    Returns the basis: the rows with the largest residuals, ties to the first. Further coordinates are 0.
    """
    arms, d = rows.shape
    coordinates, norms = np.zeros((arms, d)), np.zeros(arms)
    basis = np.zeros(min(d, arms), np.int64)
    longest, rank = 0.0, 0
    while True:
        most = squared_lengths(rows, norms)
        longest = max(longest, most)
        if rank == basis.size or not most > NEGLIGIBLE * longest:
            break
        row = first_above(norms, most - TIE * longest)
        direction = rows[row] / np.sqrt(norms[row])
        for arm in range(arms):
            along = dot(direction, rows[arm])
            coordinates[arm, rank] = along
            for i in range(d):
                rows[arm, i] -= direction[i] * along
        basis[rank] = row
        rank += 1
    # The coordinates of the basis are a triangular matrix C, and its moments are C C' / rank.
    factor = np.sqrt(float(max(rank, 1)))
    for arm in range(arms):
        for i in range(d):
            rows[arm, i] = 0.0
        for i in range(rank - 1, -1, -1):
            total = coordinates[arm, i] * factor
            for j in range(i + 1, rank):
                total -= coordinates[basis[j], i] * rows[arm, j]
            rows[arm, i] = total / coordinates[basis[i], i]
    return basis[:rank]


def squared_lengths(rows: Any, out: Any) -> float:
    """Compute the squared length of each row, and return the largest."""
    most = 0.0
    for arm in range(rows.shape[0]):
        out[arm] = dot(rows[arm], rows[arm])
        most = max(most, out[arm])
    return most


def first_above(values: Any, edge: float) -> int:
    """Return the first place whose value reaches the edge."""
    for place in range(values.size):
        if values[place] >= edge:
            return place
    return 0


CHOICES = {**linear_choices.CHOICES, "linear-shared-divergence": choose_shared_divergence}
