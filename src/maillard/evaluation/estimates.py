"""From sums to estimates: a value with its interval and what that assumes, or a refusal with its reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from maillard.decisions.audit import Audit
from maillard.evaluation.estimators.estimator import (
    ALL_PROBABILITIES,
    CONFIDENCE_SEQUENCE,
    EFFECTIVE_PULLS,
    NO_INTERVAL,
    REWARD_RANGE,
    SECOND_MOMENT,
    Estimator,
)
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.evaluation_report import Estimate
from maillard.evaluation.evidence import Evidence
from maillard.evaluation.level_selection import choose, independent_widths
from maillard.evaluation.moments import WEIGHT
from maillard.evaluation.promised_floors import floor_for
from maillard.evaluation.sequential.sequential_runner import SequentialRunner
from maillard.evaluation.unit_intervals import UnitVariance

_MIN_UNITS, _MIN_EFFECTIVE_UNITS = 10, 2.0
_REQUIREMENTS = {
    ALL_PROBABILITIES: "it needs the probability of every arm, and some rows have only that of "
    "the chosen arm",
    REWARD_RANGE: "it needs the range of rewards (reward_range=(low, high), or --reward-range low..high)",
    SECOND_MOMENT: "it needs a bound on the mean squared reward of every arm (second_moment=..., or "
    "--second-moment), from earlier data or from what an order can cost",
}
_BIAS = ". The interval covers the expectation of the estimate, not the bias that shrinkage causes"
_EQUAL = (
    "all rewards that count are equal, so there is no standard error. A confidence sequence does not need one"
)
NOT_FOR_CONTEXTS = (
    "decisions have contexts, so the visitors who saw an arm may differ from the others. Use an estimator "
    "that weights rows, such as snips, aipw or cs-dr"
)
NOT_FOR_ACTIONS = (
    "the arms differ at every decision, and it needs arms that all decisions share. Use an estimator that "
    "weights rows, such as snips, aipw or cs-dr"
)
_OVERFLOW = "rewards or weights are too large to be squared, or all weights are 0"


class Refused(Exception):
    """An estimator cannot answer; the message says why."""


@np.errstate(over="ignore", invalid="ignore")
def estimate(name: str, estimators: Sequence[Any], evidence: Evidence, runner: SequentialRunner) -> Estimate:
    """The estimate, or its refusal. Several `estimators` are levels of one, of which the data choose one."""
    try:
        return _estimate(name, estimators, evidence, runner)
    except Refused as refusal:
        return Estimate(name=name, refusal=str(refusal))


def _estimate(name: str, estimators: Sequence[Any], evidence: Evidence, runner: SequentialRunner) -> Estimate:
    first = estimators[0]
    refusal = refusal_of_log(evidence) or refusal_of_estimator(estimators, evidence)
    if refusal:
        raise Refused(refusal)
    if not first.sequential:
        return _additive(name, estimators, evidence, runner)
    if first.interval != CONFIDENCE_SEQUENCE:
        value, error = runner.result(first)
        assumes = evidence.assumptions_of(first, first.assumes)
        caveat = evidence.caveat_of(first, evidence.caveat)
        return normal_estimate(name, value, error, evidence, assumes=assumes, caveat=caveat)
    value, lower, upper = runner.bounds(first)
    if math.isnan(value):
        alpha = 1.0 - evidence.query.settings.confidence
        raise Refused(
            f"it excludes every value. If the log is correct, this has a probability of at most {alpha:.3g}; "
            "otherwise the means of arms changed, or the probabilities are wrong"
        )
    return Estimate(
        name=name,
        value=value,
        lower=evidence.clip(lower),
        upper=evidence.clip(upper),
        interval=first.interval,
        assumes=evidence.assumptions_of(first, first.assumes),
        caveat=evidence.caveat_of(first, "; ".join(evidence.doubts)),
        anytime_valid=True,
    )


def normal_estimate(
    name: str,
    value: float,
    error: float,
    evidence: Evidence,
    by_unit: UnitVariance | None = None,
    **more: Any,
) -> Estimate:
    """An estimate with a normal interval; it is refused if there is no standard error.

    By unit, the interval is that of unit_intervals.py, which is a confidence sequence while the experiment is
    active.
    """
    if math.isnan(error):
        raise Refused("fewer than three rows: there is no standard error")
    if not (math.isfinite(value) and math.isfinite(error)):
        raise Refused(_OVERFLOW)
    if not error > 0:
        raise Refused(_EQUAL)
    kind, half = "normal", evidence.z * error
    if by_unit is not None:
        kind, half = _by_unit(by_unit, evidence)
    lower, upper = evidence.clip(value - half), evidence.clip(value + half)
    return Estimate(
        name=name,
        value=value,
        lower=min(lower, value),
        upper=max(upper, value),
        standard_error=error,
        interval=kind,
        anytime_valid=by_unit is not None and evidence.anytime_by_unit,
        **more,
    )


def _by_unit(found: UnitVariance, evidence: Evidence) -> tuple[str, float]:
    """The type of an interval by unit, and its half-width."""
    if found.units < _MIN_UNITS:
        raise Refused(f"there are {found.units} units, and an interval by unit needs at least {_MIN_UNITS}")
    if found.effective_units < _MIN_EFFECTIVE_UNITS:
        raise Refused(
            f"one unit dominates: {found.units:,} units are worth {found.effective_units:.1f} equal ones, "
            f"and an interval by unit needs at least {_MIN_EFFECTIVE_UNITS:g}"
        )
    confidence, error = evidence.query.settings.confidence, math.sqrt(found.variance)
    if evidence.anytime_by_unit:
        return "asymptotic confidence sequence, by unit", found.anytime_quantile(confidence) * error
    return "normal, by unit", found.quantile(confidence) * error


def _additive(name: str, estimators: Sequence[Any], evidence: Evidence, runner: SequentialRunner) -> Estimate:
    sums, d = evidence.target_sums.sums, evidence.diagnostics
    model, center = evidence.modelled, evidence.log.center
    solved = [each.estimate(sums[each.key], model=model, center=center) for each in estimators]
    values, variances, by_unit = zip(*solved, strict=True)
    best, chosen_level = 0, len(estimators) > 1
    if chosen_level:
        widths = runner.level_widths(estimators) if d.adaptive else independent_widths(variances, d.rows)
        if widths is None:
            raise Refused(
                "on an adaptive log only confidence sequences can choose the level, and they need "
                f"reward_range; give a level, as in {name}:{estimators[0].levels[2]:g}"
            )
        best = choose(values, widths)
    estimator, value, variance = estimators[best], values[best], variances[best]
    if not sums[estimator.key].count:
        raise Refused("no row has an arm that the target would have chosen")
    if not (math.isfinite(value) and math.isfinite(variance)):
        raise Refused(_OVERFLOW)
    interval, assumes = estimator.interval_and_assumption(model=model)
    if interval == NO_INTERVAL:
        return Estimate(name=name, value=value, interval=interval, assumes=assumes)
    if evidence.query.settings.interval == "bernstein":
        return _bernstein(name, estimator, value, variance, evidence)
    if not assumes:
        assumes = (
            "many rows, none of which dominates the variance, and a floor under the probabilities"
            if d.adaptive
            else "many independent rows, none of which dominates the variance"
        )
        if estimator.level is not None and not chosen_level:
            assumes += _BIAS
    removed = "" if chosen_level else _removed_weight(estimator, evidence)
    caveat = "; ".join(filter(None, [evidence.caveat, removed]))
    assumes = evidence.assumptions_of(estimator, assumes, by_unit[best])
    more = {"assumes": assumes, "caveat": caveat, "level": estimator.level}
    made = normal_estimate(name, value, math.sqrt(variance), evidence, by_unit[best], **more)
    if not chosen_level:
        return made
    # A level chosen for its small variance may be biased. The least shrunken form has the widest interval:
    # use that.
    widest = max(range(len(estimators)), key=lambda i: variances[i])
    wide = normal_estimate(name, values[widest], math.sqrt(variances[widest]), evidence, by_unit[widest])
    assert wide.lower is not None
    assert wide.upper is not None
    return replace(
        made,
        lower=min(wide.lower, value),
        upper=max(wide.upper, value),
        interval=f"{wide.interval}, of {estimators[widest]}",
        assumes=assumes + ", and that the least shrunken form has little bias",
    )


def _removed_weight(estimator: Any, evidence: Evidence) -> str:
    """A warning if the level removes much of the weight."""
    if estimator.level is None or not evidence.diagnostics.mean_weight:
        return ""
    moments = evidence.target_sums.sums[estimator.key]
    left = float(moments.mean[WEIGHT]) / evidence.diagnostics.mean_weight
    return f"its level removes {1 - left:.0%} of the weight, which biases the estimate" if left < 0.95 else ""


def _bernstein(name: str, estimator: Any, value: float, variance: float, evidence: Evidence) -> Estimate:
    """An estimate with Maurer and Pontil's interval."""
    log, d = evidence.log, evidence.diagnostics
    largest = min(estimator.max_weight(), log.max_weight(evidence.target) or math.inf)
    if not estimator.mean_of_terms or not math.isfinite(largest) or log.reward_range is None:
        raise Refused(
            "an empirical Bernstein interval needs ips or a shrunken form of it, a reward_range, "
            "and a floor or a level that bounds the weights"
        )
    if d.adaptive or evidence.query.by_unit:
        raise Refused("empirical Bernstein needs independent rows; on an adaptive log use cs-bernstein")
    low, high = log.reward_range
    span = largest * (max(high, 0.0) - min(low, 0.0))
    half = bernstein_halfwidth(variance, d.rows, span, 1.0 - evidence.query.settings.confidence)
    return Estimate(
        name=name,
        value=value,
        lower=value - half,
        upper=value + half,
        standard_error=math.sqrt(variance),
        interval="empirical Bernstein",
        assumes="independent rows, and rewards and weights within the known bounds; "
        "valid for any number of rows" + ("" if estimator.level is None else _BIAS),
        caveat="; ".join(evidence.doubts),
        level=estimator.level,
    )


