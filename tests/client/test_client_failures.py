"""A client and a service that misbehaves: what is asked again, what is not, and how it ends."""

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
from tests.client.misbehaving import (
    BUSY,
    CHOSEN,
    DECISION,
    ID,
    Behaviour,
    Misbehaving,
    answer,
    cut,
    drip,
    drop,
    either,
    fault,
    misbehaving,
    slow,
    talk,
)

RULE = {
    "low": 0.0,
    "high": 1.0,
    "window": None,
    "default": None,
    "combine": "first",
    "mature_only": False,
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
}


@pytest.fixture
def service() -> Iterator[Misbehaving]:
    with misbehaving() as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """How long is waited is for another test."""
    monkeypatch.setattr("maillard.client.retries._FIRST_DELAY", 0.02)


# What is tried again.


@either
@pytest.mark.parametrize(
    "trouble", [drop, cut, BUSY, fault(502, "bad_gateway"), answer(504, content=b"<html>")]
)
def test_a_choice_is_asked_for_again_with_the_same_key(service, kind, trouble) -> None:
    decision = talk(kind, service.does(trouble, CHOSEN).url, lambda client: client.choose(unit="user-17"))
    assert decision.id == ID
    first, second = service.seen
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == decision.idempotency_key
    assert first.body == second.body == {"unit": "user-17"}


@either
def test_each_choice_has_a_key_of_its_own(service, kind) -> None:
    for _ in range(2):
        talk(kind, service.does(CHOSEN).url, lambda client: client.choose())
        talk(kind, service.url, lambda client: client.choose())
        assert len({each.headers["idempotency-key"] for each in service.seen}) == 2


def test_the_decision_is_the_answer_to_the_last_bit(service) -> None:
    decision = talk(Client, service.does(CHOSEN).url, lambda client: client.choose(idempotency_key="k"))
    assert decision.at.isoformat() == "2026-11-15T12:00:00.123456+00:00"
    assert decision.eligible == ("red", "blue")
    assert decision.log_probabilities == (float("-inf"), 0.0)
    assert decision.probabilities == {"red": 0.0, "blue": 1.0}
    assert (decision.state, decision.idempotency_key, decision.origin) == (3, "k", None)


@either
def test_a_reward_is_told_apart_by_its_event(service, kind) -> None:
    learned = answer(201, {"decision": ID, "event": ID, "outcome": "applied", "applied": True, "late": False})
    assert talk(kind, service.does(drop, learned).url, lambda client: client.reward(ID, 1)) == "applied"
    assert [each.body for each in service.seen] == [{"value": 1.0, "event": ID}] * 2
    assert {(each.method, each.path) for each in service.seen} == {("PUT", f"/v1/decisions/{ID}/reward")}


@either
@pytest.mark.parametrize(
    "say",
    [
        lambda client: client.add_arm("x"),
        lambda client: client.retire_arm("x"),
        lambda client: client.reset(),
    ],
)
def test_a_change_that_may_have_been_made_is_not_made_again(service, kind, say) -> None:
    with pytest.raises(Unavailable, match=r"1 attempt.*the service may have carried it out"):
        talk(kind, service.does(drop, answer(200, EXPERIMENT)).url, say)
    assert len(service.seen) == 1
    talk(kind, service.does(BUSY, answer(200, EXPERIMENT)).url, say)
    assert len(service.seen) == 2


@either
def test_pauses_may_be_made_again(service, kind) -> None:
    talk(kind, service.does(drop, cut, answer(200, EXPERIMENT)).url, lambda client: client.pause(), retries=2)
    assert [each.path for each in service.seen] == ["/v1/experiments/home:pause"] * 3


@either
def test_the_service_says_when_to_come_again(service, kind) -> None:
    service.does(fault(429, "too_many_requests", retry_after="1"), CHOSEN)
    began = time.monotonic()
    assert talk(kind, service.url, lambda client: client.choose()).arm == "blue"
    assert time.monotonic() - began >= 1.0
    service.does(fault(429, "too_many_requests", "Too many.", retry_after="3600"))
    began = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"1 attempt.*429 too_many_requests: Too many. \(it asks for 3600 s\)"
    ):
        talk(kind, service.url, lambda client: client.choose())
    assert time.monotonic() - began < 600.0


