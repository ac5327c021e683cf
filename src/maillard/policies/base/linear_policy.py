"""Linear policies: probabilities from feature rows and the exact statistics of linear models."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from maillard import specs
from maillard.array_types import Bools, Floats, Ints
from maillard.errors import InvalidValue
from maillard.feature_grid import GridRows, grid_units
from maillard.linear_tally import LinearTally
from maillard.policies.base.arm_matrices import FEW_ARMS, apply_formula, as_arm_vector
from maillard.policies.base.parameters import interval, real
from maillard.policies.base.policy import Policy, ProbabilityKind, log_normalise, rounding_error
from maillard.policies.numerics.linear_models import LinearModels
from maillard.policies.numerics.linear_scores import TIE, LinearScores, linear_scores

_CENTRE_HINT = " (or pass reward_range=(low, high), which sets the centre to its midpoint)"
_SIGMA2_HINT = (
    ", or bernoulli:p for p (1 - p) (or pass reward_range=(low, high), which sets (high - low)^2 / 4)"
)


class LinearPolicy(Policy):
    """Base class of policies that estimate the mean reward of each arm by ridge regression.

    `x` is one feature row for all arms if the tally is disjoint (one model per arm), or one row per arm if
    they share a model. With `V = ridge I + G`, the estimates are `theta = V^-1 (b - centre Sx)` and
    `mu_a = centre + x_a' theta`, and `s_a^2 = x_a' V^-1 x_a` measures their uncertainty.

    >>> from maillard import LinearTally, policy
    >>> tally = LinearTally.empty(features=2, arms=2)
    >>> tally.add([1, 0.5], 1.0, arm=1)
    >>> made = policy("lin-ms", reward_range=(0, 1))
    >>> isinstance(made, LinearPolicy), made.probabilities(tally, x=[1, 0.5]).round(3)
    (True, array([0.099, 0.901]))
    """

    uses_context: ClassVar[bool] = True
    has_prior: ClassVar[bool] = True
    range_width: ClassVar[float]  # of each instance: the width of the reward range; 1 if it is not declared
    uses_leaders: ClassVar[bool] = True  # without a bound on errors if rounding may decide who leads
    uses_uncertainty: ClassVar[bool] = True  # the distribution depends on s2, not only on mu

    ridge: float = real("λ: weight of the prior, V = λ I + G", default=1.0, above=0, at_most=1e100)
    centre: float = real(
        "c: estimate without data; the midpoint of the range", default=None, hint=_CENTRE_HINT
    )
    reward_range: tuple[float, float] | None = interval("smallest and largest reward; without it, 1 apart")

    def __post_init__(self) -> None:
        for name, value in self._implied().items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        super().__post_init__()
        low, high = (0.0, 1.0) if self.reward_range is None else self.reward_range
        object.__setattr__(self, "range_width", high - low)
        object.__setattr__(self, "_models", None)

    def _implied(self) -> dict[str, Any]:
        """Return the parameters that the reward range implies."""
        if self.reward_range is None:
            return {}
        _, parameter, _ = next(each for each in self.parameters() if each[0] == "reward_range")
        low, high = parameter.check(f"{self.name}: reward_range", self.reward_range)
        return {"centre": 0.5 * low + 0.5 * high}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_models": None}  # the factors can be computed again

    def spec(self) -> specs.Spec:
        implied = self._implied()
        name, values, options = super().spec()
        return specs.Spec(
            name, values, {key: value for key, value in options.items() if implied.get(key) != value}
        )

    def _prepare(self, tally: Any, x: Any) -> tuple[LinearTally, Ints, int]:
        if not isinstance(tally, LinearTally):
            raise InvalidValue("tally", tally, f"a LinearTally, because {self.name} uses features")
        size = tally.features
        if tally.arms is not None:
            if x is None:
                raise InvalidValue("x", x, f"the context's feature row, {size} numbers")
            return tally, grid_units(x, (size,))[:, np.newaxis], tally.arms
        try:
            shape = np.shape(x.units if isinstance(x, GridRows) else x)
        except ValueError:  # rows have different lengths
            shape = ()
        if len(shape) != 2 or not shape[0] or shape[1] != size:
            allowed = f"a feature row of {size} numbers for each arm, because all arms share one model"
            raise InvalidValue("x", x, allowed)
        return tally, grid_units(x, shape).T, shape[0]

    def _check_use(self, tally: Any) -> None:
        """Do nothing: the estimates are defined for all rewards."""

    def models(self, tally: LinearTally) -> LinearModels:
        """Return the factored models of a tally; those that have not changed since the last call are kept."""
        # Threads may share a policy. Each replaces the whole object, which is never changed.
        before: LinearModels | None = self.__dict__["_models"]
        models = LinearModels.of(tally, self.ridge, self.centre, before)
        if models is not before:
            object.__setattr__(self, "_models", models)
        return models

    def _solve_arms(
        self, tally: Any, x: Any, mask: Bools | None, t: int, bounds: bool
    ) -> tuple[Floats, Floats | None]:
        tolerance = TIE * self.range_width
        scores = linear_scores(self.models(tally), x, mask, t=t, centre=self.centre, tolerance=tolerance)
        log, error = self._solve_scores(scores, bounds)
        if bounds and self.uses_leaders and not scores.leaders_are_certain(scores.errors(self.centre)[0]):
            error = np.full(log.size, np.inf)
        return log, error

    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, Floats | None]:
        """Return log probabilities and, if `bounds` is true, bounds on their errors."""
        raise NotImplementedError

    def _normalise(self, weights: Floats) -> Floats:
        """Return log probabilities proportional to exp(weights)."""
        log = log_normalise(weights)
        if not log[0] <= 0.0:  # one NaN or inf among the weights makes every log probability NaN
            arm = int(np.argmax(~(weights < np.inf)))
            where = f"{self.name}: log weight of arm {arm}"
            raise InvalidValue(where, float(weights[arm]), "a number < inf")
        return log


class LinearSampled(LinearPolicy):
    """Base class of linear policies with log weights for leaders (arms with the largest mu) and rivals.

    Formulas are pure and elementwise. They take the numbers of one arm, or arrays with one number per arm.

    >>> from maillard import LinearTally
    >>> class Simple(LinearSampled):
    ...     def leader(self, s2, t): return 1.0
    ...     def rival(self, gap, s2, t): return -(gap**2) / s2
    >>> tally = LinearTally.empty(features=1, arms=2)
    >>> for reward in (1.0, 1.0, 1.0): tally.add([1], reward, arm=1)
    >>> Simple(centre=0.5).probabilities(tally, x=[1]).round(3)
    array([0.242, 0.758])
    """

    probability_kind: ClassVar[ProbabilityKind] = "closed form"
    engine_shape: ClassVar[str | None] = "linear-sampled"

    def leader(self, s2: Any, t: Any) -> Any:
        """Return the log weight of a leader whose estimate has the squared norm s2, in round t."""
        return 0.0 * s2

    def rival(self, gap: Any, s2: Any, t: Any) -> Any:
        """Return the log weight of an arm whose mu is smaller than the largest by `gap`."""
        raise NotImplementedError

    @np.errstate(all="ignore")  # a rival without uncertainty, s2 = 0, has the log weight -inf
    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, Floats | None]:
        log = self._solve_few(scores) if scores.mu.size <= FEW_ARMS else None
        if log is not None and not bounds:
            return log, None
        weights = self._weights(scores.gap, scores.s2, scores)
        log = self._normalise(weights) if log is None else log
        if not bounds:
            return log, None
        # The formula is evaluated with gaps and norms that are off by as much as rounding may have caused.
        mu, relative = scores.errors(self.centre)
        gap = np.where(scores.leads, 0.0, mu + mu.max())
        corners = [
            self._weights(np.maximum(scores.gap + off, 0.0), scores.s2 * factor, scores)
            for off in (-gap, gap)
            for factor in (1.0 - relative, 1.0 + relative)
        ]
        return log, normalised_error(log, spread(weights, corners))

    def _solve_few(self, scores: LinearScores) -> Floats | None:
        """Return the log probabilities, computed number by number; None if that needs arrays."""
        mu, s2, t = scores.mu.tolist(), scores.s2.tolist(), scores.t
        top = max(mu)
        least = top - scores.tolerance
        try:
            weights = [
                float(self.leader(width, t) if each >= least else self.rival(top - each, width, t))
                for each, width in zip(mu, s2, strict=True)
            ]
            largest = max(weights)
            total = math.log(sum([math.exp(weight - largest) for weight in weights]))
        except (ArithmeticError, AttributeError, TypeError, ValueError):  # a formula for arrays only
            return None
        return np.array([weight - largest - total for weight in weights]) if total < math.inf else None

    def _weights(self, gap: Floats, s2: Floats, scores: LinearScores) -> Floats:
        field = f"{self.name}: rival"
        weights = as_arm_vector(field, apply_formula(field, self.rival, gap, s2, scores.t), gap.size)
        of_leaders = s2[scores.leads], scores.t
        weights[scores.leads] = apply_formula(f"{self.name}: leader", self.leader, *of_leaders)
        return weights


class LinearIndexed(LinearPolicy):
    """Base class of linear policies that choose the arm with the largest index, ties uniformly at random.

    A subclass defines `index`. Indices closer than `tie_tolerance` count as equal.

    >>> import numpy as np
    >>> from maillard import LinearTally
    >>> class Hopeful(LinearIndexed):
    ...     def index(self, mu, s2, gap, t): return mu + 2 * np.sqrt(s2)
    >>> tally = LinearTally.empty(features=1, arms=2)
    >>> tally.add([1], 1.0, arm=1)
    >>> Hopeful(centre=0.5).probabilities(tally, x=[1])
    array([1., 0.])
    """

    probability_kind: ClassVar[ProbabilityKind] = "deterministic"
    engine_shape: ClassVar[str | None] = "linear-indexed"

    def index(self, mu: Any, s2: Any, gap: Any, t: Any) -> Any:
        """Return the index of an arm with this estimate, squared norm and gap, in round t."""
        raise NotImplementedError

    @property
    def tie_tolerance(self) -> float:
        """The difference up to which indices are equal: by default 2**-40 times the reward range."""
        return TIE * self.range_width

    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, None]:
        with np.errstate(all="ignore"):
            field = f"{self.name}: index"
            found = apply_formula(field, self.index, scores.mu, scores.s2, scores.gap, scores.t)
        index = as_arm_vector(field, found, scores.mu.size)
        top = np.maximum.reduce(index)
        if np.isnan(top):
            arm = int(np.argmax(np.isnan(index)))
            raise InvalidValue(f"{self.name}: index of arm {arm}", float(top), "a number")
        # If every index is -inf, all are equal; inf - tolerance is inf.
        wins = index >= top - self.tie_tolerance
        return np.where(wins, -np.log(np.count_nonzero(wins)), -np.inf), None


class LinearNoise(LinearPolicy):
    """The parameter sigma2 of a linear policy: rewards are sigma2-sub-Gaussian around their means.

    `bernoulli:p` is the variance of rewards that are either the smallest or the largest, the latter with
    probability p: p (1 - p) times the squared width of the range.

    >>> from maillard import LinearUCB
    >>> round(LinearUCB(sigma2="bernoulli:0.1", reward_range=(0, 1)).sigma2, 4)
    0.09
    """

    sigma2: float = real(
        "rewards are sigma2-sub-Gaussian; or bernoulli:p", default=None, hint=_SIGMA2_HINT,
        above=0, at_most=1e100, min_magnitude=1e-100,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if isinstance(self.sigma2, str):
            word, _, text = self.sigma2.partition(":")
            try:
                p = float(text) if word.strip() == "bernoulli" else np.nan
            except ValueError:
                p = np.nan
            if not 0.0 < p < 1.0:
                allowed = "a finite number > 0, or bernoulli:p with 0 < p < 1, as in sigma2=bernoulli:0.05"
                raise InvalidValue(f"{self.name}: sigma2", self.sigma2, allowed)
            largest = self._implied().get("sigma2", 0.25)  # the variance for p = 1/2
            object.__setattr__(self, "sigma2", 4.0 * p * (1.0 - p) * largest)
        super().__post_init__()

    def _implied(self) -> dict[str, Any]:
        implied = super()._implied()
        if self.reward_range is not None:
            low, high = self.reward_range
            implied["sigma2"] = (high - low) * (high - low) / 4
        return implied


def spread(weights: Floats, corners: list[Floats]) -> Floats:
    """Return the largest difference between each log weight and its other values."""
    different = [np.where(weights == each, 0.0, np.abs(weights - each)) for each in corners]
    largest: Floats = np.maximum.reduce(different)
    return largest


def normalised_error(log: Floats, spread: Floats) -> Floats:
    """Return bounds on the errors of log probabilities, given those of the log weights before normalising."""
    with np.errstate(over="ignore", invalid="ignore"):
        others = np.where(log > -np.inf, np.exp(log) * np.expm1(spread), 0.0)
    total: Floats = spread + np.log1p(others.sum()) + rounding_error(log)
    return total
