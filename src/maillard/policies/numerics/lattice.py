"""The probability that each of many independent discrete scores is the largest (the policies PHE and GIRO).

Let F_b be the distribution function of arm b and p_b its mass function. With ties broken uniformly at random,

    P(a) = sum_x p_a(x) * integral_0^1 prod_{b != a} (F_b(x-) + u p_b(x)) du.

One pass over all support points, from the largest down and in log space, computes P(a) for every arm. If the
support is too large, neighbouring points are combined into cells. The error bound then follows from moving
the mass of every cell to either of its ends.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue
from maillard.policies.numerics.support_cells import BinomialScores, cells


def win_log_probabilities(
    scores: BinomialScores, arms: int, *, bounds: bool = True, everywhere: bool = False
) -> tuple[Floats, Floats]:
    """Return the log probability that each arm has the largest score, and a bound on the error of each.

    Ties are broken uniformly at random. Without `bounds`, the effect of cells is not included in the errors,
    which saves two thirds of the time. With `everywhere`, single points are listed also where they do not
    decide a probability, as in earlier versions.

    >>> arm, trials, size = np.array([0, 1]), np.array([1, 2]), np.array([1, 1])
    >>> weight, offset, half = np.array([1.0, 1.0]), np.array([0.0, 0.0]), np.array([0.5, 0.5])
    >>> coins = BinomialScores(arm, weight, offset, trials=trials, probability=half, size=size)
    >>> np.exp(win_log_probabilities(coins, arms=2)[0]).round(6).tolist()
    [0.3125, 0.6875]
    """
    if (largest := int(scores.size.max())) >= 2**32:  # _ranks uses 64-bit division
        raise InvalidValue("size", largest, "a whole number below 2**32")
    scores, copies, which = _distinct(scores, arms)
    row, first, place, last, log_mass, slack = cells(scores, copies, everywhere=everywhere)
    arm, log_mass = scores.arm[row], log_mass + np.log(scores.weight)[row]
    j = np.stack([place, first, last] if np.any(last > first) else [place])
    at, *ends = _ranks(scores.offset[row], j, scores.size[row])
    log_p = _sweep(arm, at, at, log_mass, log_mass, copies=copies)
    excess = math.log(copies @ np.exp(log_p))
    log_p, possible = np.minimum(log_p - excess, 0), log_p > -np.inf
    # Rounding errors: eps * |J - mp| in a log mass, and about eps * sqrt(n) in a cumulative sum of n terms.
    scale = 8 + 4 * math.sqrt(scores.trials.max()) + math.sqrt(len(row))
    error = np.where(possible, abs(excess) + 2.0**-50 * (scale - 4 * log_p), 0)
    if ends and bounds:
        (bottom, top), less, more = ends, log_mass - slack, log_mass + slack
        low = _sweep(arm, bottom, top, less, more, copies=copies)[possible]
        high = _sweep(arm, top, bottom, more, less, copies=copies)[possible]
        error[possible] += np.maximum(high - log_p[possible], log_p[possible] - low)
    return log_p[which], error[which]


def _distinct(scores: BinomialScores, arms: int) -> tuple[BinomialScores, Floats, Ints]:
    """Return the components of the distinct arms, the number of copies of each, and the index of each arm."""
    names, used = ("weight", "offset", "trials", "probability", "size"), scores.weight > 0
    arm, columns = scores.arm[used], [getattr(scores, name)[used] for name in names]
    nth = np.arange(len(arm)) - np.searchsorted(arm, arm)
    table = np.full((int(nth.max()) + 1, arms), -1)
    table[nth, arm] = _codes(*columns)
    which = _codes(*table)
    _, owner, copies = np.unique(which, return_index=True, return_counts=True)
    rows = np.isin(arm, owner)
    kept = BinomialScores(which[arm[rows]], *(column[rows] for column in columns))
    return kept, copies.astype(float), which


def _codes(*columns: NDArray[np.generic]) -> Ints:
    """Number the distinct rows of these columns in ascending order; the last column is compared first."""
    order = np.lexsort(columns)
    code = fresh = np.zeros(len(order), dtype=np.int64)
    for column in columns:
        fresh[1:] |= column[order][1:] != column[order][:-1]
    code[order] = np.cumsum(fresh)
    return code


def _ranks(offset: Floats, j: Ints, size: Ints) -> Ints:
    """Return the ranks of the points (offset + j) / size, compared exactly; equal points have equal ranks.

    Long division produces the digits of the quotients in base 2**32. When all digits of the offsets are used
    up, distinct quotients differ by at least 1/(nk) > 2**-64, so two more digits are sufficient.
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
    return _codes(*(column.ravel() for column in columns[::-1])).reshape(j.shape)


