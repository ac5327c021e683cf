"""Anytime MOSS."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Indexed, ScaledWidth, SubGaussianRewards, real


class AnytimeMOSS(ScaledWidth, SubGaussianRewards, Indexed):
    """MOSS with the current round in place of the horizon, and with a wider bonus in exchange.

    >>> from maillard import Tally
    >>> AnytimeMOSS(sigma2=0.25).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "moss-anytime"
    monotone: ClassVar[bool] = True
    uses_best: ClassVar[bool] = False
    formula: ClassVar[str] = "mean + √(4 σ² (1+α)/2 ln₊(t / (K N)) / N)"
    latex: ClassVar[str] = (
        r"\argmax_a \; \hat\mu_a + "
        r"\sqrt{\frac{4 \sigma^2}{N_a} \cdot \frac{1 + \alpha}{2} \, \ln_{+}\frac{t}{K N_a}}"
    )
    reference: ClassVar[str] = "Degenne and Perchet 2016"
    guarantees: ClassVar[Guarantees] = Guarantees(
        minimax_ratio="1",
        source="Degenne and Perchet 2016, Theorem 3",
    )

    alpha: float = real("α: how much wider the bonus is than that of MOSS", default=1.35, at_least=0)

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        level = 0.5 * (1.0 + self.alpha) * np.maximum(np.log(t / (k * n)), 0.0)
        return mean + self.scale * np.sqrt(4.0 * self.sigma2 * level / n)
