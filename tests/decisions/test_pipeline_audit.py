"""Faults of a pipeline are found and named: wrong order, copies, late probabilities, edited exports."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from maillard import compare, evaluate, replay, simulate_log, verify
from maillard.decisions import Bandit, Reward
from maillard.decisions.audit import Audit, time_uniform_limit
from maillard.decisions.opening import read_log, write_log
from maillard.decisions.pipeline_audit import PipelineAudit
from maillard.errors import CannotAnswer, InvalidLog
from maillard.evaluation.compiled_audit import add_rows
from maillard.evaluation.compiled_sums import accepts_columns
from maillard.evaluation.evaluation_log import open_log
from maillard.evaluation.log_sums import sums_of
from maillard.evaluation.query import Query
from maillard.evaluation.sequential.sequential_runner import SequentialRunner
from maillard.evaluation.settings import Settings

ROWS = 3000
LOGS: dict[tuple[str, int], Any] = {}


def logged(policy: str = "ms+", seed: int = 1) -> dict[str, np.ndarray]:
    """A log of three arms as arrays: arm, reward, log_probabilities (rows x arms)."""
    if (policy, seed) not in LOGS:
        LOGS[policy, seed] = simulate_log(policy, "bernoulli:0.5,0.4,0.3", horizon=ROWS, seed=seed)
    log = LOGS[policy, seed]
    kept = slice(log.forced, None)
    return {
        "arm": log.arms[kept],
        "reward": log.rewards[kept],
        "log_probabilities": log.log_probabilities[kept],
    }


def table(log: dict[str, np.ndarray], *, full: bool = True, times: bool = False) -> pa.Table:
    logs = log["log_probabilities"]
    n, k = logs.shape
    columns = {
        "arm": log["arm"].astype(str),
        "reward": log["reward"],
        "log_probability": logs[np.arange(n), log["arm"]],
    }
    if full:
        columns |= {"log_probabilities": list(logs), "eligible": [[str(arm) for arm in range(k)]] * n}
    if times:
        columns["time"] = pa.array(log.get("time", np.arange(n) * 1_000_000), pa.timestamp("us", tz="UTC"))
    return pa.table(columns)


def taken(log: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in log.items()}


def sorted_by(name: str, log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return taken(log, np.argsort(log[name], kind="stable"))


def copied(log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every fifth row twice."""
    return taken(log, np.repeat(np.arange(len(log["arm"])), 1 + (np.arange(len(log["arm"])) % 5 == 0)))


