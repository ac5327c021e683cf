"""The decorator of the compiled kernels, and checks of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function to machine code that releases the GIL and is cached on disk.

    Numba's cache checks only the file of the function. A kernel therefore calls only kernels of its own file,
    and takes constants of other files as arguments. There is no `fastmath`, so results do not depend on how
    the log is chunked.
    """
    return cast("Function", numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def checked_target(values: Any, arms: int) -> Floats:
    """The values as the probabilities of a target: one for each arm, in one row or several."""
    array = np.ascontiguousarray(values, np.float64)
    if array.ndim != 2 or array.shape[1] != arms:
        allowed = f"rows of {arms} probabilities, one for each arm"
        raise InvalidValue("target_probabilities", array.shape, allowed)
    return array


def places(field: str, values: Any, rows: int, most: int) -> Ints:
    """The values as indices below `most`, one for each row. Compiled code does not check its indices."""
    array = np.ascontiguousarray(values, np.int64)
    if array.shape != (rows,):
        raise InvalidValue(field, array.shape, f"one for each row, {(rows,)}")
    if rows and not (array.min() >= 0 and array.max() < most):
        row = int(np.flatnonzero((array < 0) | (array >= most))[0])
        raise InvalidValue(f"{field}[{row}]", int(array[row]), f"a whole number from 0 to {most - 1}")
    return array
