"""The folder of a report: replaced as a whole or not at all, with what an interrupted run had done beside it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from maillard.errors import InvalidValue, MaillardError

__all__ = ["FORMAT", "RESULTS", "Work", "open_work"]

FORMAT = "maillard reproduction 1"
RESULTS = "results.json"  # which every report has, and by which one is known
FILES = {RESULTS, "claims.json", "curves.parquet", "trials.parquet", "timings.json", "index.html", "figures"}
_ROOM = 100 * 2**20  # bytes that a run may need


class Work:
    """Where a run keeps what it has done, and makes the report: a folder beside the one that it will become."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = output.with_name(output.name + ".partial")
        self.parts = self.path / "parts"
        self.report = self.path / "report"
        self.before = self.path / "before"
        self.lock = self.path / "lock"

    def clear_report(self) -> None:
        """An empty folder to make the report in."""
        shutil.rmtree(self.report, ignore_errors=True)
        (self.report / "figures").mkdir(parents=True)

    def publish(self, used: Collection[str]) -> None:
        """Put the report in its place, whole; then nothing is left of the work but parts of other runs than this, which used these."""
        _check(self)  # again: somebody may have put something there meanwhile
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
def open_work(output: str | Path) -> Iterator[Work]:
    """A run's work, alone in its folder; every failure to write is one clear error."""
    given = Path(output)
    if not str(output) or "\0" in str(output) or not given.resolve().name:
        raise InvalidValue("output", str(output), "the name of a folder")
    work = Work(given.resolve())
    begun = False
    try:
        _check(work)
        work.parts.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(work.path).free
        if free < _ROOM:
            raise MaillardError(
                f"{work.path.parent} has {free / 2**20:.0f} MiB free, and a run may need {_ROOM / 2**20:.0f}"
            )
        with _alone(work.lock):
            _restore(work)
            begun = True
            yield work
    except OSError as error:
        kept = "; what was done is kept, and the same command goes on from there" if begun else ""
        where = error.filename or work.path
        raise MaillardError(f"cannot write {where}: {error.strerror or error}{kept}") from error


def _check(work: Work) -> None:
    """Refuse to touch what is not a report's, before anything runs."""
    output, partial = work.output, work.path
    allowed = "a new folder, an empty one, or that of an earlier report and nothing else"
    if not output.parent.is_dir():
        raise InvalidValue("output", str(output), "a folder in a folder that exists")
    if output == Path.cwd() or output in Path.cwd().parents or output.is_mount():
        raise InvalidValue(
            "output", str(output), "a folder that can be replaced, not where one is or a disk is mounted"
        )
    if output.exists() and not (output.is_dir() and (_is_report(output) or not any(output.iterdir()))):
        raise InvalidValue("output", str(output), allowed)
    own = {path.name for path in (work.parts, work.report, work.before, work.lock)}
    if partial.exists() and not (partial.is_dir() and {path.name for path in partial.iterdir()} <= own):
        raise InvalidValue(
            "output", str(output), f"another folder: {partial.name}, where the work would be, is not its"
        )


def _is_report(folder: Path) -> bool:
    try:
        made_here = json.loads((folder / RESULTS).read_text(encoding="utf8"))["format"] == FORMAT
        pictures = all(path.suffix in (".svg", ".png") for path in (folder / "figures").iterdir())
        return made_here and pictures and {path.name for path in folder.iterdir()} <= FILES
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _restore(work: Work) -> None:
    """If a run was ended between taking the old report away and putting the new one there, put the old one back."""
    if work.before.exists() and not work.output.exists():
        work.before.rename(work.output)
    shutil.rmtree(work.before, ignore_errors=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One run at a time: a lock that ends with the process."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A run that was about to end may have removed the file that this one has locked.
            gone = not path.exists() or not os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except BlockingIOError:
            gone = True
        if gone:
            raise MaillardError(f"another run is writing {path.parent}")
        yield
