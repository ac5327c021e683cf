"""Doubly robust estimation that leaves large weights to the model."""

from __future__ import annotations

from typing import ClassVar

from maillard.evaluation.estimators.dr import DoublyRobust
from maillard.evaluation.estimators.weight_shrinkage import Switched


class SwitchedDoublyRobust(Switched, DoublyRobust):
    """Wang, Agarwal and Dudík (2017): if a weight exceeds the level, only the model is used."""

    name: ClassVar[str] = "switch-dr"
    formula: ClassVar[str] = "mean [Σ π q + w (r - q) where w <= λ]"
