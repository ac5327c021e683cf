"""Augmented inverse propensity weighting for adaptive logs, with four weightings in one pass.

Of each row (Hadad et al. 2021, Section 2; the model m uses earlier rows alone):

    Gamma_t = sum_a pi(a) m_{t-1}(a) + w_t (r_t - m_{t-1}(a_t)),    Q = sum h Gamma / sum h,
    standard error = sqrt(sum h^2 (Gamma - Q)^2) / sum h

with h = 1 (`aipw`), h = sqrt(e) (`aipw-sqrt`, constant allocation), h = e (`aipw-propensity`), and h = sqrt(v e)
(`aipw-two-point`), where v breaks a stick: v_t = lambda_t (1 - v_1 - ... - v_{t-1}) with

    lambda_t = (1 - e_t) (1 - alpha) / (1 - alpha + T (t/T)^alpha - t) + e_t / (1 + T - t).

Every h is known before the row is drawn, so Q is a ratio of martingale sums and Gamma is unbiased on any log whose
probabilities are right. e_t is the precision of the row, 1 / sum_a pi(a)^2 / p_t(a).

The model is the mean of the arm's earlier rewards; of an arm without any, the mean of all earlier rewards. Before the first
row there is nothing to centre at, and any constant in its place would make the answer depend on where the rewards' zero
lies: the first row therefore has weight 0 (known in advance, as it must be) and only starts the model. All sums are of
r - r_1, about running means, so that rewards of 1e6 +- 1 keep their variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.errors import InvalidValue, MaillardError
from maillard.evaluation.estimators.estimator import ALL_PROBABILITIES, EFFECTIVE_PULLS
from maillard.evaluation.sequential.kernels import compiled, places
from maillard.evaluation.sequential.sequential_runner import SequentialEstimator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.evaluation.bound_targets import Target
    from maillard.evaluation.evaluation_log import EvaluationLog

    Numbers = NDArray[np.float64]
    Places = NDArray[np.int64]

__all__ = [
    "WEIGHTINGS",
    "Aipw",
    "AipwPropensity",
    "AipwSqrt",
    "AipwTwoPoint",
    "Weighted",
    "advance",
    "estimate",
    "finish",
]

WEIGHTINGS = ("aipw", "aipw-sqrt", "aipw-propensity", "aipw-two-point")

# Places in `run`: rows so far, the first reward, the mean of all (from the first), what is left of the stick.
_ROWS, _SHIFT, _OVERALL, _STICK, _RUN = 0, 1, 2, 3, 4
# Columns of `sums`, a row for each weighting: sum h and the mean by h, sum h^2 and the mean and squares by h^2.
_H, _MEAN, _H2, _MEAN2, _SQUARES, _SUMS = 0, 1, 2, 3, 4, 5


@compiled
def advance(  # noqa: PLR0917  # compiled functions take no keywords
    run: Numbers,
    sums: Numbers,
    pulls: Places,
    means: Numbers,
    arm: Places,
    reward: Numbers,
    weight: Numbers,
    propensity: Numbers,
    law: Places,
    laws: Numbers,
    horizon: float,
    decay: float,
) -> None:
    """Process rows in order. Without propensities (an empty array) only the uniform weighting advances."""
    arms = means.size
    whole = propensity.size == reward.size
    weightings = 4 if whole else 1
    h = np.ones(4)
    for row in range(reward.size):
        if run[_ROWS] == 0.0:
            run[_SHIFT] = reward[row]
        run[_ROWS] += 1.0
        t = run[_ROWS]
        centred = reward[row] - run[_SHIFT]
        drawn = arm[row]
        overall = run[_OVERALL]
        direct = 0.0
        target = laws[law[row]]
        for a in range(arms):
            direct += target[a] * (means[a] if pulls[a] > 0 else overall)
        gamma = direct + weight[row] * (centred - (means[drawn] if pulls[drawn] > 0 else overall))
        if whole:
            e = propensity[row]
            share = min(e, 1.0)
            rate = (1.0 - share) * (1.0 - decay) / (
                (1.0 - decay) + horizon * (t / horizon) ** decay - t
            ) + share / (1.0 + horizon - t)
            h[1] = np.sqrt(e)
            h[2] = e
            h[3] = np.sqrt(rate * run[_STICK] * e)
            run[_STICK] *= max(1.0 - rate, 0.0)
        if t > 1.0:
            for kind in range(weightings):
                each = h[kind]
                if each > 0.0:
                    line = sums[kind]
                    square = each * each
                    line[_H] += each
                    line[_MEAN] += each / line[_H] * (gamma - line[_MEAN])
                    line[_H2] += square
                    ahead = gamma - line[_MEAN2]
                    step = square / line[_H2] * ahead
                    line[_MEAN2] += step
                    line[_SQUARES] += square * ahead * (ahead - step)
        pulls[drawn] += 1
        means[drawn] += (centred - means[drawn]) / pulls[drawn]
        run[_OVERALL] += (centred - overall) / t


@compiled
def finish(run: Numbers, sums: Numbers, total: float) -> Numbers:
    """Value and standard error of each weighting: float64[4, 2], nan where nothing was weighed.

    `total` is what the target's law sums to: 1, or 0 for the difference of two targets.
    """
    found = np.full((4, 2), np.nan)
    for kind in range(4):
        line = sums[kind]
        if line[_H] > 0.0:
            found[kind, 0] = line[_MEAN] + total * run[_SHIFT]
            if run[_ROWS] > 2.0:
                off = line[_MEAN2] - line[_MEAN]
                found[kind, 1] = np.sqrt(line[_SQUARES] + line[_H2] * off * off) / line[_H]
    return found


@compiled
def estimate(  # noqa: PLR0917  # compiled functions take no keywords
    arm: Places,
    reward: Numbers,
    weight: Numbers,
    propensity: Numbers,
    law: Places,
    laws: Numbers,
    horizon: float,
    decay: float,
) -> Numbers:
    """Value and standard error of each weighting for one whole log: float64[4, 2]."""
    arms = laws.shape[1]
    run = np.zeros(_RUN)
    run[_STICK] = 1.0
    sums = np.zeros((4, _SUMS))
    pulls, means = np.zeros(arms, np.int64), np.zeros(arms)
    advance(run, sums, pulls, means, arm, reward, weight, propensity, law, laws, horizon, decay)
    return finish(run, sums, laws[0].sum())


@dataclass(frozen=True)
class Weighted:
    """The four weightings of AIPW in constant memory; the results do not depend on how the log is chunked.

    >>> rows = dict(arm=[0, 1, 0, 1], reward=[0.0, 1.0, 1.0, 0.0], weight=[0, 2, 0, 2], propensity=[0.5] * 4)
    >>> weighted = Weighted.start(arms=2, horizon=4)
    >>> weighted.advance(**rows, law=[0] * 4, laws=[[0, 1]])
    >>> {name: (round(value, 3), round(error, 3)) for name, (value, error) in weighted.estimates().items()}
    {'aipw': (0.667, 0.72), 'aipw-sqrt': (0.667, 0.72), 'aipw-propensity': (0.667, 0.72), 'aipw-two-point': (0.705, 0.717)}
    """

    horizon: float
    decay: float
    run: Numbers
    sums: Numbers
    pulls: Places
    means: Numbers
    seen: dict[str, Any]
    "The sum of the target's probabilities, and whether every row so far had its propensity."

    columns: ClassVar[dict[str, str]] = {
        "arm": "arm",
        "reward": "reward",
        "weight": "weight",
        "propensity": "propensity",
        "law": "target_row",
        "laws": "target_probabilities",
    }
    requires: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, log: EvaluationLog, target: Target, confidence: float) -> Weighted:  # noqa: ARG003
        """The state before the first row of a log."""
        return cls.start(len(log.arms), max(log.size, 1), max(log.floor_decay or 0.0, 0.7))

    @classmethod
    def start(cls, arms: int, horizon: int, decay: float = 0.7) -> Weighted:
        """The state before the first row; `horizon` bounds the number of rows, `decay` is the exponent of the floor's decay."""
        if arms < 1:
            raise InvalidValue("arms", arms, "a whole number >= 1")
        if not horizon >= 1:
            raise InvalidValue("horizon", horizon, "a whole number >= 1, at least as many as there are rows")
        if not 0 <= decay < 1:
            raise InvalidValue("decay", decay, "a number in [0, 1)")
        run = np.zeros(_RUN)
        run[_STICK] = 1.0
        pulls, means = np.zeros(arms, np.int64), np.zeros(arms)
        return cls(float(horizon), float(decay), run, np.zeros((4, _SUMS)), pulls, means, {"whole": True})

    def advance(
        self, *, arm: Any, reward: Any, weight: Any, propensity: Any | None, law: Any, laws: Any
    ) -> None:
        """Process rows in log order. Without `propensity` only the uniform weighting is available."""
        reward, weight, laws = (np.ascontiguousarray(each, np.float64) for each in (reward, weight, laws))
        precision = np.ascontiguousarray([] if propensity is None else propensity, np.float64)
        if reward.size == 0:
            return
        if weight.shape != reward.shape or (propensity is not None and precision.shape != reward.shape):
            raise InvalidValue(
                "weight, propensity", (weight.shape, precision.shape), f"one for each row, {reward.shape}"
            )
        if laws.ndim != 2 or laws.shape[1] != self.means.size:
            raise InvalidValue(
                "laws", laws.shape, f"one probability for each of {self.means.size} arms in each law"
            )
        if self.run[_ROWS] + reward.size > self.horizon:
            rows = int(self.run[_ROWS]) + reward.size
            raise InvalidValue("horizon", int(self.horizon), f"at least as many as there are rows ({rows})")
        totals = laws.sum(axis=1)
        total = self.seen.setdefault("total", float(totals[0]))
        if not np.allclose(totals, total, rtol=0, atol=1e-9):
            raise InvalidValue("laws", totals.tolist(), f"laws that all sum to {total:g}")
        self.seen["whole"] &= propensity is not None
        advance(
            self.run,
            self.sums,
            self.pulls,
            self.means,
            places("arm", arm, reward.size, self.means.size),
            reward,
            weight,
            precision,
            places("law", law, reward.size, len(laws)),
            laws,
            self.horizon,
            self.decay,
        )

    @property
    def rows(self) -> int:
        """The number of rows so far; the first of them only initialises the model."""
        return int(self.run[_ROWS])

    def estimates(self) -> dict[str, tuple[float, float]]:
        """Value and standard error by weighting; nan where there are too few rows (2 for a value, 3 for its error)."""
        found = finish(self.run, self.sums, self.seen.get("total", 1.0))
        names = WEIGHTINGS if self.seen["whole"] else WEIGHTINGS[:1]
        return {
            name: (float(value), float(error)) for name, (value, error) in zip(names, found, strict=False)
        }

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
    order: ClassVar[int] = 3
    priority: ClassVar[tuple[int, int]] = (4, 99)
    state: ClassVar[type[Weighted]] = Weighted

    @classmethod
    def is_default(cls, log: EvaluationLog) -> bool:  # noqa: ARG003
        return True

    def result(self, state: Weighted) -> tuple[float, ...]:
        return state.estimates()[self.name]


