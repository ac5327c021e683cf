"""Sums over a part of a log, which merge with those of other parts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self


@dataclass(frozen=True, eq=False)
class MergeableSums:
    """A base class: `+` adds each field, or merges it by the function in `merge_by`."""

    merge_by: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {}

    def __add__(self, other: Self) -> Self:
        both = {}
        for name in (each.name for each in fields(self)):
            merge = self.merge_by.get(name, operator.add)
            both[name] = merge(getattr(self, name), getattr(other, name))
        return type(self)(**both)


def merged(
    one: Mapping[Any, Any], other: Mapping[Any, Any], add: Callable[[Any, Any], Any] = operator.add
) -> dict[Any, Any]:
    """The union of two mappings, in which values of the same key are added."""
    both = dict(one)
    for key, value in other.items():
        both[key] = add(both[key], value) if key in both else value
    return both
