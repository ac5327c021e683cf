"""Parameters that several policies share: sigma2, the reward family, the horizon, boosters, bonus widths."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import InitVar
from typing import Any, ClassVar

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies.base.parameters import check_range, choice, real, whole
from maillard.policies.base.policy import Policy
from maillard.policies.numerics.families import FAMILIES

# These limits keep every formula within the range of floats.
_positive = functools.partial(real, above=0, at_most=1e100, min_magnitude=1e-100)
_REWARD_RANGE_HINT = " (or pass reward_range=(low, high), which sets sigma2 = (high - low)^2 / 4)"


class SubGaussianRewards(Policy):
    """The parameter sigma2: rewards are sigma2-sub-Gaussian.

    For bounded rewards, `reward_range=(low, high)` sets sigma2 = (high - low)^2 / 4.
    """

    sigma2: float = _positive("rewards are sigma2-sub-Gaussian", hint=_REWARD_RANGE_HINT)
    reward_range: InitVar[tuple[float, float] | None] = None

    def __post_init__(self, reward_range: tuple[float, float] | None = None) -> None:
        if reward_range is not None:
            low, high = check_range(f"{self.name}: reward_range", reward_range)
            if self.sigma2 is None:
                object.__setattr__(self, "sigma2", (high - low) * (high - low) / 4)
        super().__post_init__()


class FamilyRewards(SubGaussianRewards):
    """The parameter family: the reward distributions. Only the Gaussian family uses sigma2."""

    sigma2: float = _positive("variance of Gaussian rewards", hint=_REWARD_RANGE_HINT, optional=True)
    family: str = choice("the rewards' distribution", tuple(FAMILIES), default="gaussian")

    def __post_init__(self, reward_range: tuple[float, float] | None = None) -> None:
        super().__post_init__(reward_range)
        object.__setattr__(self, "support", FAMILIES[self.family].support)
        object.__setattr__(self, "requires_positive_rewards", FAMILIES[self.family].requires_positive_rewards)
        if self.family != "gaussian":  # the other families ignore it; None makes equal policies compare equal
            object.__setattr__(self, "sigma2", None)
        elif self.sigma2 is None:
            raise InvalidValue(f"{self.name}: sigma2", None, "a finite number > 0" + _REWARD_RANGE_HINT)

    derived: ClassVar[tuple[str, ...]] = ("divergence", "upper")

    @property
    def divergence(self) -> Callable[[Any, Any, Any], Any]:
        """The function (mean a, mean b, sigma2) -> KL divergence of the family."""
        return FAMILIES[self.family].divergence

    @property
    def upper(self) -> Callable[[Any, Any, Any], Any]:
        """The function (mean a, level, sigma2) -> the largest mean b with KL(a, b) <= level."""
        return FAMILIES[self.family].upper


class KnownHorizon(Policy):
    """The parameter horizon: the policy must know the number of rounds in advance."""

    horizon: int = whole("number of rounds; `simulate` sets it", default=None, at_least=1)

    @property
    def needs_horizon(self) -> bool:
        return True


class ScaledWidth(Policy):
    """The parameter scale: the width of the exploration bonus. Other values than 1 lose the guarantees."""

    scale: float = _positive("factor on the bonus (UCB) or on the variance (Thompson sampling)", default=1.0)


class BoostedLeaders(Policy):
    """The parameters of MS+, and the log weight of leaders. `boosted_rival` has the log weight of rivals."""

    booster: float = real("B: factor on the weight of a leader", default=4.0, at_least=1)
    c: float = real(
        "C: a further boost of leaders that fades as t grows", default=0.01, at_least=0, at_most=1
    )
    d: float = real(
        "D: how much the weights of the other arms are increased", default=0.01, above=0, at_most=1
    )

    def leader(self, n: Any, t: Any) -> Any:
        return np.log(self.booster) + np.log1p(self.c * np.log1p(np.log(t / n)))


def boosted_rival(x: Any, d: Any) -> Any:
    """Return log(exp(-x) (1 + d x)): -inf and not NaN past the float range."""
    return -x + np.log1p(d * np.minimum(x, 1e300))
