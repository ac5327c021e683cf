"""Compiles plain Python functions once and caches them on disk.

Engines and formulas are ordinary functions. `compile_function` compiles one together with everything it
calls, and numba caches the machine code. Numba's cache key covers only the file of the function itself. The
compiled closure therefore contains a fingerprint of all code that it reaches, so that a change anywhere below
creates a new cache entry.

A policy's formula reaches an engine as an address. Every formula becomes a C function of one signature,

    double formula(const double *parameters, double, double, double, double, double)

so that an engine is compiled once for all policies. Engines that evaluate a formula for all arms in a round
call it once, as

    void formula(const double *parameters, double *a, double *b, double *c, double t, long arms, double *out)

where all arguments of the formula but the last, t, have one number per arm. A formula that numba cannot
compile becomes a callback into Python with the same signature: slow, but the same engine runs it.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import hashlib
import inspect
import sys
import types as python_types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.extending import _Intrinsic
from numba.core.registry import cpu_target
from numba.extending import intrinsic, overload, register_jitable

from maillard.policies.numerics.elementwise import branch, where
from maillard.simulation.formula_callbacks import C_FORMULA, callback, callback_for_arms
from maillard.simulation.inner_functions import (
    INTRINSICS,
    InnerFunction,
    InnerFunctionCompiler,
    OuterFunctionCompiler,
    lowers,
)
from maillard.simulation.numba_errors import may_raise, reason_of
from maillard.simulation.policy_formulas import ALL_ARMS
from maillard.simulation.sampler_calls import generator_of

_F8 = types.float64
_FORMULA = _F8(types.CPointer(_F8), _F8, _F8, _F8, _F8, _F8)
_ARRAY_FORMULA = types.void(*[types.CPointer(_F8)] * 4, _F8, types.int64, types.CPointer(_F8))
# The types of the arrays that compiled loops take.
NUMBERS, PLACES, TABLE = types.Array(_F8, 1, "C"), types.Array(types.int64, 1, "C"), types.Array(_F8, 2, "C")


class SlowFormula(UserWarning):
    """Warns that numba could not compile a formula, which therefore runs as Python.

    >>> import warnings
    >>> from maillard import simulate
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", SlowFormula)  # a slow formula stops the program
    ...     result = simulate("ms", "bernoulli:0.5,0.4", horizon=100, trials=10)
    """


def call(address: int, parameters: int, a: float, b: float, c: float, d: float, e: float) -> float:
    """Return the value of the formula at an address, given the address of its parameters and five numbers."""
    return float(C_FORMULA(int(address))(int(parameters), a, b, c, d, e))


@lowers(call)
def _call_address(_typing: Any, address: Any, parameters: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        function = ir.FunctionType(double, [double.as_pointer(), *[double] * 5])
        target = builder.inttoptr(arguments[0], function.as_pointer())
        return builder.call(target, [builder.inttoptr(arguments[1], double.as_pointer()), *arguments[2:]])

    return _F8(types.int64, types.int64, _F8, _F8, _F8, _F8, _F8), generate


@intrinsic  # type: ignore[untyped-decorator]
def call_for_arms(
    _typing: Any, address: Any, parameters: Any, a: Any, b: Any, c: Any, t: Any, arms: Any, out: Any
) -> Any:
    """Evaluate the formula at an address for all arms; arrays are given by their addresses."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        pointer = double.as_pointer()
        types_of_arguments = [*[pointer] * 4, double, ir.IntType(64), pointer]
        target = builder.inttoptr(
            arguments[0], ir.FunctionType(ir.VoidType(), types_of_arguments).as_pointer()
        )
        given = [
            builder.inttoptr(value, argument_type) if argument_type == pointer else value
            for value, argument_type in zip(arguments[1:], types_of_arguments, strict=True)
        ]
        builder.call(target, given)
        return _context.get_dummy_value()

    whole = types.int64
    return types.void(whole, whole, whole, whole, whole, _F8, whole, whole), generate


def borrowed(array: Any) -> Any:
    """Return the same array (or generator) without its reference count, whose updates cost more than a round.

    The caller must keep the original alive.
    """
    return array


