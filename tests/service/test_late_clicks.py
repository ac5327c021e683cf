"""The most common job over HTTP: four headlines, clicks that arrive up to an hour late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import late_clicks
from tests.service.api import Api, Experiment, http_client
from tests.serving import serving

START = 1_790_000_000  # seconds since 1970

# The clock of the service is in a file, and windows close only when a request writes to the log, so that the
# result does not depend on the speed of the machine.
PRELUDE = """
from pathlib import Path
from maillard.decisions.stores import sqlite
from maillard.service import service_state
sqlite.system_clock = lambda: int(Path({path!r}).read_text())
service_state._MAINTENANCE_INTERVAL = 1e9
"""


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    path = tmp_path / "clock"
    path.write_text(str(START * 10**6))
    return path


@pytest.fixture
def api(clock, tmp_path) -> Iterator[Api]:
    database, prelude = tmp_path / "log.db", PRELUDE.format(path=str(clock))
    with serving(database, prelude=prelude, seed=3) as service, http_client(service) as client:
        yield Api(service, client, str(database))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """For tests that need no clock and create experiments of their own."""
    database = tmp_path_factory.mktemp("shared") / "log.db"
    with serving(database, seed=3) as service, http_client(service) as client:
        yield Api(service, client, str(database))


def test_late_clicks_with_the_documented_settings(api, clock) -> None:
    arms, clicks = list(late_clicks.RATES), late_clicks.Clicks(seed=1)
    experiment = api.create_experiment(arms=arms, policy="thompson", reward=late_clicks.RULE)
    assert experiment.configuration["policy"] == "ts-bernoulli"
    assert experiment.configuration["reward"]["learn"] == "on_close"
    assert experiment.configuration["hints"] == []
    probabilities = set[tuple[float, ...]]()

    def choose() -> list[tuple[str, str]]:
        made = [each["decision"] for each in experiment.decisions(*[{}] * late_clicks.BATCH)]
        probabilities.update(tuple(each["probabilities"].values()) for each in made)
        return [(each["id"], each["arm"]) for each in made]

    def set_clock(seconds: float) -> None:
        clock.write_text(str(round((START + seconds) * 10**6)))

    def visitors(begin: float, end: float) -> None:
        late_clicks.run(
            choose, lambda each: api.reward(each, 1), set_clock, seconds=(begin, end), clicks=clicks
        )

    visitors(0, 3600)
    assert probabilities == {(0.25,) * 4}
    state = experiment.state
    assert {(each["mean"], each["lower"], each["upper"]) for each in state["arms"]} == {(None, None, None)}
    assert state["pending"] == 600
    assert state["next_close"] == "2026-09-21T15:13:20Z"
    assert "No window has closed yet: 600 decisions are open." in state["interval"]["refusal"]

    total = late_clicks.VISITORS / late_clicks.BATCH * late_clicks.INTERVAL
    visitors(3600, total)
    set_clock(total + 3600)
    experiment.decisions(*[{}] * 10)  # a write closes the windows that are due
    state = experiment.state
    assert state["pending"] == 10
    for each in state["arms"]:
        assert each["lower"] < late_clicks.RATES[each["arm"]] < each["upper"]
        assert each["final"] == each["pulls"]
    assert max(state["arms"], key=lambda each: each["final"])["arm"] == "B"


@pytest.mark.parametrize(
    ("learn", "applied"), [("on_close", 0), ("provisional", 40), ("on_arrival", 10), (None, 0)]
)
def test_states_show_final_rewards_only(api, clock, learn, applied) -> None:
    rule = {"low": 0, "high": 1, "window": "1m", "default": 0} | ({"learn": learn} if learn else {})
    experiment = api.create_experiment(arms=["a", "b"], policy="uniform", reward=rule)
    made = [each["decision"]["id"] for each in experiment.decisions(*[{}] * 40)]
    for identifier in made[:10]:
        api.reward(identifier, 1)
    state = experiment.state
    assert sum(each["pulls"] for each in state["arms"]) == applied
    assert sum(each["final"] for each in state["arms"]) == 0
    assert {each["mean"] for each in state["arms"]} == {None}
    clock.write_text(str((START + 61) * 10**6))
    experiment.decisions({})
    state = experiment.state
    assert sum(each["final"] for each in state["arms"]) == 40
    assert sum(each["final"] * each["mean"] for each in state["arms"]) == pytest.approx(10)
    assert state["pending"] == 1
    assert state["note"]


def test_intervals_are_refused_for_a_biased_subset(shared) -> None:
    experiment = shared.create_experiment(arms=["a", "b"], policy="uniform")
    made = [each["decision"]["id"] for each in experiment.decisions(*[{}] * 40)]
    for identifier in made[:10]:
        shared.reward(identifier, 1)
    state = experiment.state
    assert {each["lower"] for each in state["arms"]} == {None}
    assert "30 of 40 decisions have no reward" in state["interval"]["refusal"]
    for identifier in made[10:]:
        shared.reward(identifier, 0)
    assert experiment.state["interval"]["refusal"] is None


def test_an_evaluation_states_how_many_decisions_are_open(clock, tmp_path) -> None:
    """The worker process has the real clock, so the decisions have real times here."""
    with serving(tmp_path / "log.db") as service, http_client(service) as client:
        api = Api(service, client, "")
        experiment = api.create_experiment(arms=["a", "b"], policy="uniform", reward=late_clicks.RULE)
        experiment.decisions(*[{}] * 20)
        found = evaluation_of(experiment, client)
        assert not found["has_estimate"]
        assert found["pending"] == 20
        assert (
            "no reward window has closed yet: 20 decisions are open; the first window closes at"
            in found["refusal"]
        )


def evaluation_of(experiment: Experiment, client: httpx2.Client) -> Any:
    path = f"/v1/experiments/{experiment.key}/evaluations"
    return client.post(path, json={"target": "arm:a"}).json()


# The default policy, hints, durations, and messages without Python syntax.


def test_the_default_policy_and_hints(shared) -> None:
    body = {"experiment": "clicks", "arms": ["a", "b"], "reward": late_clicks.RULE}
    assert shared.client.post("/v1/experiments", json=body).json()["policy"] == "kl-ms+:floor=0.1"
    hints = shared.create_experiment(policy="ts").configuration["hints"]
    assert len(hints) == 1
    assert "kl-ms+ or thompson" in hints[0]
    assert "Hint" not in shared.service.output
    assert "Warning" not in shared.service.output


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ({"reward": {}, "policy": "ms+"}, ["low and high of the rewards", "got null"]),
        ({"reward": {}, "policy": None}, ["low and high of the rewards", "got null"]),
        ({"reward": {"low": 0, "high": 1, "default": 0}}, ["a duration such as '1h'", "got null"]),
        ({"reward": {"low": 0, "high": 1, "window": "1h", "learn": "provisional"}}, ["got null"]),
        ({"reward": {"low": 1, "high": 0}}, ["got [1.0, 0.0]"]),
        ({"arms": ["a", "a"]}, ["each name once", 'got "a"']),
    ],
)
def test_error_messages_do_not_contain_python(shared, body, parts) -> None:
    given = {"experiment": "wrong", "arms": ["a", "b"], "policy": "uniform", "reward": {}} | body
    response = shared.client.post("/v1/experiments", json=given)
    assert response.status_code == 422
    message = response.json()["error"]["message"]
    for part in parts:
        assert part in message
    for python in ("None", "True", "Reward(", "()", "=..."):
        assert python not in message


def test_a_paused_experiment_says_how_to_continue(shared) -> None:
    experiment = shared.create_experiment()
    experiment.request("POST", ":pause")
    assert (
        experiment.decide()
        .json()["error"]["message"]
        .endswith("is paused; resume it first (bandit.resume())")
    )


@pytest.mark.parametrize("window", ["90s", "1.5m", 90, 90.0])
def test_durations(shared, window) -> None:
    experiment = shared.create_experiment(reward={"low": 0, "high": 1, "window": window, "default": 0})
    assert experiment.configuration["reward"]["window"] == 90.0


def test_an_invalid_duration_names_the_field(shared) -> None:
    body = {"experiment": "x", "arms": ["a"], "reward": {"low": 0, "high": 1, "window": "soon", "default": 0}}
    response = shared.client.post("/v1/experiments", json=body)
    assert response.status_code == 422
    assert response.json()["error"]["path"] == "$.reward.window"
