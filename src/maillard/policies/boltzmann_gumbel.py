"""Boltzmann-Gumbel exploration."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Perturbed, SubGaussianRewards
from maillard.policies.numerics.score_distributions import GUMBEL, ScoreDistribution


class BoltzmannGumbel(SubGaussianRewards, Perturbed):
    """Adds Gumbel noise to each mean and chooses the largest sum.

    The scale of the noise shrinks with the pulls of the arm, so the probabilities are not a softmax.

    >>> from maillard import Tally
    >>> BoltzmannGumbel(sigma2=0.25).probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.5639, 0.4361])
    """

    name: ClassVar[str] = "boltzmann-gumbel"
    formula: ClassVar[str] = "argmax mean + σ / √N Gumbel(0, 1)"
    latex: ClassVar[str] = (
        r"\argmax_a \; \hat\mu_a + \frac{\sigma}{\sqrt{N_a}} Z_a, \quad "
        r"Z_a \sim \mathrm{Gumbel}(0, 1)"
    )
    reference: ClassVar[str] = "Cesa-Bianchi, Gentile, Lugosi and Neu 2017"
    noise: ClassVar[ScoreDistribution] = GUMBEL
    guarantees: ClassVar[Guarantees] = Guarantees(
        asymptotically_optimal=False,
        minimax_ratio="log K",
        source="Cesa-Bianchi, Gentile, Lugosi and Neu 2017",
        note="Its gap-dependent bound is of order log² T.",
    )

    def score(self, n: Any, s: Any) -> tuple[Any, Any]:
        return s / n, np.sqrt(self.sigma2 / n)
