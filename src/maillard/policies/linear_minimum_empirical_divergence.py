"""Minimum empirical divergence for linear models (LinMED)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.errors import InvalidValue
from maillard.feature_grid import STEPS
from maillard.policies.base import Guarantees, LinearNoise, ProbabilityKind, real
from maillard.policies.base.linear_policy import normalised_error, spread
from maillard.policies.numerics.elementwise import where
from maillard.policies.numerics.linear_scores import LinearScores
from maillard.policies.numerics.optimal_design import design


class LinearMinimumEmpiricalDivergence(LinearNoise):
    """Chooses arms by their empirical divergence from the leaders, times weights that spread exploration.

    The weights mix the leaders, a nearly optimal design on the arms' rows, and the uniform distribution.

    >>> from maillard import LinearTally
    >>> tally = LinearTally.empty(features=2, arms=2)
    >>> for row, reward in (([1, 0], 1), ([1, 1], 0)): tally.add(row, reward, arm=0)
    >>> LinearMinimumEmpiricalDivergence(reward_range=(0, 1)).probabilities(tally, [1, 1]).round(4)
    array([0.0499, 0.9501])
    """

    name: ClassVar[str] = "lin-med"
    formula: ClassVar[str] = "p ∝ q exp(-gap² / (β w²)), q = opt q* + emp [a leads] / leaders + rest / K"
    latex: ClassVar[str] = (
        r"p_a \propto q_a \, \exp\left(-\frac{g_a^2}{\beta w_a^2}\right), \quad "
        r"q_a = \mathrm{opt} \, q_a^* + \mathrm{emp} \, \frac{[a \text{ leads}]}{\text{number of leaders}} "
        r"+ \frac{1 - \mathrm{opt} - \mathrm{emp}}{K}"
    )
    reference: ClassVar[str] = "Balagopalan and Jun 2025 (LinMED-90)"
    probability_kind: ClassVar[ProbabilityKind] = "closed form"
    engine_shape: ClassVar[str | None] = "linear-divergence"
    derived: ClassVar[tuple[str, ...]] = ("given_beta", "given_norm")
    guarantees: ClassVar[Guarantees] = Guarantees(
        regret="d √T",
        source="Balagopalan and Jun 2025",
        note="Up to logarithms, with beta=theory and a shared model.",
    )

    beta: Any = real(
        "β: squared width of the confidence set; try 2 σ²",
        default="theory", word="theory", above=0, at_most=1e100, min_magnitude=1e-100,
    )  # fmt: skip
    emp: float = real("share of q for the leaders", default=0.9, at_least=0, at_most=1)
    opt: float = real("share of q for the design q*", default=0.05, at_least=0, at_most=1)
    delta: float = real("δ: error probability of beta=theory", default=0.01, above=0, at_most=1)
    norm: float = real(
        "S: bound on the norm of all coefficients for beta=theory; by default 1, disjoint √K",
        at_least=0, at_most=1e100, optional=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.emp + self.opt > 1.0:
            allowed = f"at most {1 - self.opt:g}, so that emp + opt <= 1"
            raise InvalidValue(f"{self.name}: emp", self.emp, allowed)

    @property
    def given_beta(self) -> float:
        """β, or 0 for `theory`."""
        return 0.0 if self.beta == "theory" else float(self.beta)

    @property
    def given_norm(self) -> float:
        """S, or -1 for the default."""
        return -1.0 if self.norm is None else self.norm

    def squared_radius(self, growth: Any, models: Any) -> Any:
        """Return β, for `theory` from the growth of all log determinants, also of arms not eligible."""
        norm = where(self.given_norm < 0.0, np.sqrt(models), self.given_norm)
        radius = np.sqrt(self.sigma2 * (np.maximum(growth, 0.0) - 2.0 * np.log(self.delta)))
        theory = (radius + np.sqrt(self.ridge) * norm) ** 2
        return where(self.given_beta > 0.0, self.given_beta, theory)

    def exponent(self, gap: Any, variance: Any) -> Any:
        """Return the logarithm of f for a rival."""
        return -gap * gap / variance

    def mixture(self, design: Any, leader: Any, arms: Any) -> Any:
        """Return q, given the probabilities of an arm under q* and under the uniform choice of a leader."""
        return self.opt * design + self.emp * leader + (1.0 - self.opt - self.emp) / arms

    @np.errstate(all="ignore")  # log(0) = -inf is intended
    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, Floats | None]:
        models = scores.models
        size, count = models.theta.shape
        growth = models.log_determinant - count * size * math.log(self.ridge)
        variance = self.squared_radius(growth, float(count)) * scores.squared_widths()
        weights = self._weights(scores.gap, variance, scores)
        log = self._normalise(weights)
        if not bounds:
            return log, None
        mu, relative = scores.errors(self.centre)
        off = np.where(scores.leads, 0.0, mu + mu.max())
        factor = relative.max()
        corners = [
            self._weights(np.maximum(scores.gap - off, 0.0), variance * (1.0 + factor), scores),
            self._weights(scores.gap + off, variance * (1.0 - factor), scores),
        ]
        return log, normalised_error(log, spread(weights, corners))

    def _weights(self, gap: Floats, variance: Floats, scores: LinearScores) -> Floats:
        exponent = np.where(scores.leads, 0.0, self.exponent(gap, variance))
        if scores.models.shared:
            # The design does not depend on a common factor. Without it, all rows other than 0 may underflow.
            largest = np.max(exponent, initial=-np.inf, where=scores.units.any(axis=0))
            best = design(scores.units / STEPS * np.exp(np.minimum(0.5 * (exponent - largest), 0.0)))
        else:  # rows of different arms are orthogonal
            best = np.full(gap.size, 1.0 / gap.size)
        leaders = scores.leads / np.count_nonzero(scores.leads)
        weights: Floats = np.log(self.mixture(best, leaders, gap.size)) + exponent
        return weights
