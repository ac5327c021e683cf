"""The commands that evaluate logs: their output and exit status."""

from __future__ import annotations

import json
import shlex
import shutil
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from maillard import Bandit, Features, Reward, read_log
from maillard.cli import main
from maillard.decisions import write_log
from maillard.evaluation import compare, evaluate, evaluate_each
from maillard.evaluation.estimate_formatting import decimals_of
from maillard.evaluation.replays import replay
from tests.evaluation.context_tables import device_log

MEANS = {"red": 0.3, "blue": 0.6}
TARGETS = ["arm:blue", "uniform", "dist:red=0.7,blue=0.3"]


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.output


def targets(*names: str) -> list[str]:
    return [part for name in names or TARGETS for part in ("--target", name)]


def fill(bandit: Bandit, batches: int = 5, size: int = 200, **options) -> None:
    rng = np.random.default_rng(7)
    for _ in range(batches):
        made = bandit.choose(size=size, **options)
        rows = [
            {"decision": each.id, "value": float(rng.random() < MEANS.get(each.arm, 0.5))} for each in made
        ]
        bandit.rewards(rows)


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> dict[str, Path]:
    """One log in four formats."""
    folder = tmp_path_factory.mktemp("logs")
    found = {
        "sqlite": folder / "decisions.db",
        "parquet": folder / "decisions.parquet",
        "csv": folder / "decisions.csv",
    }
    reward = Reward(low=0, high=1)
    with Bandit(
        list(MEANS), "ms+:floor=0.2", reward=reward, log=found["sqlite"], experiment="home"
    ) as bandit:
        fill(bandit)
        bandit.reset()
        fill(bandit, 2, unit="anna")
    for format_ in ("parquet", "csv"):
        with read_log(found["sqlite"]) as log:
            write_log(log, found[format_])
    parts = folder / "parts"
    parts.mkdir()
    shutil.copy(found["parquet"], parts / "one.parquet")
    return found | {"folder": parts}


@pytest.mark.parametrize("format_", ["sqlite", "parquet", "csv", "folder"])
def test_json_equals_the_reports_of_evaluate(logs, format_) -> None:
    printed = json.loads(run("evaluate", logs[format_], *targets(), "--json"), parse_constant=pytest.fail)
    expected = [each.to_dict() for each in evaluate_each(str(logs[format_]), TARGETS)]
    assert printed == {"reports": json.loads(json.dumps(expected))}
    assert [each["target"] for each in printed["reports"]] == ["arm:blue", "uniform", "dist:red=0.7,blue=0.3"]
    # All formats give the same estimates, apart from rounding in the order of sums.
    first = evaluate_each(str(logs["sqlite"]), TARGETS)
    for one, other in zip(first, printed["reports"], strict=True):
        for name, each in one.items():
            assert other["estimates"][name]["value"] == pytest.approx(each.value, abs=1e-12)


def test_wrong_probabilities_of_chosen_arms_leave_no_recommended_estimate(tmp_path) -> None:
    path, rng = tmp_path / "theirs.csv", np.random.default_rng(1)
    p = rng.choice([0.4, 0.6], 2000)  # of red; the table has half of it
    red = rng.random(2000) < p
    rows = [
        f"{'red' if each else 'blue'},{chance / 2 if each else (1 - chance) / 2},{place % 2}\n"
        for place, (each, chance) in enumerate(zip(red, p, strict=True))
    ]
    path.write_text("arm,propensity,reward\n" + "".join(rows), encoding="utf8")
    options = ["--target", "uniform", "--columns", "probability=propensity", "--estimator", "snips"]
    output = run("evaluate", path, *options)
    assert "*" not in output
    assert "no estimate can be recommended" in output
    said = " ".join(output.split())
    assert said.index("instead of 1 (") < said.index(" standard errors away)") < said.index("adaptive")


def test_the_table_has_every_estimate(logs) -> None:
    output = run("evaluate", logs["sqlite"], *targets("arm:blue", "uniform"), "--all-epochs")
    for report in evaluate_each(str(logs["sqlite"]), ["arm:blue", "uniform"], epoch="all"):
        assert f"{report.target} on {logs['sqlite']}, experiment 'home'" in output
        assert f"1,400 rows, effective size {report.diagnostics.effective_sample_size:,.1f}" in output
        digits = decimals_of(report.values())
        for name, each in report.items():
            line = next(
                line
                for line in output.splitlines()
                if f" {name} " in line and f"{each.value:.{digits}f}" in line
            )
            assert f"{each.lower:.{digits}f} to {each.upper:.{digits}f}" in line
            assert line.rstrip().endswith(each.interval)
    assert "Assumptions of the intervals" in output
    assert output.count("many rows, and a floor under the probabilities") == 1