@lowers(borrowed)
def _borrow(_typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lent = cgutils.create_struct_proxy(signature.return_type)(context, builder, value=arguments[0])
        lent.meminfo = ir.Constant(lent.meminfo.type, None)
        return lent._getvalue()

    return array(array), generate


# Numba compares the parameters of these two functions with those of the overloads, annotations included.
def where_number(condition, yes, no):  # type: ignore[no-untyped-def]
    """Return what `where` does, for single numbers."""
    return yes + 0.0 if condition else no + 0.0


def branch_number(condition, yes, no, x, y):  # type: ignore[no-untyped-def]
    """Return what `branch` does, for single numbers."""
    return yes(x, y) + 0.0 if condition else no(x, y) + 0.0


overload(where)(lambda condition, yes, no: where_number)  # noqa: ARG005
overload(branch)(lambda condition, yes, no, x, y: branch_number)  # noqa: ARG005


@functools.cache
def compile_function(build: Callable[..., Any], parts: tuple[Any, ...], signature: Any) -> Any:
    """Compile the closure that `build(*parts, fingerprint)` returns for one signature, without the GIL.

    Returns the compiled entry point: numba's dispatcher would check the type of every argument in every call.
    """
    function = build(*parts, fingerprint_of(build, *parts))
    name_uniquely(function, *(part for part in parts if isinstance(part, python_types.FunctionType)))
    options = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    with global_compiler_lock:
        for reached in _reached(function, set()):
            if reached is not function:
                _register(reached)
        dispatcher = numba.njit(signature, pipeline_class=OuterFunctionCompiler, **options)(function)
    return dispatcher.overloads[signature.args].entry_point


def name_uniquely(function: Any, *parts: Any) -> None:
    """Give a function a unique name: processes that share a cache file overwrite each other's entries."""
    words = [f"{part.__module__.rpartition('.')[2]}.{part.__qualname__}" for part in parts]
    function.__qualname__ = "-".join(words).replace("<", "").replace(">", "")


def rare(function: Any) -> Any:
    """Mark a function that few rounds call: it is compiled once instead of inlined into every caller."""
    function.rare = True
    return function


def reassociating(function: Any) -> Any:
    """Mark a function whose sums may be added in any order, with fused operations, so that they vectorize.

    NaN and infinity keep their meaning.
    """
    function.fastmath = {"reassoc", "contract"}
    return function


ENGINES = "maillard.simulation."
_REGISTERED: dict[Any, Any] = dict.fromkeys((generator_of, branch, where))  # functions with an overload


def _register(function: Any) -> None:
    """Let compiled code call this function. The caller holds numba's lock.

    Formulas may hold functions as values, which must be overloads for numba. But numba compiles an overload
    anew for callers with other options; so the functions of engines are dispatchers.
    """
    if function in _REGISTERED or function in INTRINSICS:
        return
    # Inlining pays for functions that every round calls.
    options = {"error_model": "numpy", "forceinline": not hasattr(function, "rare")}
    options |= {"fastmath": getattr(function, "fastmath", False), "no_cfunc_wrapper": True}
    options |= {"no_cpython_wrapper": True, "pipeline_class": InnerFunctionCompiler}
    if (function.__module__ or "").startswith(ENGINES):
        _REGISTERED[function] = numba.njit(**options)(function)
        cpu_target.typing_context.insert_global(function, InnerFunction(_REGISTERED[function]))
    else:
        _REGISTERED[function] = register_jitable(**options)(function)


def is_foreign(function: Any) -> bool:
    """Return whether numba has its own implementation of a function."""
    return (function.__module__ or "").split(".")[0] in ("numba", "numpy")


def _reached(value: Any, seen: set[Any]) -> Iterator[python_types.FunctionType]:
    """Yield a function (or those in a tuple) and all functions that it names, recursively.

    It names them in its globals or its closure.
    """
    if isinstance(value, tuple):
        for each in value:
            yield from _reached(each, seen)
    elif isinstance(value, python_types.FunctionType) and value not in seen and not is_foreign(value):
        seen.add(value)
        yield value
        named = tuple(value.__globals__.get(name) for name in _names(value.__code__))
        yield from _reached((*named, *(cell.cell_contents for cell in value.__closure__ or ())), seen)


def is_built_in(functions: Any) -> bool:
    """Return whether all code of a function (or a tuple of them) is ours, so that the disk may cache it.

    A user's formula may depend on things that the fingerprint does not cover.
    """
    return all((each.__module__ or "").startswith("maillard.") for each in _reached(functions, set()))


def _names(code: python_types.CodeType) -> list[str]:
    inner = [each for each in code.co_consts if isinstance(each, python_types.CodeType)]
    return [*code.co_names, *(name for each in inner for name in _names(each))]


def fingerprint_of(*functions: Any) -> int:
    """Return a hash of the code of these functions and of all that they call, with the constants they use."""
    digest = hashlib.sha256(numba.__version__.encode())
    for how in (compile_function.__wrapped__, _register, _compile_formula):  # how functions are compiled
        _digest_code(digest, how.__code__)
    generators = set()  # modules whose functions generate code
    for each in _reached(functions, set()):
        marks = hasattr(each, "rare"), sorted(getattr(each, "fastmath", ()))
        digest.update(f"{each.__qualname__} {marks}".encode())
        _digest_code(digest, each.__code__)
        digest.update(repr((each.__defaults__, each.__kwdefaults__)).encode())
        if each in INTRINSICS:
            generators.add(each.__module__)
        for name in _names(each.__code__):
            value = each.__globals__.get(name)
            if isinstance(value, _Intrinsic):
                generators.add(value._defn.__module__)
            elif isinstance(value, int | float | str | tuple) and not _holds_functions(value):
                digest.update(f"{name}={value!r}".encode())
    for module in sorted(generators - {__name__}):
        digest.update(inspect.getsource(sys.modules[module]).encode())
    return int.from_bytes(digest.digest()[:7], "big") + 1


def _holds_functions(value: object) -> bool:
    return isinstance(value, tuple) and any(callable(each) for each in value)


def _digest_code(digest: Any, code: python_types.CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, python_types.CodeType):
            _digest_code(digest, constant)
        else:
            digest.update(repr(constant).encode())


_MAX_NUMBERS, _MAX_OTHERS = 12, 4  # parameters of a compiled formula: numbers; flags and functions


def parameters_of(policy: Any) -> np.ndarray:
    """Return a policy's numbers as its compiled formulas read them."""
    numbers = [np.nan if value is None else float(value) for value in numbers_of(policy).values()]
    return np.array(numbers + [np.nan] * (_MAX_NUMBERS - len(numbers)))


def numbers_of(policy: Any) -> dict[str, Any]:
    """Return the numbers that a policy's formulas use, by name."""
    values = {name: getattr(policy, name) for name, _, _ in policy.parameters()}
    values.pop("reward_range", None)  # a pair; formulas use what is derived from it
    derived = {name: getattr(policy, name) for name in policy.derived}
    values |= {name: value for name, value in derived.items() if isinstance(value, float)}
    return {"pad": 0.0} | {name: value for name, value in values.items() if not isinstance(value, str | bool)}


def others_of(policy: Any) -> dict[str, Any]:
    """Return what formulas use besides numbers, in a fixed count: flags and derived properties."""
    flags = {name: getattr(policy, name) for name, _, _ in policy.parameters()}
    used = {name: value for name, value in flags.items() if isinstance(value, bool)}
    derived = {name: getattr(policy, name) for name in policy.derived}
    used |= {name: value for name, value in derived.items() if not isinstance(value, float)}
    return used | {f"spare{place}": 0.0 for place in range(_MAX_OTHERS - len(used))}


def stand_in(fields: tuple[str, ...]) -> Any:
    """Return the class whose instances compiled formulas get as `self`, one for each set of fields."""
    # With lengths, so that the fields (x, y_x) and (x_y, x) get different names.
    name = "Parameters" + "".join(f"_{len(field)}{field}" for field in fields)
    if name not in globals():
        globals()[name] = collections.namedtuple(name, fields, module=__name__)
    return globals()[name]


def adapt_formula(policy: Any, name: str, arity: int, part: int, fingerprint: int) -> Any:
    """Return a formula as a function of the array from `parameters_of` and five numbers."""
    formula, fields, others = getattr(type(policy), name), numbers_of(policy), others_of(policy)
    cls, count = stand_in((*fields, *others)), len(fields)
    w, x, y, z = others.values()

    def adapted(parameters, a, b, c, d, e):  # type: ignore[no-untyped-def]
        if fingerprint == 0:  # never: but only variables that the code uses enter the cache key
            return np.nan
        p = parameters
        numbers = (p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11])[:count]
        policy = cls(*numbers, w, x, y, z)
        arguments = (a, b, c, d, e)[:arity]
        # np.where of numbers returns an array without dimensions; adding 0 makes it a number.
        if part < 0:
            return np.add(formula(policy, *arguments), 0.0)
        return np.add(formula(policy, *arguments)[part], 0.0)

    return adapted


