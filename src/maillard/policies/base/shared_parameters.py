"""Parameters that several policies share: what is known of the rewards, the horizon, a tuned width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar
from typing import TYPE_CHECKING, Any, ClassVar

from maillard.errors import InvalidValue
from maillard.policies.base.parameters import choice, interval, real, whole
from maillard.policies.base.policy import Policy
from maillard.policies.numerics.families import FAMILIES

if TYPE_CHECKING:
    from maillard.tally import Tally

    pass

__all__ = ["FamilyRewards", "KnownHorizon", "ScaledWidth", "SubGaussianRewards"]

# sigma2 and scale stay so far from the limits of floats that no formula meets them.
_HOW = " (or give reward_range=(low, high), which means sigma2 = (high - low)^2 / 4)"


class SubGaussianRewards(Policy):
    """Rewards are sigma2-sub-Gaussian; `reward_range` stands for the sigma2 of a bounded reward."""

    sigma2: float = real(
        "rewards are sigma2-sub-Gaussian", default=None, needed=_HOW, above=0, at_most=1e100, least=1e-100
    )
    reward_range: InitVar[tuple[float, float] | None] = None

    def __post_init__(self, reward_range: tuple[float, float] | None = None) -> None:
        if reward_range is not None:
            low, high = interval(f"{self.name}: reward_range", reward_range)
            if self.sigma2 is None:
                object.__setattr__(self, "sigma2", (high - low) * (high - low) / 4)
        super().__post_init__()


class FamilyRewards(SubGaussianRewards):
    """Rewards come from a one-parameter family; only the Gaussian one needs sigma2."""

    sigma2: float = real(
        "variance of Gaussian rewards",
        default=None,
        needed=_HOW,
        optional=True,
        above=0,
        at_most=1e100,
        least=1e-100,
    )
    family: str = choice("the rewards' distribution", tuple(FAMILIES), default="gaussian")

    def __post_init__(self, reward_range: tuple[float, float] | None = None) -> None:
        super().__post_init__(reward_range)
        object.__setattr__(self, "support", FAMILIES[self.family].support)
        object.__setattr__(self, "requires_positive_rewards", FAMILIES[self.family].requires_positive_rewards)
        if self.family != "gaussian":  # the others have none, so that equal policies are equal
            object.__setattr__(self, "sigma2", None)
        elif self.sigma2 is None:
            raise InvalidValue(f"{self.name}: sigma2", None, "a finite number > 0" + _HOW)

    derived: ClassVar[tuple[str, ...]] = ("divergence", "upper")

    @property
    def divergence(self) -> Callable[[Any, Any, Any], Any]:
        """The family's divergence between two means, given sigma2."""
        return FAMILIES[self.family].divergence

    @property
    def upper(self) -> Callable[[Any, Any, Any], Any]:
        """The family's largest mean within a divergence of another, given sigma2."""
        return FAMILIES[self.family].upper


class KnownHorizon(Policy):
    """The policy must know how many rounds there will be."""

    horizon: int = whole("how many rounds there will be; `simulate` fills it", default=None, at_least=1)

    @property
    def needs_horizon(self) -> bool:
        return True

    def _check_use(self, tally: Tally) -> None:
        if self.horizon is None and self.needs_horizon:
            raise InvalidValue(f"{self.name}: horizon", None, "the number of rounds, horizon=...")
        super()._check_use(tally)


class ScaledWidth(Policy):
    """The width that practitioners tune, at the price of the guarantee."""

    scale: float = real(
        "multiplies the bonus (a UCB) or the variance (Thompson)",
        default=1.0,
        above=0,
        at_most=1e100,
        least=1e-100,
    )