def test_decisions_are_selected_by_epoch_unit_and_time(logs) -> None:
    def rows(*options: object) -> int:
        output = run(
            "evaluate", logs["sqlite"], *targets("uniform"), "--estimator", "ips", "--json", *options
        )
        found: int = json.loads(output)["reports"][0]["diagnostics"]["rows"]
        return found

    assert rows() == rows("--epoch", 2) == 400
    assert rows("--all-epochs") == 1400
    assert rows("--all-epochs", "--unit", "anna") == 400
    assert rows("--epoch", 1, "--epoch", 2) == 1400
    today = datetime.now(UTC)
    assert (
        rows(
            "--since",
            (today - timedelta(days=1)).isoformat(),
            "--until",
            f"{today:%Y}-12-31T23:59:59+00:00",
            "--all-epochs",
        )
        == 1400
    )
    assert "at least one decision" in run(
        "evaluate",
        logs["sqlite"],
        *targets("uniform"),
        "--since",
        f"{today + timedelta(days=1):%Y-%m-%d}",
        code=2,
    )


def test_options_are_passed_to_evaluate(logs) -> None:
    chosen = [
        "--estimator",
        "clipped-ips:2",
        "--estimator",
        "dr",
        "--confidence",
        0.8,
        "--reward-model",
        "red=0.3,blue=0.6",
    ]
    printed = json.loads(
        run("evaluate", logs["parquet"], *targets("arm:red"), *chosen, "--floor", 0.05, "--json")
    )
    model = {"red": 0.3, "blue": 0.6}
    expected = evaluate_each(
        logs["parquet"], ["arm:red"], ["clipped-ips:2", "dr"], 0.8, reward_model=model, floor=0.05
    )[0]
    assert printed["reports"] == [json.loads(json.dumps(expected.to_dict()))]
    assert expected["dr"].value is not None
    assert "it has no interval by unit" in run(
        "evaluate",
        logs["sqlite"],
        *targets("arm:red"),
        "--estimator",
        "mrdr",
        "--cluster",
        "unit",
        "--not-adaptive",
        code=3,
    )


def test_a_stated_mean_square(logs) -> None:
    def estimators(*more: object) -> dict[str, object]:
        output = json.loads(run("evaluate", logs["parquet"], *targets("arm:red"), "--json", *more))
        found: dict[str, object] = output["reports"][0]["estimates"]
        return found

    assert "cs-catoni" in estimators("--second-moment", 1)
    assert "cs-catoni" not in estimators()
    wrong = ("--second-moment", 0)
    assert "second_moment" in run("evaluate", logs["parquet"], *targets("arm:red"), *wrong, code=2)


def test_a_csv_file_of_another_system(tmp_path) -> None:
    path = tmp_path / "clicks.csv"
    rng = np.random.default_rng(1)
    rows = [f"{item},{int(rng.random() < 0.5)},0.5" for item in rng.choice(["a", "b"], 400)]
    path.write_text("\n".join(["item_id,click,p", *rows]) + "\n")
    columns = "arm=item_id,reward=click,probability=p"
    output = run("evaluate", path, *targets("arm:a"), "--columns", columns, "--reward-range", "0..1")
    assert "cs-betting" in output
    assert "item_id" in run(
        "evaluate", path, *targets("arm:a"), "--columns", columns.replace("item_id", "item"), code=2
    )
    assert "arm" in run("evaluate", path, *targets("arm:a"), code=2)


def test_refusals_are_explained_and_exit_with_status_3(logs) -> None:
    output = run("evaluate", logs["sqlite"], *targets("arm:red"), "--min-effective-size", 1e6)
    assert "refused" in output
    assert "cs-betting" in output
    arguments = [
        *targets("arm:red", "uniform"),
        "--estimator",
        "ips",
        "--estimator",
        "snips",
        "--min-effective-size",
        1200,
    ]
    output = run("evaluate", logs["sqlite"], *arguments, code=3)
    assert output.count("refused  ips, snips: the effective sample size is") >= 1
    printed = json.loads(run("evaluate", logs["sqlite"], *arguments, "--json", code=3))
    assert printed["reports"][0]["estimates"]["ips"]["value"] is None
    assert "effective sample size" in printed["reports"][0]["refusals"]["ips"]


