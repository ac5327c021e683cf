"""Addresses of services, and API keys, which no message or log contains."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from maillard.client import Client
from maillard.errors import InvalidValue, MaillardError, Unavailable
from tests.client.faulty_server import (
    DECISION_MADE,
    ID,
    FaultyServer,
    Handler,
    both_clients,
    call_client,
    delay,
    drop,
    error_response,
    faulty_server,
    response,
)

KEY = "mk_id_do-not-show-this-to-anyone"


@pytest.fixture
def service() -> Iterator[FaultyServer]:
    with faulty_server() as made:
        yield made


@both_clients
def test_no_message_or_log_contains_the_key(service, client_class, caplog) -> None:
    caplog.set_level(logging.DEBUG)

    def echo(handler: Handler, body: bytes) -> None:
        response(400, content=json.dumps(dict(handler.headers.items())).encode())(handler, body)

    def quote(handler: Handler, body: bytes) -> None:
        error_response(400, "bad_json", f"What is {handler.headers['authorization']}?")(handler, body)

    messages = [repr(client_class(service.url, KEY))]
    behaviours = (echo, quote, drop, error_response(401, "unauthorized"))
    for behaviour, timeout in [*((each, 60.0) for each in behaviours), (delay(3.0), 1.0)]:
        with pytest.raises(MaillardError) as caught:
            call_client(
                client_class,
                service.respond_with(behaviour).url,
                lambda client: client.choose(),
                key=KEY,
                timeout=timeout,
                retries=0,
            )
        sent = [request.headers["authorization"] for request in service.requests]
        assert sent == [f"Bearer {KEY}"] or timeout == 1.0  # a busy machine may not connect within a second
        messages += [str(caught.value), repr(caught.value)]
    assert "Bearer (key)" in "".join(messages)
    assert KEY not in "".join(messages) + caplog.text


@both_clients
def test_keys_require_https_or_a_loopback_address(client_class) -> None:
    for url in (
        "https://bandits.example",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
        "http://localhost/prefix",
    ):
        assert KEY not in repr(client_class(url, KEY)) + repr(vars(client_class(url, KEY)))
    for url in (
        "http://bandits.example",
        "http://10.0.0.1:8000",
        "http://127.0.0.1.example",
        "http://localhost.example",
    ):
        with pytest.raises(InvalidValue, match="others on the network can read a key") as caught:
            client_class(url, KEY)
        assert KEY not in str(caught.value)
        client_class(url)
        client_class(url, KEY, insecure=True)
    for key in ("", "two words", "line\nbreak", "schlüssel", 17):
        with pytest.raises(InvalidValue, match="not shown"):
            client_class("https://bandits.example", key)


@pytest.mark.parametrize(
    "url",
    [
        None, "", "127.0.0.1:8000", "ftp://bandits.example", "http://", "http:///v1", "http://host:port",
        "http://host:99999",
        "http://host/?a=b", "http://host/#a", "http://host name", "http://h\nost", "http://[::1",
        "https://höst.example",
    ],
)  # fmt: skip
def test_invalid_addresses_are_refused(url) -> None:
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
def test_invalid_options_are_refused(options) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        Client("http://127.0.0.1", **options)


def test_requests_to_loopback_addresses_bypass_the_proxy(service, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:9")
    assert (
        call_client(
            Client, service.respond_with(DECISION_MADE).url, lambda client: client.choose(), key=KEY
        ).id
        == ID
    )


@both_clients
@pytest.mark.parametrize("key", [KEY, None])
def test_a_proxy_never_gets_a_key_over_http(client_class, key, service, monkeypatch) -> None:
    """The name does not exist, so only a proxy can answer."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, service.respond_with(DECISION_MADE).url)

    def choose() -> object:
        return call_client(
            client_class, "http://bandits.invalid", lambda client: client.choose(),
            key=key, insecure=True, retries=0,
        )  # fmt: skip

    if key is None:
        choose()
        assert service.requests
    else:
        with pytest.raises(Unavailable):
            choose()
        assert not service.requests
