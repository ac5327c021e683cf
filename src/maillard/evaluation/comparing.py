"""`compare`: the difference of two targets' values, estimated from the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack, overload

import numpy as np

from maillard.decisions.selection import Names
from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation import estimates
from maillard.evaluation.bound_targets import AnyTarget, Target
from maillard.evaluation.differences.two_arm_estimates import TWO_ARMS, two_arm_estimate
from maillard.evaluation.estimates import Refused, no_closed_window
from maillard.evaluation.estimators import all_estimators
from maillard.evaluation.estimators.estimator import (
    CONFIDENCE_SEQUENCE,
    EFFECTIVE_SIZE,
    SECOND_MOMENT,
    Estimator,
)
from maillard.evaluation.evaluating import bounded, depends_on_units, run_query, with_model
from maillard.evaluation.evaluation_log import EvaluationLog, open_log
from maillard.evaluation.evaluation_report import Estimate, Estimates, Report, lines_of, notes_of, together_of
from maillard.evaluation.paired_rows import Pair
from maillard.evaluation.query import Query, keys_of
from maillard.evaluation.segments import Segments, segments_of
from maillard.evaluation.settings import Settings, SharedOptions, with_options
from maillard.policies.targets import FixedArm

# Both reports contain these. A refusal of the first applies to all estimators that use weights.
_WEIGHTED = ["ips", "snips"]


def difference_names() -> list[str]:
    """The names of the estimators of differences.

    >>> difference_names()[-2:]
    ['bols', 'w-decorrelation']
    """
    return [*_general_names(), *TWO_ARMS]


def default_names(log: EvaluationLog) -> list[str]:
    """The estimators of differences that a comparison has if the caller names none."""
    known, has_moment = all_estimators(), log.second_moment is not None
    return [name for name in _general_names() if has_moment or SECOND_MOMENT not in known[name].requires]


def _general_names() -> list[str]:
    found = [cls for cls in all_estimators().values() if cls.compares]
    return [cls.name for cls in sorted(found, key=lambda cls: cls.order)]


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Estimates):
    """The value of one target minus that of another, by each requested estimator.

    >>> from maillard import simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=2000, seed=1)
    >>> found = compare(log, "arm:0", "arm:1")
    >>> found.best.name, found.best.lower > 0, found.to_dict()["best"]
    ('aipw-two-point', True, 'aipw-two-point')
    >>> round(found.first["snips"].value - found.second["snips"].value, 1)
    0.3
    """

    first: Report
    second: Report

    json_fields: ClassVar = (
        "first", "second", "confidence", "estimates", "best", "why_best", "warnings", "population",
        "refusals",
    )  # fmt: skip

    @property
    def target(self) -> str:
        """The difference, as text."""
        return f"{self.first.target} minus {self.second.target}"

    @property
    def adaptive(self) -> bool:
        return self.first.adaptive or self.second.adaptive

    @property
    def active(self) -> bool:
        return self.first.active

    @property
    def changed(self) -> bool:
        return self.first.changed or self.second.changed

    @property
    def has_floor(self) -> bool:
        return self.first.has_floor

    @property
    def population(self) -> str:
        """The decisions that the answer is about, if it is not about all of them; else ""."""
        return self.first.population

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before using the estimates, in plain words."""
        return list(dict.fromkeys([*self.first.warnings, *self.second.warnings]))

    @property
    def notes(self) -> list[str]:
        """What a reader must know, as lines of text: the population, unused decisions, and warnings."""
        return list(dict.fromkeys([*notes_of(self.first), *notes_of(self.second), *together_of(self)]))

    @property
    def _size_text(self) -> str:
        """The log."""
        return self.first.source

    def __str__(self) -> str:
        return "\n".join([f"{self.target} on {self._size_text}", *self.notes, *lines_of(self)])


@overload
def compare(
    log: Any,
    a: AnyTarget,
    b: AnyTarget,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    penalty: float | None = None,
    by: None = None,
    **options: Unpack[SharedOptions],
) -> Comparison: ...


@overload
def compare(
    log: Any,
    a: AnyTarget,
    b: AnyTarget,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    penalty: float | None = None,
    by: str | Iterable[str],
    **options: Unpack[SharedOptions],
) -> Segments[Comparison]: ...


