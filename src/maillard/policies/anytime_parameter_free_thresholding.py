"""APT, for thresholding bandits: find the arms whose mean is above a threshold."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Indexed, real


class AnytimeParameterFreeThresholding(Indexed):
    """Pulls the arm for which it is least certain whether its mean is above the threshold.

    The result is the set of arms with an empirical mean >= threshold.

    >>> from maillard import Tally
    >>> AnytimeParameterFreeThresholding(threshold=0.3).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "apt"
    monotone: ClassVar[bool] = True
    uses_best: ClassVar[bool] = False
    uses_round: ClassVar[bool] = False
    formula: ClassVar[str] = "argmin √N (|mean - τ| + ε)"
    latex: ClassVar[str] = r"\argmin_a \; \sqrt{N_a} \left(|\hat\mu_a - \tau| + \varepsilon\right)"
    reference: ClassVar[str] = "Locatelli, Gutzeit and Carpentier 2016; Bian and Jun 2022, appendix"
    guarantees: ClassVar[Guarantees] = Guarantees(
        source="Locatelli, Gutzeit and Carpentier 2016",
        note="Pure exploration: its loss is a wrong answer, not regret.",
    )

    threshold: float = real("τ: the threshold", default=0.5)
    epsilon: float = real(
        "ε: precision; arms within ε of τ may be classified either way", default=0.1, at_least=0
    )

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        return -np.sqrt(n) * (np.abs(mean - self.threshold) + self.epsilon)
