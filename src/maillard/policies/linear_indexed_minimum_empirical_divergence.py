"""Indexed minimum empirical divergence for linear models (LinIMED-1)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, LinearIndexed, LinearNoise, real
from maillard.policies.numerics.elementwise import where
from maillard.policies.numerics.linear_scores import TIE


class LinearIndexedMinimumEmpiricalDivergence(LinearNoise, LinearIndexed):
    """Chooses the arm with the smallest index; an arm without uncertainty (s = 0) comes last.

    >>> from maillard import LinearTally
    >>> tally = LinearTally.empty(features=2, arms=2)
    >>> for row, reward in (([1, 0], 1), ([1, 1], 0)): tally.add(row, reward, arm=0)
    >>> LinearIndexedMinimumEmpiricalDivergence(reward_range=(0, 1)).probabilities(tally, [1, 1])
    array([0., 1.])
    """

    name: ClassVar[str] = "lin-imed"
    formula: ClassVar[str] = "argmin of gap² / (β s²) - ln(β s²)"
    latex: ClassVar[str] = r"\argmin_a \; \frac{g_a^2}{\beta s_a^2} - \ln(\beta s_a^2)"
    reference: ClassVar[str] = "Bian and Tan 2024, LinIMED-1"
    guarantees: ClassVar[Guarantees] = Guarantees(
        regret="d √T",
        source="Bian and Tan 2024",
        note="Up to logarithms, and only with the β that lin-med calls theory; d counts the coefficients of "
        "all models.",
    )

    derived: ClassVar[tuple[str, ...]] = ("squared_width",)

    beta: float = real(
        "β: squared width of the confidence set; by default 2 σ²", above=0, at_most=1e100, optional=True
    )

    @property
    def tie_tolerance(self) -> float:
        return TIE  # the index has no unit

    @property
    def squared_width(self) -> float:
        """β, or its default."""
        return 2.0 * self.sigma2 if self.beta is None else self.beta

    def index(self, mu: Any, s2: Any, gap: Any, t: Any) -> Any:
        variance = self.squared_width * s2
        # The largest of the negative indices. For s = 0, the logarithm alone decides: gap²/0 may be 0/0.
        return where(variance > 0.0, np.log(variance) - gap * gap / variance, -np.inf)
