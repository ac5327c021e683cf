"""The commands for logs: what they print, and how they end."""

from __future__ import annotations

import json
import sqlite3

import pytest
from click.testing import CliRunner

from maillard import Bandit, Reward
from maillard.cli import main


@pytest.fixture
def log(tmp_path) -> str:
    path = tmp_path / "decisions.db"
    with Bandit(
        ["red", "blue"], "ms+:booster=8", reward=Reward(low=0, high=1), log=path, experiment="home"
    ) as bandit:
        for decision in bandit.choose(size=200):
            bandit.reward(decision.id, float(decision.arm == "red"))
    return str(path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_an_honest_log_holds(log) -> None:
    status, output = run("verify", log)
    assert status == 0
    assert "200 recomputed" in output
    assert output.endswith("\nholds\n")
    assert all(arm in output for arm in ("red", "blue", "(weights)"))


def test_a_broken_log_is_told_by_the_exit_status(log) -> None:
    connection = sqlite3.connect(log)
    connection.execute("UPDATE decisions SET log_probability = -0.1")
    connection.commit()
    connection.close()
    status, output = run("verify", log)
    assert status == 1
    assert output.endswith("\nbroken\n")
    assert "... and 180 more" in output


def test_a_short_log_is_not_judged(log, tmp_path) -> None:
    short = str(tmp_path / "short.db")
    Bandit(["red", "blue"], "uniform", log=short).choose()
    status, output = run("verify", short)
    assert status == 0
    assert output.endswith("\nnot enough data\n")


def test_json(log) -> None:
    status, output = run("verify", log, "--format", "json")
    found = json.loads(output)
    assert status == 0
    assert found["verdict"] == "holds"
    assert found["recomputed"] == found["decisions"] == 200
    assert [score["name"] for score in found["scores"]] == ["red", "blue", "weights"]


@pytest.mark.parametrize("name", ["decisions.parquet", "decisions.csv"])
def test_a_log_goes_out_and_comes_back(log, name, tmp_path) -> None:
    file, back = str(tmp_path / name), str(tmp_path / "back.db")
    assert run("export", log, file)[1] == f"{file}: 200 decisions of 'home'\n"
    assert run("verify", file)[1].endswith("\nholds\n")
    assert run("import", file, back)[1] == f"{back}: 200 decisions of 'home'\n"
    assert run("verify", back)[1].endswith("\nholds\n")


def test_which_experiment(log) -> None:
    Bandit(["x"], "uniform", log=log, experiment="other").close()
    status, output = run("verify", log)
    assert status == 2
    assert "'home', 'other'" in output
    assert run("verify", log, "--experiment", "home")[0] == 0
    status, output = run("verify", log, "--experiment", "hom")
    assert status == 2
    assert "Did you mean 'home'?" in output


def test_nothing_there(tmp_path) -> None:
    status, output = run("verify", str(tmp_path / "nothing.db"))
    assert status == 2
    assert "a file that can be read" in output
    assert not (tmp_path / "nothing.db").exists()
