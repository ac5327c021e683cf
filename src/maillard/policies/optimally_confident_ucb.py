"""Optimally confident UCB."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.assumptions import FixedBudget, Scaled, SubGaussian
from maillard.policies.guarantees import Guarantees
from maillard.policies.indexed import Indexed
from maillard.policies.parameters import real

__all__ = ["OptimallyConfidentUCB"]


class OptimallyConfidentUCB(FixedBudget, Scaled, SubGaussian, Indexed):
    """A bonus that falls as the horizon nears. The theory asks for α > 2 and ψ >= 2."""

    name: ClassVar[str] = "ocucb"
    formula: ClassVar[str] = "mean + √(α σ² ln₊(ψ T / t) / N)"
    reference: ClassVar[str] = "Lattimore 2015, Algorithm 1"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=False,
        minimax_ratio="1",
        anytime=False,
        source="Bian and Jun 2022, Table 1",
        note="Asymptotic optimality is not reported but might hold.",
    )

    alpha: float = real(3.0, "α: what multiplies σ² under the root", above=0)
    psi: float = real(2.0, "ψ: what multiplies the horizon in the logarithm", above=0)

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        level = np.maximum(np.log(self.psi * self.horizon / t), 0.0)
        return mean + self.scale * np.sqrt(self.alpha * self.sigma2 * level / n)
