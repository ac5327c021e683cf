"""Rounds that are simulated at once have the distribution of rounds that are simulated one by one."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

import maillard
from maillard.problems import Custom, codes, problem
from maillard.simulation import cpu_backend
from maillard.simulation.c_samplers import address_of_sampler, sample_binomial
from maillard.simulation.compiled_plans import compile_plan
from maillard.simulation.engines import lazy_sampled, leader_runs, trial_loop
from maillard.simulation.plans import Plan
from tests.simulation.test_engines import SURE, compare, plan_of

RUNS = 20_000
# Distance above the limit, limit, mean and deviation of a reward, rounds. With the first ones, most paths
# reach the limit; with the last one, about a quarter do.
CASES = [
    (0.5, 0.4, 0.4, 1.0, 6),
    (0.3, 0.5, 0.2, 0.5, 4),
    (2.0, -1.0, -0.9, 0.5, 12),
    (1.0, 0.0, 0.0, 1.0, 1),
]


def one_by_one(above, limit, mean, deviation, rounds, *, rng):
    """The rounds until the sum is below the limit, at most `rounds`, and the sum then: of many runs."""
    rewards = rng.normal(mean, deviation, (RUNS, rounds))
    sums = rewards.cumsum(axis=1)
    below = above + sums - limit * np.arange(1, rounds + 1) < 0
    last = np.where(below.any(axis=1), below.argmax(axis=1), rounds - 1)
    return last + 1.0, sums[np.arange(RUNS), last]


def at_once(case, rng):
    above, limit, mean, deviation, rounds = case
    numbers = rng.standard_normal(RUNS)
    runs = [leader_runs.sample_run(above, limit, mean, deviation, rounds, each, rng) for each in numbers]
    return np.array(runs).T


def p_values(case, seed=1):
    """The p-values for equal numbers of rounds, and for equal sums among the runs of each number."""
    rounds, sums = at_once(case, np.random.default_rng(seed))
    expected_rounds, expected_sums = one_by_one(*case, rng=np.random.default_rng(seed + 1))
    lengths = np.arange(1, case[-1] + 1)
    counts = np.array([[(r == length).sum() for length in lengths] for r in (rounds, expected_rounds)])
    counts = counts[:, counts.sum(axis=0) > 0]
    found = [stats.chi2_contingency(counts).pvalue] if counts.shape[1] > 1 else []
    for length in lengths:
        some, others = sums[rounds == length], expected_sums[expected_rounds == length]
        if min(some.size, others.size) > 100:
            found.append(stats.ks_2samp(some, others).pvalue)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_run_has_the_distribution_of_single_rounds(case) -> None:
    found = p_values(case)
    assert len(found) >= 1
    assert min(found) > SURE


def test_paths_that_come_back_are_not_forgotten(monkeypatch) -> None:
    """Negative control: without the bridge, a path that ends above the limit was never below it."""
    monkeypatch.setattr(leader_runs, "CERTAIN", 0.0)
    assert min(p_values(CASES[0])) < SURE


def test_a_path_is_reflected_where_it_reaches_the_limit(monkeypatch) -> None:
    """Negative control: the end of a path that comes back must be reflected."""
    right = leader_runs.sample_crossing

    def unreflected(begin, end, rounds, rng):
        done, last = right(begin, -abs(end), rounds, rng)
        return (done, last) if done < rounds else (done, end)

    monkeypatch.setattr(leader_runs, "sample_crossing", unreflected)
    assert min(p_values(CASES[0])) < SURE


def test_a_path_rarely_reaches_the_limit() -> None:
    above, deviation = 30.0, 0.7
    rounds = leader_runs.longest_run(above, deviation)
    reached = 2 * stats.norm.sf(above / (deviation * np.sqrt(rounds)))
    assert 1e-6 < reached < 1 / 40_000


@pytest.mark.parametrize("uncertain", [0.2, 0.003])
def test_the_rounds_before_an_uncertain_one_are_geometric(uncertain) -> None:
    rng = np.random.default_rng(3)
    found = np.array([leader_runs.rounds_before(uncertain, rng) for _ in range(RUNS)])
    expected = np.random.default_rng(4).geometric(uncertain, RUNS) - 1.0
    assert stats.ks_2samp(found, expected).pvalue > SURE
    assert leader_runs.rounds_before(0.0, rng) == np.inf


@pytest.mark.parametrize(("above", "limit"), [(3.0, 0.5), (0.7, 0.31), (12.0, 0.999), (0.0, 0.4)])
def test_a_safe_run_of_failures_stays_above_the_limit(above, limit) -> None:
    pulls = 1000
    total, rounds = limit * pulls + above, leader_runs.longest_safe_run(above, limit)
    assert total / (pulls + rounds) >= limit
    assert total / (pulls + rounds + 1.001) < limit  # negative control: one more round is not safe
    assert leader_runs.longest_safe_run(above, -0.1) == leader_runs.longest_safe_run(above, 0.0) == np.inf


@pytest.mark.parametrize("rounds", [1, 7, leader_runs.FEW, leader_runs.FEW + 1, 900])
def test_the_successes_of_a_run_are_binomial(rounds) -> None:
    rng = np.random.default_rng(5)
    binomial, numbers = address_of_sampler(sample_binomial), np.zeros(2)
    counts = np.array([leader_runs.count_successes(0.1, rounds, binomial, numbers, rng) for _ in range(RUNS)])
    found, least = np.bincount(counts.astype(np.int64), minlength=int(rounds) + 1), 10.0
    p_values = []
    for p in (0.1, 0.12):
        expected = RUNS * stats.binom.pmf(np.arange(found.size), rounds, p)
        cells = expected >= least
        seen = [*found[cells], found[~cells].sum()]
        due = [*expected[cells], RUNS - expected[cells].sum()]
        p_values.append(
            stats.chisquare(seen, due).pvalue
            if due[-1] > 1e-6
            else stats.chisquare(seen[:-1], due[:-1]).pvalue
        )
    assert p_values[0] > SURE
    assert p_values[1] < SURE  # negative control


def test_rewards_are_sampled_until_the_mean_is_below_the_limit() -> None:
    """Compared with the mean after each reward, one by one."""
    values, ends = np.array([[0.0, 0.3, 1.0]]), np.array([[0.5, 0.7, 1.0]])
    numbers, stopped = (np.zeros(1), np.zeros(1), values, ends), 0
    for seed in range(300):
        above, limit, rounds = 1.0 + 0.01 * seed, 0.4, 20.0
        done, total = trial_loop.sample_rewards(
            codes.FINITE, 0, *numbers, 0, above, limit, rounds, np.random.default_rng(seed)
        )
        rewards = np.random.default_rng(seed).choice(values[0], 20, p=[0.5, 0.2, 0.3])
        distances = above + rewards.cumsum() - limit * np.arange(1, 21)
        expected = int((distances < 0).argmax()) + 1 if (distances < 0).any() else 20
        assert done == expected
        assert total == pytest.approx(rewards[:expected].sum(), abs=1e-12)
        stopped += expected < 20
    assert 30 < stopped < 270


def test_a_run_has_at_least_one_round() -> None:
    """With a leader's mean at the limit, rounding may make the distance negative; the trial must go on."""
    numbers = np.ones(1), np.zeros(1), np.array([[0.0, 0.3]]), np.array([[0.5, 1.0]])
    rng = np.random.default_rng(1)
    assert trial_loop.sample_rewards(codes.FINITE, 0, *numbers, 0, -1e-17, 0.1, 9.0, rng)[0] >= 1.0


