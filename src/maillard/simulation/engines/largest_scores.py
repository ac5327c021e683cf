"""The two largest Gaussian scores, by vector instructions that numba's own vectorizer does not find."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 8  # arms per step; LLVM splits the vectors on machines with shorter ones
MOST_ARMS = 1024
LOWEST = -1e300  # a location for which an arm never has the largest score


@intrinsic  # type: ignore[untyped-decorator]
def two_largest_scores(
    _typing: Any,
    locations: Any,
    spreads: Any,
    numbers: Any,
    arms: Any,
    apart: Any,
    location: Any,
    spread: Any,
) -> Any:
    """Return the two largest scores, location + spread * number, with the arm in their last ten bits.

    The first three arguments are addresses, of doubles and of numbers in single precision. `arms` is rounded
    up to a multiple of WIDTH. The arm `apart` has the location and the spread of the last two arguments: to
    load vectors right after one of their elements was stored takes long, so the caller stores the parameters
    of the arm that changed last with a delay, and its location in the table is LOWEST.
    """
    double, whole, place = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
    doubles, wholes, singles = (ir.VectorType(each, WIDTH) for each in (double, whole, ir.FloatType()))
    mask, fast = ~(MOST_ARMS - 1), ("nnan", "nsz", "contract")

    def vector(kind: Any, values: list[float]) -> Any:
        return ir.Constant(kind, [ir.Constant(kind.element, value) for value in values])

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        addresses, (count, kept, kept_location, kept_spread) = arguments[:3], arguments[3:]

        def load(address: Any, kind: Any, size: int, arm: Any) -> Any:
            offset = builder.mul(arm, ir.Constant(whole, size))
            return builder.load(builder.inttoptr(builder.add(address, offset), kind.as_pointer()), align=size)

        def larger(one: Any, other: Any) -> tuple[Any, Any]:
            """Return the larger and the smaller one, element by element."""
            above = builder.fcmp_ordered(">", one, other, flags=("nnan",))
            return builder.select(above, one, other), builder.select(above, other, one)

        def score(mean: Any, deviation: Any, number: Any, arm: Any, keep: Any) -> Any:
            product = builder.fmul(deviation, builder.fpext(number, mean.type), flags=fast)
            bits = builder.bitcast(builder.fadd(mean, product, flags=fast), arm.type)
            return builder.bitcast(builder.or_(builder.and_(bits, keep), arm), mean.type)

        lowest = vector(doubles, [LOWEST] * WIDTH)
        top, second = (cgutils.alloca_once_value(builder, lowest) for _ in range(2))
        names = cgutils.alloca_once_value(builder, vector(wholes, list(range(WIDTH))))
        step = ir.Constant(whole, WIDTH)
        with cgutils.for_range_slice(builder, ir.Constant(whole, 0), count, step, inc=True) as (arm, _):
            mean, deviation = (load(address, doubles, 8, arm) for address in addresses[:2])
            number, each = load(addresses[2], singles, 4, arm), builder.load(names)
            found = score(mean, deviation, number, each, vector(wholes, [mask] * WIDTH))
            builder.store(builder.add(each, vector(wholes, [WIDTH] * WIDTH)), names)
            most, rest = larger(found, builder.load(top))
            builder.store(most, top)
            builder.store(larger(rest, builder.load(second))[0], second)

        name = f"llvm.vector.reduce.fmax.v{WIDTH}f64"
        reduce = cgutils.get_or_insert_function(builder.module, ir.FunctionType(double, [doubles]), name)
        tops, seconds = builder.load(top), builder.load(second)
        first = builder.call(reduce, [tops], fastmath=fast[:2])
        undefined, zeros = (
            ir.Constant(doubles, ir.Undefined),
            vector(ir.VectorType(place, WIDTH), [0] * WIDTH),
        )
        one = builder.insert_element(undefined, first, ir.Constant(place, 0))
        everywhere = builder.shuffle_vector(one, undefined, zeros)
        others = builder.select(builder.fcmp_ordered("==", tops, everywhere), seconds, tops)
        next_one = builder.call(reduce, [others], fastmath=fast[:2])
        number = load(addresses[2], ir.FloatType(), 4, kept)
        last = score(kept_location, kept_spread, number, kept, ir.Constant(whole, mask))
        first, smaller = larger(last, first)
        next_one, _ = larger(smaller, next_one)
        return context.make_tuple(builder, signature.return_type, [first, next_one])

    whole_type, number_type = types.int64, types.float64
    result = types.UniTuple(number_type, 2)
    arguments = (whole_type,) * 5 + (number_type,) * 2
    return result(*arguments), generate
