"""Randomized upper confidence bounds for linear models (RandUCB)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.policies.base import Guarantees, LinearNoise, ProbabilityKind, real
from maillard.policies.base.policy import rounding_error
from maillard.policies.numerics.linear_scores import LinearScores


class LinearRandomizedUCB(LinearNoise):
    """Chooses the arm with the largest upper confidence bound, of a random width that all arms share.

    An arm that no width makes the largest has probability 0, so a log of this policy needs a floor.
    """

    name: ClassVar[str] = "lin-rand-ucb"
    formula: ClassVar[str] = "argmax of mu + Z width σ s, one Z = abs(N(0, 1)) for all arms"
    reference: ClassVar[str] = "Vaswani, Mehrabian, Durand and Kveton 2020"
    probability_kind: ClassVar[ProbabilityKind] = "closed form"
    guarantees: ClassVar[Guarantees] = Guarantees(
        source="Vaswani, Mehrabian, Durand and Kveton 2020",
        note="Their bound, d √T up to logarithms, is for a discrete and bounded Z with a larger width.",
    )

    width: float = real("factor on the random width", default=1.0, above=0, at_most=1e100)

    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, Floats | None]:
        from maillard.policies.numerics.upper_envelope import win_log_probabilities

        slope = self.width * np.sqrt(self.sigma2 * scores.s2)
        log = win_log_probabilities(scores.mu, slope, scores.tolerance)
        if not bounds:
            return log, None
        mu, relative = scores.errors(self.centre)
        return log, _error(log, scores.mu, slope, mu, slope * relative)


def _error(log: Floats, mu: Floats, slope: Floats, mu_error: Floats, slope_error: Floats) -> Floats:
    """Return bounds on the errors of log probabilities, from those of the lines.

    An error of the lines moves the ends of an interval. To first order, the log probability changes by the
    movement times the density there, relative to the probability of the interval.
    """
    error = rounding_error(log)
    possible = np.flatnonzero(log > -np.inf)
    order = possible[np.argsort(slope[possible], kind="stable")]
    slopes, first, where = np.unique(slope[order], return_index=True, return_inverse=True)
    if slopes.size == 1:
        return error
    heights, off, turn = (each[order][first] for each in (mu, mu_error, slope_error))
    end = (heights[:-1] - heights[1:]) / np.diff(slopes)
    moved = (off[:-1] + off[1:] + end * (turn[:-1] + turn[1:])) / np.diff(slopes)
    total = np.logaddexp.reduceat(log[order], first)
    with np.errstate(over="ignore"):
        density = -0.5 * end * end + 0.5 * np.log(2.0 / np.pi)
        change = np.zeros(slopes.size)
        change[:-1] += moved * np.exp(density - total[:-1])
        change[1:] += moved * np.exp(density - total[1:])
    error[order] += np.log1p(2.0 * change)[where]
    return error
