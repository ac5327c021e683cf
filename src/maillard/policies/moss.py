"""MOSS: minimax optimal strategy in the stochastic case."""

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


class MOSS(KnownHorizon, ScaledWidth, SubGaussianRewards, Indexed):
    """Chooses the largest upper confidence bound; it is minimax optimal for a known horizon.

    The literature uses `constant=4`; at least one public library uses 2.

    >>> from maillard import Tally
    >>> MOSS(sigma2=0.25, horizon=1000).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "moss"
    monotone: ClassVar[bool] = True
    index_form: ClassVar[IndexForm | None] = "separable"
    uses_best: ClassVar[bool] = False
    uses_round: ClassVar[bool] = False
    formula: ClassVar[str] = "mean + √(constant σ² ln₊(T / (K N)) / N)"
    latex: ClassVar[str] = (
        r"\argmax_a \; \hat\mu_a + "
        r"\sqrt{\mathrm{constant} \cdot \frac{\sigma^2}{N_a} \, \ln_{+}\frac{T}{K N_a}}"
    )
    reference: ClassVar[str] = "Audibert and Bubeck 2009; Lattimore and Szepesvari 2020, Section 9"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=False,
        asymptotically_optimal=False,
        minimax_ratio="1",
        anytime=False,
        source="Bian and Jun 2022, Table 1",
    )

    constant: float = real("factor on σ² under the root", default=4.0, above=0)

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        level = np.maximum(np.log(self.horizon / (k * n)), 0.0)
        return mean + self.scale * np.sqrt(self.constant * self.sigma2 * level / n)
