"""Exact win probabilities for independent discrete scores (the policies PHE and GIRO).

A score is a mixture of lattice variables (S + J)/n, J ~ Binomial(m, p). With F_b the distribution
function of arm b and p_b its mass function, and ties split evenly,
    P(a) = sum_x p_a(x) * integral_0^1 prod_{b != a} (F_b(x-) + u p_b(x)) du.
One sweep from the top down, in log space, serves every arm. A support too large to list is cut into
cells, and the bound on the error then comes from moving every mass to its cell's worst end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.errors import InvalidValue

__all__ = ["BinomialScores", "win_log_probabilities"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BUDGET = 2**20  # support points listed one by one at most; beyond, they share BUDGET / 2 cells


@dataclass(frozen=True)
class BinomialScores:
    """Scores as mixtures, one entry per component; a component's score is (offset + J)/size."""

    arm: Ints  # whose component it is (0..K-1), ascending
    weight: Floats  # the chance that the arm draws this component
    offset: Floats  # S, finite and >= 0
    trials: Ints  # m >= 0 of J ~ Binomial(m, p)
    chance: Floats  # p in [0, 1]
    size: Ints  # n >= 1


def win_log_probabilities(scores: BinomialScores, arms: int) -> tuple[Floats, Floats]:
    """Log probability that each arm's score is the largest, and a bound on its error.

    >>> one, m = np.ones(2), np.array([1, 2])
    >>> coins = BinomialScores(m - 1, one, 0 * one, trials=m, chance=one / 2, size=m // m)
    >>> np.exp(win_log_probabilities(coins, arms=2)[0]).round(6).tolist()
    [0.3125, 0.6875]
    """
    if int(scores.size.max()) >= 2**32:
        raise InvalidValue("size", int(scores.size.max()), "an integer below 2**32")
    scores, copies, which = _distinct(scores, arms)
    row, first, place, last, log_mass, slack = _cells(scores, copies)
    log_mass, arm, wide = log_mass + np.log(scores.weight)[row], scores.arm[row], last > first
    owner = np.concatenate([row, row[wide], row[wide]])
    j = np.concatenate([place, first[wide], last[wide]])
    rank = _ranks(scores.offset[owner], j, scores.size[owner])
    at = rank[: len(row)]
    log_p = _sweep(arm, at, at, log_mass, log_mass, copies)
    total = float(copies @ np.exp(log_p))
    log_p = log_p - math.log(total)
    possible = log_p > -np.inf
    # Rounding: a log mass loses eps * |J - mp|, and a running sum of n terms about eps * sqrt(n).
    spread = float(np.sqrt(scores.trials * scores.chance * (1 - scores.chance)).max())
    error = 2.0**-50 * (8 + 8 * spread + math.sqrt(len(row)) - np.where(possible, log_p, 0))
    error = np.where(possible, error + abs(total - 1), 0)
    if wide.any():
        bottom, top = at.copy(), at.copy()
        bottom[wide], top[wide] = np.split(rank[len(row) :], 2)
        less, more = log_mass - slack, log_mass + slack
        low = _sweep(arm, bottom, top, less, more, copies)[possible]
        high = _sweep(arm, top, bottom, more, less, copies)[possible]
        error[possible] += np.maximum(high - log_p[possible], log_p[possible] - low)
    return log_p[which], error[which]


def _distinct(scores: BinomialScores, arms: int) -> tuple[BinomialScores, Floats, Ints]:
    """The distinct arms' components, how many arms share each, and each arm's number among them."""
    names = ("weight", "offset", "trials", "chance", "size")
    used = scores.weight > 0
    arm, columns = scores.arm[used], [getattr(scores, name)[used] for name in names]
    nth = np.arange(len(arm)) - np.searchsorted(arm, arm)
    table = np.full((int(nth.max()) + 1, arms), -1)
    table[nth, arm] = _codes(columns)
    which = _codes(list(table))
    _, owner, copies = np.unique(which, return_index=True, return_counts=True)
    rows = np.flatnonzero(np.isin(arm, owner))
    rows = rows[np.argsort(which[arm[rows]], kind="stable")]
    kept = BinomialScores(which[arm[rows]], *(column[rows] for column in columns))
    return kept, copies.astype(float), which


