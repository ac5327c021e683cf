"""The simulated power loss: durable content survives, and other content may be lost, as SQLite documents."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import apsw
import pytest

from tests.decisions.power import SECTOR, Connection, Disk

GROUP = 3  # rows in a transaction
PAGE = 4096


@pytest.fixture(params=["certain", "random"])
def rng(request) -> Random | None:
    """None: only durable content survives. A generator: a random part of the rest does, too."""
    return Random(5) if request.param == "random" else None


class Log:
    """A table of numbered rows, committed in groups; `acknowledged` counts the rows that are committed."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.connection: Connection = disk.connect(str(path))
        self.acknowledged = 0

    def create(self, *, journal_mode: str) -> None:
        self.connection.execute(f"PRAGMA journal_mode={journal_mode}")
        self.connection.execute("PRAGMA wal_autocheckpoint=20")
        self.connection.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY, text TEXT UNIQUE)")

    def append(self) -> None:
        rows = [(n, f"{n:0900}") for n in range(self.acknowledged, self.acknowledged + GROUP)]
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO numbers VALUES (?, ?)", rows)
        self.connection.execute("COMMIT")
        self.acknowledged += GROUP


class Loss(NamedTuple):
    acknowledged: int
    size: int  # of the main file alone
    survived: int | None  # None: the database is damaged

    @property
    def lost(self) -> int:
        return max(0, self.acknowledged - (self.survived or 0))


