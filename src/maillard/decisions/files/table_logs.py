"""Opening a log from a table of plain values, of any file format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maillard.decisions.files.foreign_logs import (
    are_indices,
    check_row_order,
    complete_arms,
    foreign_log,
    foreign_row,
)
from maillard.decisions.files.metadata import Header
from maillard.decisions.files.row_codec import COLUMNS, NEEDED, rows_of
from maillard.decisions.log import DecisionLog, Row, select_experiment
from maillard.errors import InvalidValue, UnknownName

if TYPE_CHECKING:
    from maillard.decisions.files.table_columns import Batches

# Columns that an earlier schema of our files had under another name.
_FORMER_NAMES = {"learned": "applied"}

Records = Callable[[], Iterable[Mapping[str, Any]]]


def open_table(
    records: Records,
    columns: Sequence[str],
    header: Header | None,
    source: str,
    experiment: str | None,
    *,
    parts: Sequence[Batches] = (),
) -> DecisionLog:
    """Open the log in a table; without events it is foreign. `parts` are its rows as Arrow, if available."""
    if header is None or not header.events:
        return _open_foreign(records, columns, source, experiment, parts)
    select_experiment([header.experiment], experiment, source)
    if missing := sorted(NEEDED - set(columns)):
        raise InvalidValue(f"{source}: columns", list(columns), "these too: " + ", ".join(missing))
    log = DecisionLog(
        lambda: rows_of(records(), header.experiment, source),
        experiment=header.experiment,
        source=source,
        events=header.events,
        number=header.number,
        parked=header.parked,
        as_of=header.as_of,
    )
    if {"reward", "closed"} <= set(columns):
        _set_column_parts(log, parts, columns)
    return log


def _set_column_parts(
    log: DecisionLog, parts: Sequence[Batches], names: Sequence[str], size: int | None = None
) -> None:
    """Make the log read its columns from Arrow."""
    if parts:
        from maillard.decisions.files.table_columns import TableColumns

        made = [TableColumns(part, tuple(names), log.arms, log.source, log.experiment) for part in parts]
        log.set_column_parts(*made, row_count=sum(part.rows for part in parts) if size is None else size)


def _open_foreign(
    records: Records, columns: Sequence[str], source: str, experiment: str | None, parts: Sequence[Batches]
) -> DecisionLog:
    """Open a foreign log. It needs `arm`, and `probability` or `log_probability`."""
    if "arm" not in columns or not {"probability", "log_probability"} & set(columns):
        allowed = "arm and probability; reward and the other columns of a log are optional"
        raise InvalidValue(f"{source}: columns", list(columns), allowed)
    arms: Sequence[str] = ()
    if not parts and "eligible" not in columns:
        arms = complete_arms(
            dict.fromkeys(values["arm"] for values in records() if values["arm"] is not None)
        )

    def rows(known: Sequence[str]) -> Iterator[Row]:
        for place, values in enumerate(records()):
            try:
                row = foreign_row(values, place, known)
            except InvalidValue as error:
                raise error.with_location(f"{source}, row {place + 1}") from None
            yield row

    if not parts:
        return foreign_log(lambda: rows(tuple(arms)), source, experiment, arms)
    from maillard.decisions.files.table_columns import contents_of

    found = contents_of(parts, columns, source)
    arms = found.arms
    only = select_experiment(sorted(found.experiments), experiment, source)

    def chosen() -> Iterator[Row]:
        return check_row_order((row for row in rows(tuple(arms)) if row.decision.experiment == only), source)

    log = DecisionLog(chosen, experiment=only, source=source, arms=arms)
    log.has_windows = found.windows
    log.arms_unordered = "eligible" not in columns and not are_indices(arms)
    _set_column_parts(log, parts, columns, found.experiments[only])
    return log


def rename_columns(names: Sequence[str], columns: Mapping[str, str] | None, source: str) -> list[str]:
    """Translate the column names of a table to those of this package. `columns` maps ours to theirs."""
    try:
        ours = dict(columns or {})
    except (TypeError, ValueError):
        allowed = "a mapping to the column names of the table, as in {'arm': 'item_id'}"
        raise InvalidValue("columns", columns, allowed) from None
    for name, theirs in ours.items():
        if name not in COLUMNS:
            raise UnknownName("column", name, list(COLUMNS))
        if theirs not in names:
            raise InvalidValue(
                f"{source}: columns", list(names), f"a table with the column {theirs!r} for {name}"
            )
    back = {theirs: name for name, theirs in ours.items()}
    back |= {former: name for former, name in _FORMER_NAMES.items() if name not in names and name not in ours}
    # A column that has one of our names, but is mapped to nothing, must not be mistaken for ours.
    made = [back.get(name, f"{name} of {source}" if name in ours else name) for name in names]
    if len(set(made)) < len(made):
        raise InvalidValue(f"{source}: columns", list(names), "each column once")
    return made
