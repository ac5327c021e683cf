"""The metadata of a log file: events, parked rewards, and the number of the last event."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from maillard.decisions.decision import RewardEvent
from maillard.decisions.events import AdministrativeEvent, Start, parse_event, payload_of
from maillard.decisions.files.row_codec import check_real, check_whole
from maillard.decisions.identifiers import check_id, check_name
from maillard.decisions.log import MALFORMED
from maillard.decisions.stores.contract import Parked
from maillard.decisions.timestamps import from_microseconds, to_microseconds
from maillard.errors import InvalidLog, InvalidValue, MaillardError

if TYPE_CHECKING:
    from maillard.decisions.log import DecisionLog

SCHEMA = 2
_PARKED = ("decision", "event", "value")


class Header(NamedTuple):
    """The metadata of a log file."""

    experiment: str
    number: int
    events: list[AdministrativeEvent]
    parked: list[Parked]
    as_of: int
    rows: int | None


def write_header(log: DecisionLog, **more: object) -> str:
    """Return the metadata of a log as JSON."""
    events = [
        {"number": each.number, "kind": each.kind, "time": iso(each.time), "payload": payload_of(each)}
        for each in log.events
    ]
    parked = [
        {
            **{name: getattr(each.row, name) for name in _PARKED},
            "at": iso(each.row.at),
            "arrived": iso(each.row.arrived),
            "expires": None if each.expires is None else iso(each.expires),
        }
        for each in log.parked
    ]
    content = {
        "schema": SCHEMA,
        "experiment": log.experiment,
        "number": log.number,
        "events": events,
        "parked": parked,
        "exported": iso(log.as_of),
    }
    try:
        made = json.dumps({**content, **more}, ensure_ascii=False)
        made.encode()
    except (ValueError, RecursionError) as error:
        raise InvalidValue(
            f"{log.source}: events", str(error), "values that can be written as JSON in UTF-8"
        ) from None
    return made


def read_header(content: str | bytes, where: str) -> Header:
    """Read the metadata of a file. `final_state` applies the events, and checks them completely."""
    try:
        data = json.loads(content)
        if not isinstance(data, dict) or type(data.get("schema")) is not int:
            raise InvalidValue("schema", None, "a schema number")  # noqa: TRY301  # one place to add `where`
        if data["schema"] > SCHEMA:
            allowed = f"{SCHEMA} or older; a newer maillard wrote this file"
            raise InvalidValue("schema", data["schema"], allowed)  # noqa: TRY301  # the same
        rows = data.get("rows")
        return Header(
            check_name("experiment", data["experiment"]),
            check_whole(data["number"], "number"),
            _events(data["events"], data["number"]),
            [_parked(each) for each in data["parked"]],
            read_iso(data["exported"], "exported"),
            None if rows is None else check_whole(rows, "rows"),
        )
    except InvalidValue as error:
        raise error.with_location(where) from None
    except (*MALFORMED, MaillardError) as error:
        raise InvalidValue(where, str(error), "the metadata of a log") from None


def _events(data: list[Mapping[str, Any]], last: int) -> list[AdministrativeEvent]:
    events = [
        parse_event(
            check_whole(each["number"], "events: number"),
            each["kind"],
            read_iso(each["time"], "events: time"),
            each["payload"],
        )
        for each in data
    ]
    check_events(events, last)
    return events


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
    row = RewardEvent(
        decision=check_id(each["decision"], "parked: decision"),
        event=check_name("parked: event", each["event"]),
        value=check_real(each["value"], "parked: value"),
        at=read_iso(each["at"], "parked: at"),
        arrived=read_iso(each["arrived"], "parked: arrived"),
    )
    expires = each["expires"]
    return Parked(row, None if expires is None else read_iso(expires, "parked: expires"))


def iso(time: int) -> str:
    """Format a time as ISO 8601 text in microseconds."""
    return from_microseconds(time).isoformat(timespec="microseconds").replace("+00:00", "Z")


def read_iso(value: object, field: str) -> int:
    """Parse an ISO 8601 time."""
    try:
        moment = datetime.fromisoformat(value)  # type: ignore[arg-type]  # checked by failing
    except (TypeError, ValueError):
        moment = None
    if moment is None:
        raise InvalidValue(field, value, "a time such as 2026-11-15T00:00:00.000000Z")
    return to_microseconds(field, moment)
