"""Tests of the store contract, run on every store."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from maillard.decisions import Bandit, ledger
from maillard.decisions.events import AddArm, Pause, TallyUpdate
from maillard.decisions.stores import Store, open_store
from maillard.decisions.stores.contract import Counts, DecisionSummary, Head, Parked, Visits
from maillard.decisions.stores.postgresql import PostgreSQLStore
from maillard.decisions.stores.schema import MIGRATIONS
from maillard.decisions.timestamps import system_clock
from maillard.errors import Conflict, InvalidValue, MaillardError, Unavailable
from tests.stores import (
    EXPERIMENT,
    KINDS,
    UNIT_RANGE,
    Log,
    decision,
    events,
    new_id,
    reward_event,
    write,
)


def test_an_experiment_is_created_once(log: Log) -> None:
    store = log.open()
    assert store.experiments() == []
    with write(store) as transaction:
        assert transaction.head is None
        transaction.create()
        assert transaction.head == Head(0, 0, 0)
        transaction.create()
        assert transaction.head == Head(0, 0, 0)
    with write(store, "\N{SNOWMAN} 'quoted\" %s ? {}") as transaction:
        transaction.create()
    assert store.experiments() == sorted([EXPERIMENT, "\N{SNOWMAN} 'quoted\" %s ? {}"])


def test_time_is_that_of_the_stores_clock(log: Log) -> None:
    store = log.open()
    with write(store) as transaction:
        assert transaction.now == log.clock.now
    log.clock.forward(5)
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.now == log.clock.now


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_clock_is_the_system_clock(kind: str, request, tmp_path) -> None:
    where = {"memory": None, "sqlite": tmp_path / "log.db"}.get(kind) or (
        request.getfixturevalue("postgres") if kind == "postgresql" else None
    )
    store = open_store(where)
    for lock in (True, False):
        before = system_clock()
        with write(store, lock=lock) as transaction:
            now = transaction.now
        assert before - 2_000 <= now <= system_clock() + 2_000
    store.close()


def test_events_move_the_head_and_are_read_in_order(store: Store) -> None:
    made = [
        TallyUpdate(number=2, kind="reward", time=5, decision=new_id(), arm="red", value=0.1),
        TallyUpdate(
            number=3, kind="revision", time=6, decision=new_id(), arm="red", value=1e-320, previous=-1.5e300
        ),
        AddArm(number=4, time=7, arm="\N{SNOWMAN}'\"%s?"),
    ]
    with write(store) as transaction:
        assert transaction.head == Head(1, 1, 1)
        transaction.add_events(made, Head(4, 4, 2))
        assert transaction.head == Head(4, 4, 2)
        assert transaction.events(1) == made
    assert events(store, 1) == made
    assert events(store, 3) == made[2:]
    assert events(store, 4) == []
    with write(store, lock=False) as transaction:
        assert transaction.head == Head(4, 4, 2)


# A store in memory does not roll back: the ledger checks before it writes.
@pytest.mark.parametrize("log", KINDS[1:], indirect=True)
def test_a_failed_transaction_is_rolled_back(store: Store, log: Log) -> None:
    before = log.contents()
    for error in (RuntimeError, KeyboardInterrupt, Conflict):
        with pytest.raises(error), write(store) as transaction:  # noqa: PT012  # the end of the block raises
            transaction.add_decisions([decision()])
            transaction.add_events([Pause(number=2, time=5)], Head(2, 2, 1))
            raise error
    assert log.contents() == before
    with write(store) as transaction:
        transaction.add_decisions([decision()])
    assert log.contents() != before


def test_decisions_are_read_as_written(store: Store) -> None:
    rows = [
        decision(),
        decision(unit="\N{SNOWMAN}\n'\"%s ? \\", arm="a, b", eligible=("a, b", "c"), origin=new_id()),
        decision(log_probabilities=(-0.1, -math.inf), log_probability=-5e-324, state=10**12, cold=False),
        decision(eligible=("red",), log_probabilities=(0.0,), log_probability=0.0, epoch=7),
    ]
    with write(store, lock=False) as transaction:
        transaction.add_decisions(rows)
        transaction.add_decisions([])
    ids = [row.id for row in rows]
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.decisions([*ids, new_id()]) == {row.id: row for row in rows}
        assert transaction.decisions([]) == {}
        assert transaction.decision_summaries(ids) == {
            row.id: DecisionSummary(row.arm, row.epoch, row.time) for row in rows
        }
    with store.reading("another") as transaction:
        assert transaction.decisions(ids) == {}
        assert transaction.decision_summaries(ids) == {}
        assert transaction.head is None


def test_a_key_is_claimed_once(store: Store) -> None:
    first, second = decision(idempotency_key="k"), decision(idempotency_key="k", position=1)
    with write(store, lock=False) as transaction:
        assert transaction.decisions_by_key(["k"]) == {}
        assert transaction.add_if_absent([first]) == {first.id}
        assert not transaction.add_if_absent([decision(idempotency_key="k")])
        transaction.add_decisions([second])
        assert transaction.decisions_by_key(["k", "another"]) == {"k": [first, second]}
    with write(store, lock=False) as transaction:
        assert not transaction.add_if_absent([decision(idempotency_key="k", position=1)])
        assert transaction.decisions_by_key(["k", "another"]) == {"k": [first, second]}
        assert transaction.decisions_by_key(["another"]) == {}


def test_keys_belong_to_one_experiment(store: Store) -> None:
    with write(store, "another") as transaction:
        transaction.create()
        assert transaction.add_if_absent([decision(idempotency_key="k")])
    with write(store) as transaction:
        assert transaction.decisions_by_key(["k"]) == {}
        assert transaction.add_if_absent([decision(idempotency_key="k")])


def test_several_keys_are_claimed_in_one_call(store: Store) -> None:
    rows = [decision(idempotency_key=f"k{i}") for i in range(150)]
    with write(store, lock=False) as transaction:
        assert transaction.add_if_absent(rows[:70]) == {row.id for row in rows[:70]}
        # Some keys and ids are already used.
        again = [decision(idempotency_key="k3"), *rows[60:]]
        assert transaction.add_if_absent(again) == {row.id for row in rows[70:]}
        assert transaction.add_if_absent([]) == set()
        assert transaction.decisions_by_key(f"k{i}" for i in range(200)) == {
            row.idempotency_key: [row] for row in rows
        }


def test_decisions_are_found_in_any_experiment(store: Store) -> None:
    mine, theirs = [decision() for _ in range(3)], decision(experiment="another")
    with write(store, "another") as transaction:
        transaction.create()
        transaction.add_decisions([theirs])
    with write(store) as transaction:
        transaction.add_decisions(mine)
    ids = sorted(row.id for row in (*mine, theirs))
    for experiment in ("", EXPERIMENT):
        with store.reading(experiment) as transaction:
            found = transaction.experiments_of([*ids, new_id()])
            assert found == {theirs.id: "another"} | {row.id: EXPERIMENT for row in mine}
            assert transaction.decisions_between("0", "g", 10) == sorted([*mine, theirs])
            assert [row.id for row in transaction.decisions_between("0", "g", 2)] == ids[:2]
            assert [row.id for row in transaction.decisions_between(ids[0], ids[3], 10)] == ids[1:3]


def test_documents_are_stored_by_kind_and_name(log: Log) -> None:
    store = log.open()
    with write(store, "", lock=False) as transaction:
        transaction.put_document("key", "b", "1")
        transaction.put_document("key", "a", "2 \N{SNOWMAN}")
        transaction.put_document("probe", "a", "3")
        transaction.put_document("key", "b", "4")
    with log.open().reading("") as transaction:
        assert transaction.documents("key") == {"a": "2 \N{SNOWMAN}", "b": "4"}
        assert transaction.documents("none") == {}
        assert transaction.document("key", "b") == "4"
        assert transaction.document("key", "c") is None
    with write(store, "", lock=False) as transaction:
        transaction.remove_document("key", "b")
        transaction.remove_document("key", "c")  # there is none
        assert transaction.documents("key").keys() == {"a"}
        assert transaction.documents("probe").keys() == {"a"}
    assert store.experiments() == []


def test_rewards_are_parked_without_an_experiment(store: Store) -> None:
    early = reward_event(new_id())._replace(arrived=system_clock())
    old = reward_event("01800000-0000-7000-8000-000000000000")._replace(arrived=system_clock())
    with write(store, "") as transaction:
        outcomes = ledger.park(transaction, [early, early, old])
        assert outcomes[:2] == ["parked", "duplicate"]
        assert isinstance(outcomes[2], InvalidValue)  # more than a day old and unknown
    with store.reading("") as transaction:
        assert [each.row for each in transaction.all_parked()] == [early]
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.all_parked() == []
    with write(store, "") as transaction:
        transaction.unpark([early])
        assert transaction.all_parked() == []


def test_rewards_are_read_with_their_decisions(store: Store) -> None:
    early, late = decision(state=1), decision(state=2)
    rows = [
        reward_event(early, 0.1, "b"),
        reward_event(early, 0.1 + 0.2, "c", late=True),
        reward_event(late, 5e-324, "a", at=2**52, arrived=2**52),
    ]
    with write(store) as transaction:
        transaction.add_decisions([late, early])
        transaction.add_reward_events(rows)
        transaction.add_reward_events([])
        assert transaction.reward_events([early.id, late.id, new_id()]) == {
            early.id: rows[:2],
            late.id: rows[2:],
        }
        assert transaction.reward_events([]) == {}
        made = TallyUpdate(number=2, kind="reward", time=5, decision=early.id, arm="red", value=0.1)
        transaction.add_events([made], Head(2, 1, 1))
    assert list(store.rows(EXPERIMENT)) == [(early, tuple(rows[:2]), (made,)), (late, (rows[2],), ())]
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.counts() == Counts({"red": 2}, 3, 1, 0)


def test_rows_are_ordered_and_may_be_read_in_part(store: Store) -> None:
    made = [decision(state=n % 3, arm="blue") for n in range(2500)]
    with write(store, lock=False) as transaction:
        transaction.add_decisions(made)
    expected = sorted(made, key=lambda row: (row.state, row.id))
    reading = store.rows(EXPERIMENT)
    assert next(reading)[0] == expected[0]
    with write(store, lock=False) as transaction:  # rows written meanwhile are not read
        transaction.add_decisions([decision(state=9)])
    assert [row for row, *_ in reading] == expected[1:]
    reading = store.rows(EXPERIMENT)
    next(reading)
    reading.close()
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.counts().decisions == {"blue": 2500, "red": 1}


def test_visits_of_units_are_counted(store: Store) -> None:
    units = [None, None, "ann", "ann", "ann", "bob"]
    made = [decision()._replace(unit=unit, epoch=1) for unit in units]
    with write(store, lock=False) as transaction:
        assert transaction.visits(1) == Visits(0, 0, 0)
        transaction.add_decisions([*made, decision()._replace(unit="ann", epoch=2)])
    with write(store, "another", lock=False) as transaction:
        transaction.create()
        transaction.add_decisions([decision()._replace(unit="eve", epoch=1, experiment="another")])
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.visits(1) == Visits(decisions=6, units=2, squares=2 + 9 + 1)
        assert transaction.visits(2) == Visits(1, 1, 1)
        assert transaction.visits(3) == Visits(0, 0, 0)


@pytest.mark.parametrize("log", KINDS[1:], indirect=True)  # a reader in memory has the lock
def test_a_reader_sees_one_state(store: Store, log: Log) -> None:
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.events(1) == []
        with write(store) as writing:
            writing.add_events([Pause(number=2, time=5)], Head(2, 2, 1))
        assert transaction.events(1) == []
    assert len(events(store, 1)) == 1


def test_parked_rewards_wait_until_their_decision_arrives(store: Store, log: Log) -> None:
    known, other, now = new_id(), new_id(), log.clock.now
    rows = [
        Parked(reward_event(known, 0.1, "a"), None),
        Parked(reward_event(known, 0.2, "b"), now + 1),
        Parked(reward_event(other, 0.3), now),
    ]
    with write(store) as transaction:
        transaction.park(rows)
        assert transaction.parked([known, other, new_id()]) == {known: rows[:2], other: rows[2:]}
        assert transaction.parked([]) == {}
        assert transaction.count_parked() == 2  # one has expired
        assert transaction.counts().parked == 3
    with store.reading(EXPERIMENT) as transaction:
        assert sorted(transaction.all_parked(), key=repr) == sorted(rows, key=repr)
    with write(store) as transaction:
        transaction.park([])
        assert transaction.parked([known, other]) == {known: rows[:2]}  # expired rewards are removed
        transaction.unpark([rows[0].row, reward_event(new_id())])
        transaction.unpark([])
        assert transaction.all_parked() == rows[1:2]  # another event of the same decision
        transaction.unpark([rows[1].row])
        assert transaction.all_parked() == []


def test_pending_decisions_are_due_in_their_order(store: Store, log: Log) -> None:
    ids, now = sorted(new_id() for _ in range(4)), log.clock.now
    with write(store) as transaction:
        transaction.add_pending({ids[1]: now, ids[0]: now, ids[2]: now - 1, ids[3]: now + 1})
        assert transaction.pending([*ids, new_id()]) == set(ids)
        assert transaction.pending([]) == set()
        transaction.remove_pending([])
        assert transaction.due_decisions(2) == [ids[2], ids[0]]
        transaction.remove_pending([ids[2], ids[0]])
        assert transaction.due_decisions(2) == [ids[1]]
        transaction.remove_pending([ids[1]])
        assert transaction.due_decisions(2) == []
        assert transaction.pending(ids) == {ids[3]}
    log.clock.forward(1)
    with write(store) as transaction:
        assert transaction.due_decisions(2) == [ids[3]]


def test_experiments_in_which_a_window_is_due(store: Store, log: Log) -> None:
    ids, now = [new_id() for _ in range(3)], log.clock.now
    with write(store) as transaction:
        assert transaction.due_experiments() == []
        transaction.add_pending({ids[0]: now, ids[1]: now - 1, ids[2]: now + 1})
    with store.reading("") as transaction:
        assert transaction.due_experiments() == [EXPERIMENT]
    with write(store) as transaction:
        transaction.remove_pending(ids[:2])
    with store.reading("") as transaction:
        assert transaction.due_experiments() == []
    log.clock.forward(1)
    with store.reading("") as transaction:
        assert transaction.due_experiments() == [EXPERIMENT]


def test_a_unit_is_assigned_if_the_previous_assignment_matches(store: Store) -> None:
    with write(store, lock=False) as transaction:
        assert transaction.assignment(1, "u") is None
        assert transaction.assign(1, "u", "first", instead_of=None)
        assert not transaction.assign(1, "u", "second", instead_of=None)
        assert not transaction.assign(1, "u", "second", instead_of="third")
        assert transaction.assignment(1, "u") == "first"
        assert transaction.assign(1, "u", "second", instead_of="first")
        assert transaction.assignment(1, "u") == "second"
        assert transaction.assignment(2, "u") is None
        assert transaction.assignment(1, "v") is None


def test_a_unit_can_be_erased(store: Store) -> None:
    mine = [decision(unit="u", idempotency_key="k", position=n) for n in range(2)] + [decision(unit="u")]
    others = [decision(unit="v", idempotency_key="l"), decision()]
    with write(store) as transaction:
        transaction.add_decisions([*mine, *others])
        transaction.assign(1, "u", mine[0].id, instead_of=None)
        assert transaction.erase_unit("u", "token") == 3
        assert transaction.erase_unit("u", "token") == 0
        rows = transaction.decisions([row.id for row in [*mine, *others]])
        assert transaction.decisions_by_key(["k"]) == {}
        assert transaction.assignment(1, "u") is None
        assert transaction.assignment(1, "token") == mine[0].id
    assert [rows[row.id] for row in others] == others
    assert [rows[row.id] for row in mine] == [
        row._replace(unit="token", idempotency_key=row.idempotency_key and f"token:{row.id}") for row in mine
    ]
    store.scrub()


def test_the_location_of_a_log_shows_no_password(postgres: str) -> None:
    store = PostgreSQLStore(postgres.replace("postgres@", "postgres:hunter2@") + "&sslpassword=hunter3")
    assert "hunter" not in store.where
    assert store.where.startswith("postgresql://")
    store.close()
    for url in (
        "postgresql://nobody:hunter2@127.0.0.1:1/nowhere",
        "postgresql://nobody:hunter2@hunter3@localhost:1/nowhere",
        "postgresql://nobody:hun/ter2@localhost/nowhere",
        "postgresql://nobody:hunter2@localhost/nowhere?hunter4=1",
    ):
        with pytest.raises(MaillardError) as caught:
            PostgreSQLStore(url)
        assert "hunter" not in str(caught.value).replace("hunter4", "")
        assert "ter2" not in str(caught.value)


def test_sessions_commit_to_the_disk(postgres: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        store = PostgreSQLStore(postgres)
        with write(store) as transaction:
            assert transaction._fetch("SHOW synchronous_commit") == [("on",)]
        store.close()
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = remote_apply')
        store = PostgreSQLStore(postgres)
        with write(store) as transaction:
            assert transaction._fetch("SHOW synchronous_commit") == [("remote_apply",)]
        store.close()


def test_the_error_without_psycopg_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for module in ("postgresql_connection", "postgresql"):
        monkeypatch.delitem(sys.modules, f"maillard.decisions.stores.{module}")
    with pytest.raises(MaillardError, match=r"pip install 'maillard\[postgresql\]'"):
        open_store("postgresql://localhost/log")


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_program_may_end_without_closing_its_log(kind: str, tmp_path: Path, request) -> None:
    where = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "log.db")
    program = """
