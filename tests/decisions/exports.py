"""Export folders with a manifest, for tests of pruning."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from maillard.decisions import read_log, write_log
from maillard.decisions.stores import Store
from tests.stores import EXPERIMENT


def export_to(
    folder: Path, log: Store | str, experiment: str = EXPERIMENT, part: str = "part.parquet"
) -> Path:
    """Export a log to a folder, as one more file, and write the manifest."""
    place = folder / experiment
    place.mkdir(parents=True, exist_ok=True)
    with read_log(log, experiment) as opened:
        assert opened.read_chain is not None
        with opened.read_chain() as transaction:
            last = transaction.last_link()
        rows, _ = write_log(opened, place / part)
    assert last is not None
    data = (place / part).read_bytes()
    manifest: dict[str, Any] = {"files": []}
    if (place / "manifest.json").exists():
        manifest = json.loads((place / "manifest.json").read_bytes())
    digest = hashlib.sha256(data).hexdigest()
    manifest["files"].append({"path": part, "rows": rows, "bytes": len(data), "sha256": digest})
    manifest |= {"experiment": experiment, "commit": last.number, "hash": last.hash.hex()}
    (place / "manifest.json").write_text(json.dumps(manifest))
    return folder
