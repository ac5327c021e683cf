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
from tests.client.misbehaving import ID, Behaviour, Handler, either, misbehaving, talk

ARMS = ["red", "blue"]
RULE = Reward(low=0, high=5, window=3600, default=0, combine="sum")
_NUMBERS = iter(range(10**6))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service") / "log.db"


@pytest.fixture(scope="module")
def url(log) -> Iterator[str]:
    with running(log) as address:
        yield address


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """How long is waited is for another test."""
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


# The same as a bandit.


def test_decisions_are_those_of_the_log_to_the_last_bit(home, bandit) -> None:
    home.rewards({"decision": each.id, "value": 1 + i % 3} for i, each in enumerate(home.choose(size=20)))
    made = [home.choose(unit="user-17"), home.choose(eligible=["red"]), *home.choose(size=3, unit="u")]
    for decision in made:
        assert decision == bandit.decision(decision.id)
        assert home.decision(decision.id)._replace(idempotency_key=decision.idempotency_key) == decision
    assert made[0].probability not in (0.5, 1.0)
    assert made[1].probabilities == {"red": 1.0}
    assert len({each.state for each in made[2:]}) == 1


@either
def test_a_key_that_was_used_draws_nothing(url, home, kind) -> None:
    def choose(key: str, **options: Any) -> Any:
        return talk(
            kind,
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


@either
def test_many_go_in_pieces(url, home, bandit, kind) -> None:
    made = talk(kind, url, lambda client: client.choose(size=2_345), experiment=home.experiment)
    assert len({each.id for each in made}) == 2_345
    frame = pd.DataFrame({"decision": [each.id for each in made], "value": 1.0})
    assert talk(kind, url, lambda client: client.rewards(frame)) == ["applied"] * 2_345
    assert talk(kind, url, lambda client: client.rewards([])) == []
    bandit.settle()
    assert bandit.summary()["rewards"] == 2_345


def test_rewards_become_what_they_become_for_a_bandit(home, bandit) -> None:
    noon = datetime.now(UTC)

    def tell(learner: Any) -> list[str]:
        first, second = learner.choose(size=2)
        said = [
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
        return [*said, *learner.rewards(rows)]

    assert tell(home) == tell(bandit) == ["applied", "duplicate", "revised", "applied", "conflict", "revised"]
    assert home.rewards([{"decision": home.choose().id, "value": 9.0}]) == ["refused"]
    assert home.reward(new_ids(1)[0], 1.0) == "parked"
    with pytest.raises(UnknownName, match="there is no decision"):
        home.reward(ID, 1.0)


@pytest.mark.parametrize(
    ("error", "say"),
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
def test_errors_are_those_of_a_bandit(home, bandit, error, say) -> None:
    for learner in (bandit, home):
        with pytest.raises(MaillardError) as caught:
            say(learner)
        assert isinstance(caught.value, error)


def test_errors_have_the_fields_of_a_bandits(home, bandit) -> None:
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


@either
def test_changes_hold_from_then_on(url, home, bandit, kind) -> None:
    def say(verb: str, *arguments: Any, **options: Any) -> Any:
        return talk(
            kind, url, lambda client: getattr(client, verb)(*arguments, **options), experiment=home.experiment
        )

    say("add_arm", "a/b ü")
    say("retire_arm", "red")
    bandit.summary()
    assert home.arms == bandit.arms == ["blue", "a/b ü"]
    for name in ("..", ".", "a%2Fb", "?x#y", " b ", np.str_("n")):
        say("add_arm", name)
        assert name in home.arms
        say("retire_arm", name)
    say("retire_arm", "a/b ü")
    with pytest.raises(InvalidValue, match="not the last one"):
        say("retire_arm", "blue")
    etag = say("summary")["etag"]
    say("change_policy", "ms", etag=etag)
    assert str(home.policy) == "ms:sigma2=6.25"
    with pytest.raises(Stale, match="has been changed since"):
        say("change_policy", "uniform", etag=etag)
    say("change_policy", home.policy)
    say("pause")
    say("pause")
    with pytest.raises(Paused):
        say("choose")
    say("resume")
    say("reset")
    say("archive")
    with pytest.raises(Paused):
        say("choose")
    assert home.experiment not in [each["experiment"] for each in say("experiments")]
    assert home.experiment in [each["experiment"] for each in say("experiments", archived=True)]
    say("resume")
    summary, theirs = say("summary"), bandit.summary()
    assert (summary["epoch"], summary["policy_version"]) == (2, 3)
    for name in ("experiment", "policy", "policy_version", "epoch", "paused", "archived", "sticky", "reward"):
        assert summary[name] == theirs[name]
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


# Looking.


@either
def test_a_log_is_exported_verified_and_evaluated(url, log, kind, tmp_path) -> None:
    name, path = f"exported-{kind.__name__}", tmp_path / "log.parquet"
    home = Client(url, experiment=name)
    home.create(name, ARMS, "ms", reward=Reward(low=0, high=5))
    bandit = Bandit(log=log, experiment=name)
    home.rewards({"decision": each.id, "value": 1 + i % 3} for i, each in enumerate(home.choose(size=500)))
    assert talk(kind, url, lambda client: client.export(str(path)), experiment=name) == path
    with read_log(path) as exported:
        assert {row.decision for row in exported.rows()} == {
            bandit.decision(row.decision.id) for row in exported.rows()
        }
        assert sum(1 for _ in exported.rows()) == 500
    found, theirs = talk(kind, url, lambda client: client.verify(), experiment=name), verify(bandit)
    assert (found["verdict"], found["recomputed"]) == (theirs.verdict, 500)
    answer = talk(kind, url, lambda client: client.evaluate("uniform", ["snips"], 0.9), experiment=name)
    assert answer["lower"] < answer["value"] < answer["upper"]
    assert (answer["estimator"], answer["confidence"]) == ("snips", 0.9)
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


def test_a_summary_counts_what_was_made(home) -> None:
    assert "may still change" in home.summary()["interval"]["refusal"]  # rewards of several events
    home.create(f"{home.experiment}-once", ARMS, "ms", reward=Reward(low=0, high=1))
    home = home.bandit(f"{home.experiment}-once")
    home.rewards({"decision": each.id, "value": 1} for each in home.choose(size=30))
    summary = home.summary()
    for _ in range(600):  # the service counts what is older than a second
        if summary["decisions"] < 30:
            time.sleep(0.1)
            summary = home.summary()
    assert summary["rewards"] == 30
    assert sum(arm["decisions"] for arm in summary["arms"].values()) == 30
    assert sum(arm["pulls"] for arm in summary["arms"].values()) == 30
    assert all(arm["lower"] <= 1.0 <= arm["upper"] for arm in summary["arms"].values())


# Nothing is counted twice.


def forward(url: str, *, lose: bool = False) -> Behaviour:
    """Let the service answer; with `lose`, the answer is lost on its way back."""

    def behave(handler: Handler, body: bytes) -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
        connection.request(
            handler.command, handler.path, body, {**handler.headers, "host": urlsplit(url).netloc}
        )
        answered = connection.getresponse()
        content = answered.read()
        connection.close()
        if lose:
            handler.close_connection = True
            return
        handler.send_response(answered.status)
        for name, value in answered.getheaders():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return behave


@either
def test_a_decision_whose_answer_is_lost_is_made_once(url, home, bandit, kind) -> None:
    def say(verb: str, *arguments: Any, **options: Any) -> Any:
        proxy.does(forward(url, lose=True), forward(url))
        what: Callable[[Any], Any] = lambda client: getattr(client, verb)(*arguments, **options)  # noqa: E731
        return talk(kind, proxy.url, what, experiment=home.experiment)

    with misbehaving() as proxy:
        decision = say("choose", unit="user-17")
        assert len(proxy.seen) == 2
        assert bandit.summary()["decisions"] == 1
        assert bandit.decision(decision.id) == decision
        several = say("choose", size=10)
        assert bandit.summary()["decisions"] == 11
        assert say("reward", decision.id, 1.0) == "duplicate"  # of the try whose answer was lost
        assert say("rewards", [{"decision": each.id, "value": 1.0} for each in several]) == ["duplicate"] * 10
        assert bandit.summary()["rewards"] == 11
        say("change_policy", "uniform")
        assert bandit.summary()["policy_version"] == 2
        name = f"{home.experiment}-{kind.__name__}"
        made = say("create", name, ARMS, "ms", reward=Reward(low=0, high=1))
        assert (made["experiment"], made["policy"]) == (name, "ms:sigma2=0.25")


def test_a_service_that_starts_again_is_waited_for(tmp_path) -> None:
    with running(tmp_path / "log.db") as url, Client(url, experiment="home", retries=20) as client:
        client.create("home", ARMS, "ms", reward=RULE)
        first = client.choose()
    made: list[Any] = []
    waiting = threading.Thread(target=lambda: made.append(client.bandit("home").choose(unit="u")))
    client = Client(url, retries=20)
    waiting.start()  # nobody listens yet
    with running(tmp_path / "log.db", port=urlsplit(url).port or 0):
        waiting.join()
        assert made[0].unit == "u"
        assert client.decision(first.id).arm == first.arm
    client.close()


# Keys.


def test_a_key_opens_what_it_is_for(tmp_path) -> None:
    store = open_store(tmp_path / "log.db")
    _, admin = api_keys.create(store, "admin", ["admin"])
    _, chooser = api_keys.create(store, "chooser", ["decide"], experiments=["home"])
    store.close()
    with running(tmp_path / "log.db") as url:
        talk(Client, url, lambda client: client.create("home", ARMS, "ms", reward=RULE), key=admin)
        assert talk(Client, url, lambda client: client.choose(), key=chooser).arm in ARMS
        for key, words in (
            (None, "401|API key"),
            (admin + "x", "revoked|no API key"),
            (chooser, "scope 'reward'"),
        ):
            with pytest.raises(MaillardError, match=words) as caught:
                talk(Client, url, lambda client: client.reward(ID, 1.0), key=key)
            assert str(key) not in str(caught.value)
