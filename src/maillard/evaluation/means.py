"""Intervals of arms' mean rewards that hold whenever one looks, from how many rewards there were and their sum alone.

Rewards X lie in a known range, scaled to [0, 1], and have the mean m given the past. For any q in (0, 1),

    (q / m)^X ((1 - q) / (1 - m))^(1 - X)

is convex in X, so its expectation is at most that of the chord between X = 0 and X = 1, which is q + (1 - q) = 1. The product over
an arm's rewards depends on N and S = Σ X alone; averaged over q ~ Beta(1/2, 1/2) it is

    E(m) = B(S + 1/2, N - S + 1/2) / (π m^S (1 - m)^(N - S)),

a nonnegative supermartingale from 1, whatever the policy did with what it learned. By Ville's inequality it ever reaches 1 / α with
probability α at most, so {m : E(m) < 1 / α} contains the mean at all looks at once with probability 1 - α. It is an interval, as
E is convex. Its width is about √(p (1 - p) (2 ln(1 / α) + ln(π N / 2)) / N) on each side of p = S / N.

What is assumed: the range, an arm's mean that does not change, and that whether a reward comes does not depend on what it is (where
successes are quicker than failures, only rewards whose windows have closed are free of that). Each interval has the
confidence by itself, not all arms' together.

**In numbers.** With F = N - S, ln E(m) = N kl(p, m) + c, and by Stirling's formula

    c = r(S) + r(F) - q(N) - ln(π N / 2) / 2,    r(x) = ln Γ(x + 1/2) - x ln x + x - ln(2π) / 2,
                                                  q(x) = ln Γ(x + 1) - (x + 1/2) ln x + x - ln(2π) / 2,

where r and q are below 1 and known to 1e-14: what is huge has cancelled on paper. (ln B itself is about N, known to N 1e-16: at
N = 1e12 that would be 1e-4.) With y = ln(m / p) < 0 for the lower end, N kl = -S y - F log1p((S / F) (1 - e^y)), two terms of about
√(N level): at N = 1e12 their difference is known to 3e-8. The upper end is the lower one with S and F exchanged.

N kl is convex in y and falls as y rises to 0, so Newton's method from the left of the root only moves right and never
passes it. A start that is left of it, as log1p(z) <= z: y = -1 - level / S; and as kl >= d² / (2p) and kl >= 2 d²: d = p - m
no more than √(2 p level / N) and √(level / 2N). At the end y is moved left by more than all rounding may come to: convexity says
how far that is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, xlogy

from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Numbers = NDArray[np.float64]

__all__ = ["mean_intervals"]

_EPSILON = 2.0**-52
_TURNS = 100  # of Newton's method, which needs fewer than ten
_STIRLING = 16.0  # from here on the series are exact to 1e-14
_TINY = 1e-200  # of a sum: nothing
_DEEPEST = 700.0  # -ln of a bound over the mean, below which the bound is 0
_SLACK = 1e-9  # of N: how far rounding may bring a sum out of the range


def mean_intervals(
    pulls: ArrayLike, sums: ArrayLike, low: float, high: float, confidence: float
) -> list[tuple[float | None, float | None]]:
    """The interval of each arm's mean, from its number of rewards and their sum, for rewards from `low` to `high`.

    An arm without rewards may have any mean in the range, and that is its interval. Where a sum is not one of rewards in the range (it
    came from elsewhere, by a warm start), nothing can be said: (None, None). A sum counts as rounded once, as a `Tally` has it; the
    interval allows for that.

    >>> for lower, upper in mean_intervals([0, 10, 1000], [0, 10, 500], 0, 1, confidence=0.95):
    ...     print(f"{lower:.3f} to {upper:.3f}")
    0.000 to 1.000
    0.623 to 1.000
    0.442 to 0.558
    """
    count, total = _checked(pulls, sums, low, high, confidence)
    span = high - low
    scaled = (total - count * low) / span
    doubt = _EPSILON * ((np.abs(total) + 2.0 * np.abs(count * low)) / span + 2.0 * np.abs(scaled))
    possible = (scaled >= -_SLACK * count - doubt) & (scaled <= count * (1.0 + _SLACK) + doubt)
    some = possible & (count > 0)
    lower, upper = np.full(count.size, float(low)), np.full(count.size, float(high))
    least, most = _ends(count[some], scaled[some], doubt[some], -math.log1p(-confidence))
    for bound, end, out in ((lower, least, -1.0), (upper, most, 1.0)):
        moved = low + span * end
        bound[some] = np.clip(moved + out * 4.0 * _EPSILON * (abs(low) + span * end), low, high)
    pairs = zip(lower.tolist(), upper.tolist(), possible.tolist(), strict=True)
    return [(first, last) if known else (None, None) for first, last, known in pairs]


def _checked(
    pulls: ArrayLike, sums: ArrayLike, low: float, high: float, confidence: float
) -> tuple[Numbers, Numbers]:
    """Both as arrays of floats."""
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


def _ends(count: Numbers, scaled: Numbers, doubt: Numbers, needed: float) -> tuple[Numbers, Numbers]:
    """Both ends within [0, 1], where the sums may be off by the doubt; `needed` is ln(1 / α)."""
    # A lower bound rises with the sum, so the one that always holds is that of the least sum; and the other way round.
    won = np.stack([scaled - doubt, count - scaled - doubt]).clip(0.0, count)
    lost = np.stack([count - scaled + doubt, scaled + doubt]).clip(0.0, count)
    won, lost = (np.where(each < _TINY, 0.0, each) for each in (won, lost))
    fall = _fall(won.ravel(), lost.ravel(), needed).reshape(won.shape)
    # The upper end is 1 - (F / N) e^y, written without a difference of what is nearly equal.
    return won[0] * np.exp(fall[0]) / count, (lost[1] - won[1] * np.expm1(fall[1])) / count


def _fall(won: Numbers, lost: Numbers, needed: float) -> Numbers:
    """ln(m / p) at the lower end m, where there were won + lost rewards and p = won / (won + lost); -inf where that is 0."""
    count = won + lost
    level = needed - _constant(won, lost, count)
    fall = np.full(count.size, -np.inf)
    some = won * _DEEPEST > level
    won, lost, count, level = won[some], lost[some], count[some], level[some]
    nearest = np.minimum(np.sqrt(2.0 * level / won), np.sqrt(level * count / 2.0) / won)
    with np.errstate(divide="ignore"):
        y = np.maximum(-1.0 - level / won, np.log1p(-np.minimum(nearest, 1.0)))
    for _ in range(_TURNS):
        first, second, slope = _divergence(won, lost, y)
        above = first - second - level
        rounding = 8.0 * _EPSILON * (first + second) + 1e-13 * (1.0 + level)  # the latter for the constant
        if not (under_way := np.abs(above) > rounding).any():
            break
        y = np.where(
            under_way, np.minimum(y + above / slope, 0.0), y
        )  # so an arm's end does not depend on other arms
    fall[some] = (y - 2.0 * rounding / slope) * (1.0 + 4.0 * _EPSILON)
    return fall


def _divergence(won: Numbers, lost: Numbers, y: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The two parts of N kl(p, p e^y), and how fast it falls with y."""
    share = -np.expm1(y)
    ratio = np.divide(won * share, lost, out=np.zeros_like(y), where=lost > 0)
    return -won * y, lost * np.log1p(ratio), won * (won + lost) * share / (lost + won * share)


