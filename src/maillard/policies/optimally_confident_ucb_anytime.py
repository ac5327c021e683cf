"""Anytime optimally confident UCB."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from maillard.policies.numerics.pooling import pooled_pulls
from maillard.policies.shapes.assumptions import Scaled, SubGaussian
from maillard.policies.shapes.guarantees import Guarantees
from maillard.policies.shapes.indexed import Indexed
from maillard.policies.shapes.parameters import real

if TYPE_CHECKING:
    from maillard.policies.shapes.policy import Floats

__all__ = ["AnytimeOptimallyConfidentUCB"]


class AnytimeOptimallyConfidentUCB(Scaled, SubGaussian, Indexed):
    """OCUCB-n. An arm's confidence level depends on the pulls of every arm."""

    name: ClassVar[str] = "ocucb-n"
    formula: ClassVar[str] = "mean + √(2 η σ² ln B / N), B = max(e, ln t, t ln t / Σ_b min(N, N_b^ρ N^(1-ρ)))"
    reference: ClassVar[str] = "Lattimore 2016"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=False,
        minimax_ratio="√(log log T)",
        source="Lattimore 2016, Theorem 1",
        note="The theorem needs η > 1, so it is a factor η from asymptotic optimality.",
    )

    eta: float = real("η: width of the bonus; the theory asks for more than 1", default=2.0, above=0)
    rho: float = real("ρ: how pulls of other arms count", default=0.5, at_least=0, at_most=1)

    def indices(self, n: Floats, mean: Floats, t: int, k: int) -> Floats:
        level = np.maximum(np.e, t * np.log(t) / pooled_pulls(n, self.rho))
        level = np.log(np.maximum(level, np.log(t)))
        bonus: Floats = np.sqrt(2.0 * self.eta * self.sigma2 * level / n)
        return mean + self.scale * bonus
