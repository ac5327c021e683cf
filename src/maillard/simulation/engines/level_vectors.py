"""The levels of scores, and changes of their limits, by vector instructions.

Arguments that are named after numbers in memory are the address of the first one.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LEVELS = 16
LOST = -600.0  # the logarithm below which a term counts as 0
LANES = 64  # arms that are compared at once
_SHORT, _WHOLE, _DOUBLE = ir.IntType(16), ir.IntType(64), ir.DoubleType()


_DOUBLES, _SHORTS = ir.VectorType(_DOUBLE, LEVELS), ir.VectorType(_SHORT, LEVELS)
_WHOLE_FROM = 1.5 * 2.0**52 + 1023.0  # with larger numbers, rounding leaves whole ones
_LOG_2_HIGH = 0.693147180369123816490  # with few bits, so that small multiples of it are exact
_LOG_2_LOW = 1.90821492927058770002e-10  # what is left of log(2)


def _load(builder: Any, address: Any, value_type: Any) -> Any:
    return builder.load(builder.inttoptr(address, value_type.as_pointer()), align=2)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=2)


def _constant(value: float) -> Any:
    """Return a vector of equal numbers."""
    return ir.Constant(_DOUBLES, [ir.Constant(_DOUBLE, value)] * LEVELS)


def _spread(builder: Any, value: Any, lanes: int) -> Any:
    """Return a vector of equal numbers."""
    place, undefined = ir.IntType(32), ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(place, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(place, lanes), [0] * lanes))


def _store_limits(builder: Any, tail: Any, address: Any) -> None:
    """Store probabilities as numbers of 16 bits."""
    scaled = builder.fmul(tail, _constant(65536.0))
    below = builder.fcmp_ordered("<", scaled, _constant(65535.0))
    scaled = builder.select(below, scaled, _constant(65535.0))
    above = builder.fcmp_ordered(">", scaled, _constant(0.0))
    scaled = builder.select(above, scaled, _constant(0.0))
    whole = builder.fptosi(scaled, ir.VectorType(ir.IntType(32), LEVELS))
    _store(builder, builder.trunc(whole, _SHORTS), address)


@intrinsic  # type: ignore[untyped-decorator]
def lanes_within(_typing: Any, numbers: Any, limits: Any) -> Any:
    """Return LANES bits: whether each number does not exceed its limit. Both have 16 bits."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        shorts = ir.VectorType(_SHORT, LANES)
        given, limit = (_load(builder, address, shorts) for address in arguments)
        return builder.bitcast(builder.icmp_unsigned("<=", given, limit), _WHOLE)

    return types.int64(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_lane(_typing: Any, lanes: Any) -> Any:
    """Return the place of the lowest bit of a number other than 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def other_lanes(_typing: Any, lanes: Any) -> Any:
    """Return a number without its lowest bit."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.and_(arguments[0], builder.sub(arguments[0], ir.Constant(_WHOLE, 1)))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def level_of(_typing: Any, number: Any, limits: Any) -> Any:
    """Return how many of LEVELS limits a number does not exceed. All have 16 bits."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        given = _spread(builder, _load(builder, arguments[0], _SHORT), LEVELS)
        limits = _load(builder, arguments[1], _SHORTS)
        bits = ir.IntType(LEVELS)
        within = builder.bitcast(builder.icmp_unsigned("<=", given, limits), bits)
        return builder.zext(builder.ctpop(within), _WHOLE)

    return types.int64(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def double_at(_typing: Any, table: Any) -> Any:
    """Return the double at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], _DOUBLE.as_pointer()))

    return types.float64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_double(_typing: Any, table: Any, number: Any) -> Any:
    """Store a double at an address."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _DOUBLE.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def short_at(_typing: Any, table: Any) -> Any:
    """Return the unsigned number of 16 bits at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.zext(_load(builder, arguments[0], _SHORT), _WHOLE)

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_short(_typing: Any, to: Any, table: Any) -> Any:
    """Copy a number of 16 bits from one address to another."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        given = _load(builder, arguments[1], _SHORT)
        builder.store(given, builder.inttoptr(arguments[0], _SHORT.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def set_limits(_typing: Any, tails: Any, limits: Any) -> Any:
    """Store LEVELS probabilities as limits of 16 bits."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _store_limits(builder, _load(builder, arguments[0], _DOUBLES), arguments[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def set_terms(_typing: Any, terms: Any, logs: Any, norm: Any, a: Any, b: Any) -> Any:
    """Store LEVELS terms x^a (1 - x)^b exp(norm), or 0 for those below exp(LOST).

    `logs` is the address of the logarithms of each x, which are followed by those of each 1 - x.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        norm, a, b = (_spread(builder, number, LEVELS) for number in arguments[2:])
        log, rest = (
            _load(builder, builder.add(arguments[1], ir.Constant(_WHOLE, 8 * place)), _DOUBLES)
            for place in (0, LEVELS)
        )
        x = builder.fadd(builder.fadd(norm, builder.fmul(a, log)), builder.fmul(b, rest))
        kept = builder.fcmp_ordered(">=", x, _constant(LOST))
        x = builder.select(kept, x, _constant(0.0))
        # The last bits of a large number are those of a whole one, and the exponent of its power of 2.
        shifted = builder.fadd(builder.fmul(x, _constant(1.0 / math.log(2.0))), _constant(_WHOLE_FROM))
        wholes = ir.VectorType(_WHOLE, LEVELS)
        exponent = builder.shl(
            builder.bitcast(shifted, wholes), ir.Constant(wholes, [ir.Constant(_WHOLE, 52)] * LEVELS)
        )
        whole = builder.fsub(shifted, _constant(_WHOLE_FROM))
        for part in (_LOG_2_HIGH, _LOG_2_LOW):
            x = builder.fsub(x, builder.fmul(whole, _constant(part)))
        total = _constant(1.0 / math.factorial(12))
        for power in range(11, -1, -1):
            total = builder.fadd(builder.fmul(total, x), _constant(1.0 / math.factorial(power)))
        term = builder.fmul(total, builder.bitcast(exponent, _DOUBLES))
        _store(builder, builder.select(kept, term, _constant(0.0)), arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64, types.float64, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def sum_tails(_typing: Any, tails: Any, terms: Any, inverses: Any, odds: Any, a: Any, b: Any) -> Any:
    """Store LEVELS probabilities that Beta(a, b) exceeds x, for a whole number a.

    They are those of fewer than a successes in a + b - 1 trials, summed from a - 1 on down.

    `terms` is the address of x^a (1 - x)^b / B(a, b), `inverses` of each 1 / x, `odds` of each (1 - x) / x.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        given, inverse, factor = (_load(builder, address, _DOUBLES) for address in arguments[1:4])
        a, b = arguments[4:]
        one, zero = ir.Constant(_DOUBLE, 1.0), ir.Constant(_DOUBLE, 0.0)
        first = builder.fmul(builder.fmul(given, inverse), _spread(builder, builder.fdiv(one, b), LEVELS))
        term, total, left = (
            cgutils.alloca_once_value(builder, value) for value in (first, first, builder.fsub(a, one))
        )
        test, body, end = (builder.append_basic_block(name) for name in ("test", "body", "end"))
        builder.branch(test)
        builder.position_at_end(test)
        least = builder.fmul(builder.load(total), _constant(1e-17))
        counts = builder.bitcast(builder.fcmp_ordered(">", builder.load(term), least), ir.IntType(LEVELS))
        some = builder.icmp_unsigned("!=", counts, ir.Constant(ir.IntType(LEVELS), 0))
        more = builder.fcmp_ordered(">", builder.load(left), zero)
        builder.cbranch(builder.and_(more, some), body, end)
        builder.position_at_end(body)
        successes = builder.load(left)
        ratio = builder.fdiv(successes, builder.fsub(builder.fadd(a, b), successes))
        following = builder.fmul(builder.load(term), builder.fmul(_spread(builder, ratio, LEVELS), factor))
        builder.store(following, term)
        builder.store(builder.fadd(builder.load(total), following), total)
        builder.store(builder.fsub(successes, one), left)
        builder.branch(test)
        builder.position_at_end(end)
        tail = builder.load(total)
        below = builder.fcmp_ordered("<", tail, _constant(1.0))
        _store(builder, builder.select(below, tail, _constant(1.0)), arguments[0])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4, types.float64, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def step_tails(
    _typing: Any, tails: Any, terms: Any, factors: Any, share: Any, growth: Any, limits: Any
) -> Any:
    """Add share * term to each tail, multiply each term by growth * factor, and store the new limits.

    `tails`, `terms`, `factors` and `limits` are addresses of LEVELS numbers; limits have 16 bits.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        term, factor = _load(builder, arguments[1], _DOUBLES), _load(builder, arguments[2], _DOUBLES)
        share, growth = (_spread(builder, number, LEVELS) for number in arguments[3:5])
        tail = builder.fadd(_load(builder, arguments[0], _DOUBLES), builder.fmul(share, term))
        _store(builder, tail, arguments[0])
        following = builder.fmul(builder.fmul(growth, factor), term)
        normal = builder.fcmp_ordered(">", following, _constant(1e-280))  # arithmetic with subnormals is slow
        _store(builder, builder.select(normal, following, _constant(0.0)), arguments[1])
        _store_limits(builder, tail, arguments[5])
        return context.get_dummy_value()

    whole_type, number_type = types.int64, types.float64
    arguments = (whole_type,) * 3 + (number_type,) * 2 + (whole_type,)
    return types.void(*arguments), generate
