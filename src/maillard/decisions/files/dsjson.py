"""Logs in the dsjson format of Vowpal Wabbit: one line for each decision with a reward.

A cost is a negative reward. `vw-estimators` depends on the order of the keys and on the absence of blanks.
The object "maillard" contains the fields that dsjson does not have; other programs ignore it. Features are in
dsjson_features.py, lines with several decisions in dsjson_slots.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from maillard.decisions.decision import Decision
from maillard.decisions.encoded_contexts import encoded_text, read_encoded_text
from maillard.decisions.files.dsjson_features import (
    ArmAttributes,
    read_attributes,
    read_context,
    write_features,
)
from maillard.decisions.files.dsjson_slots import Choice, choices_of
from maillard.decisions.files.file_formats import WriteResult
from maillard.decisions.files.foreign_logs import foreign_log, foreign_row
from maillard.decisions.files.metadata import iso, read_iso
from maillard.decisions.files.output_files import atomic_file
from maillard.decisions.files.row_codec import CHECKS, make_rows
from maillard.decisions.log import MALFORMED, DecisionLog
from maillard.decisions.stores.contract import Row
from maillard.errors import InvalidValue

_OWN_FIELDS = (
    "experiment", "unit", "policy_version", "formula_version", "state", "epoch", "cold", "idempotency_key",
    "position", "origin", "log_probability",
)  # fmt: skip
# Other programs write probabilities with few digits. The probabilities of a log must have the sum 1 up to
# `_ACCURATE`; those with a sum that is less accurate, but within `_ROUNDED`, are divided by it.
_ACCURATE, _ROUNDED = 1e-6, 1e-3
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def write(log: DecisionLog, path: Path) -> WriteResult:
    """Write a line for each decision with a final reward."""
    rows = left_out = 0
    attributes = ArmAttributes(log)
    with atomic_file(path) as partial, partial.open("w", newline="", encoding="utf8") as file:
        for row in log.rows():
            reward = log.final_reward_of(row)
            if reward is None:
                left_out += 1
            else:
                rows += 1
                policy = log.policies.get(row.decision.policy_version)
                features = write_features(row.decision, attributes.at(row.decision.state))
                file.write(_line(row.decision, reward, policy, features))
    return WriteResult(rows, left_out)


def _line(d: Decision, reward: float, policy: str | None, features: dict[str, Any]) -> str:
    chosen = d.eligible.index(d.arm)
    order = [chosen, *(place for place in range(len(d.eligible)) if place != chosen)]
    ours: dict[str, Any] = {name: getattr(d, name) for name in _OWN_FIELDS} | {"policy": policy}
    context = {"context": d.context, "actions": d.actions, "encoded": encoded_text(d.encoded)}
    ours |= {name: value for name, value in context.items() if value is not None}
    if d.feature_version:
        ours["feature_version"] = d.feature_version
    content: dict[str, Any] = {
        "_label_cost": 0.0 - reward,
        "_label_probability": d.probability,
        "_label_Action": chosen + 1,
        "_labelIndex": chosen,
        "Timestamp": iso(d.time)[:-1] + "0Z",  # seven digits of a second
        "Version": "1",
        "EventId": d.id,
        "a": [place + 1 for place in order],
        "c": features,
    }
    if not any(map(math.isnan, d.log_probabilities)):
        ours["log_probabilities"] = [None if log == -math.inf else log for log in d.log_probabilities]
        content["p"] = [math.exp(d.log_probabilities[place]) for place in order]
    return _json(content | {"maillard": ours}) + "\n"


def open_file(path: Path, experiment: str | None, _columns: object = None) -> DecisionLog:
    """Open a file of this or another program as a foreign log."""

    def rows() -> Iterator[Row]:
        try:
            with path.open("rb") as file:
                yield from make_rows(_read, file, f"{path}, line")
        except OSError as error:
            raise InvalidValue("log", str(path), f"a readable file ({error.strerror})") from None

    return foreign_log(rows, str(path), experiment)


def _read(line: bytes, place: int) -> list[Row]:
    """Read the decisions in a line."""
    if not line.strip() or line.startswith(b"["):  # such as [CHECKPOINT INFO LINE]
        return []
    try:
        choices = enumerate(choices_of(json.loads(line)), place)
        return [_row(choice, number) for number, choice in choices]
    except InvalidValue:
        raise
    except MALFORMED as error:
        shown = line[:60].decode(errors="replace")
        allowed = f"a decision in the dsjson format of Vowpal Wabbit ({type(error).__name__}: {error})"
        raise InvalidValue("content", shown, allowed) from None


def _row(choice: Choice, place: int) -> Row:
    row = foreign_row(_values(choice.data, choice.arms) | choice.more, place)
    return row._replace(decision=row.decision._replace(**_encoded(choice.data)))


def _values(data: Mapping[str, Any], arms: list[str]) -> dict[str, Any]:
    ours, content = data.get("maillard") or {}, data["c"]
    order = [_place(each, len(arms)) for each in data["a"]]
    chosen = _chosen(data, order, len(arms))
    values = {
        "arm": arms[chosen],
        "eligible": arms,
        "reward": None if data.get("_label_cost") is None else 0.0 - float(data["_label_cost"]),
        "time": read_iso(data["Timestamp"], "Timestamp") if "Timestamp" in data else 0,
        "id": data.get("EventId"),
        "context": ours.get("context") if ours else read_context(content),
        "actions": ours.get("actions") if ours else read_attributes(arms, content["_multi"]),
        **{name: ours[name] for name in _OWN_FIELDS if name in ours},
    }
    if "_label_probability" in data:
        values["probability"] = float(data["_label_probability"])
    if ours.get("log_probabilities") is not None:
        logs = ours["log_probabilities"]
        values["log_probabilities"] = [-math.inf if log is None else float(log) for log in logs]
    elif "p" in data:
        probabilities = _probabilities(data, order, len(arms))
        values["log_probabilities"] = [math.log(p) if p > 0 else -math.inf for p in probabilities]
        stated = values.setdefault("probability", probabilities[chosen])
        if abs(stated - probabilities[chosen]) > _ROUNDED:
            raise InvalidValue("_label_probability", stated, f"{probabilities[chosen]}, as in p")
        values["probability"] = probabilities[chosen]
    return values


def _encoded(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of our own decisions about how their contexts were encoded."""
    ours = data.get("maillard") or {}
    encoded, version = ours.get("encoded"), ours.get("feature_version", 0)
    return {
        "encoded": None if encoded is None else read_encoded_text(encoded),
        "feature_version": CHECKS["integer"]("feature_version", version),
    }


