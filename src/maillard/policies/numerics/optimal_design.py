"""A nearly optimal experimental design: weights of rows under which no row has a large leverage."""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.policies.numerics.linear_scores import TIE
from maillard.policies.numerics.triangular import cholesky, forward, sum_in_order

_NEGLIGIBLE = 1e-12  # rows whose residual is smaller, relative to the longest row, add nothing to the rank


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
    # Each step raises det A by a constant factor at least, so that few are needed; the limit is far above it.
    for _ in range(100 + 20 * rank * rank):
        y = forward(cholesky(moments[:, :, None]), coordinates)
        leverage = sum_in_order(y * y)
        largest = np.maximum.reduce(leverage)
        if not largest > 2.0 * rank * (1.0 + TIE):
            break
        row = int(np.argmax(leverage >= largest * (1.0 - TIE)))
        step = (leverage[row] / rank - 1.0) / (leverage[row] - 1.0)
        weights *= 1.0 - step
        weights[row] += step
        column = coordinates[:, row]
        moments = (1.0 - step) * moments + step * (column[:, None] * column)
    return weights


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
        if not largest > _NEGLIGIBLE * longest:
            break
        row = int(np.argmax(norms >= largest - TIE * longest))
        direction = residual[:, row] / np.sqrt(norms[row])
        along = sum_in_order(direction[:, None] * residual)
        residual -= direction[:, None] * along
        norms = sum_in_order(residual * residual)
        coordinates.append(along)
        basis.append(row)
    return np.array(coordinates).reshape(-1, rows.shape[1]), np.array(basis, np.int64)
