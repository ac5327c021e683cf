"""Functions for formulas that simulation compiles differently from NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def where(condition: Any, yes: Any, no: Any) -> Any:
    """Return `numpy.where(condition, yes, no)`; compiled for numbers, it is a branch without an array."""
    return np.where(condition, yes, no)


def branch(
    condition: Any, yes: Callable[[Any, Any], Any], no: Callable[[Any, Any], Any], x: Any, y: Any
) -> Any:
    """Return yes(x, y) where the condition holds, otherwise no(x, y).

    Compiled for numbers, only the selected function is evaluated.
    """
    return np.where(condition, yes(x, y), no(x, y))