class AipwSqrt(Aipw):
    """Hadad et al. (2021): weights that stabilise the variance, constant allocation."""

    name: ClassVar[str] = "aipw-sqrt"
    formula: ClassVar[str] = "Σ h Γ / Σ h, h = √e"
    assumes: ClassVar[str] = (
        "many rows, and probabilities that decay more slowly than 1 / t, or converge: a floor"
    )
    requires: ClassVar[tuple[str, ...]] = (ALL_PROBABILITIES,)
    sample_size: ClassVar[str] = EFFECTIVE_PULLS
    order: ClassVar[int] = 4
    priority: ClassVar[tuple[int, int]] = (3, 1)

    @classmethod
    def is_default(cls, log: EvaluationLog) -> bool:
        return log.has_all_probabilities


class AipwPropensity(AipwSqrt):
    """Weights proportional to the probabilities."""

    name: ClassVar[str] = "aipw-propensity"
    formula: ClassVar[str] = "Σ h Γ / Σ h, h = e"
    assumes: ClassVar[str] = "many rows, and probabilities that converge"
    order: ClassVar[int] = 5
    priority: ClassVar[tuple[int, int]] = (99, 99)

    @classmethod
    def is_default(cls, log: EvaluationLog) -> bool:  # noqa: ARG003
        return False


class AipwTwoPoint(AipwSqrt):
    """Hadad et al. (2021): weights that stabilise the variance, two-point allocation."""

    name: ClassVar[str] = "aipw-two-point"
    formula: ClassVar[str] = "Σ h Γ / Σ h, h = √(v e)"
    assumes: ClassVar[str] = (
        "many rows, and a floor under the probabilities that decays like t^-0.7 or more slowly"
    )
    order: ClassVar[int] = 6
    priority: ClassVar[tuple[int, int]] = (2, 0)