@with_options(SharedOptions)
def compare(
    log: Any,
    a: AnyTarget,
    b: AnyTarget,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    penalty: float | None = None,
    by: Names = None,
    **options: Unpack[SharedOptions],
) -> Comparison | Segments[Comparison]:
    """Estimate how much larger the mean reward of target `a` is than that of target `b`.

    Both are estimated from the same rows, those in which all arms of both could have been chosen, so that
    common noise cancels. The result is a `Comparison`: a mapping of estimators to estimates of the
    difference, with the reports of both targets as `first` and `second`. Each of the two confidence sequences
    has half of the error probability, and so have both reports. Two arms are one of several pairs that a
    reader may look at, so their intervals are valid together for all pairs of arms in the log; pass
    `comparisons=1` if the pair was chosen in advance.

    - `log`: anything that `read_log` opens, or a log of `simulate_log`.
    - `a` and `b`: targets, as for `evaluate`.
    - `estimators`: names of estimators of differences: those of `evaluate` that can compare, and for two arms
      also `bols` and `w-decorrelation`, which keep the rewards of both arms in memory.
    - `confidence`: the probability, between 0 and 1, with which an interval contains the true difference.
    - `penalty`: the penalty λ of `w-decorrelation`, which needs one: a number > 0. `choose_penalty` in
      `maillard.evaluation.differences.decorrelation` chooses it.
    - `by`: a key of the context, or several. The result is then a mapping of segments to comparisons, whose
      intervals are valid together.

    >>> from maillard import simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=5000, seed=1)
    >>> compare(log, "arm:0", "arm:1")["aipw-two-point"].lower > 0
    True
    """
    settings = Settings.of(confidence, {**options, "by": by})
    if settings.reward_model is not None:
        raise InvalidValue("reward_model", settings.reward_model, "None: compare does not use one")
    if settings.interval != "normal":
        raise InvalidValue("interval", settings.interval, "'normal', the only interval that compare supports")
    names = _checked_names(estimators)
    with open_log(log, settings, keys_of((a, b), settings)) as opened:
        pairs = max(1, math.comb(opened.arm_count, 2)) if _are_arms(a, b) else 1
        if estimators is None:
            names = default_names(opened)
        whole = compare_with_bounds(opened, (a, b), names, settings.for_comparisons(pairs), penalty)
        if settings.by is None:
            return whole
        with segments_of(opened, settings) as (logs, notes):
            adjusted = settings.for_segments(pairs * len(logs))
            found = {
                name: compare_with_bounds(each, (a, b), names, adjusted, penalty)
                for name, each in logs.items()
            }
            sizes = {name: each.size for name, each in logs.items()}
        return Segments(by=settings.by, results=found, whole=whole, sizes=sizes, notes=notes)


def compare_with_bounds(
    log: EvaluationLog,
    targets: tuple[AnyTarget, AnyTarget],
    names: Sequence[str],
    settings: Settings,
    penalty: float | None,
) -> Comparison:
    """A comparison that allows for units that return and for missing rewards."""
    query = Query.of(
        log, targets, [name for name in names if name in all_estimators()] or _WEIGHTED, settings
    )
    log, pair = with_model(log, query), (query.targets[0], query.targets[1])
    found = _compare(log, pair, names, settings, penalty)
    if settings.cluster is None and any(map(depends_on_units, (found.first, found.second))):
        settings = replace(settings, cluster="unit")
        found = _compare(log, pair, names, settings, penalty)
    missing = any(report.diagnostics.missing for report in (found.first, found.second))
    if log.reward_range is None or not missing or settings.missing == "ignore":
        return found
    difference = pair[0] - pair[1]
    if difference.contextual:
        return found  # which arms favour `a` depends on the context: missing rewards are left out
    # Missing rewards could have been as unfavourable to `a`, or to `b`, as their range allows.
    favours_a = difference.probabilities[0] > 0
    low, high = log.reward_range
    ends = ((low, high), (high, low))
    least, most = (
        _compare(log, pair, names, settings, penalty, fill_missing=tuple(fill.tolist()))
        for fill in (np.where(favours_a, of_a, of_b) for of_a, of_b in ends)
    )
    filled = least.first.diagnostics.filled
    return replace(least, estimates=bounded(found, least, most, filled))


def _compare(
    log: EvaluationLog,
    targets: tuple[Target, Target],
    names: Sequence[str],
    settings: Settings,
    penalty: float | None,
    *,
    fill_missing: tuple[float, ...] | None = None,
) -> Comparison:
    # Each of the two confidence sequences may fail with half of the probability.
    halved = replace(settings, confidence=0.5 + settings.confidence / 2)
    general = [name for name in names if name in all_estimators()]
    sequences = [name for name in general if all_estimators()[name].interval == CONFIDENCE_SEQUENCE]
    query = Query.of(log, targets, [*_WEIGHTED, *sequences], halved)
    query = replace(query, shared_rows=True, fill_missing=fill_missing)
    difference = query.targets[0] - query.targets[1]
    if not difference.contextual and not difference.probabilities.any():
        raise InvalidValue("b", targets[1].name, f"a target that differs from {query.targets[0].name}")
    first, second = run_query(log, query)
    normal = [name for name in general if name not in sequences]
    paired_query = Query.of(log, [difference], normal or _WEIGHTED, settings)
    # If a target depends on the context, the rows are those of both reports.
    paired_query = replace(paired_query, fill_missing=fill_missing, shared_rows=difference.contextual)
    evidence = replace(first.evidence, query=paired_query, target=difference)
    pair = Pair(first, second, evidence)
    pair.read(keep=bool(set(names) & set(TWO_ARMS)))
    return Comparison(
        first=first,
        second=second,
        confidence=settings.confidence,
        comparisons=settings.comparisons or 1,
        estimates={name: _estimate(name, pair, penalty) for name in names},
    )


