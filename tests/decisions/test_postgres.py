"""The PostgreSQL server of the tests: fresh databases, restarts, and its end with the last user."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.postgres import Server, fresh_database

USE = """
import sys
from pathlib import Path
from tests.postgres import Server
print((server := Server(*map(Path, sys.argv[1:]))).folder, flush=True)
sys.stdin.read()
"""


def start_user(*folder: str) -> tuple[subprocess.Popen[str], str]:
    """Start a process that uses a server. Return the process and the server's folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", USE, *folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()  # type: ignore[union-attr]


def test_a_fresh_database_is_empty_durable_and_allows_many_connections(postgres: str):
    with psycopg.connect(postgres) as connection:
        assert connection.info.dbname in postgres
        assert connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone() == (0,)
        for name, value in {"fsync": "on", "synchronous_commit": "on", "server_encoding": "UTF8"}.items():
            assert connection.execute(f"SHOW {name}").fetchone() == (value,)
        assert int(connection.execute("SHOW max_connections").fetchone()[0]) >= 64
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


def test_databases_are_separate_and_dropped_even_with_an_open_connection(
    postgres: str, postgres_server: Server
):
    with fresh_database(postgres_server) as other:
        assert other != postgres
        connection = psycopg.connect(other, autocommit=True)
        connection.execute("CREATE TABLE t (x int)")
        with psycopg.connect(postgres) as here, pytest.raises(psycopg.errors.UndefinedTable):
            here.execute("SELECT * FROM t")
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    connection.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(other)


@pytest.mark.parametrize("immediate", [False, True])
def test_a_private_server_stops_with_open_connections_and_restarts_with_all_committed_rows(
    private_postgres: Server,
    immediate: bool,
):
    url = private_postgres.url()
    client = psycopg.connect(url)
    client.execute("CREATE TABLE t (x int)")
    client.execute("INSERT INTO t VALUES (1)")
    client.commit()
    client.execute("INSERT INTO t VALUES (2)")
    private_postgres.stop(immediate=immediate)
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")
    client.close()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    private_postgres.start()
    with psycopg.connect(url) as again:
        assert again.execute("SELECT x FROM t").fetchall() == [(1,)]
    recovered = "not properly shut down" in (private_postgres.folder / "log").read_text()
    assert recovered == immediate


def test_a_server_stops_when_its_last_user_is_killed():
    first, folder = start_user()
    second, joined = start_user(folder)
    assert joined == folder
    postmaster = int((Path(folder) / "data" / "postmaster.pid").read_text().split()[0])
    with first, second:
        assert os.geteuid() or Path(f"/proc/{postmaster}").stat().st_uid != 0
        first.kill()
        first.wait()
        time.sleep(0.5)
        psycopg.connect(f"postgresql://postgres@/postgres?host={folder}").close()
        os.kill(second.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while Path(folder).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(folder).exists()
    with pytest.raises(FileNotFoundError):
        Server(Path(folder))
