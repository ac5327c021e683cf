"""Inverse propensity scoring with clipped weights."""

from __future__ import annotations

from typing import ClassVar

from maillard.evaluation.estimators.ips import InversePropensity
from maillard.evaluation.estimators.weight_shrinkage import Clipped


class ClippedInversePropensity(Clipped, InversePropensity):
    """Ionides (2008): no weight above the level."""

    name: ClassVar[str] = "clipped-ips"
    formula: ClassVar[str] = "mean min(w, M) r"
