"""A service in a process of its own, for programs, notebooks, tests and the demo: it ends with whoever started it, however that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from maillard.errors import MaillardError

__all__ = ["running"]

_PATIENCE = 30.0  # seconds for the service to end


@contextmanager
def running(
    database: str | Path = "maillard.db", *, port: int = 0, log_level: str = "warning"
) -> Iterator[str]:
    """The address of a service on this machine, by default on a port that is free, that ends with the block."""
    options = {"database": str(database), "port": port, "log_level": log_level}
    with (
        tempfile.TemporaryFile("w+", errors="replace") as journal,
        subprocess.Popen(
            [sys.executable, "-m", "maillard.service.background"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=journal,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which may have something to ask before it ends the other
        ) as process,
    ):
        try:
            yield _listening(process, options, journal)
        finally:
            _end(process)


def _listening(process: subprocess.Popen[str], options: dict[str, Any], journal: IO[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    # Not as arguments, which every user of the machine can read: a URL may hold a password.
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(options) + "\n")
        process.stdin.flush()
    url = process.stdout.readline().strip()
    if not url:
        journal.seek(0)
        last = journal.read().strip().rpartition("\n")[2]
        raise MaillardError(last.removeprefix("maillard: ") or "the service ended before it began")
    return url


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):  # with whatever it has started
            os.killpg(process.pid, signal.SIGKILL)


def _serve() -> None:
    """The other process: serve as the first line of standard input says, until standard input ends."""
    from maillard.service.server import run

    options = json.loads(sys.stdin.readline())

    def follow() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    try:
        run(**options, on_listening=lambda url: print(url, flush=True))  # noqa: T201  # to the first process
    except MaillardError as error:
        sys.exit(f"maillard: {error}")


if __name__ == "__main__":
    _serve()
