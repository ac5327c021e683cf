"""The last equation of the paper exactly as printed, without the pull count N."""

from __future__ import annotations

from typing import Any, ClassVar

from maillard.policies.base import Guarantees, linear_regret
from maillard.policies.maillard_sampling_practical import PracticalMaillardSampling
from maillard.policies.numerics.families import gaussian_exponent


class PrintedMaillardSampling(PracticalMaillardSampling):
    """Maillard sampling without the pull count; it has linear regret and exists only for comparison.

    Use `ms-practical` or `ms+` instead.

    >>> from maillard import Tally
    >>> PrintedMaillardSampling(sigma2=0.25).probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.805, 0.195])
    """

    name: ClassVar[str] = "ms-printed"
    monotone: ClassVar[bool] = True
    concentrates: ClassVar[bool] = True
    formula: ClassVar[str] = "p ∝ B^[leader] exp(-d² / (2 σ²))"
    latex: ClassVar[str] = r"p_a \propto B^{[a \text{ leads}]} \, \exp\left(-\frac{d_a^2}{2 \sigma^2}\right)"
    reference: ClassVar[str] = "Bian and Jun 2022, Eq. (4), as printed"
    guarantees: ClassVar[Guarantees] = linear_regret(
        "this project: p of a bad arm tends to a positive constant (docs/explanation/paper-notes.md)"
    )

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -gaussian_exponent(1.0, best - mean, self.sigma2)
