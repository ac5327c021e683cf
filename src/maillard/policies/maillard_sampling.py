"""Maillard sampling, Algorithm 1 of the paper."""

from __future__ import annotations

from typing import Any, ClassVar

from maillard.policies.base import Guarantees, Sampled, SubGaussianRewards
from maillard.policies.numerics.families import gaussian_exponent


class MaillardSampling(SubGaussianRewards, Sampled):
    """Chooses an arm with probability proportional to exp(-N d² / (2 σ²)), where d is its empirical gap.

    >>> from maillard import Tally
    >>> MaillardSampling(sigma2=0.25).probabilities(Tally([4, 4], [3, 2])).round(4)
    array([0.6225, 0.3775])
    """

    name: ClassVar[str] = "ms"
    monotone: ClassVar[bool] = True
    concentrates: ClassVar[bool] = True
    formula: ClassVar[str] = "p ∝ exp(-N d² / (2 σ²))"
    latex: ClassVar[str] = r"p_a \propto \, \exp\left(-\frac{N_a d_a^2}{2 \sigma^2}\right)"
    reference: ClassVar[str] = "Bian and Jun 2022, Algorithm 1; Maillard 2013, Figure 1.8"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="√(log T)",
        source="Bian and Jun 2022, Table 1",
        note="Qin, Jun and Zhang 2023, Remark 7, improve the ratio to √(log K).",
    )

    @property
    def squared_gap(self) -> tuple[float, float] | None:
        return (0.5 / self.sigma2, 0.0) if type(self).rival is MaillardSampling.rival else None

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -gaussian_exponent(n, best - mean, self.sigma2)
