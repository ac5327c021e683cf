"""A contextual problem from labelled data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from maillard import specs
from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue
from maillard.problems import codes
from maillard.problems.contextual_problem import (
    DISJOINT,
    ContextBlock,
    ContextualProblem,
    block_sizes,
    checked_rows,
    digest,
    encoded,
)
from maillard.problems.problem import distribution_with, number

_SHAPES = ("rows x features",)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Classification(ContextualProblem):
    """Your own labelled data: each round shows one row of X, and the arm of its label pays 1, others 0.

    The rows are shuffled for each trial, and again whenever all of them have been shown. The entries of X
    must lie from -1 to 1, or are divided by `bound`, the largest absolute value. With `intercept`, a column
    of ones is added in front. `segments` gives the segment of each row, for policies such as
    `segmented:policy=kl-ms`.

    >>> flowers = Classification([[0.1, 0.9], [0.8, 0.2], [0.2, 0.7]], ["lily", "rose", "lily"])
    >>> flowers.labels, flowers.arms, flowers.dim
    (('lily', 'rose'), 2, 3)
    """

    X: Any
    y: Any
    bound: float | None = None
    intercept: bool = True
    segments: Any = ()  # replaced by the names of the segments
    name: ClassVar[str] = "classification"
    model: ClassVar[Any] = DISJOINT
    binary: ClassVar[bool] = True
    reward_limits: ClassVar[tuple[float, float]] = (0.0, 1.0)
    labels: ClassVar[tuple[Any, ...]]  # of each instance: the label of each arm
    _encoded: ClassVar[Floats]
    _segment: ClassVar[Ints]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bound is not None:
            self._set("bound", number("bound", self.bound, least=1e-100))
        if not isinstance(self.intercept, bool):
            raise InvalidValue("intercept", self.intercept, "true or false")
        rows = checked_rows("X", self.X, self.bound, _SHAPES)
        if self.intercept:
            rows = np.column_stack([np.ones(len(rows)), rows])
            checked_rows("X with its intercept", rows[:1], None, _SHAPES)  # the number of features
        self._set("X", rows)
        self._set("_encoded", encoded(rows))
        labels, label = _codes("y", self.y, len(rows))
        self._set("labels", labels)
        self._set("y", label)
        names, segment = ((), np.zeros(len(rows), np.int64))
        if len(self.segments):
            names, segment = _codes("segments", [str(each) for each in self.segments], len(rows))
        self._set("segments", names)
        self._set("_segment", segment)

    @property
    def arms(self) -> int:
        return len(self.labels)

    @property
    def dim(self) -> int:
        """The number of features, with the intercept."""
        return int(self.X.shape[1])

    def contexts(self, rng: np.random.Generator, horizon: int) -> Iterator[ContextBlock]:
        means = np.eye(self.arms)
        rewards = distribution_with(codes.BERNOULLI, means.ravel())
        order, used = rng.permutation(len(self.X)), 0
        for rounds in block_sizes(horizon, 1):
            while order.size - used < rounds:
                order, used = np.concatenate([order[used:], rng.permutation(len(self.X))]), 0
            row = order[used : used + rounds]
            used += rounds
            yield ContextBlock(self._encoded, row, means, rewards, self.y[row], self._segment[row])

    def spec(self) -> specs.Spec:
        data = digest(self.X, self.y, self._segment)
        return specs.Spec(
            self.name, (), {"arms": self.arms, "data": data, "dim": self.dim, "rows": len(self.X)}
        )


def _codes(name: str, given: Any, rows: int) -> tuple[tuple[Any, ...], Ints]:
    """Return the distinct values in order, and the position of each value among them."""
    values = np.asarray(given)
    if values.shape != (rows,):
        raise InvalidValue(name, values.shape, f"one value for each of {rows} rows of X")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        place = int(np.argmin(np.isfinite(values)))
        raise InvalidValue(f"{name}[{place}]", float(values[place]), "a label")
    try:
        distinct, codes_ = np.unique(values, return_inverse=True)
    except TypeError:
        raise InvalidValue(name, given, "labels of one type") from None
    return tuple(distinct.tolist()), codes_.astype(np.int64)
