"""GIRO: garbage in, reward out."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import DiscretelyPerturbed, Guarantees, real
from maillard.policies.numerics.elementwise import where


class GarbageInRewardOut(DiscretelyPerturbed):
    """Chooses the largest bootstrap mean of 0/1 rewards, to which k zeros and k ones were added.

    k is a N, rounded up or down at random in each round so that its expectation is a N. An arm without pulls
    has ⌈a⌉ zeros and ⌈a⌉ ones. Rewards other than 0 and 1 would need the full history, which a tally does not
    contain.

    >>> from maillard import Tally
    >>> GarbageInRewardOut().probabilities(Tally([4, 2], [3, 1])).round(4)
    array([0.6284, 0.3716])
    """

    name: ClassVar[str] = "giro"
    requires_binary_rewards: ClassVar[bool] = True
    formula: ClassVar[str] = "argmax Bin(n, (S + k) / n) / n, n = N + 2 k, k = a N rounded at random"
    latex: ClassVar[str] = (
        r"\argmax_a \; \frac{\mathrm{Bin}(n_a, (S_a + k_a) / n_a)}{n_a}, \quad "
        r"n_a = N_a + 2 k_a, \quad k_a = \mathrm{a} \, N_a \text{ rounded at random}"
    )
    reference: ClassVar[str] = "Kveton, Szepesvari, Vaswani, Wen, Ghavamzadeh and Lattimore 2019 (ICML)"
    guarantees: ClassVar[Guarantees] = Guarantees(
        source="Kveton et al. 2019 (ICML)",
        note="For 0/1 rewards; gap-dependent bound of order K log T / Δ.",
    )

    a: float = real(
        "a: number of zeros and of ones that are added per pull",
        default=1.0,
        above=0,
        at_most=1000,
        min_magnitude=1e-6,
    )

    def binomial(self, n: Any, s: Any, up: Any) -> tuple[Any, Any, Any, Any]:
        k = np.floor(where(n > 0, self.a * n, np.ceil(self.a))) + up
        size = n + 2.0 * k
        return 0.0 * n, size, (s + k) / size, size

    def rounds_up(self, n: Any) -> Any:
        exact = where(n > 0, self.a * n, np.ceil(self.a))
        return exact - np.floor(exact)
