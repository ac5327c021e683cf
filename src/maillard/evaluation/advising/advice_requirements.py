"""The answers that advice is based on: checked, with defaults for those that are missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from maillard.decisions import Reward
from maillard.decisions.timestamps import Duration, to_seconds
from maillard.errors import InvalidValue
from maillard.evaluation.advising.reward_answers import (
    BINARY,
    BOUNDED,
    CLICKS,
    REVENUE,
    REWARDS,
    UNBOUNDED,
    check_number,
    check_rewards,
    one_of,
    order_deviation,
)

CONTEXTS = SEGMENTS, FEATURES, ACTIONS = ("segments", "features", "actions")
CONFIDENCE, POWER = 0.95, 0.8
DEFAULT_HORIZON = "14d"
_DAY = 86_400.0
_DECISIONS_PER_ARM = 10  # the fewest per arm, and segment, for which a simulation makes sense


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What the experiment is like. `make_requirements` checks it."""

    arms: tuple[str, ...]
    reward: str
    low: float
    "The lowest reward; -inf if there is none."
    high: float
    rate: float
    "The mean reward of an ordinary arm."
    lift: float
    "The difference between arms that is worth finding."
    deviation: float
    "The standard deviation of the reward of one decision."
    buyers: float | None
    "The fraction of decisions that end in an order; None if the reward is not revenue."
    order: float | None
    "The value of a typical order, likewise. `rate` is `buyers` times `order`."
    traffic: float
    "Decisions per day."
    horizon: int
    "Decisions in all."
    window: float
    "Seconds until the reward of a decision is known; 0: at once."
    contexts: str | None
    context_size: int
    "The number of segments or of features; 0 without contexts."
    evaluate: bool
    max_regret: float | None
    assumed: tuple[str, ...]
    "The names of answers that were missing."

    @property
    def zero_or_one(self) -> bool:
        """Whether a reward is 0 or 1."""
        return self.reward in (CLICKS, BINARY)

    @property
    def limited(self) -> bool:
        """Whether rewards that are not 0 or 1 lie in a known range."""
        return self.reward in (BOUNDED, REVENUE)

    @property
    def linear(self) -> bool:
        """Whether contexts are used by a linear model."""
        return self.contexts in (FEATURES, ACTIONS)

    @property
    def parts(self) -> int:
        """The number of experiments that learn separately: one per segment."""
        return self.context_size if self.contexts == SEGMENTS else 1

    @property
    def part_horizon(self) -> int:
        """The decisions of each of these experiments."""
        return self.horizon // self.parts

    @property
    def delay(self) -> int:
        """The decisions that are made before the reward of one is known."""
        return math.ceil(self.traffic * self.window / _DAY - 1e-9)

    @property
    def part_delay(self) -> int:
        """The same, counted in decisions of one segment."""
        return math.ceil(self.delay / self.parts)

    @property
    def pairs(self) -> int:
        """The number of comparisons that are valid together: all pairs of arms, in each segment."""
        return math.comb(len(self.arms), 2) * self.parts

    @property
    def confidence(self) -> float:
        """The confidence of each of these intervals, as `compare` computes it."""
        return 1.0 - (1.0 - CONFIDENCE) / self.pairs

    @property
    def needed_width(self) -> float:
        """The half-width of an interval at which a difference of `lift` is found in 80% of experiments.

        With a standard error s, the interval has half-width z s, and excludes 0 with that probability if
        lift = (z + 0.84) s.
        """
        z = NormalDist().inv_cdf((1.0 + self.confidence) / 2)
        return self.lift * z / (z + NormalDist().inv_cdf(POWER))

    @property
    def needed_decisions(self) -> int:
        """About how many decisions an equal split needs to find the difference in 80% of experiments."""
        return math.ceil(self.horizon * (self.visible_lift / self.lift) ** 2)

    @property
    def visible_lift(self) -> float:
        """About the smallest difference that an equal split finds in 80% of experiments.

        By the normal approximation: n decisions of each arm give a standard error of
        sqrt((v0 + v1) / n), where v0 and v1 are the variances of the rewards of the two arms.
        """
        z = NormalDist().inv_cdf((1.0 + self.confidence) / 2) + NormalDist().inv_cdf(POWER)
        first = second = self.deviation**2
        if self.zero_or_one:
            second = (self.rate + self.lift) * (1.0 - self.rate - self.lift)
        return z * math.sqrt((first + second) * len(self.arms) / self.part_horizon)

    @property
    def small_rewards(self) -> bool:
        """Whether rewards lie from 0 to a maximum and are mostly far below it, as revenue is."""
        return self.limited and self.low == 0.0 and self.rate <= 0.1 * self.high

    @property
    def mostly_nothing(self) -> bool:
        """Whether most decisions get no reward at all, which counts as 0, as with revenue."""
        return self.small_rewards or self.reward in (UNBOUNDED, REVENUE)

    @property
    def looks_like_orders(self) -> bool:
        """Whether the range and the mean could be those of orders."""
        near_low = self.rate - self.low <= 0.25 * (self.high - self.low)
        return self.reward == BOUNDED and not self.small_rewards and near_low

    @property
    def divisor(self) -> float:
        """What a reward is divided by before it is logged."""
        return self.high if self.small_rewards else 1.0

    @property
    def deviation_is_derived(self) -> bool:
        """Whether the deviation is that of typical orders."""
        if self.buyers is None or self.order is None:
            return False
        return math.isclose(self.deviation, order_deviation(self.buyers, self.order, self.high))

    @property
    def reward_rule(self) -> Reward:
        """The reward rule of the suggested bandit."""
        window = self.window or None
        if self.reward == CLICKS and window is not None:
            return Reward.clicks(window=window)
        if self.zero_or_one:
            return Reward(low=0, high=1, binary=True, window=window)
        low, high = (None, None) if self.reward == UNBOUNDED else (self.low, self.high / self.divisor)
        default = 0.0 if window is not None and self.mostly_nothing else None
        return Reward(low=low, high=high, window=window, default=default)


