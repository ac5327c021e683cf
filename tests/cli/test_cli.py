"""The command line: the table of policies, custom policies, errors and help."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

import maillard
from maillard.cli import main

CUSTOM_POLICY = '''
import maillard

class Cautious(maillard.Indexed):
    """The best mean minus its standard error."""

    name = "cautious"
    formula = "mean - width / √N"
    width: float = maillard.real("standard errors", default=1.0, at_least=0)

    def index(self, n, mean, best, t, k):
        return mean - self.width / n**0.5
'''


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == code, result.output
    return result.output


def test_the_table_has_a_row_for_every_policy() -> None:
    text = run("policies")
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert set(maillard.policies.names()) <= set(rows)
    assert "d √T" in rows["lin-med"]
    assert "√(log K)" in rows["ms+"]
    assert "✗*" in rows["ucb+"]


def test_the_table_agrees_with_table_1_of_the_paper() -> None:
    """The expected rows were typed in from the paper."""
    printed = {
        "ucb1": ("✓", "✗", "√(log T)", "✓", "N/A"),
        "aoucb": ("✓", "✓", "√(log T)", "✓", "N/A"),
        "ts-sg": ("✓", "✗", "√(log K)", "✓", "✗"),
        "moss": ("✗", "✗", "1", "✗", "N/A"),
        "ucb+": ("✓", "✗*", "√(log K)", "✗", "N/A"),
        "ocucb": ("✓", "✗*", "1", "✗", "N/A"),
        "ms": ("✓", "✓", "√(log T)", "✓", "✓"),
        "ms+": ("✓", "✓", "√(log K)", "✓", "✓"),
    }
    rows = {}
    for line in run("policies", "--format", "markdown").splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name.removesuffix(" †")] = tuple(cells[:5])
    assert {name: rows[name] for name in printed} == printed


def test_only_sources_are_shortened_on_a_narrow_terminal() -> None:
    result = CliRunner().invoke(main, ["policies"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["policy", "UCB", "optimal", "ratio", "time", "form", "source"]
    row = next(line for line in lines if line.startswith("ms+ "))
    assert row.split()[1:6] == ["✓", "✓", "√(log", "K)", "✓"]
    assert "Bian and Jun" in row


def test_one_policy_is_explained() -> None:
    text = run("policies", "ms+")
    for part in (
        "MaillardSamplingPlus",
        "exp(-x)",
        "booster",
        "4.0",
        ">= 1",
        "Algorithm 2",
        "closed form",
        "sigma2",
    ):
        assert part in text


def test_policies_as_json() -> None:
    policies = json.loads(run("policies", "--format", "json"))
    assert [policy["name"] for policy in policies] == maillard.policies.names()
    (one,) = json.loads(run("policies", "ts", "--format", "json"))
    assert one["guarantees"]["closed_form_probability"] is False
    assert {parameter["name"] for parameter in one["parameters"]} == {"sigma2", "scale"}


def test_errors_are_one_line() -> None:
    result = CliRunner().invoke(main, ["policies", "ms++"])
    assert result.exit_code == 2
    assert result.output.startswith("maillard: policy: unknown name 'ms++'. Did you mean 'ms+'?")
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize("command", [["policies", "mine"], ["simulate", "mine"]])
def test_an_unknown_policy_may_be_in_a_file_that_was_not_loaded(command) -> None:
    assert run(*command, code=2).endswith(
        "For a policy of your own, load its file: maillard --load FILE.py ...\n"
    )
    assert "--load" not in run("simulate", "ms+", "--problem", "mine", code=2)


@pytest.mark.parametrize(("text", "message"), [("", "stopped"), ("stopped in round 7", "stopped in round 7")])
def test_an_interrupted_simulation_says_so(monkeypatch, text, message) -> None:
    def interrupt(*_arguments, **_options) -> None:
        raise KeyboardInterrupt(text)

    monkeypatch.setattr(maillard, "simulate", interrupt, raising=False)
    assert run("simulate", "ms+", code=130) == f"maillard: {message}\n"


def test_a_custom_policy_is_loaded_from_a_file(tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(CUSTOM_POLICY, encoding="utf8")
    try:
        assert "cautious" in run("--load", str(path), "policies")
        assert "standard errors" in run("--load", str(path), "policies", "cautious")
    finally:
        maillard.Policy.registry.pop("cautious", None)


def test_a_loaded_file_may_import_its_neighbours(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(maillard.Policy, "registry", dict(maillard.Policy.registry))
    (tmp_path / "neighbour_of_mine.py").write_text(CUSTOM_POLICY, encoding="utf8")
    (tmp_path / "mine.py").write_text("import neighbour_of_mine", encoding="utf8")
    assert "cautious" in run("--load", str(tmp_path / "mine.py"), "policies")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("raise SystemExit(0)", "SystemExit"),
        ("1/0", "ZeroDivisionError"),
        ("def", "SyntaxError"),
        (None, "does not exist"),
    ],
)
def test_the_error_names_a_file_that_cannot_be_loaded(tmp_path, content, message) -> None:
    path = tmp_path / "broken.py"
    if content is not None:
        path.write_text(content, encoding="utf8")
    output = run("--load", str(path), "policies", code=2)
    assert "broken.py" in output
    assert message in output
    assert "Traceback" not in output


def test_every_command_has_help() -> None:
    for name, command in main.commands.items():
        assert command.help, name
        assert name in run("--help")


def test_the_version_of_the_installed_command() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "maillard", "--version"], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == f"maillard, version {maillard.__version__}"
