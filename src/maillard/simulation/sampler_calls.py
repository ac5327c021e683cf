"""How compiled loops call the sampler of a `Custom` problem, and those of rare distributions.

A sampler is a C function, given by its address,

    double sampler(const void *generator, int64 arm)
    double sampler(const void *generator, const double *numbers)

where `generator` is the address of numba's representation of the trial's `numpy.random.Generator`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from maillard.simulation.inner_functions import lowers

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The Python functions of (generator, numbers) by the address of the compiled ones, for loops in Python.
PYTHON_SAMPLERS: dict[int, Any] = {}
C_SAMPLER = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, ctypes.c_int64)
_COMPILED_SAMPLER = types.float64(types.intp, types.int64)


def call_sampler(address: int, rng: Any, arm: int) -> float:
    """Return what the sampler at an address returns for an arm, or for the address of its numbers.

    Compiled code passes the generator on. The samplers of `Custom` problems that loops in Python call know
    their generator.
    """
    if address in PYTHON_SAMPLERS:
        return float(PYTHON_SAMPLERS[address](rng, ctypes.cast(int(arm), ctypes.POINTER(ctypes.c_double))))
    return float(C_SAMPLER(int(address))(None, int(arm)))


@lowers(call_sampler)
def _call_sampler(_typing: Any, address: Any, rng: Any, arm: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        generator = cgutils.alloca_once_value(builder, arguments[1])
        function = ir.FunctionType(ir.DoubleType(), [generator.type, ir.IntType(64)])
        target = builder.inttoptr(arguments[0], function.as_pointer())
        return builder.call(target, [generator, arguments[2]])

    return types.float64(types.int64, rng, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def generator_at(_typing: Any, address: Any) -> Any:
    """Return the generator at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        return builder.load(builder.inttoptr(arguments[0], kind.as_pointer()))

    return types.npy_rng(address), generate


def generator_words(bits: Sequence[np.random.BitGenerator]) -> NDArray[np.int64]:
    """Return one row of addresses per bit generator, from which compiled code makes its generators.

    The bit generators must stay alive. Compiled code that takes generators themselves compiles longer.
    """
    rows = []
    for each in bits:
        made = each.ctypes
        functions = (made.next_uint64, made.next_uint32, made.next_double)
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        rows.append([made.state_address, made.state.value, *addresses, made.bit_generator.value])
    return np.array(rows, np.int64)


_WORDS = (
    "state_address",
    "state",
    "fnptr_next_uint64",
    "fnptr_next_uint32",
    "fnptr_next_double",
    "bit_generator",
)


def generator_of(generators: Any, place: int) -> Any:
    """Return a generator of a table from `generator_words`; from Python, of a sequence of generators."""
    return generators[place]


@intrinsic  # type: ignore[untyped-decorator]
def _generator_from(_typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        made = cgutils.create_struct_proxy(signature.return_type)(context, builder)  # all fields are 0
        bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))(
            context, builder
        )
        for place, name in enumerate(_WORDS):
            setattr(bits, name, builder.load(cgutils.gep_inbounds(builder, words, place)))
        made.bit_generator = bits._getvalue()
        return made._getvalue()

    return types.npy_rng(address), generate


@overload(generator_of)
# Numba compares the two.
def _overload_generator_of(generators, place):  # type: ignore[no-untyped-def]
    return lambda generators, place: _generator_from(generators[place].ctypes.data)


def compile_sampler(sampler: Any) -> Any:
    """Compile a numba function of (generator, arm) as a C function, which has its address in `address`.

    C functions cannot raise: an exception becomes NaN.
    """

    def sample(generator, arm):  # type: ignore[no-untyped-def]
        try:
            return float(sampler(generator_at(generator), arm))
        except Exception:  # noqa: BLE001  # the only clause that numba knows
            return np.nan

    return numba.cfunc(_COMPILED_SAMPLER, error_model="numpy")(sample)
