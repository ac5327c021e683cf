"""Epsilon-greedy."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Bools, Floats
from maillard.policies.base import Guarantees, Indexed, ProbabilityKind, linear_regret, real
from maillard.policies.base.arm_matrices import count_arms
from maillard.policies.floors import mix_uniform


class EpsilonGreedy(Indexed):
    """Chooses a uniformly random arm with probability ε, otherwise an arm with the best mean.

    The reported probability of an arm includes both cases. Ties for the best mean are broken at random.

    >>> from maillard import Tally
    >>> EpsilonGreedy(epsilon=0.1).probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.95, 0.05])
    """

    name: ClassVar[str] = "epsilon-greedy"
    engine_shape: ClassVar[str | None] = "indexed"  # and `constant_probabilities`
    monotone: ClassVar[bool] = True
    uses_best: ClassVar[bool] = False
    uses_round: ClassVar[bool] = False
    formula: ClassVar[str] = "p = (1 - ε) [leader] / leaders + ε / K"
    latex: ClassVar[str] = (
        r"p_a = (1 - \varepsilon) \frac{[a \text{ leads}]}{\text{number of leaders}} + \frac{\varepsilon}{K}"
    )
    reference: ClassVar[str] = "Sutton and Barto 2018, Section 2.2"
    probability_kind: ClassVar[ProbabilityKind] = "closed form"
    guarantees: ClassVar[Guarantees] = linear_regret("immediate: ε T / K pulls of every arm")

    epsilon: float = real("ε: probability of a uniformly random choice", default=0.1, at_least=0, at_most=1)

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        return mean

    def constant_probabilities(self, arms: int) -> Floats:
        return np.full(arms, self.epsilon / arms)

    def _solve(self, n: Floats, s: Floats, t: int) -> tuple[Floats, Floats | None]:
        log, error = super()._solve(n, s, t)
        return mix_uniform(log, self.epsilon, log.size), error

    def _solve_many(self, n: Floats, s: Floats, t: Floats, eligible: Bools | None) -> Floats | None:
        log = super()._solve_many(n, s, t, eligible)
        if log is None:
            return None
        mixed = mix_uniform(log, self.epsilon, count_arms(n, eligible))
        return mixed if eligible is None else np.where(eligible, mixed, -np.inf)
