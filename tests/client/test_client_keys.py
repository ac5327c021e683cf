"""Addresses, and API keys that show nowhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from maillard.client import Client
from maillard.errors import InvalidValue, MaillardError
from tests.client.misbehaving import (
    CHOSEN,
    ID,
    Handler,
    Misbehaving,
    answer,
    drop,
    either,
    fault,
    misbehaving,
    slow,
    talk,
)

KEY = "mk_id_do-not-show-this-to-anyone"


@pytest.fixture
def service() -> Iterator[Misbehaving]:
    with misbehaving() as made:
        yield made


@either
def test_a_key_shows_nowhere(service, kind, caplog) -> None:
    caplog.set_level(logging.DEBUG)

    def echo(handler: Handler, body: bytes) -> None:
        answer(400, content=json.dumps(dict(handler.headers.items())).encode())(handler, body)

    def tell(handler: Handler, body: bytes) -> None:
        fault(400, "bad_json", f"What is {handler.headers['authorization']}?")(handler, body)

    said = [repr(kind(service.url, KEY))]
    for behaviour in (echo, tell, drop, slow(1.5), fault(401, "unauthorized")):
        with pytest.raises(MaillardError) as caught:
            talk(
                kind,
                service.does(behaviour).url,
                lambda client: client.choose(),
                key=KEY,
                timeout=0.4,
                retries=0,
            )
        assert service.seen[0].headers["authorization"] == f"Bearer {KEY}"
        said += [str(caught.value), repr(caught.value)]
    assert "Bearer (key)" in "".join(said)
    assert KEY not in "".join(said) + caplog.text


@either
def test_keys_go_where_nobody_reads_them(kind) -> None:
    for url in (
        "https://bandits.example",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
        "http://localhost/prefix",
    ):
        assert KEY not in repr(kind(url, KEY)) + repr(vars(kind(url, KEY)))
    for url in (
        "http://bandits.example",
        "http://10.0.0.1:8000",
        "http://127.0.0.1.example",
        "http://localhost.example",
    ):
        with pytest.raises(InvalidValue, match="others on the network can read a key") as caught:
            kind(url, KEY)
        assert KEY not in str(caught.value)
        kind(url)
        kind(url, KEY, insecure=True)
    for key in ("", "two words", "line\nbreak", "schlüssel", 17):
        with pytest.raises(InvalidValue, match="not shown"):
            kind("https://bandits.example", key)


@pytest.mark.parametrize(
    "url",
    [
        None, "", "127.0.0.1:8000", "ftp://bandits.example", "http://", "http:///v1", "http://host:port",
        "http://host:99999",
        "http://host/?a=b", "http://host/#a", "http://host name", "http://h\nost", "http://[::1",
        "https://höst.example",
    ],
)  # fmt: skip
def test_an_address_that_is_none(url) -> None:
    with pytest.raises(InvalidValue, match="url: expected the address of a service"):
        Client(url)


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(InvalidValue, match=r"got 'https://\.\.\.@host/'") as caught:
        Client("https://user:hunter2@host/")
    assert "hunter2" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"timeout": 0}, {"timeout": "1"}, {"timeout": float("nan")}, {"retries": -1}, {"retries": 1.5},
     {"experiment": ""},
     {"insecure": 1}],
)  # fmt: skip
def test_options_that_mean_nothing(options) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        Client("http://127.0.0.1", **options)


def test_a_proxy_does_not_see_what_stays_on_the_machine(service, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:9")
    assert talk(Client, service.does(CHOSEN).url, lambda client: client.choose(), key=KEY).id == ID
