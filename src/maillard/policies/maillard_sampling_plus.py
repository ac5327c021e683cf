"""Maillard sampling plus (MS+), Algorithm 2 of the paper."""

from __future__ import annotations

from typing import Any, ClassVar

from maillard.policies.base import BoostedLeaders, Guarantees, Sampled, SubGaussianRewards, boosted_rival
from maillard.policies.numerics.families import gaussian_exponent


class MaillardSamplingPlus(BoostedLeaders, SubGaussianRewards, Sampled):
    """Maillard sampling in which leaders have B times the weight, with the same or better guarantees.

    >>> from maillard import Tally
    >>> MaillardSamplingPlus(sigma2=0.25, booster=8).probabilities(Tally([4, 4], [3, 2])).round(4)
    array([0.9296, 0.0704])
    """

    name: ClassVar[str] = "ms+"
    monotone: ClassVar[bool] = True
    concentrates: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "leaders: p ∝ B (1 + C ln(1 + ln(t/N))); others: p ∝ exp(-x) (1 + D x), x = N d² / (2 σ²)"
    )
    latex: ClassVar[str] = (
        r"p_a \propto \begin{cases} "
        r"B \left(1 + C \, \ln\left(1 + \ln\frac{t}{N_a}\right)\right) & \text{leaders} \\ "
        r"e^{-x_a} (1 + D x_a) & \text{others} \end{cases} \quad x_a = \frac{N_a d_a^2}{2 \sigma^2}"
    )
    reference: ClassVar[str] = "Bian and Jun 2022, Algorithm 2"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="√(log K)",
        source="Bian and Jun 2022, Table 1",
    )

    @property
    def squared_gap(self) -> tuple[float, float] | None:
        return (0.5 / self.sigma2, self.d) if type(self).rival is MaillardSamplingPlus.rival else None

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return boosted_rival(gaussian_exponent(n, best - mean, self.sigma2), self.d)
