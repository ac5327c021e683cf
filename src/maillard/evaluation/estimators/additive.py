"""What additive estimators have in common: rows become moments, moments add up, and what is asked for is solved from their sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from maillard.errors import InvalidValue
from maillard.evaluation.moments import REWARD, WEIGHT, Moments, moments_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.evaluation.weighted_rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["Additive", "Solution"]


class Solution(NamedTuple):
    """An estimate, and how it moves with the mean of the rows' vectors (see moments.py)."""

    value: float
    gradient: Floats


@dataclass(frozen=True)
class Additive:
    """An estimator of which the parts of a log may be added up in any order.

    `level` is what its shrinkage is set to; None where it has none, or is chosen from the data.
    """

    level: float | None = None

    name: ClassVar[str]
    formula: ClassVar[str]
    shrinkage: ClassVar[str] = "none"
    "Estimators that shrink weights alike share their moments."
    levels: ClassVar[tuple[float, ...]] = ()
    "To choose from."
    allowed: ClassVar[str] = "no level"
    modelled: ClassVar[bool] = False
    "Whether it uses a model of rewards."
    moves: ClassVar[bool] = True
    "Whether it moves with the rewards: add 1 to each of them, and it is more by 1."

    def __post_init__(self) -> None:
        if self.level is not None and not self.accepts(self.level):
            raise InvalidValue(f"{self.name}: level", self.level, self.allowed)

    def __str__(self) -> str:
        return self.name if self.level is None else f"{self.name}:{self.level:g}"

    @classmethod
    def accepts(cls, level: float) -> bool:
        """Whether this may be its level."""
        return bool(cls.levels) and 0 < level < np.inf

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:  # noqa: ARG004  # most shrink by it
        """ω, from w."""
        return weight

    def most(self) -> float:
        """The largest that ω can be."""
        return np.inf

    @property
    def key(self) -> tuple[str, float | None]:
        """Estimators with the same key have the same moments."""
        return self.shrinkage, self.level

    def sums(self, rows: Rows) -> Any:
        """What the rows add: something that has a +."""
        return moments_of(rows, self.shrink(rows.weight, self.level or 0.0))

    def estimate(self, sums: Any, *, model: bool = False, centre: float = 0.0) -> tuple[float, float]:
        """The estimate and its variance. Without a `model` of rewards, the log's mean reward is the model of every arm."""
        constant = None if model else float(sums.mean[REWARD])
        value, gradient = self.solve(sums, constant)
        if self.moves:
            return value + centre, sums.variance(gradient)
        gradient[WEIGHT] += centre
        return value + centre * float(sums.mean[WEIGHT]), sums.variance(gradient)

    def solve(self, sums: Moments, constant: float | None) -> Solution:
        """The estimate; `constant` is what a model says of every arm, in addition to what the rows' model does."""
        raise NotImplementedError
