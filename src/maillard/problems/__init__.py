"""Problems: reward distributions of arms, by class, by spec string, and the ten of the paper by name.

>>> problem("gaussian-equal:arms=3").true_means
array([1. , 0.5, 0.5])
>>> problem("bernoulli:0.1,0.05,delay=batched:100").delay
Batched(rounds=100)
>>> problem("sphere:arms=500,dim=2").model
'shared'
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue, UnknownName
from maillard.problems.classification_problem import Classification
from maillard.problems.contextual_problem import ContextBlock, ContextualProblem
from maillard.problems.custom_problem import Custom
from maillard.problems.delays import Batched, Delay, Fixed, Geometric
from maillard.problems.linear_problem import Linear, end_of_optimism, sphere
from maillard.problems.problem import Problem, RewardDistribution, count
from maillard.problems.problem_classes import (
    Bernoulli,
    Bounded,
    DynamicBernoulli,
    Exponential,
    Gaussian,
    Poisson,
    UniformNoise,
)
from maillard.problems.segmented_problem import Segmented

__all__ = [
    "PAPER",
    "Batched",
    "Bernoulli",
    "Bounded",
    "Classification",
    "ContextBlock",
    "ContextualProblem",
    "Custom",
    "Delay",
    "DynamicBernoulli",
    "Exponential",
    "Fixed",
    "Gaussian",
    "Geometric",
    "Linear",
    "Poisson",
    "Problem",
    "RewardDistribution",
    "Segmented",
    "UniformNoise",
    "names",
    "problem",
]


def __dir__() -> list[str]:
    return sorted(__all__)


PAPER = tuple(
    f"{noise}-{gaps}:arms={arms}"
    for noise in ("gaussian", "bernoulli")
    for gaps, counts in (("equal", (2, 10, 100)), ("linear", (10, 100)))
    for arms in counts
)
"The specs of the ten problems of the paper's Table 2."


def _equal(best: float, others: float, arms: Any) -> list[float]:
    return [best] + [others] * (count("arms", arms) - 1)


def _linear(arms: Any) -> list[float]:
    """1 - i/K for i = 1, ..., K."""
    means: list[float] = (1.0 - np.arange(1, count("arms", arms) + 1) / arms).tolist()
    return means


# The class of each family of problems, and its means (or the number of arms) from the option `arms`.
_FAMILIES: dict[str, tuple[type[Problem], Callable[..., Any]]] = {
    "gaussian-equal": (Gaussian, lambda arms=2: _equal(1.0, 0.5, arms)),
    "gaussian-linear": (Gaussian, lambda arms=10: _linear(arms)),
    "bernoulli-equal": (Bernoulli, lambda arms=2: _equal(0.1, 0.05, arms)),
    "bernoulli-linear": (Bernoulli, lambda arms=10: _linear(arms)),
    "bernoulli-dynamic": (DynamicBernoulli, lambda arms=10: arms),
}
_CLASSES: dict[str, type[Problem]] = {
    cls.name: cls for cls in (Gaussian, Bernoulli, Poisson, Exponential, UniformNoise, Bounded)
}
# Problems with contexts: their constructors and options.
_LINEAR = {field.name for field in dataclasses.fields(Linear)} - {"label", "coefficients"}
_CONTEXTUAL: dict[str, tuple[Callable[..., Linear], set[str]]] = {
    "linear": (Linear, _LINEAR),
    "sphere": (sphere, _LINEAR - {"model", "rows"}),
    "end-of-optimism": (end_of_optimism, {"eps", "variance", "noise", "centre"}),
}


def names() -> list[str]:
    """Return the names of all problems that have a spec.

    >>> names()[:3]
    ['bernoulli', 'bernoulli-dynamic', 'bernoulli-equal']
    """
    return sorted([*_FAMILIES, *_CLASSES, *_CONTEXTUAL, Segmented.name])


def problem(given: str | Problem) -> Problem:
    """Return the `given` problem, or that of a spec.

    `gaussian-equal:arms=10,variance=1`, `bernoulli:0.1,0.05`.

    >>> problem("gaussian-equal:arms=10,variance=1").arms
    10
    >>> [problem(each).arms for each in PAPER]
    [2, 10, 100, 10, 100, 2, 10, 100, 10, 100]
    >>> problem("bernoulli:0.1,0.05").true_means
    array([0.1 , 0.05])
    """
    if isinstance(given, Problem):
        return given
    if not isinstance(given, str):
        raise InvalidValue("problem", given, "a Problem or its spec, as in gaussian-equal:arms=10")
    name, values, options = specs.read(given)
    if name not in names():
        raise UnknownName("problem", name, names())
    if name in _CONTEXTUAL or name == Segmented.name:
        return _contextual(given, name, values, options)
    cls = _CLASSES[name] if name in _CLASSES else _FAMILIES[name][0]
    known = {field.name for field in dataclasses.fields(cls)} - {"means", "probabilities", "label"}
    known |= {"arms"} if name in _FAMILIES else set()
    for key in options:
        if key not in known:
            raise UnknownName(f"parameter of {name}", key, sorted(known))
    make: Any = cls  # the constructor checks the values
    if name in _CLASSES:
        if not values:
            raise InvalidValue(f"problem {given!r}", values, f"one value for each arm, as in {name}:0.5,0.25")
        return make(values, **options)  # type: ignore[no-any-return]
    if values:
        raise InvalidValue(f"problem {given!r}", values[0], "arms=..., no means")
    label = specs.write(specs.Spec(name, (), options))
    arms = {"arms": options.pop("arms")} if "arms" in options else {}
    return make(_FAMILIES[name][1](**arms), **options, label=label)  # type: ignore[no-any-return]


def _contextual(given: str, name: str, values: tuple[Any, ...], options: dict[str, Any]) -> Problem:
    """Return a problem with contexts from its spec."""
    if values:
        raise InvalidValue(f"problem {given!r}", values[0], "parameters as key=value")
    if name == Segmented.name:
        weights = options.pop("weights", ())
        return Segmented(options, weights)
    make, known = _CONTEXTUAL[name]
    for key in options:
        if key not in known:
            raise UnknownName(f"parameter of {name}", key, sorted(known))
    label = "" if name == Linear.name else specs.write(specs.Spec(name, (), options))
    return make(**options, label=label)
