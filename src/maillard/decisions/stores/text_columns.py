"""Columns of texts as arrays: names, of which few are different, and any other texts.

They have the operations of NumPy arrays of objects that the readers of columns use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Bools, Ints
from maillard.decisions.stores.bulk_columns import OddRows


@dataclass(frozen=True, eq=False)
class Names:
    """Names by their codes."""

    codes: Ints
    "Index in `names`; -1 for NULL."
    names: Sequence[str]
    "All columns of a reader share this list, which may grow."

    @classmethod
    def of(cls, values: Any) -> Names:
        """Return names that may be given as objects."""
        if isinstance(values, cls):
            return values
        names: dict[str, int] = {}
        codes = [-1 if each is None else names.setdefault(each, len(names)) for each in values.tolist()]
        return cls(np.array(codes, np.int64), list(names))

    @property
    def size(self) -> int:
        """The number of values."""
        return self.codes.size

    @property
    def present(self) -> Bools:
        """Which values are not NULL."""
        found: Bools = self.codes >= 0
        return found

    def __getitem__(self, rows: Any) -> Names:
        return Names(self.codes[rows], self.names)

    def translated(self, codes: Mapping[str, int]) -> Ints:
        """Return the code of each name in another numbering; -1 for a name that has none."""
        found: Ints = np.array([*(codes.get(name, -1) for name in self.names), -1])[self.codes]
        return found

    def tolist(self) -> list[str | None]:
        """Return the values as a list."""
        return [None if code < 0 else self.names[code] for code in self.codes.tolist()]


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts, or bytes, one after the other."""

    starts: Ints
    ends: Ints
    present: Bools
    "Which values are not NULL."
    data: NDArray[np.uint8]
    text: bool = True
    "Whether the values are UTF-8."

    @classmethod
    def of_ends(cls, ends: Ints, data: NDArray[np.uint8], *, text: bool) -> Texts:
        """Return values that follow each other. A negative end, -1 - end, is that of NULL."""
        present = ends >= 0
        ends = np.where(present, ends, -1 - ends)
        starts = np.zeros_like(ends)
        starts[1:] = ends[:-1]
        return cls(starts, ends, present, data, text)

    @property
    def size(self) -> int:
        """The number of values."""
        return self.ends.size

    def __getitem__(self, rows: Any) -> Texts:
        return Texts(self.starts[rows], self.ends[rows], self.present[rows], self.data, self.text)

    def compact(self) -> Texts:
        """Return the same values, one after the other in `data`, which has no others."""
        starts, ends = self.starts, self.ends
        if ends.size and (starts[1:] == ends[:-1]).all():
            first = starts[0]
            return Texts(starts - first, ends - first, self.present, self.data[first : ends[-1]], self.text)
        lengths = ends - starts
        made = np.cumsum(lengths)
        places = np.arange(made[-1] if made.size else 0) + np.repeat(ends - made, lengths)
        return Texts(made - lengths, made, self.present, self.data[places], self.text)

    def check(self) -> None:
        """Raise OddRows unless every value is a text."""
        try:
            self.data.tobytes().decode()
        except UnicodeDecodeError as error:
            raise OddRows("a text cannot be decoded") from error
        # No value begins within a character.
        first = self.data[self.starts[self.ends > self.starts]]
        if ((first & 0xC0) == 0x80).any():
            raise OddRows("a text cannot be decoded")

    def tolist(self) -> list[Any]:
        """Return the values as a list."""
        content = self.data.tobytes()
        bounds = zip(self.starts.tolist(), self.ends.tolist(), self.present.tolist(), strict=True)
        if self.text:
            return [content[start:end].decode() if known else None for start, end, known in bounds]
        return [content[start:end] if known else None for start, end, known in bounds]


def joined(parts: Sequence[Any]) -> Any:
    """Return the values of several columns, one after the other."""
    first = parts[0]
    if isinstance(first, Names):
        return Names(np.concatenate([each.codes for each in parts]), first.names)
    if not isinstance(first, Texts):
        return np.concatenate(parts)
    compact = [each.compact() for each in parts]
    shifts = np.cumsum([0, *(each.data.size for each in compact[:-1])]).tolist()
    pairs = list(zip(compact, shifts, strict=True))
    return Texts(
        np.concatenate([each.starts + shift for each, shift in pairs]),
        np.concatenate([each.ends + shift for each, shift in pairs]),
        np.concatenate([each.present for each in compact]),
        np.concatenate([each.data for each in compact]),
        first.text,
    )