def test_caveats_are_printed(tmp_path) -> None:
    path = tmp_path / "free.db"
    with Bandit(list(MEANS), "ms+", reward=Reward(low=0, high=1), log=path) as bandit:
        fill(bandit, 3)
    output = " ".join(run("evaluate", path, *targets("arm:blue"), "--estimator", "ips").split())
    assert "but ips: the probabilities changed, so the log is assumed to be adaptive" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "arm:bleu"], "Did you mean 'blue'?"),
        (["--target", "ms+:sigma2=0.25"], "maillard replay LOG --policy"),
        (["--target", "dist:red=0.7"], "sum to 1"),
        (["--target", "uniform", "--reward-range", "1..0"], "the lower first"),
        (["--target", "uniform", "--reward-range", "0-1"], "LOW..HIGH"),
        (["--target", "uniform", "--reward-range", "0..0.5"], "row"),
        (["--target", "uniform", "--confidence", "95"], "between 0 and 1"),
        (["--target", "uniform", "--estimator", "snip"], "Did you mean 'snips'?"),
        (["--target", "uniform", "--floor", "0.9"], "floor"),
        (["--target", "uniform", "--since", "yesterday"], "--since"),
        (["--target", "uniform", "--columns", "arm"], "--columns"),
        (["--target", "uniform", "--columns", "arm=x"], "columns"),
        (["--target", "uniform", "--reward-model", "red=a,blue=1"], "--reward-model"),
        (["--target", "uniform", "--reward-model", "red=1"], "reward_model"),
        (["--target", "uniform", "--experiment", "away"], "Known: home"),
        (["--target", "uniform", "--page", "log.db"], ".html"),
        (["--target", "uniform", "--page", "nowhere/page.html"], "folder that exists"),
    ],
)  # fmt: skip
def test_an_invalid_query_prints_one_line(logs, arguments, message) -> None:
    output = run("evaluate", logs["sqlite"], *arguments, code=2)
    assert output.startswith("maillard: ")
    assert output.count("\n") == 1
    assert message in output


def test_an_unusable_log_prints_one_line(logs, tmp_path) -> None:
    empty = tmp_path / "empty.db"
    Bandit(list(MEANS), "uniform", log=empty).close()
    (tmp_path / "no.csv").write_text("arm,reward\nred,1\n")
    (tmp_path / "none").mkdir()
    for log, message in [
        (empty, "at least one decision"),
        (tmp_path / "no.csv", "probability"),
        (tmp_path / "none", "folder with .parquet files"),
        (tmp_path / "missing.db", "exists"),
    ]:
        output = run("evaluate", log, *targets("uniform"), code=2)
        assert output.count("\n") == 1
        assert message in output
    missing = run("evaluate", logs["sqlite"], code=2)
    assert "Missing option '--target'" in missing
    assert "--target uniform" in missing
    assert "Missing argument" in run("compare", logs["sqlite"], "arm:blue", code=2)


def test_compare(logs) -> None:
    expected = compare(str(logs["sqlite"]), "arm:blue", "arm:red")
    printed = json.loads(
        run("compare", logs["sqlite"], "arm:blue", "arm:red", "--json"), parse_constant=pytest.fail
    )
    assert printed == json.loads(json.dumps(expected.to_dict()))
    output = run("compare", logs["sqlite"], "arm:blue", "arm:red")
    assert "arm:blue minus arm:red on" in output
    digits = decimals_of(expected.values())
    assert f"{expected['snips'].lower:.{digits}f} to {expected['snips'].upper:.{digits}f}" in output
    assert "refused" in run(
        "compare", logs["sqlite"], "arm:blue", "arm:red", "--estimator", "w-decorrelation", code=3
    )
    assert "a target that differs" in run("compare", logs["sqlite"], "uniform", "uniform", code=2)


def test_a_page_is_written(logs, tmp_path) -> None:
    for arguments in (
        ["evaluate", logs["parquet"], *targets("arm:blue")],
        ["compare", logs["parquet"], "arm:blue", "uniform"],
    ):
        path = tmp_path / "report.html"
        assert f"wrote {path}" in run(*arguments, "--page", path)
        page = path.read_text(encoding="utf8")
        assert "Assumptions of the intervals" in page
        assert page.count("<svg role=") >= 2
        path.unlink()