def late(log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """With the probabilities of the next round."""
    return {
        "arm": log["arm"][:-1],
        "reward": log["reward"][:-1],
        "log_probabilities": log["log_probabilities"][1:],
    }


FAULTS = [
    ("arm-sorted", lambda log: sorted_by("arm", log), "not in the order in which they were decided"),
    ("reward-sorted", lambda log: sorted_by("reward", log), "sorted by reward"),
    ("copied", copied, "appear twice"),
    ("late", late, "computed after the reward was learned"),
]


# With the probabilities of chosen arms only, copies are found by their times, see below.
CASES = [(*each, full) for each in FAULTS for full in (True, False) if full or each[0] != "copied"]


@pytest.mark.parametrize(
    ("name", "fault", "words", "full"), CASES, ids=[f"{case[0]}-{case[3]}" for case in CASES]
)
def test_a_fault_is_refused_with_its_name(name, fault, words, full, tmp_path) -> None:
    honest, broken = table(logged(), full=full), table(fault(logged()), full=full)
    assert not evaluate(honest, "arm:0", ["ips"], adaptive=False).diagnostics.faults  # the control
    assert verify(honest).verdict == ("consistent" if full else "cannot be audited")
    report = evaluate(broken, "arm:0", ["ips"], adaptive=False)
    if name == "arm-sorted" and not full:  # visitors who saw the same arm again look the same: only a warning
        assert any("rows may be sorted by arm" in each for each in report.warnings)
        assert not any("rows may be sorted" in each for each in evaluate(honest, "arm:0").warnings)
        return
    assert words in report.refusals["ips"]
    assert report.diagnostics.audit == "broken"
    assert words in compare(broken, "arm:0", "arm:1", ["ips"]).refusals["ips"]
    found = verify(broken)
    assert found.verdict == "broken"
    assert any(words in problem.what for problem in found.problems)
    with pytest.raises(CannotAnswer, match=words):
        replay(broken, "ms+", reward_range=(0, 1))
    # The compiled loop reads Parquet files without the probabilities of all arms.
    pq.write_table(broken, tmp_path / "broken.parquet")
    assert words in evaluate(tmp_path / "broken.parquet", "arm:0", ["ips"], adaptive=False).refusals["ips"]


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("policy", ["uniform", "ms+"])
def test_copied_clicks_with_times(policy, full, tmp_path) -> None:
    """A fifth of the clicks occurs twice, at the same time."""
    log = logged(policy) | {"time": np.arange(len(logged(policy)["arm"])) * 1_000_000}
    again = (log["reward"] > 0) & (np.random.default_rng(3).random(len(log["arm"])) < 0.2)
    broken = table(taken(log, np.repeat(np.arange(len(again)), 1 + again)), full=full, times=True)
    pq.write_table(broken, tmp_path / "log.parquet")
    for source in (broken, tmp_path / "log.parquet"):
        assert "appear twice" in evaluate(source, "arm:0", ["ips"], adaptive=False).refusals["ips"]


@pytest.mark.parametrize("full", [True, False])
def test_rows_of_different_units_at_the_same_time_are_no_copies(full) -> None:
    """Every fifth row occurs twice, at the same time: with the same unit, or each row with its own."""
    log = logged("uniform")
    broken = table(copied(log | {"time": np.arange(len(log["arm"])) * 1_000_000}), full=full, times=True)
    same = broken.append_column("unit", broken["time"].cast(pa.int64()).cast(pa.string()))
    other = broken.append_column("unit", pa.array(np.arange(len(broken)).astype(str)))
    copies = ["some rows appear twice; remove the copies"]
    for cluster in ("row", "unit"):
        assert evaluate(same, "arm:0", ["ips"], cluster=cluster).diagnostics.faults == copies
        assert evaluate(other, "arm:0", ["ips"], cluster=cluster).diagnostics.faults != copies
    first = f"{copies[0]} (row 2 looks like a copy of the row before it)"
    assert first in [problem.what for problem in verify(same).problems]
    assert not any(problem.what.startswith(copies[0]) for problem in verify(other).problems)


def test_what_a_table_does_not_show() -> None:
    """A table without times and row numbers, with times, and with both; a log of our own shows everything."""
    log = logged("uniform")
    timed = log | {"time": np.arange(len(log["arm"])) * 1_000_000}
    for given, times, words in (
        (log, False, ["no column numbers the rows", "no times"]),
        (timed, True, ["no column numbers the rows"]),
    ):
        found = verify(table(given, times=times)).notes
        assert [each.partition(":")[0] for each in found] == words
    numbered = table(timed, times=True).append_column("row", pa.array(np.arange(len(log["arm"]))))
    assert not verify(numbered).notes
    bandit = Bandit(["a", "b"], "uniform")
    bandit.choose(size=10)
    assert not verify(bandit).notes


def test_correct_logs_are_accepted() -> None:
    """None of 60 correct logs is refused; at most 1 in 10,000 should be."""
    for policy in ("uniform", "ms", "ms+:floor=0.1", "epsilon-greedy"):
        logs = simulate_log(policy, "bernoulli:0.2,0.15,0.1", horizon=1500, seed=5, runs=15)
        assert not any(evaluate(log, "arm:0", ["ips"]).diagnostics.faults for log in logs)


@pytest.mark.parametrize("times", [True, False])
def test_the_compiled_audit_equals_the_simple_one(times) -> None:
    log, rng = logged(), np.random.default_rng(2)
    n = len(log["arm"])
    log = log | {"time": np.sort(rng.integers(1, n, n))}
    columns = next(read_log(table(log, full=False, times=times)).columns())
    simple, fast = PipelineAudit(), PipelineAudit()
    simple.add_columns(columns, foreign=True)
    rows = columns.arm, np.exp(columns.log_probability), columns.reward, columns.time
    add_rows(fast, *rows, center=0.5)
    for name in ("chosen_order", "copy_evidence", "weights", "is_sorted", "orderings"):
        assert getattr(fast, name) == pytest.approx(getattr(simple, name), rel=1e-9), name
    assert fast.late[:3] == pytest.approx(simple.late[:3], rel=1e-9)
    assert fast.late[3] == pytest.approx(simple.late[3], abs=5)  # a term of 0 may be rounded to 1e-17
    assert bool(simple.copy_evidence) == times


@pytest.mark.parametrize("positions", [1, 2])
def test_the_audit_of_rows_in_memory_is_that_of_the_simple_one(positions) -> None:
    log = logged()
    n = len(log["arm"])
    feedback = {
        "action": log["arm"],
        "reward": log["reward"],
        "pscore": np.exp(log["log_probabilities"][np.arange(n), log["arm"]]),
        "position": np.random.default_rng(5).integers(0, positions, n),
    }
    settings = Settings()
    with open_log(feedback, settings) as opened:
        columns = next(iter(opened.columns()))
        query = Query.of(opened, ["arm:1"], ["ips"], settings)
        assert accepts_columns(columns, opened, query)
        found, simple = sums_of(columns, opened, query).pipeline, PipelineAudit()
    simple.add_columns(columns, foreign=True)
    for name in ("chosen_order", "copy_evidence", "weights", "is_sorted", "orderings"):
        assert getattr(found, name) == pytest.approx(getattr(simple, name), rel=1e-9), name
    assert found.late[:3] == pytest.approx(simple.late[:3], rel=1e-9)
    assert found.chosen_order[3] == np.count_nonzero(np.diff(feedback["position"]) == 0)


def evaluated_rows(probability: np.ndarray, **columns: np.ndarray) -> tuple[PipelineAudit, PipelineAudit]:
    """The audit of rows that sequential estimators read, and the simple one."""
    rng = np.random.default_rng(7)
    n = probability.size
    feedback = {
        "action": rng.integers(0, 3, n),
        "reward": rng.integers(0, 2, n).astype(float),
        "pscore": probability,
    }
    settings, simple = Settings(), PipelineAudit()
    with open_log(feedback | columns, settings) as opened:
        rows = next(iter(opened.columns()))
        query = Query.of(opened, ["arm:1"], ["ips", "aipw"], settings)
        runner = SequentialRunner(opened, query, query.targets[0])
        found = sums_of(rows, opened, query, [runner]).pipeline
    simple.add_columns(rows, foreign=True)
    return found, simple


@pytest.mark.parametrize("positions", [1, 2])
@pytest.mark.parametrize("values", [(0.05, 0.1, 0.2, 0.4), (0.3,), (0.004, 0.5, 0.95, 1.0)])
def test_the_audit_of_sequential_rows_is_that_of_the_simple_one(values, positions) -> None:
    """Also if the ratio of two probabilities is 2, the largest that counts, or they never change."""
    rng, n = np.random.default_rng(8), 5000
    position = rng.integers(0, positions, n)
    found, simple = evaluated_rows(rng.choice(values, n), position=position)
    for name in ("chosen_order", "weights"):
        assert getattr(found, name) == pytest.approx(getattr(simple, name), rel=1e-12, abs=1e-10), name
    assert found.late[:3] == pytest.approx(simple.late[:3], rel=1e-12, abs=1e-10)
    assert found.late[3] == pytest.approx(simple.late[3], rel=1e-2)  # a term of 0 may be rounded to 1e-17
    assert (found.is_sorted, found.orderings) == (simple.is_sorted, simple.orderings)


def test_a_ratio_of_two_counts_however_it_is_rounded() -> None:
    """0.1 / 0.05 is 2, but the difference of their logarithms exceeds ln 2."""
    audit, rows = PipelineAudit(), np.arange(4) % 2
    columns = next(
        read_log(
            table(
                {
                    "arm": np.zeros(4, int),
                    "reward": rows * 1.0,
                    "log_probabilities": np.log([[0.1, 0.9], [0.05, 0.95], [0.1, 0.9], [0.05, 0.95]]),
                },
                full=False,
            )
        ).columns()
    )
    assert np.log(0.1) - np.log(0.05) > np.log(2.0)
    audit.add_columns(columns, foreign=True)
    assert audit.chosen_order[0] == pytest.approx((2 - 0.1) + (0.5 - 0.05) + (2 - 0.1))


@pytest.mark.parametrize("unknown", [0, 40])
def test_the_audit_of_many_rows_is_that_of_single_rows(unknown) -> None:
    rng = np.random.default_rng(3)
    logs = np.log(rng.dirichlet(np.full(4, 0.3), 300))
    chosen = rng.integers(0, 4, 300)
    logs[rng.permutation(300)[:unknown], 2] = np.nan
    arms, known = ["a", "b", "c", "d"], ~np.isnan(logs).any(axis=1)
    p = np.exp(logs[known])
    for matrix in (logs, np.asfortranarray(logs)):
        audit = Audit()
        audit.add_batch(arms, chosen, matrix)
        assert audit.left_out == audit.incomplete == unknown
        for place, score in enumerate(audit.scores()):
            assert score.observed == (chosen[known] == place).sum()
            assert score.expected == pytest.approx(p[:, place].sum())
            assert score.variance == pytest.approx((p[:, place] * (1 - p[:, place])).sum())
        total = expected = variance = largest = 0.0
        for row, arm in zip(p.tolist(), chosen[known].tolist(), strict=True):
            heavy = [each for each in row if each >= 0.01]
            total += 1 / row[arm] if row[arm] >= 0.01 else 0.0
            expected += len(heavy)
            variance += sum(1 / each for each in heavy) - len(heavy) ** 2
            largest = max(largest, max(1 / each for each in heavy) - len(heavy), len(heavy))
        weights = audit.weights()
        found = [weights.observed, weights.expected, weights.variance, weights.largest]
        assert found == pytest.approx([total, expected, variance, largest])


def test_rows_out_of_order_of_time(tmp_path) -> None:
    log = logged() | {"time": np.arange(len(logged()["arm"])) * 1_000_000}
    assert evaluate(table(log, times=True), "arm:0", ["ips"]).diagnostics.audit == "consistent"
    broken = table(taken(log, np.array([0, 1, 2, 4, 3, 5])), times=True)
    broken = broken.drop_columns(["eligible", "log_probabilities"])
    pq.write_table(broken, tmp_path / "log.parquet")
    pyarrow.csv.write_csv(broken, tmp_path / "log.csv")
    for source in (broken, broken.to_pandas(), tmp_path / "log.parquet", tmp_path / "log.csv"):
        with pytest.raises(InvalidLog, match=r"row 5: time: .*sort the rows by time"):
            read_log(source)
        assert verify(source).verdict == "broken"
    # Each experiment has its own order.
    both = pa.concat_tables([table(log, times=True)] * 2)
    names = ["a"] * len(log["arm"]) + ["b"] * len(log["arm"])
    assert len(list(read_log(both.append_column("experiment", pa.array(names)), "b").rows())) == len(
        log["arm"]
    )


def test_an_unknown_distribution_cannot_be_audited() -> None:
    chosen = table(logged(), full=False)
    assert verify(chosen).verdict == "cannot be audited"
    assert evaluate(chosen, "arm:0", ["ips"], adaptive=False).diagnostics.audit == "cannot be audited"
    few = table(taken(logged(), np.arange(10)))
    assert verify(few).verdict == "not enough data"


@pytest.fixture
def export(tmp_path):
    rng = np.random.default_rng(4)
    bandit = Bandit(["red", "blue"], "ms+:floor=0.2", reward=Reward(low=0, high=1))
    for _ in range(60):
        for decision in bandit.choose(size=5):
            bandit.reward(decision.id, float(rng.random() < 0.4))
    path = tmp_path / "log.parquet"
    write_log(read_log(bandit), path)
    return path


def test_rows_that_are_missing_from_an_export(export) -> None:
    assert not evaluate(export, "arm:red", ["ips"]).refusals
    whole = pq.read_table(export)
    zeros = np.flatnonzero(pc.equal(whole["reward"], 0.0).to_numpy())
    kept = np.setdiff1d(np.arange(len(whole)), zeros[::5])
    pq.write_table(whole.take(kept), export)
    for answer in (
        lambda: evaluate(export, "arm:red", ["ips"]),
        lambda: compare(export, "arm:red", "arm:blue"),
        lambda: replay(export, "ms"),
    ):
        with pytest.raises(InvalidLog, match="rows were removed from the table"):
            answer()
    assert verify(export).verdict == "broken"


def test_an_edited_reward_in_an_export(export) -> None:
    whole = pq.read_table(export)
    at = whole.column_names.index("reward")
    pq.write_table(whole.set_column(at, "reward", pc.max_element_wise(whole["reward"], 0.5)), export)
    with pytest.raises(InvalidLog, match=r"row \d+: reward: expected 0.0, which the reward events give"):
        evaluate(export, "arm:red", ["ips"])
    found = verify(export)
    assert found.verdict == "broken"
    assert "which the reward events give" in found.problems[0].what


def test_a_declared_selection_of_an_export(export, tmp_path) -> None:
    """A selection has gaps, which its metadata declares."""
    times = pq.read_table(export, columns=["time"])["time"].to_pylist()
    part = read_log(export, since=times[100])
    assert not evaluate(part, "arm:red", ["ips"]).refusals
    write_log(part, tmp_path / "part.parquet")
    again = read_log(tmp_path / "part.parquet")
    assert again.selection == part.selection != read_log(export).selection
    assert not evaluate(again, "arm:red", ["ips"]).refusals
    assert verify(again).verdict != "broken"
    write_log(part, tmp_path / "part.csv")
    assert read_log(tmp_path / "part.csv").selection == part.selection


@pytest.mark.parametrize("p", [0.5, 0.02])
def test_the_live_limit_holds_at_all_times(p) -> None:
    """Of 2,000 logs watched for 5,000 decisions, at most 5% ever exceed the limit for 5%.

    The number of alarms is at most binomial: its mean plus four standard deviations is 0.0695 of the logs.
    The fixed limit, the negative control, is exceeded by far more.
    """
    rng, logs, alpha = np.random.default_rng(8), 2000, 0.05
    total, alarms, fixed = np.zeros(logs), np.zeros(logs, bool), np.zeros(logs, bool)
    for n in range(1, 5001):
        total += (rng.random(logs) < p) - p
        variance = n * p * (1 - p)
        if variance >= 25 and n % 5 == 0:
            z = np.abs(total) / np.sqrt(variance)
            alarms |= z > time_uniform_limit(variance, alpha)
            fixed |= z > -NormalDist().inv_cdf(alpha / 2)
    assert alarms.mean() <= alpha + 4 * np.sqrt(alpha * (1 - alpha) / logs)
    assert fixed.mean() > 3 * alpha


def test_limits() -> None:
    assert Audit.limit_for(3) == pytest.approx(4.2148, abs=1e-4)
    assert Audit.limit_for(3, 1e4) > 1.2 * Audit.limit_for(3)


def test_probabilities_and_rewards_that_depend_on_the_position() -> None:
    """Each position has its own probabilities and its own rewards, which is no fault."""
    rng = np.random.default_rng(7)
    n = 3000
    position = rng.integers(0, 3, n)
    p = np.array([[0.7, 0.3], [0.5, 0.5], [0.2, 0.8]])[position]
    action = (rng.random(n) >= p[:, 0]).astype(int)
    reward = (rng.random(n) < p[np.arange(n), action]).astype(float)
    feedback = {"action": action, "reward": reward, "pscore": p[np.arange(n), action], "position": position}
    report = evaluate(feedback, "uniform", ["ips"], adaptive=False)
    assert report.diagnostics.faults == []
    # Probabilities that were computed with the reward are still found at each position.
    late = feedback | {"pscore": np.where(reward > 0, 0.6, 0.4)}
    assert "computed after the reward" in str(evaluate(late, "uniform", ["ips"], adaptive=False).refusals)
