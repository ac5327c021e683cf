"""A verification job and an export that tests can hold while they run.

The service under test runs `prelude` first. Its verification jobs then wait in the worker process as long as
the file `HOLD` exists. Exports wait after their first rows, and fail if the file `FAIL` exists then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from maillard.decisions.files import arrow
from maillard.decisions.log import DecisionLog
from maillard.errors import Unavailable
from maillard.service import jobs

HOLD, RUNNING, FAIL = "hold", "running", "fail"

_FOLDER = "MAILLARD_TEST_JOB_FOLDER"


def prelude(folder: Path) -> str:
    """Python statements that replace the service's verification job."""
    return f"""
import os
os.environ[{_FOLDER!r}] = {str(folder)!r}
from maillard.service import jobs
from tests.service import held_jobs
jobs.check, jobs.export = held_jobs.check, held_jobs.export
from maillard.service import log_export
log_export._START_TIME = 0.1
"""


def check(database: str, experiment: str) -> dict[str, Any]:
    """Wait until the file `HOLD` is gone, then do the real job."""
    _hold()
    return jobs.check(database, experiment)


def export(database: str, experiment: str, path: str) -> None:
    """Do the real job with row groups of ten rows, and hold it after the first one."""

    def batches_of(log: DecisionLog) -> Iterator[Any]:
        table = pa.Table.from_batches(list(whole(log)))
        first, *rest = table.to_batches(max_chunksize=10)
        yield first
        _hold()
        if (Path(os.environ[_FOLDER]) / FAIL).exists():
            raise Unavailable("the log is gone")
        yield from rest

    whole, arrow.batches_of = arrow.batches_of, batches_of
    try:
        jobs.export(database, experiment, path)
    finally:
        arrow.batches_of = whole


def _hold() -> None:
    folder = Path(os.environ[_FOLDER])
    if (folder / HOLD).exists():
        (folder / RUNNING).write_text(str(os.getpid()))
        while (folder / HOLD).exists():
            time.sleep(0.01)
