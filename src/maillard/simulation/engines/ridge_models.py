"""Ridge regressions that are updated in every round: estimates, uncertainties and rank-one updates.

Inverses of V = ridge I + G follow the Sherman-Morrison formula. After a number of updates they are computed
anew from G, so that rounding errors do not grow. Loops over flat matrices vectorize for few features, too, so
inverses are passed both as matrices and as flat rows of the same memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.policies.numerics.linear_models import MIN_PIVOT
from maillard.simulation.compiling import rare, reassociating

# Numbers of a linear policy: the estimate without data, the weight of the prior, the tolerances of ties
# between estimates and between indices, the number of updates between two factorizations; whether the policy
# uses s2 and determinants, whether the arms share a model; the unit of costs (0: the smallest cost).
CENTRE, RIDGE, TOLERANCE, INDEX_TOLERANCE, INTERVAL, USES_S2, USES_GROWTH, IS_SHARED, COST_UNIT = range(9)
# Rows of the table of scores.
MU, S2, GAP, SCORE, BOUND = range(5)
_TINY_RIDGE = 2.0**-20  # below it, one update loses too many digits
_INTERVAL = 512


def refactor_interval(ridge: float) -> int:
    """Return after how many updates of a model its inverse is computed anew."""
    return _INTERVAL if ridge >= _TINY_RIDGE else 1


@reassociating
def dot(a: Any, b: Any) -> float:
    """Return the sum of products."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@reassociating
def multiply_features(x: Any, out: Any) -> None:
    """Compute the product of every two features, x x', as a flat array."""
    d = x.size
    for i in range(d):
        for j in range(d):
            out[i * d + j] = x[i] * x[j]


@reassociating
def quadratic_forms(flat_inverses: Any, products: Any, out: Any) -> None:
    """Compute x' A x for each matrix A, given the products of every two features."""
    for arm in range(flat_inverses.shape[0]):
        total = 0.0
        for k in range(products.size):
            total += flat_inverses[arm, k] * products[k]
        out[arm] = total


@reassociating
def quadratic_form(inverse: Any, x: Any) -> float:
    """Return x' A x."""
    total = 0.0
    for i in range(x.size):
        y = 0.0
        for j in range(x.size):
            y += inverse[i, j] * x[j]
        total += x[i] * y
    return total


@reassociating
def multiply(matrix: Any, x: Any, out: Any) -> None:
    """Compute A x, four rows at a time: few features do not fill a vector register."""
    rows = matrix.shape[0]
    whole = rows - rows % 4
    for i in range(0, whole, 4):
        one, two, three, four = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for j in range(x.size):
            a += one[j] * x[j]
            b += two[j] * x[j]
            c += three[j] * x[j]
            d += four[j] * x[j]
        out[i], out[i + 1], out[i + 2], out[i + 3] = a, b, c, d
    for i in range(whole, rows):
        out[i] = dot(matrix[i], x)


def compute_estimates(g: Any, w: Any, arms: int, x: Any, theta: Any) -> None:
    """Compute mu of every arm. x has one row, or one row per arm if the arms share a model."""
    if g[IS_SHARED] > 0.0:
        multiply(x, theta[0], w[MU])
    else:
        multiply(theta, x[0], w[MU])
    for arm in range(arms):
        w[MU, arm] += g[CENTRE]


def compute_uncertainties(
    g: Any, w: Any, arms: int, x: Any, inverse: Any, flat_inverse: Any, products: Any
) -> None:
    """Compute s2 of every arm; a disjoint model leaves the products of every two features behind."""
    if g[IS_SHARED] > 0.0:
        for arm in range(arms):
            w[S2, arm] = quadratic_form(inverse[0], x[arm])
    else:
        multiply_features(x[0], products)
        quadratic_forms(flat_inverse, products, w[S2])
    for arm in range(arms):
        w[S2, arm] = max(w[S2, arm], 0.0)  # rounding may make it negative


@reassociating
def update_model(
    x: Any, error: float, inverse: Any, gram: Any, products: Any, theta: Any, sums: Any, u: Any
) -> float:
    """Add a reward, less the centre, to one model and return the s2 before.

    `products` has the products of every two features of x, and `u` has room for d numbers.
    """
    multiply(inverse, x, u)
    factor = 1.0 / (1.0 + dot(x, u))
    step = factor * (error - dot(x, theta))
    for i in range(x.size):
        theta[i] += step * u[i]
        sums[i] += error * x[i]
    for i in range(x.size):
        scaled = factor * u[i]
        for j in range(x.size):
            inverse[i, j] -= scaled * u[j]
    for k in range(products.size):
        gram[k] += products[k]
    return 1.0 / factor - 1.0


@rare
def refactor(ridge: float, inverse: Any, gram: Any, theta: Any, sums: Any) -> bool:
    """Compute the inverse and the coefficients of a model anew; False if V is singular in floating point."""
    d = theta.size
    lower = np.zeros((d, d))
    for j in range(d):
        diagonal = gram[j * d + j] + ridge
        pivot = diagonal
        for k in range(j):
            pivot -= lower[j, k] * lower[j, k]
        if not pivot > MIN_PIVOT * diagonal:
            return False
        lower[j, j] = np.sqrt(pivot)
        for i in range(j + 1, d):
            total = gram[i * d + j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            lower[i, j] = total / lower[j, j]
    columns = np.zeros((d, d))  # L^-1
    for j in range(d):
        columns[j, j] = 1.0 / lower[j, j]
        for i in range(j + 1, d):
            total = 0.0
            for k in range(j, i):
                total -= lower[i, k] * columns[k, j]
            columns[i, j] = total / lower[i, i]
    for i in range(d):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, d):
                total += columns[k, i] * columns[k, j]
            inverse[i, j] = inverse[j, i] = total
    multiply(inverse, sums, theta)
    return True
