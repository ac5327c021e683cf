"""Scheduled exports of a real service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maillard import evaluate
from maillard.decisions import read_log, verify
from tests.service.api import Api, http_client, metric_samples, wait_until
from tests.serving import serving

_GAUGE = "maillard_last_export_timestamp_seconds"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_exports_the_changes_of_all_experiments(workers, tmp_path, request) -> None:
    database = str(tmp_path / "log.db") if workers == 1 else request.getfixturevalue("postgres")
    folder = tmp_path / "exported"
    options = ["--export-to", str(folder), "--export-every", "1s", "--log-level", "warning"]
    with serving(database, workers=workers, options=options) as service, http_client(service) as client:
        api = Api(service, client, database)
        experiments = [api.create_experiment(), api.create_experiment()]
        for _ in range(3):
            for each in experiments:
                api.reward(each.decide().json()["id"], 1.0)
        names = [each.key for each in experiments]
        wait_until(lambda: [_rewards(folder, name) for name in names] == [3, 3])
        wait_until(lambda: _GAUGE in client.get("/metrics").text)
        assert metric_samples(client.get("/metrics").text)[_GAUGE][()] > 1e9
    for name in names:
        assert list(read_log(folder, name).rows()) == list(read_log(database, name).rows())
        assert verify(folder, name).problem_count == 0
        assert evaluate([folder, database], "uniform", experiment=name).diagnostics.rows == 3
    # One of the processes exports: each increment has a commit that the one before did not have.
    files = json.loads((folder / names[0] / "manifest.json").read_text())["files"]
    assert len({each["path"] for each in files}) == len(files)


def _rewards(folder: Path, name: str) -> int:
    """The number of applied rewards in an export."""
    try:
        content = json.loads((folder / name / "manifest.json").read_text())
    except FileNotFoundError:
        return 0
    return int(content["number"]) - len(content["events"])


def test_a_failed_export_is_logged_and_tried_again(tmp_path) -> None:
    folder, database = tmp_path / "exported", tmp_path / "log.db"
    options = ["--export-to", str(folder), "--export-every", "1s", "--log-level", "warning"]
    with serving(database, options=options) as service, http_client(service) as client:
        wait_until((folder / ".lock").exists)
        (folder / "shop").write_text("a file in the way")
        api = Api(service, client, str(database))
        api.create_experiment(experiment="shop")
        api.create_experiment(experiment="home")
        wait_until(lambda: "the export of 'shop' failed" in service.output)
        wait_until((folder / "home" / "manifest.json").exists)
        (folder / "shop").unlink()
        wait_until((folder / "shop" / "manifest.json").exists)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--export-to", "file", "--export-to: expected a folder"),
        ("--export-every", "0.5", "--export-every: expected seconds, or a number with a unit"),
        ("--export-every", "0s", "--export-every: expected at least 1s"),
    ],
)
def test_invalid_options_are_refused_before_the_service_listens(option, value, message, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    options = [option, str(tmp_path / value) if value == "file" else value]
    with pytest.raises(RuntimeError, match=message), serving(tmp_path / "log.db", options=options):
        pass
