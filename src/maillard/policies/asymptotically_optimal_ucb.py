"""Asymptotically optimal UCB."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Indexed, IndexForm, ScaledWidth, SubGaussianRewards


class AsymptoticallyOptimalUCB(ScaledWidth, SubGaussianRewards, Indexed):
    """Chooses the largest upper confidence bound, with a confidence level that is asymptotically optimal.

    >>> from maillard import Tally
    >>> AsymptoticallyOptimalUCB(sigma2=0.25).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "aoucb"
    monotone: ClassVar[bool] = True
    index_form: ClassVar[IndexForm | None] = "root"
    uses_best: ClassVar[bool] = False
    formula: ClassVar[str] = "mean + √(2 σ² ln(1 + t ln² t) / N)"
    latex: ClassVar[str] = (
        r"\argmax_a \; \hat\mu_a + \sqrt{\frac{2 \sigma^2 \, \ln(1 + t \, \ln^2 \, t)}{N_a}}"
    )
    reference: ClassVar[str] = "Lattimore and Szepesvari 2020, Section 8"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="√(log T)",
        source="Bian and Jun 2022, Table 1",
    )

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        log = np.log(t)
        level = np.log(1.0 + t * log * log)  # 0 or not small: log1p would cost more and gain nothing
        return mean + self.scale * np.sqrt(2.0 * self.sigma2 * level / n)