def _codes(columns: list[NDArray[Any]]) -> Ints:
    """Number the distinct rows of these columns in order, the last column counting most."""
    order = np.lexsort(columns)
    fresh = np.zeros(len(order), dtype=np.int64)
    for column in columns:
        fresh[1:] |= column[order][1:] != column[order][:-1]
    code = np.empty_like(fresh)
    code[order] = np.cumsum(fresh)
    return code


def _ranks(offset: Floats, j: Ints, size: Ints) -> Ints:
    """The order of the points (offset + j)/size as exact fractions; equal points share a rank.

    Long division gives the quotients' digits in base 2**32. Once the offsets have no digit left,
    the remainders of distinct quotients differ by 1/(nk) > 2**-64: two digits more decide.
    """
    shift, divisor, rest = np.uint64(32), size.astype(np.uint64), offset - np.floor(offset)
    digit, left = np.divmod(offset.astype(np.uint64) + j.astype(np.uint64), divisor)
    columns, more = [digit], True
    while more:
        more, pair = bool(rest.any()), np.zeros_like(left)
        for _ in range(2):
            rest = np.ldexp(rest, 32)
            digit, left = np.divmod((left << shift) | rest.astype(np.uint64), divisor)
            rest, pair = rest - np.floor(rest), (pair << shift) | digit
        columns.append(pair)
    return _codes(columns[::-1])


def _log_pmf(j: Ints, trials: Ints, chance: Floats) -> Floats:
    """Binomial log mass by Loader's saddle point: no cancellation of large log-factorials."""
    fail = trials - j
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = 0.5 * np.log(trials / (2 * math.pi * j) / fail) + _saddle(trials, trials)
        inner -= _saddle(j, trials * chance) + _saddle(fail, trials * (1 - chance))
        ends = np.where(j == 0, trials * np.log1p(-chance), trials * np.log(chance))
    certain = (trials == 0) | (chance == 0) | (chance == 1)
    return np.where(certain, 0.0, np.where((j > 0) & (fail > 0), inner, ends))


def _saddle(n: Ints, mean: Floats | Ints) -> Floats:
    """Stirling's error, log n! - log(sqrt(2 pi n) (n/e)^n), plus n log(n/mean) - n + mean."""
    half = 0.5 * math.log(2 * math.pi)
    table = [math.lgamma(k + 1) - (k + 0.5) * math.log(k) + k - half for k in range(1, 16)]
    x = 1 / np.maximum(n, 16)
    y = x * x
    stirling = x * (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y / 1188))))
    stirling = np.where(n < 16, np.array([0.0, *table])[np.minimum(n, 15)], stirling)
    d = n - mean
    v = d / (n + mean)
    w, series = np.minimum(v * v, 0.01), 0.0 * v
    for k in range(17, 1, -2):
        series = w * (series + 1 / k)
    near = d * v + 2 * n * v * series
    return stirling + np.where(np.abs(v) < 0.1, near, n * np.log(n / mean) - d)


