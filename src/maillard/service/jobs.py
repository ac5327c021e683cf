"""Jobs that read a whole log: evaluate a target, verify, export.

Each function opens the log itself and returns plain JSON values, so that it can run in the worker process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from maillard import specs
from maillard.decisions import DecisionLog, Verification, read_log, verify, write_log
from maillard.errors import (
    CannotAnswer,
    InvalidLog,
    InvalidValue,
    MaillardError,
    OpenWindows,
    Unavailable,
    UnknownName,
)
from maillard.policies import Policy, Uniform
from maillard.policies.targets import FixedArm, FixedDistribution
from maillard.service.worker_process import without_secrets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from maillard.evaluation.bound_targets import Target
    from maillard.evaluation.evaluation_log import EvaluationLog
    from maillard.evaluation.evaluation_report import Report
    from maillard.evaluation.query import Query
    from maillard.evaluation.replays import Replay

_ALLOWED = "arm:NAME, uniform, dist:NAME=SHARE,... or a policy, as in ms+:booster=16"
_SHOWN = 6  # arms of a distribution that a question names
_MAX_UNANSWERED = 0.2  # fraction of a replay's rounds without a reward in the log
_FLOOR = "A floor in the policy, as in floor=0.1, makes what is logged from then on answer better."


def what_if(
    database: str,
    experiment: str,
    target: str,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """Estimate the mean reward if `target` had made the decisions, with an interval, or say why not.

    A target that does not learn is evaluated, and the estimate is the one to read first (`Report.best`). A
    policy that learns is replayed: the value is the mean reward of its first rounds, as many as the log can
    give; where the log gives but bounds, there is no value between them.
    """
    with _open(database, experiment) as log:
        asked = _read(target, log.arms)
        try:
            made = (
                _replayed(log, asked.spec, estimators, confidence)
                if asked.law is None
                else _evaluated(log, asked.law, estimators, confidence)
            )
        except OpenWindows as error:
            made = {"refusal": _sentence(str(error)) + _patience(log)}
        except (CannotAnswer, InvalidLog) as error:
            made = {"refusal": _sentence(str(error))}
        except (InvalidValue, UnknownName, Unavailable):  # the query is wrong, or the log cannot be reached
            raise
        except MaillardError as error:  # the log is damaged
            made = {"refusal": _sentence(without_secrets(str(error), database))}
    known: dict[str, Any] = {
        "question": asked.question,
        "kind": "replay" if asked.law is None else "evaluation",
        "target": target,
        "experiment": experiment,
        "answered": "refusal" not in made,
        "confidence": confidence,
        "assumes": "",
        "caveat": "",
        "rows": 0,
        "details": {},
    }
    nothing = dict.fromkeys(("estimator", "value", "lower", "upper", "refusal", "logged_mean"))
    return _plain(known | nothing | made)


def check(database: str, experiment: str) -> dict[str, Any]:
    """Whether the log's probabilities and draws hold: every probability computed again from the log alone."""
    try:
        with _open(database, experiment) as log:
            found = verify(log)
    except InvalidLog as error:
        found = Verification(experiment=experiment, source="")
        found.add_problem(None, f"the log cannot be read: {without_secrets(str(error), database)}")
    answer = {
        name: getattr(found, name)
        for name in ("experiment", "verdict", "decisions", "recomputed", "largest_error", "problem_count")
    }
    answer["problems"] = [{"decision": each.decision, "what": each.what} for each in found.problems]
    answer["arms"] = [{"arm": each.name, "z": each.z} for each in found.arms]
    answer["weights_z"] = None if found.weights is None else found.weights.z
    return _plain(answer)


def export(database: str, experiment: str, path: str | Path) -> None:
    """Write the log as Parquet. The file is there when it is whole."""
    with read_log(database, experiment) as log:
        write_log(log, path, "parquet")


# The log, and what is asked of it.


@contextmanager
def _open(database: str, experiment: str) -> Iterator[DecisionLog]:
    """The log of an experiment, by whose name messages call it: its place is nobody's business."""
    try:
        log = read_log(database, experiment)
    except InvalidValue as error:
        if error.field != "log":
            raise
        raise Unavailable("the log cannot be opened now; the question may be asked again") from None
    with log:
        log.source = f"experiment {experiment!r}"
        yield log


class _Question(NamedTuple):
    """A target, read."""

    spec: str
    question: str
    law: Target | None
    "None: it learns."


