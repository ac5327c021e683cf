"""Plain Python functions, compiled once and kept on disk.

Engines and formulas are ordinary functions. `compile_function` compiles one with everything that it calls, and numba keeps the machine
code in its cache. That cache looks only at the file of the function itself; so the closure that is compiled also holds a
fingerprint of all code that it reaches, and a change anywhere below makes a new entry.

A policy's formula reaches an engine as an address: every formula becomes a C function of one signature,

    double formula(const double *parameters, double, double, double, double, double)

so that an engine is compiled once, whatever the policy. A formula that cannot be compiled becomes a callback into
Python with the same signature: slow, but the same engine runs it.
"""

from __future__ import annotations

import collections
import ctypes
import dis
import hashlib
import re
import types as python_types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable

from maillard.policies.numerics.elementwise import branch, where

__all__ = [
    "C_FORMULA",
    "SlowFormula",
    "adapt_formula",
    "address_of",
    "borrowed",
    "call",
    "compile_function",
    "numbers_of",
    "others_of",
    "parameters_of",
    "rare",
    "reason_of",
    "stand_in",
]

_F8 = types.float64
_FORMULA = _F8(types.CPointer(_F8), _F8, _F8, _F8, _F8, _F8)
C_FORMULA = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, *[ctypes.c_double] * 5)


class SlowFormula(UserWarning):
    """A formula that numba could not compile, and that runs as Python."""


def call(address: int, parameters: int, a: float, b: float, c: float, d: float, e: float) -> float:
    """The value of the formula at an address, given the address of its parameters and five numbers."""
    return float(C_FORMULA(int(address))(int(parameters), a, b, c, d, e))


