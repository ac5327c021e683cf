"""The log as files that other programs read, one module for each format."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from maillard.decisions.names import ENDINGS, FORMS, ending_of, shown
from maillard.errors import InvalidValue

__all__ = ["Written", "check_aside", "check_target", "form_of", "located", "whole"]

_ENDINGS = ", ".join(ENDINGS)


class Written(NamedTuple):
    """What went into a file."""

    rows: int
    left_out: int
    "Decisions without a reward, where the format has no place for them."


def form_of(path: Path, form: str | None = None) -> str:
    """The format of a file: the one that is named, or the one that its ending says."""
    if form is not None:
        if form not in FORMS:
            raise InvalidValue("format", form, "one of " + ", ".join(FORMS))
        return form
    found = ending_of(path)
    if found is None:
        raise InvalidValue("file", shown(path), f"a name that ends in {_ENDINGS}")
    return found


def check_target(path: Path, source: str) -> None:
    """Whether a file may be written here: it must not be the log itself, nor anything that no export has made."""
    try:
        if not path.exists() and not path.is_symlink():
            return
        if not path.is_file():
            raise InvalidValue("file", shown(path), "the path of a plain file")
        if _same(path, source) or _same(path, source + ".json"):
            raise InvalidValue("file", shown(path), "another file than the log that is written")
        # A SQLite log has a name of its own and, while it is open, a write-ahead log beside it.
        if ending_of(path) is None or Path(f"{path}-wal").exists():
            raise InvalidValue("file", shown(path), f"a new file, or one whose name ends in {_ENDINGS}")
    except OSError as error:
        raise InvalidValue("file", shown(path), f"a path ({error.strerror or error})") from None


def check_aside(path: Path, sources: Iterable[str]) -> None:
    """Whether a page or picture may be written here: never over a log, whatever it is called, nor through a link."""
    try:
        if not path.exists() and not path.is_symlink():
            return
        plain = path.is_file() and not path.is_symlink()
        if not plain or any(_same(path, source) for source in sources):
            raise InvalidValue("file", shown(path), "a new file, or a plain one that is no log")
        with path.open("rb") as file:
            if file.read(16) == b"SQLite format 3\0":
                raise InvalidValue("file", shown(path), "a new file, or a plain one that is no log")
    except OSError as error:
        raise InvalidValue("file", shown(path), f"a path ({error.strerror or error})") from None


def located(error: InvalidValue, where: str) -> InvalidValue:
    """The same error, with the place in a file where it was found."""
    return InvalidValue(f"{where}: {error.field}", error.value, error.allowed)


def _same(path: Path, source: str) -> bool:
    with suppress(OSError, ValueError):  # it is no path, or leads nowhere
        return path.samefile(source)
    return False


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write that takes its place when the block ends well; if not, nothing is there that was not before."""
    if not path.parent.is_dir():
        raise InvalidValue("file", shown(path), "a path in a folder that exists")
    partial = path.with_name(f".maillard-{secrets.token_hex(8)}")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield partial
        partial.replace(path)
    except OSError as error:
        raise InvalidValue(
            "file", shown(path), f"a file that can be written ({error.strerror or error})"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
