"""Independent evaluation of linear policies from raw rows and rewards, with 50 digits.

The sums are exact rationals. Linear algebra uses decimal numbers and the factorization L D L', where the
package uses floats and Cholesky. Transcendental functions are mpmath's.
"""

from __future__ import annotations

import decimal
import itertools
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from mpmath import mp, mpf

from maillard import LinearTally
from tests.policies import reference

DIGITS = 50
decimal_context = decimal.Context(prec=DIGITS, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
TIE = Fraction(1, 2**40)
Row = list[Decimal]


@dataclass
class Decision:
    """The rewards so far, with their rows, and the rows of one decision."""

    features: int
    arms: int | None  # None: shared
    x: np.ndarray
    events: list[tuple[np.ndarray, float, int]] = field(default_factory=list)  # row, reward, arm
    eligible: list[bool] | None = None

    @property
    def choices(self) -> int:
        return len(self.x) if self.arms is None else self.arms

    def tally(self) -> LinearTally:
        tally = LinearTally.empty(self.features, self.arms)
        for row, reward, arm in self.events:
            tally.add(row, reward, None if self.arms is None else arm)
        return tally


def _decimal(value: float | Fraction | mpf) -> Decimal:
    if isinstance(value, mpf):
        return Decimal(mp.nstr(value, DIGITS + 5))
    exact = Fraction(value)
    return decimal_context.divide(Decimal(exact.numerator), Decimal(exact.denominator))


def _mpf(value: Decimal) -> mpf:
    return mpf(str(value))


class Model:
    """V = L D L' of one linear model, and L^-1 (b - c Sx)."""

    def __init__(
        self, events: list[tuple[np.ndarray, float]], size: int, ridge: float, centre: float
    ) -> None:
        gram = [[Fraction(0)] * size for _ in range(size)]
        right = [Fraction(0)] * size
        for row, reward in events:
            exact = [Fraction(value) for value in row.tolist()]
            for i, one in enumerate(exact):
                right[i] += (Fraction(reward) - Fraction(centre)) * one
                for j in range(i + 1):
                    gram[i][j] += one * exact[j]
        for i in range(size):
            gram[i][i] += Fraction(ridge)
        self.lower, self.diagonal = ldl([[_decimal(v) for v in row[: i + 1]] for i, row in enumerate(gram)])
        self.right = self.solve([_decimal(v) for v in right])

    def solve(self, row: Row) -> Row:
        return solve(self.lower, row)

    def product(self, one: Row, two: Row) -> Decimal:
        """x' V^-1 z from L^-1 x and L^-1 z."""
        return sum((a * b / d for a, b, d in zip(one, two, self.diagonal, strict=True)), Decimal(0))

    def log_determinant(self) -> mpf:
        return mp.fsum(mp.log(_mpf(d)) for d in self.diagonal)


def ldl(matrix: list[Row]) -> tuple[list[Row], Row]:
    """Factor a symmetric matrix, given as its lower triangle, with the unit lower triangle row by row."""
    lower: list[Row] = []
    diagonal: Row = []
    for i, row in enumerate(matrix):
        scaled: Row = []  # l_ij d_j
        for j in range(i):
            known = sum((scaled[k] * lower[j][k] for k in range(j)), Decimal(0))
            scaled.append(row[j] - known)
        factors = [v / d for v, d in zip(scaled, diagonal, strict=True)]
        diagonal.append(row[i] - sum((a * b for a, b in zip(scaled, factors, strict=True)), Decimal(0)))
        lower.append(factors)
    return lower, diagonal


def solve(lower: list[Row], row: Row) -> Row:
    found: Row = []
    for i, value in enumerate(row):
        found.append(value - sum((lower[i][k] * found[k] for k in range(i)), Decimal(0)))
    return found


class Estimates:
    """mu, s^2, gaps and leaders of the eligible arms."""

    def __init__(self, decision: Decision, ridge: float, centre: float, width: float) -> None:
        self.decision, self.width, self.ridge, self.centre = decision, mpf(width), ridge, centre
        size, shared = decision.features, decision.arms is None
        count = 1 if shared else decision.choices
        self.models = [
            Model([(r, y) for r, y, a in decision.events if shared or a == m], size, ridge, centre)
            for m in range(count)
        ]
        mask = decision.eligible or [True] * decision.choices
        self.places = [arm for arm in range(decision.choices) if mask[arm]]
        self.shared, self.t = shared, 1 + len(decision.events)
        rows = [
            [_decimal(v) for v in (decision.x[a] if shared else decision.x).tolist()] for a in self.places
        ]
        self.rows = rows
        models = [self.models[0 if shared else a] for a in self.places]
        solved = [model.solve(row) for model, row in zip(models, rows, strict=True)]
        self.mu = [
            mpf(centre) + _mpf(model.product(y, model.right)) for model, y in zip(models, solved, strict=True)
        ]
        self.s2 = [_mpf(model.product(y, y)) for model, y in zip(models, solved, strict=True)]
        top = max(self.mu)
        self.tolerance = mpf(TIE.numerator) / TIE.denominator * self.width
        self.leads = [m >= top - self.tolerance for m in self.mu]
        self.gap = [mpf(0) if lead else top - m for lead, m in zip(self.leads, self.mu, strict=True)]
        self.k = len(self.mu)

    def squared_widths(self) -> list[mpf]:
        leaders = [i for i in range(self.k) if self.leads[i]]
        if not self.shared:
            return [s + max(self.s2[i] for i in leaders) for s in self.s2]
        model, found = self.models[0], []
        distinct = {tuple(self.rows[i]) for i in leaders}
        for row in self.rows:
            squares = []
            for leader in distinct:
                y = model.solve([a - b for a, b in zip(row, leader, strict=True)])
                squares.append(model.product(y, y))
            found.append(_mpf(max(squares)))
        return found


def log_probabilities(decision: Decision, policy: Any) -> list[mpf]:
    """The log probabilities of the eligible arms under a linear policy, whose parameters are read."""
    with mp.workdps(DIGITS), decimal.localcontext(decimal_context):
        found = Estimates(decision, policy.ridge, policy.centre, policy.range_width)
        return _RULES[policy.name](found, policy)


def lin_ms(found: Estimates, policy: Any) -> list[mpf]:
    weights = []
    for lead, gap, s2 in zip(found.leads, found.gap, found.s2, strict=True):
        if lead:
            weights.append(mp.log(policy.booster))
        else:
            weights.append(-(gap**2) / (2 * mpf(policy.sigma2) * s2) if s2 else mpf("-inf"))
    return reference.log_softmax(weights)


def lin_boltzmann(found: Estimates, policy: Any) -> list[mpf]:
    return reference.log_softmax([policy.eta * m for m in found.mu])


def lin_epsilon_greedy(found: Estimates, policy: Any) -> list[mpf]:
    leaders, epsilon = sum(found.leads), mpf(policy.epsilon)
    return [reference.log_or_ninf((1 - epsilon) * lead / leaders + epsilon / found.k) for lead in found.leads]


def lin_ucb(found: Estimates, policy: Any) -> list[mpf]:
    index = [
        m + mpf(policy.alpha) * mp.sqrt(mpf(policy.sigma2) * s2)
        for m, s2 in zip(found.mu, found.s2, strict=True)
    ]
    return reference.log_uniform([i >= max(index) - found.tolerance for i in index])


def lin_imed(found: Estimates, policy: Any) -> list[mpf]:
    beta = 2 * mpf(policy.sigma2) if policy.beta is None else mpf(policy.beta)
    index = [
        gap**2 / (beta * s2) - mp.log(beta * s2) if s2 else mpf("inf")
        for gap, s2 in zip(found.gap, found.s2, strict=True)
    ]
    best = min(index)
    return reference.log_uniform([i == best or i <= best + mpf(2) ** -40 for i in index])


def igw(found: Estimates, policy: Any) -> list[mpf]:
    gamma, k = mpf(policy.scale) * mpf(found.t) ** mpf(policy.exponent), found.k
    if policy.fast:
        high = mpf(policy.reward_range[1])
        cost = [max((high - m) / found.width, mpf(0)) for m in found.mu]
        least = min(cost)
        leads = [c <= least + mpf(2) ** -40 for c in cost]
        rivals = [least / (k * least + gamma * (c - least)) if least else mpf(0) for c in cost]
    else:
        leads = found.leads
        rivals = [1 / (k + gamma * gap / found.width) for gap in found.gap]
    rest = 1 - mp.fsum(p for p, lead in zip(rivals, leads, strict=True) if not lead)
    return [
        reference.log_or_ninf(rest / sum(leads) if lead else p) for p, lead in zip(rivals, leads, strict=True)
    ]


def lin_med(found: Estimates, policy: Any) -> list[mpf]:
    if policy.beta == "theory":
        size = found.decision.features
        norm = policy.norm
        if norm is None:
            norm = 1 if found.shared else mp.sqrt(found.decision.choices)
        growth = mp.fsum(m.log_determinant() - size * mp.log(found.ridge) for m in found.models)
        radius = mp.sqrt(policy.sigma2) * mp.sqrt(growth + 2 * mp.log(1 / mpf(policy.delta)))
        beta = (radius + mp.sqrt(found.ridge) * norm) ** 2
    else:
        beta = mpf(policy.beta)
    widths = found.squared_widths()
    exponent = [
        mpf(0) if lead else -(gap**2) / (beta * w)
        for lead, gap, w in zip(found.leads, found.gap, widths, strict=True)
    ]
    best = design(found.rows, exponent) if found.shared else [mpf(1) / found.k] * found.k
    opt, emp, leaders = mpf(policy.opt), mpf(policy.emp), sum(found.leads)
    weights = []
    for q, lead, e in zip(best, found.leads, exponent, strict=True):
        mixed = opt * q + emp * lead / leaders + (1 - opt - emp) / found.k
        weights.append(mp.log(mixed) + e if mixed else mpf("-inf"))
    return reference.log_softmax(weights)


def design(rows: list[Row], exponent: list[mpf]) -> list[mpf]:
    """The design on the rows sqrt(f) x, by pivoted Cholesky of their Gram matrix."""
    scale = [_decimal(mp.exp(e / 2)) for e in exponent]
    scaled = [[s * v for v in row] for s, row in zip(scale, rows, strict=True)]
    k = len(scaled)
    residual = [sum((v * v for v in row), Decimal(0)) for row in scaled]
    longest, tie = max(residual), Decimal(2) ** -40
    factors: list[Row] = []  # columns of the pivoted Cholesky factor: coordinates of every row
    basis: list[int] = []
    while len(basis) < min(k, len(rows[0])) and max(residual) > Decimal("1e-12") * longest:
        largest = max(residual)
        j = next(i for i in range(k) if residual[i] >= largest - tie * longest)
        root = residual[j].sqrt()
        column = []
        for i in range(k):
            inner = sum((a * b for a, b in zip(scaled[i], scaled[j], strict=True)), Decimal(0))
            column.append((inner - sum((f[i] * f[j] for f in factors), Decimal(0))) / root)
        factors.append(column)
        basis.append(j)
        residual = [r - c * c for r, c in zip(residual, column, strict=True)]
    rank = len(basis)
    if not rank:
        return [mpf(1) / k] * k
    q = [Decimal(0)] * k
    for j in basis:
        q[j] = 1 / Decimal(rank)
    coordinates = [[f[i] for f in factors] for i in range(k)]
    while True:
        used = [i for i in range(k) if q[i]]
        moments = [
            [
                sum((q[i] * coordinates[i][a] * coordinates[i][b] for i in used), Decimal(0))
                for b in range(a + 1)
            ]
            for a in range(rank)
        ]
        lower, diagonal = ldl(moments)
        leverage = [
            sum((y * y / d for y, d in zip(solve(lower, row), diagonal, strict=True)), Decimal(0))
            for row in coordinates
        ]
        largest = max(leverage)
        if largest <= 2 * rank * (1 + tie):
            return [_mpf(value) for value in q]
        j = next(i for i in range(k) if leverage[i] >= largest * (1 - tie))
        step = (leverage[j] / rank - 1) / (leverage[j] - 1)
        q = [(1 - step) * value for value in q]
        q[j] += step


def lin_rand_ucb(found: Estimates, policy: Any) -> list[mpf]:
    slope = [mpf(policy.width) * mp.sqrt(mpf(policy.sigma2) * s2) for s2 in found.s2]
    near = mpf(2) ** -40 * max(slope)
    chosen = []
    for a in range(found.k):
        same = [b for b in range(found.k) if abs(slope[b] - slope[a]) <= near]
        top = max(found.mu[b] for b in same)
        if found.mu[a] < top - found.tolerance:
            chosen.append(mpf("-inf"))
            continue
        copies = sum(found.mu[b] >= top - found.tolerance for b in same)
        low, high = mpf(0), mpf("inf")
        for b in range(found.k):
            if b in same:
                continue
            z = (found.mu[b] - found.mu[a]) / (slope[a] - slope[b])
            low, high = (max(low, z), high) if slope[b] < slope[a] else (low, min(high, z))
        if high - low <= mpf(2) ** -40 * (1 + abs(low)):
            chosen.append(mpf("-inf"))
            continue
        with mp.workdps(3 * DIGITS):
            p = mp.erfc(low / mp.sqrt(2)) - (mp.erfc(high / mp.sqrt(2)) if mp.isfinite(high) else 0)
            chosen.append(mp.log(p / copies) if p > 0 else mpf("-inf"))
    return chosen


def lin_ts(found: Estimates, policy: Any) -> list[mpf]:
    variance = mpf(policy.scale) * mpf(policy.sigma2)
    if policy.draws == "joint" and found.shared:
        return joint(found, variance)
    random = [i for i in range(found.k) if found.s2[i] > 0]
    constant = [i for i in range(found.k) if i not in random]
    if not constant:
        return reference.winning(
            [reference.gaussian(m, variance * s2) for m, s2 in zip(found.mu, found.s2, strict=True)]
        )
    if not random:
        return [-mp.log(found.k)] * found.k
    # The zero rows have the score `centre`; the others must exceed it.
    level = mpf(found.centre)
    deviation = [mp.sqrt(variance * s2) for s2 in found.s2]

    def cdf(i: int, x: mpf) -> mpf:
        return mp.ncdf((x - found.mu[i]) / deviation[i])

    chosen = [mpf("-inf")] * found.k
    share = mp.log(mp.fprod(cdf(i, level) for i in random)) - mp.log(len(constant))
    for i in constant:
        chosen[i] = share
    for i in random:
        end = max(level, *(found.mu[j] + 20 * deviation[j] for j in random)) + 20 * deviation[i]
        knots = {p for j in random for p in _knots(found.mu[j], deviation[j])}
        knots |= {level + deviation[i] * mpf(2) ** step for step in range(-10, 8)}  # it may fall steeply
        points = [level, *sorted(p for p in knots if level < p < end), end]
        integral = mp.quad(
            lambda x, i=i: (
                mp.npdf(x, found.mu[i], deviation[i]) * mp.fprod(cdf(j, x) for j in random if j != i)
            ),
            points,
        )
        chosen[i] = mp.log(integral)
    return chosen


def _knots(mean: mpf, deviation: mpf) -> list[mpf]:
    return [mean + step * deviation for step in range(-12, 13, 2)]


def joint(found: Estimates, variance: mpf) -> list[mpf]:
    """Each arm wins on a cone of the plane, whose probability is that of an orthant of two normals."""
    rows = [[Fraction(v) for v in row] for row in found.rows]
    differences = [[a - b for a, b in zip(row, rows[0], strict=True)] for row in rows]
    basis: list[list[Fraction]] = []
    for row in differences:
        if _rank([*basis, row]) > len(basis):
            basis.append(row)
    if not basis:
        return [-mp.log(found.k)] * found.k
    assert len(basis) <= 2
    model = found.models[0]
    y = [model.solve([_decimal(v) for v in row]) for row in basis]
    mean = [_mpf(model.product(each, model.right)) for each in y]
    covariance = [[variance * _mpf(model.product(one, two)) for two in y] for one in y]
    if len(basis) == 1:
        at = [next(a / b for a, b in zip(row, basis[0], strict=True) if b) for row in differences]
        ratio = mean[0] / mp.sqrt(covariance[0][0])
        return [
            mp.log(mp.ncdf(ratio)) - mp.log(at.count(a)) if a == max(at)
            else mp.log(mp.ncdf(-ratio)) - mp.log(at.count(a)) if a == min(at)
            else mpf("-inf")
            for a in at
        ]  # fmt: skip
    points = [_coordinates(row, basis) for row in differences]
    chosen = []
    for point in points:
        rays = _cone(point, points)
        if rays is None:
            chosen.append(mpf("-inf"))
            continue
        chosen.append(mp.log(_orthant(rays, mean, covariance)) - mp.log(points.count(point)))
    return chosen


def _rank(rows: list[list[Fraction]]) -> int:
    work, rank = [list(row) for row in rows], 0
    for column in range(len(work[0])):
        pivot = next((i for i in range(rank, len(work)) if work[i][column]), None)
        if pivot is None:
            continue
        work[rank], work[pivot] = work[pivot], work[rank]
        for i in range(rank + 1, len(work)):
            factor = work[i][column] / work[rank][column]
            work[i] = [a - factor * b for a, b in zip(work[i], work[rank], strict=True)]
        rank += 1
    return rank


def _coordinates(row: list[Fraction], basis: list[list[Fraction]]) -> tuple[Fraction, Fraction]:
    one, two = basis
    for i in range(len(row)):
        for j in range(i):
            det = one[i] * two[j] - one[j] * two[i]
            if det:
                return (row[i] * two[j] - row[j] * two[i]) / det, (one[i] * row[j] - one[j] * row[i]) / det
    raise AssertionError


Plane = tuple[Fraction, Fraction]


def _cone(point: Plane, points: list[Plane]) -> list[Plane] | None:
    """The two inward normals of the cone on which a point wins, None if it is not a corner."""
    offsets = [(point[0] - x, point[1] - y) for x, y in set(points) if (x, y) != point]
    rays = {}
    for dx, dy in offsets:
        for ray in ((-dy, dx), (dy, -dx)):
            if all(ray[0] * ox + ray[1] * oy >= 0 for ox, oy in offsets):
                length = abs(ray[0]) + abs(ray[1])
                rays[ray[0] / length, ray[1] / length] = (dx, dy)
    return list(rays.values()) if len(rays) == 2 else None


def _orthant(normals: list[Plane], mean: list[mpf], covariance: list[list[mpf]]) -> mpf:
    """P(n . g > 0 for both normals n) for g ~ N(mean, covariance), as an integral over the first."""
    exact = [[mpf(v.numerator) / v.denominator for v in normal] for normal in normals]

    def inner(a: list[mpf], b: list[mpf]) -> mpf:
        return mp.fsum(a[i] * covariance[i][j] * b[j] for i in (0, 1) for j in (0, 1))

    deviation = [mp.sqrt(inner(n, n)) for n in exact]
    h, k = (mp.fdot(n, mean) / s for n, s in zip(exact, deviation, strict=True))
    rho = inner(*exact) / (deviation[0] * deviation[1])
    rest = mp.sqrt(inner(exact[0], exact[0]) * inner(exact[1], exact[1]) - inner(*exact) ** 2) / (
        deviation[0] * deviation[1]
    )

    def log_integrand(x: mpf) -> mpf:
        return -x * x / 2 + mp.log(mp.ncdf((k + rho * x) / rest))

    # The integrand over x > -h is log-concave: find its peak, then integrate where it matters.
    low, high = -h, max(-h, mpf(0)) + abs(h) + abs(k) + 60
    left, right = low, high
    for _ in range(60):
        a, b = left + (right - left) / 3, right - (right - left) / 3
        left, right = (a, right) if log_integrand(a) < log_integrand(b) else (left, b)
    peak = (left + right) / 2
    top = log_integrand(peak)
    bend = -k / rho if rho else peak
    edges = {low, high, peak}
    for centre, unit in ((peak, mpf(1)), (bend, rest / abs(rho) if rho else mpf(1)), (low, mpf(1))):
        for i in range(-8, 8):
            edges |= {centre - unit * mpf(2) ** i, centre + unit * mpf(2) ** i}
    points = sorted(p for p in edges if low <= p <= high)
    total = mpf(0)
    for a, b in itertools.pairwise(points):
        if max(log_integrand(a), log_integrand(b)) > top - 60 or a <= peak <= b:
            total += (
                sum(
                    w * mp.exp(log_integrand((a + b) / 2 + (b - a) / 2 * n) - top)
                    for n, w in reference.legendre()
                )
                * (b - a)
                / 2
            )
    return total * mp.exp(top) / mp.sqrt(2 * mp.pi)


_RULES = {
    "lin-ms": lin_ms,
    "lin-med": lin_med,
    "lin-ts": lin_ts,
    "lin-rand-ucb": lin_rand_ucb,
    "igw": igw,
    "lin-epsilon-greedy": lin_epsilon_greedy,
    "lin-boltzmann": lin_boltzmann,
    "lin-ucb": lin_ucb,
    "lin-imed": lin_imed,
}
