"""A service in a process of its own, for programs, notebooks and tests that want one for a while."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from maillard.errors import MaillardError

__all__ = ["running"]

_PATIENCE = 60.0  # seconds
_EVERY = 0.03


@contextmanager
def running(
    database: str | Path = "maillard.db", *, port: int = 0, log_level: str = "warning"
) -> Iterator[str]:
    """`maillard serve` on this machine, on a port that is free, ready; its address. It ends with the block."""
    port = port or _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "maillard", "serve", "--port", str(port), "--log-level", log_level]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*command, "--database", str(database)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        try:
            _await(process, url, said)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _await(process: subprocess.Popen[bytes], url: str, said: IO[bytes]) -> None:
    """Wait until the service is ready."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            said.seek(0)
            raise MaillardError(
                f"the service ended at once: {said.read().decode(errors='replace').strip()[-500:]}"
            )
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(_EVERY)
    raise MaillardError(f"the service was not ready after {_PATIENCE:g} seconds")
