"""The command line with `--device cuda`."""

from __future__ import annotations

import json

import pytest

import maillard
from maillard.simulation.cuda import cuda_backend as device
from tests.simulation.cuda import python

testing = pytest.importorskip("click.testing")
pytest.importorskip("rich")
main = pytest.importorskip("maillard.cli").main

BERNOULLI = "bernoulli:0.6,0.4,0.4,0.2"


def test_the_command_runs_on_a_device(tmp_path) -> None:
    path = tmp_path / "summary.json"
    arguments = [
        "simulate",
        "ms+",
        "ts",
        "--problem",
        BERNOULLI,
        "--horizon",
        "6",
        "--trials",
        "5",
        "--seed",
        "2",
    ]
    arguments += ["--device", "cuda", "--keep", "summary", "--format", "json", "--output", str(path)]
    result = testing.CliRunner().invoke(main, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["provenance"]["device"] == device.device_name()
    expected = maillard.simulate(["ms+", "ts"], BERNOULLI, 6, 5, seed=2, device="cuda")
    assert [row["mean"] for row in printed["summary"]] == pytest.approx(expected.mean[:, -1].tolist())
    assert json.loads(path.read_text())["rounds"] == expected.rounds.tolist()
    table = testing.CliRunner().invoke(main, arguments[:-4], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert table.exit_code == 0
    assert "ms+" in table.output
    refused = testing.CliRunner().invoke(main, [*arguments[:-1], str(tmp_path / "trials.npz")])
    assert refused.exit_code == 2
    assert refused.output.startswith(
        "maillard: --output with --keep summary: expected a name that ends in .json"
    )
    assert len(refused.output.splitlines()) == 1


def test_a_missing_driver_is_one_line_and_auto_falls_back_to_the_same_bits() -> None:
    code = f"""
import numpy, maillard
from click.testing import CliRunner
from maillard.cli import main
from maillard.simulation.backends import NoDevice
try:
    maillard.simulate("ms", "{BERNOULLI}", 20, 2, device="cuda")
except NoDevice as error:
    print(error)
there, here = (
    maillard.simulate(["ms", "ts"], "{BERNOULLI}", 20, 5, seed=3, device=each) for each in ("auto", "cpu")
)
assert numpy.array_equal(there.values, here.values) and numpy.array_equal(there.pulls, here.pulls)
print(there.provenance["device"])
command = CliRunner().invoke(main, ["simulate", "ms", "--device", "cuda"])
print(command.exit_code, command.output, end="")
"""
    message, where, command = python(code).stdout.strip().splitlines()
    assert message.startswith("device 'cuda': ")
    assert message.endswith("(device='auto' runs on the CPU where there is no GPU)")
    assert where == "cpu"
    assert command == f"2 maillard: {message}"
