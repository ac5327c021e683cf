"""Perturbed policies: choose the arm with the largest random score, independent across arms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.array_types import Bools, Floats
from maillard.errors import InvalidValue
from maillard.policies.base.arm_matrices import apply_formula, as_arm_vector
from maillard.policies.base.policy import Policy, ProbabilityKind, include_cold_arms, rounding_error
from maillard.policies.numerics.score_distributions import ScoreDistribution

if TYPE_CHECKING:
    from maillard.policies.numerics.support_cells import BinomialScores


class Perturbed(Policy):
    """Base class of policies that sample a score for each arm and choose the largest.

    A subclass sets `noise`, the family of score distributions, and defines `score`, its two parameters.

    >>> from maillard import Tally
    >>> from maillard.policies.numerics.score_distributions import GAUSSIAN
    >>> class Posterior(Perturbed):
    ...     noise = GAUSSIAN
    ...     def score(self, n, s): return s / n, 1 / n**0.5
    >>> Posterior().probabilities(Tally(pulls=[4, 4], sums=[4, 2])).round(3)
    array([0.76, 0.24])
    """

    engine_shape: ClassVar[str | None] = "perturbed"
    probability_kind: ClassVar[ProbabilityKind] = "quadrature"
    # 1: other quadrature of arms below 1e-20, and other cells of discrete scores
    formula_version: ClassVar[int] = 2
    earlier_versions: ClassVar[tuple[int, ...]] = (1,)
    noise: ClassVar[ScoreDistribution]

    def score(self, n: Any, s: Any) -> tuple[Any, Any]:
        """Return the two parameters of the score distribution of an arm with n pulls and reward sum s."""
        raise NotImplementedError

    def _solve(self, n: Floats, s: Floats, t: int) -> tuple[Floats, Floats | None]:
        warm = n > 0
        if self.has_prior or warm.all():
            return self._win(n, s)
        log, error = self._win(n[warm], s[warm]) if warm.any() else (n[:0], n[:0])
        return include_cold_arms(warm, log, error)

    def _win(self, n: Floats, s: Floats) -> tuple[Floats, Floats]:
        from maillard.policies.numerics import quadrature

        field = f"{self.name}: score"
        a, b = (as_arm_vector(field, part, n.size) for part in apply_formula(field, self.score, n, s))
        bad = ~self.noise.usable(a, b)
        if bad.any():
            arm = int(np.argmax(bad))
            given = float(a[arm]), float(b[arm])
            raise InvalidValue(f"{self.name}: score of arm {arm}", given, self.noise.allowed)
        if n.size == 2 and (log := self.noise.pair(a, b)) is not None:
            return log, rounding_error(log)
        log, error = quadrature.win_log_probabilities(self.noise, a, b)
        if self.formula_version == 1:  # which was rough for arms that are almost never chosen
            error[log <= quadrature.LOG_RARE] = np.inf
        return log, error


class DiscretelyPerturbed(Perturbed):
    """Base class for binomial scores. Ties are broken uniformly; probabilities are exact sums."""

    engine_shape: ClassVar[str | None] = "binomial"
    has_prior: ClassVar[bool] = True
    support: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def binomial(self, n: Any, s: Any, up: Any) -> tuple[Any, Any, Any, Any]:
        """Return offset, m, p and size: the score is (offset + Bin(m, p)) / size.

        `up` is 1 where a fractional number of pseudo-rewards was rounded up, otherwise 0.
        """
        raise NotImplementedError

    def rounds_up(self, n: Any) -> Any:
        """Return the probability that the number of pseudo-rewards is rounded up."""
        return 0.0 * n

    def components(self, n: Floats, s: Floats) -> BinomialScores:
        """Return the score distribution of every arm, as a mixture of shifted and scaled binomials."""
        from maillard.policies.numerics.support_cells import BinomialScores

        up = self.rounds_up(n)
        weight = np.concatenate([1.0 - up, up])
        used = weight > 0.0
        both = [
            np.broadcast_arrays(*parts)
            for parts in (self.binomial(n, s, 0.0 * n), self.binomial(n, s, 0.0 * n + 1.0))
        ]
        offset, trials, probability, size = (np.concatenate(parts)[used] for parts in zip(*both, strict=True))
        return BinomialScores(
            arm=np.tile(np.arange(n.size), 2)[used],
            weight=weight[used],
            offset=offset,
            trials=trials.astype(np.int64),
            probability=probability,
            size=size.astype(np.int64),
        )

    def _solve_arms(
        self, tally: Any, x: Any, mask: Bools | None, t: int, bounds: bool
    ) -> tuple[Floats, Floats | None]:
        pulls, sums = (tally.pulls, tally.sums) if mask is None else (tally.pulls[mask], tally.sums[mask])
        return self._win(pulls.astype(np.float64), sums, bounds=bounds)

    def _win(self, n: Floats, s: Floats, *, bounds: bool = True) -> tuple[Floats, Floats]:
        from maillard.policies.numerics import lattice

        scores = self.components(n, s)
        if (largest := int(scores.size.max())) >= 2**32:
            where = f"{self.name}: number of rewards and pseudo-rewards of an arm"
            raise InvalidValue(where, largest, "fewer than 2**32; use fewer pulls or a smaller a")
        return lattice.win_log_probabilities(
            scores, n.size, bounds=bounds, everywhere=self.formula_version == 1
        )
