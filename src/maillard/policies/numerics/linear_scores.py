"""What the formula of a linear policy uses: estimates and their uncertainty for each eligible arm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.feature_grid import STEPS
from maillard.linear_tally import LinearStatistics
from maillard.policies.numerics.linear_models import LinearModels
from maillard.policies.numerics.triangular import multiply, sum_in_order, weighted_sum

TIE = 2.0**-40  # relative tolerance of ties, because rounding breaks exact ones
_STEP = 1.0 / STEPS  # a power of 2, so the product is exact
_EPS = float(np.finfo(np.float64).eps)


@dataclass(eq=False)
class LinearScores:
    """The estimates of the eligible arms in one decision. Never changed."""

    mu: Floats
    "centre + x_a' theta, the estimate of each arm's mean reward."
    s2: Floats
    "x_a' V^-1 x_a: the variance of each estimate is sigma2 times this."
    t: int
    "1 + the number of applied rewards."
    tolerance: float
    "The tolerance for ties between estimates: 2**-40 times the reward range."
    models: LinearModels
    "The factors of all models, also those of arms that are not eligible."
    units: Ints
    "Feature rows in grid units, one column per arm; a disjoint model has one column for all arms."
    mask: Bools | None
    "Which arms are eligible; None if all are."

    @cached_property
    def leads(self) -> Bools:
        """Which arms have the largest mu, up to the tolerance for ties."""
        leads: Bools = self.mu >= np.maximum.reduce(self.mu) - self.tolerance
        return leads

    @cached_property
    def gap(self) -> Floats:
        """The largest mu minus that of the arm; 0 for leaders."""
        return np.where(self.leads, 0.0, np.maximum.reduce(self.mu) - self.mu)

    @property
    def which(self) -> Ints:
        """The model of each eligible arm."""
        if self.models.shared:
            return np.zeros(self.mu.size, np.int64)
        return np.arange(self.mu.size) if self.mask is None else np.flatnonzero(self.mask)

    def whitened(self, units: Ints) -> Floats:
        """Return L^-1 x for rows of a shared model, given as columns in grid units."""
        return multiply(self.models.inverse, units / STEPS)

    def squared_widths(self) -> Floats:
        """Return w_a^2, the largest squared norm of x_a - x_l in V^-1 over all leaders l, for each arm.

        In a disjoint model, the rows of different arms are orthogonal, so it is s_a^2 + s_l^2.
        """
        if not self.models.shared:
            widest: Floats = self.s2 + np.maximum.reduce(self.s2[self.leads])
            return widest
        largest = np.zeros(self.mu.size)
        for leader in np.unique(self.units[:, self.leads], axis=1).T:
            y = self.whitened(self.units - leader[:, None])
            np.maximum(largest, sum_in_order(y * y), out=largest)
        return largest

    def errors(self, centre: float) -> tuple[Floats, Floats]:
        """Return bounds on the error of each mu, and on the relative error of each s_a^2 and w_a^2."""
        unit, relative = self.model_errors(centre)
        which = self.which
        theta, rows = self.models.theta[:, which], np.abs(self.units) / STEPS
        final = abs(centre) + len(theta) * np.sum(rows * np.abs(theta), axis=0)
        mu = np.sqrt(self.s2) * unit[which] + 4.0 * _EPS * final
        return np.where(self.s2 > 0.0, mu, 0.0), relative[which]

    def leaders_are_certain(self, error: Floats) -> bool:
        """Return whether errors of mu of this size cannot change which arms lead."""
        drop = np.maximum.reduce(self.mu) - self.mu
        # Equal estimates come from equal rows and models, whose errors are equal, too.
        doubtful = (drop > 0.0) & (np.abs(drop - self.tolerance) <= error + error[np.argmax(self.mu)])
        return not doubtful.any()

    def model_errors(self, centre: float) -> tuple[Floats, Floats]:
        """Return bounds for each model: errors of x' theta per unit of s, and relative ones of s^2 and w^2.

        The computed factor is that of V + E, where |E| is a few roundings of V. Its norm is taken as that of
        random roundings, which grows with the square root of the number of features.
        """
        (large, inverse), theta = self.models.norms, self.models.theta
        large = large * np.sqrt(len(theta))
        right = np.array([_norm(each, centre) for each in self.models.statistics])
        norm = np.sqrt(np.sum(theta * theta, axis=0))
        unit: Floats = 4.0 * _EPS * np.sqrt(inverse) * (large * norm + right)
        return unit, np.minimum(4.0 * _EPS * (large * inverse + len(theta)), 0.5)


def _norm(model: LinearStatistics, centre: float) -> float:
    """Return the norm of the terms whose difference is b - centre Sx."""
    terms = np.abs(model.products) + abs(centre) * np.abs(model.feature_sums)
    return float(np.sqrt(np.sum(terms * terms)))


def linear_scores(
    models: LinearModels, units: Ints, mask: Bools | None, *, t: int, centre: float, tolerance: float
) -> LinearScores:
    """Return the estimates of the eligible arms.

    `units` has one column for each arm of a shared model, or one for all arms of a disjoint one.
    """
    if mask is not None and models.shared:
        units = units[:, mask]
    # L^-1 x and x' theta are sums of the same columns: NumPy calls take most of the time of small models.
    sums = weighted_sum(models.columns, units.astype(np.float64) * _STEP)
    mu, y = centre + sums[-1], sums[:-1]
    s2 = sum_in_order(y * y)
    if mask is not None and not models.shared:
        mu, s2 = mu[mask], s2[mask]
    return LinearScores(mu, s2, t, tolerance, models, units, mask)
