"""The service with a log that cannot be written, with PostgreSQL down, and with two workers."""

from __future__ import annotations

import json
import resource
import sqlite3
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
from tests.service.raw_http import error, error_summary, send_raw
from tests.serving import Service, serving
from tests.stores import new_id

# The access log.


def test_the_access_log_contains_ids_but_no_names_and_no_secrets(tmp_path: Path) -> None:
    log = str(tmp_path / "PLANTED-folder.db")
    with closing(open_store(log)) as store:
        _, secret = create(store, "PLANTED-name", ["admin"])
    with serving(log, no_keys=False) as service, http_client(service) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        body = {"experiment": "home", "arms": ["PLANTED-arm", "b"], "policy": "ms+", "reward": UNIT}
        assert client.post("/v1/experiments", json=body).status_code == 201
        path = "/v1/experiments/home/decisions"
        headers = {"Idempotency-Key": "PLANTED-idempotency", "X-Request-Id": "mine-1", "Cookie": "PLANTED"}
        made = client.post(path, json={"unit": "PLANTED-unit"}, headers=headers).json()["id"]
        reward = f"/v1/decisions/{made}/reward"
        # Long enough that neither the digits of a time nor those of an id contain them by chance.
        first, second = 0.8125812581258125, 0.3125312531253125
        client.put(
            reward, json={"value": first, "event": "PLANTED-event"}, headers={"X-Request-Id": "mine-2"}
        )
        client.put(reward, json={"value": second, "event": "PLANTED-event"})
        client.post(path, json={"unit": "PLANTED\0", "context": "PLANTED"})
        client.post(path, content=b'{"PLANTED', headers={"Content-Type": "application/json"})
        client.get(
            "/PLANTED?PLANTED=PLANTED", headers={"User-Agent": "PLANTED", "Referer": "http://PLANTED/"}
        )
        client.get("/v1/me", headers={"Authorization": "Bearer mk_PLANTED"})
        client.post("/v1/experiments/home/evaluations", json={"target": "arm:PLANTED"})
        send_raw(service, b"GET /PLANTED HTTP/1.1\r\nX-PLANTED: PLANTED\0\r\n\r\n")
        # Lines are written a few times a second.
        wait_until(lambda: service.output.count('"event":"request"') >= 8)
        output = service.output
    welcome, access_log = output.split("\n{", 1)
    lines = [json.loads(line) for line in ("{" + access_log).splitlines()]
    assert all({"time", "level", "event"} <= set(line) for line in lines)
    requests = {line["request_id"]: line for line in lines if line["event"] == "request"}
    assert requests["mine-1"]["decision_id"] == requests["mine-2"]["decision_id"] == made
    assert (requests["mine-1"]["operation"], requests["mine-1"]["status"]) == ("decide", 201)
    assert (requests["mine-1"]["experiment"], requests["mine-2"]["experiment"]) == ("home", None)
    assert {line["peer"] for line in requests.values()} == {"127.0.0.1"}
    assert {line["key"] for line in requests.values()} >= {secret[3:15]}
    assert len(requests) == len([line for line in lines if line["event"] == "request"]) >= 8
    for planted in ("PLANTED", secret, secret[16:], str(first)[2:], str(second)[2:]):
        assert planted not in access_log
    assert secret not in welcome


# Failures of the log.


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_removed_file_of_the_log_is_503_and_loses_nothing(tmp_path: Path, ending: str) -> None:
    log, removed = str(tmp_path / "log.db"), tmp_path / f"log.db{ending}"
    with serving(log) as service, http_client(service) as client:
        experiment = Api(service, client, log).create_experiment()
        acknowledged = {experiment.decide().json()["id"] for _ in range(20)}
        removed.unlink()
        assert error_summary(experiment.decide()) == (503, "unavailable", None)
        acknowledged |= {experiment.decide().json()["id"] for _ in range(20)}
        removed.unlink()
        wait_until(lambda: client.get("/readyz").status_code == 503)
        wait_until(lambda: client.get("/readyz").status_code == 200)
        acknowledged |= {experiment.decide().json()["id"] for _ in range(20)}
        wait_until(lambda: "was removed or replaced" in service.output)
        service.restart()  # with SIGKILL
        assert len(acknowledged) == 60
        for each in acknowledged:
            assert client.get(f"/v1/decisions/{each}").status_code == 200


@pytest.mark.parametrize("level", ["warning", "info"])
def test_a_log_that_cannot_be_written_is_503_and_never_an_unlogged_arm(tmp_path: Path, level: str) -> None:
    """The operating system refuses every write of the service, like a full disk, and then allows them."""
    log = str(tmp_path / "log.db")
    with serving(log, options=["--log-level", level]) as service, http_client(service) as client:
        api = Api(service, client, log)
        experiment = api.create_experiment()
        acknowledged = {experiment.decide(f"before {n}").json()["id"] for n in range(5)}
        known = next(iter(acknowledged))
        _, hard_limit = resource.prlimit(service.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (0, hard_limit))
        time.sleep(0.6)  # a probe is good for half a second
        responses = [experiment.decide(f"during {n}") for n in range(5)]
        responses += run_concurrently(16, lambda n: experiment.decide(f"at once {n}"))
        responses += [
            experiment.decide(),
            api.reward(known, 1),
            api.reward(new_id(), 1),
            client.get("/readyz"),
        ]
        responses += [experiment.request("POST", ":pause"), client.post("/v1/experiments", json={
            "experiment": "another", "arms": ARMS, "policy": "ms+", "reward": UNIT})]  # fmt: skip
        for response in responses:
            assert error_summary(response) == (503, "unavailable", None)
            assert response.headers["retry-after"] == "1"
            assert str(tmp_path) not in response.text
        assert {each["status"] for each in experiment.decisions({}, {"idempotency_key": "k"})} == {503}
        assert {each["status"] for each in api.rewards({"decision": known, "value": 1})} == {503}
        assert client.get("/healthz").status_code == 200
        assert client.get(f"/v1/experiments/{experiment.key}").json()["status"] == "running"

        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
        again = [experiment.decide(f"during {n}") for n in range(5)]
        assert [response.status_code for response in again] == [201] * 5
        acknowledged |= {response.json()["id"] for response in again}
        assert api.reward(known, 1).status_code == 201
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.get(f"/v1/experiments/{experiment.key}").json()["status"] == "running"
        with closing(open_store(log)) as store:
            assert {row.id for row, _, _ in store.rows(experiment.key)} == acknowledged
        assert verify(log, experiment.key).problems == []


