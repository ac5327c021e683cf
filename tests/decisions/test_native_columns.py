"""Columns that compiled code reads are those of rows, and odd values are refused before they are copied."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maillard.decisions.stores import machine_code, native_columns, sqlite_library
from maillard.decisions.stores.bulk_columns import OddRows, columns_of_rows, id_texts
from maillard.decisions.stores.machine_code import loops
from maillard.decisions.stores.native_columns import NativeColumns

UUID = "0190a3b2-7c1d-7e5f-8a9b-0123456789ab"
VALUES: list[Any] = [
    None, 0, 1, -1, 3, 2**62, 2**62 + 1, 2**63 - 1, -(2**63), 0.0, -0.5, 1.5, 1e-10, 1e-3, float("inf"),
    float("-inf"), 1.7e308, "", "a", "reward", "revision", "gift", "é", "日本\U0001f600", "nul\0byte",
    "x" * 300, UUID,
    UUID.upper(), UUID.replace("-", "x"), UUID[:-1], UUID + "0", UUID[:-1] + "g", "é" * 18, "0" * 36,
    b"", b"a", b"\xff" * 5, b"0" * 36,
]  # fmt: skip
INVALID_TEXTS = (b"\xff", b"\xc3", b"\x80abc", b"a\xed\xa0\x80")  # no UTF-8
TYPES = [
    "whole", "any whole", "time", "truth", "real", "real?", "log", "text", "text?", "name", "name?", "bytes?",
    "kind", "empty", "null", "uuid", "uuid?",
]  # fmt: skip


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    assert loops(build=True) is not None
    with closing(sqlite3.connect(":memory:")) as made:
        made.execute("CREATE TABLE t (v, place INTEGER)")  # any value in any row
        yield made


def fill(connection: sqlite3.Connection, values: list[Any]) -> None:
    connection.execute("DELETE FROM t")
    connection.executemany("INSERT INTO t VALUES (?, ?)", zip(values, range(len(values)), strict=True))


def plain(connection: sqlite3.Connection, kind: str) -> Any:
    try:
        rows = connection.execute("SELECT v FROM t ORDER BY place").fetchall()
        return columns_of_rows(rows, {"v": kind})["v"].tolist()
    except (OddRows, sqlite3.OperationalError):
        return OddRows


def native(connection: sqlite3.Connection, kind: str) -> Any:
    try:
        return NativeColumns(connection).read({"v": kind}, "t ORDER BY place", [])
    except OddRows:
        return OddRows


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_accepts_the_values_that_rows_accept(connection, kind) -> None:
    accepted = []
    for value in VALUES:
        fill(connection, [value])
        expected, found = plain(connection, kind), native(connection, kind)
        assert (found is OddRows) == (expected is OddRows), value
        if expected is not OddRows and kind not in ("empty", "null"):
            np.testing.assert_array_equal(found["v"].tolist(), expected)
        if expected is not OddRows:
            accepted.append(value)
    assert accepted
    fill(connection, accepted * 3)
    if kind not in ("empty", "null"):
        assert repr(native(connection, kind)["v"].tolist()) == repr(plain(connection, kind))
    fill(connection, [*accepted, object_of_another_type(kind)])
    assert native(connection, kind) is OddRows


def object_of_another_type(kind: str) -> Any:
    return b"x" if kind != "bytes?" else 1


@pytest.mark.parametrize("data", INVALID_TEXTS)
@pytest.mark.parametrize("kind", ["text", "text?", "name", "name?", "id", "uuid", "kind"])
def test_texts_that_are_no_utf8(connection, kind, data) -> None:
    for before, after in (([], []), (["a"], ["b"]), ([], ["é"])):
        fill(connection, [*before, None, *after])
        connection.execute("UPDATE t SET v = CAST(? AS TEXT) WHERE v IS NULL", [data])
        assert native(connection, kind) is OddRows


def test_a_character_in_two_texts_is_none(connection) -> None:
    """Together, the bytes of both values are valid."""
    fill(connection, ["x", "y"])
    for place, data in enumerate((b"\xc3", b"\xa9")):
        connection.execute("UPDATE t SET v = CAST(? AS TEXT) WHERE place = ?", [data, place])
    assert native(connection, "text") is OddRows


def test_ids_and_joined_bytes(connection) -> None:
    ids = [str(i).zfill(36) for i in range(50)]
    fill(connection, ids)
    assert native(connection, "id")["v"].tolist() == [each.encode() for each in ids]
    for odd in ("x" * 35, "x" * 37, "x" * 35 + "\0", "é" * 18, None, 5):
        fill(connection, [*ids, odd])
        assert native(connection, "id") is OddRows
    fill(connection, [b"ab", b"", b"c" * 100])
    assert native(connection, "bytes")["v"].tobytes() == b"ab" + b"c" * 100
    data = bytes(range(48))
    fill(connection, id_texts(data).astype(str).tolist())
    assert native(connection, "uuid")["v"].tobytes() == data


def test_every_digit_of_an_id(connection) -> None:
    data = bytes(range(256))
    texts = id_texts(data).astype(str).tolist()
    fill(connection, texts)
    assert native(connection, "uuid")["v"].tobytes() == data
    for place in range(36):
        for odd in "/:`g@AFG\x7f-0":
            fill(connection, [texts[10][:place] + odd + texts[10][place + 1 :]])
            assert (native(connection, "uuid") is OddRows) == (plain(connection, "uuid") is OddRows)


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_each_of_several_columns_must_be_null(connection, odd) -> None:
    names = ["v", "nullif(place, 0)", "v"]
    types = {f"({name})" + " " * place: "null" for place, name in enumerate(names)}
    fill(connection, [None])
    assert NativeColumns(connection).read({**types, "place": "whole"}, "t", [])["place"].tolist() == [0]
    names[odd] = "place"
    types = {f"({name})" + " " * place: "null" for place, name in enumerate(names)}
    with pytest.raises(OddRows):
        NativeColumns(connection).read({**types, "place": "whole"}, "t", [])


def test_more_rows_and_longer_values_than_there_is_room_for(connection, monkeypatch) -> None:
    monkeypatch.setattr(native_columns, "_CAPACITY", 7)
    values = [None if i % 5 == 0 else "é" * (i % 90) * (1 if i % 17 else 40) for i in range(200)]
    fill(connection, values)
    assert native(connection, "text?")["v"].tolist() == values
    fill(connection, [UUID] * 100)
    assert native(connection, "id")["v"].tolist() == [UUID.encode()] * 100
    types = {"place": "whole", "v": "text?", "place * 0.5": "real", "v || 'x'": "name?"}
    fill(connection, values)
    found = NativeColumns(connection).read(types, "t ORDER BY place", [])
    assert found["place"].tolist() == list(range(200))
    assert found["place * 0.5"].tolist() == [i / 2 for i in range(200)]
    assert found["v || 'x'"].tolist() == [None if each is None else f"{each}x" for each in values]


def test_many_names(connection) -> None:
    names = [f"arm {i * i % 3001}" for i in range(5000)]
    fill(connection, names)
    reader = NativeColumns(connection)
    found = reader.read({"v": "name"}, "t ORDER BY place", [])["v"]
    assert found.tolist() == names
    assert len(found.names) == len(set(names))
    assert reader.read({"v": "name"}, "t WHERE place < ? ORDER BY place", [9])["v"].tolist() == names[:9]
    codes = {name: code for code, name in enumerate(names[:100])}
    assert found.translated(codes).tolist() == [codes.get(name, -1) for name in names]


def test_no_rows_and_statements_that_fail(connection) -> None:
    assert native(connection, "text")["v"].tolist() == []
    reader = NativeColumns(connection)
    for source, parameters in (("nowhere", []), ("t WHERE v = ?", [1, 2]), ("t WHERE", [])):
        with pytest.raises(OddRows):
            reader.read({"v": "text"}, source, parameters)
    fill(connection, [-(2**63)])
    with pytest.raises(OddRows):
        reader.read({"abs(v)": "whole"}, "t", [])  # fails in its first step
    connection.execute("DROP TABLE t")  # no statement is left open


@pytest.mark.parametrize("seed", range(3))
def test_places_of_keys(connection, seed) -> None:
    rng = np.random.default_rng(seed)
    reader = NativeColumns(connection)
    among = np.unique(rng.integers(0, 256, (200, 3), np.uint8).view("V3").ravel().view("S3")).view("V3")
    wanted = np.append(rng.permutation(among), np.frombuffer(b"zzz\0\0\0", "V3"))
    place = {key: row for row, key in enumerate(among.tolist())}
    expected = [place.get(key, -1) for key in wanted.tolist()]
    np.testing.assert_array_equal(reader.places(wanted, among), expected)
    np.testing.assert_array_equal(reader.places(among, among), range(among.size))
    assert reader.places(wanted, wanted[::-1].copy()) is None


# The library and the machine code.


def test_a_library_whose_functions_are_hidden(monkeypatch) -> None:
    monkeypatch.setattr(sqlite_library, "_CALLED_BY_COMPILED_CODE", ("sqlite3_is_no_function",))
    assert sqlite_library.library.__wrapped__() is None
    monkeypatch.setattr(machine_code, "_loaded", [])
    monkeypatch.setattr(sqlite_library, "library", lambda: None)
    assert loops(build=True) is None


def test_a_closed_connection_is_refused(connection) -> None:
    reader = NativeColumns(connection)
    connection.close()
    with pytest.raises(OddRows, match="closed"):
        reader.read({"v": "text"}, "t", [])


def test_other_connections_are_refused(connection) -> None:
    class Other(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(":memory:", factory=Other)) as other, pytest.raises(OddRows):
        NativeColumns(other).read({"1": "whole"}, "sqlite_master", [])


def test_machine_code_is_loaded_without_numba(tmp_path, monkeypatch) -> None:
    assert loops(build=True) is not None
    content = machine_code._cached()
    assert content is not None
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert machine_code._cached() is None
    machine_code._save(content)
    program = (
        "import sys; from maillard.decisions.stores.machine_code import loops; "
        "print(loops() is not None, 'numba' in sys.modules)"
    )
    for damage, expected in ((None, "True False"), (b"\0", "False False")):
        (file,) = tmp_path.iterdir()
        if damage is not None:
            file.write_bytes(file.read_bytes()[:-1] + damage + damage)
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == expected


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(machine_code, "_folders", lambda: iter([tmp_path / "file", tmp_path / "folder"]))
    machine_code._save(b"code")
    assert machine_code._cached() == b"code"
    assert [each.parent.name for each in Path(tmp_path).rglob("*.bin")] == ["folder"]


def test_code_that_needs_python_is_not_used() -> None:
    source = (
        "declare void @PyErr_Clear()\n"
        "define i32 @f(i64 %x) {\n  CALL\n  ret i32 0\n}\n"
        "define i64 @cfunc.f(i64 %x) {\n  call void @PyErr_Clear()\n  ret i64 0\n}\n"
    )
    made = machine_code._without_python(source.replace("CALL", ""), "cfunc.f", "maillard_f")
    assert made is not None
    assert "PyErr" not in made
    assert "@maillard_f(" in made
    used = source.replace("CALL", "call void @PyErr_Clear()")
    assert machine_code._without_python(used, "cfunc.f", "maillard_f") is None
