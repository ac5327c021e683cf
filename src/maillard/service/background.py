"""Runs the service in a child process, which ends with its parent."""

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

_STOP_TIMEOUT = 30.0  # seconds


@contextmanager
def running(
    database: str | Path = "maillard.db",
    *,
    port: int = 0,
    log_level: str = "warning",
    no_keys: bool = False,
    personalizer: str | None = None,
) -> Iterator[str]:
    """Run a service on this machine until the block ends. Yields its URL.

    `database` is a path (SQLite) or a postgresql:// URL, and `port` the port, by default a free one.
    `log_level` is "debug", "info", "warning" or "error".

    Callers need an API key of the database (`maillard keys create`). With `no_keys`, for tests and
    development, every program on this machine may do everything; the database must have no keys then.
    With `personalizer`, this experiment answers the calls of Azure Personalizer's API.

    >>> from maillard import Client
    >>> with running("decisions.db", no_keys=True) as url, Client(url, experiment="home") as client:
    ...     configuration = client.create("home", ["red", "blue"], "ms:sigma2=0.25")
    ...     print(client.choose(unit="user-17").probabilities)
    {'red': 0.5, 'blue': 0.5}
    """
    options = {
        "database": str(database), "port": port, "log_level": log_level, "no_keys": no_keys,
        "personalizer": personalizer,
    }  # fmt: skip
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        subprocess.Popen(
            [sys.executable, "-m", "maillard.service.background"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            start_new_session=True,  # Ctrl-C goes to this process, which then stops the other
        ) as process,
    ):
        try:
            yield _wait_for_url(process, options, output)
        finally:
            _stop(process)


def _wait_for_url(process: subprocess.Popen[str], options: dict[str, Any], output: IO[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    # Every user of the machine can read command lines, and a database URL may contain a password.
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(options) + "\n")
        process.stdin.flush()
    url = process.stdout.readline().strip()
    if not url:
        output.seek(0)
        last = output.read().strip().rpartition("\n")[2]
        raise MaillardError(last.removeprefix("maillard: ") or "the service ended before it was ready")
    return url


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):  # the process group
            os.killpg(process.pid, signal.SIGKILL)


def _serve() -> None:
    """In the child: read the options from the first line of standard input; serve until its end."""
    from maillard.service.server import run

    options = json.loads(sys.stdin.readline())

    def stop_at_end_of_input() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    try:
        run(**options, on_listening=lambda url: print(url, flush=True))  # noqa: T201  # the parent reads it
    except MaillardError as error:
        sys.exit(f"maillard: {error}")


if __name__ == "__main__":
    _serve()
