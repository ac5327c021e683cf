"""Reading, writing and copying logs of any format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maillard.decisions.files.row_codec import CONTEXT
from maillard.decisions.frames import library_of
from maillard.decisions.log import DecisionLog, select_experiment
from maillard.decisions.log_locations import redact
from maillard.decisions.selection import Names, Numbers, Time
from maillard.decisions.stores import Store, is_store, open_store
from maillard.errors import InvalidLog, InvalidValue

if TYPE_CHECKING:
    from maillard.decisions.bandit import Bandit
    from maillard.decisions.files.file_formats import WriteResult
    from maillard.decisions.files.increments import Increment


def read_log(
    source: Any,
    experiment: str | None = None,
    *,
    since: Time | None = None,
    until: Time | None = None,
    unit: Names = None,
    epoch: Numbers = None,
    from_state: int | None = None,
    to_state: int | None = None,
    columns: Mapping[str, str] | None = None,
    context: Sequence[str] | str | None = None,
) -> DecisionLog:
    """Open the log of an experiment, or a part of it.

    `source` is a path (a SQLite log, .parquet, .csv, .dsjson or .npz), a folder or list of .parquet files, a
    postgresql:// URL, a `Bandit`, a store, a pandas or polars data frame, an Arrow table, a dict of arrays
    (`arm`, `probability`, ...), or a `bandit_feedback` dict of Open Bandit Pipeline. A folder that
    `export_changes` wrote can be the first item of a list, with its log as the second: then the log's later
    changes are read from there. `experiment` is required if the source contains several.
    `columns` maps column names of this package to those of the table, as in {"arm": "item_id"}. `context`
    names columns that are keys of the context, if the table has no column `context`.

    A part of the log has only the decisions from `since` to before `until` (aware datetimes, or seconds since
    1970), of one `unit` or several, of one `epoch` or several, or those that were made in states from
    `from_state` to `to_state`, both included.

    >>> log = read_log({"arm": ["red", "blue"], "probability": [0.5, 0.5], "reward": [1, 0]})
    >>> log.arms, log.foreign
    (('red', 'blue'), True)
    >>> from maillard import Bandit, Reward
    >>> Bandit(["red", "blue"], reward=Reward(low=0, high=1), log="decisions.db").close()
    >>> with read_log("decisions.db") as log: log.experiment, log.arms
    ('default', ('red', 'blue'))
    """
    log = _open(source, experiment, columns, _with_context(columns, context))
    return log.select(
        since=since, until=until, unit=unit, epoch=epoch, from_state=from_state, to_state=to_state
    )


def _with_context(
    columns: Mapping[str, str] | None, context: Sequence[str] | str | None
) -> Mapping[str, Any] | None:
    """Return the columns of a table by our names, and the keys of the context as a tuple under `context`."""
    if context is None or (isinstance(columns, Mapping) and CONTEXT in columns):
        return columns
    keys = (context,) if isinstance(context, str) else tuple(context)
    if not all(isinstance(key, str) for key in keys):
        raise InvalidValue("context", context, "names of columns")
    return {**(columns or {}), CONTEXT: keys} if keys else columns


def _open(  # noqa: PLR0911  # one return for each type of source
    source: Any,
    experiment: str | None,
    columns: Mapping[str, str] | None,
    table_columns: Mapping[str, Any] | None,
) -> DecisionLog:
    """Open a source. `table_columns` are `columns` with the keys of the context, which only tables have."""
    from maillard.decisions.bandit import Bandit
    from maillard.decisions.files import arrow, export_folders, folder_logs, obp, parquet, store_transfer

    match source:
        case DecisionLog():
            select_experiment([source.experiment], experiment, source.source)
            return source
        case Bandit():
            return store_transfer.open_shared(source._store, experiment or source.experiment)
        case str() if "://" in source:
            return store_transfer.open_owned(open_store(source), experiment)
        case str() | Path():
            path = _path(source, "log", "a path, or a postgresql:// URL")
            return _open_path(path, experiment, columns, table_columns)
        case list() | tuple() if source and all(map(_is_parquet, source)):
            return parquet.open_files([Path(each) for each in source], experiment, table_columns)
        case [str() | Path() as folder, tail] if export_folders.is_export(Path(folder)):
            _refuse_columns(columns)
            return folder_logs.open_folder(Path(folder), experiment, tail)
    if library_of(source) is not None:
        return arrow.open_frame(source, experiment, table_columns)
    if isinstance(source, Mapping) and "arm" in source:
        return arrow.open_frame(arrow.table_of_arrays(source), experiment, table_columns)
    _refuse_columns(columns)
    if isinstance(source, Mapping):
        return obp.open_feedback(source, experiment)
    if is_store(source):
        return store_transfer.open_shared(source, experiment)
    allowed = (
        "a path, a postgresql:// URL, several .parquet files, a Bandit, a data frame, an Arrow table, "
        "a dict of arrays, or a bandit_feedback dict of Open Bandit Pipeline"
    )
    raise InvalidValue("log", redact(source), allowed)


def _path(source: str | Path, field: str, allowed: str) -> Path:
    """Convert to a path; refuse text that looks like a URL."""
    name = str(source)
    if redact(name) != name or not name or "\0" in name:
        raise InvalidValue(field, redact(name), allowed)
    return Path(source)


def _refuse_columns(columns: Mapping[str, str] | None) -> None:
    if columns:
        allowed = "None: only data frames, .parquet files and .csv files have columns to rename"
        raise InvalidValue("columns", dict(columns), allowed)


def _is_parquet(source: object) -> bool:
    return isinstance(source, str | Path) and Path(source).suffix.lower() == ".parquet"


def _open_path(
    path: Path,
    experiment: str | None,
    columns: Mapping[str, str] | None,
    table_columns: Mapping[str, Any] | None,
) -> DecisionLog:
    """Open a file or folder. Only the ending of its name decides the format.

    Looking into the file is not possible: to open and close a SQLite log drops this process's locks on it.
    """
    from maillard.decisions.files import export_folders, folder_logs, parquet, store_transfer
    from maillard.decisions.files.file_formats import format_of

    is_file = is_folder = False
    with suppress(OSError):
        is_file, is_folder = path.is_file(), path.is_dir()
    if is_folder and export_folders.is_export(path):
        _refuse_columns(columns)
        return folder_logs.open_folder(path, experiment)
    if is_folder:
        return parquet.open_files(sorted(path.glob("*.parquet")), experiment, table_columns, str(path))
    if not is_file:
        raise InvalidValue("log", str(path), "a file that exists, or a folder of .parquet files")
    file_format = format_of(path)
    if file_format is None or not file_format.renames_columns:
        _refuse_columns(columns)
    if file_format is not None:
        return file_format.open(path, experiment, table_columns)
    try:
        return store_transfer.open_owned(open_store(path, read_only=True), experiment)
    except UnicodeDecodeError as error:  # SQLite's own error message, about a damaged file
        raise InvalidLog(str(path), str(error), "a decision log (the database is damaged)") from None


def write_log(log: DecisionLog, path: str | Path, form: str | None = None) -> WriteResult:
    """Write `log`, as `read_log` opens it, to the file `path`; return how many rows were written.

    The format is `form` (parquet, csv, obp or dsjson), or the one that the file's ending selects. The file
    appears only when it is complete. It may replace an earlier export, but never the log that is written.

    >>> from maillard import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
    >>> decisions = bandit.choose(size=3)
    >>> write_log(read_log(bandit), "decisions.parquet").rows
    3
    >>> read_log("decisions.parquet").to_pandas().shape[0]
    3
    """
    from maillard.decisions.files.file_formats import format_to_write
    from maillard.decisions.files.output_files import check_export_path

    path = _path(path, "file", "a path")
    file_format = format_to_write(path, form)
    check_export_path(path, log.source)
    return file_format.write(log, path)


def export_changes(
    log: str | Path | Bandit | Store,
    folder: str | Path,
    experiment: str | None = None,
    *,
    on_rows: Callable[[int], None] | None = None,
) -> Increment:
    """Write the decisions that were added or changed since the last export to a folder of Parquet files.

    `log` is a path (SQLite), a postgresql:// URL, a store or a `Bandit`, and `experiment` the name of an
    experiment, if the log contains several. The first export to `folder` writes all decisions. The log may be
    in use. If the export is interrupted, the folder stays as it was. `read_log` reads the folder. `on_rows`
    is a callback that receives the number of decisions written so far.

    >>> from maillard import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
    >>> decisions = bandit.choose(size=3)
    >>> export_changes(bandit, "archive").rows
    3
    >>> decision = bandit.choose()
    >>> export_changes(bandit, "archive").rows
    1
    """
    from maillard.decisions.files import increments

    return increments.export_changes(log, _path(folder, "folder", "a path"), experiment, on_rows=on_rows)


def import_log(source: Any, log: str | Path | Store, experiment: str | None = None) -> int:
    """Copy a log into a store, under its own name or another, and return the number of decisions.

    `source` is anything that `read_log` opens, except a foreign log. `log` is a path (SQLite), a
    postgresql:// URL or a store. The copy is one transaction.

    >>> from maillard import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1), experiment="home")
    >>> decisions = bandit.choose(size=3)
    >>> import_log(bandit, "decisions.db", experiment="copy")
    3
    >>> with Bandit(log="decisions.db", experiment="copy") as copied: copied.arms
    ['red', 'blue']
    """
    from maillard.decisions.files import store_transfer

    opened = read_log(source)
    with nullcontext() if opened is source else opened:
        return store_transfer.write(opened, log, experiment or opened.experiment).rows