def test_replay(logs, tmp_path) -> None:
    picture = tmp_path / "curves.svg"
    arguments = ["replay", logs["sqlite"], "--policy", "ms+:booster=16", "--policy", "kl-ms", "--replays", 10]
    printed = json.loads(run(*arguments, "--json"), parse_constant=pytest.fail)["replays"]
    expected = replay(str(logs["sqlite"]), "kl-ms", replays=10)
    assert printed[1]["mean"] == expected.to_dict()["mean"]
    assert [each["policy"] for each in printed] == ["ms+:booster=16,sigma2=0.25", "kl-ms"]
    output = run(*arguments, "--figure", picture)
    assert f"{expected.mean[-1]:.4f}" in output
    assert "as logged" in output
    assert "Assumptions of the curves" in output
    assert ET.parse(picture).getroot().tag.endswith("svg")
    # The queue method; two logs are two experiments.
    twice = [logs["sqlite"], logs["parquet"]]
    queues = json.loads(
        run("replay", *twice, "--policy", "ms", "--method", "queues", "--replays", 3, "--json")
    )["replays"]
    assert (queues[0]["logs"], queues[0]["method"]) == (2, "queues")
    assert "sigma2" in run(
        "replay", logs["csv"], "--policy", "ms+", "--horizon", 5, "--replays", 2, "--epoch", 1
    )
    assert run("replay", logs["sqlite"], "--policy", "ms+", "--figure", "x.txt", code=2).count("\n") == 1
    assert "Did you mean" in run("replay", logs["sqlite"], "--policy", "kl-m", code=2)


def test_replay_closes_its_logs_if_one_cannot_be_opened(logs, tmp_path, monkeypatch) -> None:
    opened, closed = [], []

    def read(*arguments, **options):
        log = read_log(*arguments, **options)
        close = log.close

        def record() -> None:
            closed.append(log)
            close()

        monkeypatch.setattr(log, "close", record)
        opened.append(log)
        return log

    monkeypatch.setattr("maillard.decisions.read_log", read)
    run("replay", logs["parquet"], tmp_path / "missing.parquet", "--policy", "ms", code=2)
    assert closed == opened
    assert len(opened) == 1


def test_plan(tmp_path) -> None:
    picture = tmp_path / "frontier.png"
    arguments = [
        "plan",
        "bernoulli:0.5,0.3",
        "--horizon",
        300,
        "--runs",
        10,
        "--floor",
        0.1,
        "--floor",
        0.4,
        "--booster",
        4,
    ]
    printed = json.loads(
        run(*arguments, "--json", "--figure", picture).partition("wrote")[0], parse_constant=pytest.fail
    )
    assert [each["floor"] for each in printed["rows"]] == [0.1, 0.4]
    assert picture.stat().st_size > 1000
    output = run(*arguments, "--width", 10)
    assert "least regret with a half-width of at most 10: ms+:floor=" in output
    output = run(*arguments, "--width", 1e-6, code=2)
    assert "half-width" in output
    assert "maillard: width: expected at least" in output
    assert run("plan", "bernoulli:0.5", "--horizon", 300, code=2).count("\n") == 1


def test_names_are_escaped_when_printed(tmp_path) -> None:
    path = tmp_path / "odd.db"
    with Bandit(
        ["[red]", "\x1b[31m"], "uniform", reward=Reward(low=0, high=1), log=path, experiment="[b]x\x07"
    ) as bandit:
        fill(bandit, 1)
    output = run("evaluate", path, *targets("arm:'[red]'"))
    assert "arm:'[red]'" in output
    assert "'[b]x\\x07'" in output
    assert "\x1b" not in output


def test_rules_and_segments_on_the_command_line(tmp_path) -> None:
    path, rule = tmp_path / "decisions.parquet", "rule:device=phone->blue,else->red"
    frame = device_log(1500)
    frame.to_parquet(path)
    more = ["--reward-range", "0..1", "--not-adaptive", "--by", "device"]
    printed = json.loads(run("evaluate", path, *targets(rule), *more, "--json"))["reports"][0]
    options = {"reward_range": (0, 1), "adaptive": False}
    assert printed == json.loads(json.dumps(evaluate(path, rule, by="device", **options).to_dict()))
    assert printed["segments"][0]["segment"] == {"device": "phone"}
    output = " ".join(run("evaluate", path, *targets(rule), *more).split())
    for device in ("phone", "desktop", "tablet", "(whole log)"):
        assert f" {device} " in output
    assert "3 segments. Their intervals are valid together with 95%" in output
    assert "valid by itself with 95%" in run("evaluate", path, *targets(rule), *more, "--comparisons", 1)
    found = json.loads(run("compare", path, rule, "arm:red", *more, "--json"))
    assert found == json.loads(json.dumps(compare(path, rule, "arm:red", by="device", **options).to_dict()))
    assert "minus arm:red by device" in run("compare", path, rule, "arm:red", *more)
    assert "--json" in run("evaluate", path, *targets(rule), *more, "--page", tmp_path / "a.html", code=2)


