"""Estimators with shrunken weights: less variance, at the price of a bias that the level controls."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import AdditiveEstimator
from maillard.evaluation.estimators.dr import DoublyRobust
from maillard.evaluation.estimators.ips import InversePropensity


class Shrunken(AdditiveEstimator):
    """Weights of at most the level. Default reports and `compare` exclude shrunken forms of estimators."""

    compares: ClassVar[bool] = False
    default_for: ClassVar[tuple[str, ...] | None] = None
    priority: ClassVar[tuple[int, int]] = (99, 99)
    levels: ClassVar[tuple[float, ...]] = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 1000.0, 5000.0)

    def max_weight(self) -> float:
        return self.level or np.inf


class Clipped(Shrunken):
    """ω = min(w, level)."""

    shrinkage: ClassVar[str] = "clip"
    allowed: ClassVar[str] = "a number > 0, the largest weight"

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:
        return np.minimum(weight, level)


class Switched(Shrunken):
    """ω = w where w <= level, else 0."""

    shrinkage: ClassVar[str] = "switch"
    allowed: ClassVar[str] = "a number > 0, the largest weight that counts"

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:
        # Rounding may put a weight that equals the level slightly above it.
        return np.where(weight <= level * (1.0 + 1e-12), weight, 0.0)


class Optimistic(Shrunken):
    """ω = λ w / (w² + λ), at most √λ / 2."""

    shrinkage: ClassVar[str] = "optimistic"
    allowed: ClassVar[str] = "a number > 0"

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:
        return level * weight / (weight * weight + level)

    def max_weight(self) -> float:
        return float(np.sqrt(self.level or np.inf)) / 2.0


class SubGaussian(Shrunken):
    """ω = w / (1 - λ + λ w), at most 1 / λ; 0 where w = 0."""

    shrinkage: ClassVar[str] = "sub-Gaussian"
    levels: ClassVar[tuple[float, ...]] = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5)
    allowed: ClassVar[str] = "a number from 0 to 1"

    @classmethod
    def accepts(cls, level: float) -> bool:
        return 0 <= level <= 1

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:
        return np.divide(weight, 1.0 - level + level * weight, out=np.zeros_like(weight), where=weight > 0)

    def max_weight(self) -> float:
        return 1.0 / self.level if self.level else np.inf


class ClippedInversePropensity(Clipped, InversePropensity):
    """Ionides (2008): no weight above the level."""

    name: ClassVar[str] = "clipped-ips"
    formula: ClassVar[str] = "mean min(w, M) r"


class SubGaussianInversePropensity(SubGaussian, InversePropensity):
    """Metelli, Russo and Restelli (2021): a harmonic mean of the weight and 1, which has light tails."""

    name: ClassVar[str] = "sg-ips"
    formula: ClassVar[str] = "mean w r / (1 - λ + λ w)"


class ClippedDoublyRobust(Clipped, DoublyRobust):
    """Su et al. (2020), pessimistic shrinkage: no weight above the level."""

    name: ClassVar[str] = "clipped-dr"
    formula: ClassVar[str] = "mean [Σ π q + min(w, M) (r - q)]"


class SwitchedDoublyRobust(Switched, DoublyRobust):
    """Wang, Agarwal and Dudík (2017): if a weight exceeds the level, only the model is used."""

    name: ClassVar[str] = "switch-dr"
    formula: ClassVar[str] = "mean [Σ π q + w (r - q) where w <= λ]"


class OptimisticDoublyRobust(Optimistic, DoublyRobust):
    """Su et al. (2020), optimistic shrinkage."""

    name: ClassVar[str] = "dr-os"
    formula: ClassVar[str] = "mean [Σ π q + λ w / (w² + λ) (r - q)]"


class SubGaussianDoublyRobust(SubGaussian, DoublyRobust):
    """Metelli, Russo and Restelli (2021): light tails, with a model."""

    name: ClassVar[str] = "sg-dr"
    formula: ClassVar[str] = "mean [Σ π q + w / (1 - λ + λ w) (r - q)]"