def _read(target: object, arms: Sequence[str]) -> _Question:
    """What a target means over these arms: by their names, and never by their places."""
    if not isinstance(target, str):
        raise InvalidValue("target", target, _ALLOWED)
    if target in arms and target not in Policy.registry:
        raise InvalidValue("target", target, f"arm:{target}, if the arm of that name is meant")
    kind, _, name = target.partition(":")
    # An arm's name is written as it is, whatever is in it.
    spec = specs.write(specs.Spec("arm", (name,), {})) if kind == "arm" and name in arms else target
    try:
        kind, _, options = specs.read(spec)
    except InvalidValue:
        raise InvalidValue("target", target, _ALLOWED) from None
    if kind not in Policy.registry:
        raise UnknownName("target", kind, sorted(Policy.registry))
    if not issubclass(Policy.registry[kind], Uniform | FixedArm | FixedDistribution):
        return _Question(spec, f"had the policy been {target}", None)
    if "floor_decay" in options:
        raise InvalidValue("target", target, "a target that does not change as it goes: no floor_decay")
    law = _law(spec, arms, target)
    return _Question(spec, _in_words(law, arms), law)


def _law(spec: str, arms: Sequence[str], target: str) -> Target:
    from maillard.evaluation.bound_targets import bind, by_place

    try:
        law = None if by_place(spec) else bind(spec, arms)
    except InvalidValue:  # in words about classes
        law = None
    if law is None:
        allowed = "arm:NAME, or dist:NAME=SHARE,... with shares >= 0 that add up to 1, of the arms"
        raise InvalidValue("target", target, f"{allowed} {', '.join(map(repr, arms[:_SHOWN]))}{_more(arms)}")
    return law


def _in_words(law: Target, arms: Sequence[str]) -> str:
    """The question that a law over arms asks.

    >>> from maillard.evaluation.bound_targets import bind
    >>> _in_words(bind("dist:red=0.75,blue=0.25", ["red", "green", "blue"]), ["red", "green", "blue"])
    "had the arms been shown in these shares: 'red' 0.75, 'blue' 0.25"
    """
    [shares] = law.probabilities.tolist()
    shown = [(arm, share) for arm, share in zip(arms, shares, strict=True) if share]
    if len(shown) == 1:
        return f"had {shown[0][0]!r} been always shown"
    if max(shares) - min(shares) < 1e-12:
        return "had all arms been shown equally often"
    said = ", ".join(f"{arm!r} {share:.4g}" for arm, share in shown[:_SHOWN])
    return f"had the arms been shown in these shares: {said}{_more(shown)}"


def _more(things: Sequence[object]) -> str:
    return f" and {len(things) - _SHOWN:,} more" if len(things) > _SHOWN else ""


# Targets that do not learn.


def _evaluated(
    log: DecisionLog, target: Target, estimators: Sequence[str] | None, confidence: float
) -> dict[str, Any]:
    """As `maillard.evaluate`, with the mean reward of the rows that it used."""
    from maillard.evaluation.evaluating import run_query
    from maillard.evaluation.evaluation_log import open_log
    from maillard.evaluation.query import Query, Settings

    settings = Settings.of(confidence, {})
    opened = open_log(log, settings)
    try:
        if not opened.size:
            return {"refusal": "The experiment has made no decision yet: there is nothing to tell from."}
        query = Query.of(opened, [target], estimators, settings)
        [report] = run_query(opened, query)
        logged = _mean_reward(opened, query)
    finally:
        opened.close()
    details = report.to_dict()
    del details["source"]
    made = {"rows": report.diagnostics.rows, "logged_mean": logged, "details": details}
    best = report.best
    if best is None:
        return made | {"refusal": " ".join([_sentence(_why(report)), *_advice(report, log)])}
    told = {name: getattr(best, name) for name in ("value", "lower", "upper", "assumes", "caveat")}
    return made | told | {"estimator": best.name}


def _mean_reward(log: EvaluationLog, query: Query) -> float | None:
    """As logged, of the rows that an evaluation of one target is made of."""
    from maillard.evaluation.log_sums import rows_by_target

    total, count = 0.0, 0
    for columns in log.columns():
        [(rows, _)], _ = rows_by_target(columns, log, query)
        total, count = total + float(rows.reward.sum()), count + len(rows)
    return total / count if count else None


def _why(report: Report) -> str:
    """What would have been read first, and what came of it."""
    from maillard.evaluation.evaluation_report import Estimate

    if len(report.refusals) == len(report) and len(set(report.refusals.values())) == 1:
        return f"the log cannot answer: {next(iter(report.refusals.values()))}"
    # The best of all, had all of them answered.
    sure = {name: Estimate(name=name, lower=0.0, upper=0.0) for name in report}
    best = replace(report, estimates=sure).best
    assert best is not None  # there is at least one
    first = report[best.name]
    said = f"the estimate to read first would be {first.name}"
    if first.value is None:
        return f"{said}, and it was refused: {first.refusal}"
    ends = "without an interval" if first.lower is None else f"from {first.lower:.4g} to {first.upper:.4g}"
    return f"{said}. It is {first.value:.4g}, {ends}, but {first.caveat or first.assumes}"


