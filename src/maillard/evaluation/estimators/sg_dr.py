"""Doubly robust estimation with sub-Gaussian weights."""

from __future__ import annotations

from typing import ClassVar

from maillard.evaluation.estimators.dr import DoublyRobust
from maillard.evaluation.estimators.weight_shrinkage import SubGaussian


class SubGaussianDoublyRobust(SubGaussian, DoublyRobust):
    """Metelli, Russo and Restelli (2021): light tails, with a model."""

    name: ClassVar[str] = "sg-dr"
    formula: ClassVar[str] = "mean [Σ π q + w / (1 - λ + λ w) (r - q)]"
