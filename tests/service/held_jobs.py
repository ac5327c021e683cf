"""A verification job that tests can hold while it runs.

The service under test runs `prelude` first. Its verification jobs then wait in the worker process as long as
the file `HOLD` exists.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from maillard.service import jobs

HOLD, RUNNING = "hold", "running"

_FOLDER = "MAILLARD_TEST_JOB_FOLDER"


def prelude(folder: Path) -> str:
    """Python statements that replace the service's verification job."""
    return f"""
import os
os.environ[{_FOLDER!r}] = {str(folder)!r}
from maillard.service import jobs
from tests.service import held_jobs
jobs.check = held_jobs.check
"""


def check(database: str, experiment: str) -> dict[str, Any]:
    """Wait until the file `HOLD` is gone, then do the real job."""
    folder = Path(os.environ[_FOLDER])
    if (folder / HOLD).exists():
        (folder / RUNNING).touch()
        while (folder / HOLD).exists():
            time.sleep(0.01)
    return jobs.check(database, experiment)
