"""Which commits of a log an export folder contains, and whether its files are the ones that were written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maillard.decisions import chain
from maillard.decisions.log import MALFORMED
from maillard.errors import InvalidLog, InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MANIFEST = "manifest.json"


class ExportedHead(NamedTuple):
    """The end of an export: its last commit, and its files."""

    folder: Path
    commit: int
    hash: str
    files: tuple[ExportedPart, ...]


class ExportedPart(NamedTuple):
    """A file of an export, as the manifest describes it."""

    path: Path
    rows: int
    bytes: int
    sha256: str


def exported_head(folder: str | Path, experiment: str) -> ExportedHead:
    """Read the manifest of an experiment's export: in `folder`, or in a folder in it."""
    for path in _manifests(Path(folder)):
        data = _read(path)
        if data["experiment"] == experiment:
            break
    else:
        allowed = f"a folder that experiment {experiment!r} was exported to, with a {_MANIFEST}"
        raise InvalidValue("exported", str(folder), allowed)
    try:
        files = tuple(_part(path.parent, each) for each in data["files"])
        commit, hashed = data["commit"], data["hash"]
        if type(commit) is not int or not isinstance(hashed, str) or len(bytes.fromhex(hashed)) != 32:
            raise ValueError("commit and hash")  # one place for all damage
    except MALFORMED as error:
        raise InvalidLog(str(path), repr(error), "the manifest of an export") from None
    return ExportedHead(path.parent, commit, hashed, files)


def _manifests(folder: Path) -> list[Path]:
    try:
        places = folder / _MANIFEST, *sorted(folder.glob(f"*/{_MANIFEST}"))
        return [path for path in places if path.is_file()]
    except OSError as error:
        raise InvalidValue("exported", str(folder), f"a readable folder ({error.strerror})") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidLog(str(path), str(error), "the manifest of an export") from None
    if not isinstance(data, dict) or not isinstance(data.get("experiment"), str):
        raise InvalidLog(f"{path}: experiment", None, "the name of an experiment")
    return data


def _part(folder: Path, given: Any) -> ExportedPart:
    path = PurePosixPath(given["path"])
    if path.is_absolute() or ".." in path.parts:  # the path must not lead out of the folder
        raise ValueError(f"path {given['path']!r}")
    return ExportedPart(folder / path, int(given["rows"]), int(given["bytes"]), str(given["sha256"]))


def check_files(head: ExportedHead) -> None:
    """Raise InvalidLog if a file of the export is missing, or is not the one that was written."""
    for part in head.files:
        try:
            size = part.path.stat().st_size
            with part.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InvalidLog(str(part.path), error.strerror, "a file that the manifest names") from None
        if size != part.bytes or digest != part.sha256:
            allowed = f"{part.bytes:,} bytes with the SHA-256 {part.sha256}, as in the manifest"
            raise InvalidLog(str(part.path), f"{size:,} bytes, {digest}", allowed)


def missing_decisions(head: ExportedHead, ids: bytes) -> list[str]:
    """The first of these decisions (16 bytes each) that the files do not contain."""
    wanted = np.unique(np.frombuffer(ids, "S16"))  # sorted as bytes; comparisons ignore the final zeros
    found = np.zeros(wanted.size, np.bool_)
    for part in _exported_ids(head):
        place = np.searchsorted(wanted, part)
        place[place == wanted.size] = 0
        found[place[wanted[place] == part]] = True
    return [chain.id_text(bytes(each).ljust(16, b"\0")) for each in wanted[~found][:3]]


def _exported_ids(head: ExportedHead) -> Iterator[NDArray[np.bytes_]]:
    import pyarrow.parquet as pq

    for part in head.files:
        with pq.ParquetFile(part.path) as file:
            for batch in file.iter_batches(columns=["id"]):
                texts = batch.column(0).to_pylist()
                yield np.frombuffer(b"".join(map(chain.id_bytes, texts)), "S16")
