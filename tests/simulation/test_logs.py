"""Simulated logs: arms are sampled from the logged probabilities, which are those of the policy."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

import maillard
from maillard import InvalidValue, Tally, problems
from tests.conftest import NAMES

PROBLEM = "bernoulli:0.5,0.45,0.4"
SPECS = [
    *[name for name in NAMES if name != "dmed"],
    "ms+:floor=0.2",
    "ts:floor=0.1/0/0.2",
    "epsilon-greedy:floor=0.1",
    "arm:1",
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("problem", [PROBLEM, PROBLEM + ",delay=batched:7", PROBLEM + ",delay=5"])
def test_logged_probabilities_are_the_policys_own(spec, problem) -> None:
    log = maillard.simulate_log(spec, problem, 40, seed=3)
    policy = maillard.policy(spec, sigma2=0.25, horizon=40)
    tally, waiting = Tally.empty(3), []
    delay = problems.problem(problem).delay
    for t in range(40):
        if t >= log.forced:
            exact = policy.distribution(tally)
            gap = np.abs(np.exp(log.log_probabilities[t]) - np.exp(exact.log_probabilities))
            assert (gap <= 1e-12 + np.exp(exact.log_probabilities) * exact.error).all()
        waiting.append((int(log.arms[t]), float(log.rewards[t])))
        if delay is None:
            ready = len(waiting)
        elif isinstance(delay, problems.Batched):
            ready = len(waiting) if (t + 1) % 7 == 0 else 0
        else:
            ready = 1 if len(waiting) > 5 else 0
        for arm, reward in waiting[:ready]:
            tally.add(arm, reward)
        del waiting[:ready]
    assert log.log_probability == pytest.approx(log.log_probabilities[np.arange(40), log.arms])
    assert log.forced == (0 if getattr(policy, "has_prior", False) or "arm" in spec else 3)
    assert (log.log_probability[: log.forced] == 0).all()


@pytest.mark.parametrize("spec", ["ms", "ms+:floor=0.2", "kl-ucb", "ts"])
def test_arms_are_sampled_from_the_logged_probabilities(spec) -> None:
    """Σ 1[arm = a] / p(a) - 1 has mean 0 if arms are sampled from p, for any policy."""
    runs = 150 if spec == "ts" else 2000
    logs = maillard.simulate_log(spec, PROBLEM, 30, seed=5, runs=runs)
    chosen = np.array([log.arms == 1 for log in logs])[:, 3:]
    p = np.exp(np.array([log.log_probabilities[:, 1] for log in logs]))[:, 3:]
    excess, variance = (chosen - p).sum(axis=1), (p * (1 - p)).sum()
    assert abs(excess.sum()) < 4.5 * max(np.sqrt(variance), 1e-9)
    if spec != "kl-ucb" and variance > 100:
        shifted = np.clip(p * 1.2, 0, 1)
        assert abs((chosen - shifted).sum()) > 4.5 * np.sqrt(variance)


def test_a_log_is_a_trial_like_any_other() -> None:
    """The distribution of `simulate`, with other random numbers."""
    logs = maillard.simulate_log("ms+", PROBLEM, 200, seed=5, runs=500, probabilities="chosen")
    pulls = np.array([np.bincount(log.arms, minlength=3) for log in logs])
    result = maillard.simulate("ms+", PROBLEM, 200, 500, seed=6)
    for arm in range(3):
        assert stats.ks_2samp(pulls[:, arm], result.pulls[0, :, arm]).pvalue > 1e-6
    assert logs[0].log_probabilities is None


def test_dmed_logs_its_deterministic_choices() -> None:
    log = maillard.simulate_log("dmed", PROBLEM, 50, seed=1)
    assert (log.log_probability == 0).all()


def test_runs_are_the_same_on_every_executor(tmp_path) -> None:
    one = maillard.simulate_log("ms", PROBLEM, 100, seed=2)
    several = maillard.simulate_log("ms", PROBLEM, 100, seed=2, runs=5, threads=2)
    assert np.array_equal(one.arms, several[0].arms)
    assert np.array_equal(one.log_probabilities, several[0].log_probabilities)
    assert not np.array_equal(several[0].arms, several[1].arms)
    assert maillard.simulate_log("ms", PROBLEM, 100, seed=2, runs=5, path=tmp_path / "log.parquet") == []
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "log.parquet")
    assert table.column_names == ["run", "round", "arm", "reward", "log_probability", "log_probabilities"]
    assert table["arm"].to_numpy()[200:300].tolist() == several[2].arms.tolist()
    assert table["log_probabilities"][450].as_py() == several[4].log_probabilities[50].tolist()
    provenance = json.loads(table.schema.metadata[b"maillard"])
    assert provenance["policy"] == "ms:sigma2=0.25"
    assert provenance["forced"] == 3
    one.to_parquet(tmp_path / "one.parquet")
    assert pq.read_table(tmp_path / "one.parquet").num_rows == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.parquet", "one.parquet"]


class Own(maillard.Policy):
    """Computes all probabilities without formulas."""

    probability_kind = "closed form"

    def _solve(self, n, s, t):
        return np.log(np.arange(1, n.size + 1) / (n.size * (n.size + 1) / 2)), None


def test_a_floor_is_in_the_log_of_any_policy() -> None:
    log = maillard.simulate_log(maillard.WithFloor(Own(), 0.3), PROBLEM, 10, seed=1)
    assert np.exp(log.log_probabilities[5]) == pytest.approx(0.7 * np.array([1, 2, 3]) / 6 + 0.1)


def test_an_interrupt_in_a_sampler_is_not_lost() -> None:
    def stop(rng, arm):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        maillard.simulate_log("ms:sigma2=1", problems.Custom(stop, means=[0.0, 1.0]), 20)


def test_bad_input_is_rejected(tmp_path) -> None:
    with pytest.raises(InvalidValue, match="probabilities: expected all or chosen"):
        maillard.simulate_log("ms", PROBLEM, 10, probabilities="some")
    with pytest.raises(InvalidValue, match="runs: expected a whole number"):
        maillard.simulate_log("ms", PROBLEM, 10, runs=0)
    with pytest.raises(InvalidValue, match=r"ends in \.parquet"):
        maillard.simulate_log("ms", PROBLEM, 10, runs=1, path=tmp_path / "log.csv")
    with pytest.raises(InvalidValue, match="horizon"):
        maillard.simulate_log("ms", PROBLEM, 0)
    with pytest.raises(InvalidValue, match="seed"):
        maillard.simulate_log("ms", PROBLEM, 10, seed=-1)
    with pytest.raises(InvalidValue, match="a folder that exists"):
        maillard.simulate_log("ms", PROBLEM, 10, runs=1, path=tmp_path / "none" / "log.parquet")
