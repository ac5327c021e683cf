"""Thompson sampling for rewards in [0, 1] with a Beta posterior."""

from __future__ import annotations

from typing import Any, ClassVar

from maillard.policies.base import Guarantees, Perturbed
from maillard.policies.numerics.score_distributions import BETA, ScoreDistribution


class BernoulliThompson(Perturbed):
    """Samples a mean from the Beta posterior of each arm (uniform prior) and chooses the largest.

    >>> from maillard import Tally
    >>> BernoulliThompson().probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.6364, 0.3636])
    """

    name: ClassVar[str] = "ts-bernoulli"
    formula: ClassVar[str] = "argmax of Beta(1 + S, 1 + N - S)"
    latex: ClassVar[str] = r"\argmax_a \; \theta_a, \quad \theta_a \sim \mathrm{Beta}(1 + S_a, 1 + N_a - S_a)"
    reference: ClassVar[str] = "Thompson 1933; Kaufmann, Korda and Munos 2012"
    noise: ClassVar[ScoreDistribution] = BETA
    has_prior: ClassVar[bool] = True
    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    guarantees: ClassVar[Guarantees] = Guarantees(
        sub_ucb=True,
        asymptotically_optimal=True,
        minimax_ratio="√(log T)",
        source="Kaufmann et al. 2012; Agrawal and Goyal 2017; Qin et al. 2023, Table 1",
        note="For Bernoulli rewards; Qin et al. 2023 list the ratio √(log K).",
    )

    def score(self, n: Any, s: Any) -> tuple[Any, Any]:
        return 1.0 + s, 1.0 + (n - s)
