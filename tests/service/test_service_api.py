"""Every operation of the HTTP API, on SQLite and on PostgreSQL, against a running `maillard serve`."""

from __future__ import annotations

import asyncio
import io
import math
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet
import pytest

from maillard.decisions import Bandit, Decision, Reward
from maillard.decisions.stores import memory, open_store
from maillard.service import experiment_registry
from tests.postgres import fresh_database
from tests.service import held_jobs
from tests.service.api import (
    ARMS,
    UNIT,
    Api,
    Experiment,
    http_client,
    metric_samples,
    run_concurrently,
    wait_until,
)
from tests.service.raw_http import error_summary
from tests.serving import serving
from tests.stores import new_id


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path_factory.mktemp("api") / "log.db")
    else:
        with fresh_database(request.getfixturevalue("postgres_server")) as url:
            yield url


@pytest.fixture(scope="module")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test creates a file here to hold verification jobs."""
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def api(database: str, job_folder: Path) -> Iterator[Api]:
    options, prelude = ["--rate-limit", "0"], held_jobs.prelude(job_folder)
    with serving(database, options=options, prelude=prelude) as service, http_client(service) as client:
        yield Api(service, client, database)


@dataclass(frozen=True)
class Filled:
    """An experiment with rewards, and the number and sum of the rewards by arm."""

    experiment: Experiment
    arms: dict[str, tuple[int, float]]


@pytest.fixture(scope="module")
def filled(api: Api) -> Filled:
    """Created early, because the monitor reads decisions a few seconds after they are written."""
    experiment = api.create_experiment(policy="uniform")
    made = [each["decision"] for each in experiment.decisions(*({"unit": f"u{n}"} for n in range(400)))]
    value = {"red": 0.25, "blue": 0.5, "green": 1.0}
    given = [{"decision": each["id"], "value": value[each["arm"]]} for each in made]
    assert {each["status"] for each in api.rewards(*given)} == {201}
    counts = Counter(each["arm"] for each in made)
    return Filled(experiment, {arm: (counts[arm], counts[arm] * value[arm]) for arm in ARMS})


def test_the_state(filled: Filled) -> None:
    state = filled.experiment.state
    assert {arm["arm"]: (arm["pulls"], arm["sum"]) for arm in state["arms"]} == filled.arms
    for arm in state["arms"]:
        assert 0 <= arm["lower"] < arm["mean"] <= arm["upper"] <= 1
        assert arm["probability"] == pytest.approx(1 / 3)
    assert (state["interval"]["confidence"], state["interval"]["refusal"]) == (0.95, None)


# Experiments.


def test_an_experiment_is_created_once(api: Api) -> None:
    rule = {"low": -1, "high": 2, "window": 60, "default": 0, "combine": "sum"}
    body = {
        "experiment": "made-once",
        "arms": ARMS,
        "policy": "ms+:booster=8",
        "reward": rule,
        "sticky": True,
    }
    made = api.client.post("/v1/experiments", json=body)
    assert made.status_code == 201
    assert made.headers["location"] == "/v1/experiments/made-once"
    shown = made.json()
    created = datetime.fromisoformat(shown.pop("created_at"))
    assert abs((datetime.now(created.tzinfo) - created).total_seconds()) < 60
    assert shown == {
        "experiment": "made-once",
        "status": "running",
        "arms": ARMS,
        "retired": [],
        "policy": "ms+:booster=8,sigma2=2.25",
        "policy_version": 1,
        "epoch": 1,
        "sticky": True,
        "reward": rule | {"learn": "on_close", "binary": False},
        "hints": [],
        "features": None,
        "model": None,
        "feature_version": 0,
        "attributes": None,
        "segments": None,
    }
    for again in (body, body | {"arms": ["other"]}):
        assert error_summary(api.client.post("/v1/experiments", json=again)) == (409, "exists", None)
    found = api.client.get("/v1/experiments/made-once")
    assert (found.status_code, found.json(), found.headers["etag"]) == (
        200,
        made.json(),
        made.headers["etag"],
    )
    assert error_summary(api.client.get("/v1/experiments/never-made")) == (404, "not_found", None)


def test_listing_experiments_with_and_without_archived_ones(api: Api) -> None:
    active, archived = api.create_experiment(), api.create_experiment()
    assert archived.request("POST", ":archive").json()["status"] == "archived"

    def listed(query: str) -> set[str]:
        return {
            each["experiment"] for each in api.client.get(f"/v1/experiments{query}").json()["experiments"]
        }

    assert {active.key, archived.key} <= listed("?archived=true")
    assert (
        listed("") == listed("?archived=false") == listed("?archived=true") - {archived.key, *_archived(api)}
    )
    assert active.key in listed("")


def _archived(api: Api) -> set[str]:
    every = api.client.get("/v1/experiments?archived=true").json()["experiments"]
    return {each["experiment"] for each in every if each["status"] == "archived"}


def test_one_of_many_concurrent_creations_succeeds(api: Api) -> None:
    body = {"experiment": "contested", "policy": "ms+", "reward": UNIT}
    responses = run_concurrently(
        16, lambda n: api.client.post("/v1/experiments", json=body | {"arms": [*ARMS, str(n)]})
    )
    assert Counter(response.status_code for response in responses) == {201: 1, 409: 15}
    (made,) = (response.json() for response in responses if response.status_code == 201)
    assert api.client.get("/v1/experiments/contested").json() == made


def test_changing_the_policy_requires_the_current_etag(api: Api) -> None:
    experiment = api.create_experiment()
    old, body = experiment.etag, {"policy": "ms:sigma2=1"}
    assert error_summary(experiment.request("PATCH", "", body)) == (428, "precondition_required", "If-Match")
    for wrong in ('"99"', '"x"', "garbage", '"1", "2"', '"' + "9" * 30 + '"'):
        response = experiment.request("PATCH", "", body, If_Match=wrong)
        assert error_summary(response)[:2] == (412, "stale")
    assert experiment.etag == old
    changed = experiment.request("PATCH", "", body, If_Match=old)
    assert (changed.status_code, changed.json()["policy"], changed.json()["policy_version"]) == (
        200,
        "ms:sigma2=1",
        2,
    )
    assert changed.headers["etag"] == experiment.etag != old
    assert error_summary(experiment.request("PATCH", "", body, If_Match=old))[:2] == (412, "stale")
    assert experiment.request("PATCH", "", {"policy": "uniform"}, If_Match="*").json()["policy_version"] == 3
    decision = experiment.decide().json()
    assert (decision["policy_version"], decision["probability"]) == (3, pytest.approx(1 / 3))


def test_one_of_many_concurrent_changes_succeeds(api: Api) -> None:
    experiment = api.create_experiment()
    etag = experiment.etag
    responses = run_concurrently(
        12, lambda n: experiment.request("PATCH", "", {"policy": f"ms+:booster={n + 1}"}, If_Match=etag)
    )
    assert Counter(response.status_code for response in responses) == {200: 1, 412: 11}
    assert experiment.configuration["policy_version"] == 2


def test_pause_resume_reset_archive(api: Api) -> None:
    experiment = api.create_experiment()
    first = experiment.decide().json()["id"]
    second = experiment.decide().json()["id"]
    assert experiment.request("POST", ":pause").json()["status"] == "paused"
    assert error_summary(experiment.decide()) == (409, "paused", None)
    assert [each["status"] for each in experiment.decisions({}, {"unit": "u"})] == [409, 409]
    assert api.reward(first, 1).json()["outcome"] == "applied"
    assert experiment.request("POST", ":resume").json()["status"] == "running"
    assert experiment.decide().status_code == 201

    fresh = experiment.request("POST", ":reset").json()
    assert (fresh["epoch"], experiment.pulls()) == (2, 0)
    assert experiment.decide().json()["epoch"] == 2
    old = api.reward(second, 1)
    assert (old.status_code, old.json()["outcome"], old.json()["applied"]) == (201, "old epoch", False)

    stale = experiment.request("POST", ":archive", If_Match='"1"')
    assert error_summary(stale)[:2] == (412, "stale")
    assert experiment.request("POST", ":archive", If_Match=experiment.etag).json()["status"] == "archived"
    third = experiment.decide()
    assert third.status_code == 409
    for method, tail, body in [
        ("POST", ":pause", None),
        ("POST", ":reset", None),
        ("POST", "/arms", {"arm": "mauve"}),
        ("DELETE", "/arms/red", None),
        ("PATCH", "", {"policy": "ms"}),
    ]:
        assert experiment.request(method, tail, body, If_Match="*").status_code == 409
    assert experiment.request("GET", "/state").json()["status"] == "archived"
    assert experiment.request("POST", ":resume").json()["status"] == "running"
    assert experiment.decide().status_code == 201


def test_adding_and_retiring_arms(api: Api) -> None:
    experiment = api.create_experiment()
    added = experiment.request("POST", "/arms", {"arm": "a/b ü%"})
    assert (added.status_code, added.json()["arms"]) == (201, [*ARMS, "a/b ü%"])
    assert error_summary(experiment.request("POST", "/arms", {"arm": "red"})) == (
        422,
        "invalid_value",
        "$.arm",
    )
    retired = experiment.request("DELETE", "/arms/a%2Fb%20%C3%BC%25")
    assert (retired.status_code, retired.json()["retired"]) == (200, ["a/b ü%"])
    for arm in ("red", "blue"):
        assert experiment.request("DELETE", f"/arms/{arm}").status_code == 200
    assert error_summary(experiment.request("DELETE", "/arms/green")) == (422, "invalid_value", "$.arm")
    assert experiment.configuration["arms"] == ["green"]
    decision = experiment.decide().json()
    assert (decision["arm"], decision["probability"], decision["probabilities"]) == (
        "green",
        1.0,
        {"green": 1.0},
    )
    assert error_summary(experiment.decide(eligible=["red"])) == (422, "invalid_value", "$.eligible")
    again = experiment.request("POST", "/arms", {"arm": "red"})
    assert (again.status_code, again.json()["arms"]) == (201, ["red", "green"])
    assert {arm["arm"]: arm["active"] for arm in experiment.state["arms"]} == {
        "red": True, "blue": False, "green": True, "a/b ü%": False
    }  # fmt: skip


# Decisions.


def test_a_decision_and_its_probabilities(api: Api) -> None:
    experiment = api.create_experiment(reward=UNIT | {"window": 90})
    for value in (1, 0, 1):
        api.reward(experiment.decide().json()["id"], value)
    state = experiment.state
    response = experiment.decide(unit="ann", eligible=["red", "blue"])
    assert response.status_code == 201
    decision = response.json()
    assert set(decision) == {
        "id", "experiment", "arm", "probability", "log_probability", "probabilities", "log_probabilities",
        "policy_version", "formula_version", "state", "epoch", "unit", "cold", "time", "expires_at",
        "position", "idempotency_key", "origin", "context", "actions", "feature_version",
    }  # fmt: skip
    assert (decision["experiment"], decision["unit"], decision["epoch"]) == (experiment.key, "ann", 1)
    assert decision["state"] == state["state"]
    assert set(decision["probabilities"]) == {"red", "blue"}
    assert math.fsum(decision["probabilities"].values()) == pytest.approx(1)
    assert (
        decision["probability"]
        == decision["probabilities"][decision["arm"]]
        == math.exp(decision["log_probability"])
    )
    assert decision["log_probability"] == decision["log_probabilities"][decision["arm"]]
    made, ends = (datetime.fromisoformat(decision[name]) for name in ("time", "expires_at"))
    assert ends - made == timedelta(seconds=90)
    assert decision["time"].endswith("Z")
    whole = experiment.decide().json()
    assert whole["probabilities"] == {arm["arm"]: pytest.approx(arm["probability"]) for arm in state["arms"]}
    assert api.client.get(f"/v1/decisions/{decision['id']}").json() == decision
    assert api.client.get(f"/v1/decisions/{decision['id'].upper()}").json() == decision


def test_a_repeated_idempotency_key_returns_the_same_decision(api: Api) -> None:
    experiment = api.create_experiment()
    body = {"unit": "ann", "eligible": ["red", "blue"]}
    first = experiment.decide("k", **body)
    api.reward(first.json()["id"], 1)
    again = experiment.decide("k", **body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.content == first.content
    assert experiment.decide("k", unit="ann", eligible=["blue", "red"]).status_code == 200
    for other in ({}, {"unit": "bob"} | {"eligible": ["red", "blue"]}, {"unit": "ann"}):
        assert error_summary(experiment.decide("k", **other)) == (422, "key_reused", "Idempotency-Key")
    elsewhere = api.create_experiment().decide("k", **body)  # keys of different experiments are independent
    assert elsewhere.status_code == 201
    experiment.request("POST", ":pause")
    assert experiment.decide("k", **body).content == first.content


def test_concurrent_requests_with_one_key_get_one_decision(api: Api) -> None:
    experiment = api.create_experiment()
    responses = run_concurrently(64, lambda _: experiment.decide("raced", unit="ann"))
    assert Counter(response.status_code for response in responses) == {201: 1, 200: 63}
    assert len({response.content for response in responses}) == 1
    items = [{"idempotency_key": "batched", "unit": "ann"}] * 500
    results = [each for some in run_concurrently(4, lambda _: experiment.decisions(*items)) for each in some]
    assert Counter(each["status"] for each in results) == {201: 1, 200: 1999}
    assert len({each["decision"]["id"] for each in results}) == 1
    with closing(open_store(api.database)) as store:
        assert len(list(store.rows(experiment.key))) == 2


def test_a_unit_keeps_its_arm_in_a_sticky_experiment(api: Api) -> None:
    experiment = api.create_experiment(policy="uniform", sticky=True)
    arms = {experiment.decide(unit="ann").json()["arm"] for _ in range(20)}
    assert len(arms) == 1
    assert len({experiment.decide(unit=str(n)).json()["arm"] for n in range(40)}) == 3


def test_a_batch_of_decisions_has_a_status_for_each(api: Api) -> None:
    experiment = api.create_experiment()
    items = [
        {"unit": "ann"},
        {"eligible": ["mauve"]},
        {"idempotency_key": "k", "unit": "bob"},
        {"idempotency_key": "k", "unit": "bob"},
        {"idempotency_key": "k", "unit": "eve"},
        {"unit": "a\0"},
        {"eligible": ["red"]},
    ]
    results = experiment.decisions(*items)
    assert [each["status"] for each in results] == [201, 422, 201, 200, 422, 422, 201]
    assert results[2]["decision"] == results[3]["decision"]
    assert results[6]["decision"]["arm"] == "red"
    wrong = {place: each["error"] for place, each in enumerate(results) if "error" in each}
    assert {place: (each["code"], each["path"]) for place, each in wrong.items()} == {
        1: ("unknown_name", "$.decisions[1].eligible"),
        4: ("key_reused", "$.decisions[4].idempotency_key"),
        5: ("invalid_value", "$.decisions[5].unit"),
    }
    assert all(("decision" in each) != ("error" in each) for each in results)


def test_a_batch_has_at_most_a_thousand_items(api: Api) -> None:
    experiment = api.create_experiment()
    results = experiment.decisions(*({"unit": f"u{n}"} for n in range(1000)))
    assert [each["decision"]["unit"] for each in results] == [f"u{n}" for n in range(1000)]
    ids = [each["decision"]["id"] for each in results]
    assert len(set(ids)) == 1000
    taken = api.rewards(*({"decision": each, "value": 1} for each in ids))
    assert [each["reward"]["decision"] for each in taken] == ids
    assert {each["status"] for each in taken} == {201}
    assert experiment.pulls() == 1000
    too_many: Any = {"decisions": [{}] * 1001}
    assert error_summary(experiment.request("POST", "/decisions:batch", too_many)) == (
        422,
        "invalid_value",
        "$.decisions",
    )
    assert experiment.decisions() == api.rewards() == []


# Rewards.


def test_a_reward_is_applied_once(api: Api) -> None:
    experiment = api.create_experiment()
    decision = experiment.decide().json()["id"]
    for wrong in (-0.5, 1.5, 1e308):
        assert error_summary(api.reward(decision, wrong)) == (422, "invalid_value", "$.value")
    new, again, other = api.reward(decision, 1), api.reward(decision, 1), api.reward(decision, 0)
    expected = {"decision": decision, "event": decision, "late": False}
    assert (new.status_code, new.json()) == (201, expected | {"outcome": "applied", "applied": True})
    assert (again.status_code, again.json()) == (200, expected | {"outcome": "duplicate", "applied": False})
    assert error_summary(other) == (409, "conflict", None)
    second = api.reward(decision, 0, event="second")
    assert (second.status_code, second.json()["outcome"]) == (
        201,
        "unchanged",
    )  # only the first reward counts
    (arm,) = (arm for arm in experiment.state["arms"] if arm["pulls"])
    assert (arm["pulls"], arm["sum"], arm["mean"]) == (1, 1.0, 1.0)


def test_one_of_many_concurrent_rewards_is_applied(api: Api) -> None:
    experiment = api.create_experiment()
    decision = experiment.decide().json()["id"]
    responses = run_concurrently(32, lambda n: api.reward(decision, n % 2))
    codes = Counter(response.status_code for response in responses)
    assert codes == {201: 1, 200: 15, 409: 16}
    assert experiment.pulls() == 1


@pytest.mark.parametrize(("combine", "value"), [("first", 0.5), ("last", 0.25), ("sum", 1.0), ("max", 0.75)])
def test_combining_several_rewards(api: Api, combine: str, value: float) -> None:
    """Rewards are combined in the order of their times, not in the order of arrival."""
    experiment = api.create_experiment(reward=UNIT | {"combine": combine})
    decision = experiment.decide().json()["id"]
    for number, at, event in [
        (0.75, 1_700_000_000, "b"),
        (0.25, "2023-11-15T01:00:00+02:00", "c"),
        (0.5, "2023-11-14T22:13:19.999Z", "a"),
    ]:
        assert api.reward(decision, number, event=event, at=at).status_code == 201
    (arm,) = (arm for arm in experiment.state["arms"] if arm["pulls"])
    assert (arm["pulls"], arm["sum"]) == (1, value)


def test_a_reward_that_arrives_before_its_decision_is_parked(api: Api) -> None:
    """Another process made the decision, and logs it after the reward arrives."""
    experiment = api.create_experiment()
    made = experiment.decide().json()
    identifier, out_of_range = new_id(), new_id()
    early = api.reward(identifier, 0.75)
    assert (early.status_code, early.json()["outcome"], early.json()["applied"]) == (202, "parked", False)
    assert api.reward(identifier, 0.75).status_code == 200
    assert error_summary(api.reward(identifier, 0.5)) == (409, "conflict", None)
    assert api.reward(out_of_range, 7.0).status_code == 202  # its range is not known yet
    assert error_summary(api.client.get(f"/v1/decisions/{identifier}")) == (404, "not_found", None)
    assert experiment.pulls() == 0
    with Bandit(log=api.database, experiment=experiment.key) as bandit:
        row: Decision = bandit.decision(made["id"])
        assert bandit.append([row._replace(id=identifier), row._replace(id=out_of_range)]) == 2
    wait_until(experiment.pulls)
    (arm,) = (arm for arm in experiment.state["arms"] if arm["pulls"])
    assert (arm["arm"], arm["pulls"], arm["sum"]) == (made["arm"], 1, 0.75)
    assert api.reward(identifier, 0.75).json()["outcome"] == "duplicate"
    assert api.reward(out_of_range, 1).json()["outcome"] == "applied"


def test_a_late_reward_is_logged_but_not_applied(api: Api) -> None:
    unhurried = api.create_experiment(reward=UNIT | {"window": 3600})
    timely = unhurried.decide().json()
    assert api.reward(timely["id"], 1).status_code == 201
    experiment = api.create_experiment(reward=UNIT | {"window": 0.05})
    late = experiment.decide().json()
    time.sleep(0.1)
    response = api.reward(late["id"], 1)
    assert (response.status_code, response.json()) == (
        200,
        {"decision": late["id"], "event": late["id"], "outcome": "late"} | {"applied": False, "late": True},
    )
    assert api.reward(timely["id"], 1).json()["outcome"] == "duplicate"
    assert error_summary(api.reward(late["id"], 0)) == (409, "conflict", None)
    assert (unhurried.pulls(), experiment.pulls()) == (1, 0)


def test_the_service_closes_due_windows(api: Api) -> None:
    default = api.create_experiment(reward=UNIT | {"window": 0.2, "default": 0.25})
    mature = api.create_experiment(reward=UNIT | {"window": 3, "learn": "on_close"})
    default.decide()
    response = api.reward(mature.decide().json()["id"], 1).json()
    assert (response["outcome"], response["applied"], mature.pulls()) == ("waiting", True, 0)
    wait_until(lambda: default.pulls() == mature.pulls() == 1)
    assert math.fsum(arm["sum"] for arm in default.state["arms"]) == 0.25


def test_erasing_a_unit(api: Api) -> None:
    experiment = api.create_experiment()
    made = experiment.decide("erica-1", unit="erica").json()
    erased = experiment.request("POST", ":erase-unit", {"unit": "erica"})
    assert (erased.status_code, erased.json()) == (200, {"decisions": 1})
    assert api.client.get(f"/v1/decisions/{made['id']}").json()["unit"].startswith("erased-")
    assert experiment.request("POST", ":erase-unit", {"unit": "erica"}).json() == {"decisions": 0}
    assert error_summary(experiment.request("POST", ":erase-unit", {"unit": ""}))[0] == 422


def test_windows_close_in_experiments_that_nobody_has_used_since_the_start(tmp_path) -> None:
    rule = Reward(low=0, high=1, window=0.2, default=0.25)
    with closing(Bandit(["red", "blue"], "uniform", reward=rule, log=tmp_path / "log.db")) as bandit:
        bandit.choose()
        with serving(tmp_path / "log.db"):
            wait_until(lambda: bandit.session.refresh().tally.pulls.sum() == 1)


def test_a_batch_of_rewards_has_a_status_for_each(api: Api) -> None:
    experiment = api.create_experiment()
    decision, unknown = experiment.decide().json()["id"], new_id()
    results = api.rewards(
        {"decision": decision, "value": 7},
        {"decision": decision, "value": 1},
        {"decision": decision, "value": 1},
        {"decision": decision.upper(), "value": 0},
        {"decision": unknown, "value": 1},
        {"decision": unknown, "value": 1, "event": "a\0"},
        {"decision": "00000000-0000-7000-8000-000000000000", "value": 1},
        {"decision": decision, "value": 0.5, "event": "more"},
    )
    statuses = [each["status"] for each in results]
    assert [*statuses[:1], sorted(statuses[1:3]), *statuses[3:]] == [422, [200, 201], 409, 202, 422, 404, 201]
    wrong = {place: each["error"] for place, each in enumerate(results) if "error" in each}
    assert {place: (each["code"], each["path"]) for place, each in wrong.items()} == {
        0: ("invalid_value", "$.rewards[0].value"),
        3: ("conflict", "$.rewards[3]"),
        5: ("invalid_value", "$.rewards[5].event"),
        6: ("not_found", "$.rewards[6]"),
    }


# Reading.


def test_evaluations(api: Api, filled: Filled) -> None:
    response = filled.experiment.request("POST", "/evaluations", {"target": "arm:green"})
    assert (response.status_code, response.json()["has_estimate"]) == (200, True)
    assert response.json()["lower"] <= 1.0 <= response.json()["upper"]
    assert response.json()["rows"] == 400
    little = api.create_experiment().request("POST", "/evaluations", {"target": "arm:green"}).json()
    assert (little["has_estimate"], little["value"]) == (False, None)
    assert little["refusal"]


def test_verification(filled: Filled) -> None:
    found = filled.experiment.request("POST", ":verify").json()
    assert (found["verdict"], found["decisions"], found["recomputed"]) == ("consistent", 400, 400)
    assert (found["problems"], found["problem_count"]) == ([], 0)


def test_jobs_wait_for_each_other_and_rewards_do_not_wait_for_them(
    api: Api, filled: Filled, job_folder: Path
) -> None:
    """One job runs, eight wait, further ones are refused; the service accepts rewards at the same time."""
    hold, running = job_folder / held_jobs.HOLD, job_folder / held_jobs.RUNNING
    running.unlink(missing_ok=True)
    hold.touch()
    with ThreadPoolExecutor(16) as threads:
        try:
            jobs = [threads.submit(filled.experiment.request, "POST", ":verify") for _ in range(16)]
            wait_until(running.exists)
            wait_until(lambda: sum(job.done() for job in jobs) == 7)
            rewards = run_concurrently(16, lambda _: api.reward(new_id(), 1))
        finally:
            hold.unlink()  # the running job continues
        responses = [job.result() for job in jobs]
    assert {reward.status_code for reward in rewards} == {202}
    assert Counter(response.status_code for response in responses) == {200: 9, 503: 7}
    for response in responses:
        if response.status_code == 503:
            assert error_summary(response) == (503, "unavailable", None)
            assert int(response.headers["retry-after"]) >= 1


def test_the_log_as_parquet(api: Api, filled: Filled) -> None:
    key = filled.experiment.key
    with api.client.stream("GET", f"/v1/experiments/{key}/export") as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/vnd.apache.parquet"
        assert response.headers["content-disposition"] == f'attachment; filename="{key}.parquet"'
        assert response.headers["transfer-encoding"] == "chunked"
        content = b"".join(response.iter_bytes())
    assert pyarrow.parquet.read_table(io.BytesIO(content)).num_rows == 400


def test_activity_and_its_audit(filled: Filled) -> None:
    def activity() -> dict[str, Any]:
        return dict(filled.experiment.request("GET", "/activity").json())

    wait_until(lambda: activity()["decisions"] == 400)
    found = activity()
    assert (found["rewards"], found["complete"]) == (400, True)
    assert {arm["arm"]: arm["decisions"] for arm in found["arms"]} == {
        arm: count for arm, (count, _) in filled.arms.items()
    }
    assert math.fsum(arm["fraction"] for arm in found["arms"]) == pytest.approx(1)
    assert sum(point["rewards"] for point in found["series"]["points"]) == 400
    assert found["audit"]["verdict"] == "consistent"


def test_without_a_reward_range_the_state_says_why_there_is_no_interval(api: Api) -> None:
    experiment = api.create_experiment(policy="ms:sigma2=1", reward={})
    api.reward(experiment.decide().json()["id"], -1e6)
    state = experiment.state
    assert "reward.low" in state["interval"]["refusal"]
    assert {arm["lower"] for arm in state["arms"]} == {arm["upper"] for arm in state["arms"]} == {None}


def test_visitors_who_return_have_no_interval_in_the_state(api: Api) -> None:
    experiment = api.create_experiment(policy="uniform")
    for repeats, units in ((1, 100), (2, 100), (1, 300)):
        made = [
            each["decision"]["id"]
            for _ in range(repeats)
            for each in experiment.decisions(*({"unit": f"u{n}"} for n in range(units)))
        ]
        api.rewards(*({"decision": each, "value": 1} for each in made))
        state = experiment.state
        assert state["units"] == units
        bounds = [arm["lower"] for arm in state["arms"]]
        if repeats == 1 and units == 100:
            assert state["interval"]["refusal"] is None
            assert None not in bounds
        else:  # 100 units returned; 200 new ones are not enough for independent decisions
            assert f"decisions, {units} units)" in state["interval"]["refusal"]
            assert set(bounds) == {None}
    assert {arm["mean"] for arm in state["arms"]} == {1.0}


def test_slow_counts_of_units_are_reused(monkeypatch) -> None:
    """A count is repeated after twenty times as long as it took; a new epoch is counted at once."""
    now = [0.0]
    counted: list[int] = []
    count = memory.MemoryTransaction.visits

    def slow(transaction, epoch):
        now[0] += 2.0
        counted.append(epoch)
        return count(transaction, epoch)

    monkeypatch.setattr(memory.MemoryTransaction, "visits", slow)
    monkeypatch.setattr(experiment_registry, "time", SimpleNamespace(monotonic=lambda: now[0]))
    bandit = Bandit(["a", "b"], "uniform", reward=Reward(low=0, high=1))

    async def opened(threads):
        return experiment_registry.OpenExperiment(bandit, threads, 0)  # it needs an event loop

    with ThreadPoolExecutor(1) as threads:
        experiment = asyncio.run(opened(threads))
        bandit.choose(unit="ann")
        assert experiment.read_outcomes()[1].visits.decisions == 1
        bandit.reward(bandit.choose(unit="ann"), 1)
        now[0] += 30.0
        _, found = experiment.read_outcomes()
        assert (found.visits.decisions, found.tally.pulls.sum()) == (1, 1)  # rewards are always current
        now[0] += 10.0
        assert experiment.read_outcomes()[1].visits.decisions == 2
        assert counted == [1, 1]
        bandit.reset()
        assert experiment.read_outcomes()[1].visits.decisions == 0
        assert counted == [1, 1, 2]


def test_metrics(api: Api) -> None:
    experiment = api.create_experiment(policy="uniform", arms=[*ARMS, 'q"\\\n'])
    ids = []
    for _ in range(2):  # repeated decisions are not counted again
        results = experiment.decisions(*({"idempotency_key": f"k{n}"} for n in range(300)))
        ids = [each["decision"]["id"] for each in results]
        arms = Counter(each["decision"]["arm"] for each in results)
    again = experiment.decide("k0")
    assert (again.status_code, again.json()["id"]) == (200, ids[0])
    before = metric_samples(api.client.get("/metrics").text).get("maillard_rewards_total", {})
    api.rewards({"decision": ids[0], "value": 1}, {"decision": ids[1], "value": 1})
    api.rewards({"decision": ids[0], "value": 1}, {"decision": ids[1], "value": 0})
    response = api.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    now = metric_samples(response.text)
    assert {arm: now["maillard_decisions_total"][arm, experiment.key] for arm in arms} == arms
    rewards = now["maillard_rewards_total"]
    changed = {
        result: rewards[result,] - before.get((result,), 0) for result in ("applied", "duplicate", "conflict")
    }
    assert changed == {"applied": 2, "duplicate": 1, "conflict": 1}
    requests, durations = now["maillard_requests_total"], now["maillard_request_duration_seconds_bucket"]
    for operation in {operation for operation, _ in requests}:
        count = sum(number for (name, _), number in requests.items() if name == operation)
        edges = {le: number for (le, name), number in durations.items() if name == operation}
        assert now["maillard_request_duration_seconds_count"][operation,] == edges["+Inf"] == count
        ordered = [edges[le] for le in sorted(edges, key=float)]
        assert ordered == sorted(ordered)
        assert 0 < now["maillard_request_duration_seconds_sum"][operation,] < 600


def test_the_metrics_contain_the_audit(api: Api, filled: Filled) -> None:
    def scores() -> dict[str, float]:
        found = metric_samples(api.client.get("/metrics").text).get("maillard_propensity_calibration_z", {})
        return {arm: z for (arm, key), z in found.items() if key == filled.experiment.key}

    wait_until(lambda: set(scores()) == set(ARMS))
    assert all(0 < abs(z) < 5 for z in scores().values())


def test_health_readiness_policies_and_the_description(api: Api) -> None:
    assert api.client.get("/healthz").json() == {"status": "ok"}
    assert api.client.get("/readyz").json() == {"status": "ready"}
    policies = {each["name"]: each for each in api.client.get("/v1/policies").json()["policies"]}
    assert "booster" in policies["ms+"]["parameters"]
    for name in policies:  # every policy can be used
        options = ":sigma2=1" if "sigma2" in policies[name]["parameters"] else ""
        options += (
            (",horizon=1000" if options else ":horizon=1000")
            if "horizon" in policies[name]["parameters"]
            else ""
        )
        experiment = api.create_experiment(policy=name + options, reward=UNIT | {"binary": True})
        assert experiment.decide().status_code == 201, name
    assert api.client.get("/openapi.json").json()["openapi"] == "3.1.0"
    me = api.client.get("/v1/me").json()
    assert (me["open"], me["experiments"], "admin" in me["scopes"]) == (True, None, True)
