"""The process of the service: signals, readiness, settings, file permissions, and rejected requests."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from maillard.cli.service_commands import serve
from maillard.decisions.stores.sqlite import SQLiteStore
from tests.service.api import http_client, wait_until
from tests.service.raw_http import error, error_summary, send_raw
from tests.serving import Service, serving

# A server that is told to stop, and goes on as if it had open connections.
_NEVER_STOP = """
import uvicorn
async def on_tick(self, counter):
    return False
uvicorn.Server.on_tick = on_tick
"""
_SETTINGS = {
    "host": "::1", "port": "8123", "workers": "3", "rate_limit": "7.0", "log_level": "error",
    "no_keys": "True", "job_timeout": "9.5", "drain_delay": "2.5", "export_to": "exported",
    "export_every": "15m", "personalizer": "loop",
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("log") / "log.db") as running:
        yield running


def lines(service: Service) -> list[dict[str, Any]]:
    """The lines of the access log so far."""
    return [json.loads(line) for line in service.output.splitlines() if line.startswith("{")]


def wait_for_workers(service: Service, count: int) -> None:
    """Wait until all workers have started. A service is ready as soon as one of them is."""
    wait_until(lambda: service.output.count("Application startup complete") == count)


# Signals.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_service_that_is_told_to_stop_is_not_ready(number, tmp_path) -> None:
    with serving(tmp_path / "log.db", prelude=_NEVER_STOP) as service, http_client(service) as client:
        assert client.get("/readyz").status_code == 200
        os.kill(service.pid, number)
        wait_until(lambda: client.get("/readyz").status_code == 503)
        assert error(client.get("/readyz"))["message"] == "The service is stopping."
        assert client.get("/healthz").status_code == 200


def test_a_hangup_stops_the_service_like_a_termination(tmp_path) -> None:
    with serving(tmp_path / "log.db") as service:
        os.kill(service.pid, signal.SIGHUP)
        wait_until(lambda: "Shutting down" in service.output)
        wait_until(lambda: service.get_status("/healthz") == 0)
        wait_until(lambda: not (tmp_path / "log.db-wal").exists())  # the log was closed


def test_a_service_serves_for_a_while_after_it_was_told_to_stop(tmp_path) -> None:
    """A load balancer has time to notice that it is not ready."""
    with serving(tmp_path / "log.db", options=["--drain-delay", "3600"]) as service:
        for _ in range(2):  # a service manager may send the signal to all processes, and the parent again
            os.kill(service.pid, signal.SIGTERM)
        wait_until(lambda: service.get_status("/readyz") == 503)  # each on a new connection
        time.sleep(0.5)  # the server would have stopped listening after 0.1 seconds
        assert service.get_status("/healthz") == 200
        assert service.get_status("/v1/experiments") == 200
        os.kill(service.pid, signal.SIGINT)  # at once
        wait_until(lambda: service.get_status("/healthz") == 0)
        wait_until(lambda: not (tmp_path / "log.db-wal").exists())


def test_a_service_stops_when_the_delay_is_over(tmp_path) -> None:
    with serving(tmp_path / "log.db", options=["--drain-delay", "0.3"]) as service:
        os.kill(service.pid, signal.SIGTERM)
        wait_until(lambda: service.get_status("/healthz") == 0)
        wait_until(lambda: not (tmp_path / "log.db-wal").exists())
        assert "Traceback" not in service.output


def test_all_workers_serve_during_the_delay(postgres) -> None:
    with serving(postgres, workers=2, options=["--drain-delay", "3600"]) as service:
        wait_for_workers(service, 2)
        os.killpg(service.pid, signal.SIGTERM)  # to all processes; the parent sends it to the workers again
        wait_until(lambda: {service.get_status("/readyz") for _ in range(20)} == {503})
        assert service.get_status("/healthz") == 200
        assert "Shutting down" not in service.output
        os.killpg(service.pid, signal.SIGINT)
        wait_until(lambda: service.output.count("Shutting down") == 2)


def test_a_hangup_stops_all_workers(postgres) -> None:
    with serving(postgres, workers=2) as service:
        wait_for_workers(service, 2)
        os.kill(service.pid, signal.SIGHUP)
        wait_until(lambda: service.output.count("Shutting down") == 2)


def test_a_service_that_ignores_hangups_goes_on(tmp_path) -> None:
    """As `nohup` starts it."""
    prelude = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    with serving(tmp_path / "log.db", prelude=prelude) as service, http_client(service) as client:
        os.kill(service.pid, signal.SIGHUP)
        assert client.get("/readyz").status_code == 200


# The monitor.


def change_saved_position(path: Path, change: Callable[[Any], None]) -> None:
    """Change the position that the monitor has saved."""
    with closing(SQLiteStore(path)) as store, store.transaction("", lock=False) as transaction:
        saved = json.loads(transaction.documents("monitor")["position"])
        change(saved)
        transaction.put_document("monitor", "position", json.dumps(saved))


@pytest.mark.parametrize("end", [Service.stop, Service.kill], ids=["stopped", "killed"])
def test_the_monitor_continues_after_a_restart(end, tmp_path) -> None:
    path = tmp_path / "log.db"
    save_often = "from maillard.service import log_monitor; log_monitor._SAVE_INTERVAL = 0.1"
    with serving(path, prelude=save_often if end is Service.kill else "") as service:
        with http_client(service) as client:
            body = {"experiment": "home", "arms": ["red", "blue"], "policy": "uniform"}
            assert client.post("/v1/experiments", json=body).status_code == 201
            decide_many(client)
            wait_until(lambda: activity(client)["decisions"] == 100)
        if end is Service.kill:
            wait_until(lambda: saved_decisions(path) == 100)
        end(service)

        def add(saved: Any) -> None:
            """Count some decisions that do not exist, to see that the log is not read again."""
            assert sum(saved["experiments"]["home"]["decisions"].values()) == 100
            saved["experiments"]["home"]["decisions"]["red"] += 1000

        change_saved_position(path, add)
        service.start()
        with http_client(service) as client:
            decide_many(client)
            wait_until(lambda: activity(client)["decisions"] == 1200)


def decide_many(client: Any) -> None:
    response = client.post("/v1/experiments/home/decisions:batch", json={"decisions": [{}] * 100})
    assert response.status_code == 200


def activity(client: Any) -> Any:
    return client.get("/v1/experiments/home/activity").json()


def saved_decisions(path: Path) -> int:
    """The number of decisions in the saved position."""
    with closing(SQLiteStore(path)) as store, store.reading("") as transaction:
        saved = json.loads(transaction.documents("monitor").get("position", '{"experiments": {}}'))
    return sum(sum(each["decisions"].values()) for each in saved["experiments"].values())


# Settings and files.


def test_every_option_of_serve_has_an_environment_variable(tmp_path, monkeypatch) -> None:
    names = {option.name for option in serve.params} - {"database"}
    assert names == set(_SETTINGS)
    given: dict[str, Any] = {}
    database = str(tmp_path / "other.db")

    def run(database: str, **settings: Any) -> None:
        given.update(settings, database=database)

    monkeypatch.setattr("maillard.service.server.run", run)
    monkeypatch.setattr("maillard.cli.service_commands.check_workers", lambda *_: None)
    variables = {f"MAILLARD_{name.upper()}": value for name, value in _SETTINGS.items()}
    result = CliRunner().invoke(serve, [], env={**variables, "MAILLARD_DATABASE": database})
    assert result.exit_code == 0, result.output
    assert {name: str(given[name]) for name in _SETTINGS} == _SETTINGS
    assert given["database"] == database


def test_only_the_owner_can_read_the_files_of_a_log(tmp_path) -> None:
    previous = os.umask(0)
    try:
        with serving(tmp_path / "log.db"):
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(previous)
    assert modes == dict.fromkeys(("log.db", "log.db-wal", "log.db-shm"), 0o600)


def test_the_permissions_of_an_existing_file_stay(tmp_path) -> None:
    path: Path = tmp_path / "log.db"
    path.touch()
    path.chmod(0o640)
    with serving(path):
        assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o640}


# Rejected requests.


@pytest.mark.parametrize("path", ["/healthz", "/", "/v1/experiments", "/none"])
def test_two_host_headers_are_rejected(service, path) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n"
    (response,) = send_raw(service, head.encode())
    assert error_summary(response) == (400, "bad_request", None)
    assert error(response)["message"] == "a request has one Host header"


def test_a_request_without_a_host_header_is_rejected(service) -> None:
    """HTTP/1.1 requires it, HTTP/1.0 does not."""
    (response,) = send_raw(service, b"GET /healthz HTTP/1.1\r\n\r\n")
    assert error(response)["message"] == "a request has one Host header"
    (response,) = send_raw(service, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert response.status_code == 200


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "x\xff"])
def test_compressed_bodies_are_rejected(service, encoding) -> None:
    with http_client(service) as client:
        headers = {"Content-Encoding": encoding.encode("latin-1"), "Content-Type": "application/json"}
        response = client.post("/v1/experiments", content=b"{}", headers=headers)
        assert error_summary(response) == (415, "unsupported_media_type", "Content-Encoding")
        assert response.headers["accept-encoding"] == "identity"
        headers["Content-Encoding"] = b"Identity"
        assert client.post("/v1/experiments", content=b"{}", headers=headers).status_code == 422


def test_invalid_http_is_logged(service) -> None:
    (response,) = send_raw(service, b"GET /PLANTED HTTP/1.1\r\nX-PLANTED: PLANTED\0\r\n\r\n")
    assert response.status_code == 400
    request_id = error(response)["request_id"]
    (line,) = wait_until(lambda: [each for each in lines(service) if each.get("request_id") == request_id])
    assert (line["level"], line["event"], line["status"]) == ("warning", "rejected", 400)
    assert line["peer"] == "127.0.0.1"
    assert "PLANTED" not in service.output
    with http_client(service) as client:
        assert 'maillard_requests_total{operation="none",status="400"}' in client.get("/metrics").text
