"""Evaluations of targets that do not learn, for the job `what_if`: one estimate, or one for each segment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from maillard import errors
from maillard.decisions import DecisionLog

if TYPE_CHECKING:
    from maillard.evaluation.comparing import Comparison
    from maillard.evaluation.evaluation_log import EvaluationLog
    from maillard.evaluation.evaluation_report import Estimate, Report
    from maillard.evaluation.query import Query
    from maillard.evaluation.replays import Replay
    from maillard.evaluation.segments import Segment

FLOOR_ADVICE = "A floor in the policy, as in floor=0.1, makes estimates from later decisions more precise."


def evaluate_target(
    log: DecisionLog,
    targets: Sequence[str],
    estimators: Sequence[str] | None,
    options: dict[str, Any],
    by: Sequence[str] | None,
) -> dict[str, Any]:
    """Evaluate the target as `maillard.evaluate` does, and add the mean reward of the rows it used."""
    from maillard.evaluation.evaluating import run_with_bounds
    from maillard.evaluation.evaluation_log import open_log
    from maillard.evaluation.query import Query
    from maillard.evaluation.segments import segments_of
    from maillard.evaluation.settings import Settings

    def report_on(part: EvaluationLog, settings: Settings) -> dict[str, Any]:
        [report] = run_with_bounds(part, targets, estimators, settings)
        query = Query.of(part, targets, estimators, settings)
        return _report_fields(report, log, estimators) | {"logged_mean": _mean_reward(part, query)}

    settings = Settings(**options, by=None if by is None else tuple(by))
    with open_log(log, settings) as opened:
        if not opened.size:
            return {"refusal": "The experiment has no decisions yet."}
        found = report_on(opened, settings)
        if by is None:
            return found
        with segments_of(opened, settings) as (logs, notes):
            adjusted = settings.for_segments(len(logs))
            parts = [
                (name, part.size, _part_fields(report_on, part, adjusted)) for name, part in logs.items()
            ]
    return found | {"segments": _segments(by, parts, adjusted.confidence), "notes": _sentences(notes)}


def _part_fields(report_on: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """The result for one segment. That the log cannot answer there does not concern the others."""
    try:
        return report_on(*arguments)
    except errors.CannotAnswer as error:
        return {"refusal": sentence(str(error))}


def _segments(
    by: Sequence[str], parts: Iterable[tuple[Segment, int, dict[str, Any]]], confidence: float
) -> list[dict[str, Any]]:
    """The results of the segments, each with the fields of the result for the whole log."""
    fields = ("estimator", "value", "lower", "upper", "refusal", "logged_mean")
    empty = dict.fromkeys(fields) | {"rows": 0, "assumes": "", "caveat": "", "confidence": confidence}
    empty |= {"warnings": [], "population": ""}
    return [
        {
            "segment": dict(zip(by, name if isinstance(name, tuple) else [name] * len(by), strict=True)),
            "decisions": size,
            "has_estimate": "refusal" not in found,
            **empty,
            **{field: value for field, value in found.items() if field in empty},
        }
        for name, size, found in parts
    ]


def _report_fields(report: Report, log: DecisionLog, estimators: Sequence[str] | None) -> dict[str, Any]:
    found = report.diagnostics
    result = {
        "rows": found.rows, "pending": found.open, "details": details_of(report),
        "warnings": _sentences(report.warnings), "population": report.population,
    }  # fmt: skip
    best = report.best
    if best is None and estimators is not None:  # the caller has chosen
        best = next((each for each in report.values() if each.lower is not None and not each.caveat), None)
    if best is None:
        return result | {"refusal": " ".join([sentence(_refusal(report)), *_advice(report, log)])}
    return result | _estimate_fields(best)


def compare_targets(
    log: DecisionLog,
    targets: Sequence[str],
    estimators: Sequence[str] | None,
    options: dict[str, Any],
    by: Sequence[str] | None,
) -> dict[str, Any]:
    """Compare two targets as `maillard.compare` does."""
    from maillard.evaluation.comparing import compare

    first, second = targets
    if by is None:
        return _comparison_fields(compare(log, first, second, estimators, **options))
    found = compare(log, first, second, estimators, by=by, **options)
    parts = [(name, found.sizes[name], _comparison_fields(each)) for name, each in found.items()]
    confidence = next(iter(found.values())).confidence
    segments = {"segments": _segments(by, parts, confidence), "notes": _sentences(found.notes)}
    return _comparison_fields(found.whole) | segments


def _comparison_fields(found: Comparison) -> dict[str, Any]:
    result = {
        "rows": found.first.diagnostics.rows, "pending": found.first.diagnostics.open,
        "details": {"estimates": found.to_dict()["estimates"]},
        "warnings": _sentences(found.warnings), "population": found.population,
    }  # fmt: skip
    best = found.best
    if best is None:
        reasons = dict.fromkeys(each.refusal or each.caveat for each in found.values())
        return result | {"refusal": sentence("; ".join(filter(None, reasons)))}
    return result | _estimate_fields(best) | {"confidence": found.confidence}


def _estimate_fields(best: Estimate) -> dict[str, Any]:
    fields = ("value", "lower", "upper", "assumes", "caveat")
    return {"estimator": best.name, **{name: getattr(best, name) for name in fields}}


def _mean_reward(log: EvaluationLog, query: Query) -> float | None:
    """The mean logged reward of the rows that an evaluation of one target uses."""
    from maillard.evaluation.log_sums import rows_by_target

    total, count = 0.0, 0
    for columns in log.columns():
        [(rows, _)], _ = rows_by_target(columns, log, query)
        total, count = total + float(rows.reward.sum()), count + len(rows)
    return total / count if count else None


def _refusal(report: Report) -> str:
    """Why the report has no estimate to read first."""
    from maillard.evaluation.evaluation_report import Estimate

    if len(report.refusals) == len(report) and len(set(report.refusals.values())) == 1:
        return f"the log cannot answer: {next(iter(report.refusals.values()))}"
    # The estimate to read first if all estimators had given an interval.
    blank, known = Estimate(name="", value=0.0, lower=0.0, upper=0.0), report.evidence
    anytime = {name: known.anytime(each[0]) for name, each in known.query.estimators.items()}
    hypothetical = {name: replace(blank, name=name, anytime_valid=anytime[name]) for name in report}
    best = replace(report, estimates=hypothetical).best
    first = report[next(iter(report)) if best is None else best.name]
    start = f"the estimate to read first would be {first.name}"
    if first.value is None:
        return f"{start}, but it was refused: {first.refusal}"
    interval = "without an interval" if first.lower is None else between(first.lower, first.upper)
    return f"{start}. It is {first.value:.4g}, {interval}, but {first.caveat or first.assumes}"


def _advice(report: Report, log: DecisionLog) -> Iterator[str]:
    """What would make an estimate possible."""
    d = report.diagnostics
    if d.audit == "broken":
        return
    if d.open and d.rows:  # without rows, this is the refusal itself
        yield f"{d.open:,} decisions have windows that are still open.{window_advice(log)}"
    if d.left_out.get("without a reward"):
        yield "If you know rewards that are not reported yet, report them."
    if log.reward is not None and log.reward.range is None:
        yield (
            "If the experiment declared a lowest and a highest value of rewards, confidence sequences "
            "could be used, which are valid on any log."
        )
    if d.floor is None:
        yield FLOOR_ADVICE


def window_advice(log: DecisionLog) -> str:
    """When to try again, if rewards have a window."""
    if log.reward is None or log.reward.window is None:
        return ""
    return (
        " A reward counts when the window of its decision has closed, "
        f"after {log.reward.window:g} seconds: try again then."
    )


def details_of(found: Report | Replay) -> dict[str, Any]:
    """The complete result, without the path of the log."""
    return {name: value for name, value in found.to_dict().items() if name != "source"}


def between(lower: float | None, upper: float | None) -> str:
    """An interval, in words."""
    return f"from {lower:.4g} to {upper:.4g}"


def sentence(text: str) -> str:
    """A text with a capital letter and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _sentences(texts: Iterable[str]) -> list[str]:
    return [sentence(each) for each in texts]
