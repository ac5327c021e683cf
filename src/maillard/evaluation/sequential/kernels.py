"""What the kernels of this folder are marked with, and what keeps them inside their arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from maillard.errors import InvalidValue

__all__ = ["compiled", "places"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function as machine code, without the GIL, kept on disk.

    Numba's cache looks at the file of the function alone, so a kernel calls only kernels of its own file. Nothing is
    reordered (no `fastmath`): results are the same bits for any chunking.
    """
    return cast("Function", numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def places(field: str, values: Any, rows: int, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The values as places, one for each row, each under `most`: compiled code does not look where it reads."""
    array = np.ascontiguousarray(values, np.int64)
    if array.shape != (rows,):
        raise InvalidValue(field, array.shape, f"one for each row, {(rows,)}")
    if rows and not (array.min() >= 0 and array.max() < most):
        row = int(np.flatnonzero((array < 0) | (array >= most))[0])
        raise InvalidValue(f"{field}[{row}]", int(array[row]), f"a whole number from 0 to {most - 1}")
    return array