def _cells(scores: BinomialScores, copies: Floats) -> tuple[Ints, Ints, Ints, Ints, Floats, Floats]:
    """Cells of consecutive J: component, first J, J to put the mass at, last J, log mass, slack.

    A cell is one point while the budget lasts; `slack` bounds the error of a wider one's log mass.
    """
    trials, chance = scores.trials, scores.chance
    low, high = np.where(chance == 1, trials, 0), np.where(chance == 0, 0, trials)
    # No arm wins below the largest of the arms' minima: of that part only the sum counts, and
    # all but exp(-72) of it lies within 6 sqrt(m) of its top or of the mean (Hoeffding).
    floor = np.full(len(copies), np.inf)
    np.minimum.at(floor, scores.arm, (scores.offset + low) / scores.size)
    cut = np.minimum(floor.max() * scores.size - scores.offset, trials * chance)
    low = np.clip(np.floor(cut - 6 * np.sqrt(trials)).astype(np.int64) - 2, low, high)
    count = high - low + 1
    if count.sum() <= BUDGET:
        row = np.repeat(np.arange(len(count)), count)
        first = np.arange(len(row)) + np.repeat(low - np.cumsum(count) + count, count)
    else:
        edges = _edges(scores, copies, low, high)
        row, column = np.nonzero(np.diff(edges, append=high[:, None] + 1))
        first = edges[row, column]
    last = np.where(np.roll(row, -1) == row, np.roll(first, -1) - 1, first)
    place, log_mass = first.copy(), _log_pmf(first, trials[row], chance[row])
    # Log-concave mass: a wider cell, which always has a next one, holds more than the geometric
    # sum between its ends and less than the one with the ratio at its heavier end.
    wide, slack = np.flatnonzero(last > first), np.zeros_like(log_mass)
    n, here, after = (last - first)[wide] + 1, log_mass[wide], log_mass[wide + 1]
    p, down = chance[row[wide]], after < here
    j = np.where(down, first[wide], last[wide])
    ratio = np.log((trials[row[wide]] - j) / (j + 1)) + np.log(p) - np.log1p(-p)
    least = here + _log_geometric((after - here) / n, n)
    most = np.where(down, here, after - ratio) + _log_geometric(np.where(down, ratio, -ratio), n)
    slack[wide] = np.maximum(np.minimum(most, 0) - least, 0)
    log_mass[wide] = least + slack[wide] / 3
    drop = np.maximum(np.abs(after - here), 1e-3)
    mean = 1 / -np.expm1(-drop) - 1 / drop  # of t in [0, 1] with density prop. to exp(drop * t)
    place[wide] += np.rint((n - 1) * np.where(down, 1 - mean, mean)).astype(np.int64)
    excess = np.log(np.bincount(row, np.exp(log_mass)))
    return row, first, place, last, log_mass - excess[row], slack + np.abs(excess)[row]


def _log_geometric(step: Floats, n: Ints) -> Floats:
    """log sum_{i < n} exp(step * i)."""
    size = np.maximum(np.abs(step), 1e-200)
    return np.maximum(step, 0) * (n - 1) + np.log(np.expm1(-size * n) / np.expm1(-size))


