"""Methods that shrink weights: less variance, at the price of a bias that the level controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from maillard.evaluation.estimators.additive import AdditiveEstimator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.evaluation.evaluation_log import EvaluationLog

    Floats = NDArray[np.float64]

_LARGE = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 1000.0, 5000.0)
_FRACTIONS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5)


class Shrunken(AdditiveEstimator):
    """Excludes the shrunken form of an estimator from default reports and from `compare`."""

    compares: ClassVar[bool] = False
    order: ClassVar[int] = 0
    priority: ClassVar[tuple[int, int]] = (99, 99)

    @classmethod
    def is_default(cls, log: EvaluationLog) -> bool:  # noqa: ARG003
        return False


class Clipped(Shrunken):
    """ω = min(w, level)."""

    shrinkage: ClassVar[str] = "clip"
    levels: ClassVar[tuple[float, ...]] = _LARGE
    allowed: ClassVar[str] = "a number > 0, the largest weight"

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:
        return np.minimum(weight, level)

    def max_weight(self) -> float:
        return self.level or np.inf


class Switched(Shrunken):
    """ω = w where w <= level, else 0."""

    shrinkage: ClassVar[str] = "switch"
    levels: ClassVar[tuple[float, ...]] = _LARGE
    allowed: ClassVar[str] = "a number > 0, the largest weight that counts"

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:
        # Rounding may put a weight that equals the level slightly above it.
        return np.where(weight <= level * (1.0 + 1e-12), weight, 0.0)

    def max_weight(self) -> float:
        return self.level or np.inf


class Optimistic(Shrunken):
    """ω = λ w / (w² + λ), at most √λ / 2."""

    shrinkage: ClassVar[str] = "optimistic"
    levels: ClassVar[tuple[float, ...]] = _LARGE
    allowed: ClassVar[str] = "a number > 0"

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:
        return level * weight / (weight * weight + level)

    def max_weight(self) -> float:
        return float(np.sqrt(self.level or np.inf)) / 2.0


class SubGaussian(Shrunken):
    """ω = w / (1 - λ + λ w), at most 1 / λ; 0 where w = 0."""

    shrinkage: ClassVar[str] = "sub-Gaussian"
    levels: ClassVar[tuple[float, ...]] = _FRACTIONS
    allowed: ClassVar[str] = "a number from 0 to 1"

    @classmethod
    def accepts(cls, level: float) -> bool:
        return 0 <= level <= 1

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:
        return np.divide(weight, 1.0 - level + level * weight, out=np.zeros_like(weight), where=weight > 0)

    def max_weight(self) -> float:
        return 1.0 / self.level if self.level else np.inf