@intrinsic  # type: ignore[untyped-decorator]
def _call_address(_typing: Any, address: Any, parameters: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        function = ir.FunctionType(double, [double.as_pointer(), *[double] * 5])
        target = builder.inttoptr(arguments[0], function.as_pointer())
        return builder.call(target, [builder.inttoptr(arguments[1], double.as_pointer()), *arguments[2:]])

    return _F8(types.int64, types.int64, _F8, _F8, _F8, _F8, _F8), generate


@overload(call)
def _overload_call(address, parameters, a, b, c, d, e):  # type: ignore[no-untyped-def]  # numba compares the two
    return lambda address, parameters, a, b, c, d, e: _call_address(address, parameters, a, b, c, d, e)  # noqa: PLW0108


def borrowed(array: Any) -> Any:
    """The same array (or generator) without its reference count, which costs more than a round if every call keeps it.

    Whoever lends it must keep it alive.
    """
    return array


@intrinsic  # type: ignore[untyped-decorator]
def _borrow(_typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lent = cgutils.create_struct_proxy(signature.return_type)(context, builder, value=arguments[0])
        lent.meminfo = ir.Constant(lent.meminfo.type, None)
        return lent._getvalue()

    return array(array), generate


@overload(borrowed)
def _overload_borrowed(array):  # type: ignore[no-untyped-def]
    return lambda array: _borrow(array)  # noqa: PLW0108  # numba wants a function


@overload(where)
def _overload_where(condition, yes, no):  # type: ignore[no-untyped-def]
    return lambda condition, yes, no: yes + 0.0 if condition else no + 0.0


@overload(branch)
def _overload_branch(condition, yes, no, x, y):  # type: ignore[no-untyped-def]
    return lambda condition, yes, no, x, y: yes(x, y) + 0.0 if condition else no(x, y) + 0.0


def compile_function(build: Callable[..., Any], parts: tuple[Any, ...], signature: Any) -> Any:
    """The closure that `build(*parts, fingerprint)` returns, compiled for one signature, without the GIL.

    What is returned is the compiled function itself: numba's dispatcher would look at the type of every argument again in
    every call, holding the GIL.
    """
    function = build(*parts, _fingerprint(build, *parts))
    _name(function, *(part for part in parts if isinstance(part, python_types.FunctionType)))
    for reached in _reached(function, set()):
        if reached is not function:
            _register(reached)
    dispatcher = numba.njit(signature, cache=True, nogil=True, error_model="numpy")(function)
    return dispatcher.overloads[signature.args].entry_point


def _name(function: Any, *parts: Any) -> None:
    """A name of its own, which is that of its cache file: two processes that write one file lose what one of them wrote."""
    words = [f"{part.__module__.rpartition('.')[2]}.{part.__qualname__}" for part in parts]
    function.__qualname__ = "-".join(words).replace("<", "").replace(">", "")


def rare(function: Any) -> Any:
    """Mark a function that few rounds call: compiled once, and not in every place that calls it."""
    function.rare = True
    return function


_FOREIGN = ("numba", "numpy")  # whose functions compiled code has in forms of its own
_REGISTERED: set[Any] = {call, borrowed, branch, where}  # which compiled code has in a form of its own


def jitable(function: Any) -> None:
    """Let compiled code call this function and all that it reaches."""
    for reached in _reached(function, set()):
        _register(reached)


def _register(function: Any) -> None:
    if function not in _REGISTERED:
        _REGISTERED.add(function)
        # What is called in every round is worth the time it takes to compile it in place.
        register_jitable(error_model="numpy", forceinline=not hasattr(function, "rare"))(function)


def _reached(function: Any, seen: set[Any]) -> Iterator[python_types.FunctionType]:
    """A function and every plain function that it names, in its globals or its closure, and so on down."""
    if not isinstance(function, python_types.FunctionType) or function in seen:
        return
    if (function.__module__ or "").split(".")[0] in _FOREIGN:
        return
    seen.add(function)
    yield function
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    named = [function.__globals__.get(name) for name in _names(function.__code__)]
    for value in (*named, *cells):
        for each in value if isinstance(value, tuple) else (value,):
            yield from _reached(each, seen)


def _names(code: python_types.CodeType) -> list[str]:
    inner = [each for each in code.co_consts if isinstance(each, python_types.CodeType)]
    return [*code.co_names, *(name for each in inner for name in _names(each))]


def _fingerprint(*functions: Any) -> int:
    digest = hashlib.sha256(numba.__version__.encode())
    for function in (compile_function, _register, _compile_formula):  # how things are compiled counts too
        _digest_code(digest, function.__code__)
    seen: set[Any] = set()
    for function in functions:
        for each in _reached(function, seen):
            digest.update(f"{each.__qualname__} {hasattr(each, 'rare')}".encode())
            _digest_code(digest, each.__code__)
            digest.update(repr((each.__defaults__, each.__kwdefaults__)).encode())
            for name in _names(each.__code__):
                value = each.__globals__.get(name)
                if isinstance(value, int | float | str | tuple) and not _holds_functions(value):
                    digest.update(f"{name}={value!r}".encode())
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


# How many numbers a compiled formula may use, and how many flags and functions besides.
_NUMBERS, _SLOTS = 12, 4


def parameters_of(policy: Any) -> np.ndarray:
    """A policy's numbers, as its compiled formulas read them."""
    numbers = [np.nan if value is None else float(value) for value in numbers_of(policy).values()]
    return np.array(numbers + [np.nan] * (_NUMBERS - len(numbers)))


def numbers_of(policy: Any) -> dict[str, Any]:
    """The numbers that a policy's formulas use, by their names."""
    values = {name: getattr(policy, name) for name, _, _ in policy.parameters()}
    return {"pad": 0.0} | {name: value for name, value in values.items() if not isinstance(value, str | bool)}


def others_of(policy: Any) -> dict[str, Any]:
    """What formulas use besides numbers, in a fixed count: flags, and the properties they are said to use."""
    flags = {name: getattr(policy, name) for name, _, _ in policy.parameters()}
    used = {name: value for name, value in flags.items() if isinstance(value, bool)}
    used |= {name: getattr(policy, name) for name in policy.derived}
    return used | {f"spare{place}": 0.0 for place in range(_SLOTS - len(used))}


def stand_in(fields: tuple[str, ...]) -> Any:
    """The class whose instances compiled formulas get as `self`; one for each set of fields, found by its name."""
    # With lengths: without them x, y_x would be called as x_y, x.
    name = "Parameters" + "".join(f"_{len(field)}{field}" for field in fields)
    if name not in globals():
        globals()[name] = collections.namedtuple(name, fields, module=__name__)
    return globals()[name]


def adapt_formula(
    formula: Any,
    cls: Any,
    count: int,
    arity: int,
    part: int,
    w: Any,
    x: Any,
    y: Any,
    z: Any,
    fingerprint: int,
) -> Any:
    """A formula as a function of its parameters, as `parameters_of` has them, and five numbers."""

    def adapted(parameters, a, b, c, d, e):  # type: ignore[no-untyped-def]
        if fingerprint == 0:  # it never is; but only what the code names becomes a part of the cache's key
            return np.nan
        p = parameters
        numbers = (p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11])[:count]
        policy = cls(*numbers, w, x, y, z)
        arguments = (a, b, c, d, e)[:arity]
        # np.where of numbers gives an array without dimensions, which adding 0 turns into a number.
        if part < 0:
            return np.add(formula(policy, *arguments), 0.0)
        return np.add(formula(policy, *arguments)[part], 0.0)

    return adapted


_COMPILED: dict[Any, Any] = {}


def address_of(policy: Any, name: str, arity: int, part: int = -1) -> tuple[int, Any]:
    """The address of a policy's formula (of one part of what it returns), and what must live as long as it is used."""
    formula, others = getattr(type(policy), name), others_of(policy)
    key = (formula, tuple(others.items()), tuple(numbers_of(policy)), part)
    if key not in _COMPILED:
        _COMPILED[key] = _compile_formula(formula, policy, others, arity, part)
    made = _COMPILED[key]
    if made is None:
        made = _callback(getattr(policy, name), arity, part)
        return ctypes.cast(made, ctypes.c_void_p).value or 0, made
    return made.address, made


def _compile_formula(formula: Any, policy: Any, others: dict[str, Any], arity: int, part: int) -> Any:
    numbers = numbers_of(policy)
    try:
        if len(numbers) > _NUMBERS or len(others) > _SLOTS:
            raise TypeError(f"more than {_NUMBERS} numbers or {_SLOTS} flags")  # noqa: TRY301
        if any(_may_raise(each) for each in _reached(formula, set())):
            raise TypeError("it may raise an error, which compiled formulas cannot")  # noqa: TRY301
        cls = stand_in((*numbers, *others))
        for each in (formula, *others.values()):
            jitable(each)
        values = tuple(others.values())
        fingerprint = _fingerprint(formula, *values)
        w, x, y, z = values
        adapted = adapt_formula(formula, cls, len(numbers), arity, part, w, x, y, z, fingerprint)
        _name(adapted, formula)
        # On disk only what is ours: a fingerprint cannot see everything that a formula of others may depend on.
        ours = all((each.__module__ or "").startswith("maillard.") for each in _reached(formula, set()))
        return numba.cfunc(_FORMULA, cache=ours, error_model="numpy")(adapted)
    except Exception as error:  # noqa: BLE001  # numba raises many types: a formula of a user may contain anything
        message = f"{formula.__qualname__} runs as Python, a hundred times slower: {reason_of(error)}"
        warnings.warn(message, SlowFormula, stacklevel=2)
        return None


# Beginnings of the lines in a numba error that say what cannot be compiled.
_REASON = re.compile(
    r"^\s*((?:Untyped|Unknown|Unsupported|Use of|The use of|Cannot|Invalid use|.*not supported).*)$",
    re.MULTILINE,
)


def reason_of(error: Exception) -> str:
    """Return the line of a numba error that says what cannot be compiled, or its last line."""
    message = str(error).strip()
    if found := _REASON.search(message):
        return found[1]
    return message.splitlines()[-1] if message else type(error).__name__


def _may_raise(function: Any) -> bool:
    return any(
        step.opname in ("RAISE_VARARGS", "LOAD_ASSERTION_ERROR") for step in dis.get_instructions(function)
    )


def _callback(formula: Any, arity: int, part: int) -> Any:
    def evaluate(_parameters: int, *arguments: float) -> float:
        try:
            with np.errstate(all="ignore"):
                value = formula(*(np.float64(each) for each in arguments[:arity]))
            return float(value if part < 0 else value[part])
        except BaseException as error:  # noqa: BLE001  # it cannot pass through compiled code: nan does, and is reported
            made.error = error
            return float("nan")

    made: Any = C_FORMULA(evaluate)
    made.error = None
    return made
