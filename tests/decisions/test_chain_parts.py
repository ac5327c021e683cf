"""A hash chain whose links are divided between two processes: the result is that of one process."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from maillard import Bandit
from maillard.decisions import chain_parts, chain_process, export_changes, read_log, verify
from maillard.decisions.chain_parts import FirstPart, LinkRequest, check_after
from maillard.decisions.chain_process import check_log_chain
from maillard.decisions.chain_verification import ChainChecker, ChainReport, check_chain, check_links
from maillard.decisions.stores.contract import Transaction
from maillard.decisions.stores.sqlite import SQLiteStore
from tests.decisions.test_pruning import DAY, prune_log
from tests.decisions.test_screening import RULES, bandit_after
from tests.stores import EXPERIMENT, Log


class File:
    """A log in a SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path, self.store = path, SQLiteStore(path)

    def read(self) -> AbstractContextManager[Transaction]:
        return self.store.reading("default")

    def change(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            assert connection.execute(statement).rowcount == 1

    def report(self, anchor: str | None = None) -> ChainReport:
        problems: list[str] = []
        found = check_chain(self.read, lambda _, what: problems.append(what), anchor)
        assert problems == []
        return found

    def first_part(self, last: int, anchor: str | None = None) -> tuple[FirstPart, list[str]]:
        problems: list[str] = []
        checker = ChainChecker(lambda _, what: problems.append(what), anchor)
        check_links(checker, self.read, lambda *_: last)
        return FirstPart.of(checker), problems

    def in_two_parts(self, last: int, anchor: str | None = None) -> ChainReport | None:
        first, problems = self.first_part(last, anchor)
        rest = check_after(self.read, last, anchor)
        return None if problems or rest is None else rest.join(first, self.read)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("made") / "log.db"
    with bandit_after(rule=RULES["max"], rounds=120, units=True, log=path) as bandit:
        bandit.erase_unit("user-3")
    bandit._store.close()
    return path


@pytest.fixture
def file(made, tmp_path) -> Iterator[File]:
    found = File(Path(shutil.copy(made, tmp_path)))
    yield found
    found.store.close()


def test_two_parts_are_the_whole(file) -> None:
    whole = file.report()
    assert whole.commits > 20
    assert whole.erased
    for last in (1, 2, *range(3, whole.commits, 29), whole.commits):
        assert file.in_two_parts(last) == whole
    assert file.in_two_parts(whole.commits + 1) is None


def test_the_anchor_may_be_in_either_part(file) -> None:
    with file.read() as transaction:
        hashes = [link.hash.hex() for link in transaction.links(0, 1_000)]
    for commit in (3, 10, 11, len(hashes)):
        anchor = hashes[commit - 1]
        assert file.in_two_parts(10, anchor) == file.report(anchor)
        assert file.report(anchor).anchor == commit
    assert file.in_two_parts(10, "0" * 64) is None


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM decisions WHERE id = (SELECT min(id) FROM decisions)",
        "DELETE FROM decisions WHERE id = (SELECT max(id) FROM decisions)",
        "UPDATE rewards SET value = 0.875 WHERE rowid_or_key",
        "UPDATE events SET time = time + 1 WHERE number = 2",
        "DELETE FROM links WHERE number = 10",
        "DELETE FROM links WHERE number = 11",
        "UPDATE links SET hash = zeroblob(32) WHERE number = 10",
        "UPDATE links SET first_event = first_event + 1 WHERE number = (SELECT max(number) FROM links)",
        "UPDATE chains SET number = number + 1",
    ],
)
def test_a_problem_in_any_part_is_found(file, statement) -> None:
    one = "(decision, event) = (SELECT decision, event FROM rewards ORDER BY 1, 2 LIMIT 1)"
    file.change(statement.replace("rowid_or_key", one))
    for last in (9, 10, 11, 20):
        assert file.in_two_parts(last) is None


def test_links_that_are_added_meanwhile_are_checked_too(file) -> None:
    last = file.report().commits // 2
    first, _ = file.first_part(last)
    rest = check_after(file.read, last, None)
    assert rest is not None
    with Bandit(log=file.path) as bandit:
        bandit.choose(size=3)
    assert rest.join(first, file.read) == file.report()


def test_parts_that_do_not_fit_are_not_joined(file) -> None:
    first, _ = file.first_part(10)
    others = (
        first._replace(report=replace(first.report, head="0" * 64)),
        first._replace(next_event=first.next_event + 1),
    )
    for each, fits in ((first, True), *((other, False) for other in others)):
        rest = check_after(file.read, 10, None)
        assert rest is not None
        assert (rest.join(each, file.read) is not None) == fits


def test_a_request_is_answered_with_half_of_the_rest(file, monkeypatch, capsys) -> None:
    commits = file.report().commits
    for least, expected in ((1, 4 + (commits - 4) // 2), (commits, None)):
        receive, send = os.pipe()
        monkeypatch.setattr(chain_parts, "_INPUT", receive)
        request = LinkRequest(least)
        with file.read() as transaction:
            assert request.end(transaction, 3) is None
            os.write(send, b"\n")
            assert request.arrived.wait(60)
            assert request.end(transaction, 4) == request.end(transaction, 5) == request.last == expected
        os.close(send)
        os.close(receive)
        assert capsys.readouterr().out == f'{{"end": {"null" if expected is None else expected}}}\n'


@pytest.fixture
def shared(monkeypatch) -> None:
    """Divide the links of small logs, too."""
    monkeypatch.setattr(chain_process, "MIN_DECISIONS", 1)
    monkeypatch.setattr(chain_process, "MIN_SHARED", 1)
    monkeypatch.setattr(chain_process, "_count_cores", lambda: 2)


def test_two_processes_report_what_one_does(file, monkeypatch, shared) -> None:
    with read_log(file.path) as log:
        expected = check_log_chain(log, None)
    found = verify(file.path)
    assert (found.chain, found.problems) == (expected.report, [])
    file.change("DELETE FROM decisions WHERE id = (SELECT max(id) FROM decisions)")
    with read_log(file.path) as log:
        expected = check_log_chain(log, None)
    found = verify(file.path)
    assert found.chain == expected.report
    assert {each.what for each in found.problems} >= {what for _, what in expected.problems}
    assert expected.problem_count


def test_a_pruned_log_is_checked_in_one_process(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(chain_process, "MIN_DECISIONS", 1)
    monkeypatch.setattr(chain_process, "_count_cores", lambda: 2)
    log = Log(str(tmp_path / "log.db"))
    bandit, store = log.bandit(), log.open()
    bandit.choose(size=20)
    log.clock.forward(3 * DAY)
    bandit.choose(size=5)
    export_changes(store, tmp_path / "exported", EXPERIMENT)
    assert prune_log(log, tmp_path / "exported", 2.0).decisions == 20
    found = verify(log.where, EXPERIMENT)
    assert found.problems == []
    assert found.chain is not None
    assert found.chain.pruned is not None
    for each in log.opened:
        each.close()
