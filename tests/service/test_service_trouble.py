"""The service in trouble: a log that cannot be written, a PostgreSQL that is down, several processes; and what its journal says."""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load import request as written
from maillard.decisions import verify
from maillard.decisions.stores import open_store
from maillard.service.api_keys import create, revoke
from tests.postgres import Server
from tests.service.api import ARMS, UNIT, Api, Experiment, samples, talking, together, until
from tests.service.raw_http import error, refusal, say
from tests.serving import Service, serving
from tests.stores import new_id

# The journal.


def test_the_journal_names_requests_and_decisions_and_nobody(tmp_path: Path) -> None:
    log = str(tmp_path / "PLANTED-folder.db")
    with closing(open_store(log)) as store:
        _, secret = create(store, "PLANTED-name", ["admin"])
    with serving(log) as service, talking(service) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        body = {"experiment": "PLANTED-key", "arms": ["PLANTED-arm", "b"], "policy": "ms+", "reward": UNIT}
        assert client.post("/v1/experiments", json=body).status_code == 201
        path = "/v1/experiments/PLANTED-key/decisions"
        headers = {"Idempotency-Key": "PLANTED-idempotency", "X-Request-Id": "mine-1", "Cookie": "PLANTED"}
        made = client.post(path, json={"unit": "PLANTED-unit"}, headers=headers).json()["id"]
        reward = f"/v1/decisions/{made}/reward"
        client.put(
            reward, json={"value": 0.8125, "event": "PLANTED-event"}, headers={"X-Request-Id": "mine-2"}
        )
        client.put(reward, json={"value": 0.3125, "event": "PLANTED-event"})
        client.post(path, json={"unit": "PLANTED\0", "context": "PLANTED"})
        client.post(path, content=b'{"PLANTED', headers={"Content-Type": "application/json"})
        client.get(
            "/PLANTED?PLANTED=PLANTED", headers={"User-Agent": "PLANTED", "Referer": "http://PLANTED/"}
        )
        client.get("/v1/me", headers={"Authorization": "Bearer mk_PLANTED"})
        client.post("/v1/experiments/PLANTED-key/evaluations", json={"target": "arm:PLANTED"})
        say(service, b"GET /PLANTED HTTP/1.1\r\nX-PLANTED: PLANTED\0\r\n\r\n")
        until(lambda: service.said.count('"event":"request"') >= 8)  # lines are written a few times a second
        said = service.said
    welcome, journal = said.split("\n{", 1)
    lines = [json.loads(line) for line in ("{" + journal).splitlines()]
    assert all({"time", "level", "event"} <= set(line) for line in lines)
    requests = {line["request_id"]: line for line in lines if line["event"] == "request"}
    assert requests["mine-1"]["decision_id"] == requests["mine-2"]["decision_id"] == made
    assert (requests["mine-1"]["operation"], requests["mine-1"]["status"]) == ("decide", 201)
    assert {line["key"] for line in requests.values()} >= {secret[3:15]}
    assert len(requests) == len([line for line in lines if line["event"] == "request"]) >= 8
    for planted in ("PLANTED", secret, secret[16:], "8125", "3125"):
        assert planted not in journal
    assert secret not in welcome


# Trouble.


@pytest.mark.parametrize("level", ["warning", "info"])
def test_a_log_that_cannot_be_written_is_503_and_never_an_unlogged_arm(tmp_path: Path, level: str) -> None:
    """The system refuses every write of the service, as a full disk does; then it has room again."""
    log = str(tmp_path / "log.db")
    with serving(log, options=["--log-level", level]) as service, talking(service) as client:
        api = Api(service, client, log)
        experiment = api.begin()
        told = {experiment.decide(f"before {n}").json()["id"] for n in range(5)}
        known = next(iter(told))
        _, most = resource.prlimit(service.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (0, most))
        time.sleep(0.6)  # a probe is good for half a second
        answers = [experiment.decide(f"during {n}") for n in range(5)]
        answers += together(16, lambda n: experiment.decide(f"at once {n}"))
        answers += [experiment.decide(), api.reward(known, 1), api.reward(new_id(), 1), client.get("/readyz")]
        answers += [experiment.ask("POST", ":pause"), client.post("/v1/experiments", json={
            "experiment": "another", "arms": ARMS, "policy": "ms+", "reward": UNIT})]  # fmt: skip
        for answer in answers:
            assert refusal(answer) == (503, "unavailable", None)
            assert answer.headers["retry-after"] == "1"
            assert str(tmp_path) not in answer.text
        assert {each["status"] for each in experiment.decisions({}, {"idempotency_key": "k"})} == {503}
        assert {each["status"] for each in api.rewards({"decision": known, "value": 1})} == {503}
        assert client.get("/healthz").status_code == 200
        assert client.get(f"/v1/experiments/{experiment.key}").json()["status"] == "running"

        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (most, most))
        again = [experiment.decide(f"during {n}") for n in range(5)]
        assert [answer.status_code for answer in again] == [201] * 5
        told |= {answer.json()["id"] for answer in again}
        assert api.reward(known, 1).status_code == 201
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.get(f"/v1/experiments/{experiment.key}").json()["status"] == "running"
        with closing(open_store(log)) as store:
            assert {row.id for row, _, _ in store.rows(experiment.key)} == told
        assert verify(log, experiment.key).problems == []


