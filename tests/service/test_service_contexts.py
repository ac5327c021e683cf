"""Contexts over HTTP: requests, the client, validation errors with a path, and verification of the log."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from maillard import Bandit, Features, Reward, verify
from maillard.client import AsyncClient, Client, admin_methods
from maillard.client.api_calls import ApiResponse
from maillard.client.base_client import Scope
from maillard.errors import Conflict, InvalidValue, Stale, UnknownName
from maillard.features import flag
from maillard.service import running
from tests.client.faulty_server import call_client
from tests.service.api import wait_until

RULE = Reward(low=0, high=1)
FEATURES = Features({"device": ["phone", "desktop"], "age": (18, 90)})
ITEMS = Features({"device": ["phone", "desktop"], "price": (0, 10)}, crosses=[("device", "price")])
DECLARED = {
    "features": [
        {"name": "device", "type": "category", "levels": ["phone", "desktop"]},
        {"name": "age", "type": "number", "low": 18, "high": 90},
    ]
}
PHONE = {"device": "phone", "age": 36}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service") / "log.db"


@pytest.fixture(scope="module")
def url(log) -> Iterator[str]:
    with running(log, no_keys=True) as address:
        yield address


@pytest.fixture
def client(url) -> Iterator[Client]:
    """A client with an experiment name of its own."""
    with Client(url, experiment=f"e{next(_numbers)}") as made:
        yield made


@pytest.fixture(scope="module")
def http(url) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=url) as made:
        yield made


def check(log: Path, experiment: str | None, decisions: int) -> None:
    found = verify(log, experiment)
    assert found.problems == []
    assert (found.decisions, found.recomputed) == (decisions, decisions)


def test_features_with_a_disjoint_model(client, log) -> None:
    made = client.create(client.experiment, ["red", "blue"], reward=RULE, features=FEATURES)
    assert (made["policy"], made["model"]) == ("lin-ms:floor=0.1,reward_range=0..1", "disjoint")
    assert Features.from_json(httpx2.Response(200, json=made["features"]).text) == FEATURES
    rng = random.Random(1)
    for _ in range(10):
        context = {"device": rng.choice(["phone", "watch"]), "age": rng.randrange(100)}
        decision = client.choose(unit="user-1", context=context)
        assert client.reward(decision, float(rng.random() < 0.5)) == "applied"
    batch = client.choose(context=[PHONE, {"device": "desktop", "age": 20}])
    assert [each.context for each in batch] == [
        '{"device":"phone","age":36}',
        '{"device":"desktop","age":20}',
    ]
    with Bandit(log=log, experiment=client.experiment) as bandit:
        stored = bandit.decision(decision.id)
        assert stored._replace(encoded=None) == decision
        assert bandit.statistics.counts.sum() == 10  # type: ignore[union-attr]
        assert client.decision(decision.id) == decision
    state = client.summary()
    assert [each["probability"] for each in state["arms"].values()] == [None, None]
    check(log, client.experiment, 12)
    assert client.erase_unit("user-1") == 10
    assert client.decision(decision.id).context is None
    assert client.verify()["verdict"] != "broken"


def test_a_shared_model(client, log) -> None:
    arms = {"small": {"price": 1}, "large": {"price": 9}}
    made = client.create(
        client.experiment, arms, "lin-ts:floor=0.1", reward=RULE, features=ITEMS, model="shared"
    )
    assert made["attributes"] == arms
    client.add_arm("medium", features={"price": 5})
    for _ in range(5):
        client.reward(client.choose(context={"device": "phone"}), 1.0)
    assert client.choose(context={"device": "phone"}).eligible == ("small", "large", "medium")
    check(log, client.experiment, 6)


def test_actions(client, log) -> None:
    client.create(client.experiment, [], reward=RULE, features=ITEMS, model="shared")
    actions = {"article-17": {"price": 1}, "article-18": {"price": 3.5}}
    decision = client.choose(context={"device": "phone"}, actions=actions)
    assert decision.eligible == ("article-17", "article-18")
    assert decision.actions == '{"article-17":{"price":1},"article-18":{"price":3.5}}'
    client.reward(decision, 1.0)
    client.choose(size=3, context={"device": "watch"}, actions=actions)
    assert client.summary()["arms"] == {}
    check(log, client.experiment, 4)


def test_segments_and_stored_contexts(client, log, url) -> None:
    made = client.create(client.experiment, ["red", "blue"], reward=RULE, segments=["device"])
    assert made["segments"] == ["device"]
    for _ in range(3):
        client.reward(client.choose(context=PHONE), 1.0)
    check(log, client.experiment, 3)
    with Client(url, experiment=f"e{next(_numbers)}") as plain:
        plain.create(plain.experiment, ["red", "blue"], reward=RULE)
        assert plain.choose(context=PHONE).context == '{"device":"phone","age":36}'
        check(log, plain.experiment, 1)


def test_the_client_raises_the_errors_of_a_bandit(client) -> None:
    client.create(client.experiment, ["red", "blue"], reward=RULE, features=FEATURES)
    with pytest.raises(UnknownName, match="Did you mean 'device'"):
        client.choose(context={"devise": "phone", "age": 3})
    with pytest.raises(InvalidValue, match="context: age"):
        client.choose(context={"device": "phone"})
    with pytest.raises(InvalidValue, match="a mapping"):
        client.choose(context="phone")
    first = client.choose(context=PHONE, idempotency_key="k")
    assert client.choose(context=PHONE, idempotency_key="k") == first
    with pytest.raises(Conflict, match="another context"):
        client.choose(context=PHONE | {"age": 3}, idempotency_key="k")


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"policy": "kl-ms+", "features": DECLARED}, "$.policy"),
        ({"policy": "lin-ms"}, "$.policy"),
        ({"features": {"features": [{"name": "age", "type": "size"}]}}, "$.features.features[0]"),
        ({"features": {"feature": []}}, "$.features.feature"),
        ({"features": DECLARED, "model": "mixed"}, "$.model"),
        ({"features": DECLARED, "model": "shared"}, "$.arms"),
        ({"features": DECLARED, "segments": ["device"]}, "$.features"),
        ({"segments": []}, "$.segments"),
        ({"arms": []}, "$.arms"),
        ({"arms": {"red": {"price": [1]}}}, "$.arms[...][...]"),
    ],
)
def test_wrong_definitions(http, more, path) -> None:
    new = {"experiment": "wrong", "arms": ["red", "blue"], "reward": {"low": 0, "high": 1}}
    response = http.post("/v1/experiments", json=new | more)
    assert (response.status_code, response.json()["error"]["path"]) == (422, path), response.text


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "$.context"),
        ({"context": {"device": "phone"}}, "$.context.age"),
        ({"context": {"device": "phone", "age": "old"}}, "$.context.age"),
        ({"context": {"device": "phone", "age": 3, "agee": 3}}, "$.context"),
        ({"context": {"device": "phone", "age": {"years": 3}}}, "$.context[...]"),
        ({"context": "phone"}, "$.context"),
        ({"context": PHONE, "actions": {"red": {}}}, "$.actions"),
        ({"context": {"device": "x" * 20_000, "age": 3}}, "$.context"),
    ],
)
def test_wrong_contexts(http, body: dict[str, Any], path: str) -> None:
    new = {
        "experiment": "right",
        "arms": ["red", "blue"],
        "reward": {"low": 0, "high": 1},
        "features": DECLARED,
    }
    assert http.post("/v1/experiments", json=new).status_code in (201, 409)
    response = http.post("/v1/experiments/right/decisions", json=body)
    assert (response.status_code, response.json()["error"]["path"]) == (422, path), response.text
    response = http.post(
        "/v1/experiments/right/decisions:batch", json={"decisions": [{"context": PHONE}, body]}
    )
    if response.status_code == 200:  # otherwise the body cannot be decoded
        first, second = response.json()["results"]
        assert (first["status"], second["error"]["path"]) == (201, "$.decisions[1]" + path[1:])


# Changes of features.

WIDER = Features({"device": ["phone", "desktop"], "age": (18, 90), "member": flag(default=False)})
OTHER = Features({"device": ["phone", "desktop", "tablet"], "age": (18, 90)})


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_features_change(client, url, log, client_class) -> None:
    """An appended feature keeps what was learned, any other change begins a new epoch; both are verified."""

    def change(features: Any, **options: Any) -> None:
        call_client(
            client_class, url, lambda each: each.change_features(features, **options),
            experiment=client.experiment,
        )  # fmt: skip

    client.create(client.experiment, ["red", "blue"], reward=RULE, features=FEATURES)
    client.reward(client.choose(context=PHONE), 1.0)
    etag = client.summary()["etag"]
    change(WIDER, etag=etag)
    with Bandit(log=log, experiment=client.experiment) as bandit:
        assert (bandit.state.feature_version, bandit.state.epoch) == (2, 1)
        assert bandit.statistics.counts.sum() == 1  # type: ignore[union-attr]
    client.reward(client.choose(context=PHONE | {"member": True}), 1.0)
    change(json.loads(OTHER.to_json()))  # the JSON form, and without an etag
    with Bandit(log=log, experiment=client.experiment) as bandit:
        assert (bandit.state.feature_version, bandit.state.epoch) == (3, 2)
        assert bandit.statistics.counts.sum() == 0  # type: ignore[union-attr]
    client.choose(context={"device": "tablet", "age": 3})
    check(log, client.experiment, 3)
    with pytest.raises(Stale, match="read it again"):
        change(FEATURES, etag=etag)
    with pytest.raises(InvalidValue, match="differ from the current ones"):
        change(OTHER)
    with pytest.raises(InvalidValue, match="JSON that it writes"):
        change(None)


def test_a_lost_response_to_a_change_of_features(url, client) -> None:
    """The second attempt finds that the first one made the change, however the features were written."""
    client.create(client.experiment, ["red", "blue"], reward=RULE, features=FEATURES)
    short = {"features": [*DECLARED["features"], {"name": "member", "type": "flag", "default": False}]}
    assert is_change_made(url, client.experiment, short) is False
    client.change_features(short)
    assert is_change_made(url, client.experiment, short) is True
    assert is_change_made(url, client.experiment, json.loads(WIDER.to_json())) is True
    assert is_change_made(url, client.experiment, json.loads(OTHER.to_json())) is False


def is_change_made(url: str, experiment: str, features: Any) -> bool:
    """Whether the client thinks so, if the response to its first attempt was lost."""
    steps = admin_methods.change_features(Scope(url, experiment), features, etag='"1"')
    call = next(steps)
    assert (call.method, call.body, call.headers) == ("PATCH", {"features": features}, {"if-match": '"1"'})
    reading = steps.send(ApiResponse(call, 412, {}, b"", uncertain=True))
    found = httpx2.get(url + reading.path)
    try:
        steps.send(ApiResponse(reading, 200, {}, found.content))
    except StopIteration:
        return True
    except Stale:
        return False
    raise AssertionError("another request")


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        (None, "$.features"),
        (DECLARED, "$.features"),  # no change
        (DECLARED | {"crosses": [["age", "size"]]}, "$.features.crosses"),
        (DECLARED | {"crosses": [["device", "device"]]}, "$.features.crosses"),
        (DECLARED | {"rest": {"type": "hashed", "buckets": 0}}, "$.features.rest.buckets"),
        (DECLARED | {"intercept": 3}, "$.features.intercept"),
        ([{"name": "age", "type": "flag"}, {"name": "x", "type": "size"}], "$.features.features[1]"),
        ([{"name": "age", "type": "number", "low": 3, "high": 2}], "$.features.features[0].range"),
        ([{"type": "flag"}], "$.features.features[0]"),
        ([{"name": "x", "type": "category", "levels": ["a", "a"]}], "$.features.features[0].levels"),
        ([{"name": "x", "type": "hashed", "buckets": 300}], "$.features.features"),  # too many columns
    ],
)
def test_wrong_features(client, http, declared, path) -> None:
    client.create(client.experiment, ["red", "blue"], reward=RULE, features=FEATURES)
    features = {"features": declared} if isinstance(declared, list) else declared
    changed = http.patch(
        f"/v1/experiments/{client.experiment}", json={"features": features}, headers={"If-Match": "*"}
    )
    new = {"experiment": "new", "arms": ["red", "blue"], "reward": {"low": 0, "high": 1}}
    created = http.post("/v1/experiments", json=new | {"features": features})
    for response in [changed, created][: 1 if path == "$.features" else 2]:
        assert (response.status_code, response.json()["error"]["path"]) == (422, path), response.text


@pytest.mark.parametrize("body", [{}, {"policy": "lin-ts", "features": DECLARED}])
def test_a_change_is_of_one_thing(client, http, body) -> None:
    client.create(client.experiment, ["red", "blue"], reward=RULE, features=FEATURES)
    response = http.patch(f"/v1/experiments/{client.experiment}", json=body, headers={"If-Match": "*"})
    assert (response.status_code, response.json()["error"]["path"]) == (422, "$")


def test_features_that_cannot_change(client, http) -> None:
    client.create(client.experiment, ["red", "blue"], reward=RULE, segments=["device"])
    path = f"/v1/experiments/{client.experiment}"
    assert http.patch(path, json={"features": DECLARED}).status_code == 428
    response = http.patch(path, json={"features": DECLARED}, headers={"If-Match": '"17"'})
    assert response.status_code == 412
    response = http.patch(path, json={"features": DECLARED}, headers={"If-Match": "*"})
    assert (response.status_code, response.json()["error"]["path"]) == (422, "$.features")
    assert "this experiment began without" in response.text


def test_features_keep_the_attributes_of_the_arms(client) -> None:
    """Otherwise no decision could be made any more."""
    arms = {"small": {"price": 1}, "large": {"price": 9}}
    client.create(client.experiment, arms, reward=RULE, features=ITEMS, model="shared")
    with pytest.raises(UnknownName, match="price"):
        client.change_features(Features({"device": ["phone", "desktop"]}))
    client.choose(context={"device": "phone"})


# Statistics by segment.


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_the_client_reads_traffic_by_segment(client, url, client_class) -> None:
    client.create(client.experiment, ["red", "blue"], reward=RULE, segments=["device", "a/b & c?"])
    for device in ("phone", "phone", "desktop"):
        client.reward(client.choose(context={"device": device, "a/b & c?": "x"}), 1.0)

    def ask(**options: Any) -> dict[str, Any]:
        found: dict[str, Any] = call_client(
            client_class, url, lambda each: each.contexts(**options), experiment=client.experiment
        )
        return found

    found = wait_until(lambda: (each := ask())["decisions"] == 3 and each)
    assert [(each["value"], each["decisions"]) for each in found["segments"]] == [
        ("phone", 2),
        ("desktop", 1),
    ]
    assert (found["by"], found["keys"]) == ("device", ["device", "a/b & c?"])
    assert "do not compare" in found["notes"][0]
    assert ask(by="a/b & c?")["segments"][0]["value"] == "x"
    with pytest.raises(InvalidValue, match="No decision has the key 'devise'"):
        ask(by="devise")


def test_contexts_need_the_scope_and_the_experiment(http) -> None:
    assert http.get("/v1/experiments/none/contexts").status_code == 404
    assert http.get("/v1/experiments/none/contexts?by=").status_code == 404
