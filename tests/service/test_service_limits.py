"""Limits that keep one caller from locking out others: connections, memory, requests without a key."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx2

from maillard.decisions.stores import open_store
from maillard.service.api_keys import create
from maillard.service.rate_limits import RateLimiter
from tests.service.api import Api, http_client, wait_until
from tests.service.raw_http import error_summary, open_connection, parse_responses, receive_all
from tests.serving import Service, serving
from tests.stores import new_id

_FEW_DESCRIPTORS = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))"
_FEW_CONNECTIONS = """
from maillard.service.http_protocol import LimitedHttpProtocol
LimitedHttpProtocol.max_connections = 4
"""
_SETTING = "import maillard.service.{module} as module; module.{name} = {value}"
_STOPPED_CLOCK = """
from maillard.service.rate_limits import RateLimiter
RateLimiter.__init__.__kwdefaults__["clock"] = lambda: 0.0
"""
_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def lines(service: Service, event: str) -> list[dict[str, Any]]:
    """The lines of the log with this event."""
    found = [json.loads(line) for line in service.output.splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def send_part(connection: socket.socket, sent: int, length: int) -> None:
    """Send the head of a batch, and the first bytes of its body."""
    head = (
        "POST /v1/rewards:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    )
    connection.sendall(head.encode() + b" " * sent)


def admin_client(service: Service, secret: str) -> httpx2.Client:
    client = http_client(service)
    client.headers["Authorization"] = f"Bearer {secret}"
    return client


def make_key(log: Path, **options: Any) -> str:
    with closing(open_store(str(log))) as store:
        return create(store, "test", ["admin"], **options)[1]


# Connections.


def test_idle_connections_do_not_lock_others_out(tmp_path) -> None:
    """More of them than the process has file descriptors."""
    with serving(tmp_path / "log.db", prelude=_FEW_DESCRIPTORS) as service, ExitStack() as stack:
        for number in range(300):
            connection = stack.enter_context(open_connection(service))
            if number % 3:
                connection.sendall(_HEALTH)
                assert connection.recv(1 << 12).startswith(b"HTTP/1.1 200")
        with http_client(service) as client:
            experiment = Api(service, client, "").create_experiment()
            assert experiment.decide().status_code == 201
            assert client.get("/readyz").status_code == 200
        closed = "closed an idle connection, because too many are open"
        wait_until(lambda: closed in [line["message"] for line in lines(service, "rejected")])


def test_a_connection_that_is_in_use_is_not_closed_for_a_new_one(tmp_path) -> None:
    with serving(tmp_path / "log.db", prelude=_FEW_CONNECTIONS) as service, ExitStack() as stack:
        busy = [stack.enter_context(open_connection(service)) for _ in range(4)]
        for connection in busy:
            send_part(connection, 10, 12)
        with open_connection(service) as refused:
            (response,) = parse_responses(receive_all(refused))
        assert error_summary(response) == (503, "unavailable", None)
        for connection in busy:
            connection.sendall(b"{}")
            assert connection.recv(1 << 12).startswith(b"HTTP/1.1 422")
        assert service.get_status("/healthz") == 200
        wait_until(lambda: 503 in [line["status"] for line in lines(service, "rejected")])


# Memory.


def test_the_memory_of_unfinished_bodies_is_limited(tmp_path) -> None:
    prelude = _SETTING.format(module="application", name="_MAX_BODIES", value=1 << 20)
    with serving(tmp_path / "log.db", prelude=prelude) as service, ExitStack() as stack:
        first, second = (stack.enter_context(open_connection(service)) for _ in range(2))
        send_part(first, 700_000, 2_000_000)
        send_part(second, 700_000, 2_000_000)
        wait_until(lambda: 503 in [line["status"] for line in lines(service, "request")])
        (refused,) = [each for each in (first, second) if _answered(each)]
        (response,) = parse_responses(receive_all(refused))
        assert error_summary(response) == (503, "unavailable", None)
        assert response.headers["retry-after"] == "1"
        (waiting,) = {first, second} - {refused}
        waiting.sendall(b" " * 100_000)
        waiting.close()
        with http_client(service) as client:
            body = b" " * 900_000 + b"{}"  # complete, and within the limit
            headers = {"Content-Type": "application/json"}
            request = client.build_request("POST", "/v1/rewards:batch", content=body, headers=headers)
            wait_until(lambda: client.send(request).status_code == 422)


def _answered(connection: socket.socket) -> bool:
    connection.settimeout(1.0)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False
    finally:
        connection.settimeout(60.0)


# Requests.


def test_requests_without_a_valid_key_are_limited_per_address(tmp_path) -> None:
    secret = make_key(tmp_path / "log.db", rate=1000)
    options = ["--rate-limit", "0.01"]
    with (
        serving(tmp_path / "log.db", options=options, no_keys=False) as service,
        admin_client(service, secret) as client,
    ):
        wrong = {"Authorization": "Bearer mk_wrong"}
        assert client.get("/v1/me", headers=wrong).status_code == 401
        response = client.get("/v1/me", headers=wrong)
        assert error_summary(response) == (429, "too_many_requests", None)
        assert int(response.headers["retry-after"]) > 1
        assert client.get("/v1/me").status_code == 200  # a valid key is not limited by the address


def test_a_batch_needs_the_tokens_of_all_its_items(tmp_path) -> None:
    secret, other = make_key(tmp_path / "log.db", rate=10), make_key(tmp_path / "log.db")  # 20 tokens
    with (
        serving(tmp_path / "log.db", prelude=_STOPPED_CLOCK, no_keys=False) as service,
        admin_client(service, other) as client,
    ):
        experiment = Api(service, client, "").create_experiment()
        limited = {"Authorization": f"Bearer {secret}"}
        path = f"/v1/experiments/{experiment.key}/decisions:batch"

        def decide(count: int) -> int:
            return client.post(path, json={"decisions": [{}] * count}, headers=limited).status_code

        assert [decide(15), decide(15), decide(4), decide(1)] == [200, 429, 200, 429]
        activity = f"/v1/experiments/{experiment.key}/activity"
        wait_until(lambda: client.get(activity).json()["decisions"] == 15 + 4)


def test_more_tokens_are_taken_as_if_at_once() -> None:
    now = 0.0
    limiter = RateLimiter(10, clock=lambda: now)
    assert [limiter.acquire("a"), limiter.acquire_more("a", 14)] == [0.0, 0.0]
    assert limiter.acquire("a") == 0.0
    assert limiter.acquire_more("a", 14) > 0.9  # refused: 5 of 20 tokens were left
    assert [limiter.acquire("a") for _ in range(5)][:4] == [0.0] * 4  # it cost only its first token
    assert limiter.acquire("a") > 0
    now = 100.0
    assert [limiter.acquire("a"), limiter.acquire_more("a", 999)] == [0.0, 0.0]  # a full bucket is enough
    assert limiter.acquire("a") > 97


def test_rewards_of_unknown_decisions_are_limited_per_key(tmp_path) -> None:
    secret, other = make_key(tmp_path / "log.db"), make_key(tmp_path / "log.db")
    prelude = _SETTING.format(module="service_state", name="_EARLY_REWARDS", value=3)
    with (
        serving(tmp_path / "log.db", prelude=prelude, no_keys=False) as service,
        admin_client(service, secret) as client,
    ):
        api = Api(service, client, "")
        ids = [new_id() for _ in range(4)]
        assert [api.reward(each, 1).status_code for each in ids[:2]] == [202] * 2
        assert [api.reward(ids[0], 1).status_code for _ in range(4)] == [200] * 4  # again, at no cost
        assert api.reward(ids[2], 1).status_code == 202
        assert error_summary(api.reward(ids[3], 1)) == (429, "too_many_requests", None)
        assert [each["status"] for each in api.rewards({"decision": ids[3], "value": 1})] == [429]
        made = api.create_experiment().decide().json()["id"]
        assert api.reward(made, 1).status_code == 201
        client.headers["Authorization"] = f"Bearer {other}"
        assert api.reward(ids[3], 1).status_code == 202
