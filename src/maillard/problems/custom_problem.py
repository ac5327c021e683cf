"""Problems whose rewards come from a function of the user."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar

from maillard import specs
from maillard.errors import InvalidValue
from maillard.problems import codes
from maillard.problems.problem import Problem


@dataclasses.dataclass(frozen=True, repr=False)
class Custom(Problem):
    """Rewards from your own function: `sampler(rng, arm)` returns a reward. The regret needs the true means.

    There are three types of samplers. One that is compiled with `numba.njit` is about as fast as the built-in
    problems. One with a third parameter, `sampler(rng, arm, size)`, returns an array of `size` rewards. Any
    other function is called in every round.

    >>> from math import pi
    >>> problem = Custom(lambda rng, arm: rng.vonmises([0, 1][arm], 2.0), means=[0.0, 1.0], limits=(-pi, pi))
    >>> problem.arms, problem.is_vectorised
    (2, False)
    >>> Custom(lambda rng, arm, size: rng.normal([0, 1][arm], 1, size), means=[0.0, 1.0]).is_vectorised
    True
    """

    sampler: Callable[..., Any]
    means: tuple[float, ...]
    limits: tuple[float, float] = (-math.inf, math.inf)
    name: ClassVar[str] = "custom"
    code: ClassVar[int] = codes.OWN

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "a function of (rng, arm), or of (rng, arm, size)"
        if not callable(self.sampler):
            raise InvalidValue("sampler", self.sampler, allowed)
        signature = _signature(self.sampler)
        try:
            if signature:
                signature.bind(*["rng", "arm", "size"][: 2 + self.is_vectorised])
        except TypeError:
            raise InvalidValue("sampler", f"{_name(self.sampler)}{signature}", allowed) from None
        try:
            low, high = (float(end) for end in self.limits)
        except (TypeError, ValueError):
            low = high = math.nan
        if not low < high:
            raise InvalidValue("limits", self.limits, "(low, high), low < high")
        self._set("limits", (low, high))

    @property
    def is_vectorised(self) -> bool:
        """Whether the third parameter of the sampler is `size`, so that a call returns several rewards."""
        signature = _signature(self.sampler)
        return signature is not None and list(signature.parameters)[2:3] == ["size"]

    @property
    def support(self) -> tuple[float, float]:
        return self.limits

    def spec(self) -> specs.Spec:
        name, values, options = super().spec()
        return specs.Spec(name, values, {**options, "sampler": _name(self.sampler)})


def _signature(sampler: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a sampler; None if it has none, as some functions written in C."""
    try:
        return inspect.signature(sampler)
    except (TypeError, ValueError):
        return None


def _name(sampler: Callable[..., Any]) -> str:
    return str(getattr(sampler, "__name__", type(sampler).__name__))
