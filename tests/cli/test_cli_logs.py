"""The commands for logs: their output and exit status."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from maillard import Bandit, Reward, read_log
from maillard.cli import main
from maillard.decisions import export_changes


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


def test_a_correct_log_is_consistent(log) -> None:
    status, output = run("verify", log)
    assert status == 0
    assert "200 recomputed" in output
    assert output.endswith("\nconsistent\n")
    assert all(arm in output for arm in ("red", "blue", "sum of weights 1/p"))


def test_a_broken_log_exits_with_status_1(log) -> None:
    connection = sqlite3.connect(log)
    connection.execute("UPDATE decisions SET log_probability = -0.1")
    connection.commit()
    connection.close()
    status, output = run("verify", log)
    assert status == 1
    assert output.endswith("\nbroken\n")
    assert "... and 181 more" in output  # 200 decisions, and a commit of the hash chain


def test_a_short_log_has_no_verdict(log, tmp_path) -> None:
    short = str(tmp_path / "short.db")
    Bandit(["red", "blue"], "uniform", log=short).choose()
    status, output = run("verify", short)
    assert status == 0
    assert output.endswith("\nnot enough data\n")


def test_a_table_with_only_the_probabilities_of_chosen_arms_cannot_be_audited(tmp_path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text("item,reward,propensity\n" + "red,1,0.5\nblue,0,0.5\n" * 50, encoding="utf8")
    columns = "arm=item,probability=propensity"
    status, output = run("verify", str(path), "--columns", columns)
    assert status == 0
    assert "100 not audited: only the probability of the chosen arm is known" in output
    assert output.endswith("\ncannot be audited\n")
    assert "expected" not in output  # no table of scores
    found = json.loads(run("verify", str(path), "--columns", columns, "--format", "json")[1])
    assert found["verdict"] == "cannot be audited"


def test_a_table_that_cannot_be_read_is_broken(tmp_path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text("arm,p,time\nred,0.5,2026-01-02\nred,0.5,2026-01-01\n", encoding="utf8")
    status, output = run("verify", str(path), "--columns", "probability=p")
    assert status == 1
    assert "sort the rows by time" in output
    assert output.startswith(f"{path}: 0 decisions\n")
    assert output.endswith("\nbroken\n")
    assert "limit" not in output


def test_verify_as_json(log) -> None:
    status, output = run("verify", log, "--format", "json")
    found = json.loads(output)
    assert status == 0
    assert found["verdict"] == "consistent"
    assert found["recomputed"] == found["decisions"] == 200
    assert [score["name"] for score in found["scores"]] == ["red", "blue", "weights"]


@pytest.mark.parametrize("name", ["decisions.parquet", "decisions.csv"])
def test_export_and_import_preserve_the_log(log, name, tmp_path) -> None:
    file, back = str(tmp_path / name), str(tmp_path / "back.db")
    assert run("export", log, file)[1] == f"{file}: 200 decisions of 'home'\n"
    assert run("verify", file)[1].endswith("\nconsistent\n")
    assert run("import", file, back)[1] == f"{back}: 200 decisions of 'home'\n"
    assert run("verify", back)[1].endswith("\nconsistent\n")


def test_the_experiment_must_be_named_if_there_are_several(log) -> None:
    Bandit(["x"], "uniform", log=log, experiment="other").close()
    status, output = run("verify", log)
    assert status == 2
    assert "'home', 'other'" in output
    assert run("verify", log, "--experiment", "home")[0] == 0
    status, output = run("verify", log, "--experiment", "hom")
    assert status == 2
    assert "Did you mean 'home'?" in output


def test_a_missing_log_is_not_created(tmp_path) -> None:
    status, output = run("verify", str(tmp_path / "nothing.db"))
    assert status == 2
    assert "a file that exists" in output
    assert not (tmp_path / "nothing.db").exists()


@pytest.mark.parametrize("name", ["[/foo]", "[bold red]x", "\x1b[2Jx\ny", "]["])
def test_names_are_escaped_when_printed(name, tmp_path) -> None:
    path = str(tmp_path / "log.db")
    with Bandit([name, "other"], "uniform", log=path, experiment=name) as bandit:
        bandit.choose(size=200)
    status, output = run("verify", path)
    assert status == 0
    assert name.encode("unicode_escape").decode() in output
    assert "\x1b" not in output
    connection = sqlite3.connect(path)
    connection.execute("UPDATE decisions SET log_probability = -0.1")
    connection.commit()
    connection.close()
    assert run("verify", path)[0] == 1
    assert repr(name)[1:-1] in run("export", path, str(tmp_path / "log.csv"))[1]


def test_repeated_sticky_assignments_are_not_audited(tmp_path) -> None:
    path = str(tmp_path / "log.db")
    with Bandit(["red", "blue"], "uniform", log=path, sticky=True) as bandit:
        for _ in range(3):
            bandit.choose(unit="user")
    assert "2 not audited: they repeat a sticky assignment" in run("verify", path)[1]
    assert json.loads(run("verify", path, "--format", "json")[1])["not_audited"] == 2


def test_a_log_that_cannot_be_read_is_broken(log) -> None:
    connection = sqlite3.connect(log)
    connection.execute("UPDATE events SET payload = '{' WHERE number = 1")
    connection.commit()
    connection.close()
    status, output = run("verify", log)
    assert status == 1
    assert "the log: the log cannot be read: events, row 1: payload: expected JSON" in output
    assert "got '{'" in output
    assert json.loads(run("verify", log, "--format", "json")[1])["verdict"] == "broken"
    assert run("export", log, log + ".csv")[0] == 2


def test_an_export_does_not_overwrite_the_log(log) -> None:
    status, output = run("export", log, log, "--format", "parquet")
    assert status == 2
    assert "a file other than the log" in output
    assert run("verify", log)[0] == 0


def test_formats_that_require_rewards_omit_decisions_without_one(log, tmp_path) -> None:
    Bandit(log=log, experiment="home").choose(size=3)
    status, output = run("export", log, str(tmp_path / "home.npz"))
    assert (status, output.split(": ")[1]) == (0, "200 decisions of 'home'; 3 without a reward left out\n")
    status, output = run("verify", str(tmp_path / "home.npz"))
    assert "200 not recomputed" in output
    assert "largest difference" not in output
    assert output.endswith(
        "\nconsistent (only the choices were audited: no probability could be recomputed)\n"
    )


def test_verify_leaves_no_files_behind(log, tmp_path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    run("verify", log)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_repeated_sticky_assignments_are_not_audited_in_any_format(tmp_path) -> None:
    path = tmp_path / "sticky.db"
    with Bandit(["red", "blue"], "uniform", reward=Reward(low=0, high=1), log=path, sticky=True) as bandit:
        for n in range(600):
            bandit.reward(bandit.choose(unit=f"unit {n % 60}").id, 1.0)
    for name in ("x.npz", "x.dsjson", "x.csv", "x.parquet"):
        run("export", str(path), str(tmp_path / name))
        found = json.loads(run("verify", str(tmp_path / name), "--format", "json")[1])
        assert (found["not_audited"], found["problem_count"]) == (540, 0), name


def test_an_export_contains_the_default_reward_of_closed_windows(tmp_path) -> None:
    path = tmp_path / "log.db"
    rule = Reward(low=0, high=1, window=1e-6, default=0.25)
    with Bandit(["red"], "uniform", reward=rule, log=path) as bandit:
        bandit.choose(size=5)
    assert "5 decisions" in run("export", str(path), str(tmp_path / "x.npz"))[1]
    log = read_log(tmp_path / "x.npz")
    assert [log.reward_of(row) for row in log.rows()] == [0.25] * 5


def test_erasing_a_unit_from_all_experiments(tmp_path) -> None:
    path = tmp_path / "log.db"
    for name in ("home", "cart"):
        with Bandit(["red", "blue"], "uniform", reward=Reward(), log=path, experiment=name) as bandit:
            bandit.choose(unit="erica")
            bandit.choose(unit="fred")
    code, output = run("erase-unit", str(path), "erica", "--experiment", "cart")
    assert (code, "1 decisions of 'cart' changed" in output) == (0, True)
    code, output = run("erase-unit", str(path), "erica")
    assert "0 decisions of 'cart' changed" in output
    assert "1 decisions of 'home' changed" in output
    assert b"erica" not in path.read_bytes()
    with read_log(path, "home") as left:
        units = {row.decision.unit for row in left.rows()}
    assert "fred" in units
    assert len(units) == 2
    assert run("erase-unit", str(tmp_path / "none.db"), "erica")[0] == 2


# Parts of a log, and folders.


def test_an_export_of_a_range_of_states_and_times(log, tmp_path) -> None:
    file = str(tmp_path / "part.parquet")
    with Bandit(log=log, experiment="home") as bandit:
        for decision in bandit.choose(size=20):
            bandit.reward(decision.id, 1.0)
    status, output = run("export", log, file, "--from-state", "201", "--to-state", "300")
    assert (status, output) == (0, f"{file}: 20 decisions of 'home'\n")
    part = read_log(file)
    assert {row.decision.state for row in part.rows()} == {201}
    assert (part.selection.from_state, part.selection.to_state) == (201, 300)
    part.check_rows()  # it is a selection, not a loss
    time = max(row.decision.time for row in read_log(log, to_state=200).rows())
    later = datetime.fromtimestamp((time + 1) / 1e6, UTC).isoformat()
    assert "20 decisions" in run("export", log, file, "--since", later)[1]
    assert "200 decisions" in run("export", log, file, "--until", later)[1]
    message = "to_state: expected a state not before from_state, 9, got 8"
    assert message in run("export", log, file, "--from-state", "9", "--to-state", "8")[1]


def test_an_incremental_export_and_its_evaluation_with_the_tail(log, tmp_path) -> None:
    folder = tmp_path / "exported"
    status, output = run("export", log, str(folder), "--since-last")
    expected = f"{folder / 'home'}: 200 new or changed decisions of 'home' in 1 file, up to commit "
    assert (status, output.startswith(expected)) == (0, True)
    with Bandit(log=log, experiment="home") as bandit:
        bandit.reward(bandit.choose().id, 1.0)

    def estimates(*arguments: str) -> object:
        status, output = run("evaluate", *arguments, "--target", "arm:red", "--finished", "--json")
        assert status == 0
        return json.loads(output)["reports"][0]["estimates"]

    assert estimates(str(folder), "--tail", log) == estimates(log) != estimates(str(folder))
    assert run("compare", str(folder), "arm:red", "arm:blue", "--tail", log)[0] in (0, 3)
    assert "1 new or changed decisions" in run("export", log, str(folder), "--since-last")[1]
    assert estimates(str(folder)) == estimates(log)
    assert run("verify", str(folder))[0] == 0
    assert run("import", str(folder), str(tmp_path / "copy.db"))[0] == 0
    assert list(read_log(tmp_path / "copy.db").rows()) == list(read_log(log).rows())


@pytest.mark.parametrize("option", [["--format", "csv"], ["--from-state", "3"], ["--until", "2026-01-01"]])
def test_an_incremental_export_is_of_the_whole_log(option, log, tmp_path) -> None:
    status, output = run("export", log, str(tmp_path / "exported"), "--since-last", *option)
    assert status == 2
    assert f"{option[0]}: expected no such option together with --since-last" in output


def test_a_tail_needs_a_folder(log) -> None:
    status, output = run("evaluate", log, "--tail", log, "--target", "arm:red")
    assert status == 2
    assert "expected one LOG that is a folder, as `maillard export --since-last` writes it" in output


def test_a_folder_is_no_file(log, tmp_path) -> None:
    assert "expected a name that ends in .parquet" in run("export", log, str(tmp_path))[1]


@pytest.fixture
def old_log(tmp_path) -> str:
    """A log with decisions of 2020 and of 2021, and its export."""
    path, now = str(tmp_path / "old.db"), datetime(2020, 3, 1, tzinfo=UTC)
    bandit = Bandit(
        ["red", "blue"], "uniform", reward=Reward(low=0, high=1), log=path, experiment="home",
        clock=lambda: now,
    )  # fmt: skip
    for year, size in ((2020, 300), (2021, 200)):
        now = now.replace(year=year)
        for decision in bandit.choose(size=size):
            bandit.reward(decision.id, float(decision.arm == "red"))
    bandit.close()
    export_changes(path, tmp_path / "exports", "home")
    return path


def test_prune_and_verify(old_log, tmp_path) -> None:
    options = ("--before", "2021-01-01", "--exported", str(tmp_path / "exports"))
    status, output = run("prune", old_log, *options, "--dry-run")
    assert status == 0
    assert "300 decisions would be removed, up to commit" in output
    assert "500 recomputed" in run("verify", old_log)[1]
    status, output = run("prune", old_log, *options)
    assert status == 0
    assert "300 decisions removed, up to commit" in output
    anchor = output.split()[-1]
    status, output = run("verify", old_log, "--anchor", anchor)
    assert status == 0
    assert "200 recomputed" in output
    assert "300 decisions up to commit" in output
    assert f"were pruned; the hash of this commit is {anchor}" in output
    found = json.loads(run("verify", old_log, "--format", "json")[1])
    assert found["chain"]["pruned"]["decisions"] == 300
    assert "no decisions before this time can be removed" in run("prune", old_log, *options)[1]
    found = json.loads(run("prune", old_log, *options, "--format", "json")[1])
    assert (found["decisions"], found["hash"]) == (0, anchor)


def test_prune_refuses_recent_times_and_folders_without_an_export(old_log, tmp_path) -> None:
    tomorrow = datetime.now(UTC).date().isoformat()
    status, output = run("prune", old_log, "--before", tomorrow, "--exported", str(tmp_path / "exports"))
    assert status == 2
    assert "a time at least one day ago" in output
    status, output = run("prune", old_log, "--before", "2021-01-01", "--exported", str(tmp_path))
    assert status == 2
    assert "a folder that experiment 'home' was exported to" in output
    assert run("prune", old_log, "--before", "2021-01-01")[0] == 2
    assert run("prune", old_log, "--exported", str(tmp_path))[0] == 2


def test_verify_with_a_checkpoint(log, tmp_path) -> None:
    path = str(tmp_path / "verified.json")
    assert "verified before" not in run("verify", log, "--checkpoint", path)[1]
    with Bandit(log=log, experiment="home") as bandit:
        bandit.choose(size=10)
    status, output = run("verify", log, "--checkpoint", path)
    assert status == 0
    assert "210 recomputed" in output
    assert "200 of them were verified before, according to the checkpoint" in output
    found = json.loads(run("verify", log, "--checkpoint", path, "--format", "json")[1])
    assert found["verified_before"] == 210