def _constant(won: Numbers, lost: Numbers, count: Numbers) -> Numbers:
    """ln E(p): what the average over q costs."""
    return _half(won) + _half(lost) - _whole(count) - 0.5 * np.log(0.5 * math.pi * count)


def _half(x: Numbers) -> Numbers:
    """ln Γ(x + 1/2) - x ln x + x - ln(2π) / 2."""
    square = 1.0 / np.square(np.maximum(x, _STIRLING))
    series = -1 / 24 + square * (7 / 2880 + square * (-31 / 40320 + square * (127 / 215040)))
    near = np.minimum(x, _STIRLING)
    direct = gammaln(near + 0.5) - xlogy(near, near) + near - 0.5 * math.log(2.0 * math.pi)
    return np.where(x >= _STIRLING, series * np.sqrt(square), direct)


def _whole(x: Numbers) -> Numbers:
    """ln Γ(x + 1) - (x + 1/2) ln x + x - ln(2π) / 2, for x > 0."""
    square = 1.0 / np.square(np.maximum(x, _STIRLING))
    series = 1 / 12 + square * (-1 / 360 + square * (1 / 1260 + square * (-1 / 1680)))
    near = np.minimum(x, _STIRLING)
    direct = gammaln(near + 1.0) - (near + 0.5) * np.log(near) + near - 0.5 * math.log(2.0 * math.pi)
    return np.where(x >= _STIRLING, series * np.sqrt(square), direct)
