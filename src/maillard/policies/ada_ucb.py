"""AdaUCB."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, KnownHorizon, Pooled, ScaledWidth, SubGaussianRewards


class AdaUCB(KnownHorizon, ScaledWidth, SubGaussianRewards, Pooled):
    """Chooses the largest upper confidence bound; for Gaussian rewards no UCB has better known guarantees.

    >>> from maillard import Tally
    >>> AdaUCB(sigma2=0.25, horizon=1000).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "adaucb"
    formula: ClassVar[str] = (
        "mean + √(2 σ² L(T/H) / N), H = Σ_b min(N, √(N N_b)), L(y) = ln((y + e) √ln(y + e))"
    )
    latex: ClassVar[str] = (
        r"\argmax_a \; \hat\mu_a + \sqrt{\frac{2 \sigma^2 L(T / H_a)}{N_a}}, \quad "
        r"H_a = \sum_b \min\left(N_a, \sqrt{N_a N_b}\right), \quad "
        r"L(y) = \ln\left((y + e) \sqrt{\ln(y + e)}\right)"
    )
    reference: ClassVar[str] = "Lattimore 2018"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="1",
        anytime=False,
        source="Lattimore 2018; Bian and Jun 2022, Section 3",
        note="For Gaussian rewards.",
    )

    def pooled_index(self, n: Any, mean: Any, pooled: Any, t: Any, k: Any) -> Any:
        y = self.horizon / pooled + np.e
        level = np.log(y) + 0.5 * np.log(np.log(y))
        return mean + self.scale * np.sqrt(2.0 * self.sigma2 * level / n)
