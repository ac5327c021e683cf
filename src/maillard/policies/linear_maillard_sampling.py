"""Maillard sampling for linear models (Lin-MS)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, LinearNoise, LinearSampled, real


class LinearMaillardSampling(LinearNoise, LinearSampled):
    """Maillard sampling on the estimates of linear models, with a booster for leaders.

    >>> from maillard import LinearTally
    >>> tally = LinearTally.empty(features=1, arms=2)
    >>> for reward in (1.0, 1.0, 0.0): tally.add([1], reward, arm=0)
    >>> LinearMaillardSampling(reward_range=(0, 1)).probabilities(tally, [1]).round(4)
    array([0.8919, 0.1081])
    """

    name: ClassVar[str] = "lin-ms"
    formula: ClassVar[str] = "p ∝ B for leaders, exp(-gap² / (2 σ² s²)) for others"
    latex: ClassVar[str] = (
        r"p_a \propto \begin{cases} B & \text{leaders} \\ "
        r"\exp\left(-\frac{g_a^2}{2 \sigma^2 s_a^2}\right) & \text{others} \end{cases}"
    )
    reference: ClassVar[str] = "this project, after Maillard 2013 and Balagopalan and Jun 2025"
    guarantees: ClassVar[Guarantees] = Guarantees(
        source="no published result", note="No published guarantee. lin-med has one."
    )

    booster: float = real("B: factor on the weight of a leader", default=8.0, at_least=1)

    def leader(self, s2: Any, t: Any) -> Any:
        return np.log(self.booster) + 0.0 * s2

    def rival(self, gap: Any, s2: Any, t: Any) -> Any:
        return -gap * gap / (2.0 * self.sigma2 * s2)