def _sweep(arm: Ints, own: Ints, foe: Ints, up: Floats, down: Floats, *, copies: Floats) -> Floats:
    """Return the log probability that one copy of each arm has the largest score.

    The cells of the arm itself are at ranks `own`, those of the other arms at ranks `foe`.
    """
    span = 1 + int(max(own.max(), foe.max()))
    key = arm * span + foe
    order = np.argsort(key, kind="stable")
    start = np.flatnonzero(np.diff(key[order], prepend=-1))
    key, mass = key[order][start], np.logaddexp.reduceat(up[order], start)
    whose, rank = np.divmod(key, span)
    other = mass if down is up else np.logaddexp.reduceat(down[order], start)
    log_cdf = _log_cdf(mass, other, np.bincount(whose))
    lowest = rank[np.diff(whose, prepend=-1) > 0].max()
    # total = sum_b log F_b, which is 0 at the largest rank. Every F_b is positive from the rank `lowest` on.
    fall = copies[whose] * np.where(rank > lowest, log_cdf - np.roll(log_cdf, 1), 0)
    total = -np.append(np.cumsum(np.bincount(rank, fall, span)[:0:-1])[::-1], 0.0)
    alive = order[own[order] >= lowest]
    own, arm = own[alive], arm[alive]
    at = np.searchsorted(key, arm * span + own, side="right") - 1
    ratio = np.exp(np.minimum(mass - log_cdf, 0))
    mine = np.where(rank[at] == own, ratio[at], -1)
    wins = up[alive] + total[own] - log_cdf[at] + _log_ties(rank, ratio, copies[whose], own, mine)
    start, out = np.flatnonzero(np.diff(arm, prepend=-1)), np.full(len(copies), -np.inf)
    out[arm[start]] = np.logaddexp.reduceat(wins, start)
    return out


def _log_cdf(up: Floats, down: Floats, length: Ints) -> Floats:
    """Return each arm's log distribution function: the sum of `up`, or 1 minus the upper sum of `down`."""
    lower, upper, ends = np.empty_like(up), np.full(len(up), -np.inf), np.cumsum(length)
    for a, b in zip((ends - length).tolist(), ends.tolist(), strict=True):
        lower[a:b] = np.logaddexp.accumulate(up[a:b])
        upper[a : b - 1] = np.logaddexp.accumulate(down[b - 1 : a : -1])[::-1]
    tail: Floats = np.log1p(-np.exp(np.minimum(upper, -0.7)))
    return np.where(upper < -0.7, tail, np.minimum(lower, 0))


def _log_ties(rank: Ints, ratio: Floats, copies: Floats, own: Ints, mine: Floats) -> Floats:
    """Return log integral_0^1 prod_b (1 - v r_b)^{c_b} / (1 - v r_a) dv over the arms b tied with a.

    r_b = p_b(x) / F_b(x); `mine` is r_a, or -1 where a is not tied. Gauss-Legendre quadrature with n nodes is
    accurate enough because the 2n-th derivative is at most R^(2n), with R = sum c_b r_b. The part beyond v =
    45/R contributes at most exp(-44).
    """
    out, tied = np.zeros(len(own)), np.bincount(rank, copies, 1 + int(own.max()))
    tied[own[mine < 0]] += 1
    tied[: own.min()] = 0
    rate, need = np.bincount(rank, copies * ratio, len(tied)), np.where(tied > 1, 32, 0)
    for n, most in ((16, 13), (8, 2), (4, 0.1), (2, 4e-4), (1, 1e-8)):
        need[(need > 0) & ((tied <= 2 * n) | (rate <= most))] = n
    for n in np.unique(need[need > 0]):
        event, row = np.flatnonzero(need[own] == n), np.flatnonzero(need[rank] == n)
        slot, cap = np.cumsum(need == n) - 1, 45 / np.maximum(rate, 45)
        group, at = slot[rank[row]], slot[own[event]]
        each, gain = cap[rank[row]] * ratio[row], cap[own[event]] * np.maximum(mine[event], 0)
        for v, w in zip(*np.polynomial.legendre.leggauss(n), strict=True):
            logs = np.bincount(group, copies[row] * np.log1p(-(1 + v) / 2 * each))
            out[event] += w / 2 * np.exp(logs[at] - np.log1p(-(1 + v) / 2 * gain))
        out[event] = np.log(out[event] * cap[own[event]])
    return out
