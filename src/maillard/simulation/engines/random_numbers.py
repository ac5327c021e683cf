"""Random numbers by name, for code that CPU and GPU share; on a GPU the names stand for other generators."""

from __future__ import annotations

from typing import Any


def uniform(rng: Any) -> float:
    """Uniform on [0, 1)."""
    return rng.random()


def normal(rng: Any) -> float:
    """Standard normal."""
    return rng.standard_normal()


def exponential(rng: Any) -> float:
    """Exponential of mean 1."""
    return rng.standard_exponential()
