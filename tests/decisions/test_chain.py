"""The hash chain: it covers every row, survives erasure, and shows deletions, insertions and changes."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maillard import Bandit, Reward
from maillard.decisions import Verification, read_log, verify, write_log
from maillard.decisions.chain import FIRST_HASH
from maillard.decisions.chain_verification import ChainReport
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import InvalidValue
from tests.stores import EXPERIMENT, UNIT_RANGE


def fill(bandit: Bandit, rounds: int = 30) -> None:
    for n in range(rounds):
        decision = bandit.choose(unit=f"user-{n % 7}", idempotency_key=f"key-{n}" if n % 3 else None)
        if n % 4:
            bandit.reward(decision.id, float(decision.arm == "red"), event="click" if n % 2 else None)
    bandit.add_arm("green")
    bandit.choose(size=5)


def new_log(folder: Path, **options) -> str:
    folder.mkdir(exist_ok=True)
    path = str(folder / "log.db")
    with Bandit(
        ["red", "blue"], "ms", reward=UNIT_RANGE, log=path, experiment=EXPERIMENT, **options
    ) as bandit:
        fill(bandit)
    return path


def chain_of(found: Verification) -> ChainReport:
    assert found.chain is not None
    return found.chain


def change(path: str, statement: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, parameters).rowcount > 0


def test_every_store_writes_a_chain_that_verify_accepts(log):
    bandit = log.bandit()
    fill(bandit)
    found = verify(log.open(), EXPERIMENT)
    assert found.problems == []
    assert chain_of(found).decisions == found.decisions == 35
    assert chain_of(found).commits > 50
    assert chain_of(found).unchained == chain_of(found).erased == 0


def test_the_hash_of_a_link_is_the_one_that_the_documentation_defines(tmp_path):
    """Computed again from the rows of the tables, without the package."""
    path = new_log(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        rows = {row["id"]: row for row in _dicts(connection, "SELECT * FROM decisions")}
        links = _dicts(connection, "SELECT * FROM links ORDER BY number")
        events = {row["number"]: row for row in _dicts(connection, "SELECT * FROM events")}
        rewards = _dicts(connection, "SELECT * FROM rewards")
        names = dict(connection.execute("SELECT arms, names FROM arm_lists"))
        vectors = {(row["state"], row["variant"]): row for row in _dicts(connection, "SELECT * FROM vectors")}
    previous = FIRST_HASH
    for link in links:
        ids = [link["decisions"][start : start + 16].hex() for start in range(0, len(link["decisions"]), 16)]
        made = sorted(_decision(row, vectors, names) for row in rows.values() if _hex(row["id"]) in ids)
        numbers = range(link["first_event"], link["first_event"] + link["events"])
        changed = [_event(events[number]) for number in numbers]
        keys = {link["rewards"][start : start + 24] for start in range(0, len(link["rewards"]), 24)}
        paid = sorted(record for record in map(_reward, rewards) if record[:24] in keys)
        counts = b"maillard chain 1" + struct.pack("<qqq", len(made), len(changed), len(paid))
        digest = hashlib.sha256(counts + b"".join(made + changed + paid)).digest()
        previous = hashlib.sha256(previous + digest).digest()
        assert link["hash"] == previous


def _dicts(connection: sqlite3.Connection, statement: str) -> list[dict[Any, Any]]:
    cursor = connection.execute(statement)
    return [dict(zip([name for name, *_ in cursor.description], row, strict=True)) for row in cursor]


def _hex(identifier: str) -> str:
    return identifier.replace("-", "")


def _texts(*texts: str | None) -> bytes:
    encoded = [
        b"\0" if each is None else b"\1" + str(len(each)).encode() + b":" + each.encode() for each in texts
    ]
    return hashlib.sha256(b"".join(encoded)).digest()


def _sealed(salt: bytes, unit: str | None, key: str | None) -> bytes:
    texts = ["\0" if each is None else f"\1{len(each)}:{each}" for each in (unit, key)]
    return hashlib.sha256(salt + "".join(texts).encode()).digest()


def _decision(row: dict[Any, Any], vectors: dict[Any, Any], names: dict[Any, Any]) -> bytes:
    vector = vectors[row["state"], row["variant"]]
    arms = names[vector["arms"]]
    sealed = bytes(32)
    if row["seal"] is not None:
        sealed = _sealed(row["seal"], row["unit"], row["idempotency_key"])
    columns = ("time", "state", "epoch", "policy_version", "formula_version", "position")
    numbers = [row[name] for name in columns]
    return (
        bytes.fromhex(_hex(row["id"]))
        + sealed
        + hashlib.sha256(arms.encode() + b"\0" + vector["data"]).digest()
        + bytes.fromhex(_hex(row["origin"] or "0" * 32))
        + struct.pack("<7q", *numbers, json.loads(arms).index(row["arm"]))
        + struct.pack("<d?", row["log_probability"], bool(row["cold"]))
    )


def _event(row: dict[Any, Any]) -> bytes:
    present = (row["value"] is not None) + 2 * (row["previous"] is not None)
    return (
        struct.pack(
            "<qqddB", row["number"], row["time"], row["value"] or 0.0, row["previous"] or 0.0, present
        )
        + bytes.fromhex(_hex(row["decision"] or "0" * 32))
        + _texts(row["kind"], row["arm"], row["payload"])
    )


def _reward(row: dict[Any, Any]) -> bytes:
    event = bytes(32) if row["event"] == row["decision"] else _texts(row["event"])
    numbers = struct.pack("<dqq?", row["value"], row["at"], row["arrived"], bool(row["late"]))
    return bytes.fromhex(_hex(row["decision"])) + event + numbers


ONE = "(SELECT id FROM decisions WHERE id NOT IN (SELECT decision FROM rewards) ORDER BY id LIMIT 1 OFFSET 3)"
TAMPERING = {
    "a deleted decision": (f"DELETE FROM decisions WHERE id = {ONE}", "was deleted"),
    "a renamed unit": (f"UPDATE decisions SET unit = 'other' WHERE id = {ONE}", "was changed"),
    "an unsealed unit": (f"UPDATE decisions SET seal = NULL WHERE id = {ONE}", "was changed"),
    "another time": (f"UPDATE decisions SET time = time + 1 WHERE id = {ONE}", "was changed"),
    "another reward time": ("UPDATE rewards SET at = at - 1 WHERE rowid_is_absent", "was changed"),
    "an author of a change": (
        "UPDATE events SET payload = replace(payload, 'green', 'GREEN') WHERE kind = 'add_arm'",
        "was changed",
    ),
    "a deleted link": ("DELETE FROM links WHERE number = 20", "commit 20 of the chain is missing"),
    "a changed link": ("UPDATE links SET hash = zeroblob(32) WHERE number = 20", "was changed"),
}


@pytest.mark.parametrize("what", TAMPERING)
def test_verify_finds(what, tmp_path):
    statement, problem = TAMPERING[what]
    some = "decision = (SELECT min(decision) FROM rewards)"
    path = new_log(tmp_path)
    change(path, statement.replace("rowid_is_absent", some))
    found = verify(path)
    assert found.verdict == "broken"
    assert any(problem in each.what for each in found.problems)


def test_verify_finds_rows_that_were_added_from_outside(tmp_path):
    path = new_log(tmp_path)
    columns = "experiment, time, unit, arm, log_probability, eligible, log_probabilities, policy_version, "
    columns += "formula_version, state, epoch, cold, idempotency_key, position, origin, variant, seal"
    one = f"SELECT '0199c0de-0000-7000-8000-000000000000', {columns} FROM decisions WHERE id = {ONE}"
    change(path, f"INSERT INTO decisions (id, {columns}) {one.replace('idempotency_key', 'NULL')}")
    assert "1 decisions are not in the chain: they were added from outside" in _problems(path)


def test_deleting_many_rows_and_cutting_off_the_end_are_found(tmp_path):
    path = new_log(tmp_path)
    head = chain_of(verify(path))
    change(path, "DELETE FROM decisions WHERE id NOT IN (SELECT decision FROM rewards)")
    assert verify(path).problem_count >= 8
    # An attacker who also removes the last links and moves the end leaves a shorter, consistent log ...
    path = new_log(tmp_path.joinpath("cut"))
    complete = chain_of(verify(path))
    change(path, "DELETE FROM decisions WHERE state = (SELECT max(state) FROM decisions)")
    change(path, "DELETE FROM links WHERE number = (SELECT max(number) FROM links)")
    assert "the chain ends with commit" in verify(path).problems[0].what
    last = "(SELECT number, hash FROM links ORDER BY number DESC LIMIT 1)"
    change(path, f"UPDATE chains SET (number, hash) = {last}")
    assert verify(path).problems == []
    # ... but a published head reveals it.
    found = verify(path, anchor=complete.head)
    assert "does not extend the published head" in found.problems[0].what
    assert head.head != complete.head


def _problems(path: str) -> list[str]:
    return [each.what for each in verify(path).problems]


def test_a_log_extends_every_head_that_it_had(tmp_path):
    path = str(tmp_path / "log.db")
    heads = []
    with Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=path, experiment=EXPERIMENT) as bandit:
        for _ in range(5):
            bandit.choose()
            heads.append(bandit.head())
        for head in heads:
            found = verify(bandit, anchor=head.hash.upper())
            assert (found.problems, chain_of(found).anchor) == ([], head.commit)
    assert [head.commit for head in heads] == [2, 3, 4, 5, 6]
    with pytest.raises(InvalidValue, match="64 hexadecimal digits"):
        verify(path, anchor="f00")


def test_a_file_has_no_chain_to_compare_an_anchor_with(tmp_path):
    path = new_log(tmp_path)
    target = tmp_path / "log.csv"
    write_log(read_log(path), target)
    assert verify(target).chain is None
    with pytest.raises(InvalidValue, match="no hash chain"):
        verify(target, anchor="0" * 64)


def test_erasing_a_unit_keeps_the_chain_and_deletes_the_salt(log):
    bandit = log.bandit()
    fill(bandit)
    before = bandit.head()
    assert bandit.erase_unit("user-3") == 4
    found = verify(log.open(), EXPERIMENT, anchor=before.hash)
    assert found.problems == []
    assert chain_of(found).erased == 4
    assert "user-3" not in str(log.contents())


def test_erased_rows_store_a_commitment_that_nobody_can_reverse_without_the_salt(tmp_path):
    path = new_log(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        (salts,) = zip(*connection.execute("SELECT seal FROM decisions WHERE unit = 'user-3'"), strict=True)
    with Bandit(log=path, experiment=EXPERIMENT) as bandit:
        bandit.erase_unit("user-3")
    data = Path(path).read_bytes()
    assert all(len(salt) == 16 and salt not in data for salt in salts)
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT seal FROM decisions WHERE unit LIKE 'erased-%'").fetchall()
    assert sorted(found) == sorted(
        (_sealed(salt, "user-3", key),) for salt, key in zip(salts, _keys_of(path, "user-3"), strict=True)
    )


def _keys_of(path: str, unit: str) -> list[str | None]:
    numbers = range(int(unit.removeprefix("user-")), 30, 7)
    return [f"key-{n}" if n % 3 else None for n in numbers]


def test_a_log_from_before_the_chain_says_how_many_decisions_it_does_not_cover(tmp_path):
    old = Path(__file__).parent / "old_logs" / "both.db"
    path = tmp_path / "old.db"
    path.write_bytes(old.read_bytes())
    name = SQLiteStore(path).experiments()[0]
    before = verify(path, name)
    assert (chain_of(before).commits, chain_of(before).unchained) == (0, before.decisions)
    with Bandit(log=path, experiment=name) as bandit:
        bandit.choose(size=3)
    after = verify(path, name)
    assert after.problems == []
    assert (chain_of(after).decisions, chain_of(after).unchained) == (3, before.decisions)


def test_late_revised_and_default_rewards_are_in_the_chain(log):
    rule = Reward(low=0, high=1, window=60, default=0, combine="max", learn="provisional")
    bandit = log.bandit(reward=rule)
    rows = bandit.choose(size=6)
    for row in rows[:3]:
        bandit.reward(row.id, 0.5, event="view")
    bandit.reward(rows[0].id, 1.0, event="click")
    log.clock.forward(61)
    bandit.reward(rows[1].id, 1.0, event="late")
    bandit.settle()
    assert verify(bandit).problems == []
