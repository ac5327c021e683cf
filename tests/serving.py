"""Runs `maillard serve` in a separate process, which tests can kill and restart."""

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

_POLL_INTERVAL = 0.02  # seconds between checks whether the service is ready
_MAX_ATTEMPTS = 5  # ports to try, because another process may take one first

MAILLARD = ("-m", "maillard")

# `nohup` starts processes with SIGHUP ignored, and children inherit that.
_DEFAULT_HANGUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"

# Kills a process group when the test process has ended for any reason.
_GUARD = 'read line; kill -9 "-$0"'


class Service:
    """A server process with its own process group.

    Args:
        command: the arguments of Python. "{port}" is replaced by the port, "{launch}" by the number of
            starts so far.
        port: the port to listen on; 0 selects a free one.
        start_timeout: seconds until the server must be ready.
    """

    host = "127.0.0.1"
    program: str | Path = sys.executable

    def __init__(self, command: Sequence[str], port: int = 0, start_timeout: float = 60.0) -> None:
        self._command, self._start_timeout, self._fixed_port = command, start_timeout, port
        self.port = port or free_port()
        self._launches = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115  # closed by `close`

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the first process and of the process group."""
        assert self._process is not None, "it has not been started"
        return self._process.pid

    @property
    def cpu_wait(self) -> float:
        """Seconds that its first thread has waited for a processor since the start."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9
        except FileNotFoundError:  # not Linux
            return 0.0

    @property
    def output(self) -> str:
        """Everything the service has written since its first start."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def _fill_in(self, part: str) -> str:
        return part.replace("{port}", str(self.port)).replace("{launch}", str(self._launches))

    def launch(self) -> None:
        """Start the service without waiting until it is ready."""
        assert self._process is None, "it is running"
        self._launches += 1
        self._process = subprocess.Popen(
            [self.program, *map(self._fill_in, self._command)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, str(self.pid)], stdin=subprocess.PIPE, start_new_session=True
        )

    def start(self) -> float:
        """Start the service and return the seconds until it was ready."""
        began = time.monotonic()
        for attempt in range(_MAX_ATTEMPTS):
            self.launch()
            try:
                self.await_ready()
                break
            except RuntimeError:
                if (
                    self._fixed_port
                    or attempt + 1 == _MAX_ATTEMPTS
                    or "address already in use" not in self.output.lower()
                ):
                    raise
                self.kill()
                self.port = free_port()
        self._fixed_port = self.port  # a restart must use the same port
        return time.monotonic() - began

    def await_ready(self) -> None:
        """Wait until `/readyz` returns 200."""
        end = time.monotonic() + self._start_timeout
        while self.get_status("/readyz") != 200:
            assert self._process is not None, "it has not been started"
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"the service ended with {self._process.returncode}: {self.output[-4000:]}"
                )
            if time.monotonic() > end:
                raise RuntimeError(f"not ready after {self._start_timeout:g} s: {self.output[-4000:]}")
            time.sleep(_POLL_INTERVAL)

    def get_status(self, path: str) -> int:
        """The status of a GET request; 0 without a response."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def kill(self) -> None:
        """Kill all its processes with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Terminate the service with SIGTERM and return its exit status."""
        return self._end(signal.SIGTERM)

    def restart(self) -> float:
        """Kill and start the service; return the seconds from the kill until it was ready."""
        began = time.monotonic()
        self.kill()
        self.start()
        return time.monotonic() - began

    def _end(self, signal_number: signal.Signals) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        if self._guard is not None:  # before the group id can be reused
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        with suppress(ProcessLookupError):  # all processes have ended already
            os.killpg(process.pid, signal_number)
        try:
            return process.wait(self._start_timeout)
        finally:
            with suppress(ProcessLookupError):  # children that outlive the first process
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """Kill the service and free its resources."""
        self.kill()
        self._output.close()


@contextmanager
def running(command: Sequence[str], *, port: int = 0, start_timeout: float = 60.0) -> Iterator[Service]:
    """A server that runs this Python command; it is ready on entry and killed on exit."""
    service = Service(command, port, start_timeout)
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
    no_keys: bool = True,
    options: Sequence[str] = (),
    prelude: str = "",
    seed: int = 0,
    start_timeout: float = 60.0,
) -> Iterator[Service]:
    """`maillard serve` on a database, with a fixed random seed that changes with each restart.

    By default with --no-keys: requests need no API key, and the database must have none. The process first
    runs the Python statements in `prelude`.
    """
    seeding = PRELUDE.replace("SEED", f"{seed} * 10**6 + {{launch}} * 10**3")
    program = ("-c", f"{seeding}\n{_DEFAULT_HANGUP}\n{prelude}\nfrom maillard.cli import main\nmain()")
    command = [*program, "serve", "--database", str(database), "--port", "{port}", "--workers", str(workers)]
    if no_keys:
        command.append("--no-keys")
    with running([*command, *options], port=port, start_timeout=start_timeout) as service:
        yield service
