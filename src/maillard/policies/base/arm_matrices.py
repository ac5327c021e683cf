"""Matrices of arms x tallies, for the formulas of many tallies at once (`Policy._solve_many`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.array_types import Bools, Floats, Ints


def as_arm_matrix(value: Any, shape: tuple[int, ...]) -> Floats | None:
    """Return the result of a formula as a new arm x tally matrix; None if its shape does not fit."""
    if np.shape(value) not in ((), shape[1:], shape):
        return None
    matrix = np.empty(shape)
    matrix[...] = value
    return matrix


def warm_arms(n: Floats, eligible: Bools | None) -> Bools | None:
    """Return which of the eligible arms have rewards, in each tally; None: all arms."""
    warm = None if n.all() else n > 0
    return eligible if warm is None else warm if eligible is None else warm & eligible


def count_arms(n: Floats, eligible: Bools | None) -> int | Ints:
    """Return the number of eligible arms: one number, or one per tally."""
    return len(n) if eligible is None else eligible.sum(axis=0)
