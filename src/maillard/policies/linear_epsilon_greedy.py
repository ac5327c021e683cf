"""Epsilon-greedy for linear models."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.policies.base import Guarantees, LinearPolicy, ProbabilityKind, linear_regret, real
from maillard.policies.floors import mix_uniform
from maillard.policies.numerics.linear_scores import LinearScores


class LinearEpsilonGreedy(LinearPolicy):
    """Chooses the arm with the largest estimate, or with probability epsilon an arm uniformly at random.

    >>> from maillard import LinearTally
    >>> tally = LinearTally.empty(features=2, arms=2)
    >>> for row, reward in (([1, 0], 1), ([1, 1], 0)): tally.add(row, reward, arm=0)
    >>> LinearEpsilonGreedy(reward_range=(0, 1)).probabilities(tally, [1, 1]).round(4)
    array([0.05, 0.95])
    """

    name: ClassVar[str] = "lin-epsilon-greedy"
    formula: ClassVar[str] = "p = (1 - ε) [a leads] / (number of leaders) + ε / K"
    latex: ClassVar[str] = (
        r"p_a = (1 - \varepsilon) \frac{[a \text{ leads}]}{\text{number of leaders}} + \frac{\varepsilon}{K}"
    )
    reference: ClassVar[str] = "Langford and Zhang 2007"
    probability_kind: ClassVar[ProbabilityKind] = "closed form"
    uses_uncertainty: ClassVar[bool] = False
    engine_shape: ClassVar[str | None] = "linear-greedy"
    guarantees: ClassVar[Guarantees] = linear_regret("immediate: ε T / K pulls of every arm")

    epsilon: float = real("ε: probability of a uniformly random choice", default=0.1, at_least=0, at_most=1)

    def constant_probabilities(self, arms: int) -> Floats:
        return np.full(arms, self.epsilon / arms)

    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, None]:
        share = -np.log(np.count_nonzero(scores.leads))
        log = np.where(scores.leads, share, -np.inf)
        return mix_uniform(log, self.epsilon, log.size), None
