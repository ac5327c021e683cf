"""The sampled shape: an arm is chosen with probability proportional to exp(log weight)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies.base.policy import Policy, ProbabilityKind, as_arm_vector, log_normalise

if TYPE_CHECKING:
    from maillard.policies.base.policy import Floats

__all__ = ["Sampled"]


class Sampled(Policy):
    """Says what a leader (an arm with the best mean, all ties) weighs, and what a rival weighs.

    The formulas are pure and elementwise: numbers or arrays in, the same out. `monotone` declares what every formula
    of the paper has: a rival weighs at most what a leader with its pulls would, and never more as the best mean or t
    grows; a leader never weighs less as t grows, nor more as its own pulls do. Then simulation need not weigh every arm.
    """

    engine_shape: ClassVar[str | None] = "sampled"
    probability_kind: ClassVar[ProbabilityKind] = "closed form"

    def leader(self, n: Any, t: Any) -> Any:
        """Log weight of an arm with the best mean, pulled n times, in round t."""
        return 0.0 * n

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        """Log weight of another arm."""
        raise NotImplementedError

    def estimate(self, n: Any, s: Any) -> Any:
        """The mean that is compared, from pulls and sum."""
        return s / n

    @property
    def compares_means(self) -> bool:
        """Whether `estimate` is the empirical mean itself."""
        return type(self).estimate is Sampled.estimate

    @np.errstate(all="ignore")  # logarithms of 0 are -inf as meant, and what is not meant ends as nan
    def _solve(self, n: Floats, s: Floats, t: int) -> tuple[Floats, None]:
        if n.all():
            weights = self._weights(n, s, t)
        else:
            weights, warm = np.zeros(n.size), n > 0  # a cold arm: a rival in the limit N = 0
            if warm.any():
                weights[warm] = self._weights(n[warm], s[warm], t)
        log = log_normalise(weights)
        if not log[0] <= 0.0:  # one nan or inf among the weights makes every log nan
            arm = int(np.argmax(~(weights < np.inf)))
            raise InvalidValue(f"{self.name}: log weight of arm {arm}", float(weights[arm]), "a number < inf")
        return log, None

    def _weights(self, n: Floats, s: Floats, t: int) -> Floats:
        mean = self.estimate(n, s)
        best = np.maximum.reduce(mean)
        leads = mean == best
        weights = as_arm_vector(f"{self.name}: rival", self.rival(n, mean, best, t), n.size)
        weights[leads] = self.leader(n[leads], t)
        return weights
