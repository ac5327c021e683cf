"""Problems: reward distributions of arms, by class, by spec string, and the ten of the paper by name.

>>> problem("gaussian-equal:arms=3").true_means
array([1. , 0.5, 0.5])
>>> problem("bernoulli:0.1,0.05,delay=batched:100").delay
Batched(rounds=100)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue, UnknownName
from maillard.problems.delays import Batched, Delay, Fixed, Geometric
from maillard.problems.problem import Problem, RewardDistribution, count
from maillard.problems.problem_classes import (
    Bernoulli,
    Bounded,
    Custom,
    DynamicBernoulli,
    Exponential,
    Gaussian,
    Poisson,
    UniformNoise,
)

__all__ = [
    "PAPER",
    "Batched",
    "Bernoulli",
    "Bounded",
    "Custom",
    "Delay",
    "DynamicBernoulli",
    "Exponential",
    "Fixed",
    "Gaussian",
    "Geometric",
    "Poisson",
    "Problem",
    "RewardDistribution",
    "UniformNoise",
    "names",
    "problem",
]

# The ten problems of the paper's Table 2.
PAPER = tuple(
    f"{noise}-{gaps}:arms={arms}"
    for noise in ("gaussian", "bernoulli")
    for gaps, counts in (("equal", (2, 10, 100)), ("linear", (10, 100)))
    for arms in counts
)


def _equal(best: float, others: float, arms: Any) -> list[float]:
    return [best] + [others] * (count("arms", arms) - 1)


def _linear(arms: Any) -> list[float]:
    """1 - i/K for i = 1, ..., K."""
    means: list[float] = (1.0 - np.arange(1, count("arms", arms) + 1) / arms).tolist()
    return means


_FAMILIES: dict[str, Callable[..., Problem]] = {
    "gaussian-equal": lambda arms=2, **rest: Gaussian(_equal(1.0, 0.5, arms), **rest),  # type: ignore[arg-type]
    "gaussian-linear": lambda arms=10, **rest: Gaussian(_linear(arms), **rest),  # type: ignore[arg-type]
    "bernoulli-equal": lambda arms=2, **rest: Bernoulli(_equal(0.1, 0.05, arms), **rest),  # type: ignore[arg-type]
    "bernoulli-linear": lambda arms=10, **rest: Bernoulli(_linear(arms), **rest),  # type: ignore[arg-type]
    "bernoulli-dynamic": lambda arms=10, **rest: DynamicBernoulli(arms, **rest),
}
_CLASSES: dict[str, type[Problem]] = {
    cls.name: cls for cls in (Gaussian, Bernoulli, Poisson, Exponential, UniformNoise, Bounded)
}


def names() -> list[str]:
    """Return the names of all problems that have a spec."""
    return sorted([*_FAMILIES, *_CLASSES])


def problem(given: str | Problem) -> Problem:
    """Return a problem from itself or from its spec.

    `gaussian-equal:arms=10,variance=1`, `bernoulli:0.1,0.05`.
    """
    if isinstance(given, Problem):
        return given
    if not isinstance(given, str):
        raise InvalidValue("problem", given, "a Problem or its spec, as in gaussian-equal:arms=10")
    name, values, options = specs.read(given)
    known = {"delay", "threshold", "epsilon"}
    if name in _FAMILIES:
        known |= {"arms"} | ({"variance"} if name.startswith("gaussian") else set())
        known |= {"rate", "a", "b"} if name == "bernoulli-dynamic" else set()
        _check(name, options, known)
        if values:
            raise InvalidValue(f"problem {given!r}", values[0], "arms=..., no means")
        made = _FAMILIES[name](**options)
        return dataclasses.replace(made, label=specs.write(specs.Spec(name, (), options)))
    if name not in _CLASSES:
        raise UnknownName("problem", name, names())
    fields = {field.name for field in dataclasses.fields(_CLASSES[name])}
    _check(name, options, fields - {"means", "probabilities", "label"})
    if not values:
        raise InvalidValue(f"problem {given!r}", values, f"one value for each arm, as in {name}:0.5,0.25")
    return _CLASSES[name](values, **options)  # type: ignore[call-arg, arg-type]  # checked there


def _check(name: str, options: dict[str, Any], known: set[str]) -> None:
    for key in options:
        if key not in known:
            raise UnknownName(f"parameter of {name}", key, sorted(known))
