"""A real service for the tests: `maillard serve` in a process of its own, which may be killed and started again."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from benchmarks.load import free_port
from tests.seeding import PRELUDE

_EVERY = 0.02  # seconds between questions whether it is ready
_TRIES = 5  # ports, if another process takes one meanwhile

MAILLARD = ("-m", "maillard")

# Waits until whoever started it has gone, however that came, and ends a group of processes.
_GUARD = 'read line; kill -9 "-$0"'


class Service:
    """A server, its processes a group of their own.

    Args:
        command: the arguments of Python; "{port}" stands for the port, "{launch}" for how often it was
        started. patience: seconds that it may take until it is ready, whatever is asserted of it.
    """

    host = "127.0.0.1"

    def __init__(self, command: Sequence[str], port: int = 0, patience: float = 60.0) -> None:
        self._command, self._patience, self._wanted = command, patience, port
        self.port = port or free_port()
        self._launches = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115  # closed by `close`

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Of the first process, and of the group."""
        assert self._process is not None, "it has not been started"
        return self._process.pid

    @property
    def waited(self) -> float:
        """Seconds, since it was started, that its first thread could have run and other threads of the machine had the processors."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9
        except FileNotFoundError:  # a system that does not count it
            return 0.0

    @property
    def said(self) -> str:
        """Whatever it has written, in all its lives."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def _fill_in(self, part: str) -> str:
        return part.replace("{port}", str(self.port)).replace("{launch}", str(self._launches))

    def launch(self) -> None:
        """Start it, and do not wait for it."""
        assert self._process is None, "it is running"
        self._launches += 1
        self._process = subprocess.Popen(
            [sys.executable, *map(self._fill_in, self._command)],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, str(self.pid)], stdin=subprocess.PIPE, start_new_session=True
        )

    def start(self) -> float:
        """Start it; the seconds until it was ready."""
        began = time.monotonic()
        for attempt in range(_TRIES):
            self.launch()
            try:
                self.await_ready()
                break
            except RuntimeError:
                if self._wanted or attempt + 1 == _TRIES or "address already in use" not in self.said.lower():
                    raise
                self.kill()
                self.port = free_port()
        self._wanted = self.port  # clients know it now
        return time.monotonic() - began

    def await_ready(self) -> None:
        """Wait until `/readyz` says yes."""
        end = time.monotonic() + self._patience
        while self.ask("/readyz") != 200:
            assert self._process is not None, "it has not been started"
            if self._process.poll() is not None:
                raise RuntimeError(f"the service ended with {self._process.returncode}: {self.said[-4000:]}")
            if time.monotonic() > end:
                raise RuntimeError(f"not ready after {self._patience:g} s: {self.said[-4000:]}")
            time.sleep(_EVERY)

    def ask(self, path: str) -> int:
        """The status of a GET; 0 where nobody answers."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def kill(self) -> None:
        """End every process of it at once, as `kill -9` does."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to end, and wait until it has; its exit status."""
        return self._end(signal.SIGTERM)

    def restart(self) -> float:
        """Kill it and start it again; the seconds from the kill until it was ready."""
        began = time.monotonic()
        self.kill()
        self.start()
        return time.monotonic() - began

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        if self._guard is not None:  # before the number of the group can be another's
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        with suppress(ProcessLookupError):  # all have ended by themselves
            os.killpg(process.pid, how)
        try:
            return process.wait(self._patience)
        finally:
            with suppress(ProcessLookupError):  # children that outlive the first
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        self._said.close()


@contextmanager
def running(command: Sequence[str], *, port: int = 0, patience: float = 60.0) -> Iterator[Service]:
    """A server by whatever Python is to run, ready, and ended in the end."""
    service = Service(command, port, patience)
    try:
        service.start()
        yield service
    finally:
        service.close()


@contextmanager
def serving(
    database: str | Path,
    *,
    port: int = 0,
    workers: int = 1,
    options: Sequence[str] = (),
    prelude: str = "",
    seed: int = 0,
    patience: float = 60.0,
) -> Iterator[Service]:
    """`maillard serve` on a database, choosing with a fixed seed, another one after each restart.

    `prelude` holds Python statements that its process runs first.
    """
    seeding = PRELUDE.replace("SEED", f"{seed} * 10**6 + {{launch}} * 10**3")
    program = ("-c", f"{seeding}\n{prelude}\nfrom maillard.cli import main\nmain()")
    command = [*program, "serve", "--database", str(database), "--port", "{port}", "--workers", str(workers)]
    with running([*command, *options], port=port, patience=patience) as service:
        yield service