def make_requirements(
    arms: int | Sequence[str] | None = None,
    *,
    reward: str | None = None,
    reward_range: tuple[float, float] | None = None,
    rate: float | None = None,
    lift: float | None = None,
    deviation: float | None = None,
    buyers: float | None = None,
    order: float | None = None,
    traffic: float | None = None,
    horizon: int | str | None = None,
    delay: Duration | None = None,
    contexts: str | None = None,
    context_size: int | None = None,
    evaluate: bool | None = None,
    max_regret: float | None = None,
) -> Requirements:
    """Check the answers, and fill in those that are None."""
    given = {name: value for name, value in locals().items() if value is not None}
    assumed: list[str] = []

    def answer(name: str, default: Any) -> Any:
        if name not in given:
            assumed.append(name)
        return given.get(name, default)

    names = _arm_names(answer("arms", 2))
    kind = one_of("reward", answer("reward", CLICKS), REWARDS)
    rewards = check_rewards(kind, given, answer)
    daily = check_number("traffic", answer("traffic", 1000.0), 0.0, 1e12)
    total = _horizon(answer("horizon", DEFAULT_HORIZON), daily)
    window = _window(answer("delay", "1h")) if kind == CLICKS else _window(delay or 0.0)
    if contexts is not None:
        one_of("contexts", contexts, CONTEXTS)
    elif context_size is not None:
        raise InvalidValue("context_size", context_size, "None, because contexts is None")
    size = 0 if contexts is None else answer("context_size", 2 if contexts == SEGMENTS else 5)
    if contexts is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 100):
        raise InvalidValue("context_size", size, "a whole number from 1 to 100")
    log_is_evaluated = answer("evaluate", True)
    if not isinstance(log_is_evaluated, bool):
        raise InvalidValue("evaluate", log_is_evaluated, "true or false")
    found = Requirements(
        arms=names,
        reward=kind,
        **rewards._asdict(),
        traffic=daily,
        horizon=total,
        window=window,
        contexts=contexts,
        context_size=size,
        evaluate=log_is_evaluated,
        max_regret=None if max_regret is None else check_number("max_regret", max_regret, 0.0, math.inf),
        assumed=tuple(assumed),
    )
    smallest = _DECISIONS_PER_ARM * len(names) * found.parts
    if total < smallest:
        each = " and segment" * (contexts == SEGMENTS)
        allowed = f"at least {smallest:,} decisions, {_DECISIONS_PER_ARM} per arm{each}"
        raise InvalidValue("horizon", total, allowed)
    return found


def _arm_names(given: Any) -> tuple[str, ...]:
    allowed = "a number of arms from 2 to 100, or at least two different names"
    if isinstance(given, int) and not isinstance(given, bool):
        if not 2 <= given <= 100:
            raise InvalidValue("arms", given, allowed)
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        return tuple(letters[:given]) if given <= 26 else tuple(f"arm-{i}" for i in range(1, given + 1))
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidValue("arms", given, allowed)
    if not 2 <= len(set(given)) == len(given) <= 100 or not all(isinstance(name, str) for name in given):
        raise InvalidValue("arms", given, allowed)
    return tuple(given)


def _horizon(given: object, traffic: float) -> int:
    """The number of decisions, from a number or a duration."""
    if isinstance(given, str):
        return round(traffic * to_seconds("horizon", given) / _DAY)
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 10**12:
        allowed = "a number of decisions, or a duration such as '14d'"
        raise InvalidValue("horizon", given, allowed)
    return given


def _window(given: Duration) -> float:
    seconds = to_seconds("delay", given)
    if not 0 <= seconds <= 1e9:
        raise InvalidValue("delay", given, "a duration from 0 to 1e9 seconds, such as '1h'")
    return seconds
