"""Jobs that read a whole log or much of it: evaluate a target, verify, export.

Each function opens the log itself and returns plain JSON values, so that it can run in the worker process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maillard import errors
from maillard.decisions import DecisionLog, Verification, read_log, verify, write_log
from maillard.decisions.chain_verification import ChainReport
from maillard.decisions.timestamps import from_microseconds
from maillard.service.job_targets import parse_action_target, parse_target
from maillard.service.worker_process import without_secrets

if TYPE_CHECKING:
    from maillard.evaluation.bound_targets import AnyTarget
    from maillard.evaluation.evaluation_log import EvaluationLog
    from maillard.evaluation.evaluation_report import Estimate, Report
    from maillard.evaluation.query import Query
    from maillard.evaluation.replays import Replay

_MAX_WITHOUT_REWARD = 0.2  # fraction of a replay's rounds for which the log has no reward
_FLOOR = "A floor in the policy, as in floor=0.1, makes estimates from later decisions more precise."


def what_if(  # noqa: PLR0917  # the worker process passes arguments by position
    database: str,
    experiment: str,
    target: str,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    against: str | None = None,
    second_moment: float | None = None,
) -> dict[str, Any]:
    """Estimate the mean reward if `target` had made the decisions, with an interval, or say why not.

    A target that does not learn is evaluated; the result is the estimate to read first (`Report.best`). A
    policy that learns is replayed; the value is the mean reward of its first rounds, as many as the log
    supports. If the log only bounds that mean, the result has an interval but no value. With `against`, the
    result is the difference to that target. `second_moment` is as in `maillard.evaluate`.
    """
    options = {"confidence": confidence, "second_moment": second_moment}
    with _open(database, experiment) as log:
        parse: Callable[[object], tuple[str, str, AnyTarget | None]] = parse_action_target
        if not log.has_actions:
            parse = partial(
                parse_target, arms=log.arms, reward_range=log.reward.range if log.reward else None
            )
        spec, estimand, bound = parse(target)
        other = None
        if against is not None:
            other_spec, other_estimand, other_bound = parse(against)
            if bound is None or other_bound is None:
                learns = target if bound is None else against
                raise errors.InvalidValue("against", learns, "targets that do not learn, such as arm:NAME")
            other = other_spec
            estimand = f"the difference between {estimand} and {other_estimand}"
        try:
            if other is not None:
                result = _compare(log, (spec, other), estimators, options)
            elif bound is None:
                result = _replay(log, spec, estimators, confidence)
            else:
                result = _evaluate(log, bound, estimators, options)
        except (errors.CannotAnswer, errors.InvalidLog) as error:
            advice = _window_advice(log) if isinstance(error, errors.OpenWindows) else ""
            result = {"refusal": _sentence(str(error)) + advice}
        except (errors.InvalidValue, errors.UnknownName, errors.Unavailable):
            raise  # the query is wrong, or the log cannot be reached
        except errors.MaillardError as error:  # the log is damaged
            result = {"refusal": _sentence(without_secrets(str(error), database))}
    defaults: dict[str, Any] = {
        "estimand": estimand,
        "kind": "comparison" if against is not None else "replay" if bound is None else "evaluation",
        "target": target,
        "experiment": experiment,
        "has_estimate": "refusal" not in result,
        "confidence": confidence,
        "assumes": "",
        "caveat": "",
        "rows": 0,
        "pending": 0,
        "warnings": [],
        "population": "",
        "details": {},
    }
    defaults |= dict.fromkeys(("estimator", "value", "lower", "upper", "refusal", "logged_mean"))
    return _to_json(defaults | result)


def check(database: str, experiment: str) -> dict[str, Any]:
    """Recompute every logged probability, and compare the chosen arms with the probabilities."""
    try:
        with _open(database, experiment) as log:
            found = verify(log)
    except errors.InvalidLog as error:
        found = Verification(experiment=experiment, source="")
        found.add_problem(None, f"the log cannot be read: {without_secrets(str(error), database)}")
    result = {
        name: getattr(found, name)
        for name in ("experiment", "verdict", "decisions", "recomputed", "largest_error", "problem_count")
    }
    result["problems"] = [{"decision": each.decision, "what": each.what} for each in found.problems]
    result["arms"] = [{"arm": each.name, "z": each.z} for each in found.arms]
    result["weights_z"] = None if found.weights is None else found.weights.z
    chain = found.chain or ChainReport()
    time = None if chain.time is None else from_microseconds(chain.time).isoformat()
    result["head"] = {"commit": chain.commits, "hash": chain.head, "time": time}
    result["erased"], result["unchained"] = chain.erased, chain.unchained
    result["pruned"] = 0 if chain.pruned is None else chain.pruned.decisions
    return _to_json(result)


def export(database: str, experiment: str, path: str | Path) -> None:
    """Write the log as a Parquet file. The file appears only when it is complete."""
    with read_log(database, experiment) as log:
        write_log(log, path, "parquet")


def export_changes(database: str, experiment: str, folder: str) -> int:
    """Add what has changed since the last export to a folder; the number of decisions that were written."""
    from maillard.decisions import export_changes as run

    return run(database, folder, experiment).rows


# The log.


@contextmanager
def _open(database: str, experiment: str) -> Iterator[DecisionLog]:
    """Open the log of an experiment. Messages name the experiment, because callers must not see the path."""
    try:
        log = read_log(database, experiment)
    except errors.InvalidLog:
        raise
    except errors.InvalidValue:  # the service opened this database before, so the caller is not at fault
        raise errors.Unavailable("the log cannot be opened now; try again later") from None
    with log:
        log.source = f"experiment {experiment!r}"
        yield log


# Targets that do not learn.


def _evaluate(
    log: DecisionLog, target: AnyTarget, estimators: Sequence[str] | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Evaluate the target as `maillard.evaluate` does, and add the mean reward of the rows it used."""
    from maillard.evaluation.evaluating import run_with_bounds
    from maillard.evaluation.evaluation_log import open_log
    from maillard.evaluation.query import Query, Settings

    settings = Settings(**options)
    with open_log(log, settings) as opened:
        if not opened.size:
            return {"refusal": "The experiment has no decisions yet."}
        query = Query.of(opened, [target], estimators, settings)
        [report] = run_with_bounds(opened, [target], estimators, settings)
        logged_mean = _mean_reward(opened, query)
    found = report.diagnostics
    result = {
        "rows": found.rows, "pending": found.open, "logged_mean": logged_mean, "details": _details(report),
        "warnings": [_sentence(each) for each in report.warnings], "population": report.population,
    }  # fmt: skip
    best = report.best
    if best is None and estimators is not None:  # the caller has chosen
        best = next((each for each in report.values() if each.lower is not None and not each.caveat), None)
    if best is None:
        return result | {"refusal": " ".join([_sentence(_refusal(report)), *_advice(report, log)])}
    return result | _estimate_fields(best)


