"""A log is opened, whatever it is kept in; and written, and copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maillard.decisions.log import DecisionLog, choose_experiment
from maillard.decisions.names import ending_of, shown
from maillard.decisions.selection import Names, Numbers, Time
from maillard.decisions.stores import Store, is_store, open_store
from maillard.decisions.stores.rows import Unreadable
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from maillard.decisions.files import Written

__all__ = ["import_log", "read_log", "write_log"]


def read_log(
    source: Any,
    experiment: str | None = None,
    *,
    since: Time | None = None,
    until: Time | None = None,
    unit: Names = None,
    epoch: Numbers = None,
    columns: Mapping[str, str] | None = None,
) -> DecisionLog:
    """The log of an experiment, or the part of it that is asked for.

    `source` is a path (a SQLite log, .parquet, .csv, .dsjson or .npz), a folder or list of .parquet files, a postgresql:// URL, a
    `Bandit` or a store, a pandas or polars frame or Arrow table, or Open Bandit Pipeline's `bandit_feedback`. `experiment` says which,
    where there are several. `columns` says what a table that is not ours calls our columns, as in {"arm": "item_id"}.
    """
    log = _open(source, experiment, columns)
    return log.only(since=since, until=until, unit=unit, epoch=epoch)


def _open(  # noqa: PLR0911  # one for each kind of source
    source: Any, experiment: str | None, columns: Mapping[str, str] | None
) -> DecisionLog:
    from maillard.decisions import frames
    from maillard.decisions.bandit import Bandit
    from maillard.decisions.files import obp, stores

    match source:
        case DecisionLog():
            choose_experiment([source.experiment], experiment, source.source)
            return source
        case Bandit():
            return stores.open_in(source._store, experiment or source.experiment)
        case str() if "://" in source:
            return stores.open_owned(open_store(source), experiment)
        case str() | Path():
            return _open_file(_path(source, "log", "a path, or a postgresql:// URL"), experiment, columns)
        case list() | tuple() if source and all(map(_is_parquet, source)):
            return _open_parts([Path(each) for each in source], experiment, columns)
    if frames.library_of(source) is not None:
        from maillard.decisions.files import arrow

        return arrow.open_frame(source, experiment, columns)
    _no_names(columns)
    if isinstance(source, Mapping):
        return obp.open_feedback(source, experiment)
    if is_store(source):
        return stores.open_in(source, experiment)
    allowed = "a path, a postgresql:// URL, several .parquet files, a Bandit, a frame or a table, or a dict of OBP's"
    raise InvalidValue("log", shown(source), allowed)


def _path(source: str | Path, field: str, allowed: str) -> Path:
    """A path, and not a URL that has been taken for one."""
    name = str(source)
    if shown(name) != name or not name or "\0" in name:
        raise InvalidValue(field, shown(name), allowed)
    return Path(source)


def _no_names(columns: Mapping[str, str] | None) -> None:
    if columns:
        raise InvalidValue(
            "columns", dict(columns), "nothing here: they are for frames, .parquet and .csv files"
        )


def _is_parquet(source: object) -> bool:
    return isinstance(source, str | Path) and ending_of(Path(source)) == "parquet"


def _open_parts(
    paths: Sequence[Path],
    experiment: str | None,
    columns: Mapping[str, str] | None,
    source: str | None = None,
) -> DecisionLog:
    """The log in several Parquet files, in this order."""
    from maillard.decisions.files import parquet

    for path in paths:
        if not path.is_file():
            raise InvalidValue("log", str(path), "a .parquet file that exists")
    if not paths:
        raise InvalidValue("log", source, "a folder with .parquet files")
    return parquet.open_files(paths, experiment, columns, source)


def _open_file(path: Path, experiment: str | None, columns: Mapping[str, str] | None) -> DecisionLog:
    """By its name alone: to open a SQLite log and close it again would drop the locks that this process has on it."""
    from maillard.decisions.files import csv, dsjson, obp, stores

    try:
        there, folder = path.is_file(), path.is_dir()
    except OSError:
        there = folder = False
    if folder:
        return _open_parts(sorted(path.glob("*.parquet")), experiment, columns, str(path))
    if not there:
        raise InvalidValue("log", str(path), "a file that exists, or a folder of .parquet files")
    form = ending_of(path)
    if form == "parquet":
        return _open_parts([path], experiment, columns)
    if form == "csv":
        return csv.open_file(path, experiment, columns)
    _no_names(columns)
    if form is None:
        try:
            return stores.open_owned(open_store(path, read_only=True), experiment)
        except UnicodeDecodeError as error:  # in SQLite's own words about a file that is garbled
            raise Unreadable(f"{path}: {error}") from None
    return {"obp": obp.open_file, "dsjson": dsjson.open_file}[form](path, experiment)


def write_log(log: DecisionLog, path: str | Path, form: str | None = None) -> Written:
    """Write a log as parquet, csv, obp or dsjson, by the name's ending or as `form` says; how many rows went in.

    The file is there when it is whole. It may replace one whose name has such an ending, and never the log that is written.
    """
    from maillard.decisions.files import check_target, csv, dsjson, form_of, obp, parquet

    path = _path(path, "file", "a path")
    writers = {"parquet": parquet.write, "csv": csv.write, "obp": obp.write, "dsjson": dsjson.write}
    form = form_of(path, form)
    check_target(path, log.source)
    if form == "csv":
        check_target(csv.beside(path), log.source)
    return writers[form](log, path)


def import_log(source: Any, log: str | Path | Store, experiment: str | None = None) -> int:
    """Copy a log into a store, all of it as it is, under its own name or another; how many decisions it has.

    `source` is whatever `read_log` opens and is not foreign, `log` a path (SQLite), a postgresql:// URL or a store. It is one
    transaction: the copy is there when it is whole.
    """
    from maillard.decisions.files import stores

    opened = read_log(source)
    try:
        return stores.write(opened, log, experiment or opened.experiment).rows
    finally:
        if opened is not source:
            opened.close()
