"""Backups: complete, private and consistent, also while another process writes; and how they are restored."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from maillard import Bandit, Reward, read_log, verify
from maillard.cli import main
from maillard.decisions.backup import back_up
from maillard.errors import InvalidLog, InvalidValue, MaillardError
from tests.postgres import Server, fresh_database

RULE = Reward(low=0, high=1)

# Writes decisions and rewards until its input ends, and reports each one that was acknowledged.
_WRITER = """
import select, sys
from maillard import Bandit
with Bandit(log=sys.argv[1], experiment="home") as bandit:
    while not select.select([sys.stdin], [], [], 0)[0]:
        decision = bandit.choose()
        bandit.reward(decision.id, 1.0)
        print(decision.id, flush=True)
"""


@pytest.fixture
def log(tmp_path) -> Path:
    path = Path(tmp_path / "log.db")
    with Bandit(["red", "blue"], "ms+:floor=0.1", reward=RULE, log=path, experiment="home") as bandit:
        for decision in bandit.choose(size=50):
            bandit.reward(decision.id, 1.0)
    return path


def rewarded(path: Path | str) -> set[str]:
    """The ids of the decisions that have a reward."""
    with read_log(path, "home") as opened:
        return {row.decision.id for row in opened.rows() if opened.reward_of(row) == 1.0}


def check(path: Path | str) -> int:
    """Recompute every probability of a log; returns the number of decisions."""
    result = verify(path, "home")
    assert result.problem_count == 0
    assert result.recomputed == result.decisions
    return result.decisions


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.stdin.close()
            assert process.stdout is not None
            process.stdout.read()
            assert process.wait() == 0


def test_a_backup_has_everything_that_was_acknowledged_before_it_began(log, tmp_path) -> None:
    before = rewarded(log)
    with writer(log) as process:
        assert process.stdout is not None
        for place in range(5):
            before |= {process.stdout.readline().strip() for _ in range(20)}
            target = tmp_path / f"backup-{place}.db"
            made = back_up(log, target)
            found = rewarded(target)
            assert before <= found
            assert made == (target, 1, check(target), target.stat().st_size)
    assert len(rewarded(log)) >= 150


def test_a_copy_of_the_database_file_alone_would_lose_acknowledged_rows(log, tmp_path) -> None:
    """Why the command exists: the end of a log in use is in another file, its write-ahead log."""
    copy = tmp_path / "copy.db"
    with Bandit(log=log, experiment="home") as bandit:
        decision = bandit.choose()
        bandit.reward(decision.id, 1.0)
        subprocess.run(["cp", log, copy], check=True)  # another process: see docs/reference/decision-log.md
        assert decision.id not in rewarded(copy)
        back_up(log, tmp_path / "backup.db")
        assert decision.id in rewarded(tmp_path / "backup.db")


def test_a_backup_is_one_file_that_only_its_owner_can_read(log, tmp_path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    mask = os.umask(0)
    try:
        back_up(log, folder / "log.db")
    finally:
        os.umask(mask)
    rewarded(folder / "log.db")
    assert [path.name for path in folder.iterdir()] == ["log.db"]
    assert stat.S_IMODE((folder / "log.db").stat().st_mode) == 0o600


def test_a_restored_log_continues(log, tmp_path) -> None:
    back_up(log, tmp_path / "backup.db")
    for path in tmp_path.glob("log.db*"):
        path.unlink()
    back_up(tmp_path / "backup.db", log)
    with Bandit(log=log, experiment="home") as bandit:
        decision = bandit.choose()
        bandit.reward(decision.id, 1.0)
        assert Path(f"{log}-wal").exists()  # it has a write-ahead log again
    assert check(log) == 51
    assert len(rewarded(tmp_path / "backup.db")) == 50


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_no_existing_file_is_replaced_or_applied(log, tmp_path, ending) -> None:
    existing = tmp_path / f"other.db{ending}"
    existing.write_text("something else")
    with pytest.raises(InvalidValue, match=r"target: .*other\.db.* move it away first"):
        back_up(log, tmp_path / "other.db")
    assert existing.read_text() == "something else"


def test_a_link_is_not_followed(log, tmp_path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(InvalidValue, match="a new file"):
        back_up(log, tmp_path / "link.db")
    assert not (tmp_path / "elsewhere.db").exists()


def test_a_damaged_log_is_reported_and_leaves_no_file(log, tmp_path) -> None:
    with closing(sqlite3.connect(log)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'decisions'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with log.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 100)
    with pytest.raises(MaillardError, match="log"):
        back_up(log, tmp_path / "backup.db")
    assert sorted(path.name for path in tmp_path.iterdir() if "-" not in path.name) == ["log.db"]


def test_a_failed_write_is_reported_and_leaves_no_file(log, tmp_path) -> None:
    """The operating system refuses to write more than 64 KiB into a file, as on a full disk."""
    folder = tmp_path / "backups"
    folder.mkdir()
    code = (
        "import resource, sys\n"
        "from maillard.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "main(['backup', *sys.argv[1:]])\n"
    )
    command = [sys.executable, "-c", code, str(log), str(folder / "backup.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"maillard: the backup of {log} to {folder / 'backup.db'} failed: ")
    assert list(folder.iterdir()) == []


def test_what_is_not_a_log_is_refused(log, tmp_path) -> None:
    with pytest.raises(InvalidLog, match="a file that exists"):
        back_up(tmp_path / "missing.db", tmp_path / "backup.db")
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(InvalidLog, match="this database is another's"):
        back_up(tmp_path / "foreign.db", tmp_path / "backup.db")
    with pytest.raises(InvalidValue, match=r"log: .*pg_dump"):
        back_up("postgresql://me:secret@host/shop", tmp_path / "backup.db")
    with pytest.raises(InvalidValue, match="in a folder that exists"):
        back_up(log, tmp_path / "missing" / "backup.db")
    assert not (tmp_path / "backup.db").exists()


def test_the_command(log, tmp_path) -> None:
    target = tmp_path / "backup.db"
    result = CliRunner().invoke(main, ["backup", str(log), str(target)])
    assert result.exit_code == 0
    assert result.output.startswith(f"{target}: 50 decisions of 1 experiment, ")
    again = CliRunner().invoke(main, ["backup", str(log), str(target)])
    assert again.exit_code == 2
    assert "move it away first" in again.output


def test_a_postgresql_log_survives_dump_and_restore(postgres_server: Server, postgres: str, tmp_path) -> None:
    """The commands of docs/how-to/backup.md, with the programs of the test server."""
    programs = postgres_server.programs
    dump = tmp_path / "maillard.dump"
    with Bandit(["red", "blue"], "ms+:floor=0.1", reward=RULE, log=postgres, experiment="home") as bandit:
        for decision in bandit.choose(size=50):
            bandit.reward(decision.id, 1.0)
        options = ["--format=custom", "--schema=maillard", f"--file={dump}"]
        subprocess.run([programs / "pg_dump", *options, f"--dbname={postgres}"], check=True)
        bandit.choose()  # after the backup
    with fresh_database(postgres_server) as other:
        with psycopg.connect(other) as connection:
            assert not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'maillard'").fetchall()
        options = ["--exit-on-error", "--single-transaction", "--no-owner", f"--dbname={other}"]
        subprocess.run([programs / "pg_restore", *options, dump], check=True)
        assert len(rewarded(other)) == check(other) == 50
        with Bandit(log=other, experiment="home") as restored:
            restored.reward(restored.choose().id, 1.0)
        assert check(other) == 51
