"""API keys: creation, scopes, revocation, and damaged documents."""

from __future__ import annotations

import hashlib
import json
import re
import string
import subprocess
import sys
import threading
from contextlib import closing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maillard.decisions.stores import Store, open_store
from maillard.decisions.stores.memory import MemoryStore
from maillard.errors import InvalidValue, UnknownName
from maillard.service.api_keys import (
    SCOPES,
    Key,
    Keyring,
    check_any_made,
    check_no_keys,
    create,
    create_first,
    every,
    revoke,
    unreadable,
)
from maillard.wire_schema.loopback import is_loopback
from tests.stores import Log


def documents(store: Store) -> dict[str, str]:
    with store.reading("") as transaction:
        return transaction.documents("key")


def put(store: Store, name: str, content: str) -> None:
    with store.transaction("", lock=False) as transaction:
        transaction.put_document("key", name, content)


def test_creating_and_revoking_a_key(log: Log) -> None:
    """In every store, and visible to other connections to it."""
    store, other = log.open(), log.open()
    ring = Keyring(other)
    assert (ring.any_made, every(store)) == (False, [])
    key, secret = create(store, "web", ["reward", "decide"], ["home"], 100)
    assert ring.find(secret) is None
    ring.refresh()
    assert (ring.any_made, ring.find(secret)) == (True, key)
    assert every(other) == [key]
    assert (key.scopes, key.experiments, key.rate) == (("decide", "reward"), ("home",), 100.0)
    assert (key.created, key.revoked) == (log.clock.now, None)
    log.clock.forward(60)
    ended = revoke(store, key.id)
    assert ended.revoked == log.clock.now
    assert ring.find(secret) == key  # until the next refresh
    ring.refresh()
    assert ring.find(secret) is None
    assert ring.any_made
    log.clock.forward(60)
    assert revoke(other, key.id) == ended == every(store)[0]


def test_the_secret_is_not_stored(tmp_path) -> None:
    path = tmp_path / "maillard.db"
    with closing(open_store(path)) as store:
        key, secret = create(store, "web", ["admin"])
        content = documents(store)[key.id]
        random = secret.rpartition(key.id + "_")[2]
        assert json.loads(content)["digest"] == hashlib.sha256(secret.encode()).hexdigest()
        for stored in (
            content,
            repr(key),
            *(file.read_bytes().decode("latin-1") for file in tmp_path.iterdir()),
        ):
            assert random not in stored
            assert random[10:30] not in stored


def test_the_format_and_randomness_of_secrets() -> None:
    store = MemoryStore()
    made = [create(store, "x", ["read"]) for _ in range(300)]
    assert len({key.id for key, _ in made}) == len({secret for _, secret in made}) == 300
    for key, secret in made:
        assert re.fullmatch(rf"mk_{key.id}_[A-Za-z0-9_-]{{43}}", secret)
        assert re.fullmatch(r"[0-9a-f]{12}", key.id)
    bits = "".join(secret[-43:-1] for _, secret in made)
    assert set(bits) == set(string.ascii_letters + string.digits + "-_")
    ring = Keyring(store)
    assert [ring.find(secret) for _, secret in made] == [key for key, _ in made]


def test_only_the_exact_secret_is_accepted() -> None:
    store = MemoryStore()
    key, secret = create(store, "one", ["read"])
    other, second = create(store, "two", ["read"])
    ring = Keyring(store)
    wrong = [
        "", "mk_", secret[:-1], secret + "x", secret + " ", secret.upper(), secret.replace("mk", "km"),
        key.id, key.digest, f"mk_{key.id}_{key.digest[:43]}", f"mk_{key.id}_{second[-43:]}",
        f"mk_{other.id}_{secret[-43:]}", secret[:-1] + "é", secret[:-1] + "\ud800", secret[:-1] + "\0",
        "\ud800" * len(secret), "x" * 30_000,
    ]  # fmt: skip
    for place in range(len(secret)):
        changed = "A" if secret[place] != "A" else "B"
        wrong.append(secret[:place] + changed + secret[place + 1 :])
    assert [each for each in wrong if ring.find(each) is not None] == []
    assert ring.find(secret) == key


@given(st.text())
def test_arbitrary_text_is_rejected(text: str) -> None:
    store = MemoryStore()
    key, _ = create(store, "one", ["read"])
    ring = Keyring(store)
    assert ring.find(text) is None
    assert ring.find(f"mk_{key.id}_{text}") is None