def _chosen(data: Mapping[str, Any], order: list[int], count: int) -> int:
    """Return the index of the chosen arm: of the label, otherwise the first of `a`."""
    labelled = data.get("_label_Action")
    chosen = order[0] if labelled is None else _place(labelled, count, "_label_Action")
    if data.get("_labelIndex", chosen) != chosen:
        raise InvalidValue("_labelIndex", data["_labelIndex"], f"{chosen}, the index of the chosen arm")
    return chosen


def _probabilities(data: Mapping[str, Any], order: list[int], count: int) -> list[float]:
    """Return the probability of each arm, of which `p` has the order of `a`."""
    if sorted(order) != list(range(count)) or len(data["p"]) != len(order):
        raise InvalidValue("a", data["a"], f"each of {count} arms once, and one p for each")
    probabilities = [p for _, p in sorted(zip(order, map(float, data["p"]), strict=True))]
    total = math.fsum(probabilities)
    if not (min(probabilities) >= 0 and abs(total - 1.0) <= _ROUNDED):
        raise InvalidValue("p", data["p"], "probabilities with sum 1")
    return [p / total for p in probabilities] if abs(total - 1.0) > _ACCURATE else probabilities


def _place(value: object, count: int, field: str = "a") -> int:
    if type(value) is not int or not 1 <= value <= count:
        raise InvalidValue(field, value, f"numbers of arms, from 1 to {count}")
    return value - 1