def test_segments_say_which_decisions_are_left_out_and_why_the_level_is_higher(tmp_path) -> None:
    path = tmp_path / "shop.db"
    with Bandit(
        ["red", "blue", "green"], "uniform", reward=Reward(low=0, high=1), log=path, seed=1
    ) as bandit:
        for row in range(300):
            decision = bandit.choose(context={"device": "phone" if row % 2 else "desktop"})
            bandit.reward(decision, row % 3 == 0)
    output = " ".join(run("evaluate", path, *targets("frozen:201"), "--by", "device").split())
    assert "left out desktop: 100 before state 201" in output
    assert "left out (whole log): 199 before state 201" in output
    by_device = ["compare", path, "arm:red", "arm:blue", "--by", "device"]
    output = " ".join(run(*by_device).split())
    assert "Each has 99.17%" in output
    assert "6 intervals in all; if you chose this one in advance, pass comparisons=2 (--comp" in output
    assert "Each has" not in run(*by_device, "--comparisons", 2)


def test_a_segment_without_the_arm_has_its_own_status(tmp_path) -> None:
    path, frame = tmp_path / "decisions.parquet", device_log(1500)
    frame.loc[frame.device == "tablet", ["arm", "probability"]] = "red", 1.0
    frame.to_parquet(path)
    arguments = [*targets("arm:blue"), "--reward-range", "0..1", "--not-adaptive", "--by", "device"]
    output = " ".join(run("evaluate", path, *arguments, code=3).split())
    assert "refused tablet: in the segment 'tablet', the log never shows 'blue'" in output


def test_a_rule_is_learned_on_the_command_line(tmp_path) -> None:
    path = tmp_path / "decisions.csv"
    device_log(4000, seed=4).to_csv(path, index=False)
    more = ["--key", "device", "--key", "age", "--reward-range", "0..1", "--not-adaptive"]
    found = json.loads(run("learn-rule", path, *more, "--json"))
    assert found["rule"].startswith("rule:device=phone&age<")
    assert found["report"]["target"] == found["rule"]
    output = run("learn-rule", path, *more)
    assert found["rule"] in output
    assert "minus arm:red" in output
    assert run("learn-rule", path, *more, "--depth", 0).startswith("rule:else->red")
    linear = json.loads(run("learn-rule", path, *more, "--kind", "linear", "--json"))
    output = run("learn-rule", path, *more, "--kind", "linear")
    assert output.startswith("the arm with the largest score:")
    printed = next(line for line in output.splitlines() if line.startswith("--target "))
    _, spec = shlex.split(printed)
    assert spec == linear["rule"]
    report = json.loads(run("evaluate", path, "--target", spec, *more[4:], "--json"))["reports"][0]
    assert report["estimates"]["snips"]["value"] is not None


def test_actions_on_the_command_line(tmp_path) -> None:
    path = tmp_path / "news.db"
    features: dict[str, Any] = {"features": Features({"price": (0, 9)}), "model": "shared"}
    with Bandit([], "lin-ms:floor=0.5", **features, reward=Reward(low=0, high=1), log=path, seed=1) as bandit:
        for number in range(60):
            actions = {f"article-{(number + each) % 5}": {"price": each} for each in range(1 + number % 4)}
            bandit.reward(bandit.choose(actions=actions), float(number % 2))
    more = ["--finished", "--min-effective-size", 1, "--json"]
    found = json.loads(run("evaluate", path, *targets("uniform"), *targets("rank:1"), *more))["reports"]
    for report, target in zip(found, ("uniform", "rank:1"), strict=True):
        expected = evaluate(path, target, active=False, comparisons=2, confidence=0.95, min_effective_size=1)
        assert report["estimates"] == json.loads(json.dumps(expected.to_dict()))["estimates"]
    difference = json.loads(run("compare", path, "frozen:30", "rank:1", *more))
    assert difference["estimates"]["snips"]["value"] is not None
    assert "rank:1 on" in run("evaluate", path, *targets("rank:1"), *more[:3])
    run("evaluate", path, *targets("rank:1"), *more[:3], "--page", tmp_path / "page.html")
    assert "rank:1" in (tmp_path / "page.html").read_text()