def adapt_formula_for_arms(policy: Any, name: str, arity: int, fingerprint: int) -> Any:
    """Return a formula as a function of addresses of arrays; the last argument is one number for all arms."""
    formula, fields, others = getattr(type(policy), name), numbers_of(policy), others_of(policy)
    cls, count = stand_in((*fields, *others)), len(fields)
    w, x, y, z = others.values()
    arrays = arity - 1

    def adapted(parameters, first, second, third, t, arms, out):  # type: ignore[no-untyped-def]
        if fingerprint == 0:  # never: see `adapt_formula`
            return
        p = parameters
        numbers = (p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11])[:count]
        policy = cls(*numbers, w, x, y, z)
        for arm in range(arms):
            arguments = (first[arm], second[arm], third[arm])[:arrays]
            out[arm] = np.add(formula(policy, *arguments, t), 0.0)

    return adapted


_COMPILED: dict[Any, Any] = {}


def address_of(policy: Any, name: str, arity: int, part: int = -1) -> tuple[int, Any]:
    """Return the address of a formula (or of one element of it), and the object that keeps it valid."""
    key = (getattr(type(policy), name), tuple(others_of(policy).items()), tuple(numbers_of(policy)), part)
    if key not in _COMPILED:
        _COMPILED[key] = _compile_formula(policy, name, arity, part)
    made = _COMPILED[key]
    if made is None:
        formula = getattr(policy, name)
        made = callback_for_arms(formula, arity) if part == ALL_ARMS else callback(formula, arity, part)
        return ctypes.cast(made, ctypes.c_void_p).value or 0, made
    return made.address, made


