"""Evaluation, verification and export: the jobs of the service, called directly."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maillard import (
    Bandit,
    Features,
    InvalidValue,
    MaillardError,
    Reward,
    Unavailable,
    UnknownName,
    evaluate,
    read_log,
    replay,
)
from maillard.errors import CannotAnswer
from maillard.service.jobs import check, export, what_if
from maillard.service.worker_process import WorkerProcess
from tests.service.filled_logs import MEANS, UNIT_RANGE, fill

SECRET = "Sesame-17"
TARGETS = ["arm:green", "uniform", "dist:red=0.75,blue=0.25"]


@pytest.fixture(scope="module")
def with_floor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log of a policy with a floor."""
    return fill(tmp_path_factory.mktemp("logs") / "with_floor.db", "ms+:floor=0.5")


@pytest.fixture(scope="module")
def without_floor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log of a policy without a floor, with two arms whose means differ much."""
    path = tmp_path_factory.mktemp("logs") / "without_floor.db"
    return fill(path, "ms+", means={"bad": 0.05, "good": 0.95})


def run_what_if(database: str, target: Any, *more: Any, experiment: str = "home") -> dict[str, Any]:
    """The result of `what_if`, which must be valid JSON and must not contain the path of the log."""
    evaluation = what_if(database, experiment, target, *more)
    assert database not in json.dumps(evaluation, allow_nan=False)
    assert evaluation["has_estimate"] == (evaluation["refusal"] is None)
    return evaluation


# What-if evaluations.


def test_actions_that_differ_at_every_decision(tmp_path: Path) -> None:
    path = tmp_path / "news.db"
    features: dict[str, Any] = {"features": Features({"price": (0, 9)}), "model": "shared", "seed": 1}
    reward = Reward(low=0, high=1)
    with Bandit([], "lin-ms:floor=0.5", **features, reward=reward, log=path, experiment="home") as bandit:
        for number in range(60):
            actions = {f"article-{(number + each) % 5}": {"price": each} for each in range(2 + number % 3)}
            bandit.reward(bandit.choose(actions=actions), float(number % 2))
    targets = ("uniform", "logged", "rank:1", "arm:article-1", "rule:else->uniform", "frozen:30")
    for target in targets:
        found = run_what_if(str(path), target, ["cs-dr"], 0.9)
        expected = evaluate(path, target, ["cs-dr"], 0.9)["cs-dr"]
        assert (found["value"], found["lower"]) == (expected.value, expected.lower)
    assert run_what_if(str(path), "rank:1", ["cs-dr"], 0.9, "uniform")["kind"] == "comparison"
    for wrong in ("dist:article-1=1", "ms+", "rank:", "rank:9", 3):
        with pytest.raises(InvalidValue, match="target"):
            run_what_if(str(path), wrong)
    with pytest.raises(InvalidValue, match="against: expected rank:1"):
        run_what_if(str(path), "uniform", None, 0.9, "rank:9")
    for wrong in ("arm:article-9", "rule:else->article-9"):
        with pytest.raises(UnknownName, match="against arm: unknown name 'article-9'"):
            run_what_if(str(path), "uniform", None, 0.9, wrong)


@pytest.mark.parametrize("target", TARGETS)
def test_the_result_is_the_estimate_to_read_first(with_floor: str, target: str) -> None:
    report = evaluate(with_floor, target, confidence=0.9)
    evaluation = run_what_if(with_floor, target, None, 0.9)
    best = report.best
    assert best is not None
    result = {name: evaluation[name] for name in ("value", "lower", "upper", "assumes", "caveat")}
    assert result == {name: getattr(best, name) for name in result}
    assert (evaluation["estimator"], evaluation["kind"], evaluation["confidence"]) == (
        best.name,
        "evaluation",
        0.9,
    )
    assert (evaluation["target"], evaluation["experiment"], evaluation["rows"]) == (target, "home", 600)
    whole = report.to_dict()
    del whole["source"]
    assert evaluation["details"] == json.loads(json.dumps(whole))
    with read_log(with_floor) as log:
        assert evaluation["logged_mean"] == pytest.approx(np.mean([log.reward_of(row) for row in log.rows()]))


@pytest.mark.parametrize("against", [None, "uniform"])
def test_a_stated_mean_square(with_floor: str, against: str | None) -> None:
    for more, stated in (((), False), ((1.0,), True)):
        found = run_what_if(with_floor, "arm:green", None, 0.9, against, *more)
        assert ("cs-catoni" in found["details"]["estimates"]) is stated


def test_the_question_states_what_is_estimated(with_floor: str) -> None:
    assert [run_what_if(with_floor, each, ["snips"])["estimand"] for each in TARGETS] == [
        "the mean reward if everyone had been shown 'green'",
        "the mean reward if all arms had been shown with equal probability",
        "the mean reward if the arms had been shown with these probabilities: 'red' 0.75, 'blue' 0.25",
    ]
    assert run_what_if(with_floor, "kl-ms")["estimand"] == "the mean reward if the policy had been kl-ms"


def test_targets_refer_to_arms_by_name(tmp_path: Path) -> None:
    names = ["1", "a,b", "it's 'so'", "arm:x", "floor=0.1", " "]
    log = fill(
        tmp_path / "log.db", "uniform", 120, means={name: place / 8 for place, name in enumerate(names)}
    )
    for name in names:
        evaluation = run_what_if(log, f"arm:{name}", ["cs-betting"])
        assert evaluation["estimand"] == f"the mean reward if everyone had been shown {name!r}"
        assert (
            evaluation["value"]
            == evaluate(log, f"arm:'{name.replace(chr(39), chr(39) * 2)}'")["cs-betting"].value
        )
    with pytest.raises(InvalidValue, match="of the arms '1'"):
        run_what_if(log, "arm:2")  # an index, not a name


def test_the_logged_mean_leaves_out_rows_in_which_the_arm_was_not_eligible(tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    with Bandit(list(MEANS), "uniform", reward=UNIT_RANGE, log=log, experiment="home") as bandit:
        for eligible, value in ((["red", "blue"], 1.0), (["green", "blue"], 0.0)):
            for decision in bandit.choose(size=50, eligible=eligible):
                bandit.reward(decision.id, value)
    evaluation = run_what_if(log, "arm:green", ["cs-betting"])
    assert (evaluation["rows"], evaluation["logged_mean"]) == (50, 0.0)


def test_a_tiny_log_without_a_range_is_refused(tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    with Bandit(list(MEANS), "ms:sigma2=1", log=log, experiment="home") as bandit:
        for number in range(6):
            bandit.reward(bandit.choose().id, number % 2)
    evaluation = run_what_if(log, "uniform")
    nothing = [evaluation[name] for name in ("estimator", "value", "lower", "upper")]
    assert (evaluation["has_estimate"], evaluation["rows"], evaluation["logged_mean"], nothing) == (
        False,
        6,
        0.5,
        [None] * 4,
    )
    assert "The estimate to read first would be" in evaluation["refusal"]
    assert "it needs the range of rewards" in evaluation["refusal"]
    assert "a lowest and a highest value" in evaluation["refusal"]
    assert "A floor in the policy" in evaluation["refusal"]
    assert set(evaluation["details"]["refusals"]) == set(evaluation["details"]["estimates"])


def test_a_log_without_support_is_refused(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db", "ucb1", 200, batch=1)
    evaluation = run_what_if(log, "uniform")
    assert not evaluation["has_estimate"]
    assert evaluation["refusal"].startswith(
        "The log cannot answer: the target's arms could not have been chosen"
    )
    assert "A floor in the policy" in evaluation["refusal"]


def test_missing_rewards_widen_the_interval(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db", "ms+:floor=0.5", 400)
    complete = run_what_if(log, "arm:blue")
    with Bandit(list(MEANS), "ms+:floor=0.5", reward=UNIT_RANGE, log=log, experiment="home") as bandit:
        bandit.choose(size=4)  # their rewards are never reported
    evaluation = run_what_if(log, "arm:blue")
    assert evaluation["has_estimate"]
    assert evaluation["lower"] <= complete["lower"]
    assert evaluation["upper"] >= complete["upper"]
    assert "1.0% of the rewards are missing" in evaluation["warnings"][0]


def test_logs_without_final_rewards_are_refused(tmp_path: Path) -> None:
    log, window = str(tmp_path / "log.db"), Reward(low=0, high=1, window=3600)
    with Bandit(["red", "blue"], "uniform", reward=window, log=log, experiment="home") as bandit:
        none = [run_what_if(log, target) for target in ("arm:red", "ms+")]
        decisions = bandit.choose(size=40)
        for decision in decisions:
            bandit.reward(decision.id, 1.0)
        early = [run_what_if(log, target) for target in ("arm:red", "ms+")]
    assert "has no decisions yet" in none[0]["refusal"]
    assert "no decision has a reward" in none[1]["refusal"]
    for evaluation in early:
        assert "the first window closes at" in evaluation["refusal"]
        assert evaluation["pending"] == 40 or evaluation["kind"] == "replay"
    assert "no reward window has closed yet: 40 decisions are open" in early[0]["refusal"]
    for evaluation in none + early:
        assert (evaluation["has_estimate"], evaluation["rows"], evaluation["logged_mean"]) == (False, 0, None)


def test_advice_about_open_windows_does_not_depend_on_the_name_of_the_experiment(tmp_path: Path) -> None:
    """The advice depends on the type of the error, not on its message, which contains a name."""
    log = str(tmp_path / "log.db")
    with Bandit(
        ["red", "blue"],
        "uniform",
        reward=Reward(low=0, high=1, window=3600),
        log=log,
        experiment="shop-window",
    ):
        evaluation = run_what_if(log, "ms+", experiment="shop-window")
    assert "no decision has a reward" in evaluation["refusal"]
    assert "try again" not in evaluation["refusal"]  # no decision waits for its window to close


class RefusedBySubclass(CannotAnswer):
    """A refusal that `what_if` does not know by name."""


@pytest.mark.parametrize("target", ["arm:red", "ms+"])
def test_a_subclass_of_cannot_answer_is_a_refusal(
    with_floor: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RefusedBySubclass("too few rows")

    monkeypatch.setattr("maillard.evaluation.evaluating.run_query", refuse)
    monkeypatch.setattr("maillard.evaluation.replays.replay_runner.replay", refuse)
    evaluation = run_what_if(with_floor, target)
    assert (evaluation["has_estimate"], evaluation["refusal"]) == (False, "Too few rows.")


def test_a_policy_that_learns_is_replayed(with_floor: str) -> None:
    evaluation = run_what_if(with_floor, "ms+:booster=16", None, 0.8)
    found = replay(with_floor, "ms+:booster=16", confidence=0.8)
    result = (
        evaluation["value"],
        evaluation["lower"],
        evaluation["upper"],
        evaluation["logged_mean"],
        evaluation["rows"],
    )
    assert result == (found.mean[-1], found.lower[-1], found.upper[-1], found.logged_mean, found.rows)
    assert (evaluation["kind"], evaluation["estimator"]) == ("replay", "rejection")
    assert evaluation["assumes"] == "; ".join(found.assumes)
    assert f"the policy's first {found.rounds[-1]} rounds" in evaluation["caveat"]
    own = replay(with_floor, "ms+:floor=0.5", confidence=0.8)
    assert f"replayed in the same way, has a mean from {own.lower[-1]:.4g}" in evaluation["caveat"]
    assert evaluation["details"]["own"]["mean"][-1] == own.mean[-1]


def test_a_replay_with_bounds_only(without_floor: str) -> None:
    evaluation = run_what_if(without_floor, "ms+:booster=16")
    found = replay(without_floor, "ms+:booster=16")
    assert np.isnan(found.mean[-1])
    assert (evaluation["value"], evaluation["lower"], evaluation["upper"]) == (
        None,
        found.lower[-1],
        found.upper[-1],
    )
    assert f"is only known to be from {found.least[-1]:.4g} to {found.most[-1]:.4g}" in evaluation["caveat"]
    wide = run_what_if(without_floor, "epsilon-greedy:epsilon=1")
    assert "The log has no reward for" in wide["refusal"]
    assert (wide["value"], wide["lower"]) == (None, None)


def test_a_log_that_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db", "ms:sigma2=1", 60, Reward())
    evaluation = run_what_if(log, "ts:sigma2=1")
    assert evaluation["refusal"].startswith("No method can replay this log: no constant floor")


WRONG: list[tuple[Any, type[MaillardError], str]] = [
    ("arm:purple", UnknownName, "arm: unknown name 'purple'"),
    ("dist:purple=1", UnknownName, "arm: unknown name 'purple'"),
    ("dist:red=0.5", InvalidValue, "target: expected .* add up to 1"),
    ("dist:0.5,0.3,0.2", InvalidValue, "target: expected .*NAME=PROBABILITY"),
    ("arm:0", InvalidValue, "target: expected arm:NAME"),
    ("arm", InvalidValue, "target: expected arm:NAME"),
    ("blue", InvalidValue, "arm:blue, if the arm of that name is meant"),
    ("ms++", UnknownName, "Did you mean 'ms\\+'"),
    ("no such thing", InvalidValue, "target: expected arm:NAME, uniform"),
    ("", InvalidValue, "target: expected"),
    (7, InvalidValue, "target: expected"),
    ("ms+:boster=3", UnknownName, "Did you mean 'booster'"),
    ("arm:red,floor=1,floor_decay=0.7", InvalidValue, "no floor_decay"),
]


@pytest.mark.parametrize(("target", "error_type", "message"), WRONG)
def test_invalid_targets(with_floor: str, target: Any, error_type: type[MaillardError], message: str) -> None:
    with pytest.raises(error_type, match=message):
        what_if(with_floor, "home", target)


def test_invalid_arguments_of_jobs(with_floor: str, tmp_path: Path) -> None:
    for target in ("arm:red", "ms"):
        with pytest.raises(InvalidValue, match="confidence"):
            what_if(with_floor, "home", target, None, 1.5)
    with pytest.raises(UnknownName, match="Did you mean 'snips'"):
        what_if(with_floor, "home", "arm:red", ["snip"])
    with pytest.raises(InvalidValue, match="no estimators, because a policy that learns is replayed"):
        what_if(with_floor, "home", "ms", ["snips"])
    with pytest.raises(UnknownName, match="Did you mean 'home'"):
        what_if(with_floor, "hom", "arm:red")
    with pytest.raises(Unavailable, match="cannot be opened now"):
        what_if(str(tmp_path / "gone.db"), "home", "arm:red")


def test_a_comparison_is_the_one_of_compare(with_floor: str) -> None:
    from maillard import compare

    found = run_what_if(with_floor, "arm:blue", None, 0.95, "arm:red")
    expected = compare(with_floor, "arm:blue", "arm:red")
    assert found["kind"] == "comparison"
    assert expected.best is not None
    assert (found["estimator"], found["value"]) == (expected.best.name, expected.best.value)
    assert found["estimand"].startswith(
        "the difference between the mean reward if everyone had been shown 'blue'"
    )
    with pytest.raises(InvalidValue, match="targets that do not learn"):
        what_if(with_floor, "home", "ms", None, 0.95, "arm:red")


# Verification and export.


def test_verification_of_a_log(with_floor: str, tmp_path: Path) -> None:
    found = check(with_floor, "home")
    assert (found["verdict"], found["decisions"], found["recomputed"]) == ("consistent", 600, 600)
    assert (found["problems"], found["problem_count"]) == ([], 0)
    assert [each["arm"] for each in found["arms"]] == list(MEANS)
    assert all(abs(each["z"]) < 5 for each in found["arms"])
    log = fill(tmp_path / "log.db", "ms+:floor=0.5", 60)
    with closing(sqlite3.connect(log)) as file, file:
        file.execute("UPDATE decisions SET log_probability = log_probability - 0.5")
    broken = check(log, "home")
    assert broken["verdict"] == "broken"
    assert broken["problem_count"] >= 60
    assert set(broken["problems"][0]) == {"decision", "what"}
    assert log not in json.dumps(broken, allow_nan=False)


def test_a_damaged_log_is_a_problem_that_does_not_reveal_the_path(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db", "ms", 20)
    with closing(sqlite3.connect(log)) as file, file:
        file.execute("DELETE FROM events WHERE number = 1")
    found = check(log, "home")
    assert (found["verdict"], found["problem_count"]) == ("broken", 1)
    assert "the log cannot be read: the log: " in found["problems"][0]["what"]
    assert log not in json.dumps(found)


def test_export_of_a_log(with_floor: str, tmp_path: Path) -> None:
    export(with_floor, "home", tmp_path / "home.parquet")
    copy = read_log(tmp_path / "home.parquet")
    assert [row.decision.id for row in copy.rows()] == [
        row.decision.id for row in read_log(with_floor).rows()
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "home.parquet"]


def test_jobs_on_a_log_in_postgresql(postgres: str, tmp_path: Path) -> None:
    fill(postgres, "ms+:floor=0.5", 120)
    url = postgres.replace("postgres@", f"postgres:{SECRET}@")

    async def run_jobs() -> tuple[Any, Any, str]:
        worker, other = WorkerProcess(url), WorkerProcess(url.replace("?", "-which-does-not-exist?"))
        await worker.run(export, "home", str(tmp_path / "home.parquet"))
        evaluation = await worker.run(what_if, "home", "arm:blue", None, 0.95)
        checked = await worker.run(check, "home")
        with pytest.raises(Unavailable) as caught:
            await other.run(check, "home")
        return evaluation, checked, str(caught.value)

    evaluation, checked, message = asyncio.run(run_jobs())
    report = evaluate(postgres, "arm:blue")
    assert report.best is not None
    assert (evaluation["estimator"], evaluation["value"]) == (report.best.name, report.best.value)
    assert (checked["decisions"], checked["recomputed"], checked["problem_count"]) == (120, 120, 0)
    assert len(list(read_log(tmp_path / "home.parquet").rows())) == 120
    assert "postgresql:" not in json.dumps([evaluation, checked])
    assert "does not exist" in message
    assert SECRET not in message
