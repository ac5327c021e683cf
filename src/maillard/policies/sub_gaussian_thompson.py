"""Thompson sampling for sub-Gaussian rewards (TS-SG)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Perturbed, ScaledWidth, SubGaussianRewards
from maillard.policies.numerics.score_distributions import GAUSSIAN, ScoreDistribution


class SubGaussianThompson(ScaledWidth, SubGaussianRewards, Perturbed):
    """Samples a Gaussian score for each arm and chooses the largest.

    The variance is four times that of the posterior, as the proof requires.

    >>> from maillard import Tally
    >>> SubGaussianThompson(sigma2=0.25).probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.6306, 0.3694])
    """

    name: ClassVar[str] = "ts-sg"
    formula: ClassVar[str] = "argmax of N(S / (N + 1), 4 scale σ² / (N + 1))"
    latex: ClassVar[str] = (
        r"\argmax_a \; \theta_a, \quad \theta_a \sim "
        r"\mathcal{N}\left(\frac{S_a}{N_a + 1}, \mathrm{scale} \, \frac{4 \sigma^2}{N_a + 1}\right)"
    )
    reference: ClassVar[str] = "Agrawal and Goyal 2017, Algorithm 2"
    noise: ClassVar[ScoreDistribution] = GAUSSIAN
    has_prior: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=False,
        minimax_ratio="√(log K)",
        source="Bian and Jun 2022, Table 1",
    )

    def score(self, n: Any, s: Any) -> tuple[Any, Any]:
        return s / (n + 1.0), np.sqrt(4.0 * self.scale * self.sigma2 / (n + 1.0))
