"""Doubly robust estimation with optimistic shrinkage."""

from __future__ import annotations

from typing import ClassVar

from maillard.evaluation.estimators.dr import DoublyRobust
from maillard.evaluation.estimators.weight_shrinkage import Optimistic


class OptimisticDoublyRobust(Optimistic, DoublyRobust):
    """Su et al. (2020), optimistic shrinkage."""

    name: ClassVar[str] = "dr-os"
    formula: ClassVar[str] = "mean [Σ π q + λ w / (w² + λ) (r - q)]"
