"""Kullback-Leibler Maillard sampling with boosted leaders (KL-MS+), for rewards in [0, 1]."""

from __future__ import annotations

from typing import Any, ClassVar

from maillard.policies.base import BoostedLeaders, Guarantees, boosted_rival
from maillard.policies.kl_maillard_sampling import KLMaillardSampling
from maillard.policies.numerics.families import bernoulli


class KLMaillardSamplingPlus(BoostedLeaders, KLMaillardSampling):
    """KL-MS in which leaders have B times the weight, as in MS+.

    For 0/1 rewards its regret is about that of Bernoulli Thompson sampling. Its probabilities have a closed
    form.

    >>> from maillard import Tally
    >>> KLMaillardSamplingPlus(booster=8).probabilities(Tally([4, 4], [3, 2])).round(4)
    array([0.9343, 0.0657])
    """

    name: ClassVar[str] = "kl-ms+"
    monotone: ClassVar[bool] = True
    concentrates: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "leaders: p ∝ B (1 + C ln(1 + ln(t/N))); others: p ∝ exp(-x) (1 + D x), x = N kl(mean, best mean)"
    )
    latex: ClassVar[str] = (
        r"p_a \propto \begin{cases} "
        r"B \left(1 + C \, \ln\left(1 + \ln\frac{t}{N_a}\right)\right) & \text{leaders} \\ "
        r"e^{-x_a} (1 + D x_a) & \text{others} \end{cases} \quad "
        r"x_a = N_a \, \mathrm{kl}(\hat\mu_a, \hat\mu_{\max})"
    )
    reference: ClassVar[str] = "KL-MS of Qin, Jun and Zhang 2023 with the booster of Bian and Jun 2022"
    guarantees: ClassVar[Guarantees] = Guarantees(
        asymptotically_optimal=True,
        source="this project: the proof for KL-MS with B, C and D carried through "
        "(docs/reference/policies.md)",
        note="Rewards in [0, 1]; asymptotically optimal for Bernoulli rewards and jeffreys=false. "
        "Finite-time bounds are not worked out.",
    )

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return boosted_rival(n * bernoulli(mean, best, 0.0), self.d)
