"""Sampled policies: choose an arm with probability proportional to exp(log weight)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Bools, Floats
from maillard.errors import InvalidValue
from maillard.policies.base.arm_matrices import (
    apply_formula,
    as_arm_matrix,
    as_arm_vector,
    warm_arms,
)
from maillard.policies.base.policy import Policy, ProbabilityKind, log_normalise


class Sampled(Policy):
    """Base class of policies with log weights for leaders (arms with the best mean) and rivals (others).

    Formulas are pure and elementwise: they take numbers or arrays and return the same.

    Declare `monotone = True` if the following holds, as for every formula of the paper. The weight of a rival
    is at most that of a leader with the same pulls, and it does not rise as the best mean or t grows. The
    weight of a leader does not fall as t grows and does not rise with its pulls. Simulation then need not
    evaluate every arm.

    Declare `concentrates = True`, too, if the weight of a rival does not rise with its pulls at the same
    mean, and does not fall as its mean rises. The bounds on its weight then hold for several pulls.

    >>> from maillard import Tally
    >>> class Simple(Sampled):
    ...     def leader(self, n, t): return 1.0
    ...     def rival(self, n, mean, best, t): return -n * (best - mean) ** 2
    >>> Simple().probabilities(Tally(pulls=[4, 4], sums=[4, 2])).round(3)
    array([0.881, 0.119])
    """

    engine_shape: ClassVar[str | None] = "sampled"
    probability_kind: ClassVar[ProbabilityKind] = "closed form"

    def leader(self, n: Any, t: Any) -> Any:
        """Return the log weight of an arm with the best mean and n pulls, in round t."""
        return 0.0 * n

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        """Return the log weight of an arm with a smaller mean than the best."""
        raise NotImplementedError

    def estimate(self, n: Any, s: Any) -> Any:
        """Return the estimate of the mean that arms are compared by, from pulls and sum.

        >>> from maillard import Tally
        >>> class Shrunken(Sampled):
        ...     def estimate(self, n, s): return (s + 1) / (n + 2)
        ...     def rival(self, n, mean, best, t): return -n * (best - mean)
        >>> Shrunken().probabilities(Tally(pulls=[1, 8], sums=[1, 7])).round(3)
        array([0.467, 0.533])
        """
        return s / n

    @property
    def compares_means(self) -> bool:
        """Whether `estimate` is the empirical mean itself."""
        return type(self).estimate is Sampled.estimate

    @property
    def squared_gap(self) -> tuple[float, float] | None:
        """Numbers c > 0 and d, if the weight of a rival is exp(-x) (1 + d x) with x = c n (best - mean)^2.

        d is between 0 and 1. Simulation then seldom needs `rival`.
        """
        return None

    @property
    def has_potential(self) -> bool:
        """Whether the log weight of a rival is -n (f(mean) - f(best) - f'(best) (mean - best)).

        f is the policy's `potential` and f' its `slope`. Simulation then estimates weights from these, and
        seldom needs `rival`.
        """
        return False

    def potential(self, mean: Any) -> Any:
        """Return the potential of a mean.

        >>> from maillard.policies import KLMaillardSampling
        >>> round(float(KLMaillardSampling().potential(0.5)), 4)
        -0.6931
        """
        raise NotImplementedError

    def slope(self, best: Any) -> Any:
        """Return the slope of the potential at the best mean.

        >>> from maillard.policies import KLMaillardSampling
        >>> float(KLMaillardSampling().slope(0.5))
        0.0
        """
        raise NotImplementedError

    @np.errstate(all="ignore")  # log(0) = -inf is intended; other problems give NaN and are reported
    def _solve(self, n: Floats, s: Floats, t: int) -> tuple[Floats, None]:
        if n.all():
            weights = self._weights(n, s, t)
        else:
            # An arm without rewards has log weight 0, a rival's in the limit N = 0.
            weights, warm = np.zeros(n.size), n > 0
            if warm.any():
                weights[warm] = self._weights(n[warm], s[warm], t)
        log = log_normalise(weights)
        if not log[0] <= 0.0:  # one NaN or inf among the weights makes every log probability NaN
            arm = int(np.argmax(~(weights < np.inf)))
            where = f"{self.name}: log weight of arm {arm}"
            raise InvalidValue(where, float(weights[arm]), "a number < inf")
        return log, None

    def _solve_many(self, n: Floats, s: Floats, t: Floats, eligible: Bools | None) -> Floats | None:
        warm = warm_arms(n, eligible)
        pulls = n if warm is None else np.where(warm, n, 1.0)
        mean = self.estimate(pulls, s)
        if np.shape(mean) != n.shape:
            return None
        known = mean if warm is None else np.where(warm, mean, -np.inf)
        best = known.max(axis=0)
        rivals = apply_formula(f"{self.name}: rival", self.rival, pulls, mean, best, t)
        weights = as_arm_matrix(rivals, n.shape)
        if weights is None:
            return None
        leads = np.flatnonzero(known == best)
        of_leaders = pulls.reshape(-1)[leads], t[leads % t.size]
        weights.reshape(-1)[leads] = apply_formula(f"{self.name}: leader", self.leader, *of_leaders)
        if warm is not None:
            weights[~warm] = 0.0
        if eligible is not None:
            weights[~eligible] = -np.inf
        weights -= weights.max(axis=0)
        # A sum over contiguous numbers has the same order of additions as that of a single tally.
        weights -= np.log(np.exp(weights).T.copy().sum(axis=1))
        return weights

    def _weights(self, n: Floats, s: Floats, t: int) -> Floats:
        mean = self.estimate(n, s)
        best = np.maximum.reduce(mean)
        leads = mean == best
        field = f"{self.name}: rival"
        weights = as_arm_vector(field, apply_formula(field, self.rival, n, mean, best, t), n.size)
        weights[leads] = apply_formula(f"{self.name}: leader", self.leader, n[leads], t)
        return weights
