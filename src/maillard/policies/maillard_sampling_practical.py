"""The paper's closing equation with the pull count that its print lacks."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.assumptions import SubGaussian
from maillard.policies.families import evidence
from maillard.policies.guarantees import Guarantees
from maillard.policies.parameters import real
from maillard.policies.sampled import Sampled

__all__ = ["PracticalMaillardSampling"]


class PracticalMaillardSampling(SubGaussian, Sampled):
    """The paper's replacement for Boltzmann exploration; `maillard.explore` is its batched form."""

    name: ClassVar[str] = "ms-practical"
    formula: ClassVar[str] = "p ∝ B^[leader] exp(-N d² / (2 σ²))"
    reference: ClassVar[str] = "Bian and Jun 2022, Eq. (practical), with N restored"
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="√(log T)",
        closed_form_probability=True,
        source="this project: the paper's proof for MS with B carried through (docs/paper-notes.md)",
    )

    booster: float = real(4.0, "B: how many times more a leader weighs", at_least=1)

    def leader(self, n: Any, t: Any) -> Any:
        return np.log(self.booster) + 0.0 * n

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -evidence(n, best - mean, self.sigma2)
