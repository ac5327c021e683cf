"""`compare`: the difference of two targets' values, estimated from the same rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.estimates import (
    Evidence,
    normal_estimate,
    refusal_of_estimator,
    refusal_of_log,
    too_few,
)
from maillard.evaluation.estimators import all_estimators
from maillard.evaluation.estimators.estimator import CONFIDENCE_SEQUENCE, EFFECTIVE_SIZE, Estimator
from maillard.evaluation.evaluating import run_query
from maillard.evaluation.evaluation_log import EvaluationLog, open_log
from maillard.evaluation.evaluation_report import Estimate, Estimates, Report, lines_of, plain
from maillard.evaluation.log_sums import rows_by_target
from maillard.evaluation.moments import Moments
from maillard.evaluation.query import Options, Query, Settings
from maillard.evaluation.sequential.sequential_runner import SequentialRunner
from maillard.policies import Policy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.evaluation.weighted_rows import WeightedRows

_SHARED = "in the rows that both targets share,"
# Both reports contain these. A refusal of the first applies to all estimators that use weights.
_WEIGHTED = ["ips", "snips"]


def difference_names() -> list[str]:
    """The names of the estimators of differences.

    >>> difference_names()[-2:]
    ['bols', 'w-decorrelation']
    """
    return [*_general_names(), *_TWO_ARMS]


def _general_names() -> list[str]:
    found = [cls for cls in all_estimators().values() if cls.compares]
    return [cls.name for cls in sorted(found, key=lambda cls: cls.order)]


@dataclass(frozen=True, kw_only=True)
class Comparison(Estimates):
    """The value of one target minus that of another, by each requested estimator."""

    first: Report
    second: Report

    @property
    def adaptive(self) -> bool:
        return self.first.adaptive

    def to_dict(self) -> dict[str, Any]:
        """The comparison as values that JSON supports."""
        made: dict[str, Any] = plain(
            {
                "first": self.first.to_dict(),
                "second": self.second.to_dict(),
                "confidence": self.confidence,
                "estimates": {name: dataclasses.asdict(each) for name, each in self.estimates.items()},
                "best": None if self.best is None else self.best.name,
                "refusals": self.refusals,
            }
        )
        return made

    def __str__(self) -> str:
        title = f"{self.first.target} minus {self.second.target} on {self.first.source}"
        return "\n".join([title, *lines_of(self)])


def compare(
    log: Any,
    a: str | Policy,
    b: str | Policy,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    penalty: float | None = None,
    **options: Unpack[Options],
) -> Comparison:
    """Estimate how much larger the mean reward of target `a` is than that of target `b`.

    Both are estimated from the same rows, those in which all arms of both could have been chosen, so that
    common noise cancels. `bols` and `w-decorrelation` compare two arms, whose rewards they keep in memory;
    the latter needs a `penalty` (see differences.decorrelation.choose_penalty). Each of the two confidence
    sequences has half of the error probability, and so have both reports. The options are those of
    `evaluate`, except `interval` and `reward_model`.

    >>> from maillard import simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=5000, seed=1)
    >>> compare(log, "arm:0", "arm:1")["aipw-two-point"].lower > 0
    True
    """
    settings = Settings.of(confidence, options)
    if settings.reward_model is not None:
        raise InvalidValue("reward_model", settings.reward_model, "None: compare does not use one")
    if settings.interval != "normal":
        raise InvalidValue("interval", settings.interval, "'normal', the only interval that compare supports")
    names = _checked_names(estimators)
    opened = open_log(log, settings)
    try:
        # Each of the two confidence sequences may fail with half of the probability.
        halved = replace(settings, confidence=0.5 + confidence / 2)
        sequences = [name for name in names if _interval(name) == CONFIDENCE_SEQUENCE]
        query = Query.of(opened, [a, b], [*_WEIGHTED, *sequences], halved)
        difference = query.targets[0] - query.targets[1]
        if not difference.probabilities.any():
            raise InvalidValue("b", str(b), f"a target that differs from {query.targets[0].name}")
        first, second = run_query(opened, query)
        normal = [name for name in names if name in all_estimators() and name not in sequences]
        paired_query = Query.of(opened, [difference], normal or _WEIGHTED, settings)
        paired = _read_pairs(opened, paired_query, query.targets, keep=bool(set(names) & set(_TWO_ARMS)))
    finally:
        opened.close()
    evidence = replace(first.evidence, query=paired_query, target=difference)
    pair = _Pair(first, second, paired, evidence)
    made = {name: _estimate(name, pair, penalty) for name in names}
    return Comparison(first=first, second=second, confidence=confidence, estimates=made)


def _checked_names(estimators: Sequence[str] | None) -> list[str]:
    if estimators is None:
        return _general_names()
    names = [estimators] if isinstance(estimators, str) else list(estimators)
    for name in names:
        if name not in difference_names():
            raise UnknownName("estimator of differences", name, difference_names())
    return names


def _interval(name: str) -> str:
    return all_estimators()[name].interval if name in all_estimators() else ""


class _PairedRows:
    """Sums over the rows that both targets share."""

    def __init__(self, runner: SequentialRunner, targets: tuple[Target, ...], *, keep: bool) -> None:
        self.runner, self.targets, self.keep = runner, targets, keep
        self.moments: Moments | None = None
        "Of w and w r of the first target, then of the second."
        self.kept: list[tuple[NDArray[Any], ...]] = []
        self.roots = 0.0
        "The sum of √e, where e is the propensity of the difference."

    def advance(self, rows: WeightedRows) -> None:
        """Process more rows."""
        if not len(rows):
            return
        self.runner.advance(rows)
        inverse = np.exp(-rows.log_probability)
        weights = [
            target.probabilities[np.minimum(rows.target_row, target.positions - 1), rows.arm] * inverse
            for target in self.targets
        ]
        if rows.propensity is not None:
            self.roots += float(np.sqrt(rows.propensity).sum())
        terms = np.stack([weights[0], weights[0] * rows.reward, weights[1], weights[1] * rows.reward])
        moments = Moments.of(terms, rows.unit)
        self.moments = moments if self.moments is None else self.moments + moments
        if self.keep:
            self.kept.append((rows.arm, rows.reward, rows.state))

    def effective_size(self, which: int) -> float:
        """The effective sample size of the weights of one target."""
        assert self.moments is not None
        n, mean = self.moments.count, self.moments.mean[2 * which]
        squares = self.moments.scatter[2 * which, 2 * which] + n * mean**2
        return float((n * mean) ** 2 / squares) if squares else 0.0


@np.errstate(over="ignore", invalid="ignore")
def _read_pairs(log: EvaluationLog, query: Query, targets: tuple[Target, ...], *, keep: bool) -> _PairedRows:
    """One pass over the rows that both targets share; the query's target is their difference."""
    paired = _PairedRows(SequentialRunner(log, query, query.targets[0]), targets, keep=keep)
    for columns in log.columns():
        if len(columns):
            paired.advance(rows_by_target(columns, log, query)[0][0][0])
    return paired


