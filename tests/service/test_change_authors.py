"""Administrative events say which API key made the change."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

from maillard.decisions import Bandit, verify
from maillard.decisions.actors import acting_as
from maillard.decisions.event_payloads import parse_event, payload_of
from maillard.decisions.events import AdministrativeEvent
from maillard.decisions.stores import open_store
from maillard.service.api_keys import create
from tests.service.api import Api, http_client
from tests.serving import serving
from tests.stores import Log

AGE = {"name": "age", "type": "number", "low": 0, "high": 99}


def authors(bandit: Bandit) -> list[tuple[str, str | None]]:
    """The kind and the author of each administrative event."""
    with bandit._store.reading(bandit.experiment) as transaction:
        found = transaction.events(0)
    return [(event.kind, event.by) for event in found if isinstance(event, AdministrativeEvent)]


def test_events_of_the_service_have_the_id_of_the_key(tmp_path) -> None:
    log = str(tmp_path / "log.db")
    with closing(open_store(log)) as store:
        (first, secret), (second, other) = (create(store, name, ["admin"]) for name in "ab")
    with serving(log, no_keys=False) as service, http_client(service) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        api = Api(service, client, log)
        contextual = api.create_experiment(policy=None, features={"features": [AGE]})
        experiment = api.create_experiment()
        experiment.request("POST", "/arms", {"arm": "new"})
        client.headers["Authorization"] = f"Bearer {other}"
        experiment.request("PATCH", "", {"policy": "uniform"}, If_Match="*")
        for verb in ("pause", "resume", "reset", "archive"):
            experiment.request("POST", f":{verb}")
        changed = {"features": {"features": [AGE, {"name": "new", "type": "flag"}]}}
        assert contextual.request("PATCH", "", changed, If_Match="*").json()["feature_version"] == 2
    with Bandit(log=log, experiment=contextual.key) as bandit:
        assert authors(bandit) == [("start", first.id), ("features", second.id)]
    with Bandit(log=log, experiment=experiment.key) as bandit:
        made = [("start", first.id), ("add_arm", first.id)]
        made += [(kind, second.id) for kind in ("policy", "pause", "resume", "reset", "archive")]
        assert authors(bandit) == made
        assert verify(bandit).problems == []


def test_events_without_a_key_have_no_author(tmp_path) -> None:
    """Their stored form is the one of earlier versions."""
    log = str(tmp_path / "log.db")
    with serving(log) as service, http_client(service) as client:
        experiment = Api(service, client, log).create_experiment()
        experiment.request("POST", ":pause")
    with closing(sqlite3.connect(log)) as connection:
        payloads = connection.execute("SELECT payload FROM events ORDER BY number").fetchall()
    assert payloads[1] == (None,)
    assert '"by"' not in payloads[0][0]


def test_authors_are_stored_and_belong_to_their_thread(log: Log) -> None:
    with acting_as("key-1"):
        bandit = log.bandit()
        bandit.pause()
        other = threading.Thread(target=bandit.resume)
        other.start()
        other.join()
    bandit.pause()
    made = [("start", "key-1"), ("pause", "key-1"), ("resume", None), ("pause", None)]
    assert authors(log.bandit()) == made
    assert verify(bandit).problems == []


def test_payloads_of_both_forms_are_read() -> None:
    for payload in ({}, {"by": "key-1"}):
        event = parse_event(2, "pause", 5, payload)
        assert event.by == payload.get("by")
        assert payload_of(event) == payload
