"""The exact sums of one linear model, in integers.

Sums of features are 64-bit integers on the feature grid. Sums with rewards are Python integers: every float
is a whole multiple of some power of two, so a common power, the `scale`, makes all of them whole. It grows
with the finest reward, so that the integers stay short for rewards such as 0, 1 or 0.25.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from maillard.array_types import Ints
from maillard.errors import InvalidValue
from maillard.feature_grid import STEPS

# A feature of 1, such as an intercept, adds 2**32 to its entry of `gram` with each reward. 2**31 rewards
# would exceed the range of 64-bit integers by one.
MAX_COUNT = 2**31 - 1
_GRID_BITS = STEPS.bit_length() - 1
_LARGE_BITS = 990  # MAX_COUNT rewards below 2**990 cannot exceed the range of floats
_FIELDS = {"count", "gram", "feature_sums", "scale", "products", "sum", "square"}
_FINEST = 1074  # every float is a whole multiple of 2**-1074

_WITHIN_RANGE = "that keeps the sums within the range of floats"
_ADDED = "a reward that was added with this row"

# The scale, the products, the sum and the square.
_Rewards = tuple[int, list[int], int, int]


class LinearSums:
    """The exact sums of one linear model.

    `gram` has the unit 2**-32 and `feature_sums` 2**-16. `products` has the unit 2**-(scale + 16), `sum`
    2**-scale and `square` 2**-(2 scale).
    """

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable
    __slots__ = ("count", "feature_sums", "gram", "products", "scale", "square", "sum")

    def __init__(self, count: int, gram: Ints, feature_sums: Ints, rewards: _Rewards) -> None:
        self.count, self.gram, self.feature_sums = count, gram, feature_sums
        self.scale, self.products, self.sum, self.square = rewards

    @classmethod
    def zero(cls, features: int) -> LinearSums:
        """Return the sums of no rewards."""
        gram = np.zeros((features, features), np.int64)
        return cls(0, gram, np.zeros(features, np.int64), (0, [0] * features, 0, 0))

    def copy(self) -> LinearSums:
        """Return an independent copy."""
        return LinearSums(self.count, self.gram.copy(), self.feature_sums.copy(), self._rewards())

    def spread(self, positions: Ints, features: int) -> LinearSums:
        """Return the sums with their columns at these positions among more columns, all others 0."""
        gram, feature_sums = np.zeros((features, features), np.int64), np.zeros(features, np.int64)
        gram[np.ix_(positions, positions)], feature_sums[positions] = self.gram, self.feature_sums
        products = [0] * features
        for position, product in zip(positions.tolist(), self.products, strict=True):
            products[position] = product
        return LinearSums(self.count, gram, feature_sums, (self.scale, products, self.sum, self.square))

    def add(self, units: Ints, reward: float) -> None:
        """Add a reward with its row, given in grid units."""
        if self.count >= MAX_COUNT:
            raise InvalidValue("count", self.count + 1, f"at most {MAX_COUNT} rewards per model")
        before = self._rewards()
        self._weigh(units, reward, 1)
        if not self._fits():
            self._restore(before)
            raise InvalidValue("reward", reward, f"a reward {_WITHIN_RANGE}")
        self.gram += np.multiply.outer(units, units)
        self.feature_sums += units
        self.count += 1

    def revise(self, units: Ints, old: float, new: float) -> None:
        """Replace a reward that was added with this row."""
        before = self._rewards()
        self._weigh(units, old, -1)
        self._weigh(units, new, 1)
        if not self.count or not self._is_possible():
            self._restore(before)
            raise InvalidValue("old", old, _ADDED)
        if not self._fits():
            self._restore(before)
            raise InvalidValue("new", new, f"a reward {_WITHIN_RANGE}")

    def remove(self, units: Ints, reward: float, count: int) -> None:
        """Remove `count` equal rewards that were added with this row."""
        if count > self.count:
            raise InvalidValue("count", count, f"at most {self.count}, the number of observed rewards")
        before = self._rewards()
        self._weigh(units, reward, -count)
        self._add_rows(units, -count)
        possible = self._is_possible()
        if not possible or not self._fits():
            self._add_rows(units, count)
            self._restore(before)
            allowed = f"a reward {_WITHIN_RANGE}" if possible else _ADDED
            raise InvalidValue("reward", reward, allowed)

    def _add_rows(self, units: Ints, times: int) -> None:
        self.gram += np.multiply.outer(units, units) * times
        self.feature_sums += units * times
        self.count += times

    def _weigh(self, units: Ints, reward: float, times: int) -> None:
        numerator, denominator = reward.as_integer_ratio()
        bits = denominator.bit_length() - 1
        if bits > self.scale:
            self.products, self.sum, self.square = self._at(bits)
            self.scale = bits
        value = numerator << (self.scale - bits)
        weight = value * times
        self.products = [
            product + unit * weight for product, unit in zip(self.products, units.tolist(), strict=True)
        ]
        self.sum += weight
        self.square += value * weight

    def _at(self, scale: int) -> tuple[list[int], int, int]:
        finer = scale - self.scale
        return [product << finer for product in self.products], self.sum << finer, self.square << 2 * finer

    def _rewards(self) -> _Rewards:
        # `products` is replaced as a whole, never changed in place, so it can be shared.
        return self.scale, self.products, self.sum, self.square

    def _restore(self, before: _Rewards) -> None:
        self.scale, self.products, self.sum, self.square = before

    def _fits(self) -> bool:
        """Whether the sums are within the range of floats."""
        if self.square.bit_length() - 2 * self.scale <= 2 * _LARGE_BITS:
            return True
        try:
            self.rounded_sum()
            self._rounded_products()
        except OverflowError:
            return False
        return True

    def plus(self, other: LinearSums) -> LinearSums:
        """Return the sums of both models together. The result may be one of them."""
        if not self.count or not other.count:
            return other if not self.count else self
        count = self.count + other.count
        if count > MAX_COUNT:
            raise InvalidValue("count", count, f"at most {MAX_COUNT} rewards per model")
        scale = max(self.scale, other.scale)
        (mine, sum_, square), (theirs, sum2, square2) = self._at(scale), other._at(scale)
        products = [one + two for one, two in zip(mine, theirs, strict=True)]
        gram, rows = self.gram + other.gram, self.feature_sums + other.feature_sums
        merged = LinearSums(count, gram, rows, (scale, products, sum_ + sum2, square + square2))
        if not merged._fits():
            raise InvalidValue("tally", "rewards that add up to more", f"a tally {_WITHIN_RANGE}")
        return merged

    def _rounded_products(self) -> list[float]:
        one = 1 << (self.scale + _GRID_BITS)
        # The quotient of two integers is correctly rounded.
        return [product / one for product in self.products]

    def rounded_sum(self) -> float:
        """The sum of the rewards, rounded once."""
        return self.sum / (1 << self.scale)

    def rounded(self) -> dict[str, Any]:
        """All sums in units of 1 as floats, each rounded once."""
        gram = self.gram.astype(np.float64) * 2.0 ** (-2 * _GRID_BITS)
        feature_sums = self.feature_sums / STEPS
        products = np.array(self._rounded_products())
        for array in (gram, feature_sums, products):
            array.flags.writeable = False
        try:
            square = self.square / (1 << 2 * self.scale)
        except OverflowError:
            square = math.inf
        return {
            "count": self.count,
            "gram": gram,
            "feature_sums": feature_sums,
            "products": products,
            "sum": self.rounded_sum(),
            "square": square,
        }

    def _coarsest(self) -> tuple[int, list[int], int, int]:
        """The sums with rewards in the coarsest scale that makes them whole."""
        drop = min(
            self.scale,
            _trailing_zeros(reduce(or_, self.products)),
            _trailing_zeros(self.sum),
            _trailing_zeros(self.square) // 2,
        )
        products = [product >> drop for product in self.products]
        return self.scale - drop, products, self.sum >> drop, self.square >> 2 * drop

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinearSums):
            return NotImplemented
        return self is other or (
            self.count == other.count
            and np.array_equal(self.feature_sums, other.feature_sums)
            and np.array_equal(self.gram, other.gram)
            and self._coarsest() == other._coarsest()
        )

    def _is_possible(self) -> bool:
        """Whether the sums satisfy the inequalities that all sums of this many rows and rewards satisfy."""
        n, square, diagonal = self.count, self.square, self.gram.diagonal().tolist()
        unit = 1 << 2 * _GRID_BITS
        return (
            int(np.abs(self.gram).max()) <= n * unit
            and square >= 0
            and self.sum**2 <= n * square
            and all(
                each >= 0 and row**2 <= n * each
                for each, row in zip(diagonal, self.feature_sums.tolist(), strict=True)
            )
            and all(b**2 <= each * square for each, b in zip(diagonal, self.products, strict=True))
        )

    def to_data(self) -> dict[str, Any]:
        """Return plain data; equal sums have equal data."""
        scale, products, sum_, square = self._coarsest()
        return {
            "count": self.count,
            "gram": self.gram[np.triu_indices(len(self.gram))].tolist(),
            "feature_sums": self.feature_sums.tolist(),
            "scale": scale,
            "products": list(map(hex, products)),
            "sum": hex(sum_),
            "square": hex(square),
        }

    @classmethod
    def from_data(cls, data: object, features: int) -> LinearSums:
        """Return the sums that `to_data` returned, and refuse sums that no rewards can have."""
        if not isinstance(data, dict) or set(data) != _FIELDS:
            raise InvalidValue("model", data, f"an object with {', '.join(sorted(_FIELDS))}")
        count, scale = _integers("count", [data["count"]], 1, MAX_COUNT)[0], data["scale"]
        scale = _integers("scale", [scale], 1, _FINEST)[0]
        if count < 0 or scale < 0:
            raise InvalidValue("model", data, "a count and a scale >= 0")
        triangle = _integers("gram", data["gram"], features * (features + 1) // 2, 2**63 - 1)
        gram = np.zeros((features, features), np.int64)
        gram[np.triu_indices(features)] = triangle
        gram = np.triu(gram) + np.triu(gram, 1).T
        rows = np.array(_integers("feature_sums", data["feature_sums"], features, 2**63 - 1), np.int64)
        products = _long_integers("products", data["products"], features)
        sums = _long_integers("sum", [data["sum"]], 1)[0], _long_integers("square", [data["square"]], 1)[0]
        model = cls(count, gram, rows, (scale, products, *sums))
        if not model._is_possible() or not model._fits():
            raise InvalidValue("model", data, "sums that rewards and rows on the feature grid can have")
        return model


def _trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1 if value else 2 * _FINEST


def _integers(field: str, values: object, length: int, limit: int) -> list[int]:
    if not isinstance(values, list) or len(values) != length:
        raise InvalidValue(field, values, f"a list of {length} whole numbers")
    for value in values:
        if type(value) is not int or abs(value) > limit:
            raise InvalidValue(field, value, f"whole numbers, at most {limit}")
    return values


def _long_integers(field: str, values: object, length: int) -> list[int]:
    if not isinstance(values, list) or len(values) != length:
        raise InvalidValue(field, values, f"a list of {length} hexadecimal numbers")
    try:
        return [int(value, 16) for value in values]
    except (TypeError, ValueError):
        raise InvalidValue(field, values, "hexadecimal numbers such as '0x1f'") from None
