"""How compiled loops call the sampler of a `Custom` problem.

It is a C function, given by its address,

    double sampler(const void *generator, int64 arm)

where `generator` is the address of numba's representation of the trial's `numpy.random.Generator`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

C_SAMPLER = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, ctypes.c_int64)
_COMPILED_SAMPLER = types.float64(types.intp, types.int64)


def call_sampler(address: int, rng: Any, arm: int) -> float:
    """Return what the sampler at an address returns for an arm.

    Compiled code passes the generator on. Python code calls only samplers that know their generator.
    """
    return float(C_SAMPLER(int(address))(None, int(arm)))


@intrinsic  # type: ignore[untyped-decorator]
def _call_sampler(_typing: Any, address: Any, rng: Any, arm: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        generator = cgutils.alloca_once_value(builder, arguments[1])
        function = ir.FunctionType(ir.DoubleType(), [generator.type, ir.IntType(64)])
        target = builder.inttoptr(arguments[0], function.as_pointer())
        return builder.call(target, [generator, arguments[2]])

    return types.float64(types.int64, rng, types.int64), generate


@overload(call_sampler)
# Numba compares the two.
def _overload_call_sampler(address, rng, arm):  # type: ignore[no-untyped-def]
    return lambda address, rng, arm: _call_sampler(address, rng, arm)  # noqa: PLW0108  # numba wants a function


@intrinsic  # type: ignore[untyped-decorator]
def _generator_at(_typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        return builder.load(builder.inttoptr(arguments[0], kind.as_pointer()))

    return types.npy_rng(address), generate


def compile_sampler(sampler: Any) -> Any:
    """Compile a numba function of (generator, arm) as a C function, which has its address in `address`.

    C functions cannot raise: an exception becomes NaN.
    """

    def sample(generator, arm):  # type: ignore[no-untyped-def]
        try:
            return float(sampler(_generator_at(generator), arm))
        except Exception:  # noqa: BLE001  # the only clause that numba knows
            return np.nan

    return numba.cfunc(_COMPILED_SAMPLER, error_model="numpy")(sample)
