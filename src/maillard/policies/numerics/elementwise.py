"""What formulas need besides arithmetic and NumPy's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["branch", "where"]


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`numpy.where`; compiled for numbers it is a branch, where NumPy's own would allocate an array."""
    return np.where(condition, yes, no)


def branch(
    condition: Any, yes: Callable[[Any, Any], Any], no: Callable[[Any, Any], Any], x: Any, y: Any
) -> Any:
    """yes(x, y) where the condition holds, else no(x, y); compiled for numbers, only the one that is asked for."""
    return np.where(condition, yes(x, y), no(x, y))
