"""AdaUCB."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from maillard.policies.numerics.pooling import pooled_pulls
from maillard.policies.shapes.assumptions import FixedBudget, Scaled, SubGaussian
from maillard.policies.shapes.guarantees import Guarantees
from maillard.policies.shapes.indexed import Indexed

if TYPE_CHECKING:
    from maillard.policies.shapes.policy import Floats

__all__ = ["AdaUCB"]


class AdaUCB(FixedBudget, Scaled, SubGaussian, Indexed):
    """The UCB with the best known guarantees for Gaussian rewards."""

    name: ClassVar[str] = "adaucb"
    formula: ClassVar[str] = (
        "mean + √(2 σ² L(T/H) / N), H = Σ_b min(N, √(N N_b)), L(y) = ln((y + e) √ln(y + e))"
    )
    reference: ClassVar[str] = "Lattimore 2018"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="1",
        anytime=False,
        source="Lattimore 2018; Bian and Jun 2022, Section 3",
        note="For Gaussian rewards.",
    )

    def indices(self, n: Floats, mean: Floats, t: int, k: int) -> Floats:
        y = self.horizon / pooled_pulls(n, 0.5) + np.e
        level = np.log(y) + 0.5 * np.log(np.log(y))
        bonus: Floats = np.sqrt(2.0 * self.sigma2 * level / n)
        return mean + self.scale * bonus
