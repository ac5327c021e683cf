"""GIRO, garbage in, reward out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies.shapes.guarantees import Guarantees
from maillard.policies.shapes.parameters import real
from maillard.policies.shapes.perturbed import DiscretelyPerturbed

if TYPE_CHECKING:
    from maillard.policies.numerics.lattice import BinomialScores
    from maillard.policies.shapes.policy import Floats
    from maillard.tally import Tally

__all__ = ["GarbageInRewardOut"]


class GarbageInRewardOut(DiscretelyPerturbed):
    """The bootstrap mean of an arm's 0/1 rewards mixed with pseudo-rewards, k zeros and k ones.

    k is a N, its fraction rounded up or down at random in each round. An arm without a pull has
    ⌈a⌉ zeros and ones alone. Other rewards need the full history, which a tally does not keep.
    """

    name: ClassVar[str] = "giro"
    formula: ClassVar[str] = "argmax Bin(n, (S + k) / n) / n, n = N + 2 k, k = a N rounded at random"
    reference: ClassVar[str] = "Kveton, Szepesvari, Vaswani, Wen, Ghavamzadeh and Lattimore 2019 (ICML)"
    guarantees: ClassVar[Guarantees] = Guarantees(
        closed_form_probability=False,
        source="Kveton et al. 2019 (ICML)",
        note="For 0/1 rewards; gap-dependent bound of order K log T / Δ.",
    )

    a: float = real("a: zeros and ones for each pull", default=1.0, above=0, at_most=1000, least=1e-6)

    def components(self, n: Floats, s: Floats) -> BinomialScores:
        from maillard.policies.numerics.lattice import BinomialScores

        exact = np.where(n > 0, self.a * n, np.ceil(self.a))
        k = np.stack([np.floor(exact), np.floor(exact) + 1.0], axis=1)
        up = exact - k[:, 0]
        weight = np.stack([1.0 - up, up], axis=1).ravel()
        size = (n[:, None] + 2.0 * k).ravel()
        ones = (s[:, None] + k).ravel()
        used = weight > 0.0
        return BinomialScores(
            arm=np.repeat(np.arange(n.size), 2)[used],
            weight=weight[used],
            offset=np.zeros(np.count_nonzero(used)),
            trials=size[used].astype(np.int64),
            chance=ones[used] / size[used],
            size=size[used].astype(np.int64),
        )

    def _check_use(self, tally: Tally) -> None:
        super()._check_use(tally)
        broken = tally.sums != np.floor(tally.sums)
        if broken.any():
            arm = int(np.argmax(broken))
            allowed = "rewards 0 and 1, so whole sums (phe takes any reward from 0 to 1)"
            raise InvalidValue(f"{self.name}: sums[{arm}]", float(tally.sums[arm]), allowed)
