"""The perturbed shape: the arm with the largest random score, scores independent across arms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies.base.policy import (
    Policy,
    ProbabilityKind,
    as_arm_vector,
    include_cold_arms,
    rounding_error,
)
from maillard.policies.numerics.score_distributions import ScoreDistribution

if TYPE_CHECKING:
    from maillard.policies.base.policy import Floats
    from maillard.policies.numerics.lattice import BinomialScores

__all__ = ["DiscretelyPerturbed", "Perturbed"]


class Perturbed(Policy):
    """Says which continuous family scores come from, and its two parameters for each arm."""

    engine_shape: ClassVar[str | None] = "perturbed"
    probability_kind: ClassVar[ProbabilityKind] = "quadrature"
    noise: ClassVar[ScoreDistribution]

    def score(self, n: Any, s: Any) -> tuple[Any, Any]:
        """The parameters of the score of an arm pulled n times with reward sum s."""
        raise NotImplementedError

    def _solve(self, n: Floats, s: Floats, t: int) -> tuple[Floats, Floats | None]:
        warm = n > 0
        if self.has_prior or warm.all():
            return self._win(n, s)
        log, error = self._win(n[warm], s[warm]) if warm.any() else (n[:0], n[:0])
        return include_cold_arms(warm, log, error)

    def _win(self, n: Floats, s: Floats) -> tuple[Floats, Floats]:
        from maillard.policies.numerics import quadrature

        a, b = (as_arm_vector(f"{self.name}: score", part, n.size) for part in self.score(n, s))
        bad = ~self.noise.usable(a, b)
        if bad.any():
            arm = int(np.argmax(bad))
            given = float(a[arm]), float(b[arm])
            raise InvalidValue(f"{self.name}: score of arm {arm}", given, self.noise.allowed)
        if n.size == 2 and (log := self.noise.pair(a, b)) is not None:
            return log, rounding_error(log)
        return quadrature.win_log_probabilities(self.noise, a, b)


class DiscretelyPerturbed(Perturbed):
    """Scores on a lattice, so that ties happen and are split: exact sums instead of quadrature."""

    engine_shape: ClassVar[str | None] = "binomial"
    has_prior: ClassVar[bool] = True
    support: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def binomial(self, n: Any, s: Any, up: Any) -> tuple[Any, Any, Any, Any]:
        """Offset, trials, chance and size: the score is (offset + Bin(trials, chance)) / size.

        `up` is 1 where a count of pseudo-rewards that is not whole was rounded up, else 0.
        """
        raise NotImplementedError

    def rounds_up(self, n: Any) -> Any:
        """How often that count is rounded up."""
        return 0.0 * n

    def components(self, n: Floats, s: Floats) -> BinomialScores:
        """The law of every arm's score, as a mixture of shifted and scaled binomials."""
        from maillard.policies.numerics.lattice import BinomialScores

        up = self.rounds_up(n)
        weight = np.concatenate([1.0 - up, up])
        used = weight > 0.0
        both = [
            np.broadcast_arrays(*parts)
            for parts in (self.binomial(n, s, 0.0 * n), self.binomial(n, s, 0.0 * n + 1.0))
        ]
        offset, trials, chance, size = (np.concatenate(parts)[used] for parts in zip(*both, strict=True))
        return BinomialScores(
            arm=np.tile(np.arange(n.size), 2)[used],
            weight=weight[used],
            offset=offset,
            trials=trials.astype(np.int64),
            chance=chance,
            size=size.astype(np.int64),
        )

    def _win(self, n: Floats, s: Floats) -> tuple[Floats, Floats]:
        from maillard.policies.numerics import lattice

        scores = self.components(n, s)
        if (largest := int(scores.size.max())) >= 2**32:
            where = f"{self.name}: rewards and pseudo-rewards of an arm"
            raise InvalidValue(where, largest, "fewer than 2**32: fewer pulls, or a smaller a")
        return lattice.win_log_probabilities(scores, n.size)
