"""Augmented inverse propensity weighting (AIPW) for adaptive logs, with four weightings in one pass.

Method: Hadad, Hirshberg, Zhan, Wager and Athey (2021), Section 2. Each row has the score

    Γ_t = Σ_a π(a) m_{t-1}(a) + w_t (r_t - m_{t-1}(a_t)),

where the model m uses only earlier rows. Γ is unbiased on any log whose probabilities are right. The estimate
and its standard error are

    Q = Σ h Γ / Σ h,    √(Σ h² (Γ - Q)²) / Σ h,

with h = 1 (`aipw`), h = √e (`aipw-sqrt`, constant allocation), h = e (`aipw-propensity`) and h = √(v e)
(`aipw-two-point`). Here e_t = 1 / Σ_a (π(a)² / p_t(a)) is the precision of the row. The stick-breaking
allocation over T rows is v_t = λ_t (1 - v_1 - ... - v_{t-1}), with

    λ_t = (1 - e_t) (1 - α) / (1 - α + T (t/T)^α - t) + e_t / (1 + T - t).

Each h is known before the arm of its row is chosen, so Q is a ratio of martingale sums. The normal interval
is valid at a sample size fixed in advance, for many rows, under the conditions that each estimator states in
`assumes`. It is not valid if you stop when it looks good.

The model of an arm is the mean of its earlier rewards, or the mean of all earlier rewards if it has none.
There is no model before the first row, and any constant in its place would make the estimate depend on the
zero of the reward scale. Therefore the first row has weight 0 and only initialises the model. All sums are of
r - r_1 and use running means, so that rewards such as 1e6 ± 1 keep their variance.

**Contexts.** If decisions have contexts, the model is the ridge regression of reward_models.py, and e_t
depends on the context of its row. A weight that depends on it would favour some contexts, and Q would
estimate the mean of other visitors. Therefore e_t is replaced by a value that is known before the row: 1 over
the mean of 1 / e over earlier rows, in which row s has a weight proportional to s, because later rows are
more like row t (after Zhan, Hadad, Hirshberg and Athey, 2021, whose weights average over contexts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue, MaillardError
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.estimators.estimator import ALL_PROBABILITIES, EFFECTIVE_PULLS
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.sequential.kernels import checked_target, compiled, places
from maillard.evaluation.sequential.sequential_runner import SequentialEstimator

WEIGHTINGS = ("aipw", "aipw-sqrt", "aipw-propensity", "aipw-two-point")

# Entries of `run`: rows so far, the first reward, the mean of r - r_1, the part of the stick that is not yet
# allocated.
_ROWS, _SHIFT, _OVERALL, _STICK, _RUN = 0, 1, 2, 3, 4
# Columns of `sums`, which has a row for each weighting: Σ h, the mean of Γ weighted by h, Σ h², and the mean
# and the sum of squared deviations of Γ weighted by h².
_H, _MEAN, _H2, _MEAN2, _SQUARES, _SUMS = 0, 1, 2, 3, 4, 5

# `run`, `sums`, and by arm the number of rows and the mean of r - r_1.
State = tuple[Floats, Floats, Ints, Floats]
# arm, reward, weight, propensity and target_row of each row, and target_probabilities.
Rows = tuple[Ints, Floats, Floats, Floats, Ints, Floats]


@compiled
def start(arms: int) -> State:
    """The state before the first row."""
    run = np.zeros(_RUN)
    run[_STICK] = 1.0
    return run, np.zeros((4, _SUMS)), np.zeros(arms, np.int64), np.zeros(arms)


@compiled
def _add_score(  # noqa: PLR0917  # compiled functions take no keywords
    run: Floats,
    sums: Floats,
    h: Floats,
    gamma: float,
    e: float,
    weightings: int,
    horizon: float,
    decay: float,
) -> None:
    """Add the score of row t, the number of rows so far in `run`, with each of the weightings."""
    t = run[_ROWS]
    if weightings > 1:
        capped = min(e, 1.0)
        rate = (1.0 - capped) * (1.0 - decay) / (
            (1.0 - decay) + horizon * (t / horizon) ** decay - t
        ) + capped / (1.0 + horizon - t)
        h[1] = np.sqrt(e)
        h[2] = e
        h[3] = np.sqrt(rate * run[_STICK] * e)
        run[_STICK] *= max(1.0 - rate, 0.0)
    if t > 1.0:
        for weighting in range(weightings):
            each = h[weighting]
            if each > 0.0:
                line = sums[weighting]
                square = each * each
                line[_H] += each
                line[_MEAN] += each / line[_H] * (gamma - line[_MEAN])
                line[_H2] += square
                ahead = gamma - line[_MEAN2]
                step = square / line[_H2] * ahead
                line[_MEAN2] += step
                line[_SQUARES] += square * ahead * (ahead - step)


@compiled
def advance_scores(  # noqa: PLR0917
    run: Floats, sums: Floats, scores: Floats, propensity: Floats, horizon: float, decay: float
) -> None:
    """Update the sums in place, row by row, with scores of another model minus the first reward."""
    has_propensity = propensity.size == scores.size
    h = np.ones(4)
    for row in range(scores.size):
        run[_ROWS] += 1.0
        e = propensity[row] if has_propensity else 1.0
        _add_score(run, sums, h, scores[row], e, 4 if has_propensity else 1, horizon, decay)


@compiled
def lagged_precision(memory: Floats, propensity: Floats) -> Floats:
    """1 / the mean of 1 / e over earlier rows, of which row s has a weight proportional to s.

    `memory` has the number of rows so far and that mean; the first row has its own value.
    """
    found = np.empty(propensity.size)
    for row in range(propensity.size):
        inverse = 1.0 / propensity[row]
        if memory[0] == 0.0:
            memory[1] = inverse
        found[row] = 1.0 / memory[1]
        memory[0] += 1.0
        memory[1] += 2.0 / (memory[0] + 1.0) * (inverse - memory[1])
    return found


@compiled
def advance(state: State, rows: Rows, horizon: float, decay: float) -> None:
    """Update the state in place, row by row.

    If the propensity is empty, only the first of the four `WEIGHTINGS` (uniform weights) is updated.
    """
    run, sums, pulls, means = state
    arm, reward, weight, propensity, target_row, target_probabilities = rows
    arms = means.size
    has_propensity = propensity.size == reward.size
    weightings = 4 if has_propensity else 1
    h = np.ones(4)
    for row in range(reward.size):
        if run[_ROWS] == 0.0:
            run[_SHIFT] = reward[row]
        run[_ROWS] += 1.0
        t = run[_ROWS]
        centred = reward[row] - run[_SHIFT]
        chosen = arm[row]
        overall = run[_OVERALL]
        direct = 0.0
        target = target_probabilities[target_row[row]]
        for a in range(arms):
            direct += target[a] * (means[a] if pulls[a] > 0 else overall)
        gamma = direct + weight[row] * (centred - (means[chosen] if pulls[chosen] > 0 else overall))
        _add_score(
            run, sums, h, gamma, propensity[row] if has_propensity else 1.0, weightings, horizon, decay
        )
        pulls[chosen] += 1
        means[chosen] += (centred - means[chosen]) / pulls[chosen]
        run[_OVERALL] += (centred - overall) / t


@compiled
def finish(run: Floats, sums: Floats, total: float) -> Floats:
    """Value and standard error of each weighting: float64[4, 2], nan where the weights are 0.

    `total` is the sum of the target's probabilities: 1, or 0 for the difference of two targets.
    """
    found = np.full((4, 2), np.nan)
    for weighting in range(4):
        line = sums[weighting]
        if line[_H] > 0.0:
            found[weighting, 0] = line[_MEAN] + total * run[_SHIFT]
            if run[_ROWS] > 2.0:
                off = line[_MEAN2] - line[_MEAN]
                found[weighting, 1] = np.sqrt(line[_SQUARES] + line[_H2] * off * off) / line[_H]
    return found


@compiled
def estimate(rows: Rows, horizon: float, decay: float) -> Floats:
    """Value and standard error of each weighting for one whole log: float64[4, 2]."""
    target_probabilities = rows[5]
    state = start(target_probabilities.shape[1])
    advance(state, rows, horizon, decay)
    return finish(state[0], state[1], target_probabilities[0].sum())


@dataclass(frozen=True)
class Weighted:
    """The four weightings of AIPW in constant memory; the results do not depend on how the log is chunked.

    >>> rows = dict(arm=[0, 1, 0, 1], reward=[0.0, 1.0, 1.0, 0.0], weight=[0, 2, 0, 2], propensity=[0.5] * 4)
    >>> weighted = Weighted.start(arms=2, horizon=4)
    >>> weighted.advance(**rows, target_row=[0] * 4, target_probabilities=[[0, 1]])
    >>> for name, (value, error) in weighted.estimates().items():
    ...     print(name, round(value, 3), round(error, 3))
    aipw 0.667 0.72
    aipw-sqrt 0.667 0.72
    aipw-propensity 0.667 0.72
    aipw-two-point 0.705 0.717
    """

    horizon: float
    decay: float
    state: State
    seen: dict[str, Any]
    "The sum of the target's probabilities, and whether every row so far had its propensity."
    memory: Floats | None = None
    "The state of `lagged_precision`, if decisions have contexts."

    columns: ClassVar = (
        "arm", "reward", "weight", "propensity", "target_row", "target_probabilities", "predicted_scores",
    )  # fmt: skip
    requires: ClassVar[tuple[str, ...]] = ()
    scales_rewards: ClassVar[bool] = False

    @classmethod
    def of(cls, log: EvaluationLog, target: Target, confidence: float) -> Weighted:  # noqa: ARG003
        """The state before the first row of a log."""
        decay = max(log.floor_decay or 0.0, 0.7)
        return cls.start(len(log.arms), max(log.size, 1), decay, contexts=log.contextual)

    @classmethod
    def start(cls, arms: int, horizon: int, decay: float = 0.7, *, contexts: bool = False) -> Weighted:
        """The state before the first row of a log with at most `horizon` rows.

        `decay` is the exponent with which the floor of the logging policy decays. With `contexts`, the
        weights of rows do not depend on the contexts.
        """
        if arms < 1:
            raise InvalidValue("arms", arms, "a whole number >= 1")
        if not horizon >= 1:
            raise InvalidValue("horizon", horizon, "a whole number >= 1, at least as many as there are rows")
        if not 0 <= decay < 1:
            raise InvalidValue("decay", decay, "a number in [0, 1)")
        memory = np.zeros(2) if contexts else None
        return cls(float(horizon), float(decay), start(arms), {"has_propensity": True}, memory)

    def advance(
        self,
        *,
        arm: Any,
        reward: Any,
        weight: Any,
        propensity: Any | None,
        target_row: Any,
        target_probabilities: Any,
        predicted_scores: Any | None = None,
    ) -> None:
        """Process rows in log order. Without `propensity` only the uniform weighting is available.

        With `predicted_scores`, Γ of a model that is fitted elsewhere, that model is used.
        """
        reward, weight = np.ascontiguousarray(reward, np.float64), np.ascontiguousarray(weight, np.float64)
        precision = np.ascontiguousarray([] if propensity is None else propensity, np.float64)
        if reward.size == 0:
            return
        if weight.shape != reward.shape or (propensity is not None and precision.shape != reward.shape):
            raise InvalidValue(
                "weight, propensity", (weight.shape, precision.shape), f"one for each row, {reward.shape}"
            )
        arms = self.state[3].size
        target_probabilities = checked_target(target_probabilities, arms)
        if (count := self.rows + reward.size) > self.horizon:
            raise InvalidValue("horizon", int(self.horizon), f"at least as many as there are rows ({count})")
        totals = target_probabilities.sum(axis=1)
        total = self.seen.setdefault("total", float(totals[0]))
        if not np.allclose(totals, total, rtol=0, atol=1e-9):
            raise InvalidValue("target_probabilities", totals.tolist(), f"rows that all sum to {total:g}")
        self.seen["has_propensity"] &= propensity is not None
        arm = places("arm", arm, reward.size, arms)
        target_row = places("target_row", target_row, reward.size, len(target_probabilities))
        if self.memory is not None and precision.size:
            precision = lagged_precision(self.memory, precision)
        if predicted_scores is not None:
            run, sums = self.state[:2]
            if not run[_ROWS]:
                run[_SHIFT] = reward[0]
            scores = np.ascontiguousarray(predicted_scores - total * run[_SHIFT])
            advance_scores(run, sums, scores, precision, self.horizon, self.decay)
            return
        rows = (arm, reward, weight, precision, target_row, target_probabilities)
        advance(self.state, rows, self.horizon, self.decay)

    @property
    def rows(self) -> int:
        """The number of rows so far; the first of them only initialises the model."""
        return int(self.state[0][_ROWS])

    def estimates(self) -> dict[str, tuple[float, float]]:
        """Value and standard error by weighting; nan with fewer than 2 rows (the value) or 3 (its error)."""
        found = finish(*self.state[:2], self.seen.get("total", 1.0))
        names = WEIGHTINGS if self.seen["has_propensity"] else WEIGHTINGS[:1]
        return {name: (value, error) for name, (value, error) in zip(names, found.tolist(), strict=False)}

    def __add__(self, other: object) -> Weighted:
        raise MaillardError(
            "AIPW depends on the order of the rows, so the states of two parts of a log cannot be merged; "
            "process the parts in order instead"
        )


class Aipw(SequentialEstimator):
    """Hadad et al. (2021): augmented inverse propensity weighting, with the same weight for each row."""

    name: ClassVar[str] = "aipw"
    formula: ClassVar[str] = "Σ h Γ / Σ h, h = 1"
    assumes: ClassVar[str] = (
        "many rows, none of which dominates the variance: probabilities bounded away from 0"
    )
    default_for: ClassVar[tuple[str, ...] | None] = ()
    order: ClassVar[int] = 3
    priority: ClassVar[tuple[int, int]] = (4, 7)
    uses_predictions: ClassVar[bool] = True
    state: ClassVar[type[Weighted]] = Weighted

    def result(self, state: Weighted) -> tuple[float, ...]:
        return state.estimates()[self.name]


class AipwSqrt(Aipw):
    """Hadad et al. (2021): weights that stabilise the variance, constant allocation."""

    name: ClassVar[str] = "aipw-sqrt"
    formula: ClassVar[str] = "Σ h Γ / Σ h, h = √e"
    assumes: ClassVar[str] = (
        "many rows, and probabilities that decay more slowly than 1 / t, or converge: a floor"
    )
    constant_means: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = (ALL_PROBABILITIES,)
    default_for: ClassVar[tuple[str, ...] | None] = (ALL_PROBABILITIES,)
    sample_size: ClassVar[str] = EFFECTIVE_PULLS
    order: ClassVar[int] = 4
    priority: ClassVar[tuple[int, int]] = (3, 1)


class AipwPropensity(AipwSqrt):
    """Weights proportional to the probabilities."""

    name: ClassVar[str] = "aipw-propensity"
    formula: ClassVar[str] = "Σ h Γ / Σ h, h = e"
    assumes: ClassVar[str] = "many rows, and probabilities that converge"
    default_for: ClassVar[tuple[str, ...] | None] = None
    order: ClassVar[int] = 5
    priority: ClassVar[tuple[int, int]] = (99, 99)


class AipwTwoPoint(AipwSqrt):
    """Hadad et al. (2021): weights that stabilise the variance, two-point allocation."""

    name: ClassVar[str] = "aipw-two-point"
    formula: ClassVar[str] = "Σ h Γ / Σ h, h = √(v e)"
    assumes: ClassVar[str] = (
        "many rows, and a floor under the probabilities that decays like t^-0.7 or more slowly"
    )
    order: ClassVar[int] = 6
    priority: ClassVar[tuple[int, int]] = (2, 0)
