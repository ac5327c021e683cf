"""Jobs that read a whole log or much of it: evaluate a target, verify, export.

Each function opens the log itself and returns plain JSON values, so that it can run in the worker process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maillard import errors
from maillard.decisions import DecisionLog, Verification, read_log, verify, write_log
from maillard.decisions.chain_verification import ChainReport
from maillard.decisions.timestamps import from_microseconds
from maillard.service.job_evaluations import (
    FLOOR_ADVICE,
    between,
    compare_targets,
    details_of,
    evaluate_target,
    sentence,
    window_advice,
)
from maillard.service.job_targets import parse_target, rule_error
from maillard.service.worker_process import without_secrets

if TYPE_CHECKING:
    from maillard.evaluation.replays import Replay

_MAX_WITHOUT_REWARD = 0.2  # fraction of a replay's rounds for which the log has no reward


def what_if(  # noqa: PLR0917  # the worker process passes arguments by position
    database: str,
    experiment: str,
    target: str,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    against: str | None = None,
    second_moment: float | None = None,
    by: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Estimate the mean reward if `target` had made the decisions, with an interval, or say why not.

    A target that does not learn is evaluated; the result is the estimate to read first (`Report.best`). A
    policy that learns is replayed; the value is the mean reward of its first rounds, as many as the log
    supports. If the log only bounds that mean, the result has an interval but no value. With `against`, the
    result is the difference to that target. `second_moment` and `by` are as in `maillard.evaluate`; the
    result then has a list with one estimate for each segment.
    """
    options = {"confidence": confidence, "second_moment": second_moment}
    by = None if by is None else list(dict.fromkeys(by))
    with _open(database, experiment) as log:
        targets = {"target": parse_target(target, log)}
        estimand, learns = targets["target"].estimand, targets["target"].learns
        if against is not None:
            other = targets["against"] = parse_target(against, log, "against")
            if learns or other.learns:
                given = target if learns else against
                raise errors.InvalidValue("against", given, "targets that do not learn, such as arm:NAME")
            estimand = f"the difference between {estimand} and {other.estimand}"
        specs = [each.spec for each in targets.values()]
        try:
            if learns:
                result = _replay(log, specs[0], estimators, confidence, by)
            else:
                run = evaluate_target if against is None else compare_targets
                result = run(log, specs, estimators, options, by)
        except (errors.CannotAnswer, errors.InvalidLog) as error:
            advice = window_advice(log) if isinstance(error, errors.OpenWindows) else ""
            result = {"refusal": sentence(str(error)) + advice}
        except (errors.InvalidValue, errors.UnknownName, errors.Unavailable) as error:
            rule_error(error, targets)
            raise  # the query is wrong, or the log cannot be reached
        except errors.MaillardError as error:  # the log is damaged
            result = {"refusal": sentence(without_secrets(str(error), database))}
    defaults: dict[str, Any] = {
        "estimand": estimand,
        "kind": "comparison" if against is not None else "replay" if learns else "evaluation",
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
        "by": by,
        "segments": [],
        "notes": [],
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


# Policies that learn.


def _replay(
    log: DecisionLog,
    spec: str,
    estimators: Sequence[str] | None,
    confidence: float,
    by: Sequence[str] | None,
) -> dict[str, Any]:
    """Replay a learning policy, and the log's own policy for comparison."""
    from maillard.evaluation.replays.logged_rows import read_rows
    from maillard.evaluation.replays.replay_runner import replay

    if estimators is not None:
        allowed = "no estimators, because a policy that learns is replayed"
        raise errors.InvalidValue("estimators", estimators, allowed)
    if by is not None:
        raise errors.InvalidValue("by", by, "no segments, because a policy that learns is replayed")
    events = [read_rows(log)]
    found = replay(events, spec, confidence=confidence)
    details = details_of(found)
    own: Replay | None = None
    with suppress(errors.MaillardError):  # some policies cannot be replayed
        own = replay(events, log.policies[len(log.policies)], confidence=confidence)
        details["own"] = details_of(own)
    pending = found.left_out.get("window still open", 0)
    result = {
        "rows": found.rows, "pending": pending, "logged_mean": found.logged_mean, "details": details,
    }  # fmt: skip
    low, high = (log.reward and log.reward.range) or (-math.inf, math.inf)
    without_reward = float(found.most[-1] - found.least[-1]) / (high - low)
    reason = ""
    if without_reward > _MAX_WITHOUT_REWARD:
        reason = f"the log has no reward for {without_reward:.0%} of the policy's rounds: its mean is "
        reason += between(found.least[-1], found.most[-1])
    elif found.upper[-1] - found.lower[-1] >= high - low:
        reason = "the interval is as wide as the range of rewards; more decisions would help"
    if reason:
        return result | {"refusal": f"{sentence(reason)} {FLOOR_ADVICE}"}
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
        bounds = between(own.lower[-1], own.upper[-1])
        yield f"the log's own policy, {own.policy}, replayed in the same way, has a mean {bounds}"
    if math.isnan(found.mean[-1]):
        bounds = between(found.least[-1], found.most[-1])
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


def _to_json(result: dict[str, Any]) -> dict[str, Any]:
    """The result as JSON values. NaN and infinity become None."""
    from maillard.evaluation.evaluation_report import plain

    values: dict[str, Any] = json.loads(json.dumps(plain(result), allow_nan=False))
    return values
