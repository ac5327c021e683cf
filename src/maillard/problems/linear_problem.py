"""Problems whose mean rewards are linear in features."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from maillard import specs
from maillard.array_types import Floats
from maillard.errors import InvalidValue
from maillard.problems import codes
from maillard.problems.contextual_problem import (
    DISJOINT,
    MODELS,
    SHARED,
    ContextBlock,
    ContextualProblem,
    block_sizes,
    check_dimension,
    checked_rows,
    digest,
    encoded,
)
from maillard.problems.problem import count, distribution_with, number

_ROWS = GAUSSIAN, SPHERE = ("gaussian", "sphere")
_NOISE = _, BERNOULLI = ("gaussian", "bernoulli")
_SHAPES = {
    DISJOINT: ("contexts x features",),
    SHARED: ("arms x features", "contexts x arms x features"),
}
_ARMS, _DIM = 10, 5  # unless the rows or coefficients determine them


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Linear(ContextualProblem):
    """The mean reward of an arm is centre + x' theta.

    With `model="disjoint"`, a context is one row x, and each arm has its own coefficients theta. With
    `model="shared"`, each arm has its own row, and there is one theta.

    - `rows`: "sphere" draws rows uniformly from the unit sphere. "gaussian" draws independent normal entries
      and divides them by `bound` (2 sqrt(dim) by default); longer rows than 1 are shortened to 1. Or an array
      of your own: contexts (n x d) or, for a shared model, arms (K x d) or contexts (n x K x d). Its entries
      must lie from -1 to 1, or are divided by a `bound`.
    - `redraw`: whether new rows are drawn in every round, or once per trial. Arms of your own (K x d) are
      fixed.
    - `coefficients`: theta (d), or one row for each arm of a disjoint model (K x d). By default, they are
      drawn in each trial, uniformly with length `norm`.
    - `noise`: "gaussian" with a `variance`, or "bernoulli" for rewards 0 and 1.

    >>> str(Linear(arms=3, dim=2, model="shared", noise="bernoulli"))
    'linear:arms=3,dim=2,model=shared,noise=bernoulli'
    """

    arms: int = None  # type: ignore[assignment]  # replaced by the number of arms
    dim: int = None  # type: ignore[assignment]  # replaced by the number of features
    model: str = DISJOINT
    rows: Any = SPHERE
    redraw: bool = True
    noise: str = "gaussian"
    variance: float = 0.25
    norm: float = 0.5
    centre: float = 0.5
    bound: float | None = None
    coefficients: Any = None
    name: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, words in (("model", MODELS), ("noise", _NOISE)):
            if getattr(self, name) not in words:
                raise InvalidValue(name, getattr(self, name), " or ".join(words))
        if not isinstance(self.redraw, bool):
            raise InvalidValue("redraw", self.redraw, "true or false")
        for name, least in (("variance", 0.0), ("norm", 0.0), ("centre", -np.inf)):
            self._set(name, number(name, getattr(self, name), least=least))
        if self.bound is not None:
            self._set("bound", number("bound", self.bound, least=1e-100))
        self._set_rows()
        self._set_coefficients()
        if self.noise == BERNOULLI:
            self._check_probabilities()

    def _set_rows(self) -> None:
        arms, dim = self.arms, self.dim
        if isinstance(self.rows, str):
            if self.rows not in _ROWS:
                raise InvalidValue("rows", self.rows, "gaussian, sphere, or an array of rows")
            if np.ndim(self.coefficients) == 2:
                arms = len(self.coefficients) if arms is None else arms
            if np.ndim(self.coefficients) in (1, 2):
                dim = np.shape(self.coefficients)[-1] if dim is None else dim
            self._set("arms", count("arms", _ARMS if arms is None else arms))
            self._set("dim", check_dimension("dim", _DIM if dim is None else dim))
            return
        rows = checked_rows("rows", self.rows, self.bound, _SHAPES[self.model])
        self._set("rows", rows)
        found = {"dim": rows.shape[-1]}
        if self.shared:
            found["arms"] = rows.shape[-2]
        elif np.ndim(self.coefficients) == 2:
            found["arms"] = len(self.coefficients)
        for name, value in found.items():
            if getattr(self, name) not in (None, value):
                raise InvalidValue(name, getattr(self, name), f"{value}, as in the array")
            self._set(name, value)
        self._set("arms", count("arms", _ARMS if self.arms is None else self.arms))

    def _set_coefficients(self) -> None:
        if self.coefficients is None:
            return
        shape = (self.dim,) if self.shared else (self.arms, self.dim)
        allowed = " x ".join(map(str, shape)) + f" finite numbers, because the model is {self.model}"
        try:
            theta = np.array(self.coefficients, np.float64)
        except (TypeError, ValueError):
            raise InvalidValue("coefficients", self.coefficients, allowed) from None
        if theta.shape != shape or not np.isfinite(theta).all():
            raise InvalidValue("coefficients", self.coefficients, allowed)
        theta.flags.writeable = False
        self._set("coefficients", theta)

    def _check_probabilities(self) -> None:
        """Raise an error if a mean may lie outside of 0 to 1."""
        longest = 1.0
        if not isinstance(self.rows, str):
            longest = float(np.sqrt(np.max(np.sum(self.rows * self.rows, axis=-1))))
        if self.coefficients is None:
            most = longest * self.norm
        elif isinstance(self.rows, str):
            most = float(np.sqrt(np.max(np.sum(np.square(self.coefficients), axis=-1))))
        else:
            most = float(np.max(np.abs(self.rows @ self.coefficients.T)))
        room = min(self.centre, 1.0 - self.centre)
        if most > room * (1.0 + 1e-12):
            allowed = f"at most {room:g} around the centre {self.centre:g}, so that probabilities are 0 to 1"
            raise InvalidValue("largest x' theta with noise=bernoulli", most, allowed)

    @property
    def binary(self) -> bool:  # type: ignore[override]  # the same
        return self.noise == BERNOULLI

    @property
    def support(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.noise == BERNOULLI else (-np.inf, np.inf)

    @property
    def sigma2(self) -> float | None:
        return 0.25 if self.noise == BERNOULLI else self.variance or None

    def contexts(self, rng: np.random.Generator, horizon: int) -> Iterator[ContextBlock]:
        theta = self.coefficients
        if theta is None:
            theta = self.norm * _on_sphere(rng, (self.dim,) if self.shared else (self.arms, self.dim))
        own = not isinstance(self.rows, str)
        fixed = None if not own and self.redraw else self.rows if own else self._draw(rng, 1)
        if fixed is not None and self.shared and fixed.ndim == 2:
            fixed = fixed[np.newaxis]  # one context with a row for each arm
        grid = None if fixed is None else encoded(fixed)
        for rounds in block_sizes(horizon, (1 if fixed is not None else self.dim) * self.arms):
            if grid is None or fixed is None:
                rows, row = self._draw(rng, rounds), np.arange(rounds)
                yield self._block(rows, encoded(rows), row, theta)
            else:
                row = rng.integers(len(fixed), size=rounds) if len(fixed) > 1 else np.zeros(rounds, np.int64)
                yield self._block(fixed, grid, row, theta)

    def _draw(self, rng: np.random.Generator, contexts: int) -> Floats:
        shape = (contexts, self.arms, self.dim) if self.shared else (contexts, self.dim)
        if self.rows == SPHERE:
            return _on_sphere(rng, shape)
        rows = rng.standard_normal(shape) / (self.bound or 2.0 * np.sqrt(self.dim))
        length = np.sqrt(np.sum(rows * rows, axis=-1, keepdims=True))
        return np.asarray(rows / np.maximum(length, 1.0))

    def _block(self, rows: Floats, grid: Floats, row: Any, theta: Floats) -> ContextBlock:
        means = self.centre + (rows @ theta if self.shared else rows @ theta.T)
        if self.noise == BERNOULLI:
            means = np.clip(means, 0.0, 1.0)  # rounding may leave the interval
            rewards = distribution_with(codes.BERNOULLI, means.ravel())
        else:
            rewards = distribution_with(codes.GAUSSIAN, means.ravel(), np.sqrt(self.variance))
        return ContextBlock(grid, row, means, rewards, row, np.zeros(row.size, np.int64))

    def spec(self) -> specs.Spec:
        options = super().spec().options
        for name in ("rows", "coefficients"):
            if isinstance(options.get(name), np.ndarray):  # for people: it cannot be parsed
                options[name] = f"array {digest(options[name])}"
        if not isinstance(self.rows, str):
            options.pop("bound", None)  # the rows have been divided
        return specs.Spec(self.name, (), {"arms": self.arms, "dim": self.dim, **options})


def _on_sphere(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw vectors of length 1, uniformly."""
    vectors = rng.standard_normal(shape)
    length = np.sqrt(np.sum(vectors * vectors, axis=-1, keepdims=True))
    return np.asarray(vectors / np.maximum(length, 1e-300))


def sphere(arms: int = 500, dim: int = 2, **options: Any) -> Linear:
    """Arms drawn uniformly from the unit sphere once per trial, with shared coefficients of length 1."""
    defaults = {"norm": 1.0, "centre": 0.0, "variance": 1.0, "redraw": False, "model": SHARED}
    return Linear(arms=arms, dim=dim, **{**defaults, **options})


def end_of_optimism(eps: float = 0.005, **options: Any) -> Linear:
    """Arms e1, e2 and (1 - eps, 2 eps), theta = e1: pulling the bad arm e2 is the best way to learn."""
    small = number("eps", eps, least=0.0, most=0.5)
    rows = [[1.0, 0.0], [0.0, 1.0], [1.0 - small, 2.0 * small]]
    defaults = {"variance": 1.0, "centre": 0.0, "model": SHARED}
    return Linear(rows=rows, coefficients=[1.0, 0.0], **{**defaults, **options})
