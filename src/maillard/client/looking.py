"""The verbs that look."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from maillard.client.answers import good, read_object
from maillard.client.calls import Call, Steps, path_of
from maillard.client.changing import rule_of, spec_of
from maillard.client.scope import Scope
from maillard.decisions.files.output_files import atomic_file, check_report_path
from maillard.decisions.identifiers import check_name
from maillard.errors import InvalidValue, MaillardError
from maillard.policies import Policy
from maillard.policies import policy as policy_of

__all__ = ["arms", "evaluate", "experiments", "export", "policy", "summary", "verify"]

_PATIENCE = 300.0  # seconds: a long log is read from its beginning
_MAGIC = b"PAR1"  # how a Parquet file begins and ends


def experiments(scope: Scope, *, archived: bool = False) -> Steps[list[dict[str, Any]]]:  # noqa: ARG001  # of all
    """The experiments of the service, as it describes them; the archived ones too, if asked."""
    query = "?archived=true" if archived else ""
    found = read_object((yield Call("GET", path_of("experiments") + query)), "experiments")
    listed: list[dict[str, Any]] = found["experiments"]
    return listed


def arms(scope: Scope) -> Steps[list[str]]:
    """The arms that are not retired."""
    found: list[str] = (yield from _described(scope))["arms"]
    return found


def policy(scope: Scope) -> Steps[Policy]:
    """The policy in force."""
    return policy_of((yield from _described(scope))["policy"])


def summary(scope: Scope, *, experiment: str | None = None) -> Steps[dict[str, Any]]:
    """Where the experiment stands.

    `decisions` and `rewards` are as of `as_of`, the rest is of now. `lower` and `upper` hold an arm's mean at any time, with
    the confidence that `interval` names. `etag` is for `change_policy`.
    """
    name = scope.named(experiment)
    answer = yield Call("GET", path_of("experiments", name))
    described = read_object(answer, "sticky", "reward")
    state = read_object(
        (yield Call("GET", path_of("experiments", name, "state"))), "status", "arms", "interval"
    )
    activity = read_object((yield Call("GET", path_of("experiments", name, "activity"))), "arms", "as_of")
    counts = {each["arm"]: each["decisions"] for each in activity["arms"]}
    return {
        "experiment": name,
        "log": scope.url,
        "policy": state["policy"],
        "policy_version": state["policy_version"],
        "epoch": state["epoch"],
        "state": state["state"],
        "paused": state["status"] != "running",
        "archived": state["status"] == "archived",
        "sticky": described["sticky"],
        "reward": dataclasses.asdict(rule_of(described)),
        "decisions": activity["decisions"],
        "rewards": activity["rewards"],
        "as_of": activity["as_of"],
        "interval": state["interval"],
        "etag": answer.headers.get("etag"),
        "arms": {
            each["arm"]: {
                "decisions": counts.get(each["arm"], 0),
                **{key: each[key] for key in each if key not in ("arm", "log_probability")},
            }
            for each in state["arms"]
        },
    }


def evaluate(
    scope: Scope,
    target: str | Policy,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    experiment: str | None = None,
) -> Steps[dict[str, Any]]:
    """How much reward a decision would have had on average, had `target` made it: the service's answer, or why it has none."""
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise InvalidValue("confidence", confidence, "a number between 0 and 1")
    body: dict[str, Any] = {"target": spec_of("target", target), "confidence": float(confidence)}
    if estimators is not None:
        if isinstance(estimators, str) or not isinstance(estimators, Iterable):
            raise InvalidValue("estimators", estimators, "a list of names, as in ['snips']")
        body["estimators"] = [check_name("estimators", name) for name in estimators]
    path = path_of("experiments", scope.named(experiment), "evaluations")
    return read_object((yield Call("POST", path, body, patience=_PATIENCE)), "question")


def verify(scope: Scope, *, experiment: str | None = None) -> Steps[dict[str, Any]]:
    """Have every logged probability recomputed from the log alone; what was found."""
    path = path_of("experiments", scope.named(experiment), verb="verify")
    return read_object((yield Call("POST", path, patience=_PATIENCE)), "verdict")


def export(scope: Scope, path: str | os.PathLike[str], *, experiment: str | None = None) -> Steps[Path]:
    """Write the log of the experiment to a Parquet file, which is there whole or not at all; its path."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidValue("path", path, "the path of a file")
    file, name = Path(path), scope.named(experiment)
    check_report_path(file, ())
    with atomic_file(file) as partial:
        call = Call("GET", path_of("experiments", name, "export"), patience=_PATIENCE, sink=partial)
        good((yield call))
        with partial.open("rb") as written:
            begins, size = written.read(4), written.seek(0, os.SEEK_END)
            written.seek(max(size - 4, 0))
            if not begins == written.read(4) == _MAGIC:
                raise MaillardError(f"{call}: an answer that is no Parquet file ({size} bytes)")
    return file


def _described(scope: Scope) -> Steps[dict[str, Any]]:
    return read_object((yield Call("GET", path_of("experiments", scope.named(None)))), "arms", "policy")
