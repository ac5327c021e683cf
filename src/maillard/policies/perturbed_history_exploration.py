"""Perturbed-history exploration (PHE)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import DiscretelyPerturbed, Guarantees, real


class PerturbedHistoryExploration(DiscretelyPerturbed):
    """Chooses the largest mean of the rewards and ⌈a N⌉ fair coin flips.

    An arm without pulls has ⌈a⌉ coin flips.

    >>> from maillard import Tally
    >>> PerturbedHistoryExploration().probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.5859, 0.4141])
    """

    name: ClassVar[str] = "phe"
    formula: ClassVar[str] = "argmax (S + Bin(⌈a N⌉, 1/2)) / (N + ⌈a N⌉)"
    latex: ClassVar[str] = (
        r"\argmax_a \; \frac{S_a + \mathrm{Bin}(m_a, 1/2)}{N_a + m_a}, \quad "
        r"m_a = \lceil \mathrm{a} \, N_a \rceil"
    )
    reference: ClassVar[str] = "Kveton, Szepesvari, Ghavamzadeh and Boutilier 2019 (IJCAI)"
    guarantees: ClassVar[Guarantees] = Guarantees(
        minimax_ratio="√(log T)",
        source="Kveton et al. 2019 (IJCAI)",
        note="For rewards in [0, 1] and a > 1; gap-dependent bound of order K log T / Δ.",
    )

    a: float = real(
        "a: coin flips per pull; the theory requires more than 1",
        default=2.0,
        above=0,
        at_most=1000,
        min_magnitude=1e-6,
    )

    def binomial(self, n: Any, s: Any, up: Any) -> tuple[Any, Any, Any, Any]:
        coins = np.ceil(self.a * np.maximum(n, 1.0))
        return s, coins, 0.5, n + coins
