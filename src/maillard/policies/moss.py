"""MOSS, minimax optimal strategy in the stochastic case."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base.guarantees import Guarantees
from maillard.policies.base.indexed_policy import Indexed
from maillard.policies.base.parameters import real
from maillard.policies.base.shared_parameters import KnownHorizon, ScaledWidth, SubGaussianRewards

__all__ = ["MOSS"]


class MOSS(KnownHorizon, ScaledWidth, SubGaussianRewards, Indexed):
    """Minimax optimal for a known horizon. `constant` is 4 in the literature, 2 in one public library."""

    name: ClassVar[str] = "moss"
    monotone: ClassVar[bool] = True
    uses_best: ClassVar[bool] = False
    uses_round: ClassVar[bool] = False
    formula: ClassVar[str] = "mean + √(constant σ² ln₊(T / (K N)) / N)"
    reference: ClassVar[str] = "Audibert and Bubeck 2009; Lattimore and Szepesvari 2020, Section 9"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=False,
        asymptotically_optimal=False,
        minimax_ratio="1",
        anytime=False,
        source="Bian and Jun 2022, Table 1",
    )

    constant: float = real("what multiplies σ² under the root", default=4.0, above=0)

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        level = np.maximum(np.log(self.horizon / (k * n)), 0.0)
        return mean + self.scale * np.sqrt(self.constant * self.sigma2 * level / n)
