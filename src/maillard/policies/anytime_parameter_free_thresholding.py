"""APT, for thresholding bandits: which arms have a mean above a threshold."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base.guarantees import Guarantees
from maillard.policies.base.indexed_policy import Indexed
from maillard.policies.base.parameters import real

__all__ = ["AnytimeParameterFreeThresholding"]


class AnytimeParameterFreeThresholding(Indexed):
    """Pulls the arm whose side of the threshold is least certain; the answer is {mean >= threshold}."""

    name: ClassVar[str] = "apt"
    monotone: ClassVar[bool] = True
    uses_best: ClassVar[bool] = False
    uses_round: ClassVar[bool] = False
    formula: ClassVar[str] = "argmin √N (|mean - τ| + ε)"
    reference: ClassVar[str] = "Locatelli, Gutzeit and Carpentier 2016; Bian and Jun 2022, appendix"
    guarantees: ClassVar[Guarantees] = Guarantees(
        source="Locatelli, Gutzeit and Carpentier 2016",
        note="Pure exploration: its loss is a wrong answer, not regret.",
    )

    threshold: float = real("τ: the level that arms are compared with", default=0.5)
    epsilon: float = real("ε: precision; arms within ε of τ may be on either side", default=0.1, at_least=0)

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        return -np.sqrt(n) * (np.abs(mean - self.threshold) + self.epsilon)
