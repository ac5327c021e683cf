"""Maillard sampling plus (MS+), Algorithm 2 of the paper."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base.guarantees import Guarantees
from maillard.policies.base.parameters import real
from maillard.policies.base.sampled_policy import Sampled
from maillard.policies.base.shared_parameters import SubGaussianRewards
from maillard.policies.numerics.families import gaussian_exponent


class MaillardSamplingPlus(SubGaussianRewards, Sampled):
    """Maillard sampling in which leaders have B times the weight, with the same or better guarantees.

    >>> from maillard import Tally
    >>> MaillardSamplingPlus(sigma2=0.25, booster=8).probabilities(Tally([4, 4], [3, 2])).round(4)
    array([0.9296, 0.0704])
    """

    name: ClassVar[str] = "ms+"
    monotone: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "leaders: p ∝ B (1 + C ln(1 + ln(t/N))); others: p ∝ exp(-x) (1 + D x), x = N d² / (2 σ²)"
    )
    reference: ClassVar[str] = "Bian and Jun 2022, Algorithm 2"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="√(log K)",
        closed_form_probability=True,
        source="Bian and Jun 2022, Table 1",
    )

    booster: float = real("B: factor on the weight of a leader", default=4.0, at_least=1)
    c: float = real(
        "C: a further boost of leaders that fades as t grows", default=0.01, at_least=0, at_most=1
    )
    d: float = real(
        "D: how much the weights of the other arms are increased", default=0.01, above=0, at_most=1
    )

    def leader(self, n: Any, t: Any) -> Any:
        return np.log(self.booster) + np.log1p(self.c * np.log1p(np.log(t / n)))

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        x = gaussian_exponent(n, best - mean, self.sigma2)
        return -x + np.log1p(self.d * np.minimum(x, 1e300))  # past the float range, -inf and not nan
