"""`Features`: the declaration of features, and the encoding of a mapping as a row of numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from math import isnan, nan
from typing import Any

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue, UnknownName
from maillard.feature_grid import MAX_DIMENSION, STEPS
from maillard.features.feature_types import (
    FeatureType,
    Hashed,
    Number,
    plain,
    type_from_data,
    type_of,
)
from maillard.short_reprs import COLUMNS, cut, listed

# The version of the encoding: the order of the columns, scaling, rounding and hashing. Version 2 has also
# `rest_crosses`, and bins of numbers; a declaration without them has version 1.
_VERSIONS = 1, 2
_PLAIN_TYPES = frozenset((str, int, bool))  # values that `plain` would return as they are
_FIELDS = {"version", "features", "crosses", "intercept", "rest"}
_NEW_FIELDS = {"rest_crosses"}  # of version 2


class Features:
    """A declaration of features, which encodes mappings as rows for linear models.

    >>> from maillard import Features, hashed
    >>> features = Features({"device": ["phone", "desktop"], "age": (18, 90)}, crosses=[("device", "age")])
    >>> features.names[:5]
    ('intercept', 'device=phone', 'device=desktop', 'device=(other)', 'age')
    >>> features.encode({"device": "phone", "age": 36})
    array([ 1. ,  1. ,  0. ,  0. , -0.5, -0.5,  0. ,  0. ])

    The columns are the intercept, the features in the order declared, the crosses, the columns of `rest`, and
    those of `rest_crosses`: the crosses of undeclared keys of a context with those of an arm. Every number is
    a multiple of 2**-16 from -1 to 1. The same declaration encodes a mapping with the same bits everywhere,
    so it can be stored next to what was computed from it.
    """

    __slots__ = (
        "_blocks",
        "_crosses",
        "_plan",
        "_template",
        "crosses",
        "inputs",
        "intercept",
        "names",
        "rest",
        "rest_crosses",
        "types",
    )

    types: dict[str, FeatureType]
    "The type of each declared feature."
    inputs: tuple[str, ...]
    "Names of the declared features."
    crosses: tuple[tuple[str, str], ...]
    "Pairs of features whose columns are multiplied."
    intercept: bool
    "Whether the first column is always 1."
    rest: Hashed | None
    "How undeclared keys are encoded; None if they are refused."
    rest_crosses: Hashed | None
    "How pairs of an undeclared key of the context and one of the arm are encoded; None if they are not."
    names: tuple[str, ...]
    "Names of the columns."

    def __init__(
        self,
        features: Mapping[str, Any],
        *,
        crosses: Iterable[tuple[str, str]] = (),
        intercept: bool = True,
        rest: Hashed | None = None,
        rest_crosses: Hashed | None = None,
        max_dimension: int | None = MAX_DIMENSION,
    ) -> None:
        if not isinstance(features, Mapping):
            raise InvalidValue("features", features, "a mapping of names to types")
        for name in features:
            if not isinstance(name, str) or not name:
                raise InvalidValue("features", name, "names that are not empty")
        if rest is not None and not isinstance(rest, Hashed):
            raise InvalidValue("rest", rest, "hashed(m), or None")
        if rest_crosses is not None and (not isinstance(rest_crosses, Hashed) or rest is None):
            allowed = "hashed(m) next to rest=hashed(m), or None"
            raise InvalidValue("rest_crosses", rest_crosses, allowed)
        if not isinstance(intercept, bool):
            raise InvalidValue("intercept", intercept, "True or False")
        self.types = {name: type_of(name, declared) for name, declared in features.items()}
        self.inputs, self.intercept = tuple(self.types), intercept
        self.rest, self.rest_crosses = rest, rest_crosses
        self.crosses = self._checked(crosses)
        self._lay_out(max_dimension)

    def _checked(self, crosses: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        pairs: list[tuple[str, str]] = []
        for cross in crosses:
            if not isinstance(cross, tuple | list) or len(cross) != 2:
                raise InvalidValue("crosses", cross, "pairs of feature names")
            for name in cross:
                if not isinstance(name, str) or name not in self.types:
                    raise UnknownName("crosses: feature", str(name), self.inputs)
            pair = cross[0], cross[1]
            if pair in pairs or pair[::-1] in pairs:
                raise InvalidValue("crosses", pair, "each pair once")
            if pair[0] == pair[1] and not isinstance(self.types[pair[0]], Number):
                raise InvalidValue("crosses", pair, "two different features, or a number with itself")
            pairs.append(pair)
        return tuple(pairs)

    def _lay_out(self, limit: int | None) -> None:
        """Assign columns to the features. `_blocks` has the first column and the width of each block."""
        types, rest, start = self.types, self.rest, int(self.intercept)
        self._blocks: dict[object, tuple[int, int]] = {"intercept": (0, 1)} if self.intercept else {}
        widths: dict[object, int] = {(name, types[name]): types[name].width for name in types}
        for one, two in self.crosses:
            widths[one, types[one], two, types[two]] = types[one].width * types[two].width
        if rest is not None:
            # A declared feature is taken out of the rest, so the meaning of its columns depends on them.
            widths["rest", rest, frozenset(types)] = rest.width
        if self.rest_crosses is not None:
            widths["rest_crosses", self.rest_crosses, frozenset(types)] = self.rest_crosses.width
        for block, width in widths.items():
            self._blocks[block] = start, width
            start += width
        if start == 0:
            raise InvalidValue("features", {}, "at least one feature, or an intercept")
        if limit is not None and start > limit:
            allowed = f"at most {limit} columns (max_dimension): use fewer levels, buckets or crosses"
            raise InvalidValue("features", start, allowed)
        self._plan = [
            (name, type_, self._blocks[name, type_][0], *_range_of(type_)) for name, type_ in types.items()
        ]
        places = {name: place for place, name in enumerate(types)}
        self._crosses = [
            (places[one], places[two], types[two].width, self._blocks[one, types[one], two, types[two]][0])
            for one, two in self.crosses
        ]
        self._template = [STEPS * self.intercept] + [0] * (start - 1)
        names = ["intercept"] * self.intercept
        for name, type_ in types.items():
            names += type_.columns(name)
        for one, two in self.crosses:
            names += [f"{a}*{b}" for a in types[one].columns(one) for b in types[two].columns(two)]
        names += rest.columns("rest") if rest is not None else []
        names += self.rest_crosses.columns("rest_crosses") if self.rest_crosses is not None else []
        for name, times in Counter(names).items():
            if times > 1:
                raise InvalidValue("features", name, "features whose columns have different names")
        self.names = tuple(names)

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return len(self.names)

    def encode(
        self,
        context: Mapping[str, Any],
        counts: Counter[tuple[str, str]] | None = None,
        *,
        arm: Mapping[str, Any] | None = None,
    ) -> Floats:
        """Return the row of numbers for one mapping of feature names to values.

        `arm` has the attributes of an arm, for a shared model; its names must differ from those of the
        context. A value that is None or NaN counts as missing. `counts`, if given, counts the features whose
        value was clipped to its range, was not a level ("other") or was missing ("default"):

        >>> counts = Counter()
        >>> Features({"age": (18, 90)}).encode({"age": 120}, counts).tolist(), dict(counts)
        ([1.0, 1.0], {('age', 'clipped'): 1})
        """
        row: Floats = self.encode_units(context, arm=arm) / STEPS
        if counts is not None:
            given = context if arm is None else {**context, **arm}
            remarks = [(name, type_.remark(plain(given.get(name)))) for name, type_, *_ in self._plan]
            counts.update((name, remark) for name, remark in remarks if remark)
        return row

    def encode_units(self, context: Mapping[str, Any], *, arm: Mapping[str, Any] | None = None) -> Ints:
        """Return the row of `encode` in grid units, whole multiples of 2**-16."""
        if type(context) is not dict and not isinstance(context, Mapping):
            raise InvalidValue("context", context, "a mapping of feature names to values")
        own, context = context, context if arm is None else {**context, **arm}
        if self.rest is None and not context.keys() <= self.types.keys():
            self._refuse_unknown(context)
        row, entries, get = self._template.copy(), [], context.get
        for name, type_, start, low, high in self._plan:
            value = get(name)
            if type(value) is float and low <= value <= high:  # most numbers; `Number.encode` does the same
                entry = 0, round(((value - low) / (high - low) * 2.0 - 1.0) * STEPS)
            else:
                if type(value) not in _PLAIN_TYPES and (type(value) is not float or isnan(value)):
                    value = plain(value)
                entry = type_.encode(name, type_.default_for(name) if value is None else value)
            entries.append(entry)
            row[start + entry[0]] = entry[1]
        for one, two, width, start in self._crosses:
            (i, x), (j, y) = entries[one], entries[two]
            row[start + i * width + j] = round(x * y / STEPS)
        if self.rest is not None:
            self._encode_rest(row, own, arm)
        return np.array(row, np.int64)

    def _encode_rest(self, row: list[int], context: Mapping[str, Any], arm: Mapping[str, Any] | None) -> None:
        """Set the columns of undeclared keys, and those of their crosses."""
        rest, crosses = self.rest, self.rest_crosses
        assert rest is not None
        start = len(row) - rest.width - (0 if crosses is None else crosses.width)
        for name, text in self._undeclared(context, rest) + self._undeclared(arm or {}, rest):
            row[start + rest.bucket(name, text)] = STEPS
        if crosses is not None and arm:
            ours, start = self._undeclared(arm, crosses), len(row) - crosses.width
            for name, text in self._undeclared(context, crosses):
                for _, other in ours:
                    row[start + crosses.bucket(name, f"{text}*{other}")] = STEPS

    def _undeclared(self, values: Mapping[str, Any], rest: Hashed) -> list[tuple[str, str]]:
        """The undeclared keys that are not missing, each with the text "key=value"."""
        found = [(name, plain(value)) for name, value in values.items() if name not in self.types]
        return [(name, _rest_text(name, value, rest)) for name, value in found if value is not None]

    def rest_column(self, name: str, value: Any) -> int | None:
        """The column of an undeclared key and its value: the bucket of the text "key=value"."""
        if value is None or self.rest is None:
            return None
        start = self._blocks["rest", self.rest, frozenset(self.types)][0]
        return start + self.rest.bucket(name, _rest_text(name, value, self.rest))

    def _refuse_unknown(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.types:
                raise UnknownName("feature", str(name), self.inputs)

    def encode_frame(self, frame: Any, counts: Counter[tuple[str, str]] | None = None) -> Floats:
        """Return one row per row of a pandas or polars data frame or an Arrow table.

        The result has the same bits as `encode` of each row, without an arm. A column that is not declared is
        refused, unless there is a `rest`; `frame[list(features.inputs)]` selects the declared ones.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"device": ["phone", "desktop"], "age": [54, 90]})
        >>> Features({"device": ["phone", "desktop"], "age": (18, 90)}).encode_frame(frame)
        array([[1., 1., 0., 0., 0.],
               [1., 0., 1., 0., 1.]])
        """
        from maillard.features.frame_encoding import encode_frame

        return encode_frame(self, frame, Counter() if counts is None else counts)

    def positions(self, other: Features) -> Ints:
        """Return the position in this encoding of each column of another one.

        All columns of `other` must be here, with the same meaning: a feature that has another level, another
        range or another default is another feature.

        >>> old = Features({"device": ["phone"], "age": (18, 90)}, crosses=[("device", "age")])
        >>> new = Features({"device": ["phone"], "age": (18, 90), "new": bool}, crosses=[("device", "age")])
        >>> new.positions(old)
        array([0, 1, 2, 3, 5, 6])
        """
        found: list[int] = []
        for block in other._blocks:
            if block not in self._blocks:
                column = other.names[other._blocks[block][0]]
                raise InvalidValue("features", self, f"a column that means the same as {column!r} did")
            start, width = self._blocks[block]
            found += range(start, start + width)
        return np.array(found, np.int64)

    def extends(self, other: Features) -> bool:
        """Whether the first columns are those of `other`, so that its rows need only be padded.

        Crosses come after all features. So a feature that is appended to others keeps their columns in place
        only if there are no crosses; otherwise use `positions`. The columns of `rest` change their meaning
        when a feature is declared, because it is not part of the rest any more.

        >>> old = Features({"device": ["phone", "desktop"]})
        >>> Features({"device": ["phone", "desktop"], "age": (18, 90)}).extends(old)
        True
        >>> Features({"device": ["phone", "desktop", "tablet"]}).extends(old)
        False
        """
        try:
            return np.array_equal(self.positions(other), np.arange(other.dimension))
        except InvalidValue:
            return False

    def _key(self) -> tuple[object, ...]:
        return tuple(self._blocks)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Features) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        texts = [f"{cut(name, 40)}: {type_.kind}" for name, type_ in self.types.items()]
        return f"Features({listed(texts, COLUMNS - 30, what='features')}; {self.dimension} columns)"

    def to_json(self) -> str:
        """Return JSON from which `from_json` restores equal features.

        >>> print(Features({"age": (18, 90)}).to_json())  # doctest: +NORMALIZE_WHITESPACE
        {"version": 1, "features": [{"name": "age", "type": "number", "low": 18.0, "high": 90.0}],
         "crosses": [], "intercept": true, "rest": null}
        """
        data = {
            "version": 1,
            "features": [{"name": name, **type_.to_data()} for name, type_ in self.types.items()],
            "crosses": [list(pair) for pair in self.crosses],
            "intercept": self.intercept,
            "rest": None if self.rest is None else self.rest.to_data(),
        }
        hashes = [self.rest, *self.types.values()]
        if self.rest_crosses is not None or any(
            getattr(each, "numbers", "text") != "text" for each in hashes
        ):
            data["version"] = 2
            data["rest_crosses"] = None if self.rest_crosses is None else self.rest_crosses.to_data()
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str | bytes, *, max_dimension: int | None = None) -> Features:
        """Return the features that `to_json` wrote. Give a limit if others may have written the text.

        >>> features = Features({"age": (18, 90)})
        >>> Features.from_json(features.to_json()) == features
        True
        """
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue("features", text, f"valid JSON ({error})") from None
        if not isinstance(data, dict) or set(data) - _NEW_FIELDS != _FIELDS:
            raise InvalidValue("features", data, f"an object with {', '.join(sorted(_FIELDS))}")
        if data["version"] not in _VERSIONS:
            allowed = f"{_VERSIONS[0]} or {_VERSIONS[1]}, the encodings that this version of maillard knows"
            raise InvalidValue("version", data["version"], allowed)
        if not isinstance(data["features"], list) or not isinstance(data["crosses"], list):
            raise InvalidValue("features", data, '"features" and "crosses" as lists')
        features: dict[str, FeatureType] = {}
        for place, each in enumerate(data["features"]):
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or name in features:
                raise InvalidValue(f"features[{place}]", each, "a feature with a name that no other has")
            declared = {key: value for key, value in each.items() if key != "name"}
            features[name] = _type_at(f"features[{place}]", declared)
        hashes = {
            name: None if data.get(name) is None else _type_at(name, data[name])
            for name in ("rest", "rest_crosses")
        }
        return cls(
            features,
            crosses=data["crosses"],
            intercept=data["intercept"],
            **hashes,  # type: ignore[arg-type]  # checked by the constructor
            max_dimension=max_dimension,
        )


def _rest_text(name: object, value: Any, rest: Hashed) -> str:
    """What is hashed for an undeclared key."""
    if not isinstance(name, str):
        raise InvalidValue("context", name, "names as keys")
    return f"{name}={str(value).lower() if isinstance(value, bool) else rest.text(name, value)}"


def _type_at(where: str, data: Any) -> FeatureType:
    """The type that `FeatureType.to_data` wrote; an error says where it was."""
    try:
        return type_from_data(data)
    except InvalidValue as error:
        if error.field == "feature":  # the whole of it
            raise InvalidValue(where, error.value, error.allowed) from None
        raise error.with_location(where) from None


def _range_of(type_: FeatureType) -> tuple[float, float]:
    """The range of a number; for other types, one that contains no number."""
    return (type_.low, type_.high) if isinstance(type_, Number) else (nan, nan)
