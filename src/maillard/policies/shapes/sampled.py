"""The sampled shape: an arm is chosen with probability proportional to exp(log weight)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies.shapes.policy import Kind, Policy, log_normalise

if TYPE_CHECKING:
    from maillard.policies.shapes.policy import Floats

__all__ = ["Sampled"]


class Sampled(Policy):
    """Says what a leader (an arm with the best mean, all ties) weighs, and what a rival weighs.

    The formulas are pure and elementwise: numbers or arrays in, the same out.
    """

    probability_kind: ClassVar[Kind] = "closed form"

    def leader(self, n: Any, t: Any) -> Any:
        """Log weight of an arm with the best mean, pulled n times, in round t."""
        return np.zeros_like(n)

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        """Log weight of another arm."""
        raise NotImplementedError

    def estimate(self, n: Any, s: Any) -> Any:
        """The mean that is compared, from pulls and sum."""
        return s / n

    def _solve(self, n: Floats, s: Floats, t: int) -> tuple[Floats, None]:
        warm = n > 0
        if warm.all():
            return log_normalise(self._weights(n, s, t)), None
        weights = np.zeros(n.size)  # a cold arm weighs what a rival does in the limit N = 0
        if warm.any():
            weights[warm] = self._weights(n[warm], s[warm], t)
        return log_normalise(weights), None

    def _weights(self, n: Floats, s: Floats, t: int) -> Floats:
        with np.errstate(all="ignore"):
            mean = self.estimate(n, s)
            best = mean.max()
            leads = mean == best
            weights: Floats = np.asarray(self.rival(n, mean, best, t), np.float64)
            weights[leads] = self.leader(n[leads], t)
        if not weights.max() < np.inf:  # nan fails too
            arm = int(np.argmax(~(weights < np.inf)))
            raise InvalidValue(f"{self.name}: log weight of arm {arm}", weights[arm], "a number < inf")
        return weights
