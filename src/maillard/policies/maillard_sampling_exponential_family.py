"""Maillard sampling for one-parameter exponential families."""

from __future__ import annotations

from typing import Any, ClassVar

from maillard.policies.base import FamilyRewards, Guarantees, Sampled


class ExponentialFamilyMaillardSampling(FamilyRewards, Sampled):
    """Maillard sampling with the divergence of the reward family; with the Gaussian family it equals `ms`.

    >>> from maillard import Tally
    >>> ExponentialFamilyMaillardSampling(sigma2=0.25).probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.5156, 0.4844])
    """

    name: ClassVar[str] = "ms-exponential-family"
    monotone: ClassVar[bool] = True
    concentrates: ClassVar[bool] = True
    formula: ClassVar[str] = "p ∝ exp(-N KL(mean, best mean)), KL of the family"
    latex: ClassVar[str] = r"p_a \propto \, \exp\left(-N_a \, \mathrm{KL}(\hat\mu_a, \hat\mu_{\max})\right)"
    reference: ClassVar[str] = "Baudry, Suzuki and Honda 2023"
    guarantees: ClassVar[Guarantees] = Guarantees(
        asymptotically_optimal=True,
        source="Baudry, Suzuki and Honda 2023, A General Recipe",
        note="For rewards of that family.",
    )

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -n * self.divergence(mean, best, self.sigma2)
