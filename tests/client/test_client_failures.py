"""The client with a faulty server: which requests it retries, and which errors it raises."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maillard import Reward
from maillard.client import Client
from maillard.client.api_calls import ApiCall, Steps
from maillard.client.decoding import RemoteInvalidValue, RemoteUnknownName
from maillard.errors import (
    Archived,
    Conflict,
    InvalidValue,
    MaillardError,
    Paused,
    Stale,
    Unavailable,
    UnknownName,
)
from tests.client.faulty_server import (
    BUSY,
    DECISION,
    DECISION_MADE,
    ID,
    Behaviour,
    FaultyServer,
    both_clients,
    call_client,
    delay,
    drop,
    error_response,
    faulty_server,
    response,
    trickle,
    truncate,
)

RULE = {
    "low": 0.0,
    "high": 1.0,
    "window": None,
    "default": None,
    "combine": "first",
    "learn": "on_arrival",
    "binary": False,
}
EXPERIMENT = {
    "experiment": "home",
    "status": "running",
    "arms": ["a"],
    "retired": [],
    "policy": "uniform",
    "policy_version": 1,
    "epoch": 1,
    "sticky": False,
    "reward": RULE,
    "created_at": "2026-11-15T12:00:00Z",
    "hints": [],
}


@pytest.fixture
def service() -> Iterator[FaultyServer]:
    with faulty_server() as made:
        yield made


@pytest.fixture(autouse=True)
def short_delays(monkeypatch) -> None:
    """Shorten the delays between attempts; test_client_retries.py tests their length."""
    monkeypatch.setattr("maillard.client.retries._FIRST_DELAY", 0.02)


# Retries.


@both_clients
@pytest.mark.parametrize(
    "failure", [drop, truncate, BUSY, error_response(502, "bad_gateway"), response(504, content=b"<html>")]
)
def test_a_choice_is_retried_with_the_same_idempotency_key(service, client_class, failure) -> None:
    decision = call_client(
        client_class,
        service.respond_with(failure, DECISION_MADE).url,
        lambda client: client.choose(unit="user-17"),
    )
    assert decision.id == ID
    first, second = service.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == decision.idempotency_key
    assert first.body == second.body == {"unit": "user-17"}


@both_clients
def test_each_choice_has_its_own_idempotency_key(service, client_class) -> None:
    for _ in range(2):
        call_client(client_class, service.respond_with(DECISION_MADE).url, lambda client: client.choose())
        call_client(client_class, service.url, lambda client: client.choose())
        assert len({each.headers["idempotency-key"] for each in service.requests}) == 2


def test_a_response_is_decoded_to_the_exact_decision(service) -> None:
    decision = call_client(
        Client, service.respond_with(DECISION_MADE).url, lambda client: client.choose(idempotency_key="k")
    )
    assert decision.at.isoformat() == "2026-11-15T12:00:00.123456+00:00"
    assert decision.eligible == ("red", "blue")
    assert decision.log_probabilities == (float("-inf"), 0.0)
    assert decision.probabilities == {"red": 0.0, "blue": 1.0}
    assert (decision.state, decision.idempotency_key, decision.origin) == (3, "k", None)


@both_clients
def test_a_retried_reward_has_the_same_event(service, client_class) -> None:
    applied = response(
        201, {"decision": ID, "event": ID, "outcome": "applied", "applied": True, "late": False}
    )
    assert (
        call_client(
            client_class, service.respond_with(drop, applied).url, lambda client: client.reward(ID, 1)
        )
        == "applied"
    )
    assert [each.body for each in service.requests] == [{"value": 1.0, "event": ID}] * 2
    assert {(each.method, each.path) for each in service.requests} == {("PUT", f"/v1/decisions/{ID}/reward")}


@both_clients
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.add_arm("x"),
        lambda client: client.retire_arm("x"),
        lambda client: client.reset(),
    ],
)
def test_a_change_that_is_not_idempotent_is_retried_only_if_the_service_refused_it(
    service, client_class, call
) -> None:
    with pytest.raises(Unavailable, match=r"1 attempt.*the service may have carried it out"):
        call_client(client_class, service.respond_with(drop, response(200, EXPERIMENT)).url, call)
    assert len(service.requests) == 1
    call_client(client_class, service.respond_with(BUSY, response(200, EXPERIMENT)).url, call)
    assert len(service.requests) == 2


@both_clients
def test_a_pause_is_idempotent_and_retried(service, client_class) -> None:
    call_client(
        client_class,
        service.respond_with(drop, truncate, response(200, EXPERIMENT)).url,
        lambda client: client.pause(),
        retries=2,
    )
    assert [each.path for each in service.requests] == ["/v1/experiments/home:pause"] * 3


@both_clients
def test_retry_after_is_respected(service, client_class) -> None:
    service.respond_with(error_response(429, "too_many_requests", retry_after="1"), DECISION_MADE)
    began = time.monotonic()
    assert call_client(client_class, service.url, lambda client: client.choose()).arm == "blue"
    assert time.monotonic() - began >= 1.0
    service.respond_with(error_response(429, "too_many_requests", "Too many.", retry_after="3600"))
    with pytest.raises(
        Unavailable, match=r"1 attempt.*429 too_many_requests: Too many. \(it asks for 3600 s\)"
    ):
        call_client(client_class, service.url, lambda client: client.choose())


@both_clients
def test_a_batch_with_unavailable_entries_is_sent_again(service, client_class) -> None:
    made = {"status": 201, "decision": DECISION}
    busy = {"status": 503, "error": {"code": "unavailable", "message": "Not now.", "path": "$.decisions[1]"}}
    service.respond_with(response(200, {"results": [made, busy]}), response(200, {"results": [made, made]}))
    decisions = call_client(
        client_class, service.url, lambda client: client.choose(size=2, idempotency_key="k")
    )
    assert [each.idempotency_key for each in decisions] == ["k", "k[1]"]
    assert service.requests[0] == service.requests[1]
    service.respond_with(response(200, {"results": [made, busy]}))
    with pytest.raises(Unavailable, match=r"2 attempts.*1 of 2 entries: 503 unavailable: Not now"):
        call_client(client_class, service.url, lambda client: client.choose(size=2), retries=1)


@both_clients
def test_a_retried_creation_recognises_its_own_experiment(service, client_class) -> None:
    made = EXPERIMENT | {"experiment": "new", "arms": ["a", "b"], "policy": "ms:sigma2=0.25"}
    exists = error_response(409, "exists", "There is one.")

    def create(client: Any) -> Any:
        return client.create("new", ["a", "b"], "ms", reward=Reward(low=0, high=1))

    found = call_client(client_class, service.respond_with(drop, exists, response(200, made)).url, create)
    without_contexts = {
        "attributes": None,
        "feature_version": 0,
        "features": None,
        "model": None,
        "segments": None,
    }
    assert found == made | without_contexts
    sent = {name: made[name] for name in ("experiment", "arms", "sticky", "reward")}
    assert service.requests[0].body == {**sent, "policy": "ms"}
    for other in (
        {"arms": ["a"]},
        {"policy": "uniform"},
        {"sticky": True},
        {"reward": {**RULE, "high": 2.0}},
    ):
        with pytest.raises(Conflict, match="There is one"):
            call_client(
                client_class, service.respond_with(drop, exists, response(200, made | other)).url, create
            )
    with pytest.raises(Conflict):  # no response was lost: the experiment existed before
        call_client(client_class, service.respond_with(exists, response(200, made)).url, create)
    assert len(service.requests) == 1


@both_clients
def test_a_policy_change_is_retried_after_concurrent_changes(service, client_class) -> None:
    stale = error_response(412, "stale")
    one, two = response(200, EXPERIMENT, etag='"1"'), response(200, EXPERIMENT, etag='"2"')

    def change(client: Any, **options: Any) -> Any:
        return client.change_policy("ms", **options)

    call_client(client_class, service.respond_with(one, stale, two, one).url, change)
    assert [each.headers.get("if-match") for each in service.requests] == [None, '"1"', None, '"2"']
    with pytest.raises(Stale, match='has been changed since it had the etag "1"'):
        call_client(client_class, service.respond_with(stale).url, lambda client: change(client, etag='"1"'))
    with pytest.raises(Conflict, match="5 times"):
        call_client(client_class, service.respond_with(*[one, stale] * 10).url, change)
    done = response(200, {**EXPERIMENT, "policy": "ms:sigma2=0.25"}, etag='"2"')
    call_client(
        client_class, service.respond_with(one, drop, stale, done).url, change
    )  # the first attempt succeeded
    assert len(service.requests) == 4


# Errors.


@both_clients
def test_the_error_states_the_attempts_and_the_last_failure(service, client_class) -> None:
    with pytest.raises(Unavailable) as caught:
        call_client(client_class, service.respond_with(BUSY).url, lambda client: client.choose(), retries=2)
    message = str(caught.value)
    assert message.startswith(
        f"POST /v1/experiments/home/decisions at {service.url}: gave up after 3 attempts in "
    )
    assert message.endswith("the last error: 503 unavailable: No.")
    assert (
        caught.value.__cause__ is caught.value.__context__ is None
    )  # those hold requests, which hold the key


@both_clients
def test_a_refused_connection_is_retried(client_class) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unavailable, match=r"2 attempts.*ConnectError") as caught:
        call_client(client_class, f"http://127.0.0.1:{port}", lambda client: client.reset(), retries=1)
    assert "carried it out" not in str(caught.value)


@both_clients
@pytest.mark.parametrize("behaviour", [delay(30.0), trickle])
def test_a_slow_response_times_out(service, client_class, behaviour) -> None:
    began = time.monotonic()
    # On a busy machine, connecting to the server may also take longer than the timeout.
    with pytest.raises(Unavailable, match=r"(Read|Connect)Timeout"):
        call_client(
            client_class,
            service.respond_with(behaviour).url,
            lambda client: client.choose(),
            timeout=0.2,
            retries=1,
        )
    assert time.monotonic() - began >= 0.2


@both_clients
@pytest.mark.parametrize(
    "garbage",
    [b"", b"<html>Welcome</html>", b"{}", b"[1, 2", b'{"id": 5}', b"\xff\xfe", b'{"results": []}'],
)
def test_a_response_that_is_not_from_a_maillard_service_is_an_error(service, client_class, garbage) -> None:
    service.respond_with(response(200, content=garbage, content_type="text/html"))
    with pytest.raises(
        MaillardError, match=r"did not come from a maillard service of a compatible version \(text/html"
    ):
        call_client(client_class, service.url, lambda client: client.choose())
    with pytest.raises(MaillardError, match=r"did not come from a maillard service|0 results for 3 entries"):
        call_client(client_class, service.url, lambda client: client.choose(size=3))
    assert len(service.requests) == 2
    for call in (
        lambda client: client.create("new", ["a"], "ms"),
        lambda client: client.change_policy("ms"),
        lambda client: client.add_arm("a"),
        lambda client: client.pause(),
        lambda client: client.experiments(),
        lambda client: client.arms,
        lambda client: client.policy,
        lambda client: client.summary(),
        lambda client: client.evaluate("arm:a"),
        lambda client: client.verify(),
        lambda client: client.reward(ID, 1.0),
    ):
        with pytest.raises(MaillardError, match="did not come from a maillard service"):
            call_client(client_class, service.url, call)


@both_clients
def test_an_exported_file_is_written_completely_or_not_at_all(service, client_class, tmp_path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(b"previous content")

    def export(client: Any) -> Any:
        return client.export(path)

    for behaviour, error in (
        (truncate, Unavailable),
        (response(200, content=b"<html>"), MaillardError),
        (BUSY, Unavailable),
    ):
        with pytest.raises(error):
            call_client(client_class, service.respond_with(behaviour).url, export, retries=1)
        assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"previous content"]
    whole = b"PAR1" + bytes(3_000_000) + b"PAR1"
    assert (
        call_client(client_class, service.respond_with(truncate, response(200, content=whole)).url, export)
        == path
    )
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [whole]


@both_clients
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_not_retried(service, client_class) -> None:
    service.respond_with(response(200, content=b"PAR1" + bytes(3_000_000) + b"PAR1"))

    def export(client: Any) -> Any:
        return client._run(to_full_disk())

    def to_full_disk() -> Steps[None]:
        yield ApiCall("GET", "/v1/experiments/home/export", output_file=Path("/dev/full"))

    with pytest.raises(OSError, match="No space left"):
        call_client(client_class, service.url, export)
    assert len(service.requests) == 1


@both_clients
@pytest.mark.parametrize(
    ("behaviour", "error", "message"),
    [
        (error_response(422, "invalid_value", "arms: expected names, got 1", "$.arms"), RemoteInvalidValue,
         r"got 1 \(at \$.arms\)$"),
        (error_response(422, "unknown_name", "arm: unknown name 'x'. Known: a"), UnknownName,
         "unknown name 'x'"),
        (error_response(422, "key_reused", "It belongs to another call."), Conflict, "another call"),
        (error_response(404, "not_found", "there is no experiment 'home'"), RemoteUnknownName,
         "no experiment 'home'"),
        (error_response(409, "paused"), Paused, "No."),
        (error_response(409, "archived"), Archived, "No."),
        (error_response(409, "conflict"), Conflict, "No."),
        (error_response(401, "unauthorized", "A key is needed."), MaillardError,
         r"A key is needed. \(pass an API key as key="),
        (error_response(403, "forbidden", "Not for you."), MaillardError, "403 forbidden: Not for you."),
        (error_response(500, "internal"), MaillardError, r"500 internal: No. \(request r-1\)"),
        (response(404, content=b"<html>"), MaillardError,
         "status 404; check that the address is that of a maillard service"),
        (response(307, location="https://elsewhere.example/"), MaillardError,
         "redirected to https://elsewhere.example/"),
    ],
)  # fmt: skip
def test_error_codes_become_exceptions_of_the_package(
    service, client_class, behaviour, error, message
) -> None:
    with pytest.raises(error, match=message) as caught:
        call_client(client_class, service.respond_with(behaviour).url, lambda client: client.choose())
    assert len(service.requests) == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_an_error_names_the_field(service) -> None:
    service.respond_with(
        error_response(422, "invalid_value", "sigma2: expected a number, got 'x'", "$.policy.sigma2")
    )
    with pytest.raises(InvalidValue) as caught:
        call_client(Client, service.url, lambda client: client.choose())
    assert caught.value.field == "$.policy.sigma2"


@both_clients
def test_errors_are_rebuilt_from_their_fields(service, client_class) -> None:
    """The message is not parsed: it may contain any text, such as an arm called ': unknown name '."""
    message = "arm: unknown name 'x'. Known: a"
    invalid = {"field": "eligible", "allowed": "names of arms"}
    unknown = {"kind": "arm", "name": "x", "known": ["a", "b"]}

    def failing(code: str, fields: dict[str, Any]) -> Behaviour:
        return response(422, {"error": {"code": code, "message": message, "path": "$.eligible", **fields}})

    with pytest.raises(InvalidValue) as caught:
        call_client(
            client_class,
            service.respond_with(failing("invalid_value", invalid)).url,
            lambda client: client.choose(),
        )
    assert (caught.value.field, caught.value.allowed) == ("eligible", "names of arms")
    with pytest.raises(UnknownName) as missing:
        call_client(
            client_class,
            service.respond_with(failing("unknown_name", unknown)).url,
            lambda client: client.choose(),
        )
    assert (missing.value.kind, missing.value.name, missing.value.known) == ("arm", "x", ("a", "b"))
    assert str(missing.value) == message