def bernstein_halfwidth(variance: float, count: int, span: float, alpha: float) -> float:
    """Maurer and Pontil (2009), Theorem 4, two-sided, for independent terms within `span` of each other.

    `variance` is that of the mean of `count` terms. With L = ln(4 / α) and the sample variance V, whose
    denominator is n - 1, the half-width is √(2 V L / n) + 7 span L / (3 (n - 1)).

    >>> round(bernstein_halfwidth(0.25 / 1000, 1000, 1.0, 0.05), 4)
    0.0571
    """
    if count < 2:
        return math.inf
    log = math.log(4.0 / alpha)
    sample = variance * count * count / (count - 1)  # Σ (x - mean)² / (n - 1)
    return math.sqrt(2.0 * sample * log / count) + 7.0 * span * log / (3.0 * (count - 1))


def no_closed_window(count: int, log: EvaluationLog) -> str:
    """The refusal of a log in which all reward windows are open."""
    close = log.first_close
    first = "" if close is None else f"; the first window closes at {close:%Y-%m-%d %H:%M:%S} UTC"
    what = "1 decision is" if count == 1 else f"{count:,} decisions are"
    return f"no reward window has closed yet: {what} open{first}"


def refusal_of_log(evidence: Evidence) -> str | None:  # noqa: PLR0911  # one for each reason
    """Why no estimator can answer, or None."""
    d, settings = evidence.diagnostics, evidence.query.settings
    if d.faults:
        return f"{'; '.join(d.faults)}. No weight can be trusted"
    if d.audit == "broken":
        return (
            f"the chosen arms do not agree with the logged probabilities{_worst_choice(evidence)}. "
            "No weight can be trusted"
        )
    if d.mean_weight_z is not None and abs(d.mean_weight_z) > Audit.limit_for(len(evidence.log.arms)):
        return (
            f"the mean weight is {d.mean_weight_z:+.1f} standard deviations from 1: "
            "the logged probabilities cannot be right"
        )
    if not d.rows:
        reasons = ", ".join(f"{count:,} {why}" for why, count in d.left_out.items())
        if set(d.left_out) == {"window not closed"}:
            return no_closed_window(d.open, evidence.log)
        if set(d.left_out) <= {"window not closed", "without a reward"}:
            return f"no row has a final reward ({reasons})"
        return (
            f"{_in_segment(evidence)}in no row could all arms of the target have been chosen ({reasons}): "
            "a floor=... in the policy gives every arm support"
        )
    if d.missing > settings.max_missing:
        return (
            f"{d.missing:.1%} of the rows have no reward (at most {settings.max_missing:.0%} are accepted). "
            "If only some outcomes are reported, the rest is not a random sample. "
            "A reward window with a default value defines what a missing reward means"
        )
    accepted = f"(at most {settings.max_unsupported:.0%} is accepted)"
    if not evidence.all_probabilities and evidence.never_chosen > settings.max_unsupported:
        if evidence.never_shown:
            return f"{evidence.never_shown}, and the log does not contain the probabilities of all arms"
        if evidence.log.segment:
            return f"{_in_segment(evidence)}the log never shows {_arms_text(evidence)}"
        return (
            f"{evidence.never_chosen:.1%} of the target's probability is on arms that were never chosen, "
            f"and whose probabilities the log does not contain {accepted}"
        )
    if d.unsupported > settings.max_unsupported:
        advice = _floor_advice(max(settings.min_effective_size, 1.0), evidence)
        why = f"the target's arms could not have been chosen in {d.unsupported:.1%} of the rows"
        return f"{_in_segment(evidence)}{why} {accepted}; {advice}"
    return None


