"""Formulas that numba cannot compile, as C functions that call Python.

An exception cannot pass through compiled code. It is kept in the attribute `error` of the function, which
returns NaN.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

C_FORMULA = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, *[ctypes.c_double] * 5)
_POINTER = ctypes.POINTER(ctypes.c_double)
C_ARRAY_FORMULA = ctypes.CFUNCTYPE(None, *[_POINTER] * 4, ctypes.c_double, ctypes.c_int64, _POINTER)


def callback(formula: Any, arity: int, part: int) -> Any:
    """Return a formula, or one element of it, as a C function of five numbers."""

    def evaluate(_parameters: int, *arguments: float) -> float:
        try:
            with np.errstate(all="ignore"):
                value = formula(*(np.float64(each) for each in arguments[:arity]))
            return float(value if part < 0 else value[part])
        except BaseException as error:  # noqa: BLE001  # compiled code cannot pass it on; nan is reported
            made.error = error
            return float("nan")

    made: Any = C_FORMULA(evaluate)
    made.error = None
    return made


def callback_for_arms(formula: Any, arity: int) -> Any:
    """Return a formula as a C function of arrays with one number per arm."""

    def evaluate(_parameters: Any, a: Any, b: Any, c: Any, t: float, arms: int, out: Any) -> None:
        try:
            arrays = [np.ctypeslib.as_array(each, (arms,)) for each in (a, b, c)[: arity - 1]]
            with np.errstate(all="ignore"):
                np.ctypeslib.as_array(out, (arms,))[:] = formula(*arrays, t)
        except BaseException as error:  # noqa: BLE001  # compiled code cannot pass it on; nan is reported
            made.error = error
            np.ctypeslib.as_array(out, (arms,))[:] = np.nan

    made: Any = C_ARRAY_FORMULA(evaluate)
    made.error = None
    return made
