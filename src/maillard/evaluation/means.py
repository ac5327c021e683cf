"""Confidence sequences for the mean rewards of arms, computed from the number and the sum of their rewards.

**What is computed.** Rewards X lie in a known range, scaled to [0, 1]. Each has the mean m given the past.
For any q in (0, 1),

    (q / m)^X ((1 - q) / (1 - m))^(1 - X)

is convex in X. Its expectation is therefore at most that of the chord between X = 0 and X = 1, which is
q + (1 - q) = 1. The product over an arm's rewards depends only on their number N and their sum S. Its
average over q ~ Beta(1/2, 1/2) is

    E(m) = B(S + 1/2, N - S + 1/2) / (π m^S (1 - m)^(N - S)),

a nonnegative supermartingale that starts at 1, for any policy that chooses the arms. By Ville's inequality,
the probability that E(m) ever reaches 1 / α is at most α. Hence {m : E(m) < 1 / α} contains the mean at all
times simultaneously with probability 1 - α. It is an interval because E is convex. It extends about
√(p (1 - p) (2 ln(1 / α) + ln(π N / 2)) / N) to each side of p = S / N.

**When it is valid.** At any time, if the range is right, if the mean of the arm does not change, and if it
does not depend on a reward whether it is observed. (If successes are reported sooner than failures, use only
rewards whose windows have closed.) The confidence is that of each interval, not of the intervals of all arms
together.

**Numerics.** Let F = N - S. Then ln E(m) = N kl(p, m) + c, and by Stirling's formula

    c = r(S) + r(F) - q(N) - ln(π N / 2) / 2,    r(x) = ln Γ(x + 1/2) - x ln x + x - ln(2π) / 2,
                                                 q(x) = ln Γ(x + 1) - (x + 1/2) ln x + x - ln(2π) / 2.

r and q are below 1 and are accurate to 1e-14, because the large terms cancel analytically. (ln B is about N
and would be accurate to N 1e-16 only: to 1e-4 at N = 1e12.) With y = ln(m / p) < 0 at the lower end,
N kl = -S y - F log1p((S / F) (1 - e^y)). Both terms are about √(N level), so at N = 1e12 their difference
is accurate to 3e-8. The upper end is the lower end with S and F exchanged.

N kl is convex in y and decreases as y increases to 0. Newton's method that starts to the left of the root
therefore only moves right and never passes the root. Two starting points are to the left of it: y = -1 -
level / S, because log1p(z) <= z; and the y for which d = p - m is the smaller of √(2 p level / N) and √(level
/ 2N), because kl >= d² / (2p) and kl >= 2 d². At the end, y is moved left by more than the largest possible
rounding error, which convexity bounds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlogy

from maillard.array_types import Floats
from maillard.errors import InvalidValue

_EPSILON = 2.0**-52
_MAX_ITERATIONS = 100  # of Newton's method, which needs fewer than ten
_MIN_STIRLING = 16.0  # for larger arguments the series are accurate to 1e-14
_MIN_SUM = 1e-200  # a smaller sum counts as 0
_MAX_LOG_RATIO = 700.0  # if ln(mean / lower end) would be larger, the lower end is 0
_SUM_TOLERANCE = 1e-9  # times N: how far rounding may move a sum out of the range


def mean_intervals(
    pulls: ArrayLike, sums: ArrayLike, low: float, high: float, confidence: float
) -> list[tuple[float | None, float | None]]:
    """The confidence sequence of each arm's mean, from the number and the sum of its rewards in [low, high].

    The interval of an arm without rewards is the whole range. The interval is (None, None) if rewards in the
    range cannot have this sum, for example after a warm start with other data. The interval allows for a sum
    that was rounded once, as the sums in a `Tally` are.

    >>> for lower, upper in mean_intervals([0, 10, 1000], [0, 10, 500], 0, 1, confidence=0.95):
    ...     print(f"{lower:.3f} to {upper:.3f}")
    0.000 to 1.000
    0.623 to 1.000
    0.442 to 0.558
    """
    count, total = _checked(pulls, sums, low, high, confidence)
    span = high - low
    scaled = (total - count * low) / span
    error = _EPSILON * ((np.abs(total) + 2.0 * np.abs(count * low)) / span + 2.0 * np.abs(scaled))
    least, most = -_SUM_TOLERANCE * count - error, count * (1.0 + _SUM_TOLERANCE) + error
    possible = (scaled >= least) & (scaled <= most)
    observed = possible & (count > 0)
    lower, upper = np.full(count.size, float(low)), np.full(count.size, float(high))
    scaled_ends = _ends(count[observed], scaled[observed], error[observed], -math.log1p(-confidence))
    for bound, end, sign in zip((lower, upper), scaled_ends, (-1.0, 1.0), strict=True):
        unscaled = low + span * end
        bound[observed] = np.clip(unscaled + sign * 4.0 * _EPSILON * (abs(low) + span * end), low, high)
    pairs = zip(lower.tolist(), upper.tolist(), possible.tolist(), strict=True)
    return [(first, last) if known else (None, None) for first, last, known in pairs]


def _checked(
    pulls: ArrayLike, sums: ArrayLike, low: float, high: float, confidence: float
) -> tuple[Floats, Floats]:
    """The pulls and the sums as arrays of floats."""
    if not -math.inf < low < high < math.inf:
        raise InvalidValue("(low, high)", (low, high), "two finite numbers, the lower first")
    if not 0 < confidence < 1:
        raise InvalidValue("confidence", confidence, "a number in (0, 1)")
    count, total = np.asarray(pulls, np.float64), np.asarray(sums, np.float64)
    if count.ndim != 1 or not ((count >= 0) & np.isfinite(count)).all():
        raise InvalidValue("pulls", pulls, "one number >= 0 for each arm")
    if total.shape != count.shape or not np.isfinite(total).all():
        raise InvalidValue("sums", sums, f"as many finite numbers as pulls has ({count.size})")
    return count, total


def _ends(count: Floats, scaled: Floats, error: Floats, threshold: float) -> tuple[Floats, Floats]:
    """Both ends in [0, 1], for sums with a rounding error of at most `error`; `threshold` is ln(1 / α)."""
    # The lower end increases with the sum: use the smallest possible sum. For the upper end use the largest
    # one.
    won = np.stack([scaled - error, count - scaled - error]).clip(0.0, count)
    lost = np.stack([count - scaled + error, scaled + error]).clip(0.0, count)
    won, lost = (np.where(each < _MIN_SUM, 0.0, each) for each in (won, lost))
    log_ratio = _log_ratio(won.ravel(), lost.ravel(), threshold).reshape(won.shape)
    # The upper end is 1 - (F / N) e^y, written without cancellation.
    return won[0] * np.exp(log_ratio[0]) / count, (lost[1] - won[1] * np.expm1(log_ratio[1])) / count


def _log_ratio(won: Floats, lost: Floats, threshold: float) -> Floats:
    """y = ln(m / p) at the lower end m, where p = won / (won + lost); -inf if the lower end is 0."""
    count = won + lost
    level = threshold - _log_mixture_at_mean(won, lost, count)
    log_ratio = np.full(count.size, -np.inf)
    positive = won * _MAX_LOG_RATIO > level
    won, lost, count, level = won[positive], lost[positive], count[positive], level[positive]
    nearest = np.minimum(np.sqrt(2.0 * level / won), np.sqrt(level * count / 2.0) / won)
    with np.errstate(divide="ignore"):
        y = np.maximum(-1.0 - level / won, np.log1p(-np.minimum(nearest, 1.0)))
    for _ in range(_MAX_ITERATIONS):
        first, second, slope = _divergence(won, lost, y)
        above = first - second - level
        rounding = 8.0 * _EPSILON * (first + second) + 1e-13 * (1.0 + level)  # the second term is for `level`
        if not (active := np.abs(above) > rounding).any():
            break
        # Arms that have converged stay unchanged, so that an arm's interval does not depend on the other
        # arms.
        y = np.where(active, np.minimum(y + above / slope, 0.0), y)
    log_ratio[positive] = (y - 2.0 * rounding / slope) * (1.0 + 4.0 * _EPSILON)
    return log_ratio


def _divergence(won: Floats, lost: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """The two terms of N kl(p, p e^y), whose difference it is, and minus its derivative with respect to y."""
    fraction = -np.expm1(y)
    ratio = np.divide(won * fraction, lost, out=np.zeros_like(y), where=lost > 0)
    return -won * y, lost * np.log1p(ratio), won * (won + lost) * fraction / (lost + won * fraction)


def _log_mixture_at_mean(won: Floats, lost: Floats, count: Floats) -> Floats:
    """ln E(p), the constant c."""
    small = _stirling_half(won) + _stirling_half(lost) - _stirling_whole(count)
    return small - 0.5 * np.log(0.5 * math.pi * count)


def _stirling_half(x: Floats) -> Floats:
    """r(x) = ln Γ(x + 1/2) - x ln x + x - ln(2π) / 2."""
    square = 1.0 / np.square(np.maximum(x, _MIN_STIRLING))
    series = -1 / 24 + square * (7 / 2880 + square * (-31 / 40320 + square * (127 / 215040)))
    near = np.minimum(x, _MIN_STIRLING)
    direct = gammaln(near + 0.5) - xlogy(near, near) + near - 0.5 * math.log(2.0 * math.pi)
    return np.where(x >= _MIN_STIRLING, series * np.sqrt(square), direct)


def _stirling_whole(x: Floats) -> Floats:
    """q(x) = ln Γ(x + 1) - (x + 1/2) ln x + x - ln(2π) / 2, for x > 0."""
    square = 1.0 / np.square(np.maximum(x, _MIN_STIRLING))
    series = 1 / 12 + square * (-1 / 360 + square * (1 / 1260 + square * (-1 / 1680)))
    near = np.minimum(x, _MIN_STIRLING)
    direct = gammaln(near + 1.0) - (near + 0.5) * np.log(near) + near - 0.5 * math.log(2.0 * math.pi)
    return np.where(x >= _MIN_STIRLING, series * np.sqrt(square), direct)
