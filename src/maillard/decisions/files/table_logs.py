"""Opening a log from a table of plain values, of any file format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from maillard.decisions.files import foreign_logs
from maillard.decisions.files.export_checks import check_row, check_table
from maillard.decisions.files.metadata import Header
from maillard.decisions.files.row_codec import COLUMNS, CONTEXT, NEEDED, make_rows, row_of
from maillard.decisions.log import DecisionLog, select_experiment
from maillard.decisions.stores.contract import Row
from maillard.errors import InvalidValue, UnknownName

if TYPE_CHECKING:
    from maillard.decisions.files.arrow import ArrowPart
    from maillard.decisions.files.parquet import ParquetPart

    Batches: TypeAlias = "ArrowPart | ParquetPart"

# Columns that an earlier schema of our files had under another name.
_FORMER_NAMES = {"learned": "applied"}
# Columns that may number the rows of a foreign table; the last ones are the index of a pandas data frame.
_ROW_NUMBERS = ("id", "event_id", "row", "index", "sequence", "__index_level_0__", "Unnamed: 0", "")


class Table(NamedTuple):
    """A table of decisions in any format."""

    source: str
    names: Sequence[str]
    "The names of its columns."
    records: Callable[[], Iterable[Mapping[str, Any]]]
    "Reads the rows as plain values."
    parts: Sequence[Batches] = ()
    "Read the rows as Arrow, if that is possible."
    number: str | None = None
    "The column that may number the rows."
    context: tuple[str, ...] = ()
    "Columns that are keys of the context, if the table has no column `context`."


def open_table(
    table: Table, header: Header | None, experiment: str | None, close: Callable[[], None] | None = None
) -> DecisionLog:
    """Open the log in a table; without events it is foreign. `close` is called when the log is closed."""
    if header is None or not header.events:
        return _open_foreign(table, experiment)
    select_experiment([header.experiment], experiment, table.source)
    if missing := sorted(NEEDED - set(table.names)):
        allowed = "these too: " + ", ".join(missing)
        raise InvalidValue(f"{table.source}: columns", list(table.names), allowed)
    fields = header._asdict()
    del fields["rows"], fields["selection"], fields["pruned"]

    def make(values: Mapping[str, Any], place: int) -> Row:
        row = row_of(header.experiment, values, place)
        check_row(log, values, row)
        return row

    log = DecisionLog(
        lambda: make_rows(make, table.records(), f"{table.source}, row"),
        source=table.source,
        close=close,
        **fields,
    )
    log.selection = header.selection
    if (kept := header.pruned) is not None:
        log.set_pruned_part(lambda: kept.state, lambda: kept.updates)
    if {"reward", "closed"} <= set(table.names):
        log.check_rows = (
            partial(check_table, table, log, whole=log.selection.selects_all)
            if table.parts
            else log.check_rows
        )
        _set_column_parts(log, table, sum(part.rows for part in table.parts))
    return log


def _set_column_parts(log: DecisionLog, table: Table, row_count: int) -> None:
    """Make the log read its columns from Arrow, if that is possible."""
    if table.parts:
        from maillard.decisions.files.table_columns import TableColumns

        rest = tuple(table.names), log.arms, log.source, log.experiment
        rule = log.reward if log.reward is not None and log.reward.window is not None else None
        read = (
            TableColumns(
                part,
                *rest,
                reward=rule,
                number=table.number if log.foreign else None,
                context=table.context,
                by_rank=log.has_actions,
            )
            for part in table.parts
        )
        log.set_column_parts(*read, row_count=row_count)


def _open_foreign(table: Table, experiment: str | None) -> DecisionLog:
    """Open a foreign log. It needs `arm`, and `probability` or `log_probability`."""
    source, names = table.source, table.names
    missing = ["arm"] if "arm" not in names else []
    missing += [] if {"probability", "log_probability"} & set(names) else ["probability"]
    if missing:
        python = ", ".join(f"'{name}': 'NAME'" for name in missing)
        command = ",".join(f"{name}=NAME" for name in missing)
        allowed = (
            f"arm and probability, but {' and '.join(missing)} is missing; reward and the other columns of a "
            f"log are optional. If a column has another NAME, pass it: columns={{{python}}} or "
            f"--columns {command}"
        )
        raise InvalidValue(f"{source}: columns", list(names), allowed)
    arms: Sequence[str] = ()

    def rows() -> Iterator[Row]:
        plain = partial(foreign_logs.foreign_row, arms=arms)
        has_contexts = not table.parts and (bool(table.context) or CONTEXT in names)
        make = foreign_logs.with_steps(plain, table.number, contexts=has_contexts)
        return make_rows(make, table.records(), f"{source}, row")

    if not table.parts:
        if "eligible" not in names:
            chosen = (values["arm"] for values in table.records())
            arms = foreign_logs.complete_arms(dict.fromkeys(arm for arm in chosen if arm is not None))
        log = foreign_logs.foreign_log(rows, source, experiment, arms)
        log.lists_actions = _lists_actions(table)
        return log
    from maillard.decisions.files.table_columns import contents_of

    arms, sizes, has_windows, disorder = contents_of(table)
    only = select_experiment(sorted(sizes), experiment, source)
    if only in disorder:
        foreign_logs.refuse_disorder(source, *disorder[only])
    of_experiment = partial(foreign_logs.rows_of_experiment, rows, only)
    log = DecisionLog(of_experiment, experiment=only, source=source, arms=arms)
    log.has_windows, log.lists_actions = has_windows, _lists_actions(table)
    log.arms_unordered = "eligible" not in names and not foreign_logs.are_indices(arms)
    _set_column_parts(log, table, sizes[only])
    return log


def _lists_actions(table: Table) -> bool:
    """Whether a foreign table has the names of each decision's actions, and attributes as JSON."""
    if not {"actions", "eligible"} <= set(table.names):
        return False
    if not table.parts:
        return any(values["actions"] for values in table.records())
    batches = chain.from_iterable(part(["actions"]) for part in table.parts)
    from maillard.decisions.files.arrow import has_texts

    return any(has_texts(batch.column("actions")) for batch in batches)