def _compare(
    log: DecisionLog, targets: tuple[str, str], estimators: Sequence[str] | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Compare two targets as `maillard.compare` does."""
    from maillard.evaluation.comparing import compare

    found = compare(log, *targets, estimators, **options)
    result = {
        "rows": found.first.diagnostics.rows, "pending": found.first.diagnostics.open,
        "details": {"estimates": found.to_dict()["estimates"]},
        "warnings": [_sentence(each) for each in found.warnings], "population": found.population,
    }  # fmt: skip
    best = found.best
    if best is None:
        reasons = dict.fromkeys(each.refusal or each.caveat for each in found.values())
        return result | {"refusal": _sentence("; ".join(filter(None, reasons)))}
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
    interval = "without an interval" if first.lower is None else _between(first.lower, first.upper)
    return f"{start}. It is {first.value:.4g}, {interval}, but {first.caveat or first.assumes}"


def _advice(report: Report, log: DecisionLog) -> Iterator[str]:
    """What would make an estimate possible."""
    d = report.diagnostics
    if d.audit == "broken":
        return
    if d.open and d.rows:  # without rows, this is the refusal itself
        yield f"{d.open:,} decisions have windows that are still open.{_window_advice(log)}"
    if d.left_out.get("without a reward"):
        yield "If you know rewards that are not reported yet, report them."
    if log.reward is not None and log.reward.range is None:
        yield (
            "If the experiment declared a lowest and a highest value of rewards, confidence sequences "
            "could be used, which are valid on any log."
        )
    if d.floor is None:
        yield _FLOOR


def _window_advice(log: DecisionLog) -> str:
    if log.reward is None or log.reward.window is None:
        return ""
    return (
        " A reward counts when the window of its decision has closed, "
        f"after {log.reward.window:g} seconds: try again then."
    )


# Policies that learn.


def _replay(
    log: DecisionLog, spec: str, estimators: Sequence[str] | None, confidence: float
) -> dict[str, Any]:
    """Replay a learning policy, and the log's own policy for comparison."""
    from maillard.evaluation.replays.logged_rows import read_rows
    from maillard.evaluation.replays.replay_runner import replay

    if estimators is not None:
        allowed = "no estimators, because a policy that learns is replayed"
        raise errors.InvalidValue("estimators", estimators, allowed)
    events = [read_rows(log)]
    found = replay(events, spec, confidence=confidence)
    details = _details(found)
    own: Replay | None = None
    with suppress(errors.MaillardError):  # some policies cannot be replayed
        own = replay(events, log.policies[len(log.policies)], confidence=confidence)
        details["own"] = _details(own)
    pending = found.left_out.get("window still open", 0)
    result = {
        "rows": found.rows, "pending": pending, "logged_mean": found.logged_mean, "details": details,
    }  # fmt: skip
    low, high = (log.reward and log.reward.range) or (-math.inf, math.inf)
    without_reward = float(found.most[-1] - found.least[-1]) / (high - low)
    reason = ""
    if without_reward > _MAX_WITHOUT_REWARD:
        reason = f"the log has no reward for {without_reward:.0%} of the policy's rounds: its mean is "
        reason += _between(found.least[-1], found.most[-1])
    elif found.upper[-1] - found.lower[-1] >= high - low:
        reason = "the interval is as wide as the range of rewards; more decisions would help"
    if reason:
        return result | {"refusal": f"{_sentence(reason)} {_FLOOR}"}
    return result | {
        "estimator": found.method,
        "value": float(found.mean[-1]),
        "lower": float(found.lower[-1]),
        "upper": float(found.upper[-1]),
        "assumes": "; ".join(found.assumes),
        "caveat": "; ".join(_caveats(found, own)),
    }


def _caveats(found: Replay, own: Replay | None) -> Iterator[str]:
    """What the mean of a replay does and does not say."""
    from maillard.evaluation.replays.replay_intervals import CHOICES

    rounds = int(found.rounds[-1])
    yield f"this is the mean reward of the policy's first {rounds:,} rounds, starting without any rewards"
    if rounds < found.rows:
        yield (
            f"do not compare it with the log's mean over {found.rows:,} decisions, most of which were made "
            "when the policy had more rewards"
        )
    if own is not None:
        bounds = _between(own.lower[-1], own.upper[-1])
        yield f"the log's own policy, {own.policy}, replayed in the same way, has a mean {bounds}"
    if math.isnan(found.mean[-1]):
        bounds = _between(found.least[-1], found.most[-1])
        yield (
            f"the log has no reward for some rounds, so the mean is only known to be {bounds}; "
            "the interval includes both bounds"
        )
    if found.interval == CHOICES:
        yield (
            "the interval covers the noise of the rewards, given the choices; "
            "it does not cover that the policy might have chosen other arms"
        )
    if omitted := [f"{count:,} {reason}" for reason, count in found.left_out.items() if count]:
        yield f"decisions that were left out: {', '.join(omitted)}"


def _details(found: Report | Replay) -> dict[str, Any]:
    """The complete result, without the path of the log."""
    return {name: value for name, value in found.to_dict().items() if name != "source"}


def _between(lower: float | None, upper: float | None) -> str:
    return f"from {lower:.4g} to {upper:.4g}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _to_json(result: dict[str, Any]) -> dict[str, Any]:
    """The result as JSON values. NaN and infinity become None."""
    from maillard.evaluation.evaluation_report import plain

    values: dict[str, Any] = json.loads(json.dumps(plain(result), allow_nan=False))
    return values
