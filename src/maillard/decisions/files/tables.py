"""A log out of the plain values of its table, whichever file they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from maillard.decisions.files import located
from maillard.decisions.files.foreign import foreign_log, foreign_row
from maillard.decisions.files.metadata import Header
from maillard.decisions.files.records import NEEDED, rows_of
from maillard.decisions.log import DecisionLog, Row, choose_experiment
from maillard.errors import InvalidValue

__all__ = ["open_table"]

Records = Callable[[], Iterable[Mapping[str, Any]]]


def open_table(
    records: Records, columns: Sequence[str], header: Header | None, source: str, experiment: str | None
) -> DecisionLog:
    """The log of a table; a foreign one where nothing is known of its events."""
    if header is None or not header.events:
        return _open_foreign(records, columns, source, experiment)
    choose_experiment([header.experiment], experiment, source)
    if missing := sorted(NEEDED - set(columns)):
        raise InvalidValue(f"{source}: columns", list(columns), "these too: " + ", ".join(missing))
    return DecisionLog(
        lambda: rows_of(records(), header.experiment, source),
        experiment=header.experiment,
        source=source,
        events=header.events,
        number=header.number,
        parked=header.parked,
        as_of=header.as_of,
    )


def _open_foreign(
    records: Records, columns: Sequence[str], source: str, experiment: str | None
) -> DecisionLog:
    """`arm` and `probability` or `log_probability` are needed, all else is optional."""
    if "arm" not in columns or not {"probability", "log_probability"} & set(columns):
        allowed = "arm and probability, and perhaps reward and the other columns of a log"
        raise InvalidValue(f"{source}: columns", list(columns), allowed)
    arms: dict[str, None] = {}
    if "eligible" not in columns:
        arms = dict.fromkeys(values["arm"] for values in records() if values["arm"] is not None)

    def rows() -> Iterator[Row]:
        for place, values in enumerate(records()):
            try:
                row = foreign_row(values, place, tuple(arms))
            except InvalidValue as error:
                raise located(error, f"{source}, row {place + 1}") from None
            yield row

    return foreign_log(rows, source, experiment, tuple(arms))