def survivors(path: Path) -> int | None:
    """The number of rows that survived, if they are a prefix of whole transactions; None if damaged."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")  # needs no -shm file, so it is quicker
            if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                return None
            if not connection.execute("SELECT * FROM sqlite_schema").fetchall():
                return 0
            rows = [n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY n")]
        except sqlite3.DatabaseError:
            return None
    return len(rows) if rows == list(range(len(rows))) and len(rows) % GROUP == 0 else None


def loss(folder: Path, acknowledged: int) -> Loss:
    path = folder / "log.db"
    size = path.stat().st_size if path.exists() else 0
    return Loss(acknowledged, size, survivors(path))


def losses_at_each_step(
    folder: Path, journal_mode: str, synchronous: str, rng: Random | None, lying: bool = False
) -> list[Loss]:
    """Lose power after each write, sync, truncation and deletion."""
    disk = Disk()
    log = Log(disk, folder / "log.db")
    taken: list[int] = []

    def lose() -> None:
        disk.lose_power(folder / str(len(taken)), rng)
        taken.append(log.acknowledged)

    disk.after_each = lose
    log.create(journal_mode=journal_mode)
    log.connection.execute(f"PRAGMA synchronous={synchronous}")
    disk.lying = lying
    for _ in range(12):
        log.append()
    log.connection.close()
    return [loss(folder / str(i), acknowledged) for i, acknowledged in enumerate(taken)]


def losses_at_random_moments(folder: Path, synchronous: str, rng: Random | None, count: int) -> list[Loss]:
    """Lose power `count` times while two threads write through one connection in turns."""
    disk = Disk()
    log = Log(disk, folder / "log.db")
    log.create(journal_mode="WAL")
    log.connection.execute(f"PRAGMA synchronous={synchronous}")
    turn, stop = threading.Lock(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            with turn:
                log.append()

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    moments, taken = Random(11), [0]
    while len(taken) <= count and all(thread.is_alive() for thread in threads):
        time.sleep(moments.uniform(0, 0.005))
        # Counted before the loss: rows that are acknowledged during it may or may not survive.
        if (acknowledged := log.acknowledged) > taken[-1]:
            disk.lose_power(folder / str(len(taken)), rng)
            taken.append(acknowledged)
    stop.set()
    for thread in threads:
        thread.join()
    log.connection.close()
    return [loss(folder / str(i), acknowledged) for i, acknowledged in enumerate(taken) if i]


def test_full_loses_nothing_at_each_step(tmp_path, rng) -> None:
    losses = losses_at_each_step(tmp_path, "WAL", "FULL", rng)
    assert all(each.survived is not None and each.lost == 0 for each in losses)
    assert losses[-1].size > 10 * PAGE  # there were checkpoints


def test_full_loses_nothing_at_random_moments(tmp_path, rng) -> None:
    losses = losses_at_random_moments(tmp_path, "FULL", rng, count=50)
    assert all(each.survived is not None and each.lost == 0 for each in losses)
    assert len(losses) == 50
    assert losses[-1].size > 10 * PAGE


def test_normal_loses_the_end_of_the_wal_and_damages_nothing(tmp_path, rng) -> None:
    losses = losses_at_each_step(tmp_path, "WAL", "NORMAL", rng)
    assert all(each.survived is not None for each in losses)
    assert any(each.lost for each in losses)
    assert losses[-1].lost == 0  # closing checkpoints


def test_off_loses_even_checkpointed_rows(tmp_path, rng) -> None:
    losses = losses_at_each_step(tmp_path, "WAL", "OFF", rng)
    assert losses[-1].lost > 0
    # OFF damages the database only if the disk reorders writes. The durable content is the new database.
    assert any(each.survived is None for each in losses) == (rng is not None)


def test_off_loses_at_random_moments(tmp_path, rng) -> None:
    assert any(each.lost for each in losses_at_random_moments(tmp_path, "OFF", rng, count=5))


def test_a_disk_that_ignores_syncs_loses_rows_even_with_full(tmp_path, rng) -> None:
    losses = losses_at_each_step(tmp_path, "WAL", "FULL", rng, lying=True)
    assert losses[-1].lost > 0


@pytest.mark.parametrize("synchronous", ["FULL", "EXTRA"])
def test_a_rollback_journal_is_durable_only_with_extra(tmp_path, rng, synchronous) -> None:
    # The deletion of the journal is the commit, and only EXTRA syncs the directory after it.
    losses = losses_at_each_step(tmp_path, "DELETE", synchronous, rng)
    assert all(each.survived is not None for each in losses)
    assert any(each.lost for each in losses) == (synchronous == "FULL")


def test_unsynced_writes_survive_whole_in_part_or_not_at_all(tmp_path) -> None:
    disk, path, old, new = Disk(), tmp_path / "x", b"a", b"b"
    path.write_bytes(old * 8 * SECTOR)
    file = disk.xOpen(str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    file.xWrite(new * 8 * SECTOR, SECTOR // 2)
    seen = set()
    for seed in range(30):
        disk.lose_power(tmp_path / str(seed), Random(seed))
        image = (tmp_path / f"{seed}/x").read_bytes()
        assert image[: SECTOR // 2] == old * (SECTOR // 2)
        sectors = {bytes(set(image[i : i + SECTOR])) for i in range(SECTOR, 8 * SECTOR, SECTOR)}
        assert sectors <= {old, new}
        seen.add(frozenset(sectors))
    assert seen == {frozenset({old}), frozenset({new}), frozenset({old, new})}
    disk.lose_power(tmp_path / "certain")
    assert (tmp_path / "certain/x").read_bytes() == old * 8 * SECTOR
    file.xClose()


def test_synced_content_survives(tmp_path) -> None:
    disk, path = Disk(), tmp_path / "x"
    path.write_bytes(b"before")
    file = disk.xOpen(str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    file.xWrite(b"beyond the end", 2 * SECTOR)
    file.xTruncate(2 * SECTOR + 6)
    file.xWrite(b"af", 0)
    file.xSync(apsw.SQLITE_SYNC_NORMAL)
    disk.lose_power(tmp_path / "after", Random(5))
    expected = b"affore" + bytes(2 * SECTOR - 6) + b"beyond"
    assert (tmp_path / "after/x").read_bytes() == path.read_bytes() == expected
    file.xClose()


def test_a_deletion_is_durable_once_its_directory_is_synced(tmp_path) -> None:
    disk = Disk()
    log = Log(disk, tmp_path / "log.db")
    log.create(journal_mode="WAL")
    log.append()
    log.connection.close()
    assert not (tmp_path / "log.db-wal").exists()
    disk.lose_power(tmp_path / "before")
    assert (tmp_path / "before/log.db-wal").exists()
    assert survivors(tmp_path / "before/log.db") == GROUP
    (tmp_path / "log.db-wal").touch()
    disk.xDelete(str(tmp_path / "log.db-wal"), True)
    disk.lose_power(tmp_path / "after")
    assert not (tmp_path / "after/log.db-wal").exists()
    assert survivors(tmp_path / "after/log.db") == GROUP


def test_an_existing_database_is_durable(tmp_path) -> None:
    log = Log(Disk(), tmp_path / "log.db")
    log.create(journal_mode="WAL")
    log.append()
    log.connection.close()
    disk = Disk()
    connection = disk.connect(str(tmp_path / "log.db"))
    disk.lose_power(tmp_path / "after")
    connection.close()
    assert survivors(tmp_path / "after/log.db") == GROUP


def test_a_connection_raises_the_errors_of_sqlite3(tmp_path) -> None:
    log = Log(Disk(), tmp_path / "log.db")
    log.create(journal_mode="WAL")
    log.append()
    with pytest.raises(sqlite3.IntegrityError, match="numbers"):
        log.connection.execute("INSERT INTO numbers VALUES (?, ?)", (0, "again"))
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        log.connection.execute("SELECT * FROM letters")
    log.connection.execute("BEGIN IMMEDIATE")
    assert log.connection.in_transaction
    log.connection.execute("ROLLBACK")
    assert not log.connection.in_transaction
    assert log.connection.execute("SELECT n FROM numbers ORDER BY n").fetchall() == [(0,), (1,), (2,)]
    log.connection.close()
