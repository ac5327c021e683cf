"""Intervals of estimates from rows that depend on each other within units, such as visits of one visitor.

**The variance.** The jackknife leaves out one unit at a time. With G units, the estimate θ and the estimates
θ(i) without unit i, the variance is (G - 1) / G Σ (θ(i) - θ)². The sum of the squared residuals of the units
would be too small, because a unit with many rows pulls the estimate to itself. The jackknife is not too small
in expectation (Efron and Stein 1981). In a regression it is called CR3 (Bell and McCaffrey 2002).

**The degrees of freedom.** If a few units have most of the rows, the variance is as uncertain as if there
were only these. A unit's rows have the total weight X, and let q = Σ w² / Σ w over all rows. If two rewards
of the same unit have the correlation ρ, the variance of the unit's residual is proportional to

    γ = ρ X² + (1 - ρ) q X.

The effective number of units is G* = (Σ γ)² / Σ γ² (Satterthwaite 1946; for clusters Carter, Schnepel and
Steigerwald 2017). The correlation follows from the design effect D, the variance by unit divided by that of
independent rows: D = 1 - ρ + ρ Σ X² / Σ w² (Imbens and Kolesár 2016 use the same model). The interval has the
quantile of Student's t with G* (G - 1) / G degrees of freedom, which are G - 1 if all units are alike.

**At any time.** While an experiment is running, a reader may look many times. Let M be the sum of the units'
residuals after some rows, and V its variance. With many units, M is close to a Gaussian process. The rewards
of a unit are not negatively correlated, so that Cov(M, M') >= V for all later M': at least the covariance of
a Brownian motion at the times V and V'. Hence by Slepian's lemma (1962), M / √V is above any boundary at some
time with at most the probability with which the Brownian motion is. For that, Robbins' mixture (1970) of
exp(λ M - λ² V / 2) over the absolute values λ of normal numbers with variance η²,

    2 (1 + x)^(-1/2) exp(z² / 2) Φ(z),    x = V η²,    z = M / √(V + 1 / η²),

is a martingale that starts at 1. It reaches 2 / α with a probability of at most α / 2 (Ville). Both sides
together: with probability 1 - α, at all times,

    |M| / √V < b = √((1 + 1 / x) (ln(1 + x) + 2 ln(1 / α'))),    α' = α Φ(√(2 ln(1 / α))).

The number η is fixed in advance so that the interval is narrowest when V is 1,000 times the variance of one
row. The variance is estimated, so b is replaced by the quantile of Student's t with the same tail
probability. The result is an asymptotic confidence sequence in the sense of Waudby-Smith, Arbour, Sinha,
Kennedy and Ramdas (2024, Annals of Statistics 52).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from maillard.array_types import Floats

if TYPE_CHECKING:
    from maillard.evaluation.moments import Moments

_NARROWEST = 1000.0  # the variance, in units of that of one row, for which the sequence is narrowest


def student_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


@dataclass(frozen=True)
class UnitVariance:
    """The variance of an estimate by unit, and how uncertain that is."""

    variance: float
    units: int
    effective_units: float
    "The number of equal units whose variance would be as uncertain."
    information: float
    "The variance of the sum of the residuals, in units of the variance of one row: rows x design effect."

    @property
    def freedom(self) -> float:
        """The degrees of freedom of the variance."""
        return self.effective_units * (self.units - 1) / self.units

    def quantile(self, confidence: float) -> float:
        """The number of standard errors on either side, for a number of rows that is fixed in advance.

        >>> UnitVariance(1.0, units=11, effective_units=11.0, information=100.0).quantile(0.95).__round__(3)
        2.228
        """
        return student_quantile(0.5 + confidence / 2, self.freedom)

    def anytime_quantile(self, confidence: float) -> float:
        """The number of standard errors on either side, valid at all times together.

        >>> many = UnitVariance(1.0, units=10**6, effective_units=1e6, information=1000.0)
        >>> round(many.anytime_quantile(0.95), 2)
        3.04
        """
        from scipy.special import ndtr

        return -student_quantile(float(ndtr(-mixture_boundary(self.information, confidence))), self.freedom)


def mixture_boundary(information: float, confidence: float) -> float:
    """b, the boundary of |M| / √V; `information` is V in units of the variance of one row."""
    from scipy.special import ndtr

    log = -math.log1p(-confidence)
    level = 2.0 * (log - math.log(float(ndtr(math.sqrt(2.0 * log)))))
    x = information / _NARROWEST * (level + math.log1p(level))
    return math.sqrt((1.0 + 1.0 / x) * (math.log1p(x) + level))


@np.errstate(all="ignore")  # an estimate that is not finite is refused later
def unit_variance(
    moments: Moments, estimates: Callable[[Floats], Floats], gradient: Floats, weight: Floats
) -> UnitVariance:
    """The variance by unit of an estimate, which is a function of the mean of the rows' vectors.

    `estimates` takes several means as columns. `gradient` is that of the estimate at the mean. `weight` says
    how much a row counts: it is multiplied by (1, x), where x is the row's vector.
    """
    assert moments.units is not None
    table = np.array(list(moments.units.values())).T  # for each unit, its rows and the sum of their vectors
    count, total = table[0], table.sum(axis=1, keepdims=True)
    units, rows, mean = count.size, moments.count, total[1:] / total[0]
    without = (total[1:] - table[1:]) / (rows - count)
    variance = float(((estimates(without) - estimates(mean)) ** 2).sum()) * (units - 1) / units
    # The design effect, and the correlation that explains it.
    independent = np.float64(moments.variance(gradient))
    effect = float(((gradient @ (table[1:] - count * mean)) ** 2).sum()) / rows**2 / independent
    size, squares = weight @ table, moments.mean_square(weight) * rows
    explained = (effect - 1.0) / ((size**2).sum() / squares - 1.0)
    correlation = min(max(float(explained), 0.0), 1.0) if np.isfinite(explained) else 0.0
    each = correlation * size**2 + (1.0 - correlation) * squares / size.sum() * size
    effective = float(each.sum() ** 2 / (each**2).sum())
    return UnitVariance(variance, units, effective, float(rows * variance / independent))
