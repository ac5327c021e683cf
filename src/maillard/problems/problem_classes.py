"""The classes of problems."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue
from maillard.problems import codes
from maillard.problems.problem import Problem, RewardDistribution, count, distribution_with, number, numbers

if TYPE_CHECKING:
    from maillard.problems.problem import Floats


@dataclasses.dataclass(frozen=True, repr=False)
class Gaussian(Problem):
    """Rewards are N(mean, variance), with one variance for all arms or one per arm.

    >>> str(Gaussian([1, 0.5], variance=0.25))
    'gaussian:1,0.5,variance=0.25'
    """

    means: tuple[float, ...]
    variance: float | tuple[float, ...] = 0.25
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        one = np.ndim(self.variance) == 0
        variance = numbers("variance", [self.variance] if one else self.variance, least=0.0)
        if not one and len(variance) != len(self.means):
            allowed = f"one number, or one for each of {len(self.means)} arms"
            raise InvalidValue("variance", self.variance, allowed)
        self._set("variance", variance[0] if one else variance)

    @property
    def sigma2(self) -> float | None:
        return float(np.max(self.variance)) or None

    def reward_distribution(self) -> RewardDistribution:
        return distribution_with(codes.GAUSSIAN, self.means, np.sqrt(self.variance))

    def spec(self) -> specs.Spec:
        name, values, options = super().spec()
        return specs.Spec(name, values, {"variance": self.variance, **options})


@dataclasses.dataclass(frozen=True, repr=False)
class Bernoulli(Problem):
    """Rewards 0 or 1.

    >>> Bernoulli([0.1, 0.05]).gaps
    array([0.  , 0.05])
    """

    means: tuple[float, ...]
    name: ClassVar[str] = "bernoulli"
    code: ClassVar[int] = codes.BERNOULLI
    binary: ClassVar[bool] = True
    mean_limits: ClassVar[tuple[float, float]] = (0.0, 1.0)
    reward_limits: ClassVar[tuple[float, float]] = (0.0, 1.0)


@dataclasses.dataclass(frozen=True, repr=False)
class Poisson(Problem):
    """Rewards are Poisson counts.

    >>> found = Poisson([2, 1.5])
    >>> found.gaps, found.support
    (array([0. , 0.5]), (0.0, inf))
    """

    means: tuple[float, ...]
    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = codes.POISSON
    mean_limits: ClassVar[tuple[float, float]] = (0.0, 1e15)
    reward_limits: ClassVar[tuple[float, float]] = (0.0, math.inf)


@dataclasses.dataclass(frozen=True, repr=False)
class Exponential(Problem):
    """Rewards are exponential with these means.

    >>> from maillard.problems import problem
    >>> problem("exponential:1,0.5") == Exponential([1, 0.5])
    True
    """

    means: tuple[float, ...]
    name: ClassVar[str] = "exponential"
    code: ClassVar[int] = codes.EXPONENTIAL
    positive: ClassVar[bool] = True  # 0 has probability 0
    mean_limits: ClassVar[tuple[float, float]] = (1e-100, math.inf)
    reward_limits: ClassVar[tuple[float, float]] = (0.0, math.inf)


@dataclasses.dataclass(frozen=True, repr=False)
class UniformNoise(Problem):
    """Rewards are uniform on [mean - width, mean + width].

    >>> UniformNoise([1, 0.5], width=0.25).support
    (0.25, 1.25)
    """

    means: tuple[float, ...]
    width: float = 0.5
    name: ClassVar[str] = "uniform-noise"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("width", number("width", self.width, least=0.0))

    @property
    def support(self) -> tuple[float, float]:
        return min(self.means) - self.width, max(self.means) + self.width

    @property
    def sigma2(self) -> float | None:
        """The variance proxy of noise of range 2 width."""
        return self.width**2 or None

    def reward_distribution(self) -> RewardDistribution:
        return distribution_with(codes.UNIFORM, self.means, self.width)


@dataclasses.dataclass(frozen=True, repr=False)
class Bounded(Problem):
    """Rewards from a finite set of values, each with its probability.

    `probabilities` has one row per arm. `values` is one row for all arms, or one row per arm.

    >>> Bounded([[0.5, 0.5, 0], [0, 0.5, 0.5]], values=[0, 0.5, 1]).true_means
    array([0.25, 0.75])
    """

    probabilities: tuple[tuple[float, ...], ...]
    values: tuple[Any, ...] = (0.0, 1.0)
    name: ClassVar[str] = "bounded"

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = _rows(self.probabilities)
        if not (rows.size and (rows >= 0).all() and np.allclose(rows.sum(axis=1), 1.0, rtol=0, atol=1e-9)):
            allowed = "rows of numbers >= 0 that add up to 1, one row per arm"
            raise InvalidValue("probabilities", self.probabilities, allowed)
        values, columns = _rows(self.values), rows.shape[1]
        if values.shape not in ((1, columns), rows.shape) or not np.isfinite(values).all():
            allowed = f"{columns} finite numbers, or a row of them for each arm"
            raise InvalidValue("values", self.values, allowed)
        self._set("probabilities", tuple(map(tuple, rows.tolist())))
        shared = len(values) == 1
        self._set("values", tuple(values[0].tolist()) if shared else tuple(map(tuple, values.tolist())))

    @property
    def true_means(self) -> Floats:
        return np.asarray((np.array(self.probabilities) * np.array(self.values)).sum(axis=1))

    @property
    def support(self) -> tuple[float, float]:
        return float(np.min(self.values)), float(np.max(self.values))

    @property
    def binary(self) -> bool:  # type: ignore[override]  # the same
        return set(np.ravel(self.values).tolist()) <= {0.0, 1.0}

    def reward_distribution(self) -> RewardDistribution:
        probabilities = np.array(self.probabilities)
        ends = np.cumsum(probabilities, axis=1)
        ends[ends >= ends[:, -1:]] = np.inf  # the last possible value takes the rounding error
        values = np.broadcast_to(np.array(self.values, np.float64), probabilities.shape)
        unused = np.zeros(len(probabilities))
        return RewardDistribution(codes.FINITE, unused, unused, values.copy(), ends)

    def spec(self) -> specs.Spec:
        options = super().spec().options
        options.pop("probabilities")
        options.pop("values", None)
        if np.ndim(self.values) != 1:  # for people: it cannot be parsed
            return specs.Spec(self.name, (*self.probabilities, *self.values), options)
        return specs.Spec(self.name, self.probabilities, {**options, "values": self.values})


def _rows(given: Any) -> Floats:
    """Return rows of numbers as a matrix; an empty one if they are none."""
    try:
        rows = np.atleast_2d(np.asarray(given, np.float64))
    except (TypeError, ValueError):
        rows = np.zeros((0, 0))
    return rows if rows.ndim == 2 else np.zeros((0, 0))


@dataclasses.dataclass(frozen=True, repr=False)
class DynamicBernoulli(Problem):
    """Bernoulli arms that are replaced: with probability `rate` per round, a new arm replaces a random one.

    Means are sampled from Beta(a, b), anew in each trial. Regret is measured against the best arm of each
    round.

    >>> DynamicBernoulli(arms=3, rate=0.01).churn
    (0.01, 4.0, 4.0)
    """

    arms: int = 10  # a field here; the number of means in other problems
    rate: float = 0.001
    a: float = 4.0
    b: float = 4.0
    name: ClassVar[str] = "bernoulli-dynamic"
    code: ClassVar[int] = codes.BERNOULLI
    binary: ClassVar[bool] = True
    reward_limits: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("arms", count("arms", self.arms))
        for name, least, most in (("rate", 0.0, 1.0), ("a", 1e-3, 1e6), ("b", 1e-3, 1e6)):
            self._set(name, number(name, getattr(self, name), least=least, most=most))
        if self.threshold is not None:
            raise InvalidValue("threshold", self.threshold, "None: arms are replaced during a trial")

    @property
    def true_means(self) -> Floats:
        """The mean of the Beta distribution of every arm's mean."""
        return np.full(self.arms, self.a / (self.a + self.b))

    @property
    def churn(self) -> tuple[float, ...]:
        return self.rate, self.a, self.b

    def spec(self) -> specs.Spec:
        return specs.Spec(self.name, (), {"arms": self.arms, **super().spec().options})