def number_column(integers: Collection[str]) -> str | None:
    """Return that of the columns with whole numbers that may number the rows."""
    return next((name for name in _ROW_NUMBERS if name in integers), None)


def context_columns(names: Sequence[str], columns: Mapping[str, Any] | None, source: str) -> tuple[str, ...]:
    """Return the columns that are keys of the context, if the table has no column `context`.

    `names` are the columns of the table, as `rename_columns` returns them. The keys are in `columns`, under
    `context`, as a tuple.
    """
    wanted = (columns or {}).get(CONTEXT, ())
    if isinstance(wanted, str) or CONTEXT in names:
        return ()
    others = [name for name in names if name not in COLUMNS]
    for name in wanted:
        if name not in names:
            raise UnknownName(f"{source}: column of the context", name, others)
    return tuple(wanted)


def rename_columns(names: Sequence[str], columns: Mapping[str, str] | None, source: str) -> list[str]:
    """Translate the column names of a table to those of this package. `columns` maps ours to theirs."""
    try:
        ours = {name: theirs for name, theirs in dict(columns or {}).items() if isinstance(theirs, str)}
    except (TypeError, ValueError):
        allowed = "a mapping to the column names of the table, as in {'arm': 'item_id'}"
        raise InvalidValue("columns", columns, allowed) from None
    for name, theirs in ours.items():
        if name not in COLUMNS:
            if theirs in COLUMNS and name in names:
                allowed = f"our name first: {theirs}={name}"
                raise InvalidValue("columns", f"{name}={theirs}", allowed)
            raise UnknownName("column", name, COLUMNS)
        if theirs not in names:
            allowed = f"a table with the column {theirs!r} for {name}"
            raise InvalidValue(f"{source}: columns", list(names), allowed)
    back = {theirs: name for name, theirs in ours.items()}
    back |= {former: name for former, name in _FORMER_NAMES.items() if name not in names and name not in ours}
    # A column that has one of our names, but is mapped to nothing, must not be mistaken for ours.
    made = [back.get(name, f"{name} of {source}" if name in ours else name) for name in names]
    if len(set(made)) < len(made):
        raise InvalidValue(f"{source}: columns", list(names), "each column once")
    return made