def test_scopes_and_experiments() -> None:
    def key(*scopes: str, experiments=None) -> Key:
        return create(MemoryStore(), "x", scopes, experiments)[0]

    for scope in SCOPES:
        allowed = [each for each in SCOPES if key(scope).may(each)]
        assert allowed == (list(SCOPES) if scope == "admin" else [scope])
    assert [key("decide", "read").may(scope) for scope in SCOPES] == [True, False, True, False]
    assert not key("read").may("rea")
    assert key("read").reaches("anything")
    limited = key("admin", experiments=["home", "shop"])  # an administrator of these experiments only
    assert [limited.reaches(name) for name in ("home", "shop", "hom", "")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name: expected a string of 1 to 512 characters"),
        ({"name": "x" * 513}, "name: expected"),
        ({"name": "a\0b"}, "name: expected"),
        ({"name": None}, "name: expected"),
        ({"scopes": []}, "scopes: expected one or more of decide, reward, read, admin, got \\[\\]"),
        ({"scopes": ["decide", "write"]}, "scopes: expected .*, got 'write'"),
        ({"scopes": "admin"}, "scopes: expected .*, got 'admin'"),
        ({"scopes": ["Admin"]}, "scopes: expected"),
        ({"experiments": []}, "experiments: expected one or more names"),
        ({"experiments": "home"}, "experiments: expected"),
        ({"experiments": ["home", ""]}, "experiments: expected"),
        ({"rate": 0}, "rate: expected requests per second, more than 0"),
        ({"rate": -1}, "rate: expected"),
        ({"rate": float("nan")}, "rate: expected"),
        ({"rate": float("inf")}, "rate: expected"),
        ({"rate": True}, "rate: expected"),
        ({"rate": "fast"}, "rate: expected"),
    ],
)
def test_invalid_arguments_of_a_key(options, message) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidValue, match=message):
        create(store, **{"name": "web", "scopes": ["decide"], **options})
    assert documents(store) == {}


def test_revoking_an_unknown_key() -> None:
    store = MemoryStore()
    key, _ = create(store, "web", ["decide"])
    with pytest.raises(UnknownName, match=f"key: unknown name '{key.id[:-1]}'. Did you mean '{key.id}'"):
        revoke(store, key.id[:-1])


def test_unusual_names_of_keys(log: Log) -> None:
    store = log.open()
    names = ["Ünïcödé ✓", '"quotes" \\ back', "\x1b[31m", "line\nbreak", "x" * 512]
    for name in names:
        create(store, name, ["read"], [name])
        log.clock.forward(1)
    assert [key.name for key in every(store)] == names
    assert all(key.reaches(name) for key, name in zip(every(store), names, strict=True))


# Damaged documents.

WHOLE: dict[str, Any] = {
    "id": "0123456789ab", "name": "x", "scopes": ["admin"], "experiments": None, "rate": None, "created": 1,
    "revoked": None, "digest": hashlib.sha256(b"mk_0123456789ab_" + b"A" * 43).hexdigest(),
}  # fmt: skip
MISSING: Any = object()
SECRET = "mk_0123456789ab_" + "A" * 43


def test_the_undamaged_document_is_accepted() -> None:
    """The undamaged document works; otherwise the tests of damaged ones would prove nothing."""
    store = MemoryStore()
    put(store, "0123456789ab", json.dumps(WHOLE))
    assert Keyring(store).find(SECRET) is not None


@pytest.mark.parametrize(
    "damage",
    [
        *({name: value} for name in WHOLE for value in (MISSING, {"x": 1}, [1])),
        {"id": "ba9876543210"},
        {"id": "0123456789AB"},
        {"name": ""},
        {"scopes": ["everything"]},
        {"scopes": "admin"},
        {"experiments": [None]},
        {"experiments": "home"},
        {"rate": 0},
        {"rate": "1"},
        {"rate": -1},
        {"created": "1"},
        {"revoked": False},
        {"revoked": 17},
        {"revoked": ""},
        {"digest": WHOLE["digest"].upper()},
        {"digest": WHOLE["digest"][:-1]},
        {"digest": ""},
        {"digest": None},
        {"valid_until": 5},  # a field of a newer version
    ],
)
def test_an_invalid_document_is_not_a_key(damage) -> None:
    store = MemoryStore()
    content = {name: value for name, value in {**WHOLE, **damage}.items() if value is not MISSING}
    put(store, "0123456789ab", json.dumps(content))
    key, secret = create(store, "sound", ["read"])
    ring = Keyring(store)
    assert ring.find(SECRET) is None
    assert ring.find(secret) == key
    if damage != {"revoked": 17}:
        assert every(store) == [key]
        assert unreadable(store) == ["0123456789ab"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "[]", "0", '"x"', "[" * 100_000, '{"a":' * 50_000, json.dumps(WHOLE)[:-1], "\0", "NaN"],
)
def test_a_document_that_is_not_json_is_not_a_key_but_requires_keys(content) -> None:
    """It may have been a key, so the service does not allow requests without a key."""
    store = MemoryStore()
    put(store, "0123456789ab", content)
    ring = Keyring(store)
    assert ring.any_made
    assert ring.find(SECRET) is None
    assert (every(store), unreadable(store)) == ([], ["0123456789ab"])
    with pytest.raises(UnknownName):
        revoke(store, "0123456789ab")
    check_any_made(store)
    with pytest.raises(InvalidValue, match="a database without API keys"):
        check_no_keys(store, "127.0.0.1")
    assert create_first(store, pytest.fail) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(list(WHOLE)), inner),
    )
)
@settings(max_examples=30)
def test_arbitrary_json_is_not_a_key(content) -> None:
    store = MemoryStore()
    put(store, "0123456789ab", json.dumps(content))
    assert Keyring(store).find(SECRET) is None


