"""A nearly optimal experimental design: weights of rows under which no row has a large leverage."""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.policies.numerics.linear_scores import TIE
from maillard.policies.numerics.triangular import cholesky, forward, sum_in_order

NEGLIGIBLE = 1e-12  # rows whose residual is smaller, relative to the longest row, add nothing to the rank


def design(rows: Floats) -> Floats:
    """Return weights of the columns of `rows` whose largest leverage is at most twice their rank.

    The leverage of a row x is x' A^-1 x with A = Σ q_a x_a x_a', in the space of the rows. The weights start
    uniform on a basis and move towards the row with the largest leverage, as for a D-optimal design.

    >>> design(np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])).tolist()
    [0.5, 0.5, 0.0]
    """
    coordinates, basis = _orthogonal_coordinates(rows)
    rank, arms = coordinates.shape
    if not rank:  # all rows are 0
        return np.full(arms, 1.0 / arms)
    weights = np.zeros(arms)
    weights[basis] = 1.0 / rank
    chosen = coordinates[:, basis]
    moments = sum_in_order(chosen.T[:, :, None] * chosen.T[:, None, :]) / rank
    y = forward(cholesky(moments[:, :, None]), coordinates)
    # Each step raises det A by a constant factor at least, so that few are needed; the limit is far above it.
    for _ in range(100 + 20 * rank * rank):
        leverage = sum_in_order(y * y)
        largest = np.maximum.reduce(leverage)
        if not largest > 2.0 * rank * (1.0 + TIE):
            break
        row = int(np.argmax(leverage >= largest * (1.0 - TIE)))
        high = leverage[row]
        step = (high / rank - 1.0) / (high - 1.0)
        weights *= 1.0 - step
        weights[row] += step
        y = _whitened_again(y, row, high, step)
    return weights


def _whitened_again(y: Floats, row: int, leverage: float, step: float) -> Floats:
    """Return the rows in coordinates in which the new A = (1 - step) A + step x x' is the identity.

    `y` has the rows in coordinates in which the old A is, x is one of them, and `leverage` its squared norm.
    Factoring A again would give the same leverages in a time that grows with the cube of the rank.
    """
    shorter = 1.0 - np.sqrt((1.0 - step) / (1.0 - step + step * leverage))
    along = sum_in_order(y[:, row, None] * y)
    changed: Floats = (y - (shorter / leverage) * (y[:, row, None] * along)) / np.sqrt(1.0 - step)
    return changed


def _orthogonal_coordinates(rows: Floats) -> tuple[Floats, Ints]:
    """Return the rows in an orthonormal basis of their space, and the rows that the basis was made from.

    A Cholesky factorization with pivots: the row with the largest residual is next, ties to the first.
    """
    residual = rows.copy()
    norms = sum_in_order(residual * residual)
    longest = np.maximum.reduce(norms)
    coordinates: list[Floats] = []
    basis: list[int] = []
    while len(basis) < min(rows.shape):
        largest = np.maximum.reduce(norms)
        if not largest > NEGLIGIBLE * longest:
            break
        row = int(np.argmax(norms >= largest - TIE * longest))
        direction = residual[:, row] / np.sqrt(norms[row])
        along = sum_in_order(direction[:, None] * residual)
        residual -= direction[:, None] * along
        norms = sum_in_order(residual * residual)
        coordinates.append(along)
        basis.append(row)
    return np.array(coordinates).reshape(-1, rows.shape[1]), np.array(basis, np.int64)
