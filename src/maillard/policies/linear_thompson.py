"""Thompson sampling for linear models (LinTS)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.policies.base import Guarantees, LinearNoise, ProbabilityKind, choice, real
from maillard.policies.numerics.linear_scores import LinearScores


class LinearThompson(LinearNoise):
    """Samples a score for each arm from the posterior of its estimate and chooses the largest.

    With a shared model, `draws=joint` samples the coefficients once for all arms. Its probabilities can be
    computed if the differences of the arms' rows have rank 1 or 2. With `draws=independent`, and with a
    disjoint model, the scores are independent.

    >>> from maillard import LinearTally
    >>> tally = LinearTally.empty(features=2, arms=2)
    >>> for row, reward in (([1, 0], 1), ([1, 1], 0)): tally.add(row, reward, arm=0)
    >>> LinearThompson(reward_range=(0, 1)).probabilities(tally, [1, 1]).round(4)
    array([0.402, 0.598])
    """

    name: ClassVar[str] = "lin-ts"
    formula: ClassVar[str] = "argmax of N(mu, scale σ² s²)"
    latex: ClassVar[str] = (
        r"\argmax_a \; \theta_a, \quad "
        r"\theta_a \sim \mathcal{N}\left(\mu_a, \mathrm{scale} \, \sigma^2 s_a^2\right)"
    )
    reference: ClassVar[str] = "Agrawal and Goyal 2013; Abeille and Lazaric 2017"
    probability_kind: ClassVar[ProbabilityKind] = "quadrature"
    uses_leaders: ClassVar[bool] = False
    formula_version: ClassVar[int] = 2
    earlier_versions: ClassVar[tuple[int, ...]] = (1,)  # other quadrature of arms below 1e-20
    engine_shape: ClassVar[str | None] = "linear-perturbed"
    guarantees: ClassVar[Guarantees] = Guarantees(
        source="Agrawal and Goyal 2013; Abeille and Lazaric 2017",
        note="Their bound, d^(3/2) √T up to logarithms, is for joint draws and a variance that grows with d.",
    )

    scale: float = real("factor on the variance", default=1.0, above=0, at_most=1e100, min_magnitude=1e-100)
    draws: str = choice(
        "of a shared model: one per arm, or one of the coefficients", ("independent", "joint"),
        default="independent",
    )  # fmt: skip

    def deviation(self, s2: Any) -> Any:
        """Return the standard deviation of a score."""
        return np.sqrt(self.scale * self.sigma2 * s2)

    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, Floats | None]:
        if self.draws == "joint" and scores.models.shared:
            from maillard.policies.numerics.planar_thompson import joint_log_probabilities

            return joint_log_probabilities(scores, self.scale * self.sigma2, self.centre)
        from maillard.policies.numerics.independent_scores import independent_log_probabilities, sensitivity
        from maillard.policies.numerics.quadrature import LOG_RARE

        deviation = self.deviation(scores.s2)
        log, error = independent_log_probabilities(scores.mu, deviation)
        if self.formula_version == 1:  # which was rough for arms that are almost never chosen
            error[log <= LOG_RARE] = np.inf
        if not bounds:
            return log, error
        mu, relative = scores.errors(self.centre)
        random = deviation > 0.0
        shift = float(np.sqrt(np.sum((mu[random] / deviation[random]) ** 2)))
        return log, error + sensitivity(log, shift, float(relative.max()), log.size)