@dataclass(frozen=True, eq=False)
class _Pair:
    """The reports of both targets, and the rows and the evidence of their difference."""

    first: Report
    second: Report
    rows: _PairedRows
    evidence: Evidence


def _estimate(name: str, pair: _Pair, penalty: float | None) -> Estimate:
    """The difference by one estimator, or why it is refused."""
    if pair.rows.moments is None or not pair.rows.moments.count:
        return Estimate(name=name, refusal="in no row could all arms of both targets have been chosen")
    two_arms = _TWO_ARMS.get(name)
    estimator = None if two_arms else all_estimators()[name]()
    for which, report in enumerate((pair.first, pair.second)):
        why = _refusal(estimator, which, report, pair)
        if why is not None:
            return Estimate(name=name, refusal=f"{report.target}: {why}")
    if two_arms is not None:
        return _two_arm_estimate(name, two_arms, pair, penalty)
    if name in pair.first and _interval(name) == CONFIDENCE_SEQUENCE:
        return _difference_of_sequences(name, pair)
    assert estimator is not None
    if estimator.sequential:
        value, error = pair.rows.runner.result(estimator)  # type: ignore[arg-type]  # it is sequential
        assumes = estimator.assumes
    else:
        value, gradient = estimator.difference(pair.rows.moments.mean)  # type: ignore[attr-defined]  # additive
        error = math.sqrt(pair.rows.moments.variance(gradient))
        assumes = "many rows, none of which dominates the variance: probabilities bounded away from 0"
    return normal_estimate(name, value, error, pair.evidence, assumes=assumes, caveat=pair.evidence.caveat)


