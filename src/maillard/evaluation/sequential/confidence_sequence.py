"""The base class of confidence sequences.

A confidence sequence gives an interval after every row. With probability 1 - alpha all of them contain the
value simultaneously, so you may look at any time and stop at any row for any reason. Rewards must lie in a
known range, scaled to [0, 1]; weights pi(a) / p_t(a) are never negative, and the means of the arms do not
change.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.errors import InvalidValue, MaillardError
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.estimators.estimator import CONFIDENCE_SEQUENCE, REWARD_RANGE
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.sequential.sequential_runner import SequentialEstimator

_MAX_ITERATIONS = 200  # of Newton's method, which needs about ten


def level_of(alpha: float) -> float:
    """ln(2 / alpha): the log wealth that excludes a value; each side has half of alpha."""
    if not 0 < alpha < 1:
        raise InvalidValue("alpha", alpha, "a number in (0, 1)")
    return math.log(2 / alpha)


def checked(field: str, values: Any, highest: float = math.inf) -> Floats:
    """The values as an array of numbers from 0 to `highest`, and at most 1e100 so that squares are finite."""
    array, highest = np.ascontiguousarray(values, np.float64), min(highest, 1e100)
    if array.ndim != 1:
        raise InvalidValue(field, array.shape, "one number for each row")
    if array.size and not (array.min() >= 0 and array.max() <= highest):  # a nan fails either comparison
        row = int(np.flatnonzero(~((array >= 0) & (array <= highest)))[0])
        raise InvalidValue(f"{field}[{row}]", float(array[row]), f"a number from 0 to {highest:.12g}")
    return array


def checked_rows(weight: Any, reward: Any, highest: float = math.inf) -> tuple[Floats, Floats]:
    """Weights from 0 to `highest` and rewards from 0 to 1, one of each for every row."""
    weights, rewards = checked("weight", weight, highest), checked("reward", reward, 1)
    if weights.shape != rewards.shape:
        raise InvalidValue("weight", weights.shape, f"as many as rewards, {rewards.shape}")
    return weights, rewards


@dataclass(frozen=True)
class ConfidenceSequence(ABC):
    """Bounds on a target's value that are valid at every row simultaneously, in constant memory."""

    level: float
    "ln(2 / alpha)."
    horizon: float
    "The row at which it should be narrowest; 0 if there is none. It is valid at every row in both cases."
    run: Floats
    "The state: one row for the lower bound, one for the upper. Its last column is the tightest bound so far."

    columns: ClassVar[tuple[str, ...]] = ("weight", "reward")
    requires: ClassVar[tuple[str, ...]] = ()
    scales_rewards: ClassVar[bool] = True

    @classmethod
    def of(cls, log: EvaluationLog, target: Target, confidence: float) -> ConfidenceSequence:  # noqa: ARG003
        """The state before the first row of a log."""
        made: ConfidenceSequence = cls.start(alpha=1.0 - confidence)  # type: ignore[attr-defined]  # of subclasses
        return made

    def interval(self) -> tuple[float, float]:
        """The tightest of all bounds so far.

        If the lower bound exceeds the upper one, every value is excluded: the log violates an assumption, or
        this is an event that has at most probability alpha.
        """
        return float(self.run[0, -1]), float(1.0 - self.run[1, -1])

    @abstractmethod
    def centre(self) -> float:
        """An estimate that may lie outside the interval."""

    def value(self) -> float:
        """A point estimate inside the interval; nan before the first row, and if every value is excluded."""
        lower, upper = self.interval()
        centre = self.centre()
        return min(max(centre, lower), upper) if lower <= upper else math.nan

    def __add__(self, other: object) -> ConfidenceSequence:
        raise MaillardError(
            "a confidence sequence depends on the order of the rows, so the sequences of two parts of a log "
            "cannot be merged; process the parts in order instead"
        )


class SequenceEstimator(SequentialEstimator):
    """An estimator whose interval is a confidence sequence: valid at every row simultaneously."""

    interval: ClassVar[str] = CONFIDENCE_SEQUENCE
    assumes: ClassVar[str] = (
        "rewards in a known range. The interval is valid at any time, regardless of how often you check"
    )
    requires: ClassVar[tuple[str, ...]] = (REWARD_RANGE,)
    constant_means: ClassVar[bool] = True
    sample_size: ClassVar[str] = ""
    needs_variance: ClassVar[bool] = False
    state: ClassVar[type[ConfidenceSequence]]

    def result(self, state: ConfidenceSequence) -> tuple[float, ...]:
        return state.value(), *state.interval()


def mixture_root(constants: Floats, slopes: Floats, level: float) -> float:
    """The s at which the mean of exp(slope s + constant) is exp(`level`), by Newton's method; slopes are > 0.

    >>> round(mixture_root(np.array([0.0, 0.0]), np.array([1.0, 2.0]), 5.0), 4)
    2.8176
    """
    constants = constants - math.log(slopes.size) - level
    # Each term alone needs -constant / slope; the mean needs no more than the best of them.
    s = float((-constants / slopes).min())
    for _ in range(_MAX_ITERATIONS):
        exponents = slopes * s + constants
        largest = float(exponents.max())
        weights = np.exp(exponents - largest)
        total = float(weights.sum())
        above = largest + math.log(total)
        # The logarithm of the mean is convex and increasing, so steps from the right never pass the root.
        if above <= 1e-12:
            break
        s -= above / (float((weights * slopes).sum()) / total)
    return s


def horizon_of(horizon: int | None) -> float:
    """The horizon as a float; 0 for None."""
    if horizon is None:
        return 0.0
    if not horizon >= 1:
        raise InvalidValue("horizon", horizon, "a whole number >= 1, or None")
    return float(horizon)


def first_exclusion(path: Floats, value: float) -> int:
    """The first row (from 1) whose bounds exclude this value; 0 if no row does."""
    excluded = (path[:, 0] > value) | (path[:, 1] < value)
    return int(excluded.argmax()) + 1 if excluded.any() else 0


def path_of(rows: int, wanted: bool) -> Floats:
    """An array for the bounds after every row, or an empty one."""
    return np.empty((rows if wanted else 0, 2))
