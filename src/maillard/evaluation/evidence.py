"""What one pass over a log found about one target, and which assumptions it puts in doubt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Floats
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.contextual_targets import ContextualTarget, RuleTarget
from maillard.evaluation.diagnostics import Diagnostics, share_text
from maillard.evaluation.estimators.estimator import CONFIDENCE_SEQUENCE, Estimator
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.log_sums import LogSums, TargetSums
from maillard.evaluation.query import Query
from maillard.evaluation.unit_intervals import UnitVariance

_MAX_LISTED = 3  # contexts without support that are named
_MIN_ROWS = 20  # from which it means something that an arm was never shown
_MIN_RARE = 10  # rewards of the rarer value, from which a sum of them is close to normal
_COCHRAN = 25.0  # a normal interval needs more rows than this times the squared skewness
_NO_FLOOR = (
    "the probabilities changed, so the log is assumed to be adaptive (if it is not, use adaptive=False or "
    "--not-adaptive). No floor is known that decays no faster than t^-0.7, so the interval may cover the "
    "value far less often than stated"
)
_HEAVY_TAILS = (
    ", and cs-catoni is narrow for heavy tails if you can state second_moment=..., a bound on the mean "
    "squared reward of every arm"
)
_MISSING_ROWS = (
    "rows are missing (if they were not removed because of their reward, leave out the column that numbers "
    "the rows)"
)
_MEANS = (
    "means of the arms that do not change over time",
    "means of the arms given the context, and a mix of contexts, that do not change over time",
)
_CHANGED = (
    "the means changed over time, and this estimator needs constant means (see the values by quarter); use "
    "aipw or cs-mean, which estimate the mean over the period"
)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What one pass over the log found about one target."""

    log: EvaluationLog
    query: Query
    target: Target
    sums: LogSums
    target_sums: TargetSums
    diagnostics: Diagnostics

    @property
    def all_probabilities(self) -> bool:
        """Whether every row has the probability of every arm."""
        return self.log.has_all_probabilities and self.sums.all_probabilities

    @property
    def modelled(self) -> bool:
        """Whether there is a reward model that was not fitted to the rows that it predicts."""
        return self.query.settings.reward_model is not None or self.log.predicts

    @property
    def never_chosen(self) -> float:
        """The target's probability of arms that the log never chose.

        For a contextual target, the fraction of the rows whose distribution has only such arms.
        """
        places = self.target_sums.places
        if places is not None:
            return float(places[self._never_shown, 0].sum() / max(places[:, 0].sum(), 1.0))
        return float((np.abs(self.target.probabilities) * (self.sums.chosen() == 0)).sum(axis=1).max())

    @property
    def _never_shown(self) -> NDArray[np.int64]:
        """The distributions of a contextual target whose arms the log never shows, although it had to.

        With a probability of 1 / W or more, W the largest weight, 5 W rows without the arm are unlikely.
        """
        places = self.target_sums.places
        if places is None:
            return np.zeros(0, np.int64)
        least = max(_MIN_ROWS, 5.0 * self.diagnostics.max_weight)
        return np.flatnonzero((places[:, 0] >= least) & (places[:, 1] == 0))

    @property
    def never_shown(self) -> str:
        """The contexts for which the log never shows the target's arms, in words; empty if there are none."""
        target, places = self.target, self.target_sums.places
        if places is None or not isinstance(target, ContextualTarget):
            return ""
        arms = np.array(self.log.arms)
        found = []
        for place in self._never_shown.tolist():
            names = " or ".join(map(repr, arms[target.probabilities[place] > 0].tolist()))
            when = target.describe(place) or "some contexts"
            found.append(f"in the {int(places[place, 0]):,} rows of {when} the log never shows {names}")
        return "; ".join(found[:_MAX_LISTED]) + ("; ..." if len(found) > _MAX_LISTED else "")

    @property
    def unused_clauses(self) -> list[str]:
        """The clauses of a rule that decide for no row of the log, for example because of a misspelt value.

        Empty in a segment, where it is normal that some clauses decide for no row.
        """
        target, places = self.target, self.target_sums.places
        if places is None or not isinstance(target, RuleTarget) or self.log.segment:
            return []
        return [
            clause.when
            for clause, rows in zip(target.rule.clauses, places[:, 0].tolist(), strict=True)
            if clause.conditions and not rows
        ]

    @property
    def mean_squares(self) -> Floats | None:
        """The mean squared reward of each arm, nan without a reward; None if it was not computed."""
        if self.sums.arm_quarters is None:
            return None
        (count, total, squares), center = self.sums.arm_quarters.sum(axis=1).T, self.log.center
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((squares + 2.0 * center * total) / count + center**2)

    @property
    def z(self) -> float:
        """The normal quantile of the intervals."""
        return NormalDist().inv_cdf(0.5 + self.query.settings.confidence / 2)

    def clip(self, bound: float) -> float:
        """A bound that is not outside of the range that the target's value can have."""
        if self.log.reward_range is None:
            return bound
        low, high = self.log.reward_range
        if self.target.is_difference:
            low, high = low - high, high - low
        return min(max(bound, low), high)

    @property
    def caveat(self) -> str:
        """Which assumptions of a normal interval are in doubt for this log."""
        d, found = self.diagnostics, []
        if d.adaptive and not self.log.has_floor:
            valid = self.log.reward_range and not self.doubts
            found.append(_NO_FLOOR + (". The confidence sequences are valid" if valid else ""))
        if self.sums.repeated and not self.query.by_unit:
            found.append(f'{self.sums.repeated:,} rows repeat the choice of another row; see cluster="unit"')
        if d.rare is not None and d.rare < _MIN_RARE:
            found.append(
                f"only {d.rare} of the {d.positive:,} rewards that count differ from the most common value; "
                "a confidence sequence is safer"
            )
        elif d.skewness is not None and d.rows < _COCHRAN * d.skewness**2:
            why, hint = "a few large terms dominate the sum", _HEAVY_TAILS * (self.log.second_moment is None)
            if d.binary:
                why, hint = (
                    f"only {d.rare:,} of the {d.positive:,} rewards that count have the rarer value",
                    "",
                )
            found.append(
                f"{why}: a normal interval needs more than {_COCHRAN * d.skewness**2:,.0f} such rows, and "
                f"there are {d.rows:,}; a confidence sequence is safer{hint}"
            )
        return "; ".join([*self.doubts, *found])

    @property
    def changed(self) -> bool:
        """Whether the means of the arms changed over time."""
        return self.diagnostics.constancy is not None and self.diagnostics.constancy.changed

    def caveat_of(self, estimator: Estimator, caveat: str) -> str:
        """A caveat, and that the means changed if the estimator assumes that they do not."""
        drift = _CHANGED if self.changed and estimator.constant_means else ""
        return "; ".join(filter(None, [drift, caveat]))

    @property
    def anytime_by_unit(self) -> bool:
        """Whether intervals by unit must be valid at any time."""
        return self.query.by_unit and self.log.active

    def anytime(self, estimator: Estimator) -> bool:
        """Whether an interval of this estimator is valid at any time."""
        if self.anytime_by_unit:
            return not estimator.sequential
        return estimator.interval == CONFIDENCE_SEQUENCE

    def assumptions_of(self, estimator: Estimator, assumes: str, by_unit: UnitVariance | None = None) -> str:
        """Everything that an interval requires, in one line."""
        visitors = "independent visitors"
        if by_unit is not None:
            visitors = (
                f"independent units ({by_unit.units:,}, worth {by_unit.effective_units:,.0f} equal ones)"
            )
            if self.anytime_by_unit:
                visitors += ", many of them; rewards of one unit that are not negatively correlated"
        return "; ".join(
            filter(
                None,
                [
                    "" if self.anytime(estimator) else "a number of rows that was fixed in advance",
                    _MEANS[self.log.contextual] if estimator.constant_means else "",
                    "rows in the order of the decisions" if estimator.sequential else "",
                    visitors,
                    assumes,
                ],
            )
        )

    @property
    def doubts(self) -> list[str]:
        """Which assumptions of any interval are in doubt for this log."""
        d, found = self.diagnostics, []
        if self.sums.pipeline.numbers.missing:
            found.append(_MISSING_ROWS)
        if d.missing:
            found.append(
                f"{share_text(d.missing)} of the rows have no reward and are left out, as if rewards were "
                "missing at random; a reward window with a default value avoids this"
            )
        if not self.all_probabilities and self.never_shown:
            found.append(f"{self.never_shown}, so these rows count as if the reward were 0, or not at all")
        if not self.all_probabilities and abs(d.mean_weight - 1.0) > 5.0 * d.mean_weight_error:
            z = (d.mean_weight - 1.0) / d.mean_weight_error if d.mean_weight_error else math.inf
            found.append(
                f"the mean weight is {d.mean_weight:.4g} instead of 1 ({abs(z):,.0f} standard errors away): "
                "the probabilities may be wrong, or the target's arms may not always have been eligible"
            )
        return found
