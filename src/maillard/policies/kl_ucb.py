"""kl-UCB."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import FamilyRewards, Guarantees, Indexed, ScaledWidth, choice, real
from maillard.policies.numerics.families import FAMILIES


class KLUCB(FamilyRewards, ScaledWidth, Indexed):
    """Chooses the largest upper confidence bound that the divergence of the reward family gives.

    >>> from maillard import Tally
    >>> KLUCB().probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "kl-ucb"
    monotone: ClassVar[bool] = True
    uses_best: ClassVar[bool] = False
    formula: ClassVar[str] = "max{q: N KL(mean, q) <= ln t + c ln max(1, ln t)}"
    latex: ClassVar[str] = (
        r"\argmax_a \; \max\left\{q : N_a \, \mathrm{KL}(\hat\mu_a, q) \le "
        r"\ln \, t + c \, \ln \max(1, \ln \, t)\right\}"
    )
    reference: ClassVar[str] = "Cappe, Garivier, Maillard, Munos and Stoltz 2013"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="√(log T)",
        source="Cappe et al. 2013; Qin, Jun and Zhang 2023, Table 1",
        note="For rewards of that family; the theory uses c = 3.",
    )

    family: str = choice("family of reward distributions", tuple(FAMILIES), default="bernoulli")
    c: float = real("weight of the ln ln t term: 0 in practice, 3 in theory", default=0.0, at_least=0)

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        level = np.log(t) + self.c * np.log(np.maximum(1.0, np.log(t)))
        return mean + self.scale * (self.upper(mean, level / n, self.sigma2) - mean)
