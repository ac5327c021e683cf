"""Invalid requests to `maillard serve` get a JSON error with a code, a message and the path of the field."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx2
import pytest

from benchmarks.load import request as written
from maillard.service.operations import OPERATIONS
from tests.service.raw_http import (
    error,
    error_summary,
    open_connection,
    parse_responses,
    receive_all,
    send_raw,
)
from tests.serving import Service, serving
from tests.stores import new_id

EXPERIMENTS = "/v1/experiments"
HOME = f"{EXPERIMENTS}/home"
DECISIONS = f"{HOME}/decisions"
NEW = {"experiment": "other", "arms": ["red", "blue"], "policy": "ms+", "reward": {"low": 0, "high": 1}}
OLD_DECISION = "00000000-0000-7000-8000-000000000000"  # an id from 1970
ANY_VERSION = {"If-Match": "*"}
CLOSE = "Connection: close\r\n"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("input") / "log.db", options=["--rate-limit", "0"]) as made:
        yield made


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.url, timeout=120) as made:
        assert made.post(EXPERIMENTS, json=NEW | {"experiment": "home"}).status_code == 201
        yield made


@pytest.fixture(scope="module")
def decision(client: httpx2.Client) -> str:
    return str(client.post(DECISIONS, json={}).json()["id"])


def service_state(client: httpx2.Client) -> tuple[list[str], str, int]:
    """The names of all experiments, and the configuration of `home` with the number of its last event."""
    names = [each["experiment"] for each in client.get(EXPERIMENTS).json()["experiments"]]
    return names, client.get(HOME).text, client.get(f"{HOME}/state").json()["state"]


@pytest.fixture(scope="module")
def before(client: httpx2.Client) -> tuple[list[str], str, int]:
    return service_state(client)


@pytest.fixture(autouse=True)
def check_unchanged(client: httpx2.Client, before: tuple[list[str], str, int]) -> Iterator[None]:
    """Assert that rejected requests change nothing and that the service still responds."""
    yield
    assert service_state(client) == before


# Values.


def new(**fields: Any) -> tuple[str, str, Any]:
    return "POST", EXPERIMENTS, NEW | fields


def rule(**fields: Any) -> tuple[str, str, Any]:
    return new(reward=fields)


def decide(**fields: Any) -> tuple[str, str, Any]:
    return "POST", DECISIONS, fields


def batch(*items: Any) -> tuple[str, str, Any]:
    return "POST", f"{DECISIONS}:batch", {"decisions": list(items)}


def reward(**fields: Any) -> tuple[str, str, Any]:
    return "PUT", "/v1/decisions/{decision}/reward", {"value": 1} | fields


def rewards(*items: Any) -> tuple[str, str, Any]:
    return "POST", "/v1/rewards:batch", {"rewards": list(items)}


def change(policy: Any, **fields: Any) -> tuple[str, str, Any]:
    return "PATCH", HOME, {"policy": policy} | fields


def evaluation(target: Any, **fields: Any) -> tuple[str, str, Any]:
    return "POST", f"{HOME}/evaluations", {"target": target} | fields


def named(table: list[Any]) -> list[str]:
    return [f"{number}: {call[0]} {path}" for number, (call, path) in enumerate(table)]


WRONG = [
    (new(experiment=""), "$.experiment"),
    (new(experiment="a/b"), "$.experiment"),
    (new(experiment="a:pause"), "$.experiment"),
    (new(experiment=".."), "$.experiment"),
    (new(experiment="a\n"), "$.experiment"),
    (new(experiment="é"), "$.experiment"),
    (new(experiment="a\0"), "$.experiment"),
    (new(experiment="k" * 129), "$.experiment"),
    (new(experiment=1), "$.experiment"),
    (new(arms=[]), "$.arms"),
    (new(arms="red"), "$.arms"),
    (new(arms=["red", "blue", 3]), "$.arms[2]"),
    (new(arms=["red", ""]), "$.arms[1]"),
    (new(arms=["red", "x" * 513]), "$.arms[1]"),
    (new(arms=["red", "red"]), "$.arms"),
    (new(arms=["red", "blu\0e"]), "$.arms"),
    (new(arms=[str(n) for n in range(1001)]), "$.arms"),
    (new(policy=""), "$.policy"),
    (new(policy="no such"), "$.policy"),
    (new(policy="ms\0"), "$.policy"),
    (new(policy="ms+:booster=-1"), "$.policy"),
    (new(policy="ms+:booster=nan"), "$.policy"),
    (new(policy="ms+:booster=1e999"), "$.policy"),
    (new(policy="ms+:booster="), "$.policy"),
    (new(policy="ms+:boster=8"), "$.policy"),
    (new(policy="ms+:floor=2"), "$.policy"),
    (new(policy="ms+," * 600), "$.policy"),
    (new(policy=["ms+"]), "$.policy"),
    (new(policy="ms+", reward={}), "$.policy"),  # needs a range or a sigma2
    (new(reward=None), "$.reward"),
    (new(sticky="yes"), "$.sticky"),
    (new(sticky=None), "$.sticky"),
    (rule(low=1, high=0), "$.reward.low"),
    (rule(low="0"), "$.reward.low"),
    (rule(low=True), "$.reward.low"),
    (rule(low=0, high=1e291), "$.reward.low"),
    (rule(low=1, high=2, combine="sum"), "$.reward.low"),
    (rule(window=0), "$.reward.window"),
    (rule(window=1e300), "$.reward.window"),
    (rule(default=0.5), "$.reward.window"),
    (rule(learn="on_close"), "$.reward.window"),
    (rule(learn="soon"), "$.reward.learn"),
    (rule(low=0, high=1, window=9, default=2), "$.reward.default"),
    (rule(combine="mean"), "$.reward.combine"),
    (("POST", EXPERIMENTS, {"experiment": "other", "arms": ["red"]}), "$.policy"),
    (("POST", EXPERIMENTS, []), "$"),
    (("POST", EXPERIMENTS, None), "$"),
    (decide(unit=""), "$.unit"),
    (decide(unit=7), "$.unit"),
    (decide(unit="a\0"), "$.unit"),
    (decide(unit="u" * 513), "$.unit"),
    (decide(eligible=[]), "$.eligible"),
    (decide(eligible="red"), "$.eligible"),
    (decide(eligible=["red", 7]), "$.eligible[1]"),
    (decide(eligible=["mauve"]), "$.eligible"),
    (decide(eligible=["r\0"]), "$.eligible"),
    (batch({"unit": "a"}, {"unit": 7}), "$.decisions[1].unit"),
    (batch({}, {}, {"eligible": ["red", ""]}), "$.decisions[2].eligible[1]"),
    (batch({"idempotency_key": ""}), "$.decisions[0].idempotency_key"),
    (batch(*[{}] * 1001), "$.decisions"),
    (("POST", f"{DECISIONS}:batch", {"decisions": {}}), "$.decisions"),
    (("POST", f"{DECISIONS}:batch", {}), "$.decisions"),
    (reward(value=1.5), "$.value"),
    (reward(value=-0.001), "$.value"),
    (reward(value="1"), "$.value"),
    (reward(value=True), "$.value"),
    (reward(value=None), "$.value"),
    (reward(event=""), "$.event"),
    (reward(event="a\0"), "$.event"),
    (reward(at=-1), "$.at"),
    (reward(at=1e12), "$.at"),
    (reward(at=True), "$.at"),
    (reward(at="yesterday"), "$.at"),
    (reward(at="2026-01-01T00:00:00"), "$.at"),  # without a time zone
    (reward(at="2026-13-01T00:00:00Z"), "$.at"),
    (reward(at="0001-01-01T00:00:00+12:00"), "$.at"),
    (reward(at="9999-12-31T23:59:59-12:00"), "$.at"),
    (("PUT", "/v1/decisions/{decision}/reward", {}), "$.value"),
    (("PUT", "/v1/decisions/nobody/reward", {"value": 1}), "$.decision"),
    (("PUT", "/v1/decisions/00000000-0000-4000-8000-000000000000/reward", {"value": 1}), "$.decision"),
    (rewards({"decision": "nobody", "value": 1}), "$.rewards[0].decision"),
    (rewards({"value": 1}), "$.rewards[0].decision"),
    (rewards(*[{"decision": OLD_DECISION, "value": "x"}] * 2), "$.rewards[0].value"),
    (rewards(*[{"decision": OLD_DECISION, "value": 1}] * 1001), "$.rewards"),
    (change("no such"), "$.policy"),
    (change("ms+:booster=0"), "$.policy"),
    (change("ms-exponential-family:family=x"), "$.policy"),
    (change(None), "$.policy"),
    (("PATCH", HOME, {}), "$"),
    (("POST", f"{HOME}/arms", {"arm": "red"}), "$.arm"),
    (("POST", f"{HOME}/arms", {"arm": ""}), "$.arm"),
    (("POST", f"{HOME}/arms", {"arm": "a\0"}), "$.arm"),
    (("POST", f"{HOME}/arms", {"arm": ["green"]}), "$.arm"),
    (("DELETE", f"{HOME}/arms/mauve", None), "$.arm"),
    (("DELETE", f"{HOME}/arms/%00", None), "$.arm"),
    (("DELETE", f"{HOME}/arms/", None), "$.arm"),
    (("GET", "/v1/decisions/nobody", None), "$.decision"),
    (("GET", f"/v1/decisions/{'9' * 5000}", None), "$.decision"),
    (evaluation(""), "$.target"),
    (evaluation("no such"), "$.target"),
    (evaluation("arm:mauve"), "$.target"),
    (evaluation("dist:red=2"), "$.target"),
    (evaluation("/etc/passwd"), "$.target"),
    (evaluation("a\0"), "$.target"),
    (evaluation("x" * 20_001), "$.target"),
    (evaluation("arm:red", estimators=["guess"]), "$.estimators"),
    (evaluation("arm:red", estimators=[]), "$.estimators"),
    (evaluation("arm:red", estimators=["ips"] * 41), "$.estimators"),
    (evaluation("arm:red", confidence=1), "$.confidence"),
    (evaluation("arm:red", confidence=0), "$.confidence"),
    (("GET", f"{EXPERIMENTS}?archived=maybe", None), "?archived"),
    (("GET", f"{EXPERIMENTS}?archived=%ff%00", None), "?archived"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "path"), WRONG, ids=named(WRONG))
def test_invalid_values(client, decision, call, path) -> None:
    method, where, body = call
    content = None if method in ("GET", "DELETE") else json.dumps(body).encode()
    response = client.request(
        method, where.format(decision=decision), content=content, headers=JSON | ANY_VERSION
    )
    unknown = response.json()["error"].get("known")
    assert error_summary(response) == (422, "invalid_value" if unknown is None else "unknown_name", path)


def test_an_unknown_name_is_reported_with_its_kind_and_the_known_names(client) -> None:
    """A client does not have to parse the message."""
    found = error(client.post(DECISIONS, json={"eligible": ["red", "purple"]}))
    assert (found["code"], found["kind"], found["name"]) == ("unknown_name", "eligible arm", "purple")
    assert "red" in found["known"]


UNKNOWN = [
    (new(colour=1), "$.colour"),
    (rule(low=0, high=1, lo=1), "$.reward.lo"),
    (new(**{"a.b ü\0": 1}), "$.a.b ü\0"),
    (decide(content={"secret": 1}), "$.content"),
    (decide(idempotency_key="k"), "$.idempotency_key"),  # for a single decision it is a header
    (batch({}, {"who": 1}), "$.decisions[1].who"),
    (reward(occurred_at=1), "$.occurred_at"),
    (rewards({"decision": OLD_DECISION, "value": 1, "unit": "u"}), "$.rewards[0].unit"),
    (change("ms", arms=[]), "$.arms"),
    (("POST", f"{HOME}/arms", {"arm": "green", "weight": 1}), "$.weight"),
    (evaluation("uniform", seed=1), "$.seed"),
]


@pytest.mark.parametrize(("call", "path"), UNKNOWN, ids=named(UNKNOWN))
def test_unknown_fields(client, decision, call, path) -> None:
    method, where, body = call
    response = client.request(method, where.format(decision=decision), json=body, headers=ANY_VERSION)
    assert error_summary(response) == (422, "unknown_field", path)


@pytest.mark.parametrize("key", ["", "k" * 513])
def test_invalid_idempotency_keys(client, key) -> None:
    response = client.post(DECISIONS, json={}, headers={"Idempotency-Key": key})
    assert error_summary(response) == (422, "invalid_value", "Idempotency-Key")


@pytest.mark.parametrize(
    "name",
    ["\x01", "a\nb", "\u2028", "\U0001f9c1" * 512, "\u202eevil", "'; DROP TABLE decisions; --", "%00", "﷽"],
)
def test_unusual_names_are_allowed(client, name) -> None:
    """As a unit, an event and an idempotency key, and after reading the log."""
    items = [{"unit": name, "idempotency_key": name}] * 2
    first, second = client.post(f"{DECISIONS}:batch", json={"decisions": items}).json()["results"]
    assert (first["status"], second["status"]) == (201, 200)
    assert first["decision"] == second["decision"]
    assert first["decision"]["unit"] == name
    found = client.get(f"/v1/decisions/{first['decision']['id']}").json()
    assert found == first["decision"]
    parked = {"decision": new_id(), "value": 1, "event": name}
    (result,) = client.post("/v1/rewards:batch", json={"rewards": [parked]}).json()["results"]
    assert (result["status"], result["reward"]["event"]) == (202, name)


def test_idempotency_keys_may_contain_any_bytes(service) -> None:
    body = b"{}"
    message = written("POST", DECISIONS, body, CLOSE).replace(
        b"Host:", b"Idempotency-Key: caf\xc3\xa9\xff\r\nHost:"
    )
    (first,), (second,) = send_raw(service, message), send_raw(service, message)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.content == second.content


# Invalid JSON and other content types.


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"value": 1',
        b'{"value": 1} {"value": 1}',
        b"{'value': 1}",
        b'{"value": NaN}',
        b'{"value": -Infinity}',
        b'{"value": Infinity}',
        b'{"value": 01}',
        b'{"value": 0x1}',
        b'{"value": .5}',
        b'{"value": 1,}',
        b'{"value": 1, "event": "a\x00b"}',
        b'{"value": 1, "event": "\\ud800"}',
        b'{"value": 1, "event": "\\udc00\\ud800"}',
        b'{"value": 1, "event": "\xed\xa0\x80"}',
        b'{"value": 1, "event": "\xff"}',
        b'{"value": 1, "event": "\n"}',
        b"\xef\xbb\xbf{}",
        '{"value": 1}'.encode("utf-16"),
        gzip.compress(b'{"value": 1}', mtime=0),
        b"<value>1</value>",
        b"value=1",
    ],
)
def test_invalid_json(client, decision, body) -> None:
    response = client.put(f"/v1/decisions/{decision}/reward", content=body, headers=JSON)
    assert error_summary(response) == (400, "bad_json", None)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" * 400, "1" * 100_000])
def test_numbers_out_of_the_range_of_floats(client, decision, number) -> None:
    body = f'{{"value": {number}}}'
    response = client.put(f"/v1/decisions/{decision}/reward", content=body, headers=JSON)
    assert error_summary(response) == (422, "invalid_value", "$.value")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 500_000,
        b'{"value":' * 100_000,
        b'{"value": 1, "event": ' + b"[" * 500_000,
        b'{"value": 1, "x": ' + b'{"a":' * 100_000,
    ],
)
def test_deeply_nested_json(client, decision, body) -> None:
    response = client.put(f"/v1/decisions/{decision}/reward", content=body, headers=JSON)
    assert response.status_code in (400, 422)
    error(response)


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.body], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
             "application/json, text/plain", "application/jsonp", "text/json", "x" * 1000]
)  # fmt: skip
def test_other_content_types(client, decision, operation, content_type) -> None:
    """In particular those that a form on any web page can send."""
    path = operation.path.format(experiment="home", id=decision)
    response = client.request(operation.method, path, content=b"{}", headers={"Content-Type": content_type})
    assert error_summary(response) == (415, "unsupported_media_type", "Content-Type")


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/json ;x=y"]
)
def test_other_spellings_of_the_json_content_type(client, content_type) -> None:
    assert client.post(DECISIONS, content=b"{}", headers={"Content-Type": content_type}).status_code == 201


# Oversized requests.


SIZE_LIMITS = [
    (DECISIONS, 1 << 20),
    (f"{DECISIONS}:batch", 4 << 20),
    ("/v1/rewards:batch", 4 << 20),
    (EXPERIMENTS, 1 << 20),
    (f"{HOME}/evaluations", 1 << 20),
]


@pytest.mark.parametrize(("path", "limit"), SIZE_LIMITS)
def test_a_large_body_is_rejected_before_it_is_read(service, path, limit) -> None:
    for announced in (limit + 1, 1 << 40):
        head = written("POST", path, b"x").replace(
            b"Content-Length: 1\r\n\r\nx", b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % announced
        )
        (response,) = send_raw(service, head)  # without 100 Continue
        assert error_summary(response) == (413, "too_large", None)
        assert str(limit) in error(response)["message"]


@pytest.mark.parametrize(("path", "limit"), SIZE_LIMITS[:2])
def test_a_large_body_without_a_content_length_is_rejected(service, path, limit) -> None:
    """A chunked body is rejected before its end."""
    head = written("POST", path, b"x").replace(
        b"Content-Length: 1\r\n\r\nx", b"Transfer-Encoding: chunked\r\n\r\n"
    )
    piece = b"10000\r\n" + b" " * (1 << 16) + b"\r\n"
    (response,) = send_raw(service, head, *[piece] * (limit // (1 << 16) + 1))
    assert error_summary(response) == (413, "too_large", None)


@pytest.mark.parametrize(("path", "limit"), SIZE_LIMITS[:2])
def test_a_body_of_the_maximum_size_is_accepted(client, path, limit) -> None:
    body = b'{"decisions": []}' if "batch" in path else b"{}"
    response = client.post(path, content=body + b" " * (limit - len(body)), headers=JSON)
    assert response.status_code in (200, 201)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n",
        b"GET /v1/me HTTP/1.1\r\n" + b"".join(b"X-%d: x\r\n" % n for n in range(50_000)) + b"\r\n",
        b"GET /v1/experiments/" + b"x" * (1 << 20) + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=["one header", "many headers", "the path"],
)
def test_a_megabyte_of_headers(service, head) -> None:
    (response,) = send_raw(service, head)
    assert error_summary(response) == (431, "too_large", None)


def test_an_error_about_many_names_is_short(client) -> None:
    arms = [f"{n:03d}" + "ü" * 200 for n in range(1000)]
    eligible = client.post(DECISIONS, json={"eligible": arms})
    assert error_summary(eligible) == (422, "unknown_name", "$.eligible")
    assert len(eligible.content) < 50_000


# Slow clients.


@pytest.fixture(scope="module")
def short_timeout_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with short timeouts."""
    prelude = "from maillard.service.http_protocol import LimitedHttpProtocol as P\n"
    prelude += "P.head_timeout, P.request_timeout, P.linger_timeout = 0.5, 1.0, 0.5"
    with serving(tmp_path_factory.mktemp("slow") / "log.db", prelude=prelude) as made:
        assert httpx2.post(f"{made.url}{EXPERIMENTS}", json=NEW | {"experiment": "home"}).status_code == 201
        yield made


