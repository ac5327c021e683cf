"""Doubly robust estimation with clipped weights."""

from __future__ import annotations

from typing import ClassVar

from maillard.evaluation.estimators.dr import DoublyRobust
from maillard.evaluation.estimators.weight_shrinkage import Clipped


class ClippedDoublyRobust(Clipped, DoublyRobust):
    """Su et al. (2020), pessimistic shrinkage: no weight above the level."""

    name: ClassVar[str] = "clipped-dr"
    formula: ClassVar[str] = "mean [Σ π q + min(w, M) (r - q)]"
