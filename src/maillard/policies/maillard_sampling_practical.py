"""The last equation of the paper, with the pull count N that is missing in print."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Sampled, SubGaussianRewards, real
from maillard.policies.numerics.families import gaussian_exponent


class PracticalMaillardSampling(SubGaussianRewards, Sampled):
    """Maillard sampling with B times the weight for leaders: the paper's replacement for a softmax.

    `maillard.explore` is the batched version.

    >>> from maillard import Tally
    >>> PracticalMaillardSampling(sigma2=0.25).probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.8098, 0.1902])
    """

    name: ClassVar[str] = "ms-practical"
    monotone: ClassVar[bool] = True
    concentrates: ClassVar[bool] = True
    formula: ClassVar[str] = "p ∝ B^[leader] exp(-N d² / (2 σ²))"
    latex: ClassVar[str] = (
        r"p_a \propto B^{[a \text{ leads}]} \, \exp\left(-\frac{N_a d_a^2}{2 \sigma^2}\right)"
    )
    reference: ClassVar[str] = "Bian and Jun 2022, Eq. (4), with N restored"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="√(log T)",
        source="this project: the paper's proof for MS with B carried through "
        "(docs/explanation/paper-notes.md)",
    )

    booster: float = real("B: factor on the weight of a leader", default=4.0, at_least=1)

    def leader(self, n: Any, t: Any) -> Any:
        return np.log(self.booster) + 0.0 * n

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -gaussian_exponent(n, best - mean, self.sigma2)
