"""The probability that each of several lines is the largest at a random place Z >= 0 (randomized UCB)."""

from __future__ import annotations

import itertools
import math

import numpy as np

from maillard.array_types import Floats
from maillard.policies.base.policy import rounding_error
from maillard.policies.numerics.linear_scores import TIE

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_SQRT_HALF = float(np.sqrt(0.5))
_FEW = 64  # up to so many lines, a loop over numbers is faster than operations on arrays
_QUADRATURE = list(zip((_NODES + 1.0).tolist(), _WEIGHTS.tolist(), strict=True))


def envelope_log_probabilities(
    height: Floats, slope: Floats, tolerance: float, errors: tuple[Floats, Floats] | None = None
) -> tuple[Floats, Floats | None]:
    """Return the log probability that each line is the largest at Z = abs(N(0, 1)), and bounds on the errors.

    The lines are height + z slope. Slopes that agree up to 2**-40 of the largest one are equal. Of lines with
    the same slope, those that are highest, up to the tolerance, share their probability. A line that is
    nowhere the largest has probability 0. The bounds follow from `errors`, those of the heights and slopes.

    >>> log, _ = envelope_log_probabilities(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 0.0)
    >>> np.exp(log).round(6).tolist()
    [0.682689, 0.317311]
    """
    few = slope.size <= _FEW
    if few:
        chosen = np.array(_log_probabilities_of_few(height.tolist(), slope.tolist(), tolerance))
        if errors is None:
            return chosen, None
    order = np.argsort(slope, kind="stable")
    ordered = slope[order]
    fresh = np.diff(ordered, prepend=-np.inf) > TIE * ordered[-1]
    fresh[0] = True
    group = np.empty(slope.size, np.int64)
    group[order] = np.cumsum(fresh) - 1
    begin = np.flatnonzero(fresh)
    top = np.maximum.reduceat(height[order], begin)
    highest = height >= top[group] - tolerance
    lines, starts, ends = _envelope(top.tolist(), ordered[begin].tolist())
    start, end = np.array(starts), np.array(ends)
    log = np.full(top.size, -np.inf)
    log[lines] = half_normal_log_probability(start, end)
    if not few:
        shared = log[group] - np.log(np.bincount(group[highest]))[group]
        chosen = np.where(highest, shared, -np.inf)
    if errors is None:
        return chosen, None
    change = np.zeros(top.size)
    off, turn = (np.maximum.reduceat(each[order], begin) for each in errors)
    change[lines] = _changes(log[lines], start, (off[lines], turn[lines]), np.diff(ordered[begin][lines]))
    # Without a bound, if rounding errors might decide whether slopes or heights are equal.
    steps, both = np.diff(ordered), errors[1][order][1:] + errors[1][order][:-1]
    unclear = (steps > 0.0) & (np.abs(steps - TIE * ordered[-1]) <= both)
    drop = top[group] - height
    doubtful = (drop > 0.0) & (np.abs(drop - tolerance) <= errors[0] + off[group])
    # Whether two lines below the envelope have equal slopes does not matter.
    pairs = np.flatnonzero(unclear)
    if np.isin(group[order[np.concatenate([pairs, pairs + 1])]], lines).any():
        change[:] = np.inf
    change[group[doubtful]] = np.inf
    return chosen, change[group] + rounding_error(chosen)


def _log_probabilities_of_few(height: list[float], slope: list[float], tolerance: float) -> list[float]:
    """Return the log probabilities of `envelope_log_probabilities`, number by number."""
    order = sorted(range(len(slope)), key=slope.__getitem__)
    close = TIE * slope[order[-1]]
    groups = [[order[0]]]
    for before, line in itertools.pairwise(order):
        if slope[line] - slope[before] > close:
            groups.append([line])
        else:
            groups[-1].append(line)
    tops = [max([height[line] for line in group]) for group in groups]
    lines, start, end = _envelope(tops, [slope[group[0]] for group in groups])
    found = [-math.inf] * len(slope)
    for place, low, high in zip(lines, start, end, strict=True):
        winners = [line for line in groups[place] if height[line] >= tops[place] - tolerance]
        share = _half_normal_log_probability_of_one(low, high) - math.log(len(winners))
        for line in winners:
            found[line] = share
    return found