def _edges(scores: BinomialScores, copies: Floats, low: Ints, high: Ints) -> Ints:
    """First J of each component's cells, closest together where the winner is decided."""
    mean, most = scores.trials * scores.chance, max(8, BUDGET // 2 // len(low))
    deviation = np.maximum(np.sqrt(mean * (1 - scores.chance)), 1)
    centre, scale = (scores.offset + mean) / scores.size, deviation / scores.size
    # The largest score is below `bottom` with a chance of about exp(-45): a normal sketch, which
    # places cells and decides nothing else.
    bottom, step = float(centre.min()), float((centre + 10 * scale).max() - centre.min())
    for _ in range(40):
        step /= 2
        z = np.clip((bottom + step - centre) / scale, -40, 40)
        deficit = np.where(z < 0, 0.7 + z * z / 2, 0.5 * np.exp(-z * z / 2))
        bottom += step * (float(deficit @ (copies[scores.arm] * scores.weight)) > 45)
    z = (bottom - centre) / scale
    left = np.clip(mean + deviation * np.where(z > 4, 0, np.maximum(z, -9)), low, high)[:, None]
    right = np.clip(mean + deviation * np.maximum(z, 9), low, high)[:, None]
    low, high, unit, outer = low[:, None], high[:, None], deviation[:, None], max(1, most // 8)
    t = np.arange(1, outer + 1) / (outer + 1)
    parts = [
        low + np.array([0, 1]),  # the least point on its own: it decides who can win at all
        left - unit * np.expm1(t * np.log1p((left - low) / unit)),
        left + (right - left) * np.linspace(0, 1, most - 2 * outer - 3),
        right + unit * np.expm1(t * np.log1p((high - right) / unit)),
        high,
    ]
    edges = np.clip(np.concatenate(parts, axis=1).astype(np.int64), low, high)
    listed = np.minimum(low + np.arange(most), high)
    return np.sort(np.where(high - low < most, listed, edges), axis=1)


def _sweep(
    arm: Ints, own: Ints, rival: Ints, below: Floats, above: Floats, copies: Floats
) -> Floats:
    """Log win probability of one copy of each arm.

    A cell of log mass `below` sits at rank `own` for its own arm's wins and at `rival` for the
    others'. Distribution functions add `below` from the bottom, or `above` from the top.
    """
    span = 1 + int(max(own.max(), rival.max()))
    key = arm * span + rival
    order = np.argsort(key, kind="stable")
    start = np.flatnonzero(np.diff(key[order], prepend=-1))
    key = key[order][start]
    mass = np.logaddexp.reduceat(below[order], start)
    other = mass if above is below else np.logaddexp.reduceat(above[order], start)
    whose, rank = np.divmod(key, span)
    log_cdf = _log_cdf(mass, other, np.bincount(whose))
    lowest = rank[np.diff(whose, prepend=-1) > 0].max()
    # G = sum_b log F_b, from 0 at the top; every F_b is positive from the rank `lowest` up.
    fall = copies[whose] * np.where(rank > lowest, log_cdf - np.roll(log_cdf, 1), 0)
    total = -np.append(np.cumsum(np.bincount(rank, fall, span)[:0:-1])[::-1], 0.0)
    alive = np.flatnonzero(own >= lowest)
    own, arm = own[alive], arm[alive]
    at = np.searchsorted(key, arm * span + own, side="right") - 1
    ratio, mine = np.exp(np.minimum(mass - log_cdf, 0)), rank[at] == own
    log_win = below[alive] + total[own] - log_cdf[at]
    log_win += _log_ties(rank, ratio, copies[whose], own, np.where(mine, ratio[at], -1))
    peak = np.full(len(copies), -np.inf)
    np.maximum.at(peak, arm, log_win)
    sums = np.bincount(arm, np.exp(log_win - peak[arm]), len(copies))
    return peak + np.log(np.where(sums > 0, sums, 1))


def _log_cdf(below: Floats, above: Floats, length: Ints) -> Floats:
    """Log distribution function within each run of log masses, from its more accurate end."""
    both, runs = np.concatenate([below, above[::-1]]), np.concatenate([length, length[::-1]])
    ends, octave, sums = np.cumsum(runs) - 1, np.frexp(runs)[1], np.empty_like(both)
    for each in np.unique(octave):  # runs of like length as one padded table
        n, end = runs[octave == each, None], ends[octave == each, None]
        at = np.arange(int(n.max())) - n + 1
        table = np.where(at <= 0, both[end + np.minimum(at, 0)], -np.inf)
        sums[(end + at)[at <= 0]] = np.logaddexp.accumulate(table, axis=1)[at <= 0]
    lower, upper = sums[: len(below)], np.append(sums[-2 : len(below) - 1 : -1], -np.inf)
    upper[ends[: len(length)]] = -np.inf
    return np.where(lower < upper, lower, np.log1p(-np.exp(np.where(lower < upper, -1, upper))))


def _log_ties(rank: Ints, ratio: Floats, copies: Floats, own: Ints, mine: Floats) -> Floats:
    """Log integral_0^1 prod_b (1 - v r_b)^{c_b} / (1 - v r_a) dv over the arms b tied at a's rank.

    r_b = p_b(x)/F_b(x); `mine` is r_a, negative where a is not among them. The 2n-th derivative is
    at most R^(2n), R = sum c_b r_b, which bounds the error of n Gauss nodes; 2n > degree are exact.
    The part v > 45/R is below exp(-44) and left out.
    """
    out, span = np.zeros(len(own)), 1 + int(own.max())
    tied = np.bincount(rank, copies, span)
    tied[own[mine < 0]] += 1
    events = np.flatnonzero(tied[own] > 1)
    rate = np.bincount(rank, copies * ratio, span)
    need = np.where(tied > 1, 32, 0)
    for n, most in ((16, 13), (8, 2), (4, 0.1), (2, 4e-4), (1, 1e-8)):
        need[(need > 0) & ((tied <= 2 * n) | (rate <= most))] = n
    for n in np.unique(need[own[events]]):
        event, row = events[need[own[events]] == n], np.flatnonzero(need[rank] == n)
        slot, cap = np.cumsum(need == n) - 1, 45 / np.maximum(rate, 45)
        group, at = slot[rank[row]], slot[own[event]]
        each, gain = cap[rank[row]] * ratio[row], cap[own[event]] * np.maximum(mine[event], 0)
        integral = np.zeros(len(event))
        for v, w in zip(*np.polynomial.legendre.leggauss(n), strict=True):
            logs = np.bincount(group, copies[row] * np.log1p(-(1 + v) / 2 * each))
            integral += w / 2 * np.exp(logs[at] - np.log1p(-(1 + v) / 2 * gain))
        out[event] = np.log(integral * cap[own[event]])
    return out
