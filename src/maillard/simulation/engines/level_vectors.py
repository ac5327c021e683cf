"""The highest levels of scores, and changes of their limits, by vector instructions."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LEVELS = 16
LANES = 32  # arms per step of a scan
RANK_BITS = 10


@intrinsic  # type: ignore[untyped-decorator]
def two_highest_levels(
    _typing: Any, limits: Any, uniforms: Any, stride: Any, arms: Any, apart: Any, apart_limits: Any
) -> Any:
    """Return the two highest levels, and how far the number of the first arm is below its limit.

    The arm is in the last ten bits of a level. An arm's level is the number of its limits that its uniform
    number does not exceed. Limits and numbers have 16 bits. `limits` is the address of rows of `stride`
    limits, one row for each of LEVELS levels, and falls with the level. The arm `apart` (or `arms`, for
    none) has the limits at the address `apart_limits`; see `two_largest_scores`.
    """
    short, whole, place = ir.IntType(16), ir.IntType(64), ir.IntType(32)
    shorts, single = ir.VectorType(short, LANES), ir.VectorType(short, LEVELS)

    def vector(values: list[int]) -> Any:
        return ir.Constant(shorts, [ir.Constant(short, value) for value in values])

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, numbers, length, count, kept, kept_table = arguments

        def load(address: Any, kind: Any, at: Any) -> Any:
            offset = builder.mul(at, ir.Constant(whole, 2))
            return builder.load(builder.inttoptr(builder.add(address, offset), kind.as_pointer()), align=2)

        def spread(value: Any, kind: Any) -> Any:
            undefined = ir.Constant(kind, ir.Undefined)
            one = builder.insert_element(undefined, value, ir.Constant(place, 0))
            zeros = ir.Constant(ir.VectorType(place, kind.count), [ir.Constant(place, 0)] * kind.count)
            return builder.shuffle_vector(one, undefined, zeros)

        def larger(one: Any, other: Any) -> tuple[Any, Any]:
            above = builder.icmp_unsigned(">", one, other)
            return builder.select(above, one, other), builder.select(above, other, one)

        top, second = (cgutils.alloca_once_value(builder, vector([0] * LANES)) for _ in range(2))
        names = cgutils.alloca_once_value(builder, vector(list(range(LANES))))
        kept_short = builder.trunc(kept, short)
        excluded, end = spread(kept_short, shorts), spread(builder.trunc(count, short), shorts)
        step = ir.Constant(whole, LANES)
        with cgutils.for_range_slice(builder, ir.Constant(whole, 0), count, step, inc=True) as (arm, _):
            uniform, each = load(numbers, shorts, arm), builder.load(names)
            levels = [vector([0] * LANES)] * 4
            for level in range(LEVELS):
                at = builder.add(builder.mul(length, ir.Constant(whole, level)), arm)
                within = builder.icmp_unsigned("<=", uniform, load(table, shorts, at))
                levels[level % 4] = builder.sub(levels[level % 4], builder.sext(within, shorts))
            total = builder.add(builder.add(levels[0], levels[1]), builder.add(levels[2], levels[3]))
            out = builder.or_(
                builder.icmp_unsigned("==", each, excluded), builder.icmp_unsigned(">=", each, end)
            )
            total = builder.select(out, vector([0] * LANES), total)
            found = builder.or_(builder.shl(total, vector([RANK_BITS] * LANES)), each)
            builder.store(builder.add(each, vector([LANES] * LANES)), names)
            most, rest = larger(found, builder.load(top))
            builder.store(most, top)
            builder.store(larger(rest, builder.load(second))[0], second)

        reduce = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(short, [shorts]), f"llvm.vector.reduce.umax.v{LANES}i16"
        )
        tops, seconds = builder.load(top), builder.load(second)
        first = builder.call(reduce, [tops])
        others = builder.select(builder.icmp_unsigned("==", tops, spread(first, shorts)), seconds, tops)
        next_one = builder.call(reduce, [others])
        # The arm that is apart.
        uniform = load(numbers, short, kept)
        within = builder.icmp_unsigned(
            "<=", spread(uniform, single), load(kept_table, single, ir.Constant(whole, 0))
        )
        mask = ir.IntType(LEVELS)
        population = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(mask, [mask]), f"llvm.ctpop.i{LEVELS}"
        )
        level = builder.call(population, [builder.bitcast(within, mask)])
        level = builder.select(builder.icmp_unsigned("<", kept, count), level, ir.Constant(mask, 0))
        last = builder.or_(builder.shl(builder.zext(level, short), ir.Constant(short, RANK_BITS)), kept_short)
        first, smaller = larger(last, first)
        next_one, _ = larger(smaller, next_one)
        # The limit that the first one's number does not exceed.
        first, next_one = builder.zext(first, whole), builder.zext(next_one, whole)
        arm = builder.and_(first, ir.Constant(whole, 2**RANK_BITS - 1))
        level = builder.lshr(first, ir.Constant(whole, RANK_BITS))
        below = builder.select(
            builder.icmp_unsigned("==", level, ir.Constant(whole, 0)),
            level,
            builder.sub(level, ir.Constant(whole, 1)),
        )
        is_kept = builder.icmp_unsigned("==", arm, kept)
        at = builder.select(is_kept, below, builder.add(builder.mul(length, below), arm))
        limit = load(builder.select(is_kept, kept_table, table), short, at)
        slack = builder.sub(builder.zext(limit, whole), builder.zext(load(numbers, short, arm), whole))
        return context.make_tuple(builder, signature.return_type, [first, next_one, slack])

    return types.UniTuple(types.int64, 3)(*[types.int64] * 6), generate


@intrinsic  # type: ignore[untyped-decorator]
def next_within(_typing: Any, numbers: Any, limits: Any, first: Any, arms: Any) -> Any:
    """Return the first arm from `first` on whose number does not exceed its limit, or `arms`."""
    short, whole, bits = ir.IntType(16), ir.IntType(64), ir.IntType(LANES)
    shorts = ir.VectorType(short, LANES)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        def load(address: Any, at: Any) -> Any:
            offset = builder.shl(at, ir.Constant(whole, 1))
            return builder.load(builder.inttoptr(builder.add(address, offset), shorts.as_pointer()), align=2)

        found = cgutils.alloca_once_value(builder, arguments[3])
        step = ir.Constant(whole, LANES)
        with cgutils.for_range_slice(builder, arguments[2], arguments[3], step, inc=True) as (arm, _):
            within = builder.icmp_unsigned("<=", load(arguments[0], arm), load(arguments[1], arm))
            mask = builder.bitcast(within, bits)
            with builder.if_then(builder.icmp_unsigned("!=", mask, ir.Constant(bits, 0))):
                at = builder.add(arm, builder.zext(builder.cttz(mask, ir.Constant(ir.IntType(1), 1)), whole))
                nearer = builder.icmp_signed("<", at, builder.load(found))
                builder.store(builder.select(nearer, at, builder.load(found)), found)
        return builder.load(found)

    return types.int64(*[types.int64] * 4), generate


@intrinsic  # type: ignore[untyped-decorator]
def double_at(_typing: Any, address: Any) -> Any:
    """Return the double at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.DoubleType().as_pointer()))

    return types.float64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def short_at(_typing: Any, address: Any) -> Any:
    """Return the unsigned number of 16 bits at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        found = builder.load(builder.inttoptr(arguments[0], ir.IntType(16).as_pointer()))
        return builder.zext(found, ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_limits(_typing: Any, limits: Any, stride: Any, arm: Any, kept: Any) -> Any:
    """Store the limits at the address `kept` in an arm's column of the rows for `two_highest_levels`."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        table, length, column, address = arguments
        whole, short = ir.IntType(64), ir.IntType(16).as_pointer()
        for level in range(LEVELS):
            row = builder.mul(length, ir.Constant(whole, level))
            to = builder.add(table, builder.shl(builder.add(row, column), ir.Constant(whole, 1)))
            given = builder.load(builder.inttoptr(builder.add(address, ir.Constant(whole, 2 * level)), short))
            builder.store(given, builder.inttoptr(to, short))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@intrinsic  # type: ignore[untyped-decorator]
