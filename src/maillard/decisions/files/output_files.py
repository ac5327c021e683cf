"""Files that are written next to logs: which paths may be overwritten, and atomic replacement."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from maillard.decisions.files.file_formats import ENDINGS, format_of
from maillard.decisions.log_locations import redact
from maillard.errors import InvalidValue

TEMPORARY = ".maillard-"
"The beginning of the names of files that are not complete."


def check_export_path(path: Path, source: str) -> None:
    """Refuse an export that would overwrite the exported log or a file that is not an export."""
    with _checking(path) as exists:
        if not exists:
            return
        if not path.is_file():
            raise InvalidValue("file", redact(path), "the path of a plain file")
        if _is_same(path, source) or _is_same(path, source + ".json"):
            raise InvalidValue("file", redact(path), "a file other than the log that is exported")
        # A SQLite log has another ending and, while it is open, a write-ahead log next to it.
        if format_of(path) is None or Path(f"{path}-wal").exists():
            allowed = f"a new file, or an existing one whose name ends in {', '.join(ENDINGS)}"
            raise InvalidValue("file", redact(path), allowed)


def check_report_path(path: Path, sources: Iterable[str]) -> None:
    """Refuse to write a report or figure to this path if it is a link, one of the logs, or a SQLite file."""
    with _checking(path) as exists:
        if not exists:
            return
        plain = path.is_file() and not path.is_symlink()
        if not plain or any(_is_same(path, source) for source in sources) or _is_sqlite(path):
            raise InvalidValue("file", redact(path), "a new file, or a plain file that is not a log")


@contextmanager
def _checking(path: Path) -> Iterator[bool]:
    """Yield whether something exists at the path; convert operating system errors."""
    try:
        yield path.exists() or path.is_symlink()
    except OSError as error:
        raise InvalidValue("file", redact(path), f"a valid path ({error.strerror or error})") from None


def _is_same(path: Path, source: str) -> bool:
    with suppress(OSError, ValueError):  # the source is not a path, or does not exist
        return path.samefile(source)
    return False


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


@contextmanager
def atomic_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` if the block succeeds, and is removed if it fails.

    With `durable`, the content is on disk before it replaces `path`.
    """
    if not path.parent.is_dir():
        raise InvalidValue("file", redact(path), "a path in a folder that exists")
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
        if durable:
            synchronize_file(temporary)
        temporary.replace(path)
    except OSError as error:
        raise InvalidValue("file", redact(path), f"a writable file ({error.strerror or error})") from None
    finally:
        temporary.unlink(missing_ok=True)


def synchronize_file(path: Path) -> None:
    """Wait until the content of a file is on disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def synchronize_folder(path: Path) -> None:
    """Wait until the names of the files in a folder are on disk."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
