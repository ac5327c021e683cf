"""Index policies: choose the arm with the largest index, ties uniformly at random."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from maillard.array_types import Bools, Floats
from maillard.errors import InvalidValue
from maillard.policies.base.arm_matrices import (
    apply_formula,
    as_arm_matrix,
    as_arm_vector,
    count_arms,
    warm_arms,
)
from maillard.policies.base.policy import Policy, ProbabilityKind, include_cold_arms
from maillard.policies.numerics.pooled_pulls import pooled_pulls

IndexForm = Literal["root", "quadratic", "separable"]


class Indexed(Policy):
    """Base class of policies that choose the arm with the largest index. A subclass defines `index`.

    Declare `monotone = True` if the index of every arm moves in the same direction as t grows (all rise or
    all fall), and never rises with the best mean. Simulation then evaluates only the indices that can be
    largest. Declare also `index_form` if the index has one of these forms; simulation is then faster still:

    - "root": mean + width / √n, where the width depends on t and k only;
    - "quadratic": -(ln n + w n (best - mean)²), where w is a constant;
    - "separable": mean + width · level, where the width depends on n, the level on t, and both on k. "root"
      is a special case. A GPU reads both from tables, and evaluates the formula where they cannot decide.

    >>> from maillard import Tally
    >>> class Hopeful(Indexed):
    ...     def index(self, n, mean, best, t, k): return mean + 1 / n
    >>> tally = Tally(pulls=[4, 1], sums=[2, 0])
    >>> Hopeful().probabilities(tally)
    array([0., 1.])
    >>> Hopeful().indices(tally.pulls, tally.means, tally.round, len(tally))
    array([0.75, 1.  ])
    """

    engine_shape: ClassVar[str | None] = "indexed"
    probability_kind: ClassVar[ProbabilityKind] = "deterministic"
    uses_best: ClassVar[bool] = True  # whether the index depends on the best mean
    uses_round: ClassVar[bool] = True  # whether it depends on t
    index_form: ClassVar[IndexForm | None] = None
    has_memory: ClassVar[bool] = False  # whether the policy has state besides the tally, as DMED's list

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "index_form" not in cls.__dict__ and not {"index", "divergence"}.isdisjoint(cls.__dict__):
            cls.index_form = None  # the form of an inherited formula says nothing about a new one

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        """Return the index of an arm with n pulls and this mean, in round t, among k arms."""
        raise NotImplementedError

    def indices(self, n: Floats, mean: Floats, t: int, k: int) -> Floats:
        """Return the index of each arm with observed rewards; k also counts the arms without."""
        field = f"{self.name}: index"
        return as_arm_vector(field, apply_formula(field, self.index, n, mean, mean.max(), t, k), n.size)

    def _solve(self, n: Floats, s: Floats, t: int) -> tuple[Floats, Floats | None]:
        warm = n > 0
        if warm.all():
            return self._ties(n, s, t, n.size), None
        log = self._ties(n[warm], s[warm], t, n.size) if warm.any() else n[:0]
        return include_cold_arms(warm, log, None)

    def _solve_many(self, n: Floats, s: Floats, t: Floats, eligible: Bools | None) -> Floats | None:
        warm, k = warm_arms(n, eligible), count_arms(n, eligible)
        pulls = n if warm is None else np.where(warm, n, 1.0)
        mean = s / pulls
        best = mean.max(axis=0) if warm is None else mean.max(axis=0, initial=-np.inf, where=warm)
        found = apply_formula(f"{self.name}: index", self.index, pulls, mean, best, t, k)
        index = as_arm_matrix(found, n.shape)
        if index is None:
            return None
        if warm is None:
            wins = index == index.max(axis=0)
            return np.where(wins, -np.log(wins.sum(axis=0)), np.where(np.isnan(index), np.nan, -np.inf))
        index[~warm] = -np.inf
        wins = (index == index.max(axis=0)) & warm
        cold = k - warm.sum(axis=0)
        log = np.where(wins, np.log1p(-cold / k) - np.log(wins.sum(axis=0)), -np.inf)
        log[np.isnan(index)] = np.nan
        return np.where(n > 0 if eligible is None else (n > 0) | ~eligible, log, -np.log(k))

    def _ties(self, n: Floats, s: Floats, t: int, k: int) -> Floats:
        with np.errstate(all="ignore"):
            index = self.indices(n, s / n, t, k)
        top = index.max()
        if np.isnan(top):
            arm = int(np.argmax(np.isnan(index)))
            raise InvalidValue(f"{self.name}: index of arm {arm}", float(top), "a number")
        wins = index == top
        return np.where(wins, -np.log(np.count_nonzero(wins)), -np.inf)


class Pooled(Indexed):
    """Base class for an index that also depends on the pulls of all arms, relative to those of the arm."""

    engine_shape: ClassVar[str | None] = "pooled"

    def pooling(self) -> float:
        """Return ρ, the exponent of the pulls of other arms."""
        return 0.5

    def pooled_index(self, n: Any, mean: Any, pooled: Any, t: Any, k: Any) -> Any:
        """Return the index of an arm, given its pooled pulls (see `pooled_pulls`)."""
        raise NotImplementedError

    def indices(self, n: Floats, mean: Floats, t: int, k: int) -> Floats:
        pooled = pooled_pulls(n, self.pooling())
        return as_arm_vector(f"{self.name}: index", self.pooled_index(n, mean, pooled, t, k), n.size)