@either
def test_entries_that_could_not_be_written_are_sent_again(service, kind) -> None:
    made = {"status": 201, "decision": DECISION}
    busy = {"status": 503, "error": {"code": "unavailable", "message": "Not now.", "path": "$.decisions[1]"}}
    service.does(answer(200, {"results": [made, busy]}), answer(200, {"results": [made, made]}))
    decisions = talk(kind, service.url, lambda client: client.choose(size=2, idempotency_key="k"))
    assert [each.idempotency_key for each in decisions] == ["k", "k[1]"]
    assert service.seen[0] == service.seen[1]
    service.does(answer(200, {"results": [made, busy]}))
    with pytest.raises(Unavailable, match=r"2 attempts.*1 of 2 entries: 503 unavailable: Not now"):
        talk(kind, service.url, lambda client: client.choose(size=2), retries=1)


@either
def test_an_experiment_whose_making_was_not_confirmed_is_recognised(service, kind) -> None:
    made = EXPERIMENT | {"experiment": "new", "arms": ["a", "b"], "policy": "ms:sigma2=0.25"}
    exists = fault(409, "exists", "There is one.")

    def create(client: Any) -> Any:
        return client.create("new", ["a", "b"], "ms", reward=Reward(low=0, high=1))

    assert talk(kind, service.does(drop, exists, answer(200, made)).url, create) == made
    sent = {name: made[name] for name in ("experiment", "arms", "sticky", "reward")}
    assert service.seen[0].body == {**sent, "policy": "ms"}
    for other in (
        {"arms": ["a"]},
        {"policy": "uniform"},
        {"sticky": True},
        {"reward": {**RULE, "high": 2.0}},
    ):
        with pytest.raises(Conflict, match="There is one"):
            talk(kind, service.does(drop, exists, answer(200, made | other)).url, create)
    with pytest.raises(Conflict):  # nothing was lost: it was there before
        talk(kind, service.does(exists, answer(200, made)).url, create)
    assert len(service.seen) == 1


@either
def test_a_policy_is_changed_once_although_others_change_it_too(service, kind) -> None:
    stale = fault(412, "stale")
    one, two = answer(200, EXPERIMENT, etag='"1"'), answer(200, EXPERIMENT, etag='"2"')

    def change(client: Any, **options: Any) -> Any:
        return client.change_policy("ms", **options)

    talk(kind, service.does(one, stale, two, one).url, change)
    assert [each.headers.get("if-match") for each in service.seen] == [None, '"1"', None, '"2"']
    with pytest.raises(Stale, match='has been changed since it had the etag "1"'):
        talk(kind, service.does(stale).url, lambda client: change(client, etag='"1"'))
    with pytest.raises(Conflict, match="5 times"):
        talk(kind, service.does(*[one, stale] * 10).url, change)
    done = answer(200, {**EXPERIMENT, "policy": "ms:sigma2=0.25"}, etag='"2"')
    talk(kind, service.does(one, drop, stale, done).url, change)  # the first try was the change
    assert len(service.seen) == 4


# How it ends.


@either
def test_what_is_given_up_says_what_was_tried(service, kind) -> None:
    with pytest.raises(Unavailable) as caught:
        talk(kind, service.does(BUSY).url, lambda client: client.choose(), retries=2)
    words = str(caught.value)
    assert words.startswith(
        f"POST /v1/experiments/home/decisions at {service.url}: gave up after 3 attempts in "
    )
    assert words.endswith("the last error: 503 unavailable: No.")
    assert caught.value.__cause__ is caught.value.__context__ is None  # they hold requests, and those the key


@either
def test_nobody_listens(kind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unavailable, match=r"2 attempts.*ConnectError") as caught:
        talk(kind, f"http://127.0.0.1:{port}", lambda client: client.reset(), retries=1)
    assert "carried it out" not in str(caught.value)


@either
@pytest.mark.parametrize("behaviour", [slow(30.0), drip])
def test_a_slow_answer_is_not_waited_for(service, kind, behaviour) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="ReadTimeout"):
        talk(kind, service.does(behaviour).url, lambda client: client.choose(), timeout=0.2, retries=1)
    assert 0.2 <= time.monotonic() - began < 25.0


