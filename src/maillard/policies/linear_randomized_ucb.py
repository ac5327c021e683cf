"""Randomized upper confidence bounds for linear models (RandUCB)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.policies.base import Guarantees, LinearNoise, ProbabilityKind, real
from maillard.policies.numerics.linear_scores import LinearScores


class LinearRandomizedUCB(LinearNoise):
    """Chooses the arm with the largest upper confidence bound, of a random width that all arms share.

    An arm that no width makes the largest has probability 0, so a log of this policy needs a floor.

    >>> from maillard import LinearTally
    >>> tally = LinearTally.empty(features=1, arms=2)
    >>> tally.add([1], 1.0, arm=1)
    >>> LinearRandomizedUCB(reward_range=(0, 1)).probabilities(tally, [1]).round(3)
    array([0.088, 0.912])
    """

    name: ClassVar[str] = "lin-rand-ucb"
    formula: ClassVar[str] = "argmax of mu + Z width σ s, one Z = abs(N(0, 1)) for all arms"
    latex: ClassVar[str] = (
        r"\argmax_a \; \mu_a + |Z| \, \mathrm{width} \, \sigma s_a, \quad "
        r"Z \sim \mathcal{N}(0, 1) \text{ for all arms}"
    )
    reference: ClassVar[str] = "Vaswani, Mehrabian, Durand and Kveton 2020"
    probability_kind: ClassVar[ProbabilityKind] = "closed form"
    uses_leaders: ClassVar[bool] = False
    engine_shape: ClassVar[str | None] = "linear-widths"
    guarantees: ClassVar[Guarantees] = Guarantees(
        source="Vaswani, Mehrabian, Durand and Kveton 2020",
        note="Their bound, d √T up to logarithms, is for a discrete and bounded Z times the width of OFUL.",
    )

    width: float = real("factor on the random width", default=1.0, above=0, at_most=1e100)

    def slope(self, s2: Any) -> Any:
        """Return the standard deviation of an estimate, times the width."""
        return self.width * np.sqrt(self.sigma2 * s2)

    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, Floats | None]:
        from maillard.policies.numerics.upper_envelope import envelope_log_probabilities

        slope = self.slope(scores.s2)
        if not bounds:
            return envelope_log_probabilities(scores.mu, slope, scores.tolerance)
        mu, relative = scores.errors(self.centre)
        return envelope_log_probabilities(scores.mu, slope, scores.tolerance, (mu, slope * relative))
