"""Read-only client methods."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from maillard import wire_schema as wire
from maillard.client.admin_methods import spec_of
from maillard.client.api_calls import ApiCall, Steps, api_path
from maillard.client.base_client import Scope
from maillard.client.decoding import check_success, decode, fetch, to_dict
from maillard.decisions.files.output_files import atomic_file, check_report_path
from maillard.decisions.identifiers import check_name
from maillard.errors import InvalidValue, MaillardError

if TYPE_CHECKING:
    from maillard.policies import Policy

_JOB_TIMEOUT = 300.0  # seconds: the service may have to read a long log
_MAGIC = b"PAR1"  # the first and last bytes of a Parquet file


def experiments(_: Scope, *, archived: bool = False) -> Steps[list[dict[str, Any]]]:
    """The experiments of the service with their traffic and leaders, with `archived` also archived ones.

    >>> client.experiment in [each["experiment"] for each in client.experiments()]
    True
    """
    query = "?archived=true" if archived else ""
    found = yield from fetch(ApiCall("GET", api_path("experiments") + query), wire.ExperimentList)
    return [to_dict(experiment) for experiment in found.experiments]


def arms(scope: Scope) -> Steps[list[str]]:
    """The arms that are not retired."""
    return (yield from _experiment(scope)).arms


def policy(scope: Scope) -> Steps[Policy]:
    """The current policy."""
    spec = (yield from _experiment(scope)).policy
    try:
        from maillard.policies import policy as policy_of
    except ImportError as error:
        reason = f"needs {error.name}: pip install maillard, or use summary()['policy']"
        raise MaillardError(f"policy, as an object, {reason}") from None
    return policy_of(spec)


def summary(scope: Scope, *, experiment: str | None = None) -> Steps[dict[str, Any]]:
    """The configuration, the tally and the current probabilities of an experiment.

    `decisions` and `rewards` are counted up to `as_of`; everything else is current. `lower` and `upper`
    bound an arm's mean reward; `interval` describes the kind of interval. `verdict` says in words which arm
    leads, which arms are ruled out, and which are undecided. Pass `etag` to `change_policy`.

    >>> outcome = client.reward(client.choose(eligible=["red"]), 0.5)
    >>> found = client.summary()
    >>> found["policy"], found["arms"]["red"]["pulls"], found["arms"]["red"]["mean"]
    ('kl-ms+:floor=0.1', 1, 0.5)
    """
    name = scope.experiment_name(experiment)
    path = api_path("experiments", name)
    response = yield ApiCall("GET", path)
    configuration = decode(response, wire.ExperimentConfiguration)
    state = yield from fetch(ApiCall("GET", f"{path}/state"), wire.State)
    activity = yield from fetch(ApiCall("GET", f"{path}/activity"), wire.Activity)
    counts = {each.arm: each.decisions for each in activity.arms}
    shown = (
        "active", "pulls", "sum", "final", "pending", "missing", "mean", "lower", "upper", "probability",
        "standing", "more_decisions",
    )  # fmt: skip
    return {
        "experiment": name,
        "log": scope.url,
        **{field: getattr(state, field) for field in ("policy", "policy_version", "epoch", "state")},
        "paused": state.status != "running",
        "archived": state.status == "archived",
        "sticky": configuration.sticky,
        "reward": to_dict(configuration.reward),
        "decisions": activity.decisions,
        "units": state.units,
        "rewards": activity.rewards,
        "as_of": to_dict(activity)["as_of"],
        "pending": state.pending,
        "next_close": to_dict(state)["next_close"],
        "note": state.note,
        "refusal": state.interval.refusal,
        "interval": to_dict(state.interval),
        "verdict": None if state.verdict is None else to_dict(state.verdict),
        "etag": response.headers.get("etag"),
        "arms": {
            each.arm: {
                "decisions": counts.get(each.arm, 0),
                **{field: getattr(each, field) for field in shown},
            }
            for each in state.arms
        },
    }


def contexts(scope: Scope, *, by: str | None = None, experiment: str | None = None) -> Steps[dict[str, Any]]:
    """Decisions and rewards by the values of a key of the context, and the observed features.

    `segments` has the values with the most decisions. Its means are plain means; use `evaluate` with `by` to
    compare. The counts are those at the time `as_of`; if `complete` is false, a part of the log is not
    counted yet. Erased contexts are not counted.

    >>> decision = client.choose(context={"device": "phone"})
    >>> print(*sorted(client.contexts()))
    as_of by complete decisions experiment features keys notes other segments without_context
    """
    path = api_path("experiments", scope.experiment_name(experiment), "contexts")
    query = "" if by is None else "?by=" + quote(check_name("by", by), safe="")
    return to_dict((yield from fetch(ApiCall("GET", path + query), wire.ContextActivity)))


def evaluate(
    scope: Scope,
    target: str | Policy,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    against: str | Policy | None = None,
    second_moment: float | None = None,
    by: str | Sequence[str] | None = None,
    experiment: str | None = None,
) -> Steps[dict[str, Any]]:
    """Estimate the mean reward that `target` would have had, or report why the log cannot answer.

    `target` is an arm, a distribution, a rule ("rule:device=phone->blue,else->red"), "frozen:12000", or a
    policy. With `by`, a key of the context or several, `segments` has an estimate for each segment, whose
    intervals are valid together. With `against`, estimate the difference to another target, over decisions
    in which both could have been chosen. `second_moment` is a bound, known in advance, on the mean squared
    reward of every arm, for rewards with heavy tails such as revenue.

    >>> decisions = client.choose(size=200)
    >>> rows = [{"decision": each.id, "value": place % 2} for place, each in enumerate(decisions)]
    >>> outcomes = client.rewards(rows)
    >>> found = client.evaluate("arm:blue", estimators=["snips"])
    >>> found["rows"], found["lower"] < found["value"] < found["upper"]
    (200, True)
    """
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise InvalidValue("confidence", confidence, "a number between 0 and 1")
    body: dict[str, Any] = {"target": spec_of("target", target), "confidence": float(confidence)}
    if against is not None:
        body["against"] = spec_of("against", against)
    if second_moment is not None:
        if not isinstance(second_moment, int | float) or not 0 < second_moment < math.inf:
            raise InvalidValue("second_moment", second_moment, "a finite number > 0")
        body["second_moment"] = float(second_moment)
    if by is not None:
        keys = [by] if isinstance(by, str) else list(by) if isinstance(by, Iterable) else []
        if not keys:
            raise InvalidValue("by", by, "a key of the context, or several, as in ['device']")
        body["by"] = [check_name("by", key) for key in keys]
    if estimators is not None:
        if isinstance(estimators, str) or not isinstance(estimators, Iterable):
            raise InvalidValue("estimators", estimators, "a list of names, as in ['snips']")
        body["estimators"] = [check_name("estimators", name) for name in estimators]
    path = api_path("experiments", scope.experiment_name(experiment), "evaluations")
    call = ApiCall("POST", path, body, response_timeout=_JOB_TIMEOUT)
    return to_dict((yield from fetch(call, wire.Evaluation)))


def verify(scope: Scope, *, experiment: str | None = None) -> Steps[dict[str, Any]]:
    """Have the service recompute every logged probability from the log; returns the result.

    >>> decisions = client.choose(size=10)
    >>> client.verify()["recomputed"]
    10
    """
    path = api_path("experiments", scope.experiment_name(experiment), verb="verify")
    call = ApiCall("POST", path, response_timeout=_JOB_TIMEOUT)
    return to_dict((yield from fetch(call, wire.Verification)))


def head(scope: Scope, *, experiment: str | None = None) -> Steps[dict[str, Any]]:
    """The end of the log's hash chain: `commit`, `hash` and `time`.

    Store the hash elsewhere: `maillard verify LOG --anchor HASH` tells later whether the log extends it.

    >>> decision = client.choose()
    >>> sorted(client.head())
    ['commit', 'hash', 'time']
    """
    path = api_path("experiments", scope.experiment_name(experiment), "head")
    return to_dict((yield from fetch(ApiCall("GET", path), wire.ChainHead)))


def export(scope: Scope, path: str | os.PathLike[str], *, experiment: str | None = None) -> Steps[Path]:
    """Write the log to a Parquet file, completely or not at all; returns the path.

    >>> decisions = client.choose(size=3)
    >>> client.export("decisions.parquet")
    PosixPath('decisions.parquet')
    >>> from maillard import read_log
    >>> read_log("decisions.parquet").to_pandas().shape[0]
    3
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidValue("path", path, "the path of a file")
    file, url_path = Path(path), api_path("experiments", scope.experiment_name(experiment), "export")
    check_report_path(file, ())
    with atomic_file(file) as partial:
        call = ApiCall("GET", url_path, response_timeout=_JOB_TIMEOUT, output_file=partial)
        check_success((yield call))
        with partial.open("rb") as written:
            begins, size = written.read(4), written.seek(0, os.SEEK_END)
            written.seek(max(size - 4, 0))
            if not begins == written.read(4) == _MAGIC:
                raise MaillardError(f"{call}: the response is not a Parquet file ({size} bytes)")
    return file


def _experiment(scope: Scope) -> Steps[wire.ExperimentConfiguration]:
    call = ApiCall("GET", api_path("experiments", scope.experiment_name(None)))
    return (yield from fetch(call, wire.ExperimentConfiguration))
