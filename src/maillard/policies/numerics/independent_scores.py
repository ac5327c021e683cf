"""The probability that each of many independent Gaussian scores is the largest; some may be constants."""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats, Indices
from maillard.policies.base.policy import rounding_error
from maillard.policies.numerics import quadrature
from maillard.policies.numerics.rare_arms import log_integrals
from maillard.policies.numerics.score_distributions import GAUSSIAN

# A constant is replaced by a Gaussian that is narrower than all others by this factor. Its mean is right, so
# the error is of second order in the factor.
_NARROW = 2.0**-24
_RARE = float(np.log(1e-15))  # arms with smaller log probabilities are rare


def independent_log_probabilities(mean: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """Return the log probability that each arm has the largest score, and a bound on the error of each.

    Scores with deviation 0 are constants, which share their probability if they are equal.

    >>> log, _ = independent_log_probabilities(np.array([0.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0]))
    >>> np.exp(log).round(6).tolist()
    [0.25, 0.25, 0.5]
    """
    constant = deviation == 0.0
    if not constant.any():
        return _random(mean, deviation)
    best = constant & (mean == mean[constant].max())
    copies = np.count_nonzero(best)
    log, error = np.full(mean.size, -np.inf), np.zeros(mean.size)
    if constant.all():
        log[best] = -np.log(copies)
        return log, rounding_error(log)
    arms = np.append(np.flatnonzero(~constant), np.argmax(best))
    widths = deviation[arms]
    if arms.size > 2:
        widths[-1] = _NARROW * widths[:-1].min()
    some, some_error = _random(mean[arms], widths)
    some_error += 4.0 * _NARROW**2 * (arms.size - np.minimum(some, 0.0))
    rare = np.flatnonzero(some[:-1] < _RARE)
    if arms.size > 2 and rare.size:
        some[rare], some_error[rare] = _rare(mean[arms[:-1]], widths[:-1], mean[arms[-1]], rare)
    log[arms], error[arms] = some, some_error
    log[best], error[best] = some[-1] - np.log(copies), some_error[-1]
    return log, error


def _rare(mean: Floats, deviation: Floats, constant: float, rare: Indices) -> tuple[Floats, Floats]:
    """Return the log probabilities of rare arms: the integral of each one's density above the constant.

    Near the constant, the product of the other distribution functions has a step, which the integrals of
    `quadrature` resolve only for arms that are not rare. Here the step is the end of the integral.
    """

    def log_integrand(x: Floats) -> Floats:
        total = GAUSSIAN.logs(x, mean[rare, None], deviation[rare, None])[1]
        for a, b in zip(mean.tolist(), deviation.tolist(), strict=True):
            total = total + GAUSSIAN.logs(x, np.full((1, 1), a), np.full((1, 1), b))[0]
        return total

    low = np.full(rare.size, constant)
    peak = np.maximum(low, mean[rare])
    top = max(constant, float((mean + 12.0 * deviation).max()))
    with np.errstate(all="ignore"):
        log, error, _ = log_integrals(log_integrand, low, peak, top + (top - peak) + deviation[rare])
    return log, error + 1e-12


def _random(mean: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    if mean.size == 2:
        log = GAUSSIAN.pair(mean, deviation)
        return log, rounding_error(log)
    return quadrature.win_log_probabilities(GAUSSIAN, mean, deviation)


def sensitivity(log: Floats, shift: float, stretch: float, scores: int) -> Floats:
    """Return a bound on the change of ln P of events, if Gaussian scores are moved and stretched slightly.

    `shift` is the Euclidean norm of the movements of the means in standard deviations, `stretch` the largest
    relative change of a deviation. The derivatives are conditional expectations of Z and of Z² - 1 given the
    event, and conditioning on an event of probability P cannot raise them above √(2 ln 1/P) and a multiple of
    ln 1/P plus the number of scores.
    """
    rarity = np.where(log > -np.inf, 1.0 - log, 0.0)
    change: Floats = shift * np.sqrt(2.0 * rarity) + 4.0 * stretch * (rarity + scores / 8.0)
    return change
