"""Exports over HTTP: without a time limit, sent while they run, and stopped with their callers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from maillard import read_log
from tests.service.api import http_client, wait_until
from tests.service.filled_logs import fill
from tests.service.held_jobs import FAIL, HOLD, RUNNING, prelude
from tests.service.raw_http import error_summary
from tests.service.test_worker_process import ended
from tests.serving import Service, serving

EXPORT = "/v1/experiments/home/export"
_LIMIT = 0.5  # seconds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    database = fill(folder / "log.db", "uniform", 200)
    options = ["--job-timeout", str(_LIMIT)]
    with serving(database, options=options, prelude=prelude(folder)) as running:
        yield running


def test_an_export_that_takes_longer_than_the_limit_completes(service, folder) -> None:
    (folder / HOLD).touch()
    with http_client(service) as client, client.stream("GET", EXPORT) as response:
        assert response.status_code == 200
        chunks = response.iter_raw()
        content = next(chunks)  # the export is running
        assert content.startswith(b"PAR1")
        wait_until((folder / RUNNING).exists)
        # Another job takes longer than the limit. It does not wait for the export, and is stopped.
        stopped = client.post("/v1/experiments/home:verify")
        assert error_summary(stopped) == (422, "too_long", None)
        assert f"more than {_LIMIT:g} seconds" in stopped.text
        (folder / HOLD).unlink()
        content += b"".join(chunks)
    (folder / "export.parquet").write_bytes(content)
    with read_log(folder / "export.parquet") as log, read_log(folder / "log.db", "home") as original:
        assert list(log.rows()) == list(original.rows())


def test_an_export_whose_caller_disconnects_is_stopped(service, folder) -> None:
    (folder / HOLD).touch()
    with http_client(service) as client:
        with client.stream("GET", EXPORT) as response:
            chunks = response.iter_raw()
            next(chunks)
            wait_until((folder / RUNNING).exists)
            pid = int(wait_until((folder / RUNNING).read_text))
        wait_until(lambda: ended(pid))
        (folder / HOLD).unlink()
        assert client.get(EXPORT).content.endswith(b"PAR1")  # the next one
    wait_until(lambda: '"status":499' in service.output)


def test_an_export_that_fails_after_its_beginning_has_no_end(service, folder) -> None:
    (folder / HOLD).touch()
    (folder / FAIL).touch()
    with http_client(service) as client:
        with client.stream("GET", EXPORT) as response:
            chunks = response.iter_raw()
            next(chunks)
            (folder / HOLD).unlink()
            with pytest.raises(httpx2.RemoteProtocolError):
                list(chunks)
        wait_until(lambda: "the log is gone" in service.output)
        (folder / FAIL).unlink()
        assert client.get(EXPORT).status_code == 200


def test_a_head_request_stops_the_export(service, folder) -> None:
    with http_client(service) as client:
        response = client.head(EXPORT)
        assert (response.status_code, response.content) == (200, b"")
        assert client.get(EXPORT).content.endswith(b"PAR1")
