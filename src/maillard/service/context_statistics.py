"""SegmentCounts of decisions and rewards by the values of their contexts, in bounded memory.

A caller can send any context, so keys, values and arms are limited: the first ones that appear get counts of
their own, and decisions with others are pooled. A value that has counts of its own has had them since it
first appeared, so its counts are complete.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from maillard.decisions.contexts import value_text
from maillard.decisions.decision import LoggedContext
from maillard.decisions.experiment_configuration import Configuration
from maillard.decisions.linear_contexts import LinearContexts
from maillard.decisions.segment_contexts import SegmentContexts
from maillard.errors import MaillardError
from maillard.features.feature_types import Category, FeatureType, Flag, Hashed, Number

MAX_KEYS, MAX_VALUES, MAX_ARMS = 20, 50, 20
MAX_SHOWN = 12  # values that a response lists
_MAX_LENGTH = 100  # characters of a key or a value
_PARTS = 5  # into which the declared range of a number is divided

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Declaration(NamedTuple):
    """What an experiment says about its contexts."""

    keys: tuple[str, ...] = ()
    types: Mapping[str, FeatureType] = {}
    "The types of features; empty without features."
    feature_version: int = 0
    shared: bool = False
    "Whether arms have features, too. These are not part of the context."

    @classmethod
    def of(cls, configuration: Configuration) -> Declaration:
        """The declaration of an experiment's configuration."""
        rule = configuration.context
        if isinstance(rule, SegmentContexts):
            return cls(rule.keys)
        if isinstance(rule, LinearContexts):
            of_arms = {name for attributes in rule.arms.values() for name in attributes}
            types = {name: each for name, each in rule.features.types.items() if name not in of_arms}
            return cls(tuple(types), types, configuration.feature_version, rule.model == "shared")
        return cls()


@dataclass
class SegmentCounts:
    """Decisions, their rewards, and the sum of these, in total and for each arm (None: all other arms)."""

    arms: dict[str | None, list[float]] = field(default_factory=dict)

    def add(self, arm: str | None, decisions: int, rewards: int, total: float) -> None:
        """Add to the counts of an arm."""
        cell = self.arms.setdefault(arm, [0, 0, 0.0])
        cell[0] += decisions
        cell[1] += rewards
        cell[2] += total

    def plus(self, others: Iterable[SegmentCounts], sign: int = 1) -> SegmentCounts:
        """The sum with others, or the difference."""
        made = SegmentCounts({arm: list(cell) for arm, cell in self.arms.items()})
        for other in others:
            for arm, (decisions, rewards, total) in other.arms.items():
                made.add(arm, sign * int(decisions), sign * int(rewards), sign * total)
        return made

    @property
    def decisions(self) -> int:
        """The number of decisions."""
        return int(sum(cell[0] for cell in self.arms.values()))

    def to_data(self, value: str | None, decisions: int) -> dict[str, Any]:
        """The counts as a `wire_schema.ContextSegment`; `decisions` are those of all segments."""
        rewards = int(sum(cell[1] for cell in self.arms.values()))
        return {
            "value": value,
            "decisions": self.decisions,
            "fraction": self.decisions / decisions if decisions else 0.0,
            "rewards": rewards,
            "mean": sum(cell[2] for cell in self.arms.values()) / rewards if rewards else None,
            "arms": [
                {"arm": arm, "decisions": int(n), "rewards": int(k), "mean": total / k if k else None}
                for arm, (n, k, total) in self.arms.items()
                if n or k
            ],
        }


@dataclass
class KeyCounts:
    """The counts of each value of a key."""

    values: dict[str, SegmentCounts] = field(default_factory=dict)
    other: SegmentCounts = field(default_factory=SegmentCounts)

    def cell(self, value: str) -> SegmentCounts:
        """The counts of a value, which may be those of all others."""
        found = self.values.get(value)
        if found is None:
            if len(self.values) >= MAX_VALUES or len(value) > _MAX_LENGTH:
                return self.other
            found = self.values[value] = SegmentCounts()
        return found


@dataclass
class FeatureCounts:
    """What was observed of a feature, compared with its declaration."""

    decisions: int = 0
    "With a value."
    missing: int = 0
    low: float | None = None
    high: float | None = None
    clipped: int = 0
    other: int = 0
    true: int = 0
    buckets: Counter[int] = field(default_factory=Counter)

    def observe(self, name: str, declared: FeatureType, value: Any) -> None:
        """Count a value."""
        if isinstance(declared, Hashed):
            self.buckets[declared.encode(name, value)[0]] += 1
        elif isinstance(declared, Flag):
            self.true += declared.encode(name, value)[1] > 0
        else:
            remark = declared.remark(value)
            self.clipped += remark == "clipped"
            self.other += remark == "other"
            if isinstance(declared, Number):
                self.low = min(float(value), float(value) if self.low is None else self.low)
                self.high = max(float(value), float(value) if self.high is None else self.high)
        self.decisions += 1

    def to_data(self, name: str, declared: FeatureType, values: int | None) -> dict[str, Any]:
        """The counts as a `wire_schema.ObservedFeature`."""
        data: dict[str, Any] = {"name": name, "type": declared.kind}
        data |= {"decisions": self.decisions, "missing": self.missing}
        if isinstance(declared, Number):
            data |= {"low": declared.low, "high": declared.high, "clipped": self.clipped}
            data |= {"observed_low": self.low, "observed_high": self.high}
        elif isinstance(declared, Category):
            data |= {"levels": len(declared.levels), "other": self.other, "values": values}
        elif isinstance(declared, Hashed):
            data |= {"buckets": declared.buckets, "buckets_used": len(self.buckets), "values": values}
            data |= {"largest_bucket": max(self.buckets.values(), default=0)}
        else:
            data |= {"true": self.true}
        return data


