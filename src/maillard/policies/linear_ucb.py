"""Upper confidence bounds for linear models (LinUCB)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, LinearIndexed, LinearNoise, real


class LinearUCB(LinearNoise, LinearIndexed):
    """Chooses the arm with the largest upper confidence bound of its estimate.

    >>> from maillard import LinearTally
    >>> tally = LinearTally.empty(features=2, arms=2)
    >>> for row, reward in (([1, 0], 1), ([1, 1], 0)): tally.add(row, reward, arm=0)
    >>> LinearUCB(reward_range=(0, 1)).probabilities(tally, [1, 1])
    array([0., 1.])
    """

    name: ClassVar[str] = "lin-ucb"
    formula: ClassVar[str] = "argmax of mu + α σ s"
    latex: ClassVar[str] = r"\argmax_a \; \mu_a + \alpha \sigma s_a"
    reference: ClassVar[str] = "Li, Chu, Langford and Schapire 2010; Abbasi-Yadkori, Pal and Szepesvari 2011"
    uses_leaders: ClassVar[bool] = False
    guarantees: ClassVar[Guarantees] = Guarantees(
        regret="d √T",
        source="Abbasi-Yadkori, Pal and Szepesvari 2011",
        note="Up to logarithms, and only with α² σ² of at least the β that lin-med calls theory; d counts "
        "the coefficients of all models.",
    )

    alpha: float = real(
        "α: width of the bound in standard deviations", default=1.0, at_least=0, at_most=1e100
    )

    def index(self, mu: Any, s2: Any, gap: Any, t: Any) -> Any:
        return mu + self.alpha * np.sqrt(self.sigma2 * s2)
