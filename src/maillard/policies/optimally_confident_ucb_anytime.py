"""Anytime optimally confident UCB (OCUCB-n)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Pooled, ScaledWidth, SubGaussianRewards, real


class AnytimeOptimallyConfidentUCB(ScaledWidth, SubGaussianRewards, Pooled):
    """Chooses the largest upper confidence bound; the confidence level depends on the pulls of all arms.

    >>> from maillard import Tally
    >>> AnytimeOptimallyConfidentUCB(sigma2=0.25).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "ocucb-n"
    formula: ClassVar[str] = "mean + √(2 η σ² ln B / N), B = max(e, ln t, t ln t / Σ_b min(N, N_b^ρ N^(1-ρ)))"
    latex: ClassVar[str] = (
        r"\argmax_a \; \hat\mu_a + \sqrt{\frac{2 \eta \sigma^2 \, \ln \, B_a}{N_a}}, \quad "
        r"B_a = \max\left(e, \ln \, t, "
        r"\frac{t \, \ln \, t}{\sum_b \min\left(N_a, N_b^\rho N_a^{1 - \rho}\right)}\right)"
    )
    reference: ClassVar[str] = "Lattimore 2016"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=False,
        minimax_ratio="√(log log T)",
        source="Lattimore 2016, Theorem 1",
        note="The theorem needs η > 1, so it is a factor η from asymptotic optimality.",
    )

    eta: float = real("η: width of the bonus; the theory requires more than 1", default=2.0, above=0)
    rho: float = real("ρ: exponent of the pulls of other arms", default=0.5, at_least=0, at_most=1)

    def pooling(self) -> float:
        return self.rho

    def pooled_index(self, n: Any, mean: Any, pooled: Any, t: Any, k: Any) -> Any:
        level = np.maximum(np.e, t * np.log(t) / pooled)
        level = np.log(np.maximum(level, np.log(t)))
        return mean + self.scale * np.sqrt(2.0 * self.eta * self.sigma2 * level / n)
