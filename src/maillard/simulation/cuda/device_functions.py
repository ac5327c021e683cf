"""Device functions: plain functions compiled for a GPU.

A formula or an engine is an ordinary function that names others. Its device function is a copy in which these
names refer to device functions, or to a replacement: numbers instead of arrays, and a GPU's random numbers.
In numba's simulator of a GPU, the copies stay Python.
"""

from __future__ import annotations

import dis
import functools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from maillard.policies.numerics import elementwise
from maillard.simulation.compiling import adapt_formula, branch_number, is_foreign, where_number
from maillard.simulation.cuda import device_random_numbers, lockstep_kernel
from maillard.simulation.cuda.cuda_toolkit import jit, simulated
from maillard.simulation.engines import random_numbers, score_sampling


class DeviceFunctions:
    """Copies of functions for one kernel; `stands_for` adds replacements."""

    def __init__(self, stands_for: dict[Any, Any] | None = None) -> None:
        self._made: dict[Any, Any] = {}
        self._stands_for = {
            random_numbers.uniform: device_random_numbers.uniform,
            random_numbers.normal: device_random_numbers.normal,
            random_numbers.exponential: device_random_numbers.exponential,
            elementwise.where: where_number,
            elementwise.branch: branch_number,
            # Never called for Gaussian scores, but the compiler types every branch.
            score_sampling.sample_beta: _not_here,
            score_sampling.beta_hazard: _not_here,
            score_sampling.sample_beta_above: _not_here,
        }
        if not simulated():
            from numba.cuda import libdevice

            self._made[device_random_numbers.sincospi] = libdevice.sincospi
            self._made[lockstep_kernel.larger] = libdevice.fmaxf
        self._stands_for |= stands_for or {}

    def of(self, function: Any) -> Any:
        """Return the device function of a function."""
        function = self._stands_for.get(function, function)
        if function is branch_number:  # a new copy each time: nested calls would look like a recursion
            return self._compile(_copy(function, lambda value: value))
        if function not in self._made:
            self._made[function] = self._compile(_copy(function, self.of))
        return self._made[function]

    def copy(self, function: Any) -> Any:
        """Return a copy of the function itself that calls device functions, not yet compiled: a kernel."""
        return _copy(function, self.of)

    def _compile(self, function: Any) -> Any:
        if simulated() and "cuda" not in function.__globals__:  # Python code needs no compilation
            return function
        return jit(function, device=True, forceinline=True)


def _copy(function: Any, replace: Callable[[Any], Any]) -> Any:
    """Copy a function, replacing the functions of this package that it names."""

    def swap(value: Any) -> Any:
        if isinstance(value, tuple) and any(isinstance(each, types.FunctionType) for each in value):
            return tuple(swap(each) for each in value)
        return replace(value) if isinstance(value, types.FunctionType) and not is_foreign(value) else value

    known = function.__globals__
    loaded = {step.argval for step in dis.get_instructions(function) if step.opname == "LOAD_GLOBAL"}
    names = {name: swap(known[name]) for name in sorted(loaded & known.keys())}
    if names.get("np") is np and not simulated():
        names["np"] = _numpy()
    names |= {"__name__": function.__module__, "__builtins__": known["__builtins__"]}
    cells = tuple(types.CellType(swap(cell.cell_contents)) for cell in function.__closure__ or ())
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    copy.__qualname__ = function.__qualname__
    return copy


_NUMPY_NAMES = ("inf", "nan", "pi", "float32", "float64", "int32", "uint64")


@functools.cache
def _numpy() -> Any:
    """Return the NumPy functions that formulas use, for single numbers; numba-cuda lacks some of them."""
    module = types.ModuleType("numpy_for_numbers")
    found = {
        name: getattr(math, name)
        for name in ("exp", "expm1", "log", "log1p", "sqrt", "floor", "isnan", "isfinite")
    }
    found |= {name: getattr(np, name) for name in _NUMPY_NAMES}
    found["abs"] = math.fabs
    chosen = {"where": where_number, "minimum": _minimum, "maximum": _maximum, "add": _add}
    found |= {name: jit(each, device=True, forceinline=True) for name, each in chosen.items()}
    vars(module).update(found)
    return module


def _not_here(*_: float) -> float:
    return math.nan


def _add(x: float, y: float) -> float:
    return x + y


def _minimum(x: float, y: float) -> float:
    return x if x < y or x != x else y  # noqa: PLR0124  # nan passes through, as in NumPy


def _maximum(x: float, y: float) -> float:
    return x if x > y or x != x else y  # noqa: PLR0124


# What every kernel contains or is made with, besides the functions that its engine and its formulas name.
DEVICE_CODE = (
    _copy,
    DeviceFunctions.of,
    _numpy.__wrapped__,
    adapt_formula,
    where_number,
    branch_number,
    device_random_numbers.uniform,
    device_random_numbers.normal,
    device_random_numbers.exponential,
)
