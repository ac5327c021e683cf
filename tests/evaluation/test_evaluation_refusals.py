"""Regression tests: logs and arguments that once gave a wrong number, or an interval that was too narrow."""

from __future__ import annotations

import math
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maillard import FixedArm, FixedDistribution, MaillardError, replay, simulate_log
from maillard.cli import main
from maillard.decisions import Bandit, Reward, read_log
from maillard.errors import InvalidValue
from maillard.evaluation import compare, evaluate, names
from tests.evaluation.test_evaluation import random_log


def plain(n=1000, seed=0, k=2, **changes):
    """A table with only arms, probabilities and rewards."""
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, k, n)
    table = {
        "arm": [f"a{i}" for i in arm],
        "probability": np.full(n, 1 / k),
        "reward": rng.integers(0, 2, n) * 1.0,
    }
    return table | changes


@pytest.mark.parametrize("executor", [False, True])
@pytest.mark.parametrize("where", [3, 701])
def test_an_invalid_row_in_the_compiled_loop(where, executor, tmp_path) -> None:
    """The error must be raised even if valid rows follow."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        options = {"executor": pool if executor else None}
        for name, value, message in (
            ("reward", None, "reward"),
            ("reward", 5.0, "from 0 to 1"),
            ("probability", None, "probability"),
        ):
            table = plain()
            values = list(table[name])
            values[where - 1] = value
            pq.write_table(
                pa.table(table | {name: pa.array(values, pa.float64())}),
                tmp_path / "log.parquet",
                row_group_size=200,
            )
            with pytest.raises(InvalidValue, match=rf"row {where}: .*{message}"):
                evaluate(tmp_path / "log.parquet", "arm:a1", ["ips"], reward_range=(0, 1), **options)


def test_wrong_probabilities_of_chosen_arms() -> None:
    """Three arms are chosen uniformly, and logged with 0.5, with 1, or with half of their probability."""
    for logged, refused in ((1 / 3, False), (0.5, True), (1.0, True), (1 / 6, True)):
        table = pa.table(plain(6000, k=3, probability=np.full(6000, logged)))
        report = evaluate(table, "uniform", ["ips", "snips"])
        assert bool(report.refusals) == refused, logged
    # If the probabilities vary, the error cannot be proved: it is a caveat.
    table, *_ = random_log(n=3000, seed=1)
    table = table.drop_columns(["eligible", "log_probabilities"])
    halved = table.set_column(1, "probability", pa.compute.divide(table["probability"], 2.0))
    assert not evaluate(table, "arm:blue", ["ips"], adaptive=False)["ips"].caveat
    report = evaluate(halved, "arm:blue", ["ips"], adaptive=True)
    assert report["ips"].caveat.startswith("the mean weight is")  # before the caveats of adaptive logs
    assert "\n  no estimate can be recommended" in str(report)


def test_arms_that_were_never_chosen() -> None:
    table = plain(400, arm=["2", "7"] * 200)  # so there are eight
    report = evaluate(pa.table(table), "uniform", ["ips"])
    assert "never chosen" in report.refusals["ips"]


def test_logs_that_report_only_successes() -> None:
    rng = random.Random(1)
    bandit = Bandit(["red", "blue"], "uniform", reward=Reward(low=0, high=1))
    for _ in range(600):
        decision = bandit.choose()
        if rng.random() < 0.5:
            bandit.reward(decision.id, 1.0)
    report = evaluate(bandit, "arm:red")
    assert {"ips", "snips", "aipw"} <= set(report.refusals)  # all rewards are equal
    # The confidence sequences allow for every value of the missing rewards.
    found = report["cs-betting"]
    assert found.interval == "confidence sequence, bounds only"
    assert found.lower < 0.5 < 0.97 < found.upper
    assert "of the rewards are missing" in report.warnings[0]


def test_equal_rewards() -> None:
    table = pa.table(plain(500, reward=np.zeros(500)))
    report = evaluate(table, "arm:a1", ["ips", "snips", "aipw", "cs-betting"], reward_range=(0, 1))
    assert set(report.refusals) == {"ips", "snips", "aipw"}
    assert report["cs-betting"].upper > 0


def test_equal_rewards_of_an_arm() -> None:
    """The refusal depends on the rewards, not on a standard error that is 0 except for rounding."""
    for seed in range(4):
        log = simulate_log("ms+:floor=0.3", "bernoulli:0.5,0", horizon=600, seed=seed)
        report = evaluate(log, "arm:1")
        assert set(report.refusals) == {"ips", "snips", "aipw", "aipw-sqrt", "aipw-two-point"}
        assert report["cs-betting"].lower == 0
    rare = evaluate(simulate_log("uniform", "bernoulli:0.5,0.01", horizon=600, seed=1), "arm:1", ["ips"])[
        "ips"
    ]
    assert "differ from the most common value" in rare.caveat


def test_a_level_that_removes_most_of_the_weight() -> None:
    table = pa.table(plain(2000, k=10))
    found = evaluate(table, "arm:a1", ["clipped-ips:5", "clipped-ips:50"])
    assert "removes 50% of the weight" in found["clipped-ips:5"].caveat
    assert not found["clipped-ips:50"].caveat


def test_few_effective_pulls() -> None:
    log = simulate_log("ms", "bernoulli:0.9,0.1", horizon=3000, seed=1)
    report = evaluate(log, "arm:1")
    assert report.diagnostics.effective_pulls < 30
    assert "the effective pulls are" in report.refusals["aipw-two-point"]


def test_few_units() -> None:
    table = pa.table(plain(500, unit=[f"u{i % 9}" for i in range(500)]))
    assert "9 units" in evaluate(table, "arm:a1", ["ips"], cluster="unit").refusals["ips"]
    with pytest.raises(InvalidValue, match="a unit in at least one row"):
        evaluate(pa.table(plain(500)), "arm:a1", ["ips"], cluster="unit")


def test_switch_dr_that_only_uses_the_model() -> None:
    """If no weight is below the level, switch-dr is the mean reward, with the error of the mean reward."""
    table = pa.table(plain(2000, k=10))
    found = evaluate(table, "arm:a1", ["switch-dr:5"])["switch-dr:5"]
    rewards = np.array(table["reward"])
    assert found.value == pytest.approx(rewards.mean())
    assert found.standard_error == pytest.approx(rewards.std() / math.sqrt(2000))


def test_the_interval_of_a_chosen_level_is_that_of_the_level_with_least_shrinkage() -> None:
    """At least 80 of 100 intervals of 90% cover the value. At the chosen level, fewer than 70 do."""
    hits = np.zeros(2)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        arm = rng.integers(0, 10, 1000)
        feedback = {
            "action": arm,
            "reward": rng.normal(0.2 * arm, 1.0),
            "pscore": np.full(1000, 0.1),
            "n_actions": 10,
        }
        chosen = evaluate(feedback, "arm:9", ["sg-dr"], confidence=0.9)["sg-dr"]
        own = evaluate(feedback, "arm:9", [f"sg-dr:{chosen.level}"], confidence=0.9)[f"sg-dr:{chosen.level}"]
        hits += [each.lower <= 1.8 <= each.upper for each in (chosen, own)]
    assert hits[0] >= 80
    assert hits[1] < 70


def test_a_floor_that_the_log_violates() -> None:
    table, *_ = random_log(n=500, seed=2)
    for name in ("ips", "aipw", "cs-betting"):
        with pytest.raises(
            InvalidValue, match=r"a floor of 1 allows \(this one needs a floor of at most 0\.\d+\)"
        ):
            evaluate(table, "arm:blue", [name], floor=1, reward_range=(-9, 9))


def test_overflow() -> None:
    table = pa.table(plain(400, reward=np.where(np.arange(400) % 3, 0.0, 1e200)))
    report = evaluate(table, "arm:a1", ["ips", "snips", "aipw"])
    assert set(report.refusals) == {"ips", "snips", "aipw"}
    tiny = pa.table(plain(400, probability=np.where(np.arange(400) == 7, 1e-300, 0.5)))
    for wanted in (["ips"], ["aipw"]):
        with pytest.raises(InvalidValue, match="row 8"):
            evaluate(tiny, "arm:a1", wanted)


def test_numbers_and_names_of_arms(tmp_path) -> None:
    with Bandit(["1", "2", "3"], "uniform", reward=Reward(low=0, high=1), log=tmp_path / "log.db") as bandit:
        for _ in range(300):
            decision = bandit.choose()
            bandit.reward(decision.id, float(decision.arm == "1"))
    with pytest.raises(InvalidValue, match="arm:'1'"):
        evaluate(tmp_path / "log.db", "arm:1", ["snips"])
    assert evaluate(tmp_path / "log.db", "arm:'1'", ["cs-betting"])["cs-betting"].value > 0.9
    table = pa.table(plain())
    for target in (FixedArm(0), FixedDistribution([0.5, 0.5]), "arm:0", "dist:0.5,0.5"):
        with pytest.raises(InvalidValue, match="have no meaningful order"):
            evaluate(table, target, ["ips"])


def test_selections_that_cannot_apply() -> None:
    log = simulate_log("uniform", "bernoulli:0.5,0.4", 300, seed=1)
    for options in (
        {"epoch": 7},
        {"unit": "u"},
        {"since": 1.0},
        {"experiment": "x"},
        {"columns": {"arm": "a"}},
    ):
        with pytest.raises(InvalidValue, match="simulated log cannot be selected from"):
            evaluate(log, "arm:1", **options)
    with pytest.raises(InvalidValue, match="a log whose decisions have times"):
        evaluate(pa.table(plain()), "arm:a1", until=1e9)
    with pytest.raises(InvalidValue, match="timestamps"):
        evaluate(pa.table(plain(time=np.arange(1000))), "arm:a1", until=1e9)


WRONG = [
    {"confidence": "0.9"}, {"confidence": 1 - 1e-16}, {"min_effective_size": "x"},
    {"min_effective_size": math.inf}, {"interval": np.ones(2)}, {"epoch": 1.5}, {"epoch": [[1]]},
    {"unit": 5}, {"columns": 5}, {"estimators": 5}, {"estimators": []}, {"executor": 2}, {"on_rows": 5},
    {"adaptive": "x"}, {"reward_range": (0, 10**400)}, {"floor": 10**400}, {"reward_model": [1, 10**400]},
    {"first_position": 2}, {"max_missing": 2},
]  # fmt: skip


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_arguments_of_wrong_types(options) -> None:
    table, *_ = random_log(n=60, seed=3)
    with pytest.raises(MaillardError):
        evaluate(table, "arm:blue", **options)


def test_duplicate_decisions(tmp_path) -> None:
    bandit = Bandit(["red", "blue"], "uniform", reward=Reward(low=0, high=1))
    for decision in bandit.choose(size=40):
        bandit.reward(decision.id, 1.0)
    frame = read_log(bandit).to_pandas()
    twice = pd.concat([frame, frame])
    with pytest.raises(InvalidValue, match="each decision once"):
        evaluate(twice, "arm:red")
    table = pa.Table.from_pandas(twice.drop(columns=["rewards", "applied"]).sort_values(["state", "id"]))
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(InvalidValue, match="row 2: id"):
        evaluate(tmp_path / "twice.parquet", "arm:red")


def test_damaged_tables(tmp_path) -> None:
    pq.write_table(pa.table(plain()), tmp_path / "1.parquet")
    pq.write_table(pa.table(plain() | {"reward": ["x"] * 1000}), tmp_path / "2.parquet")
    with pytest.raises(MaillardError, match="reward"):
        evaluate(tmp_path, "arm:a1", ["ips"])
    raw = bytearray((tmp_path / "1.parquet").read_bytes())
    raw[40:400] = b"\xff" * 360
    (tmp_path / "bad.parquet").write_bytes(raw)
    with pytest.raises(MaillardError):
        evaluate(tmp_path / "bad.parquet", "arm:a1", ["ips"])
    for change, message in (
        ({"arm": [["a"]] * 1000}, "names or whole numbers"),
        ({"eligible": [["a0", "a1", None]] * 1000}, "arms of the experiment"),
        ({"eligible": [["a0", "a1", "a1"]] * 1000}, "each name once"),
    ):
        with pytest.raises(InvalidValue, match=message):
            evaluate(pa.table(plain() | change), "arm:a1", ["ips"])
    twice = pa.Table.from_arrays([pa.array([1.0]), pa.array([1.0])], names=["reward", "reward"])
    with pytest.raises(InvalidValue, match="each column once"):
        read_log(twice)


def test_invalid_bandit_feedback() -> None:
    good = {"action": np.array([0, 1] * 50), "reward": np.ones(100), "pscore": np.full(100, 0.5)}
    for change, message in (
        ({"arms": np.array(["x", "x"])}, "each name once"),
        ({"pi_b": np.tile([[0.5], [-0.2]], (100, 1, 1))}, "pi_b"),
        ({"pi_b": np.tile([[0.5], [np.nan]], (100, 1, 1))}, "pi_b"),
        ({"action": np.array([0, -1] * 50), "n_actions": 2}, "got -1"),
        ({"pi_b": [[1], [1, 2]]}, "pi_b"),
    ):
        with pytest.raises(InvalidValue, match=message):
            evaluate(good | change, "arm:0", ["ips"])


def test_few_rows_shared_by_two_targets() -> None:
    n = 400
    eligible = [["a", "c"]] * (n // 2 - 2) + [["a", "b"]] * 4 + [["b", "c"]] * (n // 2 - 2)
    rng = np.random.default_rng(5)
    arm = [pair[rng.integers(2)] for pair in eligible]
    table = pa.table(
        {
            "arm": arm,
            "probability": [0.5] * n,
            "reward": rng.random(n),
            "eligible": eligible,
            "log_probabilities": [[math.log(0.5)] * 2] * n,
        }
    )
    found = compare(table, "arm:a", "arm:b")
    assert "in the rows that both targets share" in found.refusals["aipw-sqrt"]
    assert "the effective sample size is 3.0 of 4 rows" in found.refusals["ips"]


def test_a_replay_on_wrong_probabilities() -> None:
    rng = np.random.default_rng(6)
    arm = (rng.random(2000) < 0.1).astype(int)
    probabilities = np.full((2000, 2, 1), 0.5)
    feedback = {
        "action": arm,
        "reward": rng.random(2000),
        "pscore": np.full(2000, 0.5),
        "pi_b": probabilities,
    }
    with pytest.raises(MaillardError, match="do not agree"):
        replay(feedback, "ms", reward_range=(0, 1))


def test_pages_and_figures_do_not_replace_logs(tmp_path, monkeypatch) -> None:
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    with Bandit(["red", "blue"], "ms:floor=0.5", reward=Reward(low=0, high=1), log="live.html") as bandit:
        for decision in bandit.choose(size=60):
            bandit.reward(decision.id, 1.0)
    before = (tmp_path / "live.html").read_bytes()
    pq.write_table(read_log("live.html").to_arrow(), "log.parquet")
    (tmp_path / "link.html").symlink_to("log.parquet")
    for arguments in (
        ["evaluate", "live.html", "--target", "arm:red", "--page", "live.html"],
        ["evaluate", "log.parquet", "--target", "arm:red", "--page", "live.html"],
        ["evaluate", "log.parquet", "--target", "arm:red", "--page", "link.html"],
    ):
        found = CliRunner().invoke(main, arguments)
        assert found.exit_code == 2, found.output
    assert (tmp_path / "live.html").read_bytes() == before
    assert len(list(read_log("log.parquet").rows())) == 60


def test_every_estimator_has_a_value_or_a_refusal() -> None:
    table, *_ = random_log(n=400, seed=7)
    for each in evaluate(table, "arm:blue", names(), reward_range=(-9, 9)).values():
        assert (each.value is None) != (each.refusal is None)


def test_open_windows_are_left_out_in_every_format() -> None:
    """A data frame without the reward rule still states which windows had closed."""
    from maillard.decisions.stores.memory import MemoryStore

    now = [1_790_000_000_000_000]
    bandit = Bandit(
        ["red", "blue"], "uniform", reward=Reward(low=0, high=1, window=100), log=MemoryStore(lambda: now[0])
    )
    rng = random.Random(2)
    for _ in range(400):
        now[0] += 1_000_000
        bandit.reward(bandit.choose().id, float(rng.random() < 0.5))
    log = read_log(bandit)
    for source in (log, log.to_polars(), log.to_pandas()):
        assert evaluate(source, "arm:red", ["ips"]).diagnostics.left_out == {"window not closed": 100}
        assert replay(source, "ms", reward_range=(0, 1), replays=2).left_out["window still open"] == 100
