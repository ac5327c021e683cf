"""UCB+, almost optimally confident UCB."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import (
    Guarantees,
    Indexed,
    IndexForm,
    KnownHorizon,
    ScaledWidth,
    SubGaussianRewards,
)


class UCBPlus(KnownHorizon, ScaledWidth, SubGaussianRewards, Indexed):
    """Chooses the largest upper confidence bound; the confidence level falls with the pulls of the arm.

    >>> from maillard import Tally
    >>> UCBPlus(sigma2=0.25, horizon=1000).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "ucb+"
    monotone: ClassVar[bool] = True
    index_form: ClassVar[IndexForm | None] = "separable"
    uses_best: ClassVar[bool] = False
    uses_round: ClassVar[bool] = False
    formula: ClassVar[str] = "mean + √(2 σ² ln₊(T / N) / N)"
    latex: ClassVar[str] = r"\argmax_a \; \hat\mu_a + \sqrt{\frac{2 \sigma^2}{N_a} \, \ln_{+}\frac{T}{N_a}}"
    reference: ClassVar[str] = "Lattimore 2015, Algorithm 2"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=False,
        minimax_ratio="√(log K)",
        anytime=False,
        source="Bian and Jun 2022, Table 1",
        optimality_is_open=True,
    )

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        level = np.maximum(np.log(self.horizon / n), 0.0)
        return mean + self.scale * np.sqrt(2.0 * self.sigma2 * level / n)