def test_postgresql_that_is_down_is_503_until_it_is_up(private_postgres: Server) -> None:
    url = private_postgres.url()
    with serving(url) as service, talking(service) as client:
        api = Api(service, client, url)
        experiment = api.begin()
        told = {experiment.decide().json()["id"]}
        private_postgres.stop(immediate=True)
        until(lambda: client.get("/readyz").status_code == 503)
        answers = [experiment.decide("k"), api.reward(next(iter(told)), 1), experiment.ask("GET", "/state")]
        assert [refusal(answer) for answer in answers] == [(503, "unavailable", None)] * 3
        for answer in answers:
            assert "postgres" not in error(answer)["message"].lower()
        assert client.get("/healthz").status_code == 200
        private_postgres.start()
        until(lambda: client.get("/readyz").status_code == 200)
        answer = experiment.decide("k")
        assert answer.status_code == 201
        told.add(answer.json()["id"])
        with closing(open_store(url)) as store:
            assert {row.id for row, _, _ in store.rows(experiment.key)} == told


# Several processes.


def test_two_workers_are_one_service(postgres: str) -> None:
    with closing(open_store(postgres)) as store:
        _, admin = create(store, "admin", ["admin"])
        key, secret = create(store, "for a while", ["admin"])
    with serving(postgres, workers=2, options=["--rate-limit", "0"]) as service, talking(service) as client:
        client.headers["Authorization"] = f"Bearer {admin}"
        api = Api(service, client, postgres)
        experiment = api.begin(policy="uniform")
        done = together(32, lambda n: [experiment.decide(f"k{n}-{m}").status_code for m in range(10)])
        assert Counter(status for some in done for status in some) == {201: 320}

        def decisions_of(asking: Any) -> dict[Any, float]:
            return samples(asking.get("/metrics").text).get("maillard_decisions_total", {})

        def counted() -> float:
            decisions = decisions_of(client)
            return sum(number for (_, name), number in decisions.items() if name == experiment.key)

        until(lambda: counted() == 320)
        scraped = together(16, lambda _: [client.get("/metrics").status_code for _ in range(5)])
        assert Counter(status for some in scraped for status in some) == {200: 80}
        for _ in range(6):  # whichever of them is asked
            with talking(service) as other:
                other.headers["Authorization"] = f"Bearer {admin}"
                until(lambda: sum(decisions_of(other).values()) == 320)
                assert len(decisions_of(other)) == 3

        # A change is known to both at once.
        experiment.ask("POST", ":pause")
        assert fresh(service, experiment, admin, 24) == {409}
        experiment.ask("POST", ":resume")
        assert fresh(service, experiment, admin, 24) == {201}

        # And a key that is revoked opens nothing, at either.
        assert fresh(service, experiment, secret, 24) == {201}
        with closing(open_store(postgres)) as store:
            revoke(store, key.id)
        until(lambda: fresh(service, experiment, secret, 48) == {401})


def fresh(service: Service, experiment: Experiment, secret: str, count: int) -> set[int]:
    """The statuses of decisions on connections of their own, so that every worker is asked."""
    headers = f"Authorization: Bearer {secret}\r\nConnection: close\r\n"
    asked = written("POST", f"/v1/experiments/{experiment.key}/decisions", b"{}", headers)
    return {
        answer.status_code for answers in together(count, lambda _: say(service, asked)) for answer in answers
    }
