"""Linear rules: targets that choose the arm with the largest linear score of the context's features.

    linear:{"features": ..., "weights": {"red": {"intercept": 0.2, "age": -0.1}, "blue": {"age": 0.1}}}

`features` is the JSON of a `Features`; `weights` has for each arm the weight of each column, by its name. A
column without a weight has the weight 0. The score of an arm is the sum of weight times column. Ties go to
the arm that comes first. An erased context has only the intercept.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.decisions.contexts import ContextColumn, Contexts, Value, value_text
from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation.context_encoding import encoder_for
from maillard.evaluation.rules import common_values
from maillard.features import Features, category, flag, number

PREFIX = "linear:"
_FORMAT = '{"features": (the JSON of Features), "weights": {ARM: {COLUMN: NUMBER, ...}, ...}}'
_RIDGE = 1.0
_DIGITS = 6  # of a learned weight
_MISSING = "(missing)"


@dataclass(frozen=True, eq=False)
class LinearRule:
    """The arm with the largest score, the product of its weights and the encoded context.

    >>> rule = LinearRule(Features({"age": (0, 100)}), ("red", "blue"), np.array([[0.1, -0.5], [0.0, 0.5]]))
    >>> print(rule.describe())
    the arm with the largest score:
      red   0.1 - 0.5 age
      blue  0.5 age
    >>> same = LinearRule.read(str(rule))
    >>> same.places(Contexts.of_texts(['{"age": 20}', '{"age": 90}'])).tolist()
    [0, 1]
    """

    features: Features
    arms: tuple[str, ...]
    weights: Floats
    "A row for each arm, with the weight of each column of the features."

    @classmethod
    def read(cls, text: str) -> LinearRule:
        """Parse a spec; an error states what is wrong."""
        try:
            data = json.loads(text.strip().removeprefix(PREFIX))
            features, given = Features.from_json(json.dumps(data["features"])), data["weights"]
            rows = {arm: dict(row) for arm, row in given.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InvalidValue("target", text, f"{PREFIX} and JSON such as {_FORMAT}") from None
        if len(rows) < 1:
            raise InvalidValue("linear: weights", given, "the weights of at least one arm")
        weights = np.zeros((len(rows), features.dimension))
        for line, (arm, row) in zip(weights, rows.items(), strict=True):
            for name, value in row.items():
                if name not in features.names:
                    raise UnknownName(f"linear: weights of {arm!r}: column", name, list(features.names))
                if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
                    raise InvalidValue(f"linear: weight of {arm!r}: {name}", value, "a finite number")
                line[features.names.index(name)] = value
        return cls(features, tuple(rows), weights)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the context that the rule uses."""
        return self.features.inputs

    def __str__(self) -> str:
        weights = {
            arm: {name: each for name, each in zip(self.features.names, row, strict=True) if each}
            for arm, row in zip(self.arms, self.weights.tolist(), strict=True)
        }
        data = {"features": json.loads(self.features.to_json()), "weights": weights}
        return PREFIX + json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    def describe(self) -> str:
        """The score of each arm, as text."""
        width = max(map(len, self.arms))
        lines = [
            f"  {arm:{width}}  {_sum_text(self.features.names, row)}"
            for arm, row in zip(self.arms, self.weights.tolist(), strict=True)
        ]
        return "\n".join(["the arm with the largest score:", *lines])

    def scores(self, contexts: Contexts) -> Floats:
        """The score of each arm, n x K."""
        encode, _ = encoder_for(contexts, self.features)
        found: Floats = encode(contexts) @ self.weights.T
        return found

    def places(self, contexts: Contexts) -> Ints:
        """The index of the arm that is chosen, for each row."""
        found: Ints = self.scores(contexts).argmax(axis=1)
        return found

    def probabilities(self, arms: Sequence[str]) -> Floats:
        """The distribution over `arms` for each arm of the rule."""
        table = np.zeros((len(self.arms), len(arms)))
        for row, arm in zip(table, self.arms, strict=True):
            if arm not in arms:
                raise UnknownName("linear: arm", arm, list(arms))
            row[list(arms).index(arm)] = 1.0
        return table


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _sum_text(names: Sequence[str], weights: Sequence[float]) -> str:
    terms = [(name, weight) for name, weight in zip(names, weights, strict=True) if weight]
    text = ""
    for name, weight in terms:
        sign = " - " if weight < 0 and text else "-" if weight < 0 else " + " if text else ""
        text += f"{sign}{abs(weight):.4g}{'' if name == 'intercept' else f' {name}'}"
    return text or "0"


def best_linear(
    gamma: Floats, contexts: Sequence[Contexts], features: Features, arms: Sequence[str]
) -> LinearRule:
    """The rule whose scores are ridge regressions of the doubly robust scores Γ, n x K, on the features.

    w_a = (I + Σ x xᵀ)⁻¹ Σ x (Γ(a) - c), where c is the mean of all scores.
    """
    x = np.vstack([encoder_for(each, features)[0](each) for each in contexts])
    gram = np.eye(features.dimension) + x.T @ x
    weights = np.linalg.solve(gram, x.T @ (gamma - gamma.mean())).T
    rounded = np.array([[float(f"{each:.{_DIGITS}g}") for each in row] for row in weights.tolist()])
    return LinearRule(features, tuple(arms), rounded)


def declared_features(contexts: Sequence[Contexts], keys: Sequence[str], min_rows: int) -> Features:
    """Features for keys of contexts: ranges of numbers, flags, and the most common values of text.

    They depend on the contexts alone, never on the rewards. A missing number counts as the middle of its
    range, a missing flag as false, a missing text as another value.
    """
    types: dict[str, Any] = {}
    for key in keys:
        made = _type_of([each.column(key) for each in contexts], min_rows)
        if made is not None:
            types[key] = made
    return Features(types)


def _type_of(columns: Sequence[ContextColumn], min_rows: int) -> Any:
    """The type of a feature with these values; None if all are the same. Each has a default."""
    counts: Counter[str] = Counter()
    values: list[Value] = []
    for column in columns:
        of_values = np.bincount(column.codes, minlength=len(column.values)).tolist()
        for value, count in zip(column.values, of_values, strict=True):
            if count and (text := value_text(value)) is not None:
                counts[text] += count
                values.append(value)
    if len(counts) < 2:
        return None
    if all(isinstance(value, bool) for value in values):
        return flag(default=False)
    if not any(isinstance(value, str | bool) for value in values):
        low, high = min(map(float, values)), max(map(float, values))  # type: ignore[arg-type]  # numbers
        return number(low, high, default=(low + high) / 2)
    levels = [text for text in common_values(counts) if counts[text] >= min_rows]
    return category(levels, default=_MISSING) if levels else None
