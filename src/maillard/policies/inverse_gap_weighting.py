"""Inverse gap weighting (SquareCB), and its version for small losses (FastCB)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Bools, Floats
from maillard.errors import InvalidValue
from maillard.policies.base import Guarantees, LinearPolicy, ProbabilityKind, flag, real
from maillard.policies.base.policy import rounding_error
from maillard.policies.numerics.linear_scores import TIE, LinearScores


class InverseGapWeighting(LinearPolicy):
    """Gives each rival a probability that falls with its gap, and the rest to the leaders.

    Estimates and gaps are in units of the reward range. With `fast`, probabilities of rivals also fall with
    the smallest cost, the distance of the best estimate from the largest reward.

    >>> from maillard import LinearTally
    >>> tally = LinearTally.empty(features=2, arms=2)
    >>> for row, reward in (([1, 0], 1), ([1, 1], 0)): tally.add(row, reward, arm=0)
    >>> InverseGapWeighting(reward_range=(0, 1)).probabilities(tally, [1, 1]).round(4)
    array([0.183, 0.817])
    """

    name: ClassVar[str] = "igw"
    formula: ClassVar[str] = "p = 1 / (K + γ gap) for rivals, γ = scale t^exponent; leaders share the rest"
    latex: ClassVar[str] = (
        r"p_a = \frac{1}{K + \gamma g_a} \text{ for rivals}, \quad "
        r"\gamma = \mathrm{scale} \cdot t^{\mathrm{exponent}}; \quad \text{leaders share the rest}"
    )
    reference: ClassVar[str] = "Foster and Rakhlin 2020; Foster and Krishnamurthy 2021 (fast)"
    probability_kind: ClassVar[ProbabilityKind] = "closed form"
    uses_uncertainty: ClassVar[bool] = False
    engine_shape: ClassVar[str | None] = "linear-gaps"
    derived: ClassVar[tuple[str, ...]] = ("range_width", "highest")
    guarantees: ClassVar[Guarantees] = Guarantees(
        regret="√(K d T)",
        source="Foster and Rakhlin 2020",
        note="Up to logarithms, with γ tuned to the horizon; d counts the coefficients of all models. The "
        "default γ is that of Vowpal Wabbit. The bound of fast=true is for regression with logarithmic loss.",
    )

    scale: float = real("γ in round 1", default=10.0, above=0, at_most=1e100)
    exponent: float = real("γ grows as t to this power", default=0.5, at_least=0, at_most=1)
    fast: bool = flag("FastCB: for problems whose best rewards are near the largest", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fast and self.reward_range is None:
            allowed = "(low, high), because fast=true measures costs from the largest reward"
            raise InvalidValue(f"{self.name}: reward_range", None, allowed)

    @property
    def highest(self) -> float:
        """The largest reward; 0 if it does not matter."""
        return 0.0 if self.reward_range is None else self.reward_range[1]

    def gamma(self, t: Any) -> Any:
        """Return γ in round t."""
        return self.scale * t**self.exponent

    def cost(self, mu: Any) -> Any:
        """Return the cost of an arm in units of the range, up to a constant that matters only if `fast`."""
        cost = (self.highest - mu) / self.range_width
        return np.maximum(cost, 0.0) if self.fast else cost

    def rival_probability(self, gap: Any, least: Any, arms: Any, gamma: Any) -> Any:
        """Return the probability of a rival, given the smallest cost (1 unless `fast`)."""
        return least / (arms * least + gamma * gap)

    def _solve_scores(self, scores: LinearScores, bounds: bool) -> tuple[Floats, Floats | None]:
        gamma = self.gamma(float(scores.t))
        gap, least, leads = self._costs(scores)
        log, rest = self._log_probabilities(gap, least, leads, gamma)
        if not bounds:
            return log, None
        mu = scores.errors(self.centre)[0] / self.range_width
        off = np.where(leads, 0.0, mu + mu.max())
        low = high = least
        if self.fast and self.reward_range is not None:  # the smallest cost before negative ones become 0
            cost = (self.reward_range[1] - float(scores.mu.max())) / self.range_width
            low, high = max(0.0, cost - mu.max()), max(0.0, cost + mu.max())
        with np.errstate(all="ignore"):
            corners = [
                self._log_probabilities(np.maximum(gap + sign * off, 0.0), cost, leads, gamma)
                for sign in (-1, 1)
                for cost in (low, high)
            ]
            spread = [np.where(log == each, 0.0, np.abs(log - each)) for each, _ in corners]
        # Rivals that become likelier take from the leaders.
        change = np.log1p(max(abs(other - rest) for _, other in corners) / rest)
        return log, np.maximum.reduce(spread) + np.where(leads, change, 0.0) + rounding_error(log)

    def _costs(self, scores: LinearScores) -> tuple[Floats, float, Bools]:
        """Return gaps in units of the range, the smallest cost (1 unless `fast`), and the leaders."""
        if not self.fast or self.reward_range is None:
            return scores.gap / self.range_width, 1.0, scores.leads
        cost = self.cost(scores.mu)
        least = float(np.minimum.reduce(cost))
        leads = cost <= least + TIE
        return np.where(leads, 0.0, cost - least), least, leads

    @np.errstate(divide="ignore", invalid="ignore")  # a rival has probability 0 if the smallest cost is 0
    def _log_probabilities(
        self, gap: Floats, least: float, leads: Bools, gamma: float
    ) -> tuple[Floats, float]:
        """Return log probabilities, and the probability of all leaders."""
        k, extra = gap.size, gamma * gap
        # 1 - Σ 1 / (K + γ gap) over the rivals, without cancellation: each gives up 1/K - 1 / (K + γ gap).
        given_up = np.where(leads, 1.0, extra / (k * least + extra)) / k
        rest = float(np.add.reduce(given_up))
        share = np.log(rest) - np.log(np.count_nonzero(leads))
        log = np.where(leads, share, np.log(self.rival_probability(gap, least, k, gamma)))
        return np.minimum(log, 0.0), rest
