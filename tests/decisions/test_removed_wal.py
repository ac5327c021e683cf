"""A -wal or -shm file that is removed or replaced while the log is open: nothing acknowledged is lost."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from maillard.decisions import Bandit, verify
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import Unavailable
from tests.decisions.choosers import ARMS

# A process that makes decisions after each line of input, prints their ids, and is killed at the end.
_CHOOSER = """
import sys
from maillard import Bandit
from maillard.errors import Unavailable
bandit = Bandit({arms!r}, "uniform", log={path!r})
print(bandit.choose().id, flush=True)
for line in sys.stdin:
    try:
        print(bandit.choose().id, flush=True)
    except Unavailable as error:
        print("unavailable", flush=True)
"""


class Chooser:
    """Another process that has the log open."""

    def __init__(self, path: Path) -> None:
        script = _CHOOSER.format(arms=ARMS, path=str(path))
        self.process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = self._read()

    def choose(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def surviving_ids(path: Path, folder: Path) -> set[str]:
    """The decisions that a new process would find if all others were killed now."""
    folder.mkdir()
    for ending in ("", "-wal"):  # without -shm, as after a restart of the machine
        source = path.with_name(path.name + ending)
        if source.exists():
            shutil.copy(source, folder / source.name)
    bandit = Bandit(log=folder / path.name)
    assert verify(bandit).problems == []
    found = {row[0].id for row in bandit._store.rows("default")}
    bandit.close()
    return found


def empty(wal: Path) -> None:
    wal.unlink()
    wal.touch()


@pytest.mark.parametrize("remove", [Path.unlink, empty], ids=["removed", "replaced by an empty file"])
def test_decisions_before_and_after_the_removal_survive(remove, tmp_path) -> None:
    path, wal = tmp_path / "log.db", tmp_path / "log.db-wal"
    bandit = Bandit(ARMS, "uniform", log=path)
    acknowledged = {bandit.choose().id for _ in range(20)}
    for number in range(3):
        remove(wal)
        with pytest.raises(Unavailable, match="was removed or replaced"):
            bandit.choose()
        acknowledged |= {bandit.choose().id for _ in range(5)}
        assert surviving_ids(path, tmp_path / str(number)) == acknowledged


def test_a_removal_during_a_transaction_is_not_acknowledged(tmp_path) -> None:
    path, wal = tmp_path / "log.db", tmp_path / "log.db-wal"
    bandit = Bandit(ARMS, "uniform", log=path)

    def write() -> None:
        with bandit._store.transaction("", lock=False) as transaction:
            transaction.put_document("probe", "probe", "x")
            wal.unlink()

    with pytest.raises(Unavailable, match="Nothing was acknowledged"):
        write()
    acknowledged = {bandit.choose().id for _ in range(5)}
    assert surviving_ids(path, tmp_path / "copy") == acknowledged


def test_a_removal_before_a_read_leaves_an_empty_file_that_is_detected(tmp_path) -> None:
    """A new connection creates the file again, but the open one does not use it."""
    path, wal = tmp_path / "log.db", tmp_path / "log.db-wal"
    bandit = Bandit(ARMS, "uniform", log=path)
    acknowledged = {bandit.choose().id for _ in range(20)}
    wal.unlink()
    with pytest.raises(Unavailable):
        bandit.summary()
    assert wal.stat().st_size == 0
    with pytest.raises(Unavailable):
        bandit.choose()
    acknowledged.add(bandit.choose().id)
    assert surviving_ids(path, tmp_path / "copy") == acknowledged


def test_two_processes_agree_on_the_new_file(tmp_path) -> None:
    path, wal = tmp_path / "log.db", tmp_path / "log.db-wal"
    other = Chooser(path)
    bandit = Bandit(log=path)
    acknowledged = {other.first, other.choose(), bandit.choose().id}
    for number in range(3):
        wal.unlink()
        with pytest.raises(Unavailable):
            bandit.choose()
        acknowledged |= {bandit.choose().id for _ in range(3)}  # to a new file, which the other must find
        assert other.choose() == "unavailable"
        acknowledged |= {other.choose(), bandit.choose().id, other.choose()}
        assert surviving_ids(path, tmp_path / str(number)) == acknowledged
    other.kill()
    bandit.close()
    assert surviving_ids(path, tmp_path / "end") == acknowledged


def test_the_log_stays_unavailable_while_a_reader_prevents_the_copy(tmp_path) -> None:
    path, wal = tmp_path / "log.db", tmp_path / "log.db-wal"
    bandit = Bandit(ARMS, "uniform", log=SQLiteStore(path, timeout=0.01))
    acknowledged = {bandit.choose().id for _ in range(5)}
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM decisions").fetchall()
        acknowledged.add(bandit.choose().id)
        wal.unlink()
        for _ in range(3):
            with pytest.raises(Unavailable, match="when no other program reads the log"):
                bandit.choose()
    with pytest.raises(Unavailable, match="removed or replaced"):
        bandit.choose()
    acknowledged.add(bandit.choose().id)
    assert surviving_ids(path, tmp_path / "copy") == acknowledged


def test_other_processes_that_come_and_go_are_no_removal(tmp_path) -> None:
    path = tmp_path / "log.db"
    bandit = Bandit(ARMS, "uniform", log=path)
    bandit.choose()
    for _ in range(2):
        other = Chooser(path)
        bandit.choose()
        other.choose()
        other.kill()
        bandit.choose()
        bandit._store.scrub()  # truncates the file
        bandit.choose()
        bandit._store.close()  # deletes it
        bandit.choose()


def test_a_copy_without_a_write_ahead_log_gets_one(tmp_path) -> None:
    """VACUUM INTO writes a database in another journal mode."""
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    Bandit(ARMS, "uniform", log=path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", [str(copy)])
    bandit = Bandit(log=copy)
    bandit.choose()
    assert (tmp_path / "copy.db-wal").stat().st_size > 0


# The -shm file, which has the locks of all processes.


REMOVED = pytest.mark.parametrize(
    "endings", [["-shm"], ["-wal", "-shm"]], ids=["the -shm file", "the -wal and -shm files"]
)


def remove_files(path: Path, endings: list[str]) -> None:
    for ending in endings:
        path.with_name(path.name + ending).unlink()


def test_a_process_that_opens_the_log_after_a_removal_loses_no_decisions(tmp_path) -> None:
    """Its locks are in a new file. Both processes would write to the same place."""
    path = tmp_path / "log.db"
    bandit = Bandit(ARMS, "uniform", log=path)
    acknowledged = {bandit.choose().id for _ in range(5)}
    remove_files(path, ["-shm"])
    other = Chooser(path)
    acknowledged |= {other.first, other.choose()}
    with pytest.raises(Unavailable, match="-shm file was removed or replaced"):
        bandit.choose()
    for _ in range(3):
        acknowledged |= {bandit.choose().id, other.choose()}
    assert surviving_ids(path, tmp_path / "copy") == acknowledged
    other.kill()


@REMOVED
def test_two_processes_agree_on_the_new_files(endings, tmp_path) -> None:
    path = tmp_path / "log.db"
    other = Chooser(path)
    bandit = Bandit(log=path)
    acknowledged = {other.first, other.choose(), bandit.choose().id}
    for number in range(3):
        remove_files(path, endings)
        with pytest.raises(Unavailable):
            bandit.choose()
        acknowledged |= {bandit.choose().id for _ in range(3)}
        assert other.choose() == "unavailable"
        acknowledged |= {other.choose(), bandit.choose().id, other.choose()}
        assert surviving_ids(path, tmp_path / str(number)) == acknowledged
    other.kill()


@REMOVED
def test_a_single_process_goes_on_with_new_files(endings, tmp_path) -> None:
    path = tmp_path / "log.db"
    bandit = Bandit(ARMS, "uniform", log=path)
    acknowledged = {bandit.choose().id for _ in range(5)}
    for number in range(3):
        remove_files(path, endings)
        with pytest.raises(Unavailable) as kept:
            bandit.choose()
        acknowledged |= {bandit.choose().id for _ in range(3)}
        assert surviving_ids(path, tmp_path / str(number)) == acknowledged
        assert "Nothing was acknowledged" in str(kept.value)
    bandit.close()
    assert not path.with_name("log.db-shm").exists()


def test_the_connections_of_a_process_share_the_removed_file_until_all_are_closed(tmp_path) -> None:
    path = tmp_path / "log.db"
    first, second = Bandit(ARMS, "uniform", log=path), Bandit(log=path)
    acknowledged = {first.choose().id, second.choose().id}
    remove_files(path, ["-shm"])
    for _ in range(2):
        with pytest.raises(Unavailable):
            first.choose()
    with pytest.raises(Unavailable):
        second.choose()
    acknowledged |= {first.choose().id, second.choose().id}
    assert surviving_ids(path, tmp_path / "copy") == acknowledged


def test_a_read_during_which_the_file_was_removed_fails(tmp_path) -> None:
    """Another process would not know which version of the log is being read, and could overwrite it."""
    path = tmp_path / "log.db"
    bandit = Bandit(ARMS, "uniform", log=path)
    bandit.choose()

    def read() -> None:
        with bandit._store.reading("default") as transaction:
            remove_files(path, ["-shm"])
            transaction.counts()

    with pytest.raises(Unavailable, match="-shm file was removed"):
        read()


def test_a_removal_of_the_shm_file_during_a_transaction_is_not_acknowledged(tmp_path) -> None:
    path = tmp_path / "log.db"
    bandit = Bandit(ARMS, "uniform", log=path)

    def write() -> None:
        with bandit._store.transaction("", lock=False) as transaction:
            transaction.put_document("probe", "probe", "x")
            remove_files(path, ["-shm"])

    with pytest.raises(Unavailable, match="Nothing was acknowledged"):
        write()
    with bandit._store.reading("") as transaction:
        assert transaction.documents("probe") == {}
    acknowledged = {bandit.choose().id for _ in range(5)}
    assert surviving_ids(path, tmp_path / "copy") == acknowledged
