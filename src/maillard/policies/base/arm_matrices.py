"""Matrices of arms x tallies, for the formulas of many tallies at once (`Policy._solve_many`)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.errors import InvalidValue

# Up to so many arms, a loop over numbers is faster than calls of NumPy, above all if the process has waited
# for a disk in between: then the first call of each function takes ten times as long.
FEW_ARMS = 32


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


def exact_sums(values: Floats) -> Floats:
    """Return the sums over arms, rounded once; of a vector, or of each column of a matrix."""
    return np.array([math.fsum(column) for column in np.atleast_2d(values.T).tolist()])


def apply_formula(field: str, formula: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value of a formula for arrays; a formula that can only do numbers raises `InvalidValue`."""
    try:
        return formula(*arguments)
    except InvalidValue:
        raise
    except ValueError as error:  # above all `if` on an array
        allowed = "a formula for arrays, as with np.where in place of `if` and np.maximum in place of `max`"
        raise InvalidValue(field, error, allowed) from error
    except TypeError as error:
        own = inspect.signature(formula)
        try:
            own.bind(*arguments)
        except TypeError:
            allowed = f"{len(arguments)} arguments after self, as its base class documents them"
            raise InvalidValue(f"{field}: arguments", str(own), allowed) from error
        raise


def as_arm_vector(field: str, value: Any, k: int) -> Floats:
    """Return the result of a formula as an array of k numbers; a single number is repeated."""
    if isinstance(value, np.ndarray) and value.shape == (k,) and value.dtype == np.float64:
        return value
    try:
        return np.broadcast_to(np.asarray(value, np.float64), (k,)).copy()
    except (TypeError, ValueError):
        raise InvalidValue(field, value, f"{k} numbers, one per arm, or a single number") from None
