"""Which commits of a log an export folder contains, and whether its files are the ones that were written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from maillard.decisions import chain
from maillard.decisions.files import export_folders
from maillard.decisions.files.export_folders import ExportedFile
from maillard.errors import InvalidLog, InvalidValue, UnknownName

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ExportedHead(NamedTuple):
    """The end of an export: its last commit, and its files."""

    folder: Path
    commit: int
    hash: str
    files: tuple[ExportedFile, ...]


def exported_head(folder: str | Path, experiment: str) -> ExportedHead:
    """Read the manifest of an experiment's export: in `folder`, or in a folder in it."""
    try:
        place = export_folders.find_export(Path(folder), experiment)
        manifest = export_folders.read_manifest(place)
    except UnknownName:
        manifest = None
    except OSError as error:
        raise InvalidValue("exported", str(folder), f"a readable folder ({error.strerror})") from None
    if manifest is None or manifest.header.experiment != experiment:
        file = export_folders.MANIFEST
        allowed = f"a folder that experiment {experiment!r} was exported to, with a {file}"
        raise InvalidValue("exported", str(folder), allowed)
    return ExportedHead(place, manifest.commit, manifest.hash, manifest.files)


def check_files(head: ExportedHead) -> None:
    """Raise InvalidLog if a file of the export is missing, or is not the one that was written."""
    export_folders.check_sizes(head.folder, head.files)
    for path in export_folders.changed_files(head.folder, head.files):
        raise InvalidLog(str(head.folder / path), "other content", "content with the SHA-256 in the manifest")


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
        with pq.ParquetFile(head.folder / part.path) as file:
            for batch in file.iter_batches(columns=["id"]):
                texts = batch.column(0).to_pylist()
                yield np.frombuffer(b"".join(map(chain.id_bytes, texts)), "S16")
