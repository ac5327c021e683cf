"""Inverse propensity scoring with sub-Gaussian weights."""

from __future__ import annotations

from typing import ClassVar

from maillard.evaluation.estimators.ips import InversePropensity
from maillard.evaluation.estimators.weight_shrinkage import SubGaussian


class SubGaussianInversePropensity(SubGaussian, InversePropensity):
    """Metelli, Russo and Restelli (2021): a harmonic mean of the weight and 1, which has light tails."""

    name: ClassVar[str] = "sg-ips"
    formula: ClassVar[str] = "mean w r / (1 - λ + λ w)"
