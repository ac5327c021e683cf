"""The output folder: replaced as a whole, with the parts of an interrupted run in a folder next to it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from maillard.errors import InvalidValue, MaillardError

FORMAT = "maillard reproduction 1"
RESULTS = "results.json"  # by which a report is recognised
FILES = {RESULTS, "claims.json", "curves.parquet", "trials.parquet", "timings.json", "index.html", "figures"}
_MIN_FREE = 100 * 2**20  # bytes of disk space


class WorkingFolder:
    """The working folder of a run, next to the output folder.

    It contains the finished parts, and the report until it is published.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = output.with_name(output.name + ".partial")
        self.parts = self.path / "parts"
        self.report = self.path / "report"
        self.before = self.path / "before"
        self.lock = self.path / "lock"

    def clear_report(self) -> None:
        """Create an empty folder for the report."""
        shutil.rmtree(self.report, ignore_errors=True)
        (self.report / "figures").mkdir(parents=True)

    def publish(self, used: Collection[str]) -> None:
        """Move the report to the output folder and delete the `used` parts; parts of other runs stay."""
        _check_folders(self)  # again: the folder may have changed during the run
        if self.output.exists():
            self.output.rename(self.before)
        try:
            self.report.rename(self.output)
        except BaseException:
            if self.before.exists():
                self.before.rename(self.output)
            raise
        shutil.rmtree(self.before, ignore_errors=True)
        for name in used:
            (self.parts / name).unlink(missing_ok=True)
        if not any(self.parts.iterdir()):
            shutil.rmtree(self.path, ignore_errors=True)


@contextlib.contextmanager
def open_working_folder(output: str | Path) -> Iterator[WorkingFolder]:
    """The working folder, locked by this run; errors of the file system become `MaillardError`."""
    given = Path(output)
    if not str(output) or "\0" in str(output) or not given.resolve().name:
        raise InvalidValue(
            "output", str(output), "a folder below the root of the file system, such as 'reproduction'"
        )
    work = WorkingFolder(given.resolve())
    started = False
    try:
        _check_folders(work)
        work.parts.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(work.path).free
        if free < _MIN_FREE:
            raise MaillardError(
                f"{work.path.parent} has {free / 2**20:.0f} MiB free; a run needs {_MIN_FREE / 2**20:.0f} MiB"
            )
        with _locked(work.lock):
            _restore(work)
            started = True
            yield work
    except OSError as error:
        kept = "; finished parts are kept, and the same command continues from there" if started else ""
        where = error.filename or work.path
        raise MaillardError(f"cannot write {where}: {error.strerror or error}{kept}") from error


def _check_folders(work: WorkingFolder) -> None:
    """Raise an error if the folders contain anything but a report or a run, before anything is changed."""
    output, partial = work.output, work.path
    own = {path.name for path in (work.parts, work.report, work.before, work.lock)}
    if not output.parent.is_dir():
        expected = "a folder whose parent exists"
    elif output == Path.cwd() or output in Path.cwd().parents or output.is_mount():
        expected = "a folder that can be replaced: not the current folder, a parent of it, or a mount point"
    elif output.exists() and not (output.is_dir() and (_is_report(output) or not any(output.iterdir()))):
        expected = "a new folder, an empty folder, or one that contains only an earlier report"
    elif partial.exists() and not (partial.is_dir() and {path.name for path in partial.iterdir()} <= own):
        expected = f"another folder: {partial.name} next to it, which a run would use, contains other files"
    else:
        return
    raise InvalidValue("output", str(output), expected)


def _is_report(folder: Path) -> bool:
    try:
        made_here = json.loads((folder / RESULTS).read_text(encoding="utf8"))["format"] == FORMAT
        pictures = all(path.suffix in (".svg", ".png") for path in (folder / "figures").iterdir())
        return made_here and pictures and {path.name for path in folder.iterdir()} <= FILES
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _restore(work: WorkingFolder) -> None:
    """Put the old report back if a run ended between moving it away and publishing the new one."""
    if work.before.exists() and not work.output.exists():
        work.before.rename(work.output)
    shutil.rmtree(work.before, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Allow one run at a time; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A run that just ended may have deleted the file that this one has locked.
            unavailable = not path.exists() or not os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except BlockingIOError:
            unavailable = True
        if unavailable:
            raise MaillardError(f"another run is writing to {path.parent}")
        yield
