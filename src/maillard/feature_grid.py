"""The grid of encoded features: numbers from -1 to 1 that are multiples of 2**-16.

On this grid, products of two features are whole multiples of 2**-32, so 64-bit integers add them exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue

STEPS = 1 << 16  # grid steps from 0 to 1
MAX_DIMENSION = 256  # the default limit for the number of features


class GridRows(NamedTuple):
    """Feature rows in grid units, which are known to lie on the grid. Policies take them without a check."""

    units: Ints


def to_grid(x: ArrayLike) -> Floats:
    """Round numbers from -1 to 1 to the nearest multiples of 2**-16, half to even.

    >>> to_grid([0.5, 1 / 3]).tolist()
    [0.5, 0.3333282470703125]
    """
    values = _numbers(x)
    outside = ~(np.abs(values) <= 1.0)
    if outside.any():
        where = int(np.argmax(outside.ravel()))
        raise InvalidValue(
            "x", float(values.ravel()[where]), "numbers from -1 to 1: divide the rows by a bound first"
        )
    # Adding 0 turns -0.0 into 0.0.
    return np.asarray(np.rint(values * STEPS) / STEPS + 0.0)


def grid_units(x: ArrayLike | GridRows, shape: tuple[int, ...]) -> Ints:
    """Return rows that lie on the grid as whole multiples of 2**-16, and refuse all others.

    >>> grid_units([1, -0.5], (2,)).tolist()
    [65536, -32768]
    """
    if isinstance(x, GridRows):
        return x.units
    values = x if type(x) is np.ndarray and x.dtype == np.float64 else _numbers(x)
    if values.shape != shape:
        expected = " x ".join(map(str, shape))
        raise InvalidValue("x", values.shape, f"{expected} numbers, one per feature")
    scaled = values * STEPS
    # A NaN makes the comparison fail, so it never reaches the conversion to integers.
    if not np.maximum.reduce(np.abs(scaled), axis=None) <= STEPS:
        _refuse(values, np.abs(values) <= 1.0, "numbers from -1 to 1: divide the rows by a bound first")
    units: Ints = scaled.astype(np.int64)
    if not np.logical_and.reduce(units == scaled, axis=None):
        _refuse(values, units == scaled, "multiples of 2**-16: round the row with LinearTally.to_grid(x)")
    return units


def _numbers(x: ArrayLike) -> Floats:
    try:
        values = np.asarray(x)
        if values.dtype.kind not in "iuf" or not values.size:
            raise InvalidValue("x", x, "numbers, one per feature")
        with np.errstate(over="ignore"):
            return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue("x", x, "numbers, one per feature") from None


def _refuse(values: Floats, allowed: np.ndarray, expected: str) -> None:
    place = np.unravel_index(int(np.argmin(allowed)), allowed.shape)
    where = "".join(f"[{int(i)}]" for i in place)
    raise InvalidValue(f"x{where}", float(values[place]), expected)