def _compile_formula(policy: Any, name: str, arity: int, part: int) -> Any:
    formula, others = getattr(type(policy), name), tuple(others_of(policy).values())
    try:
        if len(numbers_of(policy)) > _MAX_NUMBERS or len(others) > _MAX_OTHERS:
            raise TypeError(f"more than {_MAX_NUMBERS} numbers or {_MAX_OTHERS} flags")  # noqa: TRY301
        reached = list(_reached(formula, set()))
        if any(may_raise(each) for each in reached):
            raise TypeError("it may raise an exception, which compiled formulas cannot")  # noqa: TRY301
        with global_compiler_lock:
            for each in _reached((formula, *others), set()):
                _register(each)
        fingerprint = fingerprint_of(formula, *others)
        if part == ALL_ARMS:
            adapted, signature = adapt_formula_for_arms(policy, name, arity, fingerprint), _ARRAY_FORMULA
        else:
            adapted, signature = adapt_formula(policy, name, arity, part, fingerprint), _FORMULA
        name_uniquely(adapted, formula)
        return numba.cfunc(signature, cache=is_built_in(formula), error_model="numpy")(adapted)
    # Numba raises many types: a formula of a user may contain anything.
    except Exception as error:  # noqa: BLE001
        message = f"{formula.__qualname__} runs as Python, a hundred times slower: {reason_of(error)}"
        warnings.warn(message, SlowFormula, stacklevel=2)
        return None
