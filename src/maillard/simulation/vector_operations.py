"""Operations on 32 neighbouring numbers of a table, as a few vector instructions.

LLVM does not vectorize loops over so few numbers. The functions below are the same in Python and in compiled
code. The columns of a table follow each other in memory, and a position counts its numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from maillard.simulation.inner_functions import lowers

LENGTH = 32
_WHOLE, _DOUBLE = ir.IntType(64), ir.DoubleType()
_VECTOR = ir.VectorType(_DOUBLE, LENGTH)


def memory_of(w: Any) -> Any:
    """Return the numbers of a table in the order of its memory."""
    return w.T.reshape(-1)


def count_up_to(w: Any, start: int, limit: float) -> int:
    """Return how many of the 32 numbers from `start` on are at most the limit."""
    return int(np.count_nonzero(memory_of(w)[start : start + LENGTH] <= limit))


def add_after(w: Any, start: int, place: int, change: float) -> None:
    """Add a number to those of the 32 numbers from `start` on that come after a place."""
    memory_of(w)[start + place + 1 : start + LENGTH] += change


def largest(w: Any, start: int, count: int) -> float:
    """Return the largest of the numbers from `start` on; their count is rounded up to a multiple of 32."""
    return float(memory_of(w)[start : start - (-count // LENGTH) * LENGTH].max())


def number_at(w: Any, position: int) -> float:
    """Return the number at a position."""
    return float(memory_of(w)[position])


def set_number(w: Any, position: int, number: float) -> None:
    """Replace the number at a position."""
    memory_of(w)[position] = number


def _address(context: Any, builder: Any, table_type: Any, table: Any, position: Any) -> Any:
    """Return the address of a number of a table of this type."""
    return builder.gep(
        cgutils.create_struct_proxy(table_type)(context, builder, value=table).data, [position]
    )


def _vector_at(context: Any, builder: Any, table_type: Any, table: Any, start: Any) -> Any:
    """Return the address of 32 numbers of a table of this type."""
    return builder.bitcast(_address(context, builder, table_type, table, start), _VECTOR.as_pointer())


def _filled(builder: Any, number: Any) -> Any:
    """Return a vector of equal numbers."""
    none = ir.Constant(ir.VectorType(number.type, LENGTH), ir.Undefined)
    one = builder.insert_element(none, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, none, _places([0] * LENGTH))


def _places(places: list[int]) -> Any:
    """Return places as `shuffle_vector` takes them."""
    return ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)


def _larger(builder: Any, some: Any, others: Any) -> Any:
    """Return the larger numbers of two vectors."""
    return builder.select(builder.fcmp_ordered(">", some, others), some, others)


@lowers(number_at)
def _number_at(_typing: Any, w: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, w, *arguments))

    return types.float64(w, types.int64), generate


@lowers(set_number)
def _set_number(_typing: Any, w: Any, position: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _address(context, builder, w, *arguments[:2]))
        return context.get_dummy_value()

    return types.void(w, types.int64, types.float64), generate


@lowers(count_up_to)
def _count_up_to(_typing: Any, w: Any, start: Any, limit: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        numbers = builder.load(_vector_at(context, builder, w, *arguments[:2]), align=8)
        few = builder.fcmp_ordered("<=", numbers, _filled(builder, arguments[2]))
        return builder.zext(builder.ctpop(builder.bitcast(few, ir.IntType(LENGTH))), _WHOLE)

    return types.int64(w, types.int64, types.float64), generate


@lowers(add_after)
def _add_after(_typing: Any, w: Any, start: Any, place: Any, change: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address = _vector_at(context, builder, w, *arguments[:2])
        places = ir.Constant(ir.VectorType(_WHOLE, LENGTH), list(range(LENGTH)))
        after = builder.icmp_signed(">", places, _filled(builder, arguments[2]))
        changes = builder.select(after, _filled(builder, arguments[3]), ir.Constant(_VECTOR, [0.0] * LENGTH))
        builder.store(builder.fadd(builder.load(address, align=8), changes), address, align=8)
        return context.get_dummy_value()

    return types.void(w, types.int64, types.int64, types.float64), generate


@lowers(largest)
def _largest(_typing: Any, w: Any, start: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        table, start, numbers = arguments
        length = ir.Constant(_WHOLE, LENGTH)
        most = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [-np.inf] * LENGTH))
        blocks = builder.sdiv(builder.add(numbers, ir.Constant(_WHOLE, LENGTH - 1)), length)
        with cgutils.for_range(builder, blocks) as loop:
            address = _vector_at(
                context, builder, w, table, builder.add(start, builder.mul(loop.index, length))
            )
            builder.store(_larger(builder, builder.load(address, align=8), builder.load(most)), most)
        left, half = builder.load(most), LENGTH
        while half > 1:
            half //= 2
            first = builder.shuffle_vector(left, left, _places(list(range(half))))
            second = builder.shuffle_vector(left, left, _places(list(range(half, 2 * half))))
            left = _larger(builder, first, second)
        return builder.extract_element(left, ir.Constant(ir.IntType(32), 0))

    return types.float64(w, types.int64, types.int64), generate
