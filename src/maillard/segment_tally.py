"""Tallies of segments: one `Tally` for each group of contexts, such as visitors with the same device."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from maillard.errors import InvalidValue
from maillard.tally import Tally

Segment = str | tuple[str, ...]


class SegmentTally:
    """One tally per segment, all with the same arms. A segment is a category or a tuple of categories.

    >>> tally = SegmentTally.empty(arms=2)
    >>> tally.add(("phone", "de"), arm=1, reward=1.0)
    >>> tally["phone", "de"], tally["desktop", "fr"]
    (Tally(pulls=[0, 1], sums=[0.0, 1.0]), Tally(pulls=[0, 0], sums=[0.0, 0.0]))
    """

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable
    __slots__ = ("_tallies", "arms", "segments")

    arms: int
    "Number of arms (read-only)."
    segments: Mapping[Segment, Tally]
    "The tallies of the segments that have one (read-only)."

    def __init__(self, arms: int, tallies: Mapping[Segment, Tally]) -> None:
        self.arms = len(Tally.empty(arms))  # raises for an invalid number
        self._tallies: dict[Segment, Tally] = {}
        self.segments = MappingProxyType(self._tallies)
        for segment, tally in tallies.items():
            if not isinstance(tally, Tally) or len(tally) != arms:
                raise InvalidValue(f"tallies[{segment!r}]", tally, f"a Tally of {arms} arms")
            self._tallies[check_segment(segment)] = tally.copy()

    @classmethod
    def empty(cls, arms: int) -> SegmentTally:
        """Return a tally of `arms` arms in which no segment has any rewards."""
        return cls(arms, {})

    def __getitem__(self, segment: Segment) -> Tally:
        """Return the tally of a segment; it is empty for a segment without rewards."""
        found = self._tallies.get(check_segment(segment))
        return Tally.empty(self.arms) if found is None else found

    def add(self, segment: Segment, arm: int, reward: float) -> None:
        """Add one observed reward of an arm in a segment, in place."""
        tally = self[segment]
        tally.add(arm, reward)
        self._tallies[segment] = tally

    def __add__(self, other: SegmentTally) -> SegmentTally:
        if not isinstance(other, SegmentTally):
            return NotImplemented
        if self.arms != other.arms:
            raise InvalidValue("tally", other, f"a tally of {self.arms} arms, like the first")
        segments = [*self._tallies, *(each for each in other._tallies if each not in self._tallies)]
        return SegmentTally(self.arms, {each: self[each] + other[each] for each in segments})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SegmentTally):
            return NotImplemented
        return self.arms == other.arms and self._tallies == other._tallies

    def __repr__(self) -> str:
        return f"SegmentTally(arms={self.arms}, tallies={self._tallies!r})"


def check_segment(segment: object) -> Segment:
    """Return the segment if it is a category or a tuple of categories."""
    parts = segment if isinstance(segment, tuple) else (segment,)
    if not parts or not all(isinstance(part, str) for part in parts):
        raise InvalidValue("segment", segment, "a string or a tuple of strings, such as ('phone', 'de')")
    return segment  # type: ignore[return-value]  # checked above
