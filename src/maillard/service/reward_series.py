"""Rewards over time in a bounded number of buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from maillard.decisions.timestamps import from_microseconds

_MAX_BUCKETS, _MAX_CELLS = 240, 24_000  # a cell is one arm in one bucket


@dataclass
class RewardSeries:
    """The rewards of each arm in time buckets. The buckets double in width when there are too many.

    A revision changes the sum of the bucket with the latest reward of its arm. So the sum over all buckets is
    correct, but the mean of one bucket may lie outside the range of rewards if many of them were revised.

    >>> series = RewardSeries()
    >>> for second in range(300): series.add(second * 1_000_000, "red", second % 2)
    >>> series.width // 1_000_000, len(list(series.points()))
    (2, 150)
    """

    width: int = 1_000_000
    "The width of a bucket in microseconds."
    buckets: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    "For each bucket and arm, the number of rewards and their sum."
    latest: dict[str, int] = field(default_factory=dict)
    "For each arm, the bucket of its latest reward."

    def add(self, at: int, arm: str, value: float) -> None:
        """Add a reward that was applied at this time, in microseconds since 1970."""
        bucket = self.latest[arm] = at // self.width
        cell = self.buckets.setdefault(bucket, {}).get(arm)
        if cell is not None:
            cell[0] += 1
            cell[1] += value
            return
        self.buckets[bucket][arm] = [1, value]
        while len(self.buckets) > 1 and self._overflows():
            self._double()

    def revise(self, arm: str, difference: float, at: int | None = None) -> None:
        """Change one of an arm's rewards by this difference: the one that was added at a time, if given."""
        bucket = self.latest.get(arm) if at is None else at // self.width
        cell = self.buckets.get(bucket, {}).get(arm) if bucket is not None else None
        if cell is not None:
            cell[1] += difference

    def _overflows(self) -> bool:
        cells = sum(map(len, self.buckets.values()))
        return cells > _MAX_CELLS or max(self.buckets) - min(self.buckets) >= _MAX_BUCKETS

    def _double(self) -> None:
        narrow, self.buckets, self.width = self.buckets, {}, 2 * self.width
        for bucket, arms in narrow.items():
            wide = self.buckets.setdefault(bucket // 2, {})
            for arm, (count, total) in arms.items():
                cell = wide.setdefault(arm, [0, 0.0])
                cell[0] += count
                cell[1] += total
        self.latest = {arm: bucket // 2 for arm, bucket in self.latest.items()}

    def points(self, until: int | None = None) -> Iterator[dict[str, Any]]:
        """All buckets from the first to the last, empty ones included; only those that end before `until`."""
        last = max(self.buckets, default=0) if until is None else until // self.width - 1
        for bucket in range(min(self.buckets), min(max(self.buckets), last) + 1) if self.buckets else ():
            arms = self.buckets.get(bucket, {})
            count = int(sum(cell[0] for cell in arms.values()))
            yield {
                "at": from_microseconds(bucket * self.width),
                "rewards": count,
                "mean": sum(cell[1] for cell in arms.values()) / count if count else None,
                "arms": {
                    arm: {"rewards": int(count), "mean": total / count}
                    for arm, (count, total) in arms.items()
                },
            }
