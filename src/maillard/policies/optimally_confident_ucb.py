"""Optimally confident UCB (OCUCB)."""

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
    real,
)


class OptimallyConfidentUCB(KnownHorizon, ScaledWidth, SubGaussianRewards, Indexed):
    """Chooses the largest upper confidence bound, with a bonus that shrinks towards the horizon.

    The theory requires α > 2 and ψ >= 2.

    >>> from maillard import Tally
    >>> OptimallyConfidentUCB(sigma2=0.25, horizon=1000).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "ocucb"
    monotone: ClassVar[bool] = True
    index_form: ClassVar[IndexForm | None] = "root"
    uses_best: ClassVar[bool] = False
    formula: ClassVar[str] = "mean + √(α σ² ln₊(ψ T / t) / N)"
    latex: ClassVar[str] = (
        r"\argmax_a \; \hat\mu_a + \sqrt{\frac{\alpha \sigma^2}{N_a} \, \ln_{+}\frac{\psi T}{t}}"
    )
    reference: ClassVar[str] = "Lattimore 2015, Algorithm 1"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=False,
        minimax_ratio="1",
        anytime=False,
        source="Bian and Jun 2022, Table 1",
        optimality_is_open=True,
    )

    alpha: float = real("α: factor on σ² under the root", default=3.0, above=0)
    psi: float = real("ψ: factor on the horizon in the logarithm", default=2.0, above=0)

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        level = np.maximum(np.log(self.psi * self.horizon / t), 0.0)
        return mean + self.scale * np.sqrt(self.alpha * self.sigma2 * level / n)
