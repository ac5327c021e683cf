"""The client with a real service: the same methods, arguments, results and errors as a bandit."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest

from maillard import Bandit, Reward, read_log, verify
from maillard.client import Client
from maillard.decisions.identifiers import new_ids
from maillard.decisions.stores import open_store
from maillard.errors import Conflict, InvalidValue, MaillardError, Paused, Stale, UnknownName
from maillard.service import api_keys, running
from tests.client.faulty_server import ID, Behaviour, Handler, both_clients, call_client, faulty_server

ARMS = ["red", "blue"]
RULE = Reward(low=0, high=5, window=3600, default=0, combine="sum", learn="on_arrival")
_NUMBERS = iter(range(10**6))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service") / "log.db"


@pytest.fixture(scope="module")
def url(log) -> Iterator[str]:
    with running(log, no_keys=True) as address:
        yield address


@pytest.fixture(autouse=True)
def short_delays(monkeypatch) -> None:
    """Shorten the delays between attempts; test_client_retries.py tests their length."""
    monkeypatch.setattr("maillard.client.retries._FIRST_DELAY", 0.02)


@pytest.fixture
def home(url) -> Iterator[Client]:
    """A client of a new experiment."""
    with Client(url, experiment=f"home-{next(_NUMBERS)}") as client:
        client.create(client.experiment, ARMS, "ms+:booster=8", reward=RULE)
        yield client


@pytest.fixture
def bandit(home, log) -> Iterator[Bandit]:
    """A bandit on the log of the service."""
    with Bandit(log=log, experiment=home.experiment) as opened:
        yield opened


# The client behaves like a bandit.


def test_decisions_equal_those_in_the_log_exactly(home, bandit) -> None:
    home.rewards({"decision": each.id, "value": 1 + i % 3} for i, each in enumerate(home.choose(size=20)))
    made = [home.choose(unit="user-17"), home.choose(eligible=["red"]), *home.choose(size=3, unit="u")]
    for decision in made:
        assert decision == bandit.decision(decision.id)
        assert home.decision(decision.id)._replace(idempotency_key=decision.idempotency_key) == decision
    assert made[0].probability not in (0.5, 1.0)
    assert made[1].probabilities == {"red": 1.0}
    assert len({each.state for each in made[2:]}) == 1


@both_clients
def test_a_repeated_idempotency_key_returns_the_first_decision(url, home, client_class) -> None:
    def choose(key: str, **options: Any) -> Any:
        return call_client(
            client_class,
            url,
            lambda client: client.choose(idempotency_key=key, **options),
            experiment=home.experiment,
        )

    for key in ("request-1", "schlüssel ", "a\tb", "k" * 500):
        first = choose(key, unit="u")
        assert choose(key, unit="u") == first
        assert first.idempotency_key == key
        several = choose(key, unit="u", size=3)
        assert several == choose(key, unit="u", size=3)
        assert several[0] == first
        with pytest.raises(Conflict, match="a unit other than"):
            choose(key, unit="another")
    assert choose("none", size=0) == []
    with pytest.raises(InvalidValue, match="512 characters"):
        choose("k" * 512, size=2)


@both_clients
def test_large_batches_are_split_into_several_requests(url, home, bandit, client_class) -> None:
    made = call_client(
        client_class, url, lambda client: client.choose(size=2_345), experiment=home.experiment
    )
    assert len({each.id for each in made}) == 2_345
    frame = pd.DataFrame({"decision": [each.id for each in made], "value": 1.0})
    assert call_client(client_class, url, lambda client: client.rewards(frame)) == ["applied"] * 2_345
    assert call_client(client_class, url, lambda client: client.rewards([])) == []
    bandit.settle()
    assert bandit.summary()["rewards"] == 2_345


def test_a_reward_accepts_the_decision_itself(home, bandit) -> None:
    for each in (home, bandit):
        decision = each.choose()
        assert each.reward(decision, 1.0) == "applied"
        assert each.reward(decision.id, 1.0) == "duplicate"
        other = each.choose()
        assert each.rewards([{"decision": other, "value": 0.0}]) == ["applied"]


def test_rewards_have_the_same_outcomes_as_with_a_bandit(home, bandit) -> None:
    noon = datetime.now(UTC)

    def send_rewards(learner: Any) -> list[str]:
        first, second = learner.choose(size=2)
        outcomes = [
            learner.reward(first.id, 2.0, event="order-1", at=noon),
            learner.reward(first.id, 2.0, event="order-1", at=noon.timestamp()),
            learner.reward(first.id, 1.0, event="order-2"),
            learner.reward(second.id, 0),
        ]
        with pytest.raises(Conflict, match=r"the reward is already 2.0, not 3.0"):
            learner.reward(first.id, 3.0, event="order-1")
        rows = [
            {"decision": first.id, "value": 4, "event": "order-1"},
            {"decision": second.id, "value": 1, "event": "order-1", "at": noon},
        ]
        return [*outcomes, *learner.rewards(rows)]

    assert (
        send_rewards(home)
        == send_rewards(bandit)
        == ["applied", "duplicate", "revised", "applied", "conflict", "revised"]
    )
    assert home.rewards([{"decision": home.choose().id, "value": 9.0}]) == ["refused"]
    assert home.reward(new_ids(1)[0], 1.0) == "parked"
    with pytest.raises(UnknownName, match="there is no decision"):
        home.reward(ID, 1.0)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (UnknownName, lambda learner: learner.choose(eligible=["redd"])),
        (InvalidValue, lambda learner: learner.choose(eligible="red")),
        (InvalidValue, lambda learner: learner.choose(unit="")),
        (InvalidValue, lambda learner: learner.choose(size=-1)),
        (InvalidValue, lambda learner: learner.reward("17", 1.0)),
        (InvalidValue, lambda learner: learner.reward(learner.choose().id, 7.0)),
        (InvalidValue, lambda learner: learner.reward(learner.choose().id, float("nan"))),
        (InvalidValue, lambda learner: learner.reward(learner.choose().id, 1.0, at=datetime(2026, 1, 1))),
        (InvalidValue, lambda learner: learner.rewards([{"decision": "17", "value": 1.0}])),
        (UnknownName, lambda learner: learner.rewards([{"decision_id": "17", "value": 1.0}])),
        (InvalidValue, lambda learner: learner.decision("17")),
        (InvalidValue, lambda learner: learner.add_arm("red")),
        (UnknownName, lambda learner: learner.retire_arm("redd")),
        (UnknownName, lambda learner: learner.change_policy("mss")),
        (InvalidValue, lambda learner: learner.change_policy("ms:sigma2=-1")),
        (InvalidValue, lambda learner: learner.change_policy(17)),
    ],
)  # fmt: skip
def test_errors_have_the_same_types_as_those_of_a_bandit(home, bandit, error, call) -> None:
    for learner in (bandit, home):
        with pytest.raises(MaillardError) as caught:
            call(learner)
        assert isinstance(caught.value, error)


def test_errors_have_the_same_fields_as_those_of_a_bandit(home, bandit) -> None:
    for learner in (bandit, home):
        with pytest.raises(UnknownName) as unknown:
            learner.choose(eligible=["redd"])
        assert (unknown.value.kind, unknown.value.name) == ("eligible arm", "redd")
        assert "red" in unknown.value.known
        with pytest.raises(InvalidValue) as invalid:
            learner.change_policy("ms:sigma2=-1")
        assert invalid.value.field == "ms: sigma2"
        assert invalid.value.allowed.startswith("a finite number > 0")
    with pytest.raises(UnknownName) as missing:
        home.choose(experiment="nowhere")
    assert (missing.value.kind, missing.value.name) == ("experiment", "nowhere")


@both_clients
def test_changes_of_an_experiment_take_effect(url, home, bandit, client_class) -> None:
    def call(method: str, *arguments: Any, **options: Any) -> Any:
        return call_client(
            client_class,
            url,
            lambda client: getattr(client, method)(*arguments, **options),
            experiment=home.experiment,
        )

    call("add_arm", "a/b ü")
    call("retire_arm", "red")
    bandit.summary()
    assert home.arms == bandit.arms == ["blue", "a/b ü"]
    for name in ("..", ".", "a%2Fb", "?x#y", " b ", np.str_("n")):
        call("add_arm", name)
        assert name in home.arms
        call("retire_arm", name)
    call("retire_arm", "a/b ü")
    with pytest.raises(InvalidValue, match="other than the only active one"):
        call("retire_arm", "blue")
    etag = call("summary")["etag"]
    call("change_policy", "ms", etag=etag)
    assert str(home.policy) == "ms:sigma2=6.25"
    with pytest.raises(Stale, match="has been changed since"):
        call("change_policy", "uniform", etag=etag)
    call("change_policy", home.policy)
    call("pause")
    call("pause")
    with pytest.raises(Paused):
        call("choose")
    call("resume")
    call("reset")
    call("choose", unit="erica")
    assert call("erase_unit", "erica") == 1
    assert call("erase_unit", "erica") == 0
    call("archive")
    with pytest.raises(Paused):
        call("choose")
    assert home.experiment not in [each["experiment"] for each in call("experiments")]
    assert home.experiment in [each["experiment"] for each in call("experiments", archived=True)]
    call("resume")
    summary, expected = call("summary"), bandit.summary()
    assert (summary["epoch"], summary["policy_version"]) == (2, 3)
    for name in ("experiment", "policy", "policy_version", "epoch", "paused", "archived", "sticky", "reward"):
        assert summary[name] == expected[name]
    assert [arm for arm, each in summary["arms"].items() if each["active"]] == ["blue"]


def test_a_sticky_unit_keeps_its_arm(url) -> None:
    with Client(url) as client:
        made = client.create("sticky", [str(i) for i in range(50)], "uniform", sticky=True)
        assert made["sticky"] is True
        assert len({client.choose(unit="u", experiment="sticky").arm for _ in range(5)}) == 1
        with pytest.raises(Conflict, match="sticky"):
            client.create("sticky", ["a"], "uniform")
        bad: dict[str, Any]
        for bad in ({"arms": []}, {"policy": 17}, {"reward": 1}, {"sticky": "yes"}, {"experiment": "a b"}):
            with pytest.raises(InvalidValue):
                client.create(**{"experiment": "new", "arms": ["a"], "policy": "uniform", **bad})


# Read-only methods.


@both_clients
def test_a_log_is_exported_verified_and_evaluated(url, log, client_class, tmp_path) -> None:
    name, path = f"exported-{client_class.__name__}", tmp_path / "log.parquet"
    home = Client(url, experiment=name)
    home.create(name, ARMS, "ms", reward=Reward(low=0, high=5))
    bandit = Bandit(log=log, experiment=name)
    home.rewards({"decision": each.id, "value": 1 + i % 3} for i, each in enumerate(home.choose(size=500)))
    assert call_client(client_class, url, lambda client: client.export(str(path)), experiment=name) == path
    with read_log(path) as exported:
        assert {row.decision for row in exported.rows()} == {
            bandit.decision(row.decision.id) for row in exported.rows()
        }
        assert sum(1 for _ in exported.rows()) == 500
    found, expected = (
        call_client(client_class, url, lambda client: client.verify(), experiment=name),
        verify(bandit),
    )
    assert (found["verdict"], found["recomputed"]) == (expected.verdict, 500)
    estimate = call_client(
        client_class, url, lambda client: client.evaluate("uniform", ["snips"], 0.9), experiment=name
    )
    assert estimate["lower"] < estimate["value"] < estimate["upper"]
    assert (estimate["estimator"], estimate["confidence"]) == ("snips", 0.9)
    for bad in (
        {"target": 17},
        {"estimators": "snips"},
        {"confidence": 2},
        {"confidence": "x"},
        {"estimators": ["no"]},
        {"estimators": [5]},
    ):
        with pytest.raises(MaillardError, match=next(iter(bad))[:9]):
            home.evaluate(**{"target": "uniform", **bad})
    with pytest.raises(InvalidValue, match="the etag of a summary"):
        home.change_policy("ms", etag="\r\nx: y")
    with pytest.raises(InvalidValue, match="the path of a file"):
        home.export(17)
    with pytest.raises(InvalidValue, match="folder that exists"):
        home.export(tmp_path / "nowhere" / "log.parquet")
    home.close()
    bandit.close()


def test_a_summary_counts_decisions_and_rewards(home) -> None:
    home.create(f"{home.experiment}-sums", ARMS, "ms", reward=Reward(low=0, high=1, combine="sum"))
    sums = home.bandit(f"{home.experiment}-sums").summary()
    assert "no reward is final" in sums["interval"]["refusal"]
    assert sums["refusal"] == sums["interval"]["refusal"]
    home.create(f"{home.experiment}-once", ARMS, "ms", reward=Reward(low=0, high=1))
    home = home.bandit(f"{home.experiment}-once")
    home.rewards({"decision": each.id, "value": 1} for each in home.choose(size=30))
    summary = home.summary()
    for _ in range(600):  # the service counts decisions that are older than a second
        if summary["decisions"] < 30:
            time.sleep(0.1)
            summary = home.summary()
    assert summary["rewards"] == 30
    assert sum(arm["decisions"] for arm in summary["arms"].values()) == 30
    assert sum(arm["pulls"] for arm in summary["arms"].values()) == 30
    assert all(arm["lower"] <= 1.0 <= arm["upper"] for arm in summary["arms"].values())


# Retries do not duplicate decisions or rewards.


def forward(url: str, *, lose: bool = False) -> Behaviour:
    """Forward the request to the service; with `lose`, drop its response."""

    def behave(handler: Handler, body: bytes) -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
        headers = {name: value for name, value in handler.headers.items() if name.lower() != "host"}
        connection.request(handler.command, handler.path, body, headers)  # adds its own Host
        received = connection.getresponse()
        content = received.read()
        connection.close()
        if lose:
            handler.close_connection = True
            return
        handler.send_response(received.status)
        for name, value in received.getheaders():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return behave


@both_clients
def test_a_decision_whose_response_is_lost_is_made_once(url, home, bandit, client_class) -> None:
    def call(method: str, *arguments: Any, **options: Any) -> Any:
        proxy.respond_with(forward(url, lose=True), forward(url))
        action: Callable[[Any], Any] = lambda client: getattr(client, method)(*arguments, **options)  # noqa: E731
        return call_client(client_class, proxy.url, action, experiment=home.experiment)

    with faulty_server() as proxy:
        decision = call("choose", unit="user-17")
        assert len(proxy.requests) == 2
        assert bandit.summary()["decisions"] == 1
        assert bandit.decision(decision.id) == decision
        several = call("choose", size=10)
        assert bandit.summary()["decisions"] == 11
        assert call("reward", decision.id, 1.0) == "duplicate"  # of the attempt whose response was lost
        assert (
            call("rewards", [{"decision": each.id, "value": 1.0} for each in several]) == ["duplicate"] * 10
        )
        assert bandit.summary()["rewards"] == 11
        call("change_policy", "uniform")
        assert bandit.summary()["policy_version"] == 2
        name = f"{home.experiment}-{client_class.__name__}"
        made = call("create", name, ARMS, "ms", reward=Reward(low=0, high=1))
        assert (made["experiment"], made["policy"]) == (name, "ms:sigma2=0.25")


def test_the_client_waits_for_a_service_that_restarts(tmp_path) -> None:
    log = tmp_path / "log.db"
    with running(log, no_keys=True) as url, Client(url, experiment="home", retries=20) as client:
        client.create("home", ARMS, "ms", reward=RULE)
        first = client.choose()
    made: list[Any] = []
    waiting = threading.Thread(target=lambda: made.append(client.bandit("home").choose(unit="u")))
    client = Client(url, retries=20)
    waiting.start()  # no service listens yet
    with running(log, port=urlsplit(url).port or 0, no_keys=True):
        waiting.join()
        assert made[0].unit == "u"
        assert client.decision(first.id).arm == first.arm
    client.close()


# API keys.


def test_a_service_without_keys_must_be_asked_for(tmp_path) -> None:
    with pytest.raises(MaillardError, match=r"a database with an API key .*, or no_keys=True"):
        running(tmp_path / "log.db").__enter__()


def test_a_key_grants_only_its_scopes_and_experiments(tmp_path) -> None:
    store = open_store(tmp_path / "log.db")
    _, admin = api_keys.create(store, "admin", ["admin"])
    _, chooser = api_keys.create(store, "chooser", ["decide"], experiments=["home"])
    store.close()
    with running(tmp_path / "log.db") as url:
        call_client(Client, url, lambda client: client.create("home", ARMS, "ms", reward=RULE), key=admin)
        assert call_client(Client, url, lambda client: client.choose(), key=chooser).arm in ARMS
        for key, message in (
            (None, "401|API key"),
            (admin + "x", "revoked|no API key"),
            (chooser, "scope 'reward'"),
        ):
            with pytest.raises(MaillardError, match=message) as caught:
                call_client(Client, url, lambda client: client.reward(ID, 1.0), key=key)
            assert str(key) not in str(caught.value)
