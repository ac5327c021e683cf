"""The paper's closing equation exactly as printed, without the pull count."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base.guarantees import Guarantees
from maillard.policies.base.parameters import real
from maillard.policies.base.sampled_policy import Sampled
from maillard.policies.base.shared_parameters import SubGaussianRewards
from maillard.policies.numerics.families import evidence

__all__ = ["PrintedMaillardSampling"]


class PrintedMaillardSampling(SubGaussianRewards, Sampled):
    """Kept to show what the missing N does. Use `ms-practical` or `ms+`."""

    name: ClassVar[str] = "ms-printed"
    monotone: ClassVar[bool] = True
    formula: ClassVar[str] = "p ∝ B^[leader] exp(-d² / (2 σ²))"
    reference: ClassVar[str] = "Bian and Jun 2022, Eq. (4), as printed"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=False,
        asymptotically_optimal=False,
        minimax_ratio="linear regret",
        closed_form_probability=True,
        source="this project: p of a bad arm tends to a positive constant (docs/paper-notes.md)",
    )

    booster: float = real("B: how many times more a leader weighs", default=4.0, at_least=1)

    def leader(self, n: Any, t: Any) -> Any:
        return np.log(self.booster) + 0.0 * n

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -evidence(1.0, best - mean, self.sigma2)
