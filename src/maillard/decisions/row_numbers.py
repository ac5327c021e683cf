"""The numbers of the rows of a foreign table. A number that is skipped shows that a row was removed.

Only the steps from one row's number to the next are counted, so that counts of batches can be added in any
order. Numbers that rise by 1 in most rows are row numbers. Others are not: hashes, numbers of visits, every
fourth number of a table that was split. Rows that were swapped have steps below 0, which cancel the gaps that
they leave.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Ints
from maillard.decisions.stores.contract import Row

_MIN_RISES = 0.25  # of all steps; if there are fewer, a row occurs more than four times on average


class NumberedRow(Row):
    """A row of a table whose rows are numbered or have contexts. It is a tuple of the same three values."""

    step: int | None = None
    "How much its number exceeds that of the row before; None if rows are not numbered."
    context: str | None = None
    "The context of the decision, as JSON text."


def steps_of(numbers: Ints, last: int | None) -> Ints:
    """Return how much each number exceeds that of the row before; 1 for the first row of a table.

    `last` is the number of the row before the first one.

    >>> steps_of(np.array([4, 5, 8, 8]), 3).tolist()
    [1, 1, 3, 0]
    """
    steps = np.ones_like(numbers)
    steps[1:] = numbers[1:] - numbers[:-1]  # hashes may overflow, but no other difference becomes 0 or 1
    if last is not None:
        steps[:1] = numbers[:1] - np.array([last])
    return steps


@dataclass(frozen=True)
class RowNumbers:
    """Counts of steps; those of several batches can be added."""

    rows: int = 0
    consecutive: int = 0
    "Steps of 1."
    equal: int = 0
    "Steps of 0."
    falls: int = 0
    skipped: float = 0.0
    "The sum of step - 1 over all steps other than 0."
    copies: int = 0
    "Rows with the number and the content of the row before."

    @classmethod
    def of(cls, steps: Ints, *content: NDArray[Any]) -> RowNumbers:
        """Count the steps of some rows. `content` are arrays that are the same for a row and its copy."""
        equal = steps == 0
        copies = equal[1:]
        for each in content if equal.any() else ():
            copies = copies & (each[1:] == each[:-1])
        counts = (int(np.count_nonzero(each)) for each in (steps == 1, equal, steps < 0, copies))
        consecutive, same, falls, copied = counts
        skipped = float(steps.sum(dtype=np.float64)) - (steps.size - same)
        return cls(steps.size, consecutive, same, falls, skipped, copied)

    def __add__(self, other: RowNumbers) -> RowNumbers:
        return RowNumbers(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    @property
    def distinct(self) -> int:
        """How many numbers there are, if none occurs again later."""
        return self.rows - self.equal

    @property
    def _number_rows(self) -> bool:
        return self.consecutive > 0.5 * self.distinct

    @property
    def occur_twice(self) -> bool:
        """Whether some rows are copies of the row before."""
        rising = not self.falls and self.consecutive >= _MIN_RISES * self.rows
        return self.copies > 0 and rising and self._number_rows

    @property
    def missing(self) -> int:
        """How many numbers are skipped; 0 if these are no row numbers, or most of them are skipped."""
        dense = self._number_rows and 0 < self.skipped < self.distinct
        return int(self.skipped) if dense else 0

    @property
    def warning(self) -> str:
        """That rows are missing, in words; empty if none is."""
        if not self.missing:
            return ""
        return (
            f"the row numbers skip {self.missing:,} of {self.missing + self.distinct:,}: rows are missing. "
            "If they were removed because of their reward, every estimate is biased"
        )