def test_a_document_under_another_name_is_not_a_key() -> None:
    store = MemoryStore()
    put(store, "000000000000", json.dumps(WHOLE))
    assert Keyring(store).find(SECRET) is None


def test_a_key_that_is_damaged_later_is_rejected() -> None:
    store = MemoryStore()
    key, secret = create(store, "web", ["read"])
    ring = Keyring(store)
    put(store, key.id, documents(store)[key.id][:-5])
    ring.refresh()
    assert ring.find(secret) is None


def test_deleted_keys_do_not_allow_requests_without_a_key() -> None:
    store = MemoryStore()
    create(store, "web", ["read"])
    ring = Keyring(store)
    store._tables.documents.clear()
    ring.refresh()
    assert ring.any_made


def test_threads_look_up_keys_during_a_refresh() -> None:
    store = MemoryStore()
    key, secret = create(store, "web", ["read"])
    ring, done, found = Keyring(store), threading.Event(), []

    def look_up() -> None:
        while not done.is_set():
            found.append(ring.find(secret))

    threads = [threading.Thread(target=look_up) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(50):
        create(store, f"another {n}", ["read"])
        ring.refresh()
    done.set()
    for thread in threads:
        thread.join()
    assert set(found) == {key}


def test_processes_create_keys_concurrently(tmp_path) -> None:
    path = str(tmp_path / "maillard.db")
    open_store(path).close()
    program = (
        "import sys\n"
        "from maillard.decisions.stores import open_store\n"
        "from maillard.service.api_keys import create\n"
        "store = open_store(sys.argv[1])\n"
        "for _ in range(10): print(create(store, 'x', ['read'])[1])\n"
    )
    made = [
        subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    secrets = [secret for process in made for secret in process.communicate()[0].split()]
    with closing(open_store(path)) as store:
        ring = Keyring(store)
        assert len({key.id for secret in secrets if (key := ring.find(secret))}) == 20


# The first key.


def test_the_first_key_is_created_once(log: Log) -> None:
    """In every store. Only its hash is stored, and any key prevents it, also a revoked one."""
    store, other = log.open(), log.open()
    shown: list[str] = []
    with pytest.raises(InvalidValue, match="a database with an API key"):
        check_any_made(store)
    key = create_first(store, shown.append)
    assert key is not None
    assert (key.name, key.scopes, key.experiments, key.rate) == ("first admin key", ("admin",), None, None)
    (secret,) = shown
    assert Keyring(other).find(secret) == key
    assert secret not in str(documents(other))
    assert create_first(other, pytest.fail) is None
    revoke(store, key.id)
    assert create_first(other, pytest.fail) is None
    check_any_made(other)


def test_no_key_is_created_if_it_cannot_be_shown(log: Log) -> None:
    def fail(_secret: str) -> None:
        raise OSError

    store = log.open()
    with pytest.raises(OSError):  # noqa: PT011
        create_first(store, fail)
    assert documents(store) == {}
    assert create_first(store, lambda _secret: None) is not None


def test_concurrent_first_starts_create_one_key(log: Log) -> None:
    stores, ready = [log.open() for _ in range(4)], threading.Barrier(4)
    shown: list[str] = []

    def start(store: Store) -> None:
        ready.wait()
        create_first(store, shown.append)

    threads = [threading.Thread(target=start, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shown) == len(every(stores[0])) == 1
    assert Keyring(stores[0]).find(shown[0]) is not None


# Services without keys.


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "::1", "[::1]", "0:0:0:0:0:0:0:1"]
)
def test_without_keys_a_service_may_listen_on_loopback(host) -> None:
    assert is_loopback(host)
    check_no_keys(MemoryStore(), host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "[::]", "192.168.0.1", "128.0.0.1", "example.com", "localhost.example.com",
             "127.0.0.1 ", "127.0.0.1.nip.io", "2130706433", "0x7f.1", "::ffff:1.2.3.4", "fe80::1"],
)  # fmt: skip
def test_without_keys_a_service_may_not_listen_elsewhere(host) -> None:
    assert not is_loopback(host)
    store = MemoryStore()
    with pytest.raises(InvalidValue, match="loopback address with --no-keys"):
        check_no_keys(store, host)


def test_without_keys_a_service_may_not_use_a_database_with_keys() -> None:
    store = MemoryStore()
    key, _ = create(store, "web", ["decide"])
    for _ in range(2):  # with a valid key, then with a revoked one
        with pytest.raises(InvalidValue, match="a database without API keys with --no-keys"):
            check_no_keys(store, "127.0.0.1")
        revoke(store, key.id)


def test_a_key_can_be_encoded_and_decoded() -> None:
    key, _ = create(MemoryStore(), "web", SCOPES, ["b", "a", "b"], 2.5)
    assert msgspec.json.decode(msgspec.json.encode(key), type=Key) == key
    assert key.experiments == ("a", "b")