def _refusal(estimator: Estimator | None, which: int, report: Report, pair: _Pair) -> str | None:
    """Why one of the two targets cannot be evaluated, or None."""
    if estimator is None:
        return refusal_of_log(report.evidence)
    weighted = estimator.sample_size == EFFECTIVE_SIZE
    if estimator.name in report:
        why = report[estimator.name].refusal
    else:
        why = report[_WEIGHTED[0]].refusal if weighted else refusal_of_log(report.evidence)
    if why is not None or estimator.interval == CONFIDENCE_SEQUENCE:
        return why
    if weighted:
        why = too_few(
            pair.rows.effective_size(which), f"{_SHARED} the effective sample size is", pair.evidence
        )
    elif pair.rows.moments is not None:
        pulls = pair.rows.roots**2 / pair.rows.moments.count
        why = too_few(pulls, f"{_SHARED} the effective pulls are", pair.evidence)
    return why or (refusal_of_estimator([estimator], report.evidence) if estimator.sequential else None)


def _difference_of_sequences(name: str, pair: _Pair) -> Estimate:
    a, b = pair.first[name], pair.second[name]
    ends = (a.value, a.lower, a.upper, b.value, b.lower, b.upper)
    a_value, a_lower, a_upper, b_value, b_lower, b_upper = (
        math.nan if each is None else each for each in ends
    )
    return Estimate(
        name=name,
        value=a_value - b_value,
        lower=a_lower - b_upper,
        upper=a_upper - b_lower,
        interval="two confidence sequences, simultaneously valid",
        assumes=a.assumes,
        caveat="; ".join(dict.fromkeys([*pair.first.evidence.doubts, *pair.second.evidence.doubts])),
    )


_TwoArms = Callable[..., dict[str, Any] | str]


def _two_arm_estimate(name: str, method: _TwoArms, pair: _Pair, penalty: float | None) -> Estimate:
    arms = [target.only_arm for target in pair.rows.targets]
    if None in arms:
        return Estimate(name=name, refusal="it is for the difference of two arms")
    if pair.evidence.sums.repeated or pair.evidence.query.by_unit:
        return Estimate(name=name, refusal="it needs rows that are chosen independently")
    columns = [np.concatenate(each) for each in zip(*pair.rows.kept, strict=True)]
    try:
        found = method(*columns, *arms, confidence=pair.evidence.query.settings.confidence, penalty=penalty)
    except InvalidValue as error:
        found = str(error)
    return Estimate(name=name, refusal=found) if isinstance(found, str) else Estimate(name=name, **found)


def _batched(
    arm: Any, reward: Any, batch: Any, one: int, other: int, *, confidence: float, penalty: float | None
) -> dict[str, Any] | str:
    from maillard.evaluation.differences.batched_difference import batched_difference

    del penalty
    found = batched_difference(arm, reward, batch, one, other, confidence=confidence)
    return {
        "value": found.value,
        "lower": found.lower,
        "upper": found.upper,
        "interval": f"least squares in each of {found.batches:,} batches",
        "assumes": "batches (those of the log's states) whose ends do not depend on their rewards, "
        "and the same variance for both arms",
    }


def _decorrelated(
    arm: Any, reward: Any, batch: Any, one: int, other: int, *, confidence: float, penalty: float | None
) -> dict[str, Any] | str:
    from maillard.evaluation.differences.decorrelation import decorrelated_difference

    del batch
    if penalty is None:
        return "it needs penalty=..., chosen without the rewards (differences.decorrelation.choose_penalty)"
    found = decorrelated_difference(arm, reward, one, other, penalty=penalty, confidence=confidence)
    return {
        "value": found.value,
        "lower": found.lower,
        "upper": found.upper,
        "interval": "W-decorrelation",
        "assumes": "the same variance for both arms, and a penalty chosen without the rewards",
    }


_TWO_ARMS: dict[str, _TwoArms] = {"bols": _batched, "w-decorrelation": _decorrelated}
