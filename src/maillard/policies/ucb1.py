"""UCB1."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Indexed, IndexForm, ScaledWidth, SubGaussianRewards


class UCB1(ScaledWidth, SubGaussianRewards, Indexed):
    """Chooses the largest upper confidence bound, with the bonus √(2 ln t / N) for rewards in [0, 1].

    `scale=0.5` gives √(2 σ² ln t / N).

    >>> from maillard import Tally
    >>> UCB1(sigma2=0.25).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "ucb1"
    monotone: ClassVar[bool] = True
    index_form: ClassVar[IndexForm | None] = "root"
    uses_best: ClassVar[bool] = False
    formula: ClassVar[str] = "mean + √(8 σ² ln t / N)"
    latex: ClassVar[str] = r"\argmax_a \; \hat\mu_a + \sqrt{\frac{8 \sigma^2 \, \ln \, t}{N_a}}"
    reference: ClassVar[str] = "Auer, Cesa-Bianchi and Fischer 2002"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=False,
        minimax_ratio="√(log T)",
        source="Bian and Jun 2022, Table 1",
    )

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        return mean + self.scale * np.sqrt(8.0 * self.sigma2 * np.log(t) / n)
