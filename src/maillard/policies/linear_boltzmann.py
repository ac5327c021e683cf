"""Boltzmann exploration for linear models: a softmax over estimates."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.policies.base import Guarantees, LinearPolicy, ProbabilityKind, linear_regret, real
from maillard.policies.base.linear_policy import normalised_error
from maillard.policies.numerics.linear_scores import LinearScores


class LinearBoltzmann(LinearPolicy):
    """Chooses arms by a softmax over their estimates, which ignores how uncertain the estimates are.

    >>> from maillard import LinearTally
    >>> tally = LinearTally.empty(features=2, arms=2)
    >>> for row, reward in (([1, 0], 1), ([1, 1], 0)): tally.add(row, reward, arm=0)
    >>> LinearBoltzmann(reward_range=(0, 1), eta=5).probabilities(tally, [1, 1]).round(4)
    array([0.2689, 0.7311])
    """

    name: ClassVar[str] = "lin-boltzmann"
    formula: ClassVar[str] = "p ∝ exp(η mu)"
    latex: ClassVar[str] = r"p_a \propto \, \exp(\eta \mu_a)"
    reference: ClassVar[str] = "Sutton 1990; Cesa-Bianchi, Gentile, Lugosi and Neu 2017"
    probability_kind: ClassVar[ProbabilityKind] = "closed form"
    uses_leaders: ClassVar[bool] = False
    uses_uncertainty: ClassVar[bool] = False
    engine_shape: ClassVar[str | None] = "linear-softmax"
    guarantees: ClassVar[Guarantees] = linear_regret("Cesa-Bianchi, Gentile, Lugosi and Neu 2017")

    eta: float = real("η: inverse temperature, in units of 1 / reward", above=0, at_most=1e100)

    def rival(self, gap: Any) -> Any:
        """Return the log weight of an arm whose mu is smaller than the largest by `gap`."""
        return -self.eta * gap

    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, Floats | None]:
        log = self._normalise(self.rival(np.maximum.reduce(scores.mu) - scores.mu))
        if not bounds:
            return log, None
        mu, _ = scores.errors(self.centre)
        return log, normalised_error(log, self.eta * (mu + mu.max()))