def _are_arms(*targets: AnyTarget) -> bool:
    """Whether each target is a single arm, which the reader may have picked by its reward."""
    return all(
        isinstance(each, FixedArm) or (isinstance(each, str) and each.startswith("arm:")) for each in targets
    )


def _checked_names(estimators: Sequence[str] | None) -> list[str]:
    if estimators is None:
        return _general_names()
    names = [estimators] if isinstance(estimators, str) else list(estimators)
    for name in names:
        if name not in difference_names():
            raise UnknownName("estimator of differences", name, difference_names())
    return names


def _estimate(name: str, pair: Pair, penalty: float | None) -> Estimate:
    """The difference by one estimator, or why it is refused."""
    try:
        return _difference(name, pair, penalty)
    except Refused as refusal:
        return Estimate(name=name, refusal=str(refusal))


def _difference(name: str, pair: Pair, penalty: float | None) -> Estimate:
    if pair.moments is None or not pair.moments.count:
        left_out = pair.first.diagnostics.left_out
        if set(left_out) == {"window not closed"} == set(pair.second.diagnostics.left_out):
            raise Refused(no_closed_window(pair.first.diagnostics.open, pair.evidence.log))
        raise Refused("in no row could all arms of both targets have been chosen")
    estimator = None if name in TWO_ARMS else all_estimators()[name]()
    for which, report in enumerate((pair.first, pair.second)):
        why = _refusal(estimator, which, report, pair)
        if why is not None:
            raise Refused(f"{report.target}: {why}")
    if estimator is None:
        return two_arm_estimate(name, pair, penalty)
    if estimator.interval == CONFIDENCE_SEQUENCE:
        return _difference_of_sequences(name, pair)
    by_unit = None
    if estimator.sequential:
        value, error = pair.runner.result(estimator)  # type: ignore[arg-type]  # it is sequential
        assumes = estimator.assumes
    else:
        made = pair.estimation(estimator.difference)  # type: ignore[attr-defined]  # additive
        value, error, by_unit = made.value, math.sqrt(made.variance), made.by_unit
        assumes = "many rows, none of which dominates the variance: probabilities bounded away from 0"
    both = [report.evidence for report in (pair.first, pair.second)]
    caveats = [evidence.caveat_of(estimator, evidence.caveat) for evidence in both]
    assumes = pair.evidence.assumptions_of(estimator, assumes, by_unit)
    texts = {"assumes": assumes, "caveat": _joined(pair, *caveats)}
    return estimates.normal_estimate(name, value, error, pair.evidence, by_unit, **texts)


def _refusal(estimator: Estimator | None, which: int, report: Report, pair: Pair) -> str | None:
    """Why one of the two targets cannot be evaluated, or None."""
    if estimator is None:
        return estimates.refusal_of_log(report.evidence)
    weighted = estimator.sample_size == EFFECTIVE_SIZE
    if estimator.name in report:
        why = report[estimator.name].refusal
    else:
        why = report[_WEIGHTED[0]].refusal if weighted else estimates.refusal_of_log(report.evidence)
    if why is not None or estimator.interval == CONFIDENCE_SEQUENCE:
        return why
    if weighted:
        size, what = pair.effective_size(which), "the effective sample size is"
    else:
        size, what = pair.effective_pulls, "the effective pulls are"
    why = estimates.too_few(size, f"in the rows that both targets share, {what}", pair.evidence)
    if why is None and estimator.sequential:
        why = estimates.refusal_of_estimator([estimator], report.evidence)
    return why


def _difference_of_sequences(name: str, pair: Pair) -> Estimate:
    ends = [(each.value, each.lower, each.upper) for each in (pair.first[name], pair.second[name])]
    (value, lower, upper), (other_value, other_lower, other_upper) = np.array(ends, np.float64).tolist()
    return Estimate(
        name=name,
        value=value - other_value,
        lower=lower - other_upper,
        upper=upper - other_lower,
        interval="two confidence sequences, simultaneously valid",
        anytime_valid=True,
        assumes=pair.first[name].assumes,
        caveat=_joined(pair, pair.first[name].caveat, pair.second[name].caveat),
    )


def _joined(pair: Pair, first: str, second: str) -> str:
    """The caveats of two targets: first those of only one of them, after its name, then those of both."""
    one, other = ([part for part in caveat.split("; ") if part] for caveat in (first, second))
    only = [
        f"{report.target}: {'; '.join(own)}"
        for report, parts, others in ((pair.first, one, other), (pair.second, other, one))
        if (own := [part for part in parts if part not in others])
    ]
    return "; ".join([*only, *(part for part in one if part in other)])
