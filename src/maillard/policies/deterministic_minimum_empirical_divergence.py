"""Deterministic minimum empirical divergence (DMED)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import FamilyRewards, Guarantees, Indexed
from maillard.policies.numerics.elementwise import where


class DeterministicMinimumEmpiricalDivergence(FamilyRewards, Indexed):
    """Pulls, one after the other, the arms on a list of those that may still be best.

    DMED keeps its list between rounds, and a tally does not contain it. `probabilities` therefore treats each
    choice as the start of a new list: it is uniform over the arms that the tally puts on the list.

    >>> from maillard import Tally
    >>> DeterministicMinimumEmpiricalDivergence(sigma2=0.25).probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.5, 0.5])
    """

    name: ClassVar[str] = "dmed"
    engine_shape: ClassVar[str | None] = "listed"
    has_memory: ClassVar[bool] = True
    formula: ClassVar[str] = "uniform over {a: N KL(mean, best mean) <= ln(t / N)}"
    latex: ClassVar[str] = (
        r"\text{uniform over } "
        r"\left\{a : N_a \, \mathrm{KL}(\hat\mu_a, \hat\mu_{\max}) \le \ln\frac{t}{N_a}\right\}"
    )
    reference: ClassVar[str] = "Honda and Takemura 2010"
    guarantees: ClassVar[Guarantees] = Guarantees(
        asymptotically_optimal=True,
        source="Honda and Takemura 2010",
        note="For bounded rewards, with the list remembered.",
    )

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        """1 for an arm on the list, else 0."""
        listed = n * self.divergence(mean, best, self.sigma2) <= np.log(t / n)
        return where(listed, 1.0, 0.0)