HEAD = (
    b"POST /v1/experiments/home/decisions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
)


@pytest.mark.parametrize(
    ("sent", "drip"),
    [
        (b"POST /v1/exp", b""),
        (HEAD, b"X: y\r\n"),
        (HEAD + b"Content-Length: 2000\r\n\r\n", b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
    ids=["half a line", "head, slowly", "body, slowly", "chunks, slowly"],
)
def test_slow_clients_get_408(short_timeout_service, sent, drip) -> None:
    began = time.monotonic()
    with open_connection(short_timeout_service) as connection:
        connection.sendall(sent)
        connection.settimeout(0.1)
        received = b""
        with suppress(ConnectionError):
            while time.monotonic() < began + 120:
                try:
                    piece = connection.recv(1 << 16)
                    received += piece
                    if not piece:
                        break
                except TimeoutError:
                    connection.sendall(drip)
    assert time.monotonic() - began > 0.4
    (response,) = parse_responses(received)
    assert error_summary(response) == (408, "timeout", None)
    assert httpx2.get(f"{short_timeout_service.url}/v1/me").status_code == 200


def test_slow_clients_do_not_delay_others(short_timeout_service) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(open_connection(short_timeout_service)) for _ in range(200)]
        for connection in slow:
            connection.sendall(HEAD + b"Content-Length: 2000\r\n\r\n{")
        for _ in range(20):
            (response,) = send_raw(short_timeout_service, written("POST", DECISIONS, b"{}", CLOSE))
            assert response.status_code == 201
        for connection in slow:
            assert parse_responses(receive_all(connection))[0].status_code == 408


# Several requests on one connection; unknown paths, methods and resources.


def test_pipelined_requests_are_answered_in_order(service, decision) -> None:
    templates = [
        written("POST", DECISIONS, b"{}", "X-Request-Id: r{n}\r\n"),
        written("POST", DECISIONS, b"{", "X-Request-Id: r{n}\r\n"),
        written("GET", "/no/such", b"", "X-Request-Id: r{n}\r\n"),
        written("PUT", f"/v1/decisions/{decision}/reward", b'{"value": 9}', "X-Request-Id: r{n}\r\n"),
        written("GET", "/healthz", b"", "X-Request-Id: r{n}\r\n"),
    ]
    sent = [templates[n % 5].replace(b"{n}", b"%d" % n) for n in range(25)]
    sent.append(written("GET", "/healthz", b"", f"X-Request-Id: r25\r\n{CLOSE}"))
    responses = send_raw(service, b"".join(sent))
    assert [each.headers["x-request-id"] for each in responses] == [f"r{n}" for n in range(26)]
    assert [each.status_code for each in responses] == [201, 400, 404, 422, 200] * 5 + [200]


def test_an_unread_body_is_not_parsed_as_a_request(service) -> None:
    """Operations without a body skip the body of the request."""
    inner = written("POST", f"{HOME}:archive")
    for method, path in (
        ("GET", HOME),
        ("GET", "/healthz"),
        ("DELETE", f"{HOME}/arms/mauve"),
        ("PUT", "/no"),
    ):
        outer = written(method, path, inner)
        first, last = send_raw(service, outer + written("GET", HOME, b"", CLOSE))
        assert first.status_code in (200, 404, 422)
        assert json.loads(last.content)["status"] == "running"


@pytest.mark.parametrize(
    "operation", [each for each in OPERATIONS if each.method == "GET"], ids=lambda each: each.name
)
def test_head_is_get_without_the_body(service, client, decision, operation) -> None:
    path = operation.path.format(experiment="home", id=decision)
    with open_connection(service) as connection:
        connection.sendall(written("HEAD", path, b"", CLOSE))
        (response,) = parse_responses(receive_all(connection), head=True)
    got = client.get(path)
    assert response.status_code == got.status_code == 200
    assert response.headers["content-type"] == got.headers["content-type"]
    assert ("content-length" in response.headers) == ("content-length" in got.headers)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", EXPERIMENTS, "GET, HEAD, POST"),
        ("PUT", HOME, "GET, HEAD, PATCH"),
        ("POST", f"{HOME}:explode", "GET, HEAD, PATCH"),
        ("GET", "/v1/rewards:batch", "POST"),
        ("POST", f"{HOME}/arms/red", "DELETE"),
        ("POST", "/healthz", "GET, HEAD"),
        ("POST", "/", "GET, HEAD"),
        ("OPTIONS", DECISIONS, "POST"),
        ("TRACE", "/v1/me", "GET, HEAD"),
    ],
)
def test_methods_that_are_not_allowed(client, method, path, allowed) -> None:
    response = client.request(method, path)
    assert error_summary(response) == (405, "method_not_allowed", None)
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize(
    "path",
    ["/no", "/v1", "/v1/", "/v2/experiments", "/v1/experiments/", f"{HOME}/", f"{HOME}/nothing",
     "/v1/decisions", "//v1/experiments", "/%2e%2e/v1/me", "/V1/experiments", "/v1/experiments/a%2Fb",
     "/index.html", "/\U0001f9c1", "/" + "x" * 10_000]
)  # fmt: skip
def test_unknown_paths(client, path) -> None:
    response = client.get(path)
    assert error_summary(response) == (404, "not_found", None)
    assert len(response.content) < 1000
    assert response.headers["x-request-id"] == error(response)["request_id"]


