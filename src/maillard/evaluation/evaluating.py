"""`evaluate`: the mean reward that a target would have had, estimated from the log of another policy."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Unpack, overload

from maillard.decisions.outcomes import MAX_DESIGN_EFFECT
from maillard.decisions.selection import Names
from maillard.errors import CannotAnswer, InvalidLog, InvalidValue
from maillard.evaluation.bound_targets import AnyTarget, Target
from maillard.evaluation.diagnostics import Diagnostics
from maillard.evaluation.estimates import estimate
from maillard.evaluation.estimators import all_estimators
from maillard.evaluation.estimators.estimator import SECOND_MOMENT
from maillard.evaluation.evaluation_log import EvaluationLog, open_log
from maillard.evaluation.evaluation_report import Estimate, Estimates, Report
from maillard.evaluation.evidence import Evidence
from maillard.evaluation.log_sums import LogSums, rows_by_target, sums_of, sums_of_part, total_of
from maillard.evaluation.query import Query, keys_of
from maillard.evaluation.reward_models import with_predictions
from maillard.evaluation.segments import Segments, segments_of
from maillard.evaluation.sequential.sequential_runner import SequentialRunner
from maillard.evaluation.settings import Options, Settings, with_options
from maillard.policies import Policy

_MAX_MISSING_FOR_POINT = 0.05  # fraction of missing rewards up to which those present give the value
_MAX_PENDING = 64  # parts that workers may have at a time


def names() -> list[str]:
    """The names of all estimators: first the additive ones, then the sequential ones.

    >>> names()[-3:]
    ['cs-mean', 'cs-arm', 'cs-catoni']
    """
    return list(all_estimators())


@overload
def evaluate(
    log: Any,
    target: AnyTarget,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    by: None = None,
    **options: Unpack[Options],
) -> Report: ...


@overload
def evaluate(
    log: Any,
    target: AnyTarget,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    by: str | Iterable[str],
    **options: Unpack[Options],
) -> Segments[Report]: ...


@with_options(Options)
def evaluate(
    log: Any,
    target: AnyTarget,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    by: Names = None,
    **options: Unpack[Options],
) -> Report | Segments[Report]:
    """Estimate the mean reward of a decision if `target` had made all decisions in the log.

    - `log`: anything that `read_log` opens, or a log of `simulate_log`.
    - `target`: what made the decisions instead. It does not learn; use `replay` for a policy that learns. It
      is an arm, as in "arm:blue", a fixed distribution, "uniform", or a policy of this type; a rule, as in
      "rule:device=phone->blue,else->red"; a function of the context that returns an arm, or a mapping of arms
      to probabilities; "logged", the logging policy itself; or "frozen:12000", the log's own policy as it was
      at state 12,000. If the arms differ at every decision, a function also gets the actions, and "rank:1"
      is the action that was listed first.
    - `estimators`: names of estimators, which `maillard.evaluation.names` lists, optionally with a level, as
      in "clipped-ips:5". By default those that suit the log and the target.
    - `confidence`: the probability, between 0 and 1, with which an interval contains the true value.
    - `by`: a key of the context, or several. The result is then a mapping of segments to reports, whose
      intervals are valid together. Its attribute `whole` is the report for the whole log.

    The result is a `Report`: a mapping of estimators to estimates, with diagnostics. An estimate that the log
    does not support is refused, with a reason, in place of a wrong number.

    >>> from maillard import simulate_log
    >>> log = simulate_log("ms+:floor=0.1", "bernoulli:0.6,0.4", horizon=5000, seed=1)
    >>> report = evaluate(log, "arm:1")
    >>> report["snips"].lower < 0.4 < report["snips"].upper
    True
    """
    if by is None:
        return evaluate_each(log, [target], estimators, confidence, **options)[0]
    return evaluate_each(log, [target], estimators, confidence, by=by, **options)[0]


@overload
def evaluate_each(
    log: Any,
    targets: Sequence[AnyTarget],
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    by: None = None,
    **options: Unpack[Options],
) -> list[Report]: ...


@overload
def evaluate_each(
    log: Any,
    targets: Sequence[AnyTarget],
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    by: str | Iterable[str],
    **options: Unpack[Options],
) -> list[Segments[Report]]: ...


@with_options(Options)
def evaluate_each(
    log: Any,
    targets: Sequence[AnyTarget],
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    by: Names = None,
    **options: Unpack[Options],
) -> list[Report] | list[Segments[Report]]:
    """Evaluate several targets in one pass over the log.

    The result is a list with one report for each target. The intervals of all targets, with `by` in all
    segments, are valid together: the reader may pick the best target and trust its interval. `comparisons=1`
    makes each one valid on its own.

    - `log`: anything that `read_log` opens, or a log of `simulate_log`.
    - `targets`: a list of targets, each as for `evaluate`.
    - `estimators`: names of estimators; by default those that suit the log and the targets.
    - `confidence`: the probability, between 0 and 1, with which all intervals contain the true values.
    - `by`: a key of the context, or several: one mapping of segments to reports for each target.

    >>> from maillard import simulate_log
    >>> log = simulate_log("ms+:floor=0.1", "bernoulli:0.6,0.4", horizon=5000, seed=1)
    >>> zero, one = evaluate_each(log, ["arm:0", "arm:1"])
    >>> zero["snips"].value > one["snips"].value, zero.comparisons
    (True, 2)
    """
    if isinstance(targets, str | Policy) or callable(targets) or not targets:
        raise InvalidValue("targets", targets, "a list of at least one target")
    settings = Settings.of(confidence, {**options, "by": by})
    with open_log(log, settings, keys_of(targets, settings)) as opened:
        whole = run_with_bounds(opened, targets, estimators, settings.for_comparisons(len(targets)))
        if settings.by is None:
            return whole
        with segments_of(opened, settings) as (logs, notes):
            adjusted = settings.for_segments(len(targets) * len(logs))
            found = {
                name: run_with_bounds(each, targets, estimators, adjusted) for name, each in logs.items()
            }
            sizes = {name: each.size for name, each in logs.items()}
        return [
            Segments(
                by=settings.by,
                results={name: reports[place] for name, reports in found.items()},
                whole=report,
                sizes=sizes,
                notes=notes,
            )
            for place, report in enumerate(whole)
        ]


def run_with_bounds(
    log: EvaluationLog,
    targets: Sequence[AnyTarget],
    estimators: Sequence[str] | None,
    settings: Settings,
) -> list[Report]:
    """A report for each target, which allows for units that return and for missing rewards."""
    query = Query.of(log, targets, estimators, settings)
    log = with_model(log, query)
    targets = query.targets  # those of functions are bound by a pass over the log
    reports = run_query(log, query)
    if settings.cluster is None and not query.by_unit and any(map(depends_on_units, reports)):
        settings = replace(settings, cluster="unit")
        reports = run_query(log, Query.of(log, targets, estimators, settings))
    missing = any(report.diagnostics.missing for report in reports)
    if log.reward_range is None or not missing or settings.missing == "ignore":
        return reports
    query = Query.of(log, targets, estimators, settings)
    fills = ((end,) * len(log.arms) for end in log.reward_range)
    low, high = (run_query(log, replace(query, fill_missing=fill)) for fill in fills)
    return [_with_bounds(*each) for each in zip(reports, low, high, strict=True)]


def with_model(log: EvaluationLog, query: Query) -> EvaluationLog:
    """The log with predicted rewards, if it has contexts and an estimator uses them."""
    wanted = any(each.uses_predictions for group in query.estimators.values() for each in group)
    if not wanted or query.settings.reward_model is not None:
        return log
    return with_predictions(log, query.settings.features)


def depends_on_units(report: Report) -> bool:
    """Whether the rewards of a unit are alike, so that its rows are not independent."""
    effect = report.diagnostics.design_effect
    return effect is not None and effect > MAX_DESIGN_EFFECT


def _with_bounds(report: Report, low: Report, high: Report) -> Report:
    """The report with intervals that are valid whatever the missing rewards would have been (Manski 1990)."""
    return replace(low, estimates=bounded(report, low, high, low.diagnostics.filled))


def bounded(report: Estimates, low: Estimates, high: Estimates, filled: float) -> dict[str, Estimate]:
    """Estimates with the lower bounds of one report and the upper bounds of another."""
    estimates = {}
    for name, least in low.items():
        most, complete = high[name], report[name]
        if least.lower is None or most.upper is None or least.value is None or most.value is None:
            estimates[name] = least if least.value is None else most
            continue
        few = filled <= _MAX_MISSING_FOR_POINT and complete.value is not None
        middle = complete.value if few else (least.value + most.value) / 2
        caveats = dict.fromkeys(filter(None, [least.caveat, most.caveat]))
        estimates[name] = replace(
            least,
            value=middle,
            upper=most.upper,
            standard_error=None,
            interval=least.interval + (", with bounds" if few else ", bounds only"),
            assumes=f"{least.assumes}; nothing about the missing rewards",
            caveat="; ".join(caveats),
        )
    return estimates


def run_query(log: EvaluationLog, query: Query) -> list[Report]:
    """A report for each target: one pass over the log, or two if workers add up its parts."""
    runners = [SequentialRunner(log, query, target) for target in query.targets]
    sums = _read(log, query, runners)
    return [_report(log, query, sums, place, runner) for place, runner in enumerate(runners)]


def _report(log: EvaluationLog, query: Query, sums: LogSums, place: int, runner: SequentialRunner) -> Report:
    target, diagnostics = query.targets[place], Diagnostics.of(log, query, sums, place)
    _check(log, query, target, diagnostics.max_weight, has_units=sums.units)
    evidence = Evidence(log, query, target, sums, sums.targets[place], diagnostics)
    estimates = {
        name: estimate(name, estimators, evidence, runner)
        for name, estimators in query.estimators.items()
        if not (query.default_estimators and _does_not_fit(estimators[0], evidence))
    }
    return Report(
        target=target.name,
        source=log.source,
        experiment=log.experiment,
        confidence=query.settings.confidence,
        comparisons=query.settings.comparisons or 1,
        estimates=estimates,
        diagnostics=diagnostics,
        evidence=evidence,
    )


def _does_not_fit(estimator: Any, evidence: Evidence) -> bool:
    """Whether the default report omits an estimator, which is for other targets or other logs."""
    if evidence.log.contextual and not estimator.for_contexts:
        return True
    fitted = evidence.diagnostics.adaptive and estimator.uses_model and not evidence.log.predicts
    requested = SECOND_MOMENT in estimator.requires  # the caller stated it
    return bool(fitted or (not requested and estimator.refusal(evidence)))


def _check(log: EvaluationLog, query: Query, target: Target, weight: float, *, has_units: bool) -> None:
    """Raise an error if the log contradicts its floor, or if it has no units to cluster by."""
    log.check_weight(weight, target, ": largest weight")
    if query.settings.cluster == "unit" and not has_units:
        allowed = "a unit in at least one row, because cluster='unit' was requested"
        raise InvalidLog(f"{log.source}: unit", None, allowed)


def _read(log: EvaluationLog, query: Query, runners: Sequence[SequentialRunner]) -> LogSums:
    """The sums of the whole log; the sequential estimators see its rows in order."""
    from maillard.evaluation.compiled_sums import accepts_part

    executor, active = query.settings.executor, runners[0].active
    threads = executor is None and not active and all(accepts_part(part, log, query) for part in log.parts)
    if executor is not None or threads:
        parts = itertools.chain.from_iterable(map(_portable, log.parts))
        with nullcontext(executor) if executor is not None else ThreadPoolExecutor(os.cpu_count()) as workers:
            total = total_of(_in_parallel(workers, parts, log.detached(), query.detached()))
        for columns in log.columns() if active else ():
            for place, (rows, _) in enumerate(rows_by_target(columns, log, query)[0]):
                runners[place].advance(rows)
    else:
        used = runners if active else ()
        total = total_of(sums_of(columns, log, query, used) for columns in log.columns() if len(columns))
    if total is None:
        raise CannotAnswer(f"{log.source}: no row is selected; an evaluation needs at least one decision")
    return total


def _in_parallel(
    workers: Executor, parts: Iterable[Any], log: EvaluationLog, query: Query
) -> Iterator[LogSums | None]:
    """The sums of the parts, computed by workers; the number of pending parts is bounded."""
    pending: deque[Future[LogSums | None]] = deque()
    for part in parts:
        pending.append(workers.submit(sums_of_part, part, log, query))
        if len(pending) >= _MAX_PENDING:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _portable(part: Any) -> Iterable[Any]:
    """The part in a form that another process can read: parts of files by name, other columns by value."""
    from maillard.decisions.files.parquet import ParquetPart

    inner = getattr(part, "part", part)
    if isinstance(getattr(inner, "batches", None), ParquetPart):
        return [part]
    return (partial(tuple, (columns,)) for columns in part())