class ContextStatistics:
    """The counts of one experiment.

    >>> statistics = ContextStatistics(Declaration(("device",)))
    >>> row = LoggedContext("1", "red", '{"device": "phone"}', 0)
    >>> statistics.count(row); statistics.reward(row, 1.0)
    >>> statistics.segments("device")[0][0]["value"], statistics.segments("device")[0][0]["mean"]
    ('phone', 1.0)
    """

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.decisions = self.without_context = 0
        self._whole = SegmentCounts()  # of all decisions with a context
        self._keys = {key: KeyCounts() for key in declaration.keys[:MAX_KEYS]}
        self._features = {name: FeatureCounts() for name in declaration.types}
        self._arms: set[str] = set()
        ranges = {key: each for key, each in declaration.types.items() if isinstance(each, Number)}
        self._labels = {key: _range_labels(each) for key, each in ranges.items()}

    @property
    def keys(self) -> list[str]:
        """The keys that have counts: the declared ones, then others in the order of their appearance."""
        return list(self._keys)

    def count(self, row: LoggedContext) -> None:
        """Count a decision."""
        self.decisions += 1
        context = _read(row)
        if context is None:
            self.without_context += 1
            return
        self._add(row.arm, context, 1, 0, 0.0)
        if row.feature_version == self.declaration.feature_version:
            self._observe(context)

    def reward(self, row: LoggedContext, value: float, previous: float | None = None) -> None:
        """Count the reward of a decision, or replace the previous one."""
        context = _read(row)
        if context is not None:
            self._add(row.arm, context, 0, int(previous is None), value - (previous or 0.0))

    def _add(self, arm: str, context: dict[str, Any], *numbers: Any) -> None:
        if arm not in self._arms and len(self._arms) < MAX_ARMS:
            self._arms.add(arm)
        name = arm if arm in self._arms else None
        self._whole.add(name, *numbers)
        for key, value in context.items():
            counts = self._keys.get(key)
            if counts is None:
                if len(self._keys) >= MAX_KEYS or len(key) > _MAX_LENGTH:
                    continue
                counts = self._keys[key] = KeyCounts()
            text = self._text(key, value)
            if text is not None:
                counts.cell(text).add(name, *numbers)

    def _text(self, key: str, value: Any) -> str | None:
        """The segment of a value; None if it is missing."""
        labels = self._labels.get(key)
        if labels is None or isinstance(value, bool) or not isinstance(value, int | float):
            return value_text(value)
        declared = self.declaration.types[key]
        assert isinstance(declared, Number)
        if not declared.low <= value <= declared.high:  # it may be too large for a float
            return labels[-1] if value > declared.high else labels[0]
        part = (value - declared.low) / (declared.high - declared.low) * _PARTS
        return labels[1 + min(int(part), _PARTS - 1)]

    def _observe(self, context: dict[str, Any]) -> None:
        for name, declared in self.declaration.types.items():
            counts, value = self._features[name], context.get(name)
            if value is None:
                counts.missing += 1
                continue
            try:
                counts.observe(name, declared, value)
            except (MaillardError, TypeError, ValueError, OverflowError):
                counts.missing += 1  # an appended decision, whose context the experiment would have refused

    def segments(self, key: str) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """The segments of a key, the largest first, and what the others are in total."""
        counts, whole = self._keys[key], self._whole.decisions
        missing = self._whole.plus([*counts.values.values(), counts.other], -1)
        items: list[tuple[str | None, SegmentCounts]] = [*counts.values.items()]
        items += [(None, missing)] * bool(missing.decisions)
        items.sort(key=lambda item: (-item[1].decisions, item[0] or ""))
        if (labels := self._labels.get(key)) is not None:  # parts of a range in their order
            items.sort(key=lambda item: labels.index(item[0]) if item[0] in labels else len(labels))
        shown, rest = items[:MAX_SHOWN], items[MAX_SHOWN:]
        other = counts.other.plus(each for _, each in rest)
        pooled = other.to_data(None, whole) if other.decisions else None
        return [each.to_data(value, whole) for value, each in shown], pooled

    def features(self) -> list[dict[str, Any]]:
        """What was observed of each declared feature. Those that only arms have are left out."""
        return [
            counts.to_data(name, self.declaration.types[name], self._different(name))
            for name, counts in self._features.items()
            if counts.decisions or not self.declaration.shared
        ]

    def _different(self, key: str) -> int | None:
        """The number of different values of a key, if it is counted; one more if there are too many."""
        counts = self._keys.get(key)
        return None if counts is None else len(counts.values) + bool(counts.other.decisions)


def _read(row: LoggedContext) -> dict[str, Any] | None:
    if row.context is None:
        return None
    try:
        return _decode(row.context)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _range_labels(declared: Number) -> list[str]:
    """The names of the parts of a range, and of what is below and above it.

    >>> _range_labels(Number(0, 10))
    ['below 0', '0 to 2', '2 to 4', '4 to 6', '6 to 8', '8 to 10', 'above 10']
    """
    ends = [declared.low + (declared.high - declared.low) * part / _PARTS for part in range(_PARTS + 1)]
    texts = [f"{end:g}" for end in ends]
    inner = [f"{low} to {high}" for low, high in itertools.pairwise(texts)]
    return [f"below {texts[0]}", *inner, f"above {texts[-1]}"]