@pytest.mark.parametrize(
    "key", ["nobody", "%00", "%FF", "x" * 2000, "\U0001f9c1", "a b", "'", "home%0A", "HOME"]
)
@pytest.mark.parametrize(
    "operation", [each for each in OPERATIONS if each.names_experiment], ids=lambda each: each.name
)
def test_unknown_experiments(client, operation, key) -> None:
    path = operation.path.replace("{arm:anything}", "red").format(experiment=key)
    bodies = {"decide": {}, "decide_batch": {"decisions": [{}]}, "evaluate": {"target": "uniform"}}
    bodies |= {"add_arm": {"arm": "green"}, "change_experiment": {"policy": "ms"}}
    bodies |= {"erase_unit": {"unit": "erica"}}
    response = client.request(operation.method, path, json=bodies.get(operation.name), headers=ANY_VERSION)
    assert error_summary(response) == (404, "not_found", None)


def test_unknown_decisions(client) -> None:
    assert error_summary(client.get(f"/v1/decisions/{new_id()}")) == (404, "not_found", None)
    old = client.put(f"/v1/decisions/{OLD_DECISION}/reward", json={"value": 1})
    assert error_summary(old) == (404, "not_found", None)
    assert client.put(f"/v1/decisions/{new_id().upper()}/reward", json={"value": 1}).status_code == 202


@pytest.mark.parametrize(
    "given", ["", "x" * 65, "a b", 'a"b', "a\\", "é", "a{b}", "\x7f"]
)  # fmt: skip
def test_invalid_request_ids_are_replaced(client, given) -> None:
    response = client.get("/no", headers={"X-Request-Id": given.encode("latin-1")})
    assert error(response)["request_id"] != given
    response = client.get("/no", headers={"X-Request-Id": "Trace-1.2_3"})
    assert error(response)["request_id"] == response.headers["x-request-id"] == "Trace-1.2_3"
