"""A replayed policy has the same distribution as in simulation, and bounds contain the true value."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import maillard
from maillard import Bandit, InvalidValue, MaillardError, Reward, UnknownName
from maillard.decisions.stores.memory import MemoryStore
from maillard.evaluation.replays import Replay, replay
from maillard.evaluation.replays.log_parts import split_rows
from maillard.evaluation.replays.logged_rows import LoggedRows, rows_from_arrays
from maillard.evaluation.replays.replay_intervals import CHOICES, LOGS, PARTS
from maillard.evaluation.replays.replay_methods import ReplayMethod, reliable_rounds
from maillard.policies import Policy
from maillard.problems import problem
from maillard.simulation.log_replay import LoggedRewards, ReplayedRun, replay_trial
from maillard.simulation.plans import make_plan
from tests.stores import Clock

PROBLEM = problem("bernoulli:0.7,0.5,0.4")
TWO = problem("bernoulli:0.6,0.4")
FLOOR = 0.2


def logs_of(policy: str, problem_spec: Any, rounds: int, runs: int, seed: int) -> list[LoggedRows]:
    made = maillard.simulate_log(policy, problem_spec, rounds, seed=seed, runs=runs, probabilities="chosen")
    return [
        rows_from_arrays(log.arms, log.rewards, log.log_probability, arms=problem_spec.arms) for log in made
    ]


@pytest.fixture(scope="module")
def adaptive() -> list[LoggedRows]:
    """Logs of MS+ with a constant floor, without the forced rounds."""
    logs = logs_of(f"ms+:floor={FLOOR}", PROBLEM, 903, 1500, seed=3)
    return [logged.randomized_rows() for logged in logs]


def rows_of(logged: LoggedRows, method: ReplayMethod) -> LoggedRewards:
    (rows,) = split_rows(logged, method, 1, 10**6)
    return rows


def replay_each(
    policy: str, problem_spec: Any, logs: Sequence[LoggedRewards], n: int, marks: Any
) -> list[ReplayedRun]:
    """One replay on each log; the replays are independent because the logs are."""
    plan = make_plan(policy, problem_spec, n, 7)
    return [replay_trial(plan, rows, np.asarray(marks, float), number) for number, rows in enumerate(logs)]


def z_score(sample: Any, reference: Any) -> float:
    sample, reference = np.asarray(sample), np.asarray(reference)
    return float(
        (sample.mean() - reference.mean())
        / np.sqrt(sample.var() / sample.size + reference.var() / reference.size)
    )


def regrets(policy: str, problem_spec: Any, n: int, trials: int = 5_000) -> Any:
    return maillard.simulate(policy, problem_spec, n, trials, seed=9).final_regret[0].round(6)


# Distribution of a replayed policy


@pytest.mark.parametrize("policy", ["kl-ms", "ts-bernoulli", "ucb1"])
def test_rejection_with_a_constant_floor_has_the_distribution_of_a_real_run(policy, adaptive) -> None:
    method = ReplayMethod("rejection", FLOOR / 3)
    n = reliable_rounds(900, method.acceptance_probability)
    each = replay_each(policy, PROBLEM, [rows_of(logged, method) for logged in adaptive], n, PROBLEM.gaps)
    reached = np.array([one.length == n for one in each])
    assert reached.mean() >= 0.99
    regret = np.array([one.arm_value_sums[-1] for one in each])[reached].round(6)
    truth = regrets(policy, PROBLEM, n)
    assert abs(z_score(regret, truth)) < 4
    assert stats.ks_2samp(regret, truth).pvalue > 1e-4
    # Its rewards have the means of the arms that it chose.
    reward = np.array([one.sums[-1] for one in each])[reached]
    assert abs((reward + regret).mean() - 0.7 * n) < 4 * np.sqrt((reward + regret).var() / reward.size)


def replay_as_published(
    policy: Policy, rows: LoggedRows, n: int, accept: Callable[[float], float], seed: int
) -> Any:
    """Replay a policy: in every row it samples an arm.

    If that is the logged arm, the row is accepted with the probability that `accept` returns.
    """
    rng, tally = np.random.default_rng(seed), maillard.Tally.empty(len(rows.arms))
    lost, k = 0.0, len(rows.arms)
    probabilities = np.eye(k)[0]
    for arm, reward, probability in zip(rows.arm, rows.reward, rows.probability, strict=True):
        if probabilities.cumsum().searchsorted(rng.random()) == arm and rng.random() < accept(probability):
            tally.add(int(arm), float(reward))
            done = int(tally.pulls.sum())
            lost += PROBLEM.gaps[arm]
            if done == n:
                return lost
            probabilities = np.eye(k)[done] if done < k else policy.probabilities(tally)
    return np.nan


def test_accepting_every_match_on_an_adaptive_log_is_biased(adaptive) -> None:
    """Negative control: without random rejection the distribution is wrong.

    With rejection, it is that of the compiled replay.
    """
    n, made, truth = 25, maillard.policy("ms", sigma2=0.25), regrets("ms", PROBLEM, 25)
    coin = [replay_as_published(made, adaptive[i], n, lambda p: FLOOR / 3 / p, i) for i in range(250)]
    every = [replay_as_published(made, adaptive[i], n, lambda p: 1.0, i) for i in range(250)]
    assert np.isfinite(coin).mean() > 0.99
    assert np.isfinite(every).all()
    assert abs(z_score(np.array(coin)[np.isfinite(coin)], truth)) < 4
    assert abs(z_score(every, truth)) > 6


def test_matching_on_a_uniform_log_has_the_distribution_of_a_real_run() -> None:
    logs = [each.randomized_rows() for each in logs_of("uniform", PROBLEM, 153, 2000, seed=5)]
    n = reliable_rounds(150, 1 / 3)
    each = replay_each(
        "ms+", PROBLEM, [rows_of(logged, ReplayMethod("matching", 1 / 3)) for logged in logs], n, PROBLEM.gaps
    )
    regret = np.array([one.arm_value_sums[-1] for one in each if one.length == n]).round(6)
    truth = regrets("ms+", PROBLEM, n)
    assert abs(z_score(regret, truth)) < 4
    assert stats.ks_2samp(regret, truth).pvalue > 1e-4


@pytest.mark.parametrize("policy", ["ms+", "ucb1"])
def test_queues_are_exact_to_the_guaranteed_length(policy) -> None:
    """Each arm is logged until it has n rewards, a rule that is fixed in advance."""
    n, rows = 30, []
    for logged in logs_of(f"ms+:floor={FLOOR}", TWO, 600, 1500, seed=8):
        each_had = [np.flatnonzero(logged.arm == arm)[n - 1] for arm in range(2)]
        rows.append(
            rows_of(logged.filter(np.arange(len(logged)) <= max(each_had)), ReplayMethod("queues", 0.0, n))
        )
    each = replay_each(policy, TWO, rows, n, TWO.gaps)
    assert all(one.length == n for one in each)
    regret, truth = np.array([one.arm_value_sums[-1] for one in each]).round(6), regrets(policy, TWO, n)
    assert abs(z_score(regret, truth)) < 4
    assert stats.ks_2samp(regret, truth).pvalue > 1e-4
    reward = np.array([one.sums[-1] for one in each])
    assert abs((reward + regret).mean() - 0.6 * n) < 4 * np.sqrt((reward + regret).var() / reward.size)


@pytest.mark.parametrize(("logger", "policy"), [("ucb1", "ts-bernoulli"), ("ms+:floor=0.1", "ucb1")])
def test_beyond_the_guaranteed_length_bounds_contain_the_truth_and_surviving_replays_are_biased(
    logger, policy
) -> None:
    n, logs = 80, logs_of(logger, TWO, 100 if logger == "ucb1" else 200, 4000, seed=3)
    each = replay_each(
        policy, TWO, [rows_of(logged, ReplayMethod("queues")) for logged in logs], n, [0.0, 0.0]
    )
    truth = 0.6 * n - regrets(policy, TWO, n)
    lengths = np.array([one.length for one in each])
    least = np.array([one.sums[-1] for one in each])
    most = least + (n - lengths)
    assert 0.5 < (lengths == n).mean() < 0.9
    assert z_score(least, truth) < -5
    assert z_score(most, truth) > 5
    # Negative control: the mean over the replays that reached round n is biased.
    assert abs(z_score(least[lengths == n], truth)) > 5


# Parts of a log, and intervals


def test_parts_of_a_log_are_uncorrelated_and_replays_of_the_same_rows_are_not(adaptive) -> None:
    plan = make_plan("ms", PROBLEM, 12, 7)

    def collected(number: int, rows: LoggedRewards) -> float:
        return float(replay_trial(plan, rows, PROBLEM.gaps, number).sums[-1])

    method, size = ReplayMethod("rejection", FLOOR / 3), len(adaptive)
    cut = [list(split_rows(logged, method, 2, 12)) for logged in adaptive]
    apart = np.array([[collected(i, one), collected(i + size, other)] for i, (one, other) in enumerate(cut)])
    assert abs(z_score(apart[:, 0], apart[:, 1])) < 4
    assert abs(np.corrcoef(apart.T)[0, 1]) < 4 / np.sqrt(size)
    queues = [rows_of(logged, ReplayMethod("queues")) for logged in adaptive]
    same = np.array([[collected(i, rows), collected(i + size, rows)] for i, rows in enumerate(queues)])
    assert np.corrcoef(same.T)[0, 1] > 6 / np.sqrt(size)


@pytest.mark.parametrize("kind", [PARTS, LOGS])
def test_intervals_cover_the_expected_reward(kind, adaptive) -> None:
    if kind == LOGS:
        n, floor, groups = 30, FLOOR, [adaptive[first : first + 8] for first in range(0, 960, 8)]
    else:
        n, floor = 16, 0.5
        groups = [[rows] for rows in logs_of(f"ms+:floor={floor}", PROBLEM, 1503, 350, seed=4)]
    truth = (0.7 * n - regrets("ms", PROBLEM, n, 30_000).mean()) / n
    covered = []
    for number, logs in enumerate(groups):
        result = replay(
            logs,
            "ms:sigma2=0.25",
            floor=floor,
            horizon=n,
            replays=5,
            seed=number,
            checkpoints=[n],
            confidence=0.9,
        )
        assert result.interval == kind
        covered.append(result.lower[-1] <= truth <= result.upper[-1])
    # 90%, with a tolerance because Student's t is approximate for few values that are not normal.
    assert stats.binomtest(sum(covered), len(covered), 0.87, alternative="less").pvalue > 1e-3
    assert stats.binomtest(sum(covered), len(covered), 0.93, alternative="greater").pvalue > 1e-3


def test_the_interval_of_one_run_covers_the_mean_of_its_choices(adaptive) -> None:
    """The interval is for the mean reward of the choices that were made.

    Negative control: it covers the expected reward of the policy less often.
    """
    n, groups, expected, own = 36, 600, [], []
    truth = (0.7 * n - regrets("ucb1:scale=0.1", PROBLEM, n).mean()) / n
    method, plan = ReplayMethod("rejection", FLOOR / 3), None
    for group in range(groups):
        result = replay(
            adaptive[group : group + 1],
            "ucb1:scale=0.1,sigma2=0.25",
            floor=FLOOR,
            horizon=n,
            replays=1,
            seed=0,
            checkpoints=[n],
            confidence=0.9,
        )
        assert result.interval == CHOICES
        if not result.reached[-1]:
            continue
        plan = plan or make_plan("ucb1:scale=0.1,sigma2=0.25", PROBLEM, n, 0, [n])
        worth = (
            replay_trial(plan, rows_of(adaptive[group], method), PROBLEM.true_means, 0).arm_value_sums[-1] / n
        )
        own.append(result.lower[-1] <= worth <= result.upper[-1])
        expected.append(result.lower[-1] <= truth <= result.upper[-1])
    assert stats.binomtest(sum(own), len(own), 0.89, alternative="less").pvalue > 1e-3
    assert stats.binomtest(sum(expected), len(own), 0.89, alternative="less").pvalue < 1e-3


# Compiled and plain engines


@pytest.mark.parametrize("policy", ["ms+", "kl-ms"])
@pytest.mark.parametrize("method", ["rejection", "queues"])
def test_compiled_and_plain_replays_are_the_same_bit_by_bit(policy, method, adaptive) -> None:
    for logged in adaptive[:3]:
        rows = rows_of(logged, ReplayMethod(method, FLOOR / 3 * (method == "rejection")))
        compiled, plain = (
            replay_trial(make_plan(policy, PROBLEM, 40, 5, engine=engine), rows, PROBLEM.gaps, 3)
            for engine in ("direct", "plain")
        )
        for one, other in zip(compiled, plain, strict=True):
            assert np.array_equal(one, other)


def test_a_policy_that_cannot_be_compiled_can_be_replayed() -> None:
    log = maillard.simulate_log("uniform", PROBLEM, 300, seed=1)

    class Odd(maillard.MaillardSampling):
        def probabilities(self, tally, **rest):  # type: ignore[override]  # without a context
            return np.array([0.0, 1.0, 0.0])

    result = replay(log, Odd(sigma2=0.25), replays=3, horizon=20)
    assert result.accepted == 20 * result.parts
    maillard.Policy.registry["ms"] = maillard.MaillardSampling


def test_threads_change_nothing() -> None:
    log = maillard.simulate_log("ms+:floor=0.2", PROBLEM, 3000, seed=1)
    one, two = (replay(log, "ms+", replays=9, threads=threads, seed=4) for threads in (1, 2))
    assert np.array_equal(one.lower, two.lower)
    assert not np.array_equal(one.mean, replay(log, "ms+", replays=9, seed=5).mean)


# Choice of the method, and errors


def bandit(policy: str, rounds: int = 800, reward: Reward | None = None, **rest: Any) -> Bandit:
    rng = np.random.default_rng(1)
    made = Bandit(["red", "blue", "green"], policy, reward=reward or Reward(low=0, high=1), **rest)
    means = {"red": 0.3, "blue": 0.6, "green": 0.5}
    for _ in range(4):  # the first batch is chosen uniformly, because no reward was applied yet
        for decision in made.choose(size=rounds // 4):
            made.reward(decision.id, float(rng.random() < means[decision.arm]))
    return made


@pytest.mark.parametrize(
    ("logger", "options", "method", "acceptance_probability"),
    [
        ("ms+:floor=0.3", {}, "rejection", 0.1),
        ("epsilon-greedy:epsilon=0.3", {}, "rejection", 0.1),
        ("ms+:floor=0.3/0.15/0.2", {}, "rejection", 0.15),
        ("ms+:floor=0.3/0.1/0.2", {"arms": ["red", "green"]}, "rejection", 0.2),
        ("uniform", {}, "matching", 1 / 3),
        ("uniform", {"floor": 0.3}, "rejection", 0.1),
        ("ms+:floor=0.3", {"method": "queues"}, "queues", 0),
        ("ms+:floor=0.3", {"guaranteed": 20}, "queues", 0),
        ("dist:red=0.6,blue=0.2,green=0.2", {}, "rejection", 0.2),
        ("ms+:floor=0.9,floor_decay=0.5", {}, "queues", 0),
    ],
)
def test_the_method_follows_from_how_the_log_was_made(
    logger, options, method, acceptance_probability
) -> None:
    result = replay(bandit(logger, 400), "kl-ms", replays=3, **options)
    assert result.method == method
    assert result.acceptance_probability == pytest.approx(acceptance_probability)
    assert isinstance(result, Replay)


def test_errors_give_the_reason_and_the_floor_that_would_help() -> None:
    log = bandit("ms+", 400)
    with pytest.raises(
        MaillardError, match=r"no constant floor.*a log of 400 rows .* floor=0.2 gives about \d+"
    ):
        replay(log, "ms", method="rejection")
    with pytest.raises(MaillardError, match="not uniform"):
        replay(log, "ms", method="matching")
    with pytest.raises(InvalidValue, match=r"row .*: probability: expected at least 0\.3"):
        replay(log, "ms", floor=0.9)
    columns = maillard.read_log(log).to_pandas()
    frame = pd.DataFrame({name: columns[name].tolist() for name in ("arm", "reward", "probability")})
    with pytest.raises(MaillardError, match=r"no method can replay this log: .*reward_range"):
        replay(frame, "ms:sigma2=1")
    assert replay(frame, "ms:sigma2=1", reward_range=(0, 1), replays=2).method == "queues"
    with pytest.raises(InvalidValue, match="reward_range"):
        replay(frame, "ms:sigma2=1", guaranteed=2, horizon=50)
    with pytest.raises(MaillardError, match="too few for a curve"):
        replay(bandit("ms+:floor=0.01", 50), "ms")
    with pytest.raises(MaillardError, match="no decision has a reward"):
        replay(Bandit(["red", "blue"], "ms+:sigma2=1"), "ms:sigma2=1")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"method": "matches"}, InvalidValue, "rejection, matching, queues"),
        ({"floor": 1.5}, InvalidValue, "floor: expected"),
        ({"floor": [0.1, 0.1]}, InvalidValue, "floor: expected"),
        ({"guaranteed": 10**6}, InvalidValue, "the shortest queue"),
        ({"guaranteed": -1}, InvalidValue, "whole number"),
        ({"horizon": 0}, InvalidValue, "horizon"),
        ({"replays": 0}, InvalidValue, "replays"),
        ({"confidence": 95}, InvalidValue, "confidence"),
        ({"reward_range": (1, 0)}, InvalidValue, "reward_range"),
        ({"reward_range": (0, 0.5)}, InvalidValue, "row .*: reward"),
        ({"arms": ["red", "grey"]}, UnknownName, "green"),
        ({"seed": -1}, InvalidValue, "seed"),
    ],
)
def test_bad_arguments(options, error, text) -> None:
    with pytest.raises(error, match=text):
        replay(bandit("ms+:floor=0.3", 200), "ms", **options)


def test_a_policy_must_fit_the_rewards() -> None:
    log = maillard.simulate_log("uniform", "gaussian:1,2", 300, seed=1)
    with pytest.raises(InvalidValue, match="kl-ms"):
        replay(log, "kl-ms")
    with pytest.raises(InvalidValue, match="arms do not change"):
        replay(maillard.simulate_log("uniform", "bernoulli-dynamic:arms=3", 300, seed=1), "ms")
    assert np.isfinite(replay(log, "ms", replays=2).mean).all()


# Rows of decision logs


def test_excluded_rows_are_counted() -> None:
    clock = Clock()
    rule = Reward(low=0, high=1, window=100)
    log = Bandit(["red", "blue"], "ms+:floor=0.5", reward=rule, log=MemoryStore(clock=clock), sticky=True)
    for place in range(300):
        clock.forward(1)
        decision = log.choose(unit=str(place % 200))
        if decision.origin is None and place % 5:
            log.reward(decision.id, 1.0)
    result = replay(log, "ms", replays=2)
    assert result.left_out["repeated"] == 100
    assert result.left_out["without a reward"] + result.left_out["window still open"] >= 40
    assert result.rows < 170


def test_with_retired_arms_only_rows_with_all_arms_eligible_are_used() -> None:
    log = bandit("ms+:floor=0.3", 300)
    log.retire_arm("red")
    for decision in log.choose(size=200):
        log.reward(decision.id, 1.0)
    result = replay(log, "ms", replays=2)
    assert (result.rows, result.left_out["not all arms eligible"]) == (300, 200)
    assert replay(log, "ms", replays=2, arms=["blue", "green"]).rows == 500


def test_targets_are_policies_too() -> None:
    log = bandit("uniform", 3000)
    result = replay(log, "arm:blue", replays=5, confidence=1 - 1e-6)  # the choices of a bandit have no seed
    assert result.policy == "arm:blue"
    assert abs(result.mean[-1] - 0.6) < 5 * np.sqrt(0.24 / result.accepted)
    assert result.lower[-1] < 0.6 < result.upper[-1]


def test_several_logs() -> None:
    logs = maillard.simulate_log("ms+:floor=0.3", TWO, 300, seed=1, runs=6)
    result = replay(logs, "ms", replays=4)
    assert (result.logs, result.interval) == (6, LOGS)
    with pytest.raises(InvalidValue, match="arms: expected"):
        replay([logs[0], maillard.simulate_log("ms+:floor=0.3", PROBLEM, 300, seed=1)], "ms")
    with pytest.raises(InvalidValue, match=r"reward_range.*as in the first log"):
        replay([bandit("uniform", 80), bandit("uniform", 80, Reward(low=0, high=2))], "ms")
    with pytest.raises(InvalidValue, match="at least one log"):
        replay([], "ms")


# The result


def test_the_report_of_a_result() -> None:
    result = replay(bandit("ms+:floor=0.3", 3000), "ms+:booster=16", replays=10)
    assert result.interval == PARTS
    assert result.policy == "ms+:booster=16,sigma2=0.25"
    assert (result.lower <= result.mean).all()
    assert (result.mean <= result.upper).all()
    assert result.reward == pytest.approx(result.mean * result.rounds)
    assert result.reached[0] == 1.0
    text = str(result)
    assert "rejection" in text
    assert "assumes:" in text
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["mean"] == pytest.approx(result.mean.tolist())
    assert result.plot().axes


def test_bounds_are_shown_as_bounds() -> None:
    log = maillard.simulate_log("ms+", PROBLEM, 100, seed=1)
    result = replay(log, "ucb1", method="queues", guaranteed=5, horizon=90, replays=10)
    known = result.rounds <= 5
    assert np.array_equal(np.isnan(result.mean), ~known)
    assert (result.least[known] == result.most[known]).all()
    assert (result.lower <= result.least).all()
    assert (result.most <= result.upper).all()
    assert result.bounded
    assert result.to_dict()["mean"][-1] is None
    assert ".." in str(result)
    assert result.plot().axes
