"""The base class of problems."""

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


class RewardDistribution(NamedTuple):
    """The reward distributions of all arms as engines read them.

    A code, two numbers and a finite support per arm.
    """

    code: int
    first: Floats
    second: Floats
    values: Floats
    ends: Floats


@dataclasses.dataclass(frozen=True)
class Problem:
    """Arms with true means, and everything a simulation must know about their rewards.

    `delay` determines when rewards are observed. With a `threshold`, the problem is to find which arms' means
    reach it: the result is then the 0/1 loss of the answer instead of regret, ignoring arms within `epsilon`
    of the threshold.
    """

    delay: Delay | None = dataclasses.field(default=None, kw_only=True)
    threshold: float | None = dataclasses.field(default=None, kw_only=True)
    epsilon: float = dataclasses.field(default=0.0, kw_only=True)
    label: str = dataclasses.field(default="", kw_only=True, compare=False, repr=False)

    name: ClassVar[str]
    binary: ClassVar[bool] = False  # rewards are 0 or 1
    mean_limits: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    reward_limits: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    code: ClassVar[int]  # of the reward distribution

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", delay(self.delay))
        if self.threshold is not None:
            object.__setattr__(self, "threshold", number("threshold", self.threshold))
        object.__setattr__(self, "epsilon", number("epsilon", self.epsilon, least=0.0))
        if "means" in self.__dataclass_fields__:
            least, most = self.mean_limits
            object.__setattr__(self, "means", numbers("means", self.means, least=least, most=most))  # type: ignore[attr-defined]

    @property
    def true_means(self) -> Floats:
        """The mean of every arm."""
        return np.asarray(self.means, np.float64)  # type: ignore[attr-defined]  # most have it as a field

    @property
    def arms(self) -> int:
        """The number of arms."""
        return self.true_means.size

    @property
    def gaps(self) -> Floats:
        """The difference between the best mean and each arm's mean."""
        means = self.true_means
        gaps: Floats = means.max() - means
        return gaps

    @property
    def support(self) -> tuple[float, float]:
        """The smallest and the largest possible reward."""
        return self.reward_limits

    @property
    def positive(self) -> bool:
        """Whether all rewards are above 0."""
        return self.support[0] > 0.0

    @property
    def sigma2(self) -> float | None:
        """A variance proxy: rewards are sigma2-sub-Gaussian. None if unknown, or if there is none."""
        low, high = self.support
        return (high - low) ** 2 / 4 if math.isfinite(high - low) else None

    @property
    def is_delayed(self) -> bool:
        """Whether some rewards are observed after later choices."""
        return self.delay is not None and not self.delay.is_none

    @property
    def measure(self) -> str:
        """What a simulation reports: regret, or the 0/1 loss of a threshold problem."""
        return "regret" if self.threshold is None else "loss"

    @property
    def churn(self) -> tuple[float, ...]:
        """For arms that are replaced.

        The probability per round, and the Beta parameters of new means. Otherwise empty.
        """
        return ()

    def reward_distribution(self) -> RewardDistribution:
        """Return the reward distribution of every arm, as engines read it."""
        return distribution_with(self.code, self.true_means)

    def spec(self) -> specs.Spec:
        """Return the problem as a spec."""
        fields = [field for field in dataclasses.fields(self) if field.name not in ("means", "label")]
        values = {field.name: getattr(self, field.name) for field in fields}
        changed = {field.name: values[field.name] for field in fields if values[field.name] != field.default}
        options = {name: str(value) if isinstance(value, Delay) else value for name, value in changed.items()}
        return specs.Spec(self.name, tuple(getattr(self, "means", ())), options)

    def __str__(self) -> str:
        return self.label or specs.write(self.spec())


def distribution_with(code: int, first: Any, second: Any = 0.0) -> RewardDistribution:
    """Return a distribution with two numbers per arm; the second may be shared."""
    means = np.array(first, np.float64)
    empty = np.zeros((0, 0))
    return RewardDistribution(
        code, means, np.broadcast_to(np.float64(second), means.shape).copy(), empty, empty
    )


def number(name: str, value: Any, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Check one finite number within limits."""
    return numbers(name, [value], least=least, most=most, one=True)[0]


def numbers(
    name: str, given: Any, *, least: float = -math.inf, most: float = math.inf, one: bool = False
) -> tuple[float, ...]:
    """Check finite numbers within limits, one per arm."""
    limits = [f">= {least:g}"] * (least > -math.inf) + [f"<= {most:g}"] * (most < math.inf)
    kind = "a finite number" if one else "finite numbers, one per arm"
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
    """Check rows of numbers."""
    try:
        rows = np.atleast_2d(np.asarray(given, np.float64))
    except (TypeError, ValueError):
        raise InvalidValue(name, given, allowed) from None
    if rows.ndim != 2 or not rows.size:
        raise InvalidValue(name, given, allowed)
    return rows


def count(name: str, value: Any) -> int:
    """Check a number of arms."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= 10**6:
        raise InvalidValue(name, value, "a whole number from 1 to 1000000")
    return int(value)
