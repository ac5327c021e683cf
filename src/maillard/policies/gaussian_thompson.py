"""Thompson sampling for Gaussian rewards."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Perturbed, ScaledWidth, SubGaussianRewards
from maillard.policies.numerics.score_distributions import GAUSSIAN, ScoreDistribution


class GaussianThompson(ScaledWidth, SubGaussianRewards, Perturbed):
    """Samples a mean from the Gaussian posterior of each arm (flat prior) and chooses the largest.

    >>> from maillard import Tally
    >>> GaussianThompson(sigma2=0.25).probabilities(Tally([4, 4], [3, 2])).round(4)
    array([0.7602, 0.2398])
    """

    name: ClassVar[str] = "ts"
    formula: ClassVar[str] = "argmax of N(mean, scale σ² / N)"
    latex: ClassVar[str] = (
        r"\argmax_a \; \theta_a, \quad "
        r"\theta_a \sim \mathcal{N}\left(\hat\mu_a, \mathrm{scale} \, \frac{\sigma^2}{N_a}\right)"
    )
    reference: ClassVar[str] = "Korda, Kaufmann and Munos 2013"
    noise: ClassVar[ScoreDistribution] = GAUSSIAN
    guarantees: ClassVar[Guarantees] = Guarantees(
        asymptotically_optimal=True,
        source="Korda, Kaufmann and Munos 2013",
        note="For Gaussian rewards only; none for sub-Gaussian ones.",
    )

    def score(self, n: Any, s: Any) -> tuple[Any, Any]:
        return s / n, np.sqrt(self.scale * self.sigma2 / n)
