"""What the service imports: numba only in the worker process, for a job; matplotlib never."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.service.api import http_client, wait_until
from tests.serving import serving

HEAVY = ("numba", "llvmlite", "matplotlib", "pyarrow", "jinja2", "pandas", "duckdb", "psycopg")

# On a signal, writes which of these the process has imported.
_REPORT = f"""
import json, os, pathlib, signal, sys
def report(*_):
    found = [name for name in {HEAVY} if sys.modules.get(name) is not None]
    pathlib.Path("PATH.new").write_text(json.dumps(found))
    os.replace("PATH.new", "PATH")
signal.signal(signal.SIGUSR1, report)
"""
_EVALUATIONS = ({"target": "arm:blue"}, {"target": "ms+"}, {"target": "arm:blue", "against": "arm:red"})


@pytest.fixture
def without_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes started from here have only what the extra `service` installs: no matplotlib, no jinja2."""
    folder = tmp_path / "site"
    folder.mkdir()
    # None in sys.modules makes an import fail. Python runs this file at the start of every process.
    (folder / "sitecustomize.py").write_text("import sys; sys.modules.update(matplotlib=None, jinja2=None)")
    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *([inherited] if inherited else [])]))


@pytest.mark.usefixtures("without_drawing")
def test_jobs_work_and_the_serving_process_stays_light(tmp_path) -> None:
    report = tmp_path / "imported.json"
    with (
        serving(tmp_path / "log.db", prelude=_REPORT.replace("PATH", str(report))) as service,
        http_client(service) as client,
    ):
        body = {"experiment": "home", "arms": ["red", "blue"], "reward": {"low": 0, "high": 1}}
        assert client.post("/v1/experiments", json=body).status_code == 201
        for _ in range(30):
            decision = client.post("/v1/experiments/home/decisions", json={}).json()
            client.put(f"/v1/decisions/{decision['id']}/reward", json={"value": 1})
        for question in _EVALUATIONS:
            found = client.post("/v1/experiments/home/evaluations", json=question)
            assert found.status_code == 200, found.text
        assert client.post("/v1/experiments/home:verify").json()["recomputed"] == 30
        assert client.get("/v1/experiments/home/export").content[:4] == b"PAR1"
        assert client.get("/v1/experiments/home/state").status_code == 200
        assert client.get("/v1/experiments/home/activity").status_code == 200
        assert client.get("/metrics").status_code == 200
        os.kill(service.pid, signal.SIGUSR1)
        wait_until(lambda: client.get("/healthz").status_code == 200 and report.exists())
    assert json.loads(report.read_text()) == []
