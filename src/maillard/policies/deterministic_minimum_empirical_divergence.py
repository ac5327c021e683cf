"""Deterministic minimum empirical divergence (DMED)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.numerics.elementwise import where
from maillard.policies.shapes.assumptions import InFamily
from maillard.policies.shapes.guarantees import Guarantees
from maillard.policies.shapes.indexed import Indexed

__all__ = ["DeterministicMinimumEmpiricalDivergence"]


class DeterministicMinimumEmpiricalDivergence(InFamily, Indexed):
    """Plays through a list of arms that may still be best.

    DMED remembers its list, and a tally does not. From a tally alone each choice opens a new
    pass, in random order: uniform over the list that the tally gives.
    """

    name: ClassVar[str] = "dmed"
    remembers: ClassVar[bool] = True
    formula: ClassVar[str] = "uniform over {a: N KL(mean, best mean) <= ln(t / N)}"
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
