"""A confidence sequence for rewards with heavy tails, such as revenue, given a bound on their mean square.

Method: the influence function of Catoni (2012), as in the sequences of Wang and Ramdas (2023), for weighted
rewards. Let B² be a bound on E r² for every arm, which the caller knows in advance. A row has the weight
w = π(a) / p(a) and the propensity e = 1 / Σ π² / p, which is known before the arm is chosen. The mean of
y = e w r / B, given the past, is e v / B, where v is the value of the target, and

    E y² = e² Σ π² E[r²] / p / B² <= e.

Let φ(x) = sign(x) ln(1 + |x| + x² / 2). Then exp(±φ(x)) <= 1 ± x + x² / 2, so that for every fixed β > 0

    exp(±(Σ φ(β y) - β v E / B) - β² E / 2),    E = Σ e,

are supermartingales. So are their mixtures over a fixed grid of β. Ville's inequality bounds each mixture by
2 / α at all rows simultaneously, which gives a lower and an upper bound of v. They need no range of rewards
and no floor. For a single arm y = r / B in the rows that chose it and 0 in all others, so its rare rows do
not have large weights.

If the means change, v is replaced by the mean of v_t with weights e_t, so constant means are assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.errors import InvalidValue
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.estimators.estimator import ALL_PROBABILITIES, SECOND_MOMENT
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.sequential import confidence_sequence as base
from maillard.evaluation.sequential.kernels import compiled

if TYPE_CHECKING:
    from maillard.evaluation.evidence import Evidence

# After E effective pulls the best β is about √(13 / E). Within a factor 1.41 it costs at most 6% of width.
_SCALES: Floats = 4.0 * np.exp2(-np.arange(17.0))
_MAX_EXCESS = (
    10.0  # times the stated bound; by Markov's inequality, a mean square is larger in 1 of 10 logs at most
)


@compiled
def advance(run: Floats, scales: Floats, term: Floats, propensity: Floats) -> None:
    """Add φ(β y) for each β, and e in the last place of `run`."""
    last = scales.size
    for row in range(term.size):
        run[last] += propensity[row]
        y = abs(term[row])
        if y > 0.0:
            sign = 1.0 if term[row] > 0.0 else -1.0
            for place in range(last):
                x = scales[place] * y
                run[place] += sign * math.log1p(x + 0.5 * x * x)


def lower_bound(influence: Floats, pulls: float, level: float) -> float:
    """The v / B below which the mixture of exp(Σ φ - β E v / B - β² E / 2) exceeds exp(`level`).

    >>> round(lower_bound(np.log1p(_SCALES + _SCALES**2 / 2) * 100, 400.0, math.log(40)), 3)
    0.068
    """
    return -base.mixture_root(influence - 0.5 * _SCALES**2 * pulls, _SCALES * pulls, level)


@dataclass(frozen=True)
class HeavyTailState:
    """Σ φ(β y) for each β, and E.

    >>> sequence = HeavyTailState.start(second_moment=9.0, confidence=0.95)
    >>> reward = np.random.default_rng(1).exponential(1.0, 2000)
    >>> sequence.advance(weight=np.ones(2000), reward=reward, propensity=np.ones(2000))
    >>> [round(each, 2) for each in sequence.bounds()]
    [0.99, 0.75, 1.23]
    """

    size: float
    "B, the square root of the bound on the mean square of a reward."
    level: float
    "ln(2 / α)."
    run: Floats

    columns: ClassVar = ("weight", "reward", "propensity")
    requires: ClassVar[tuple[str, ...]] = (ALL_PROBABILITIES,)
    scales_rewards: ClassVar[bool] = False

    @classmethod
    def of(cls, log: EvaluationLog, target: Target, confidence: float) -> HeavyTailState:  # noqa: ARG003
        """The state before the first row of a log."""
        assert log.second_moment is not None  # which the estimator requires
        return cls.start(log.second_moment, confidence)

    @classmethod
    def start(cls, second_moment: float, confidence: float) -> HeavyTailState:
        """The state before the first row; both numbers must be chosen in advance."""
        if not 0 < second_moment < math.inf:
            raise InvalidValue("second_moment", second_moment, "a finite number > 0")
        return cls(math.sqrt(second_moment), base.level_of(1.0 - confidence), np.zeros(_SCALES.size + 1))

    def advance(self, *, weight: Any, reward: Any, propensity: Any) -> None:
        """Process more rows, in log order."""
        e = np.ascontiguousarray(propensity, np.float64)
        advance(self.run, _SCALES, e * weight * reward / self.size, e)

    def bounds(self) -> tuple[float, float, float]:
        """The value and its bounds, on the scale of the rewards; unlimited before the first row."""
        *influence, pulls = self.run
        if not pulls > 0:
            return 0.0, -math.inf, math.inf
        lower, upper = (
            sign * self.size * lower_bound(sign * np.array(influence), float(pulls), self.level)
            for sign in (1.0, -1.0)
        )
        return (lower + upper) / 2.0, lower, upper


class HeavyTailSequence(base.SequenceEstimator):
    """Catoni (2012), Wang and Ramdas (2023): a confidence sequence that needs a bound on the mean square."""

    name: ClassVar[str] = "cs-catoni"
    formula: ClassVar[str] = "Σ φ(β e w r) / (β Σ e), with Catoni's influence function φ"
    assumes: ClassVar[str] = (
        "rewards of every arm whose mean square is at most the second_moment that was stated in advance. The "
        "interval is valid at any time, regardless of how often you check"
    )
    requires: ClassVar[tuple[str, ...]] = (ALL_PROBABILITIES, SECOND_MOMENT)
    default_for: ClassVar[tuple[str, ...] | None] = (ALL_PROBABILITIES, SECOND_MOMENT)
    for_contexts: ClassVar[bool] = False
    order: ClassVar[int] = 13
    priority: ClassVar[tuple[int, int]] = (97, 2)
    priority_without_floor: ClassVar[int | None] = 1
    state: ClassVar[type[HeavyTailState]] = HeavyTailState  # type: ignore[assignment]  # it has no path

    def result(self, state: HeavyTailState) -> tuple[float, ...]:  # type: ignore[override]
        return state.bounds()

    @classmethod
    def refusal(cls, evidence: Evidence) -> str | None:
        bound, squares = evidence.log.second_moment, evidence.mean_squares
        if bound is None or squares is None:
            return None
        largest = float(np.nan_to_num(squares[evidence.target.chosen_arms]).max())
        if largest > _MAX_EXCESS * bound:
            return (
                f"the mean squared reward of an arm is {largest:.4g} in this log, more than 10 times the "
                f"stated second_moment of {bound:.4g}"
            )
        return None
