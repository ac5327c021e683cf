"""Parameters that several policies share: sigma2, the reward family, the horizon, the width of a bonus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar
from typing import TYPE_CHECKING, Any, ClassVar

from maillard.errors import InvalidValue
from maillard.policies.base.parameters import check_range, choice, real, whole
from maillard.policies.base.policy import Policy
from maillard.policies.numerics.families import FAMILIES

if TYPE_CHECKING:
    from maillard.tally import Tally

# The limits on sigma2 and scale keep every formula within the range of floats.
_REWARD_RANGE_HINT = " (or pass reward_range=(low, high), which sets sigma2 = (high - low)^2 / 4)"


class SubGaussianRewards(Policy):
    """The parameter sigma2: rewards are sigma2-sub-Gaussian.

    For bounded rewards, `reward_range=(low, high)` sets sigma2 = (high - low)^2 / 4.
    """

    sigma2: float = real(
        "rewards are sigma2-sub-Gaussian",
        default=None,
        hint=_REWARD_RANGE_HINT,
        above=0,
        at_most=1e100,
        min_magnitude=1e-100,
    )
    reward_range: InitVar[tuple[float, float] | None] = None

    def __post_init__(self, reward_range: tuple[float, float] | None = None) -> None:
        if reward_range is not None:
            low, high = check_range(f"{self.name}: reward_range", reward_range)
            if self.sigma2 is None:
                object.__setattr__(self, "sigma2", (high - low) * (high - low) / 4)
        super().__post_init__()


class FamilyRewards(SubGaussianRewards):
    """The parameter family: the reward distributions. Only the Gaussian family uses sigma2."""

    sigma2: float = real(
        "variance of Gaussian rewards",
        default=None,
        hint=_REWARD_RANGE_HINT,
        optional=True,
        above=0,
        at_most=1e100,
        min_magnitude=1e-100,
    )
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

    def _check_use(self, tally: Tally) -> None:
        if self.horizon is None and self.needs_horizon:
            raise InvalidValue(f"{self.name}: horizon", None, "the number of rounds; pass horizon=...")
        super()._check_use(tally)


class ScaledWidth(Policy):
    """The parameter scale: the width of the exploration bonus. Other values than 1 lose the guarantees."""

    scale: float = real(
        "factor on the bonus (UCB) or on the variance (Thompson sampling)",
        default=1.0,
        above=0,
        at_most=1e100,
        min_magnitude=1e-100,
    )
