"""Folders that an experiment is exported to in increments: their layout, their manifest and their lock.

    FOLDER/EXPERIMENT/manifest.json
    FOLDER/EXPERIMENT/day=2026-03-01/commits-1-250.parquet

The manifest names the files that belong to the export. It is replaced last, so that an interrupted increment
leaves only files that no manifest names. Files that a manifest has named are never changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from maillard.decisions.chain import FIRST_HASH
from maillard.decisions.files.metadata import Header, read_header, write_header
from maillard.decisions.files.output_files import TEMPORARY, atomic_file, synchronize_folder
from maillard.decisions.files.row_codec import CHECKS
from maillard.decisions.log import MALFORMED, DecisionLog
from maillard.errors import InvalidLog, InvalidValue, Unavailable, UnknownName

FORMAT = 1
MANIFEST = "manifest.json"
_LOCK = ".lock"
_MAX_NAME_BYTES = 180  # of a folder's name; file systems allow 255
_FILE = re.compile(r"day=\d{4}-\d\d-\d\d/commits-\d+-\d+(-\d+)?\.parquet")
_HASH = re.compile("[0-9a-f]{64}")


class ExportedFile(NamedTuple):
    """A Parquet file of an export."""

    path: str
    "Relative to the folder of the experiment, with slashes."
    increment: int
    "The number of the increment that wrote it. Of several versions of a decision, that of the last counts."
    rows: int
    bytes: int
    sha256: str


class Manifest(NamedTuple):
    """The manifest of an export."""

    header: Header
    commit: int
    "The last commit of the hash chain that was exported; 0 if the log had no chain."
    hash: str
    "The hash of that commit."
    increment: int
    "The number of increments so far."
    files: tuple[ExportedFile, ...]


# Layout.


def folder_name(experiment: str) -> str:
    """The name of an experiment's folder, in which every character is safe on every file system.

    >>> folder_name("home"), folder_name("Preise/€"), folder_name("..")
    ('home', 'Preise%2F%E2%82%AC', '%2E.')
    """
    name = quote(experiment, safe=" +=@,")
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    if len(name) <= _MAX_NAME_BYTES:
        return name
    return f"{name[:_MAX_NAME_BYTES]}-{hashlib.sha256(experiment.encode()).hexdigest()[:16]}"


def is_export(folder: Path) -> bool:
    """Whether this is the folder of an exported experiment, or a folder with some of them."""
    try:
        return (folder / MANIFEST).is_file() or any(folder.glob(f"*/{MANIFEST}"))
    except OSError:
        return False


def find_export(folder: Path, experiment: str | None) -> Path:
    """The folder of an experiment: `folder` itself, or a folder in it."""
    if (folder / MANIFEST).is_file():
        return folder
    if experiment is not None and (folder / folder_name(experiment) / MANIFEST).is_file():
        return folder / folder_name(experiment)
    found = {path.parent: read_manifest(path.parent) for path in sorted(folder.glob(f"*/{MANIFEST}"))}
    names = {each.header.experiment: path for path, each in found.items() if each is not None}
    if experiment is not None:
        raise UnknownName("experiment", experiment, sorted(names))
    if len(names) != 1:
        allowed = "experiment= or --experiment, one of " + ", ".join(map(repr, sorted(names)))
        raise InvalidValue("experiment", None, allowed)
    return next(iter(names.values()))


# The manifest.


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of an export; None if there is none yet."""
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidValue("log", str(path), f"a readable file ({error.strerror})") from None
    try:
        data = json.loads(content)
        if not isinstance(data, dict) or type(data.get("format")) is not int:
            raise InvalidLog("format", None, "a format number")
        if data["format"] > FORMAT:
            allowed = f"{FORMAT}; a newer maillard wrote this folder"
            raise InvalidLog("format", data["format"], allowed)
        commit, increment = (CHECKS["integer"](name, data[name]) for name in ("commit", "increment"))
        last, files = _matching(_HASH, "hash", data["hash"]), tuple(map(_file, data["files"]))
    except InvalidValue as error:
        raise InvalidLog(f"{path}: {error.field}", error.value, error.allowed) from None
    except MALFORMED as error:
        raise InvalidLog(str(path), str(error), "the manifest of an export") from None
    header = read_header(content, str(path))
    if header is None or not header.events:
        raise InvalidLog(f"{path}: events", [], "the start of the experiment as event 1")
    return Manifest(header, commit, last, increment, files)


def _file(given: Any) -> ExportedFile:
    # The path must not lead out of the folder.
    path, digest = _matching(_FILE, "path", given["path"]), _matching(_HASH, "sha256", given["sha256"])
    numbers = {name: CHECKS["integer"](name, given[name]) for name in ("increment", "rows", "bytes")}
    return ExportedFile(path=path, sha256=digest, **numbers)


def _matching(pattern: re.Pattern[str], field: str, value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidLog(f"files: {field}", value, f"text of the form {pattern.pattern}")
    return value


def write_manifest(folder: Path, log: DecisionLog, manifest: Manifest) -> None:
    """Replace the manifest, durably. `log` has the events of the experiment."""
    content = write_header(
        log,
        format=FORMAT,
        commit=manifest.commit,
        hash=manifest.hash,
        increment=manifest.increment,
        files=[each._asdict() for each in manifest.files],
    )
    with atomic_file(folder / MANIFEST, durable=True) as temporary:
        temporary.write_text(content, encoding="utf8")
    synchronize_folder(folder)


def new_manifest(log: DecisionLog) -> Manifest:
    """The manifest before the first increment."""
    header = Header(log.experiment, 0, [], [], log.as_of, None)
    return Manifest(header, 0, FIRST_HASH.hex(), 0, ())


# Files.


def check_sizes(folder: Path, files: Sequence[ExportedFile]) -> None:
    """Raise InvalidLog if a file of the export is missing or has another size."""
    for each in files:
        try:
            size = (folder / each.path).stat().st_size
        except OSError as error:
            allowed = f"a file that the manifest names ({error.strerror})"
            raise InvalidLog("log", str(folder / each.path), allowed) from None
        if size != each.bytes:
            allowed = f"{each.bytes:,} bytes, the size in the manifest"
            raise InvalidLog(str(folder / each.path), f"{size:,} bytes", allowed)


def changed_files(folder: Path, files: Sequence[ExportedFile]) -> Iterator[str]:
    """Yield the path of each file whose content is not the one that was exported."""
    for each in files:
        if digest_of_file(folder / each.path) != each.sha256:
            yield each.path


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_strays(folder: Path, files: Sequence[ExportedFile]) -> None:
    """Remove the files that an interrupted increment has left. The caller has the lock."""
    named = {each.path for each in files}
    for path in (*folder.glob("day=*/*.parquet"), *folder.glob(f"{TEMPORARY}*")):
        relative = path.relative_to(folder).as_posix()
        if relative.startswith(TEMPORARY) or (_FILE.fullmatch(relative) and relative not in named):
            path.unlink(missing_ok=True)
            with suppress(OSError):  # it has other files
                path.parent.rmdir()


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock a folder, so that one process at a time writes to it. The lock ends with the process."""
    with try_lock(folder) as locked:
        if not locked:
            raise Unavailable(
                f"{folder}: another export is writing to this folder; try again when it is done"
            )
        yield


@contextmanager
def try_lock(folder: Path) -> Iterator[bool]:
    """Lock a folder, if no other process has locked it. Yields whether it did."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield True
        return
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            locked = False
        yield locked
    finally:
        os.close(descriptor)
