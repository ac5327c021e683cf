"""verify of a SQLite log with bulk reads has the same result as row by row, for honest and tampered logs."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maillard import Bandit
from maillard.decisions import (
    Verification,
    chain_process,
    chain_screening,
    chain_verification,
    verification,
    verify,
)
from maillard.decisions.chain_process import ChainProcess
from maillard.decisions.stores import native_reads, packed_reads
from maillard.decisions.stores.bulk_columns import OddRows
from maillard.decisions.stores.machine_code import loops
from maillard.decisions.stores.native_columns import NativeColumns
from tests.decisions.test_screening import ARMS, RULES, bandit_after


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    """The file of a log with everything that a log can contain."""
    path: Path = tmp_path_factory.mktemp("honest") / "log.db"
    with bandit_after(rule=RULES["max"], rounds=170, units=True, log=path) as bandit:
        bandit.erase_unit("user-3")
    bandit._store.close()
    return path


def row_by_row(log: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Verification:
    """The result without bulk reads."""

    def refuse(_: object) -> None:
        raise OddRows("bulk reads are switched off")

    with monkeypatch.context() as patch:
        for module in (verification, chain_verification, chain_process):
            patch.setattr(module, "BulkReader" if module is chain_process else "bulk_reader", refuse)
        return verify(log, **options)


def assert_same(one: Verification, other: Verification) -> None:
    """Check that both results agree; sums of floats may be rounded differently."""
    scores = [[*each.arms, *([] if each.weights is None else [each.weights])] for each in (one, other)]
    for score, expected in zip(*scores, strict=True):
        assert score.name == expected.name
        assert dataclasses.astuple(score)[1:] == pytest.approx(dataclasses.astuple(expected)[1:], rel=1e-9)
    rounded = [dataclasses.replace(each, arms=[], weights=None, largest_error=0.0) for each in (one, other)]
    assert rounded[0] == rounded[1]


def natively(log: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Verification:
    """The result with compiled reads, which otherwise only large logs have."""
    assert loops(build=True) is not None
    with monkeypatch.context() as patch:
        patch.setattr(native_reads, "MIN_DECISIONS", 1)
        return verify(log, **options)


@pytest.fixture
def slow_calls(monkeypatch) -> list[str]:
    """The calls of the functions that check row by row."""
    calls: list[str] = []
    rows, links = verification._verify_rows, chain_screening.chain.id_texts

    def verify_rows(*arguments: Any) -> None:
        calls.append("rows")
        rows(*arguments)

    def id_texts(*arguments: Any) -> Any:
        calls.append("links")
        return links(*arguments)

    monkeypatch.setattr(verification, "_verify_rows", verify_rows)
    monkeypatch.setattr(chain_screening.chain, "id_texts", id_texts)
    return calls


@pytest.mark.parametrize("native", [False, True])
def test_an_honest_log(honest, monkeypatch, slow_calls, native) -> None:
    reads: list[str] = []
    read = NativeColumns.read

    def recorded(reader: NativeColumns, types: Any, source: str, parameters: Any) -> Any:
        reads.append(source)
        return read(reader, types, source, parameters)

    monkeypatch.setattr(NativeColumns, "read", recorded)
    found = natively(honest, monkeypatch) if native else verify(honest)
    assert bool(reads) == native
    assert slow_calls == []
    assert found.problems == []
    assert found.chain is not None
    assert found.chain.erased > 0
    assert found.recomputed == found.decisions > 200
    assert_same(found, row_by_row(honest, monkeypatch))
    assert {"rows", "links"} <= set(slow_calls)


@pytest.mark.parametrize("rule", ["sum", "on close", "provisional"])
def test_other_rules(tmp_path, monkeypatch, slow_calls, rule) -> None:
    with bandit_after(rule=RULES[rule], rounds=80, log=tmp_path / "log.db") as bandit:
        found = verify(bandit)
        assert_same(natively(bandit, monkeypatch), found)
        assert slow_calls == []
        assert found.problems == []
        assert_same(found, row_by_row(bandit, monkeypatch))


def test_a_policy_without_a_closed_form(tmp_path, monkeypatch, slow_calls) -> None:
    with bandit_after("ts", rounds=15, log=tmp_path / "log.db") as bandit:
        found = verify(bandit)
        assert slow_calls == ["rows"]
        assert_same(found, row_by_row(bandit, monkeypatch))


def test_anchors(honest, monkeypatch) -> None:
    head = verify(honest).chain
    assert head is not None
    for anchor in (head.head, "ab" * 32):
        found = verify(honest, anchor=anchor)
        assert bool(found.problems) == (anchor != head.head)
        assert_same(found, row_by_row(honest, monkeypatch, anchor=anchor))


STATE = "(SELECT state FROM vectors ORDER BY state LIMIT 1 OFFSET 30)"
LINK = "(SELECT number FROM links WHERE length(rewards) > 0 AND events > 0 ORDER BY number LIMIT 1 OFFSET 30)"
ONE = "(SELECT id FROM decisions ORDER BY id LIMIT 1 OFFSET 60)"
REWARDED = "(SELECT decision FROM rewards ORDER BY decision LIMIT 1 OFFSET 50)"
UPDATE = "(SELECT number FROM events WHERE kind = 'reward' ORDER BY number LIMIT 1 OFFSET 40)"

CHANGES = [
    *(
        f"UPDATE decisions SET {change} WHERE id = {ONE}"
        for change in (
            "log_probability = log_probability - 0.5", "arm = 'purple'", "state = state + 1",
            "arm = CASE arm WHEN 'red' THEN 'blue' ELSE 'red' END",
            "state = 0", "state = 1000000", "epoch = 7", "cold = 1 - cold", "cold = 5", "time = time + 1",
            "time = -1", "unit = 'other'", "unit = NULL", "position = 3", "idempotency_key = 'key'",
            "seal = NULL", "seal = x'00'", "origin = id", "variant = variant + 1", "variant = NULL",
            "eligible = '[\"red\"]'", "log_probabilities = '[0]'", "policy_version = 9",
            "formula_version = 9", "id = upper(id)", "id = 'short'", "experiment = 2",
        )
    ),
    f"DELETE FROM decisions WHERE id = {ONE}",
    *(
        f"UPDATE rewards SET {change} WHERE decision = {REWARDED}"
        for change in (
            "value = 1 - value", "value = 17", "at = at + 1", "arrived = arrived + 1", "late = 1 - late",
            "event = event || 'x'", "late = 9", "decision = 'nobody'",
        )
    ),
    f"DELETE FROM rewards WHERE decision = {REWARDED}",
    f"INSERT INTO rewards SELECT decision, 'again', 0.5, max(at), max(arrived), 0 FROM rewards "
    f"WHERE decision = {REWARDED}",
    *(
        f"UPDATE events SET {change} WHERE number = {UPDATE}"
        for change in (
            "value = 1 - value", "arm = 'purple'", "kind = 'default'", "kind = 'gift'", "time = time + 1",
            "previous = 0.5", "payload = '{}'", "decision = NULL", "decision = 'nobody'", "number = 1000000",
            "value = NULL",
        )
    ),
    f"DELETE FROM events WHERE number = {UPDATE}",
    f"UPDATE vectors SET data = zeroblob(length(data)) WHERE state = {STATE}",
    "UPDATE vectors SET data = x'00' WHERE state > 60",
    "DELETE FROM vectors WHERE state > 60",
    "UPDATE arm_lists SET names = replace(names, 'red', 'rot')",
    "UPDATE arm_lists SET names = '{'",
    "UPDATE links SET hash = zeroblob(32) WHERE number = 90",
    "UPDATE links SET decisions = substr(decisions, 17) WHERE length(decisions) > 16",
    "UPDATE links SET decisions = substr(decisions, 2) WHERE length(decisions) > 16",
    f"UPDATE links SET rewards = x'' WHERE number = {LINK}",
    f"UPDATE links SET first_event = first_event + 1 WHERE number = {LINK}",
    f"UPDATE links SET events = events + 1 WHERE number = {LINK}",
    f"UPDATE links SET time = time + 1 WHERE number = {LINK}",
    "DELETE FROM links WHERE number = 70",
    "DELETE FROM links WHERE number > 150",
    "DELETE FROM links WHERE number < 20",
]  # fmt: skip


def tampered(honest: Path, folder: Path, *statements: str) -> Path:
    """A changed copy of a log."""
    copy = folder / "log.db"
    shutil.copy(honest, copy)
    with closing(sqlite3.connect(copy)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount, statement
    return copy


@pytest.mark.parametrize("change", CHANGES)
def test_a_tampered_log(honest, tmp_path, monkeypatch, change) -> None:
    copy = tampered(honest, tmp_path, change)
    found = verify(copy)
    assert_same(found, row_by_row(copy, monkeypatch))
    assert_same(found, natively(copy, monkeypatch))
    assert found.problems or "links SET time" in change


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE decisions SET time = 'soon' WHERE id = {ONE}",
        f"UPDATE decisions SET state = 12.5 WHERE id = {ONE}",
        f"UPDATE decisions SET unit = 5 WHERE id = {ONE}",
        f"UPDATE decisions SET arm = x'FF' WHERE id = {ONE}",
        f"UPDATE decisions SET log_probability = 'low' WHERE id = {ONE}",
        f"UPDATE rewards SET value = 'high' WHERE decision = {REWARDED}",
        f"UPDATE rewards SET arrived = NULL WHERE decision = {REWARDED}",
        f"UPDATE vectors SET data = 'text' WHERE state = {STATE}",
        "UPDATE arm_lists SET names = 5",
    ],
)
def test_values_of_other_types(honest, tmp_path, monkeypatch, change) -> None:
    """A damaged database can have any value in any column, although its tables are strict."""
    copy = tampered(
        honest,
        tmp_path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(replace(sql, ', STRICT', ''), ' NOT NULL', '') "
        "WHERE type = 'table'",
    )
    with closing(sqlite3.connect(copy)) as connection, connection:
        assert connection.execute(change).rowcount
    found = verify(copy)
    assert found.problems
    assert_same(found, row_by_row(copy, monkeypatch))
    assert_same(found, natively(copy, monkeypatch))
    monkeypatch.setattr(packed_reads, "check_tables", lambda _: None)  # compiled code must find it, too
    assert_same(found, natively(copy, monkeypatch))


@pytest.mark.parametrize("table", ["decisions", "rewards", "events_by_decision", "vectors", "links"])
def test_damaged_pages(honest, tmp_path, monkeypatch, table) -> None:
    copy = tampered(honest, tmp_path)
    with closing(sqlite3.connect(copy)) as connection:
        ((size,),) = connection.execute("PRAGMA page_size")
        sql = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path LIMIT 1 OFFSET 1"
        ((page,),) = connection.execute(sql, [table])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with copy.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)
    found = verify(copy)
    assert any("malformed" in each.what for each in found.problems)
    assert_same(found, natively(copy, monkeypatch))
    assert_same(found, row_by_row(copy, monkeypatch))


def test_without_machine_code(honest, monkeypatch) -> None:
    expected = verify(honest)
    monkeypatch.setattr(native_reads, "loops", lambda build: None)
    assert_same(natively(honest, monkeypatch), expected)


def test_an_interrupted_verification_leaves_the_log_usable(honest, monkeypatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        natively(honest, monkeypatch, on_rows=interrupt)
    assert natively(honest, monkeypatch).problems == []


def test_the_chain_is_checked_in_another_process(honest, tmp_path, monkeypatch, slow_calls) -> None:
    expected = verify(honest)
    copy = tampered(honest, tmp_path, f"UPDATE decisions SET time = time + 1 WHERE id = {ONE}")
    with_problem = verify(copy)
    assert with_problem.problems
    monkeypatch.setattr(chain_process, "MIN_DECISIONS", 1)
    monkeypatch.setattr(chain_process, "_count_cores", lambda: 2)
    monkeypatch.setattr(verification, "check_log_chain", None)  # not in this process
    assert_same(verify(honest), expected)
    assert_same(verify(copy), with_problem)


def test_a_process_that_fails_is_replaced(honest, monkeypatch) -> None:
    expected = verify(honest)
    monkeypatch.setattr(chain_process, "MIN_DECISIONS", 1)
    monkeypatch.setattr(chain_process, "_count_cores", lambda: 2)
    monkeypatch.setattr(chain_process, "_PROGRAM", "raise SystemExit(1)")
    assert_same(verify(honest), expected)


def test_a_process_is_stopped_with_its_caller(honest, monkeypatch) -> None:
    started: list[ChainProcess] = []

    class Recorded(ChainProcess):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chain_process, "ChainProcess", Recorded)
    monkeypatch.setattr(chain_process, "MIN_DECISIONS", 1)
    monkeypatch.setattr(chain_process, "_count_cores", lambda: 2)
    monkeypatch.setattr(chain_process, "_PROGRAM", "import time; time.sleep(600)")
    with pytest.raises(KeyboardInterrupt):
        verify(honest, on_rows=interrupt)
    assert [each._process.poll() is not None for each in started] == [True]


def test_a_small_log_and_one_in_memory_need_no_process(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(chain_process, "ChainProcess", None)
    with Bandit(ARMS, "ms:sigma2=1", log=tmp_path / "log.db") as bandit:
        bandit.choose(size=5)
        assert verify(bandit).problems == []
    monkeypatch.setattr(chain_process, "MIN_DECISIONS", 1)
    assert verify(Bandit(ARMS, "ms:sigma2=1")).problems == []
