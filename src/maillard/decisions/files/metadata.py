"""The metadata of a log file: events, parked rewards, and the number of the last event."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from maillard.decisions.decision import RewardEvent
from maillard.decisions.event_payloads import parse_event, payload_of
from maillard.decisions.events import UPDATE_KINDS, AdministrativeEvent, Start, TallyUpdate
from maillard.decisions.files.row_codec import CHECKS, Converter, convert_values, fields_of
from maillard.decisions.identifiers import check_name
from maillard.decisions.log import MALFORMED, DecisionLog
from maillard.decisions.selection import Selection
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Parked
from maillard.decisions.timestamps import from_microseconds, to_microseconds
from maillard.errors import InvalidLog, InvalidValue, MaillardError

SCHEMA = 3
_PARKED = {
    "decision": "id", "event": "string", "value": "float", "at": "time", "arrived": "time", "expires": "time",
}  # fmt: skip


_UPDATE = {
    "number": "integer", "kind": "string", "time": "time", "decision": "id", "arm": "string",
    "value": "float", "previous": "float", "row": "text",
}  # fmt: skip


class Header(NamedTuple):
    """The metadata of a log file."""

    experiment: str
    number: int
    events: list[AdministrativeEvent]
    parked: list[Parked]
    as_of: int
    rows: int | None
    selection: Selection = Selection()
    "What was selected from the experiment, if the file has only a part of its decisions."
    pruned: PrunedPart | None = None
    "What the log kept of its pruned part, if it was pruned."


class PrunedPart(NamedTuple):
    """What states of a pruned log are rebuilt from, besides its rows and administrative events."""

    state: State
    "The state before the first event."
    updates: tuple[TallyUpdate, ...]
    "Later tally updates of pruned decisions."


def write_header(log: DecisionLog, **more: object) -> str:
    """Return the metadata of a log as JSON."""
    fields = fields_of(TO_JSON, _PARKED)
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "experiment": log.experiment,
        "number": log.number,
        "events": [
            {"number": each.number, "kind": each.kind, "time": iso(each.time), "payload": payload_of(each)}
            for each in log.events
        ],
        "parked": [
            convert_values(fields, each.row._asdict() | {"expires": each.expires}) for each in log.parked
        ],
        "exported": iso(log.as_of),
    }
    if not log.selection.selects_all:
        content["selection"] = log.selection.to_json()
    elif (state := log.base_state()) is not None:
        updates = [each._asdict() | {"time": iso(each.time)} for each in log.read_lost_updates()]
        content["pruned"] = {"state": json.loads(state.write()), "updates": updates}
    try:
        made = json.dumps({**content, **more}, ensure_ascii=False)
        made.encode()
    except (ValueError, RecursionError) as error:
        allowed = "values that can be written as JSON in UTF-8"
        raise InvalidValue(f"{log.source}: events", str(error), allowed) from None
    return made


def read_header(content: str | bytes | None, where: str) -> Header | None:
    """Read the metadata of a file, if it has any. `final_state` applies the events, and checks them."""
    if content is None:
        return None
    try:
        data = json.loads(content)
        if not isinstance(data, dict) or type(data.get("schema")) is not int:
            raise InvalidValue("schema", None, "a schema number")  # noqa: TRY301  # one place to add `where`
        if data["schema"] > SCHEMA:
            allowed = f"{SCHEMA} or older; a newer maillard wrote this file"
            raise InvalidValue("schema", data["schema"], allowed)  # noqa: TRY301  # the same
        name, number, rows = check_name("experiment", data["experiment"]), data["number"], data.get("rows")
        CHECKS["integer"]("number", number)
        events = [_event(each) for each in data["events"]]
        check_events(events, number)
        parked, exported = [_parked(each) for each in data["parked"]], read_iso(data["exported"], "exported")
        if rows is not None:
            CHECKS["integer"]("rows", rows)
        selection = Selection.from_json(data.get("selection", {}))
        pruned = _pruned(data["pruned"]) if data.get("pruned") is not None else None
        return Header(name, number, events, parked, exported, rows, selection, pruned)
    except InvalidValue as error:
        raise error.with_location(where) from None
    except (*MALFORMED, MaillardError) as error:
        raise InvalidValue(where, str(error), "the metadata of a log") from None


def _pruned(data: Mapping[str, Any]) -> PrunedPart:
    plain, checks = fields_of(FROM_JSON, _UPDATE, "updates: "), fields_of(CHECKS, _UPDATE, "updates: ")
    updates = [
        convert_values(checks, convert_values(plain, {"row": None, **each})) for each in data["updates"]
    ]
    if any(each["kind"] not in UPDATE_KINDS for each in updates):
        raise InvalidValue("updates: kind", None, "one of " + ", ".join(UPDATE_KINDS))
    return PrunedPart(State.read(json.dumps(data["state"])), tuple(TallyUpdate(**each) for each in updates))


def _event(each: Mapping[str, Any]) -> AdministrativeEvent:
    number = CHECKS["integer"]("events: number", each["number"])
    return parse_event(number, each["kind"], read_iso(each["time"], "events: time"), each["payload"])


def check_events(events: Sequence[AdministrativeEvent], last: int) -> None:
    """Check that these are the administrative events of an experiment, none after event `last`."""
    numbers = [event.number for event in events]
    if events and not (isinstance(events[0], Start) and numbers[0] == 1):
        raise InvalidValue("events", events[0].kind, "the start of the experiment first")
    if numbers != sorted(set(numbers)) or max(numbers, default=0) > last:
        raise InvalidValue("events: number", numbers, f"rising numbers, none above {last}")
    for event in events[1:]:
        if isinstance(event, Start):
            raise InvalidLog("events: kind", event.kind, "one start of the experiment, as event 1")


def _parked(each: Mapping[str, Any]) -> Parked:
    values = convert_values(fields_of(FROM_JSON, _PARKED, "parked: "), each)
    *row, expires = convert_values(fields_of(CHECKS, _PARKED, "parked: "), values).values()
    return Parked(RewardEvent(*row), expires)


def iso(time: int) -> str:
    """Format a time as ISO 8601 text in microseconds."""
    return from_microseconds(time).isoformat(timespec="microseconds").replace("+00:00", "Z")


def read_iso(value: object, field: str) -> int:
    """Parse an ISO 8601 time; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(value)  # type: ignore[arg-type]  # checked by failing
    except (TypeError, ValueError):
        allowed = "a time such as 2026-11-15T00:00:00.000000Z"
        raise InvalidValue(field, value, allowed) from None
    return to_microseconds(field, moment if moment.tzinfo else moment.replace(tzinfo=UTC))


# The values of these types differ in JSON. Values that are read are not checked.
TO_JSON: dict[str, Converter] = {"time": lambda _, value: iso(value)}
FROM_JSON: dict[str, Converter] = {
    "time": lambda field, value: read_iso(value, field),
    "float": lambda _, value: float(value) if type(value) is int else value,
}
