"""Temporary files of the tests are kept in memory where that is possible.

Every commit of a log waits until the disk has it, and PostgreSQL creates and drops a database for each test.
On a disk this takes longer than the tests themselves. No test depends on the disk: what survives a loss
of power is tested with simulated disks (tests/decisions/power.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")  # Linux mounts a file system in memory here
_ENOUGH = 4 * 2**30  # bytes; a run needs a fraction of this. Containers may have only 64 MB


def keep_in_memory() -> None:
    """Make the file system in memory the default for temporary files, unless the caller has chosen a folder.

    Child processes inherit the choice.
    """
    if "TMPDIR" not in os.environ and _usable():
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


def _usable() -> bool:
    """Whether files can be written and programs can be run there."""
    if not os.access(_MEMORY, os.W_OK) or os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(_MEMORY).free >= _ENOUGH


def short_root() -> str:
    """A folder with a short path that every user can read."""
    return str(_MEMORY) if tempfile.gettempdir() == str(_MEMORY) else "/tmp"