@pytest.mark.parametrize(
    ("policy", "text", "seed"),
    [
        (maillard.policy("boltzmann:eta=200"), "poisson:2,1.5", 839506),  # the leader's mean is at the limit
        (maillard.policy("ms", sigma2=1e-6), "bounded:0.97/0.03,0.97/0.03,values=0/0.9", 0),
        (maillard.policy("ms", sigma2=0.25), "poisson:1.5", 0),  # one arm: there is no limit
    ],
)
def test_trials_go_on_where_the_mean_is_at_the_limit(policy, text, seed) -> None:
    plan = Plan(policy, problem(text), (60,), seed)
    assert (cpu_backend.run_trials(plan, 0, 4000).pulls.sum(axis=1) == 60).all()
    if plan.problem.arms > 1:
        assert min(compare(plan, dataclasses.replace(plan, seed=seed + 1, engine="direct"), 4000)) > SURE


@pytest.mark.parametrize(
    ("text", "sampler"),
    [
        ("bernoulli:0.9,0.1", "count_successes"),
        ("exponential:0.9,0.1", "sample_rewards"),
        (Custom(lambda rng, arm: rng.random() + (arm == 0), means=[1.5, 0.5]), "sample_rewards"),
    ],
)
def test_trials_have_runs(text, sampler, monkeypatch) -> None:
    calls = []
    right = getattr(trial_loop, sampler)

    def counted(*arguments):
        calls.append(arguments)
        return right(*arguments)

    plan = Plan(maillard.policy("ms", sigma2=0.25), problem(text), (400,), 3)
    compiled = compile_plan(plan, trial_loop)
    monkeypatch.setattr(trial_loop, sampler, counted)
    run = trial_loop.build(*lazy_sampled.ENGINE, *lazy_sampled.RUNS, 1)
    monkeypatch.setattr(cpu_backend, "_compiled", lambda _: compiled._replace(run=run, in_python=True))
    made = cpu_backend.run_trials(plan, 0, 1)
    assert made.pulls.sum() == 400
    # The number of rounds of a run is the second of its arguments, or the one before the generator.
    assert sum(each[1] if sampler == "count_successes" else each[-2] for each in calls) > 200