def test_a_damaged_log_is_500_invalid_log(tmp_path: Path) -> None:
    """The caller is not at fault. The response does not reveal the path; the access log has the details."""
    log = str(tmp_path / "log.db")
    with serving(log) as service, http_client(service) as client:
        api = Api(service, client, log)
        damaged, other = api.create_experiment(), api.create_experiment()
    with closing(sqlite3.connect(log)) as file, file:
        of_experiment = "experiment = (SELECT id FROM experiments WHERE name = ?)"
        file.execute(f"UPDATE events SET payload = '{{' WHERE {of_experiment}", [damaged.key])
    with serving(log) as service, http_client(service) as client:
        response = client.get(f"/v1/experiments/{damaged.key}")
        assert error_summary(response) == (500, "invalid_log", None)
        assert str(tmp_path) not in response.text
        wait_until(lambda: "InvalidLog" in service.output)
        assert client.get(f"/v1/experiments/{other.key}").status_code == 200


def test_postgresql_that_is_down_is_503_until_it_is_up(private_postgres: Server) -> None:
    url = private_postgres.url()
    with serving(url) as service, http_client(service) as client:
        api = Api(service, client, url)
        experiment = api.create_experiment()
        acknowledged = {experiment.decide().json()["id"]}
        private_postgres.stop(immediate=True)
        wait_until(lambda: client.get("/readyz").status_code == 503)
        responses = [
            experiment.decide("k"),
            api.reward(next(iter(acknowledged)), 1),
            experiment.request("GET", "/state"),
        ]
        assert [error_summary(response) for response in responses] == [(503, "unavailable", None)] * 3
        for response in responses:
            assert "postgres" not in error(response)["message"].lower()
        assert client.get("/healthz").status_code == 200
        private_postgres.start()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        response = experiment.decide("k")
        assert response.status_code == 201
        acknowledged.add(response.json()["id"])
        with closing(open_store(url)) as store:
            assert {row.id for row, _, _ in store.rows(experiment.key)} == acknowledged


# Several processes.


def test_two_workers_act_as_one_service(postgres: str) -> None:
    with closing(open_store(postgres)) as store:
        _, admin = create(store, "admin", ["admin"])
        key, secret = create(store, "for a while", ["admin"])
    with (
        serving(postgres, workers=2, no_keys=False, options=["--rate-limit", "0"]) as service,
        http_client(service) as client,
    ):
        client.headers["Authorization"] = f"Bearer {admin}"
        api = Api(service, client, postgres)
        experiment = api.create_experiment(policy="uniform")
        done = run_concurrently(32, lambda n: [experiment.decide(f"k{n}-{m}").status_code for m in range(10)])
        assert Counter(status for some in done for status in some) == {201: 320}

        def decisions_of(scraper: Any) -> dict[Any, float]:
            return metric_samples(scraper.get("/metrics").text).get("maillard_decisions_total", {})

        def counted() -> float:
            decisions = decisions_of(client)
            return sum(number for (_, name), number in decisions.items() if name == experiment.key)

        wait_until(lambda: counted() == 320)
        scraped = run_concurrently(16, lambda _: [client.get("/metrics").status_code for _ in range(5)])
        assert Counter(status for some in scraped for status in some) == {200: 80}
        for _ in range(6):  # either worker may respond
            with http_client(service) as other:
                other.headers["Authorization"] = f"Bearer {admin}"
                wait_until(lambda: sum(decisions_of(other).values()) == 320)
                assert len(decisions_of(other)) == 3

        # Both workers see a change immediately.
        experiment.request("POST", ":pause")
        assert statuses_on_new_connections(service, experiment, admin, 24) == {409}
        experiment.request("POST", ":resume")
        assert statuses_on_new_connections(service, experiment, admin, 24) == {201}

        # Both workers reject a revoked key.
        assert statuses_on_new_connections(service, experiment, secret, 24) == {201}
        with closing(open_store(postgres)) as store:
            revoke(store, key.id)
        wait_until(lambda: statuses_on_new_connections(service, experiment, secret, 48) == {401})


def statuses_on_new_connections(
    service: Service, experiment: Experiment, secret: str, count: int
) -> set[int]:
    """The statuses of decisions, each on a new connection, so that every worker gets some."""
    headers = f"Authorization: Bearer {secret}\r\nConnection: close\r\n"
    message = written("POST", f"/v1/experiments/{experiment.key}/decisions", b"{}", headers)
    return {
        response.status_code
        for responses in run_concurrently(count, lambda _: send_raw(service, message))
        for response in responses
    }
