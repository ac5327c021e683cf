"""kl-UCB++ and its anytime variant."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import FamilyRewards, Guarantees, Indexed, KnownHorizon, ScaledWidth, choice, flag
from maillard.policies.numerics.elementwise import where
from maillard.policies.numerics.families import FAMILIES

_ANYTIME = Guarantees(
    source="no result reported; the nearest is KL-UCB-switch (Garivier et al. 2022)",
    note="For rewards of that family.",
)


class KLUCBPlusPlus(FamilyRewards, KnownHorizon, ScaledWidth, Indexed):
    """kl-UCB with a confidence level that is both minimax optimal and asymptotically optimal.

    >>> from maillard import Tally
    >>> KLUCBPlusPlus(horizon=1000).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "kl-ucb++"
    monotone: ClassVar[bool] = True
    uses_best: ClassVar[bool] = False
    formula: ClassVar[str] = (
        "max{q: N KL(mean, q) <= ln₊(y (1 + ln₊² y))}, y = T / (K N); anytime: y = t / (K N)"
    )
    latex: ClassVar[str] = (
        r"\argmax_a \; \max\left\{q : N_a \, \mathrm{KL}(\hat\mu_a, q) \le "
        r"\ln_{+}\left(y_a \left(1 + \ln_{+}^2 y_a\right)\right)\right\}, \quad "
        r"y_a = \frac{T}{K N_a} \;\text{ (anytime: } \frac{t}{K N_a} \text{)}"
    )
    reference: ClassVar[str] = "Menard and Garivier 2017"
    guarantees: ClassVar[Guarantees] = Guarantees(
        asymptotically_optimal=True,
        minimax_ratio="1",
        anytime=False,
        source="Menard and Garivier 2017",
        note="For rewards of that family. anytime=true needs no horizon and has no reported result.",
    )

    family: str = choice("family of reward distributions", tuple(FAMILIES), default="bernoulli")
    anytime: bool = flag("use the current round in place of the horizon", default=False)

    def __post_init__(self, reward_range: tuple[float, float] | None = None) -> None:
        super().__post_init__(reward_range)
        if self.anytime:
            object.__setattr__(self, "guarantees", _ANYTIME)
            object.__setattr__(self, "horizon", None)
        object.__setattr__(self, "uses_round", self.anytime)

    @property
    def needs_horizon(self) -> bool:
        return not self.anytime

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        y = where(self.anytime, t, self.horizon or 1) / (k * n)
        plus = np.maximum(np.log(y), 0.0)
        level = np.maximum(np.log(y) + np.log1p(plus * plus), 0.0)
        return mean + self.scale * (self.upper(mean, level / n, self.sigma2) - mean)