def fails_later(arm: int) -> object:
    """Return a sampler whose reward for an arm is NaN after 100 calls."""
    calls = []

    def sample(rng, each):
        calls.append(each)
        return math.nan if each == arm and len(calls) > 100 else rng.random() + (each == 0)

    return sample


def test_a_sampler_that_fails_in_a_run_is_reported() -> None:
    for arm in (0, 1):
        plan = Plan(
            maillard.policy("ms:floor=0.3", sigma2=0.25),
            Custom(fails_later(arm), means=[1.5, 0.5]),
            (2000,),
            3,
        )
        with pytest.raises(maillard.InvalidValue, match=rf"sampler's reward for arm {arm}: .* got nan"):
            cpu_backend.run_trials(plan, 0, 1)


@pytest.mark.parametrize(
    ("text", "engine", "needed"),
    [
        ("bernoulli:0.9,0.1", None, True),
        ("bernoulli:0.9,0.1", "direct", False),
        ("gaussian:1,0", None, False),
        ("gaussian:1,0,delay=geometric:5", None, True),
    ],
)
def test_only_loops_that_need_the_binomial_generator_compile_it(text, engine, needed, monkeypatch) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(cpu_backend, "address_of_sampler", compiled.append)
    cpu_backend.prepare(plan_of("ms", text, 40, 3, engine))
    assert compiled == [sample_binomial] * needed


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("ms+", "bernoulli:0.9,0.8,0.2"),
        ("ms", "bernoulli:0.6,0.3"),
        ("kl-ms", "bernoulli:0.6,0.5,0.1"),
        ("kl-ms:floor=0.2", "bernoulli:0.6,0.5,0.1"),
        ("ms+", "bernoulli:0.6," + ",".join(["0.3"] * 20)),
        ("ms", "gaussian:1," + ",".join(["0"] * 20) + ",variance=0.25"),
        ("ms", "exponential:1,0.5,0.4"),
        ("ms+:floor=0.2", "poisson:1,0.5,0.4"),
        ("ms", "bounded:0.2/0.3/0.5,0.5/0.3/0.2,values=0/0.5/1"),
        ("ms+", "uniform-noise:0.9,0.6,0.5"),
    ],
)
def test_trials_with_runs_agree_with_the_direct_engine_on_other_problems(spec, text) -> None:
    runs, direct = plan_of(spec, text, 600, 1), plan_of(spec, text, 600, 2, "direct")
    assert min(compare(runs, direct, 3000)) > SURE


@pytest.mark.parametrize("spec", ["ms+", "ms", "ms+:floor=0.2", "ms:floor=0.1/0.05/0", "boltzmann:eta=3"])
def test_trials_with_runs_agree_with_the_direct_engine(spec) -> None:
    text = "gaussian:1,0.9,0.4,variance=0.25"
    runs, direct = plan_of(spec, text, 600, 1), plan_of(spec, text, 600, 2, "direct")
    assert min(compare(runs, direct, 4000)) > SURE


def test_regret_does_not_depend_on_the_checkpoints() -> None:
    policy, text = maillard.policy("ms+", sigma2=0.25), problem("gaussian:1,0.5,0.4,variance=0.25")
    every = cpu_backend.run_trials(Plan(policy, text, tuple(range(1, 401)), 7), 0, 50).regret
    some = cpu_backend.run_trials(Plan(policy, text, (3, 40, 41, 399, 400), 7), 0, 50).regret
    np.testing.assert_array_equal(some, every[:, [2, 39, 40, 398, 399]])
    assert (np.diff(every, axis=1) >= 0).all()
    assert set(np.diff(every, axis=1).round(12).ravel()) == {0.0, 0.5, 0.6}


def test_the_final_tally_counts_every_round() -> None:
    policy, text = maillard.policy("ms+", sigma2=0.25), problem("gaussian:1,0.5,0.4,variance=0.25")
    results = [cpu_backend.run_trials(Plan(policy, text, (5000,), seed), 0, 1) for seed in range(200)]
    for each in results:
        assert each.tally.pulls.sum() == 5000
        assert (each.tally.pulls == each.pulls[0]).all()
    # The leader's mean is unbiased up to what the choices of the first rounds do to it.
    scores = [(each.tally.means[0] - 1) * np.sqrt(each.tally.pulls[0]) / 0.5 for each in results]
    assert abs(np.mean(scores)) < 5 / np.sqrt(200)
    assert 0.7 < np.var(scores) < 1.4
