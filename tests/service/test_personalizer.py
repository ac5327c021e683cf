"""Personalizer's calls: its own SDK against a real service, and Rank calls as decisions."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import math
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from azure.cognitiveservices.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer.models import (
    ErrorResponseException,
    PersonalizerError,
    RankableAction,
    RankRequest,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from msrest.authentication import CognitiveServicesCredentials
from msrest.exceptions import HttpOperationError

from maillard import Bandit, Features, Reward, hashed, read_log, verify
from maillard import wire_schema as wire
from maillard.decisions.decision import Decision
from maillard.decisions.deferred_events import sweep
from maillard.decisions.stores import open_store
from maillard.errors import InvalidValue, Unavailable
from maillard.service.access_log import AccessLog
from maillard.service.api_keys import create
from maillard.service.handlers.personalizer_handlers import rank, reward_event
from maillard.service.handlers.request_context import RequestContext
from maillard.service.personalizer.experiment import (
    DEFAULT_POLICY,
    default_features,
    default_reward,
    open_experiment,
)
from maillard.service.personalizer.rank_calls import rank_request, rank_response
from maillard.service.service_state import Service as Running
from tests.service.api import wait_until
from tests.serving import Service, serving

NAME = "personalizer"
TOPICS = {
    "news": {"topic": "news", "minutes": 2.5},
    "sport": {"topic": "sport"},
    "film": {"length": [90, 120]},
}
_numbers = itertools.count(1)


def sdk(service: Service, key: str = "any key") -> PersonalizerClient:
    return PersonalizerClient(service.url, CognitiveServicesCredentials(key))


def actions(*ids: str) -> list[RankableAction]:
    return [RankableAction(id=each, features=[TOPICS.get(each, {})]) for each in ids or TOPICS]


def new_event() -> str:
    return f"event/{next(_numbers)} of ü"  # it must be escaped in a path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "log.db"


@pytest.fixture(scope="module")
def service(log: Path) -> Iterator[Service]:
    with serving(log, options=["--personalizer"]) as running:
        yield running


@pytest.fixture(scope="module")
def client(service: Service) -> PersonalizerClient:
    return sdk(service)


def stored(log: Path, key: str) -> Decision | None:
    """The logged decision of an event."""
    store = open_store(str(log))
    try:
        with store.reading(NAME) as transaction:
            found = transaction.decisions_by_key([key]).get(key)
            return found[0] if found else None
    finally:
        store.close()


def rewards_of(log: Path, decision: str) -> list[float]:
    store = open_store(str(log))
    try:
        with store.reading(NAME) as transaction:
            return [each.value for each in transaction.reward_events([decision]).get(decision, [])]
    finally:
        store.close()


def failure(error: HttpOperationError) -> tuple[int, str]:
    """The status and the message of a failed call."""
    return error.response.status_code, error.response.json()["error"]["message"]


def model_of(error: ErrorResponseException) -> PersonalizerError:
    """The error as a model of the SDK."""
    assert error.error is not None
    found: PersonalizerError = error.error.error
    return found


def check(log: Path) -> None:
    found = verify(log, NAME)
    assert found.problems == []
    assert found.recomputed == found.decisions


# The SDK against a service.


def test_the_endpoint_is_printed(service) -> None:
    assert f"endpoint for Personalizer's SDK: {service.url} (experiment {NAME})\n" in service.output


def test_rank_and_reward(client, log) -> None:
    event = new_event()
    context = [{"user": {"age": 36, "_name": "Ada"}}, {"device": "phone", "mobile": True}]
    found = client.rank(RankRequest(actions=actions(), context_features=context, event_id=event))
    assert found.event_id == event
    assert {each.id for each in found.ranking} == TOPICS.keys()
    assert found.ranking[0].id == found.reward_action_id
    assert sum(each.probability for each in found.ranking) == pytest.approx(1, abs=1e-12)
    assert client.events.reward(event, 0.5) is None
    row = stored(log, event)
    assert row is not None
    assert {each.id: each.probability for each in found.ranking} == row.probabilities
    assert row.arm == found.reward_action_id
    assert json.loads(row.context) == {"user.age": 36, "device": "phone", "mobile": True}
    assert json.loads(row.actions)["news"] == {
        "action": "news",
        "action.topic": "news",
        "action.minutes": 2.5,
    }
    assert json.loads(row.actions)["film"] == {
        "action": "film",
        "action.length.0": 90,
        "action.length.1": 120,
    }
    assert rewards_of(log, row.id) == [0.5]
    assert client.rank(RankRequest(actions=actions())).event_id != event
    check(log)


def test_a_repeated_event_returns_the_same_decision(client, log) -> None:
    event = new_event()
    asked = RankRequest(actions=actions(), context_features=[{"device": "phone"}], event_id=event)
    first = client.rank(asked).as_dict()
    assert [client.rank(asked).as_dict() for _ in range(5)] == [first] * 5
    for value in (1.0, 1.0, -0.25):  # each call is a reward; the first counts
        client.events.reward(event, value)
    for _ in range(2):  # a retry that says so is logged once
        client.events.reward(event, 0.5, custom_headers={"Idempotency-Key": "r1"})
    row = stored(log, event)
    assert row is not None
    assert rewards_of(log, row.id) == [1.0, 1.0, -0.25, 0.5]
    with pytest.raises(ErrorResponseException) as other:
        client.rank(RankRequest(actions=actions(), context_features=[{"device": "watch"}], event_id=event))
    assert (other.value.response.status_code, model_of(other.value).code) == (400, "BadRequest")
    assert model_of(other.value).message.startswith(f"eventId {event!r} was used by a call with another")
    assert model_of(other.value).inner_error.code == "key_reused"


def test_excluded_actions_keep_their_places(client, log) -> None:
    event, ids = new_event(), ["a", "b", "c", "d"]
    asked = RankRequest(actions=actions(*ids), excluded_actions=["a", "c", "unknown"], event_id=event)
    found = client.rank(asked)
    assert [found.ranking[place].id for place in (0, 2)] == ["a", "c"]
    assert [found.ranking[place].probability for place in (0, 2)] == [0.0, 0.0]
    assert found.ranking[1].id == found.reward_action_id
    assert client.rank(asked).as_dict() == found.as_dict()
    row = stored(log, event)
    assert row is not None
    assert row.eligible == ("b", "d")
    assert [each.probability for each in found.ranking] == [
        row.probabilities.get(each.id, 0.0) for each in found.ranking
    ]


def test_a_deferred_event_counts_only_after_its_activation(client, log) -> None:
    shown, hidden = new_event(), new_event()
    found = {
        event: client.rank(RankRequest(actions=actions(), event_id=event, defer_activation=True))
        for event in (shown, hidden)
    }
    again = RankRequest(actions=actions(), event_id=shown, defer_activation=True)
    assert client.rank(again).as_dict() == found[shown].as_dict()
    again.defer_activation = False  # the caller would believe that the decision counts
    with pytest.raises(ErrorResponseException, match="activation was deferred"):
        client.rank(again)
    client.events.reward(hidden, 1.0)
    client.events.reward(shown, 1.0)
    assert stored(log, shown) is None
    for _ in range(2):
        client.events.activate(shown)
    row = stored(log, shown)
    assert row is not None
    assert row.probabilities == {each.id: each.probability for each in found[shown].ranking}
    assert (row.arm, rewards_of(log, row.id)) == (found[shown].reward_action_id, [1.0])
    client.events.reward(shown, 0.5)
    assert rewards_of(log, row.id) == [1.0, 0.5]
    assert stored(log, hidden) is None
    check(log)


def test_a_reward_may_come_before_its_event(client, log) -> None:
    event = new_event()
    client.events.reward(event, -1.0)
    client.rank(RankRequest(actions=actions(), event_id=event))
    row = stored(log, event)
    assert row is not None
    assert rewards_of(log, row.id) == [-1.0]


def test_activating_a_logged_event_changes_nothing(client, log) -> None:
    event = new_event()
    client.rank(RankRequest(actions=actions(), event_id=event))
    row = stored(log, event)
    client.events.activate(event)
    assert stored(log, event) == row


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (RankRequest(actions=[]), "length >= 1"),
        (RankRequest(actions=actions(*map(str, range(51)))), "length <= 50"),
        (RankRequest(actions=actions("a", "b", "a")), 'each id once, got "a"'),
        (RankRequest(actions=actions("a"), excluded_actions=["a"]), "ids that leave at least one action"),
        (RankRequest(actions=actions("a"), event_id="a\0b"), "eventId: expected a string"),
        (RankRequest(actions=actions("a"), context_features=[7]), "Expected `object`, got `int`"),
        (RankRequest(actions=actions("a"), context_features=[{"a": 1}, {"a": 2}]), "one value for each key"),
        (RankRequest(actions=actions("a"), context_features=[{"action": "x"}]), "'a' has this one"),
        (RankRequest(actions=actions("a"), context_features=[{"x": "y" * 20_000}]), "at most 16384 bytes"),
    ],
)  # fmt: skip
def test_a_wrong_rank_call_gets_an_error_of_personalizer(client, asked, message) -> None:
    with pytest.raises(ErrorResponseException) as found:
        client.rank(asked)
    assert found.value.response.status_code == 400
    assert model_of(found.value).code == "BadRequest"
    assert message in model_of(found.value).message


def test_wrong_rewards_and_activations_get_an_error(client, service) -> None:
    with pytest.raises(HttpOperationError) as wrong:
        client.events.reward(new_event(), 2)
    assert failure(wrong.value) == (400, "value: expected a number from -1 to 1, got 2.0")
    with pytest.raises(HttpOperationError) as unknown:
        client.events.activate("nothing")
    status, message = failure(unknown.value)
    assert status == 404
    assert message.startswith("There is no event 'nothing': no Rank call had this eventId")
    url = f"{service.url}/personalizer/v1.0/events/e1"
    assert httpx2.post(f"{url}/reward", json={"value": "1"}).json() == {
        "error": {
            "code": "BadRequest",
            "message": "Expected `float`, got `str`",
            "target": "$.value",
            "innerError": {"code": "invalid_value"},
        }
    }
    missing = httpx2.post(f"{url}/activate")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "ResourceNotFound")
    client.rank(RankRequest(actions=actions(), event_id="e1"))
    done = httpx2.post(f"{url}/activate")
    assert (done.status_code, done.content, "content-length" in done.headers) == (204, b"", False)


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "v1.0/configurations/service", "PATCH /v1/experiments/personalizer"),
        ("PUT", "v1.0/configurations/policy", "PATCH /v1/experiments/personalizer"),
        ("POST", "v1.0/evaluations", "maillard evaluate"),
        ("GET", "v1.0/logs/properties", "maillard export"),
        ("GET", "v1.0/model", "/state"),
        ("POST", "v1.1-preview.3/multislot/rank", "once for each slot"),
        ("POST", "v1.1-preview.3/rank", "Only version v1.0"),
        ("GET", "v1.0/rank", "Rank, Reward and Activate"),
        ("DELETE", "v1.0/a/b\nc", "Rank, Reward and Activate"),
    ],
)
def test_other_calls_say_what_to_use_instead(service, method, path, message) -> None:
    response = httpx2.request(method, f"{service.url}/personalizer/{path.replace(chr(10), '%0A')}")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "ResourceNotFound")
    assert message in response.json()["error"]["message"]


def test_the_calls_are_described_only_if_they_are_offered(service, log) -> None:
    document = httpx2.get(f"{service.url}/openapi.json").json()
    paths = [path for path in document["paths"] if path.startswith("/personalizer")]
    events = "/personalizer/v1.0/events/{eventId}"
    assert paths == ["/personalizer/v1.0/rank", f"{events}/reward", f"{events}/activate"]
    posted = document["paths"]["/personalizer/v1.0/rank"]["post"]
    assert posted["security"] == [{"key": []}, {"subscription": []}]
    assert set(posted["responses"]) >= {"201", "400", "401", "403", "429", "503"}
    with serving(log.with_name("plain.db")) as plain:
        assert not any(
            "personalizer" in path for path in httpx2.get(f"{plain.url}/openapi.json").json()["paths"]
        )
        assert httpx2.post(f"{plain.url}/personalizer/v1.0/rank", json={}).status_code == 404


def test_the_rest_of_the_service_works_on_the_experiment(client, service, log) -> None:
    event = new_event()
    client.rank(RankRequest(actions=actions(), event_id=event))
    row = stored(log, event)
    assert row is not None
    with httpx2.Client(base_url=f"{service.url}/v1") as http:
        shown = http.get(f"/decisions/{row.id}").json()
        assert (shown["arm"], shown["probabilities"]) == (row.arm, row.probabilities)
        experiment = f"/experiments/{NAME}"
        configuration = http.get(experiment).json()
        assert Features.from_json(json.dumps(configuration["features"])) == default_features()
        assert configuration["reward"]["window"] == 600
        assert http.put(f"/decisions/{row.id}/reward", json={"value": 1}).json()["outcome"] == "waiting"
        assert http.get(f"{experiment}/state").json()["pending"] > 0
        assert http.get(f"{experiment}/activity").json()["experiment"] == NAME
        assert http.post(f"{experiment}:verify").json()["problem_count"] == 0
        assert http.get(f"{experiment}/export").content[:4] == b"PAR1"
        metrics = http.get(f"{service.url}/metrics").text
    assert 'maillard_requests_total{operation="rank",status="201"}' in metrics


# Keys.


def accepted(service: Service) -> list[dict[str, Any]]:
    """The lines of the access log about Rank calls that made a decision."""
    lines = [json.loads(line) for line in service.output.splitlines() if '"operation":"rank"' in line]
    return [line for line in lines if line["status"] == 201]


def test_the_subscription_key_is_an_api_key(tmp_path) -> None:
    path = tmp_path / "log.db"
    store = open_store(str(path))
    _, both = create(store, "app", ["decide", "reward"], [NAME])
    _, decide = create(store, "ranks", ["decide"])
    _, elsewhere = create(store, "shop", ["decide", "reward"], ["shop"])
    _, slow = create(store, "slow", ["decide"], rate=1e-3)
    store.close()
    with serving(path, no_keys=False, options=["--personalizer", NAME]) as service:
        asked = RankRequest(actions=actions(), event_id="e1")
        assert sdk(service, both).rank(asked).event_id == "e1"
        sdk(service, both).events.reward("e1", 1)
        for key, status, code in ((elsewhere, 403, "Forbidden"), ("wrong", 401, "Unauthorized")):
            with pytest.raises(ErrorResponseException) as found:
                sdk(service, key).rank(asked)
            assert (found.value.response.status_code, model_of(found.value).code) == (status, code)
        with pytest.raises(HttpOperationError) as refused:
            sdk(service, decide).events.reward("e1", 1)
        assert failure(refused.value) == (403, "This key does not have the scope 'reward'.")
        rank = f"{service.url}/personalizer/v1.0/rank"
        body = {"actions": [{"id": "a"}]}
        assert httpx2.post(rank, json=body).status_code == 401
        assert (
            httpx2.get(f"{service.url}/personalizer/v1.0/model").status_code == 401
        )  # it names the experiment
        bearer = {"Authorization": f"Bearer {decide}"}
        assert httpx2.post(rank, json=body, headers=bearer).status_code == 201
        header = {"Ocp-Apim-Subscription-Key": slow}
        statuses = [httpx2.post(rank, json=body, headers=header).status_code for _ in range(4)]
        assert statuses[-1] == 429
        lines = wait_until(lambda: accepted(service))  # the access log is written a little later
    assert {line["experiment"] for line in lines} == {NAME}
    assert all(line["key"] and line["decision_id"] for line in lines)


# Restarts, and what stays in the log.


def test_events_survive_a_kill(tmp_path) -> None:
    path, rng = tmp_path / "log.db", random.Random(1)
    rule = Reward(low=0, high=1)
    make_experiment(path, reward=rule)
    shown = {}
    with serving(path, options=["--personalizer", NAME], seed=3) as service:
        client = sdk(service)
        for number in range(24):
            event, deferred = f"e{number}", number % 3 == 0
            asked = RankRequest(
                actions=actions("news", "film"), context_features=[{"device": "phone"}],
                event_id=event, defer_activation=deferred,
            )  # fmt: skip
            shown[event] = client.rank(asked).reward_action_id
            if number == 12:
                service.restart()
                client = sdk(service)
                assert client.rank(asked).reward_action_id == shown[event]
            if number % 6 == 0:
                continue  # never shown, so neither activated nor rewarded
            if deferred:
                client.events.activate(event)
            client.events.reward(event, float(rng.random() < (0.8 if shown[event] == "news" else 0.2)))
    check(path)
    rows = [row.decision for row in read_log(path).rows()]
    assert {row.idempotency_key: row.arm for row in rows} == {
        event: arm for event, arm in shown.items() if int(event[1:]) % 6
    }
    with Bandit(log=path, experiment=NAME) as bandit:
        assert bandit.tally.pulls.sum() == 20


def make_experiment(path: Path, **options: Any) -> None:
    given = {"features": default_features(), "model": "shared", "reward": default_reward()} | options
    policy = given.pop("policy", DEFAULT_POLICY)
    arms = given.pop("arms", [])
    Bandit(arms, policy, log=path, experiment=NAME, **given).close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"arms": ["a"], "features": None, "model": None, "policy": "ms:sigma2=1"},
            "an experiment with features",
        ),
        ({"arms": {"a": {}, "b": {}}}, "an experiment with features, a shared model and without arms"),
        ({"features": Features({"age": (0, 1)})}, "an experiment whose features have a rest"),
    ],
)
def test_an_existing_experiment_must_fit(tmp_path, options, message) -> None:
    make_experiment(tmp_path / "log.db", **options)
    store = open_store(str(tmp_path / "log.db"))
    try:
        with pytest.raises(InvalidValue, match=message):
            open_experiment(store, NAME)
    finally:
        store.close()


# Rank calls as decisions.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc_"), inner, max_size=3),
    max_leaves=8,
)
FEATURE_LIST = st.lists(st.dictionaries(st.sampled_from(["a", "b", "_c"]), JSON, max_size=3), max_size=3)
RULE = Bandit([], DEFAULT_POLICY, features=default_features(), model="shared", reward=default_reward())


@settings(max_examples=60)
@given(FEATURE_LIST, st.lists(FEATURE_LIST, min_size=1, max_size=3))
def test_any_features_are_flattened_in_the_same_way(context, features) -> None:
    body = wire.RankRequest(
        actions=[wire.RankableAction(id=f"a{i}", features=each) for i, each in enumerate(features)],
        context_features=context,
    )
    try:
        found = rank_request(body, "e1")
    except InvalidValue as error:
        assert "one value for each key" in error.allowed  # noqa: PT017  # all others are accepted
        return
    raw = found.contexts[0]
    assert rank_request(body, "e1") == found
    assert raw.values is not None
    assert raw.actions is not None
    assert not any(part.startswith("_") for name in raw.values for part in name.split("."))
    assert all(name.partition(".")[0] == "action" for each in raw.actions.values() for name in each)
    values = (*raw.values.values(), *(value for each in raw.actions.values() for value in each.values()))
    assert all(value is None or isinstance(value, str | int | float) for value in values)
    (decision,) = RULE.session.decide(found._replace(key=None))
    assert decision.eligible == tuple(raw.actions)


@given(st.data())
def test_a_ranking_has_every_action_once(data) -> None:
    ids = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    excluded = data.draw(st.lists(st.sampled_from(ids), unique=True, max_size=len(ids) - 1))
    body = wire.RankRequest(actions=[wire.RankableAction(id=each) for each in ids], excluded_actions=excluded)
    (row,) = RULE.session.decide(rank_request(body, "e1")._replace(key=None))
    weights = data.draw(st.lists(st.integers(1, 5), min_size=len(row.eligible), max_size=len(row.eligible)))
    row = row._replace(log_probabilities=tuple(math.log(each / sum(weights)) for each in weights))
    found = rank_response(body, "e1", row)
    assert sorted(each.id for each in found.ranking) == sorted(ids)
    assert math.fsum(each.probability for each in found.ranking) == pytest.approx(1, abs=1e-12)
    for place, each in enumerate(found.ranking):
        assert (each.id in excluded) == (ids[place] in excluded)
        assert each.probability == (0 if each.id in excluded else row.probabilities[each.id])
        assert each.id not in excluded or each.id == ids[place]
    chosen, *others = [each for each in found.ranking if each.id not in excluded]
    assert chosen.id == row.arm == found.reward_action_id
    assert others == sorted(others, key=lambda each: (-each.probability, ids.index(each.id)))


# Learning.

VISITORS = {
    "phone": {"news": 0.6, "sport": 0.4, "film": 0.2},
    "desktop": {"news": 0.2, "sport": 0.4, "film": 0.6},
}


def mean_regret(features: Features, visitors: int = 240) -> float:
    """The mean regret of the last third of the visitors, each of whom has one of two contexts."""
    rng, rule = random.Random(4), Reward(low=-1, high=1)
    bandit = Bandit([], DEFAULT_POLICY, features=features, model="shared", reward=rule, seed=4)
    body = {"actions": [{"id": each, "features": [{"topic": each}]} for each in VISITORS["phone"]]}
    lost = []
    for number in range(visitors):
        device = rng.choice(list(VISITORS))
        asked = wire.RankRequest(
            actions=[wire.RankableAction(**each) for each in body["actions"]],
            context_features=[{"device": device}],
        )
        (row,) = bandit.session.decide(rank_request(asked, f"e{number}"))
        bandit.reward(row, float(rng.random() < VISITORS[device][row.arm]))
        lost.append(0.6 - VISITORS[device][row.arm])
    return sum(lost[-visitors // 3 :]) / (visitors // 3)


def test_a_logged_decision_is_returned_even_if_its_reward_must_wait_longer(tmp_path, monkeypatch) -> None:
    """An error would mean that no action was chosen, but the log has one."""

    def fail(*_: object) -> None:
        raise Unavailable("the log cannot be written")

    monkeypatch.setattr("maillard.service.handlers.personalizer_handlers._release", fail)

    async def call() -> list[int]:
        store = open_store(str(tmp_path / "log.db"))
        open_experiment(store, NAME)
        async with Running(
            store, str(tmp_path / "log.db"), AccessLog(io.StringIO()), rate_limit=0, no_keys=True,
            stopping=threading.Event(), personalizer=NAME,
        ) as running:  # fmt: skip
            path = {"experiment": NAME, "eventId": "e1"}
            reward = wire.PersonalizerReward(value=1.0)
            asked = wire.RankRequest(actions=[wire.RankableAction(id=each) for each in "ab"], event_id="e1")
            statuses = [
                (await reward_event(RequestContext(running, path, {}, reward, {}, None))).status,
                (await rank(RequestContext(running, path, {}, asked, {}, None))).status,
            ]
            experiment = await running.experiments.get(NAME)
            experiment.bandit.session.write(sweep)
        return statuses

    assert asyncio.run(call()) == [204, 201]
    row = stored(tmp_path / "log.db", "e1")
    assert row is not None
    assert rewards_of(tmp_path / "log.db", row.id) == [1.0]


def test_the_default_features_learn_to_personalise() -> None:
    """Without crosses, the same action is best for everyone, and loses 0.2 on average."""
    assert mean_regret(Features({}, rest=hashed(64, numbers="bins"))) > 0.15
    assert mean_regret(default_features()) < 0.08