import sys
from maillard.decisions import Bandit, ledger
Bandit(["red", "blue"], "uniform", log=sys.argv[1]).choose()
bandit = Bandit(log=sys.argv[1])
bandit.choose()
"""
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", program, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # Unclosed SQLite connections warn in newer versions of Python. Written rows are durable in any case.
    assert (done.returncode, done.stderr if kind == "postgresql" else "") == (0, "")
    with closing(open_store(where)) as store:
        assert len(list(store.rows("default"))) == 2


@pytest.mark.parametrize("log", KINDS[1:], indirect=True)
def test_an_older_log_is_migrated_with_all_rows(log: Log, monkeypatch) -> None:
    made = [log.bandit().choose() for _ in range(3)]
    log.opened[-1].close()
    later = (*MIGRATIONS, "ALTER TABLE decisions ADD COLUMN note TEXT; UPDATE decisions SET note = arm")
    monkeypatch.setattr("maillard.decisions.stores.schema.MIGRATIONS", later)
    bandit = log.bandit()
    assert sorted(row.id for row, *_ in bandit._store.rows(EXPERIMENT)) == sorted(row.id for row in made)
    contents = log.contents()["decisions"]
    assert all(
        row.arm in str(stored).rsplit(",", 1)[1]
        for row, stored in zip(made, sorted(contents, key=str), strict=True)
    )
    bandit.choose()
    bandit.close()
    monkeypatch.undo()
    with pytest.raises(InvalidValue, match="a newer maillard wrote this one"):
        log.open()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_log_of_another_version_is_refused(kind: str, tmp_path: Path, request) -> None:
    where = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "log.db")
    open_store(where).close()
    open_store(where).close()
    if kind == "postgresql":
        with psycopg.connect(where) as connection:
            connection.execute("UPDATE maillard.version SET number = number + 1")
    else:
        with closing(sqlite3.connect(where)) as connection:
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(InvalidValue, match="newer maillard"):
        open_store(where)


@pytest.mark.parametrize("log", KINDS[1:], indirect=True)
@pytest.mark.parametrize("reconnects", [False, True], ids=["connected", "reconnects"])
def test_a_log_that_is_migrated_while_it_is_open_is_refused(log: Log, reconnects: bool, monkeypatch) -> None:
    """A newer release migrates the tables. Rows of this release may lack what the new columns need."""
    bandit = log.bandit()
    made = bandit.choose()
    later = (*MIGRATIONS, "ALTER TABLE decisions ADD COLUMN note TEXT")
    with monkeypatch.context() as newer:
        newer.setattr("maillard.decisions.stores.schema.MIGRATIONS", later)
        log.open().close()
    if reconnects:
        bandit._store.close()
    for call in (bandit.choose, lambda: bandit.reward(made.id, 1.0), bandit.summary, bandit.pause):
        for _ in range(2):
            with pytest.raises(InvalidValue, match="a newer maillard wrote this one"):
                call()
    monkeypatch.setattr("maillard.decisions.stores.schema.MIGRATIONS", later)
    bandit.choose()
    assert len(list(bandit._store.rows(EXPERIMENT))) == 2


def test_a_migration_waits_for_transactions_of_an_older_release(postgres, monkeypatch) -> None:
    """None of them writes to the new tables."""
    store = open_store(postgres)
    later = (*MIGRATIONS, "ALTER TABLE checkpoints ADD COLUMN note TEXT")
    with ThreadPoolExecutor(1) as pool:
        with store.transaction("", lock=False) as transaction:
            monkeypatch.setattr("maillard.decisions.stores.schema.MIGRATIONS", later)
            migrating = pool.submit(open_store, postgres)
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
            with psycopg.connect(postgres, autocommit=True) as server:
                while server.execute(waiting).fetchone() != (1,):
                    assert not migrating.done()
            transaction.put_document("probe", "probe", "before")
        migrating.result(60).close()
        monkeypatch.undo()
    with pytest.raises(InvalidValue, match="newer maillard"), store.transaction("", lock=False):
        pass
    store.close()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_concurrent_creation_of_tables_and_experiment(kind: str, tmp_path: Path, request) -> None:
    where = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "log.db")
    together = threading.Barrier(8)

    def start(_: int) -> Bandit:
        together.wait()
        return Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=where, experiment=EXPERIMENT)

    with ThreadPoolExecutor(8) as pool:
        bandits = list(pool.map(start, range(8)))
    assert [event.kind for event in events(bandits[0]._store)] == ["start"]
    for bandit in bandits:
        assert bandit.choose().state == 1
        bandit.close()
    store = open_store(where)
    assert len(list(store.rows(EXPERIMENT))) == 8
    store.close()


def test_locked_transactions_run_one_after_the_other(log: Log) -> None:
    log.bandit()
    stores = [log.open() for _ in range(4)]

    def count_up(store: Store) -> None:
        for _ in range(25):
            with write(store) as transaction:
                number = transaction.head.number + 1
                transaction.add_events([Pause(number=number, time=5)], Head(number, number, 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_up, stores))
    assert [event.number for event in events(stores[0])] == list(range(1, 102))


@pytest.mark.parametrize("log", ["postgresql"], indirect=True)  # the others have one writer at a time
def test_decisions_do_not_wait_for_changes_of_the_state(log: Log) -> None:
    store = log.open()
    log.bandit()
    with write(store), write(store, lock=False) as transaction:
        transaction.add_decisions([decision()])
    assert len(list(store.rows(EXPERIMENT))) == 1


def test_a_timeout_of_a_lock_or_connection_raises(postgres: str) -> None:
    store = PostgreSQLStore(postgres, timeout=3, pool_size=1)
    other = PostgreSQLStore(postgres)
    with write(store) as transaction:
        transaction.create()
    with write(other):
        with pytest.raises(Unavailable, match="lock timeout"), write(store):
            pass
        with write(store, lock=False), pytest.raises(Unavailable, match="all 1 connections"), write(store):
            pass
    with write(store):
        pass
    store.close()
    other.close()
