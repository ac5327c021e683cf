"""Features: how the attributes of a visitor or an arm become the numbers of a linear model."""

from maillard.features.encoding import Features
from maillard.features.feature_types import category, flag, hashed, number

__all__ = ["Features", "category", "flag", "hashed", "number"]


def __dir__() -> list[str]:
    return sorted(__all__)