@either
@pytest.mark.parametrize(
    "garbage",
    [b"", b"<html>Welcome</html>", b"{}", b"[1, 2", b'{"id": 5}', b"\xff\xfe", b'{"results": []}'],
)
def test_an_answer_of_something_else_is_no_decision(service, kind, garbage) -> None:
    service.does(answer(200, content=garbage, content_type="text/html"))
    with pytest.raises(MaillardError, match=r"did not come from a maillard service \(text/html"):
        talk(kind, service.url, lambda client: client.choose())
    with pytest.raises(MaillardError, match=r"did not come from a maillard service|0 results for 3 entries"):
        talk(kind, service.url, lambda client: client.choose(size=3))
    assert len(service.seen) == 2
    for say in (
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
            talk(kind, service.url, say)


@either
def test_a_file_is_there_whole_or_not_at_all(service, kind, tmp_path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(b"what was there")

    def export(client: Any) -> Any:
        return client.export(path)

    for behaviour, error in (
        (cut, Unavailable),
        (answer(200, content=b"<html>"), MaillardError),
        (BUSY, Unavailable),
    ):
        with pytest.raises(error):
            talk(kind, service.does(behaviour).url, export, retries=1)
        assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"what was there"]
    whole = b"PAR1" + bytes(3_000_000) + b"PAR1"
    assert talk(kind, service.does(cut, answer(200, content=whole)).url, export) == path
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [whole]


@either
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_no_reason_to_ask_again(service, kind) -> None:
    service.does(answer(200, content=b"PAR1" + bytes(3_000_000) + b"PAR1"))

    def export(client: Any) -> Any:
        return client._run(to_full_disk())

    def to_full_disk() -> Steps[None]:
        yield ApiCall("GET", "/v1/experiments/home/export", output_file=Path("/dev/full"))

    with pytest.raises(OSError, match="No space left"):
        talk(kind, service.url, export)
    assert len(service.seen) == 1


@either
@pytest.mark.parametrize(
    ("behaviour", "error", "words"),
    [
        (fault(422, "invalid_value", "arms: expected names, got 1", "$.arms"), RemoteInvalidValue,
         r"got 1 \(at \$.arms\)$"),
        (fault(422, "unknown_name", "arm: unknown name 'x'. Known: a"), UnknownName, "unknown name 'x'"),
        (fault(422, "key_reused", "It belongs to another call."), Conflict, "another call"),
        (fault(404, "not_found", "there is no experiment 'home'"), RemoteUnknownName, "no experiment 'home'"),
        (fault(409, "paused"), Paused, "No."),
        (fault(409, "archived"), Archived, "No."),
        (fault(409, "conflict"), Conflict, "No."),
        (fault(401, "unauthorized", "A key is needed."), MaillardError,
         r"A key is needed. \(pass an API key as key="),
        (fault(403, "forbidden", "Not for you."), MaillardError, "403 forbidden: Not for you."),
        (fault(500, "internal"), MaillardError, r"500 internal: No. \(request r-1\)"),
        (answer(404, content=b"<html>"), MaillardError,
         "status 404; check that the address is that of a maillard service"),
        (answer(307, location="https://elsewhere.example/"), MaillardError,
         "redirected to https://elsewhere.example/"),
    ],
)  # fmt: skip
def test_errors_of_the_service_are_those_of_the_package(service, kind, behaviour, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        talk(kind, service.does(behaviour).url, lambda client: client.choose())
    assert len(service.seen) == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_an_error_says_which_field(service) -> None:
    service.does(fault(422, "invalid_value", "sigma2: expected a number, got 'x'", "$.policy.sigma2"))
    with pytest.raises(InvalidValue) as caught:
        talk(Client, service.url, lambda client: client.choose())
    assert caught.value.field == "$.policy.sigma2"


@either
def test_errors_are_rebuilt_from_their_fields(service, kind) -> None:
    """The message plays no role: it may contain any text, such as an arm that is called ': unknown name '."""
    message = "arm: unknown name 'x'. Known: a"
    invalid = {"field": "eligible", "allowed": "names of arms"}
    unknown = {"kind": "arm", "name": "x", "known": ["a", "b"]}

    def failing(code: str, fields: dict[str, Any]) -> Behaviour:
        return answer(422, {"error": {"code": code, "message": message, "path": "$.eligible", **fields}})

    with pytest.raises(InvalidValue) as caught:
        talk(kind, service.does(failing("invalid_value", invalid)).url, lambda client: client.choose())
    assert (caught.value.field, caught.value.allowed) == ("eligible", "names of arms")
    with pytest.raises(UnknownName) as missing:
        talk(kind, service.does(failing("unknown_name", unknown)).url, lambda client: client.choose())
    assert (missing.value.kind, missing.value.name, missing.value.known) == ("arm", "x", ("a", "b"))
    assert str(missing.value) == message
