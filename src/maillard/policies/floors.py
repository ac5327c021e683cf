"""A lower bound (floor) on the probability of every arm, mixed into a policy exactly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from maillard import specs
from maillard.array_types import Bools, Floats, Ints
from maillard.errors import InvalidValue
from maillard.policies.base import Policy, linear_regret
from maillard.policies.base.arm_matrices import FEW_ARMS, count_arms, exact_sums
from maillard.policies.base.formula_versions import earlier_version
from maillard.policies.base.policy import rounding_error

_LOG_2 = math.log(2.0)
_LINEAR = linear_regret(
    "immediate: a floor pulls every arm at a constant rate", "In exchange, its log can evaluate every arm."
)
_DECAYING = dataclasses.replace(
    _LINEAR,
    minimax_ratio=None,
    source="immediate: Σ ε t^-decay rounds of exploration",
    note="Exploration alone takes about ε T^(1 - decay) / (1 - decay) rounds: regret of at least that order.",
)


class WithFloor(Policy, kw_only=False):
    """Mixes a policy with a constant probability for each eligible arm.

    A single `epsilon` gives (1 - ε) p + ε / K, so every eligible arm has at least probability ε / K. One
    number per arm gives (1 - Σε) p + ε_a, for example to guarantee the traffic of a control arm. With a
    `decay`, round t uses ε t^-decay in place of ε; t is 1 + the number of observed rewards.

    >>> from maillard import MaillardSampling, Tally
    >>> tally = Tally([4, 4], [4, 0])
    >>> WithFloor(MaillardSampling(sigma2=0.25), 0.1).probabilities(tally).round(4)
    array([0.9497, 0.0503])
    >>> WithFloor(MaillardSampling(sigma2=0.25), (0, 0.25)).probabilities(tally).round(4)
    array([0.7497, 0.2503])
    >>> WithFloor(MaillardSampling(sigma2=0.25), 1, decay=0.5).probabilities(tally).round(4)
    array([0.8331, 0.1669])
    """

    formula: ClassVar[str] = "(1 - ε) p + ε / K, with ε t^-decay in place of ε if there is a decay"
    latex: ClassVar[str] = (
        r"\left(1 - \varepsilon t^{-\mathrm{decay}}\right) p_a + \frac{\varepsilon t^{-\mathrm{decay}}}{K}"
    )

    policy: Policy
    epsilon: float | tuple[float, ...] = dataclasses.field()
    decay: float = dataclasses.field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.policy, Policy) or isinstance(self.policy, WithFloor):
            raise InvalidValue("WithFloor: policy", self.policy, "a policy without a floor")
        inner, epsilon, decay = self.policy, _check_epsilon(self.epsilon), _check_decay(self.decay)
        deterministic = inner.probability_kind == "deterministic"
        linear = inner.guarantees.minimax_ratio == _LINEAR.minimax_ratio
        floored = dataclasses.replace(
            _LINEAR if not decay else inner.guarantees if linear else _DECAYING,
            anytime=inner.guarantees.anytime,
            closed_form_probability=deterministic or inner.guarantees.closed_form_probability,
        )
        # The wrapper has the name of its policy. With a floor, a deterministic choice has closed-form
        # probabilities.
        for name, value in {
            "epsilon": epsilon,
            "decay": decay,
            "name": inner.name,
            "support": inner.support,
            "requires_binary_rewards": inner.requires_binary_rewards,
            "requires_positive_rewards": inner.requires_positive_rewards,
            "formula_version": inner.formula_version,
            "uses_context": inner.uses_context,
            "probability_kind": "closed form" if deterministic else inner.probability_kind,
            "guarantees": floored if np.any(epsilon) else inner.guarantees,
        }.items():
            object.__setattr__(self, name, value)

    def spec(self) -> specs.Spec:
        name, values, options = self.policy.spec()
        decay = {"floor_decay": self.decay} if self.decay else {}
        return specs.Spec(name, values, {**options, "floor": self.epsilon, **decay})

    def _parameter_rows(self) -> list[tuple[str, Any, Any, str, str]]:
        floor = "ε: probability that is divided equally among the arms, or a probability for each arm"
        allowed = "a number from 0 to 1, or one for each arm with a sum of at most 1"
        rows: list[tuple[str, Any, Any, str, str]] = [("floor", self.epsilon, None, floor, allowed)]
        meaning = "in round t, ε t^-decay takes the place of ε"
        return [*rows, ("floor_decay", self.decay, 0.0, meaning, "a number >= 0 and < 1")]

    def bind(self, arms: Sequence[str]) -> WithFloor:
        return WithFloor(self.policy.bind(arms), self.epsilon, decay=self.decay)

    def _earlier_version(self, version: int) -> Self | None:
        inner = earlier_version(self.policy, version)
        return None if inner is None else type(self)(inner, self.epsilon, decay=self.decay)

    def floor_probabilities(self, arms: int) -> Floats:
        """Return the constant probability of each arm in round 1; without a decay, in every round.

        >>> from maillard import UCB1
        >>> WithFloor(UCB1(sigma2=0.25), 0.2).floor_probabilities(arms=4)
        array([0.05, 0.05, 0.05, 0.05])
        """
        if isinstance(self.epsilon, float):
            return np.full(arms, self.epsilon / arms)
        if len(self.epsilon) != arms:
            allowed = f"one number, or {arms} numbers, one per arm"
            raise InvalidValue("floor", self.epsilon, allowed)
        return np.array(self.epsilon)

    def constant_probabilities(self, arms: int) -> Floats | None:
        if self.decay:
            return None
        own, inner = self.floor_probabilities(arms), self.policy.constant_probabilities(arms)
        return own if inner is None else own + max(0.0, 1.0 - math.fsum(own)) * inner

    @property
    def needs_horizon(self) -> bool:
        return self.policy.needs_horizon

    def _prepare(self, tally: Any, x: Any) -> tuple[Any, Any, int]:
        tally, x, arms = self.policy._prepare(tally, x)
        if not isinstance(self.epsilon, float):
            self.floor_probabilities(arms)  # raises for another number of arms
        return tally, x, arms

    def _check_use(self, tally: Any) -> None:
        self.policy._check_use(tally)

    def _solve_arms(
        self, tally: Any, x: Any, mask: Bools | None, t: int, bounds: bool
    ) -> tuple[Floats, Floats | None]:
        floor = self._floor(t)
        own = floor if mask is None or isinstance(floor, float) else floor[mask]
        return self._mix(*self.policy._solve_arms(tally, x, mask, t, bounds), own)

    @property
    def solves_many(self) -> bool:
        return super().solves_many and self.policy.solves_many

    def _solve_many(self, n: Floats, s: Floats, t: Floats, eligible: Bools | None) -> Floats | None:
        log = self.policy._solve_many(n, s, t, eligible)
        if log is None:
            return None
        scale = t**-self.decay if self.decay else 1.0
        if isinstance(self.epsilon, float):
            log = mix_uniform(log, scale * self.epsilon, count_arms(n, eligible))
        else:
            floors = scale * self.floor_probabilities(len(n))[:, None]
            log = mix(log, floors if eligible is None else np.where(eligible, floors, 0.0))
        return log if eligible is None else np.where(eligible, log, -np.inf)

    def _floor(self, t: int) -> float | Floats:
        """Return the floor of round t: one number, or one per arm."""
        scale = float(t) ** -self.decay if self.decay else 1.0
        return scale * (self.epsilon if isinstance(self.epsilon, float) else np.array(self.epsilon))

    @staticmethod
    def _mix(log: Floats, error: Floats | None, floor: float | Floats) -> tuple[Floats, Floats | None]:
        mixed = mix_uniform(log, floor, log.size) if isinstance(floor, float) else mix(log, floor)
        if error is None:
            return mixed, None
        # Only the part of the probability that comes from the policy has an error.
        with np.errstate(invalid="ignore"):
            fraction = np.where(log > -np.inf, np.exp(np.minimum(log - mixed, 0.0)), 0.0)
        relative_error = fraction * np.expm1(np.minimum(error, 700.0))
        # For an arm with a negligible probability, even a large error of its logarithm is a negligible
        # absolute error.
        bound = np.minimum(relative_error, 1e-15 * np.exp(-mixed))
        relative_error = np.where(log < -46.0, bound, relative_error)
        return mixed, np.log1p(relative_error) + rounding_error(mixed)


def mix_uniform(log: Floats, epsilon: float | Floats, k: int | Ints) -> Floats:
    """Return log((1 - ε) p + ε / K); for many tallies, ε and K may be one number per tally."""
    if isinstance(epsilon, float) and isinstance(k, int):
        rest, floor = _known_logarithms(epsilon, k)
        if log.size <= FEW_ARMS and log.ndim == 1:
            return np.array([min(_add_logarithms(rest + each, floor), 0.0) for each in log.tolist()])
    else:
        rest, floor = _logarithms(epsilon, k)
    mixed: Floats = np.logaddexp(rest + log, floor)
    return np.minimum(mixed, 0.0)


def _add_logarithms(x: float, y: float) -> float:
    """Return what `numpy.logaddexp` returns for two numbers."""
    if x == y:
        return x + _LOG_2
    return x + math.log1p(math.exp(y - x)) if x > y else y + math.log1p(math.exp(x - y))


def _logarithms(epsilon: float | Floats, k: int | Ints) -> tuple[Any, Any]:
    """Return log(1 - ε) and log(ε / K)."""
    with np.errstate(divide="ignore"):
        return np.log1p(-epsilon), np.log(epsilon) - np.log(k)


@lru_cache(maxsize=64)  # they are the same in every round without a decay
def _known_logarithms(epsilon: float, k: int) -> tuple[float, float]:
    rest, floor = _logarithms(epsilon, k)
    return float(rest), float(floor)


def mix(log: Floats, floors: Floats) -> Floats:
    """Return log((1 - Σε) p + ε_a), for one tally, or for one per column."""
    rest = np.maximum(0.0, 1.0 - exact_sums(floors))
    with np.errstate(divide="ignore"):
        mixed: Floats = np.logaddexp(np.log(rest) + log, np.log(floors))
    return np.minimum(mixed, 0.0)


def _check_epsilon(epsilon: Any) -> float | tuple[float, ...]:
    allowed = "a number from 0 to 1, or one number >= 0 per arm with a sum of at most 1"
    try:
        floors = np.asarray(epsilon, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue("floor", epsilon, allowed) from None
    # Rounding may lift the sum of decimal numbers, such as ten times 0.1, above 1.
    total = math.fsum(floors.ravel())
    if floors.ndim > 1 or not floors.size or not ((floors >= 0).all() and total <= 1 + 1e-12):
        raise InvalidValue("floor", epsilon, allowed)
    return min(1.0, float(floors)) if floors.ndim == 0 else tuple(floors.tolist())


def _check_decay(decay: Any) -> float:
    number = isinstance(decay, int | float | np.integer | np.floating) and not isinstance(decay, bool)
    if not number or not 0 <= decay < 1:
        raise InvalidValue("floor_decay", decay, "a number >= 0 and < 1")
    return float(decay)
