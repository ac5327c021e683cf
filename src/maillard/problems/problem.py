"""The base class of problems."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue
from maillard.problems.delays import Delay, delay
from maillard.short_reprs import dataclass_repr, fields_repr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class RewardDistribution(NamedTuple):
    """The reward distributions of all arms as engines read them.

    A code, two numbers per arm, and the values of a finite support and where their probabilities end.

    >>> from maillard.problems import Gaussian
    >>> found = Gaussian([1, 0.5], variance=0.25).reward_distribution()
    >>> found.first, found.second  # means and standard deviations
    (array([1. , 0.5]), array([0.5, 0.5]))
    """

    code: int
    first: Floats
    second: Floats
    values: Floats = np.zeros((0, 0))
    ends: Floats = np.zeros((0, 0))

    def __repr__(self) -> str:
        return fields_repr("RewardDistribution", self._asdict().items())


@dataclasses.dataclass(frozen=True, repr=False)
class Problem:
    """Arms with true means, and everything a simulation must know about their rewards.

    `delay` determines when rewards are observed: a `Delay`, a spec such as `batched:100`, or a number of
    rounds. With a `threshold`, the problem is to find which arms' means reach it: the result is then the 0/1
    loss of the answer instead of regret, ignoring arms within `epsilon` of the threshold.

    >>> from maillard.problems import Bernoulli
    >>> found = Bernoulli([0.1, 0.05, 0.05])
    >>> found.arms, found.gaps, found.sigma2, found.spec().values
    (3, array([0.  , 0.05, 0.05]), 0.25, (0.1, 0.05, 0.05))
    >>> found.reward_distribution().first
    array([0.1 , 0.05, 0.05])
    """

    delay: Delay | str | float | None = dataclasses.field(default=None, kw_only=True)
    threshold: float | None = dataclasses.field(default=None, kw_only=True)
    epsilon: float = dataclasses.field(default=0.0, kw_only=True)
    label: str = dataclasses.field(default="", kw_only=True, compare=False, repr=False)

    name: ClassVar[str]
    contextual: ClassVar[bool] = False  # whether mean rewards depend on a context
    binary: ClassVar[bool] = False  # rewards are 0 or 1
    mean_limits: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    reward_limits: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    code: ClassVar[int]  # of the reward distribution

    __repr__ = dataclass_repr

    def __post_init__(self) -> None:
        self._set("delay", delay(self.delay))
        if self.threshold is not None:
            self._set("threshold", number("threshold", self.threshold))
        self._set("epsilon", number("epsilon", self.epsilon, least=0.0))
        if "means" in self.__dataclass_fields__:
            least, most = self.mean_limits
            self._set("means", numbers("means", self.means, least=least, most=most))  # type: ignore[attr-defined]

    def _set(self, name: str, value: Any) -> None:
        """Replace a field of this frozen dataclass by its checked value."""
        object.__setattr__(self, name, value)

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
        return np.asarray(self.true_means.max() - self.true_means)

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
        return isinstance(self.delay, Delay) and not self.delay.is_none

    @property
    def measure(self) -> str:
        """What a simulation reports: regret, or the 0/1 loss of a threshold problem."""
        return "regret" if self.threshold is None else "loss"

    @property
    def churn(self) -> tuple[float, ...]:
        """The probability per round that an arm is replaced, and the Beta parameters of means; or empty."""
        return ()

    def reward_distribution(self) -> RewardDistribution:
        """Return the reward distribution of every arm, as engines read it."""
        return distribution_with(self.code, self.true_means)

    def spec(self) -> specs.Spec:
        """Return the problem as a spec."""
        options = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            changed = isinstance(value, np.ndarray) or value != field.default
            if field.name not in ("means", "label") and changed:
                options[field.name] = str(value) if isinstance(value, Delay) else value
        return specs.Spec(self.name, tuple(getattr(self, "means", ())), options)

    def __str__(self) -> str:
        return self.label or specs.write(self.spec())


def distribution_with(code: int, first: Any, second: Any = 0.0) -> RewardDistribution:
    """Return a distribution with two numbers per arm; the second may be shared."""
    means = np.array(first, np.float64)
    return RewardDistribution(code, means, np.full(means.shape, second, np.float64))


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


def count(name: str, value: Any) -> int:
    """Check a number of arms."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= 10**6:
        raise InvalidValue(name, value, "a whole number from 1 to 1000000")
    return int(value)