def _advice(report: Report, log: DecisionLog) -> Iterator[str]:
    """What would help, as far as it is not said yet."""
    d = report.diagnostics
    if d.audit == "broken":
        return
    if d.left_out.get("window not closed"):
        count = d.left_out["window not closed"]
        yield f"{count:,} decisions have windows that are still open.{_patience(log)}"
    if d.left_out.get("without a reward"):
        yield "Rewards that are known and not yet reported would help."
    if log.reward is not None and log.reward.range is None:
        yield (
            "With a lowest and a highest value of rewards, confidence sequences could be used, "
            "which are valid on any log."
        )
    if d.floor is None:
        yield _FLOOR


def _patience(log: DecisionLog) -> str:
    if log.reward is None or log.reward.window is None:
        return ""
    return (
        " Rewards count when the windows of their decisions have closed, "
        f"after {log.reward.window:g} seconds: ask again then."
    )


# Policies that learn.


def _replayed(
    log: DecisionLog, spec: str, estimators: Sequence[str] | None, confidence: float
) -> dict[str, Any]:
    """Replay a learning policy, and the log's own policy for comparison."""
    from maillard.evaluation.replays.logged_rows import read_rows
    from maillard.evaluation.replays.replay_runner import replay

    if estimators is not None:
        raise InvalidValue("estimators", estimators, "none with a policy that learns: it is replayed")
    events = [read_rows(log)]
    found = replay(events, spec, confidence=confidence)
    details = found.to_dict()
    own: Replay | None = None
    with suppress(MaillardError):  # it may be one that cannot be replayed
        own = replay(events, log.policies[len(log.policies)], confidence=confidence)
        details["own"] = own.to_dict()
        del details["own"]["source"]
    del details["source"]
    made = {"rows": found.rows, "logged_mean": found.logged_mean, "details": details}
    low, high = (log.reward and log.reward.range) or (-math.inf, math.inf)
    unanswered = float(found.most[-1] - found.least[-1]) / (high - low)
    why = ""
    if unanswered > _MAX_UNANSWERED:
        between = _ends(found.least, found.most)
        why = f"the log has no reward for {unanswered:.0%} of the policy's rounds: its mean is {between}"
    elif found.upper[-1] - found.lower[-1] >= high - low:
        why = "the interval is as wide as the range of rewards; more decisions would help"
    if why:
        return made | {"refusal": f"{_sentence(why)} {_FLOOR}"}
    return made | {
        "estimator": found.method,
        "value": float(found.mean[-1]),
        "lower": float(found.lower[-1]),
        "upper": float(found.upper[-1]),
        "assumes": "; ".join(found.assumes),
        "caveat": "; ".join(_caveats(found, own)),
    }


def _caveats(found: Replay, own: Replay | None) -> Iterator[str]:
    """What the mean of a replay's rounds is, and is not."""
    from maillard.evaluation.replays.replay_intervals import CHOICES

    rounds = int(found.rounds[-1])
    yield f"this is the mean reward of the policy's first {rounds:,} rounds, beginning anew"
    if rounds < found.rows:
        yield (
            f"do not compare it with the log's mean over {found.rows:,} decisions, most of which were made "
            "when the policy had more rewards"
        )
    if own is not None:
        between = _ends(own.lower, own.upper)
        yield f"the log's own policy, {own.policy}, replayed in the same way, has a mean {between}"
    if math.isnan(found.mean[-1]):
        between = _ends(found.least, found.most)
        yield (
            "the log has no reward for some rounds, so there are but bounds, "
            f"{between}, and the interval includes both"
        )
    if found.interval == CHOICES:
        yield (
            "the interval covers the noise of the rewards, given the choices; "
            "it does not cover that the policy might have chosen other arms"
        )
    if some := [f"{count:,} {why}" for why, count in found.left_out.items() if count]:
        yield f"decisions that were left out: {', '.join(some)}"


def _ends(lower: NDArray[np.float64], upper: NDArray[np.float64]) -> str:
    """At the last round."""
    return f"from {lower[-1]:.4g} to {upper[-1]:.4g}"


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:].rstrip(".") + "."


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    """Values of JSON and no others: None for what is no number."""
    from maillard.evaluation.evaluation_report import plain

    made: dict[str, Any] = json.loads(json.dumps(plain(answer), allow_nan=False))
    return made