def step_tails(_typing: Any, tails: Any, terms: Any, factors: Any, share: Any, growth: Any, kept: Any) -> Any:
    """Add share * term to each tail, multiply each term by growth * factor, and store the new limits.

    `tails`, `terms`, `factors` and `kept` are addresses of LEVELS numbers; limits have 16 bits.
    """
    double = ir.DoubleType()
    doubles, shorts = ir.VectorType(double, LEVELS), ir.VectorType(ir.IntType(16), LEVELS)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = ir.IntType(32)
        zeros = ir.Constant(ir.VectorType(place, LEVELS), [ir.Constant(place, 0)] * LEVELS)
        undefined = ir.Constant(doubles, ir.Undefined)

        def spread(value: Any) -> Any:
            return builder.shuffle_vector(
                builder.insert_element(undefined, value, ir.Constant(place, 0)), undefined, zeros
            )

        def constant(value: float) -> Any:
            return ir.Constant(doubles, [ir.Constant(double, value)] * LEVELS)

        tail_place, term_place, factor_place = (
            builder.inttoptr(address, doubles.as_pointer()) for address in arguments[:3]
        )
        term, factor = builder.load(term_place, align=8), builder.load(factor_place, align=8)
        tail = builder.fadd(builder.load(tail_place, align=8), builder.fmul(spread(arguments[3]), term))
        builder.store(tail, tail_place, align=8)
        following = builder.fmul(builder.fmul(spread(arguments[4]), factor), term)
        normal = builder.fcmp_ordered(">", following, constant(1e-280))  # arithmetic with subnormals is slow
        builder.store(builder.select(normal, following, constant(0.0)), term_place, align=8)
        scaled = builder.fmul(tail, constant(65536.0))
        scaled = builder.select(
            builder.fcmp_ordered("<", scaled, constant(65535.0)), scaled, constant(65535.0)
        )
        scaled = builder.select(builder.fcmp_ordered(">", scaled, constant(0.0)), scaled, constant(0.0))
        whole = builder.fptosi(scaled, ir.VectorType(place, LEVELS))
        builder.store(
            builder.trunc(whole, shorts), builder.inttoptr(arguments[5], shorts.as_pointer()), align=2
        )
        return context.get_dummy_value()

    whole_type, number_type = types.int64, types.float64
    arguments = (whole_type,) * 3 + (number_type,) * 2 + (whole_type,)
    return types.void(*arguments), generate
