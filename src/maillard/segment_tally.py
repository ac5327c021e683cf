"""Tallies of segments: one `Tally` for each group of contexts, such as visitors with the same device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from maillard.errors import InvalidValue
from maillard.short_reprs import fields_repr
from maillard.tally import Tally
from maillard.tally_display import TallyDisplay

Segment = str | tuple[str, ...]


class SegmentTally(TallyDisplay):
    """One tally per segment, all with the same arms. A segment is a category or a tuple of categories.

    >>> tally = SegmentTally.empty(arms=2)
    >>> tally.add(("phone", "de"), arm=1, reward=1.0)
    >>> tally["phone", "de"], tally["desktop", "fr"]
    (Tally(pulls=[0, 1], sums=[0.0, 1.0]), Tally(pulls=[0, 0], sums=[0.0, 0.0]))
    """

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable
    __slots__ = ("_owned", "_tallies", "arms", "segments")

    arms: int
    "Number of arms (read-only)."
    segments: Mapping[Segment, Tally]
    "The tallies of the segments that have one (read-only)."

    def __init__(self, arms: int, tallies: Mapping[Segment, Tally]) -> None:
        self.arms = len(Tally.empty(arms))  # raises for an invalid number
        self._tallies: dict[Segment, Tally] = {}
        # Copies share the tallies of segments. One is changed in place only if this object owns it.
        self._owned: set[Segment] = set()
        self.segments = MappingProxyType(self._tallies)
        for segment, tally in tallies.items():
            if not isinstance(tally, Tally) or len(tally) != arms:
                raise InvalidValue(f"tallies[{segment!r}]", tally, f"a Tally of {arms} arms")
            self._tallies[check_segment(segment)] = tally.copy()
            self._owned.add(segment)

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
        tally = self._changed(segment)
        tally.add(arm, reward)
        self._tallies[segment] = tally
        self._owned.add(segment)

    def revise(self, segment: Segment, arm: int, old: float, new: float) -> None:
        """Replace one observed reward of an arm in a segment, in place and exactly.

        >>> tally = SegmentTally.empty(arms=2)
        >>> tally.add("phone", arm=1, reward=0.25)
        >>> tally.revise("phone", arm=1, old=0.25, new=1.0)
        >>> tally["phone"].sums
        array([0., 1.])
        """
        tally = self._changed(segment)
        tally.revise(arm, old, new)
        self._tallies[segment] = tally
        self._owned.add(segment)

    def _changed(self, segment: Segment) -> Tally:
        """A tally of the segment that may be changed."""
        return self[segment] if segment in self._owned else self[segment].copy()

    def with_arms(self, count: int) -> SegmentTally:
        """Return a tally with `count` more arms, which have no rewards.

        >>> tally = SegmentTally.empty(arms=1)
        >>> tally.add("phone", arm=0, reward=1.0)
        >>> tally.with_arms(1)["phone"]
        Tally(pulls=[1, 0], sums=[1.0, 0.0])
        """
        new = Tally.empty(count)
        return SegmentTally(
            self.arms + count, {each: Tally.joined([tally, new]) for each, tally in self._tallies.items()}
        )

    def copy(self) -> SegmentTally:
        """Return an independent tally with the same content. Segments are copied when they change."""
        copied = SegmentTally.empty(self.arms)
        copied._tallies.update(self._tallies)
        self._owned = set()
        return copied

    __copy__ = copy

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
        fields = [("arms", self.arms), ("tallies", self._tallies)]
        return fields_repr("SegmentTally", fields, what="segments")

    def _columns(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {"segment": [], "arm": [], "pulls": [], "sum": [], "mean": []}
        for segment, tally in self._tallies.items():
            name = segment if isinstance(segment, str) else ", ".join(segment)
            for column, values in ({"segment": [name] * self.arms} | tally._columns()).items():
                found[column] += values
        return found

    def to_json(self) -> str:
        """Return JSON from which `from_json` restores an equal tally; equal tallies have equal JSON.

        >>> tally = SegmentTally.empty(arms=1)
        >>> tally.add(("phone", "de"), arm=0, reward=1.0)
        >>> tally.to_json()
        '{"arms": 1, "segments": [[["phone", "de"], {"pulls": [1], "sums": [1.0]}]]}'
        """
        rows = [
            [list(segment) if isinstance(segment, tuple) else segment, json.loads(tally.to_json())]
            for segment, tally in self._tallies.items()
        ]
        rows.sort(key=lambda row: json.dumps(row[0]))
        return json.dumps({"arms": self.arms, "segments": rows})

    @classmethod
    def from_json(cls, text: str | bytes) -> SegmentTally:
        """Return the tally that `to_json` wrote.

        >>> tally = SegmentTally.empty(arms=2)
        >>> tally.add("phone", arm=1, reward=1.0)
        >>> SegmentTally.from_json(tally.to_json()) == tally.copy()
        True
        """
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue("tally", text, f"valid JSON ({error})") from None
        if not isinstance(data, dict) or set(data) != {"arms", "segments"}:
            raise InvalidValue("tally", data, 'an object with "arms" and "segments"')
        tallies: dict[Segment, Tally] = {}
        for row in data["segments"] if isinstance(data["segments"], list) else [data["segments"]]:
            if not isinstance(row, list) or len(row) != 2:
                raise InvalidValue("segments", row, "a list of pairs: a segment and its tally")
            segment = check_segment(tuple(row[0]) if isinstance(row[0], list) else row[0])
            if segment in tallies:
                raise InvalidValue("segments", row[0], "each segment once")
            tallies[segment] = Tally.from_json(json.dumps(row[1]))
        return cls(data["arms"], tallies)


def check_segment(segment: object) -> Segment:
    """Return the segment if it is a category or a tuple of categories."""
    parts = segment if isinstance(segment, tuple) else (segment,)
    if not parts or not all(isinstance(part, str) for part in parts):
        raise InvalidValue("segment", segment, "a string or a tuple of strings, such as ('phone', 'de')")
    return segment  # type: ignore[return-value]  # checked above
