"""Logs in the dsjson format of Vowpal Wabbit: one line for each decision with a reward.

A cost is a negative reward. `vw-estimators` depends on the order of the keys and on the absence of blanks.
The object "maillard" contains the fields that dsjson does not have; other programs ignore it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from maillard.decisions.decision import Decision
from maillard.decisions.files.file_formats import WriteResult
from maillard.decisions.files.foreign_logs import foreign_log, foreign_row
from maillard.decisions.files.metadata import iso, read_iso
from maillard.decisions.files.output_files import atomic_file
from maillard.decisions.files.row_codec import make_rows
from maillard.decisions.log import MALFORMED, DecisionLog
from maillard.decisions.stores.contract import Row
from maillard.errors import InvalidValue

_OWN_FIELDS = (
    "experiment", "unit", "policy_version", "formula_version", "state", "epoch", "cold", "idempotency_key",
    "position", "origin", "log_probability",
)  # fmt: skip
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def write(log: DecisionLog, path: Path) -> WriteResult:
    """Write a line for each decision with a final reward."""
    rows = left_out = 0
    with atomic_file(path) as partial, partial.open("w", newline="", encoding="utf8") as file:
        for row in log.rows():
            reward = log.final_reward_of(row)
            if reward is None:
                left_out += 1
            else:
                rows += 1
                file.write(_line(row.decision, reward, log.policies.get(row.decision.policy_version)))
    return WriteResult(rows, left_out)


def _line(d: Decision, reward: float, policy: str | None) -> str:
    chosen = d.eligible.index(d.arm)
    order = [chosen, *(place for place in range(len(d.eligible)) if place != chosen)]
    ours: dict[str, Any] = {name: getattr(d, name) for name in _OWN_FIELDS} | {"policy": policy}
    content: dict[str, Any] = {
        "_label_cost": 0.0 - reward,
        "_label_probability": d.probability,
        "_label_Action": chosen + 1,
        "_labelIndex": chosen,
        "Timestamp": iso(d.time)[:-1] + "0Z",  # seven digits of a second
        "Version": "1",
        "EventId": d.id,
        "a": [place + 1 for place in order],
        "c": {"_multi": [{"Arm": {"name": arm}} for arm in d.eligible]},
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


def _read(line: bytes, place: int) -> Row | None:
    """Read the decision in a line; None if the line has none."""
    try:
        data = json.loads(line) if line.strip() else None
        if data is None or ("RewardValue" in data and "a" not in data):  # a reward without its decision
            return None
        return foreign_row(_values(data), place)
    except InvalidValue:
        raise
    except MALFORMED as error:
        shown = line[:60].decode(errors="replace")
        allowed = f"a decision in the dsjson format of Vowpal Wabbit ({type(error).__name__}: {error})"
        raise InvalidValue("content", shown, allowed) from None


def _values(data: Mapping[str, Any]) -> dict[str, Any]:
    if data.get("pdrop"):
        raise InvalidValue("pdrop", data["pdrop"], "0: dropped decisions are not supported")
    arms = _names(data["c"]["_multi"])
    order = [_place(each, len(arms)) for each in data["a"]]
    chosen = _place(data["_label_Action"], len(arms)) if "_label_Action" in data else order[0]
    ours = data.get("maillard") or {}
    values = {
        "arm": arms[chosen],
        "eligible": arms,
        "reward": None if data.get("_label_cost") is None else 0.0 - float(data["_label_cost"]),
        "time": read_iso(data["Timestamp"], "Timestamp") if "Timestamp" in data else 0,
        "id": data.get("EventId"),
        **{name: ours[name] for name in _OWN_FIELDS if name in ours},
    }
    if "_label_probability" in data:
        values["probability"] = float(data["_label_probability"])
    if ours.get("log_probabilities") is not None:
        logs = ours["log_probabilities"]
        values["log_probabilities"] = [-math.inf if log is None else float(log) for log in logs]
    elif "p" in data:
        if sorted(order) != list(range(len(arms))) or len(data["p"]) != len(order):
            raise InvalidValue("a", data["a"], f"each of {len(arms)} arms once, and one p for each")
        probabilities = [p for _, p in sorted(zip(order, map(float, data["p"]), strict=True))]
        values["log_probabilities"] = [math.log(p) if p > 0 else -math.inf for p in probabilities]
        values["probability"] = probabilities[chosen]
    return values


def _place(value: object, count: int) -> int:
    if type(value) is not int or not 1 <= value <= count:
        raise InvalidValue("a", value, f"numbers of arms, from 1 to {count}")
    return value - 1


def _names(arms: list[Mapping[str, Any]]) -> list[str]:
    """Return the names of the arms, or their numbers if they have no names."""
    features = [arm.get("Arm") for arm in arms]
    named = [each.get("name") if isinstance(each, dict) else None for each in features]
    names = [name for name in named if isinstance(name, str) and name]
    if len(set(names)) == len(arms):
        return names
    return [str(number) for number in range(1, len(arms) + 1)]
