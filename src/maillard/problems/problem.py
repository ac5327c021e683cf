"""Reward worlds, as data."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue
from maillard.problems.delays import Delay, delay

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Problem", "RewardDistribution", "count", "distribution_with", "number", "numbers", "table"]  # fmt: skip


class RewardDistribution(NamedTuple):
    """A problem as an engine reads it: a kind, two numbers an arm, a finite support an arm."""

    code: int
    first: Floats
    second: Floats
    values: Floats
    ends: Floats


@dataclasses.dataclass(frozen=True)
class Problem:
    """Arms with true means, and all that a simulation must know of their rewards.

    `delay` says when rewards are observed. With a `threshold` the problem is to tell which arms' means reach it: what is reported
    is not regret but the 0/1 loss of the answer, arms within `epsilon` of the threshold aside.
    """

    delay: Delay | None = dataclasses.field(default=None, kw_only=True)
    threshold: float | None = dataclasses.field(default=None, kw_only=True)
    epsilon: float = dataclasses.field(default=0.0, kw_only=True)
    label: str = dataclasses.field(default="", kw_only=True, compare=False, repr=False)

    name: ClassVar[str]
    binary: ClassVar[bool] = False  # rewards are 0 or 1
    positive: ClassVar[bool] = False  # rewards are above 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", delay(self.delay))
        if self.threshold is not None:
            object.__setattr__(self, "threshold", number("threshold", self.threshold))
        object.__setattr__(self, "epsilon", number("epsilon", self.epsilon, least=0.0))

    @property
    def true_means(self) -> Floats:
        """The mean of every arm."""
        return np.asarray(self.means, np.float64)  # type: ignore[attr-defined]  # most have it as a field

    @property
    def arms(self) -> int:
        """How many arms there are."""
        return self.true_means.size

    @property
    def gaps(self) -> Floats:
        """How far each arm's mean is below the best."""
        means = self.true_means
        gaps: Floats = means.max() - means
        return gaps

    @property
    def support(self) -> tuple[float, float]:
        """Between which numbers all rewards lie."""
        return -math.inf, math.inf

    @property
    def sigma2(self) -> float | None:
        """For which sigma2 rewards are sub-Gaussian; None where that is not known, or for none."""
        low, high = self.support
        return (high - low) ** 2 / 4 if math.isfinite(high - low) else None

    @property
    def is_delayed(self) -> bool:
        """Whether some rewards are observed after later choices."""
        return self.delay is not None and not self.delay.is_none

    @property
    def measure(self) -> str:
        """What is reported: regret, or the 0/1 loss of a threshold problem."""
        return "regret" if self.threshold is None else "loss"

    @property
    def churn(self) -> tuple[float, ...]:
        """For arms that come and go: how often one is replaced in a round, and the Beta law of a new mean."""
        return ()

    def reward_distribution(self) -> RewardDistribution:
        """The problem as an engine reads it."""
        raise NotImplementedError

    def spec(self) -> specs.Spec:
        """The problem as a spec."""
        fields = [field for field in dataclasses.fields(self) if field.name not in ("means", "label")]
        values = {field.name: getattr(self, field.name) for field in fields}
        changed = {field.name: values[field.name] for field in fields if values[field.name] != field.default}
        options = {name: str(value) if isinstance(value, Delay) else value for name, value in changed.items()}
        return specs.Spec(self.name, tuple(getattr(self, "means", ())), options)

    def __str__(self) -> str:
        return self.label or specs.write(self.spec())


def distribution_with(code: int, first: Any, second: Any = 0.0) -> RewardDistribution:
    """A law with two numbers an arm, the second perhaps one for all."""
    means = np.array(first, np.float64)
    empty = np.zeros((0, 0))
    return RewardDistribution(
        code, means, np.broadcast_to(np.float64(second), means.shape).copy(), empty, empty
    )


def number(name: str, value: Any, *, least: float = -math.inf, most: float = math.inf) -> float:
    """One finite number within limits."""
    return numbers(name, [value], least=least, most=most, one=True)[0]


def numbers(
    name: str, given: Any, *, least: float = -math.inf, most: float = math.inf, one: bool = False
) -> tuple[float, ...]:
    """Finite numbers within limits, one an arm."""
    limits = [f">= {least:g}"] * (least > -math.inf) + [f"<= {most:g}"] * (most < math.inf)
    kind = "a finite number" if one else "finite numbers, one an arm"
    allowed = " ".join([kind, " and ".join(limits)]).strip()
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise InvalidValue(name, given, allowed) from None
    if array.ndim != 1 or not array.size:
        raise InvalidValue(name, given, allowed)
    bad = ~(np.isfinite(array) & (array >= least) & (array <= most))
    if bad.any():
        place = int(np.argmax(bad))
        raise InvalidValue(name if one else f"{name}[{place}]", float(array[place]), allowed)
    return tuple(array.tolist())


def table(name: str, given: Any, allowed: str) -> Floats:
    """Rows of numbers."""
    try:
        rows = np.atleast_2d(np.asarray(given, np.float64))
    except (TypeError, ValueError):
        raise InvalidValue(name, given, allowed) from None
    if rows.ndim != 2 or not rows.size:
        raise InvalidValue(name, given, allowed)
    return rows


def count(name: str, value: Any) -> int:
    """A whole number of arms."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= 10**6:
        raise InvalidValue(name, value, "a whole number from 1 to 1000000")
    return int(value)