def _worst_choice(evidence: Evidence) -> str:
    """The arm that was chosen too often, or not often enough; empty if there is none beyond the limit."""
    scores = evidence.sums.choice_scores(evidence.log.arms)
    limit = Audit.limit_for(len(scores))
    beyond = [(abs(each.z), each) for each in scores if each.z is not None and abs(each.z) > limit]
    if not beyond:
        return ""
    z, worst = max(beyond, key=lambda pair: pair[0])
    return (
        f": {worst.name!r} was chosen {worst.observed:,.0f} times, and {worst.expected:,.0f} are expected "
        f"(|z| = {z:.1f}, the limit is {limit:.2f})"
    )


def _in_segment(evidence: Evidence) -> str:
    return f"in the segment {evidence.log.segment!r}, " if evidence.log.segment else ""


def _arms_text(evidence: Evidence) -> str:
    """The target's arms that were never chosen."""
    never = evidence.target.chosen_arms & (evidence.sums.chosen() == 0)
    return " or ".join(repr(arm) for arm, each in zip(evidence.log.arms, never, strict=True) if each)


def refusal_of_estimator(  # noqa: PLR0911, PLR0912  # one for each reason
    estimators: Sequence[Estimator], evidence: Evidence
) -> str | None:
    """Why this estimator cannot answer, although others may; or None."""
    d, first, chosen_level = evidence.diagnostics, estimators[0], len(estimators) > 1
    if evidence.log.action_names is not None and not (first.for_contexts and first.for_actions):
        return NOT_FOR_ACTIONS
    if why := first.refusal(evidence):
        return why
    if evidence.log.contextual and not first.for_contexts:
        return NOT_FOR_CONTEXTS
    if evidence.target.summarises and first.fits_model:
        return "it needs a target with few distributions"
    if first.sequential:
        if evidence.sums.repeated or evidence.query.settings.cluster == "unit":
            return (
                "it needs rows that are chosen independently; for rows that repeat a choice, or are "
                "clustered by unit, use ips or snips"
            )
        if ALL_PROBABILITIES in first.requires and not evidence.all_probabilities:
            return _REQUIREMENTS[ALL_PROBABILITIES]
        if missing := evidence.log.missing(first.requires):
            return _REQUIREMENTS[missing[0]]
    if first.uses_model and d.adaptive and (not evidence.modelled or first.fits_model):
        return (
            "its reward model is fitted to the whole log, which biases it on an adaptive log (the "
            "probabilities changed): use aipw, give a reward_model known in advance, or adaptive=False "
            "(--not-adaptive) if the log is not adaptive"
        )
    if not first.sequential and d.rows < 2:
        return "a single row has no variance"
    if d.alike and first.needs_variance:
        return _EQUAL
    if chosen_level and d.adaptive and first.uses_model:
        example = f"{first.name}:{first.levels[2]:g}"
        return f"its shrinkage level cannot be chosen from an adaptive log; give one, as in {example}"
    if not first.clusters and evidence.query.by_unit:
        return "it has no interval by unit"
    if not first.sample_size:
        return None
    if first.sample_size == EFFECTIVE_PULLS and d.effective_pulls is not None:
        return too_few(d.effective_pulls, "the effective pulls are", evidence)
    return too_few(d.effective_sample_size, "the effective sample size is", evidence)


def too_few(found: float, what: str, evidence: Evidence) -> str | None:
    """Why the log is too small, and which floor would have been large enough; None if it is large enough."""
    least = evidence.query.settings.min_effective_size
    if found >= least:
        return None
    rows, settings = evidence.diagnostics.rows, evidence.query.settings
    together = ""
    if evidence.log.segment and (settings.comparisons or 1) > 1:
        together = ", which is larger because the intervals of all segments must be valid together"
    shown = f"{what} {found:,.1f} of {rows:,} rows, below {least:.4g}{together}"
    return f"{shown}; {_floor_advice(least, evidence)}"


def _floor_advice(size: float, evidence: Evidence) -> str:
    rows, arms = max(evidence.diagnostics.rows, 1), len(evidence.log.arms)
    return floor_for(size, rows, arms, evidence.target.concentration)
