"""Cholesky factors and triangular solves for many small models at once, with the same bits on every machine.

All sums run over one index after the other, and each product is rounded before it is added. LAPACK, `@` and
einsum do neither. A compiled loop in the same order gives the same bits if it does not fuse multiplications
with additions. The models are the last axis: a batch of m matrices has the shape (d, d, m).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from maillard.array_types import Floats

_MAX_TERMS = 1 << 16  # of sums that are computed at once
_SHORT = 32  # up to so many features, a loop over numbers is faster than one over arrays of one model


def cholesky(matrices: Floats, *, identity: bool = False) -> Floats:
    """Return the lower Cholesky factors of symmetric matrices, given with further rows below them.

    The element (i, k) is reduced by l_ij l_kj for j = 0, 1, ..., k - 1, in this order, and divided by l_kk. A
    row r below a matrix becomes L^-1 r, with the same operations as in `forward`. Entries above the diagonal
    have no meaning. A matrix that is not positive definite gives NaN.

    With `identity`, the last d rows are the identity matrix, and become the columns of L^-1. This takes half
    as much time again, because zeros are skipped.

    >>> lower = cholesky(np.array([[4.0, 2.0], [2.0, 5.0], [2.0, 5.0]])[:, :, None])[:, :, 0]
    >>> np.tril(lower[:2]).tolist(), lower[2].tolist()
    ([[2.0, 0.0], [1.0, 2.0]], [1.0, 2.0])
    """
    if matrices.shape[2] == 1:
        return _cholesky_of_one(matrices[:, :, 0], identity)[:, :, None]
    lower = matrices.copy()
    size = lower.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        for j, end in enumerate(_ends(lower, identity)):
            pivot = lower[j, j]
            np.sqrt(pivot, pivot)
            column = lower[j + 1 : end, j]
            column /= pivot
            rest = lower[j + 1 : end, j + 1 :]
            rest -= column[:, None] * column[: size - j - 1]
    return lower


def _ends(matrices: Floats, identity: bool) -> Iterable[int]:
    """Return the row after the last one that may not be 0, for each column."""
    rows, size = matrices.shape[:2]
    return range(rows - size + 1, rows + 1) if identity else [rows] * size


def _cholesky_of_one(matrix: Floats, identity: bool) -> Floats:
    """Return the factor of one matrix, by the same operations without the last axis, which take less time."""
    lower = matrix.copy()
    size = lower.shape[1]
    for j, end in enumerate(_ends(lower, identity)):
        pivot = float(lower[j, j])
        pivot = math.sqrt(pivot) if pivot > 0.0 else math.nan
        lower[j, j] = pivot
        column = lower[j + 1 : end, j]
        column /= pivot
        rest = lower[j + 1 : end, j + 1 :]
        rest -= column[:, None] * column[: size - j - 1]
    return lower


def forward(lower: Floats, rows: Floats) -> Floats:
    """Return L^-1 x for each column x of `rows`, of shape (d, columns).

    There is one factor per column, or one for all of them. The element i is reduced by l_ij y_j for
    j = 0, 1, ..., i - 1, in this order, and divided by l_ii.

    >>> forward(np.array([[2.0, 0.0], [1.0, 2.0]])[:, :, None], np.array([[2.0, 4.0], [5.0, 0.0]])).tolist()
    [[1.0, 2.0], [2.0, -1.0]]
    """
    # The longer of the two shapes, which are equal or 1 in each axis; numpy.broadcast_shapes takes longer.
    shape = map(max, zip(lower.shape[2:], rows.shape[1:], strict=True))
    solved = np.empty((len(rows), *shape))
    solved[:] = rows
    for j in range(len(solved)):
        pivot = solved[j]
        pivot /= lower[j, j]
        rest = solved[j + 1 :]
        rest -= lower[j + 1 :, j] * pivot
    return solved


def backward(lower: Floats, rows: Floats) -> Floats:
    """Return L'^-1 y for each column y of `rows`; the element i is reduced for j = d - 1, ..., i + 1."""
    if rows.shape[1:] == (1,) and len(rows) <= _SHORT:
        return np.array(_backward_of_one(lower[:, :, 0].tolist(), rows[:, 0].tolist()))[:, None]
    solved = rows.copy()
    for j in range(len(solved) - 1, -1, -1):
        pivot = solved[j]
        pivot /= lower[j, j]
        rest = solved[:j]
        rest -= lower[j, :j] * pivot
    return solved


def _backward_of_one(lower: list[list[float]], solved: list[float]) -> list[float]:
    """Return L'^-1 y with the same operations, number by number."""
    for j in range(len(solved) - 1, -1, -1):
        row = lower[j]
        pivot = solved[j] = solved[j] / row[j]
        for i in range(j):
            solved[i] -= row[i] * pivot
    return solved


def multiply(columns: Floats, rows: Floats) -> Floats:
    """Return A x for each column x of `rows`, of shape (d, columns), given the columns of A, columns[j].

    There is one matrix per column of `rows`, or one for all. The products are added in the order of j. With
    the columns of L^-1, this needs fewer operations than `forward`.

    >>> multiply(np.array([[[2.0], [1.0]], [[0.0], [3.0]]]), np.array([[1.0, 2.0], [10.0, 0.0]])).tolist()
    [[2.0, 4.0], [31.0, 2.0]]
    """
    return weighted_sum(columns, rows) + 0.0


def weighted_sum(columns: Floats, rows: Floats) -> Floats:
    """Return the same as `multiply`, but zeros may be negative."""
    models = max(columns.shape[2], rows.shape[1])
    if columns.shape[0] * columns.shape[1] * models <= _MAX_TERMS:
        return sum_in_order(columns * rows[:, None])
    total = np.zeros((columns.shape[1], models))
    for j in np.flatnonzero(rows.any(axis=1)).tolist():
        total += columns[j] * rows[j]
    return total


def sum_in_order(terms: Floats) -> Floats:
    """Return the sum over the first axis, one term after the other (`numpy.sum` adds in pairs).

    >>> sum_in_order(np.array([[1.0], [2.0], [3.0]])).tolist()
    [6.0]
    """
    # NumPy adds the rows of an array in C order one after the other, if they have several numbers, and adds
    # neighbouring numbers in pairs. A test compares both with a loop.
    if terms.flags.c_contiguous and terms.size > len(terms):
        total: Floats = np.add.reduce(terms, axis=0)
    else:
        total = np.add.accumulate(terms, axis=0)[-1]
    return total
