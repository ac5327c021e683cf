"""What formulas need besides arithmetic and NumPy's own functions."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["where"]


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`numpy.where`; compiled for numbers it is a branch, where NumPy's own would allocate an array."""
    return np.where(condition, yes, no)