def _changes(log: Floats, start: Floats, errors: tuple[Floats, Floats], steeper: Floats) -> Floats:
    """Return bounds on the changes of log probabilities if the lines of the envelope are slightly wrong.

    The ends of the intervals move. To first order, the log probability changes by the movement times the
    density at the end, relative to the probability of the interval.
    """
    off, turn = errors
    end, change = start[1:], np.zeros(log.size)
    moved = (off[:-1] + off[1:] + end * (turn[:-1] + turn[1:])) / steeper
    with np.errstate(over="ignore"):
        density = -0.5 * end * end + 0.5 * np.log(2.0 / np.pi)
        change[:-1] += moved * np.exp(density - log[:-1])
        change[1:] += moved * np.exp(density - log[1:])
    return 2.0 * change  # twice, for the terms of higher order


def _envelope(height: list[float], slope: list[float]) -> tuple[list[int], list[float], list[float]]:
    """Return the lines of the upper envelope over z >= 0 from left to right, and their intervals.

    The slopes are ascending. An interval that is shorter than 2**-40 (1 + z) counts as empty: it consists
    mostly of rounding errors.
    """
    lines: list[int] = []
    starts: list[float] = []
    for line, (high, steep) in enumerate(zip(height, slope, strict=True)):
        z = 0.0
        while lines:
            last = lines[-1]
            z = (height[last] - high) / (steep - slope[last])
            # The last line remains if it is the largest on an interval before the new line crosses it.
            if z - starts[-1] > TIE * (1.0 + abs(z)):
                break
            lines.pop()
            starts.pop()
        starts.append(z if lines else 0.0)
        lines.append(line)
    return lines, starts, [*starts[1:], math.inf]


def half_normal_log_probability(start: Floats, end: Floats) -> Floats:
    """Return ln P(start < abs(N(0, 1)) < end).

    Differences of tails are accurate for wide intervals. For narrow ones, the density is integrated.
    """
    from scipy.special import erfcx

    def log_tail(z: Floats) -> Floats:
        tail: Floats = np.log(erfcx(z * _SQRT_HALF)) - 0.5 * z * z
        return tail

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        finite = np.where(np.isinf(end), start, end)
        inside = np.where(np.isinf(end), -np.inf, log_tail(finite) - log_tail(start))
        wide = log_tail(start) + np.log1p(-np.exp(inside))
        half = 0.5 * (finite - start)
        x = start[:, None] + half[:, None] * (_NODES + 1.0)
        # exp(-(x² - start²) / 2), relative to the density at the start.
        relative = np.exp(-0.5 * (x - start[:, None]) * (x + start[:, None]))
        total = np.add.accumulate(relative * _WEIGHTS, axis=1)[:, -1] * half
        narrow = np.log(total) - 0.5 * start * start + 0.5 * np.log(2.0 / np.pi)
    log: Floats = np.where(inside < -1.0, wide, narrow)
    return np.minimum(log, 0.0)


def _half_normal_log_probability_of_one(start: float, end: float) -> float:
    """Return `half_normal_log_probability` of one interval, with the same formulas."""
    above = _log_tail(start)
    if end == math.inf or above == -math.inf:
        return min(above, 0.0)
    inside = _log_tail(end) - above
    if inside < -1.0:
        return min(above + math.log1p(-math.exp(inside)), 0.0)
    half = 0.5 * (end - start)
    steps = [(half * node, weight) for node, weight in _QUADRATURE]  # x - start, for each node x
    total = sum([weight * math.exp(-0.5 * step * (step + 2.0 * start)) for step, weight in steps]) * half
    return min(math.log(total) - 0.5 * start * start + 0.5 * math.log(2.0 / math.pi), 0.0)


def _log_tail(z: float) -> float:
    from scipy.special import erfcx

    scaled = erfcx(z * _SQRT_HALF)
    return math.log(scaled) - 0.5 * z * z if scaled > 0.0 else -math.inf
