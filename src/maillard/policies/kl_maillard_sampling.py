"""Kullback-Leibler Maillard sampling for rewards in [0, 1]."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Sampled, flag
from maillard.policies.numerics.elementwise import where
from maillard.policies.numerics.families import bernoulli


class KLMaillardSampling(Sampled):
    """Maillard sampling with the Bernoulli divergence in place of the squared gap.

    If the mean of an arm is 1, all arms with a smaller mean have probability exactly 0. `jeffreys` replaces
    the means by (S + 1/2) / (N + 1), which keeps every probability positive.

    >>> from maillard import Tally
    >>> KLMaillardSampling().probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.5161, 0.4839])
    """

    name: ClassVar[str] = "kl-ms"
    monotone: ClassVar[bool] = True
    concentrates: ClassVar[bool] = True
    formula: ClassVar[str] = "p ∝ exp(-N kl(mean, best mean)), kl between Bernoulli distributions"
    latex: ClassVar[str] = r"p_a \propto \, \exp\left(-N_a \, \mathrm{kl}(\hat\mu_a, \hat\mu_{\max})\right)"
    reference: ClassVar[str] = "Qin, Jun and Zhang 2023, Algorithm 1"
    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="√(log K)",
        source="Qin, Jun and Zhang 2023, Theorems 2 to 4",
        note="Rewards in [0, 1]; asymptotically optimal for Bernoulli rewards. "
        "The theorems are for jeffreys=false.",
    )

    jeffreys: bool = flag("use (S + 1/2) / (N + 1) instead of the mean S / N", default=False)

    def estimate(self, n: Any, s: Any) -> Any:
        return where(self.jeffreys, (s + 0.5) / (n + 1.0), s / n)

    @property
    def compares_means(self) -> bool:
        return not self.jeffreys and type(self).estimate is KLMaillardSampling.estimate

    @property
    def has_potential(self) -> bool:
        return type(self).rival is KLMaillardSampling.rival

    def potential(self, mean: Any) -> Any:
        some, rest = where(mean > 0.0, mean, 1.0), where(mean < 1.0, 1.0 - mean, 1.0)
        return some * np.log(some) + rest * np.log(rest)

    def slope(self, best: Any) -> Any:
        return np.log(best) - np.log1p(-best)

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -n * bernoulli(mean, best, 0.0)
