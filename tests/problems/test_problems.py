"""Problems: their properties, specs that round-trip, and rewards with the stated distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import maillard
from maillard import InvalidValue, UnknownName, problems
from maillard.problems import (
    Batched,
    Bernoulli,
    Bounded,
    Custom,
    DynamicBernoulli,
    Exponential,
    Fixed,
    Gaussian,
    Geometric,
    Poisson,
    UniformNoise,
)

SPECS = [
    *problems.PAPER,
    "gaussian:1,0.5,variance=0.25",
    "gaussian:1,0.5,variance=0.25/2",
    "bernoulli:0.1,0.05",
    "poisson:2,1",
    "exponential:2,1",
    "uniform-noise:0.5,0.4,width=0.1",
    "bounded:0.5/0.5,0.25/0.75,values=0/1",
    "bernoulli-dynamic:a=4,arms=10,b=4,rate=0.001",
    "bernoulli:0.1,0.05,delay='batched:100'",
    "gaussian:1,0.5,epsilon=0.1,threshold=0.7,variance=1",
]


@pytest.mark.parametrize("spec", SPECS)
def test_specs_round_trip(spec) -> None:
    made = problems.problem(spec)
    assert problems.problem(str(made)) == made
    assert made.arms == made.true_means.size == made.gaps.size
    assert made.gaps.min() == 0


def test_the_papers_ten_problems() -> None:
    assert len(set(problems.PAPER)) == 10
    assert problems.problem("gaussian-linear:arms=10").true_means == pytest.approx(np.arange(9, -1, -1) / 10)
    assert problems.problem("bernoulli-equal:arms=100").true_means == pytest.approx([0.1] + [0.05] * 99)
    assert problems.problem("gaussian-equal:arms=2").sigma2 == 0.25
    assert problems.problem("gaussian-linear:arms=100,variance=1").sigma2 == 1


def test_properties_of_rewards() -> None:
    assert Gaussian([1, 2], variance=[1, 4]).sigma2 == 4
    assert Bernoulli([0.5]).support == (0, 1)
    assert Poisson([1, 2]).sigma2 is None
    assert Poisson([1, 2]).support == (0, math.inf)
    assert UniformNoise([1, 2], width=0.5).support == (0.5, 2.5)
    assert UniformNoise([1, 2], width=0.5).sigma2 == 0.25
    assert UniformNoise([1, 2], width=0.5).positive
    bounded = Bounded([[0.5, 0.5, 0], [0, 0.5, 0.5]], values=[-1, 0, 3])
    assert bounded.support == (-1, 3)
    assert bounded.sigma2 == 4
    assert not bounded.binary
    assert Bounded([[0.5, 0.5]], values=[0, 1]).binary
    assert Bounded([[0.5, 0.5], [0.5, 0.5]], values=[[0, 1], [2, 3]]).true_means.tolist() == [0.5, 2.5]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian([1, math.nan]), "means[1]: expected finite numbers"),
        (lambda: Gaussian([]), "means: expected finite numbers"),
        (lambda: Gaussian(["a"]), "means: expected finite numbers"),
        (lambda: Gaussian([1, 2], variance=-1), "variance[0]: expected finite numbers"),
        (lambda: Gaussian([1, 2], variance=[1, 2, 3]), "one for each of 2 arms"),
        (
            lambda: Bernoulli([0.5, 1.5]),
            "means[1]: expected finite numbers, one per arm >= 0 and <= 1, got 1.5",
        ),
        (lambda: Exponential([1, 0]), "means[1]"),
        (lambda: Bounded([[0.5, 0.6]]), "add up to 1"),
        (lambda: Bounded([[0.5, 0.5]], values=[1, 2, 3]), "values: expected 2 finite numbers"),
        (lambda: Custom("no", means=[1]), "sampler: expected a function of (rng, arm)"),
        (lambda: Custom(print, means=[1], limits=(1, 0)), "limits"),
        (lambda: DynamicBernoulli(arms=0), "arms: expected a whole number"),
        (lambda: DynamicBernoulli(rate=2), "rate"),
        (lambda: Bernoulli([0.5], delay="batched:0"), "delay batched: expected a whole number from 1"),
        (lambda: Bernoulli([0.5], delay=1.5), "delay fixed: expected a whole number"),
        (lambda: Bernoulli([0.5], delay=[1]), "delay: expected a Delay, a number of rounds"),
        (lambda: problems.Delay(3), "delay: expected Fixed, Batched or Geometric"),
        (lambda: Custom(print, means=[1], limits=3), "limits"),
        (lambda: problems.problem(None), "problem: expected a Problem or its spec"),
        (lambda: Bernoulli([0.5], threshold=math.inf), "threshold"),
        (lambda: problems.problem("gaussian-equal:arms=10,mean=3"), "unknown name 'mean'"),
        (lambda: problems.problem("bernoulli"), "one value for each arm"),
        (lambda: problems.problem("gaussian-equal:0.5"), "arms=..., no means"),
    ],
)
def test_bad_problems_are_rejected(make, message) -> None:
    with pytest.raises((InvalidValue, UnknownName)) as caught:
        make()
    assert message in str(caught.value)


def test_unknown_names_suggest_the_closest_match() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'bernoulli'"):
        problems.problem("bernouli:0.5")
    with pytest.raises(UnknownName, match="Did you mean 'batched'"):
        problems.problem("bernoulli:0.5,delay=batch:3")


def rewards_of(problem: str, count: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    """Return arms chosen uniformly at random and their rewards."""
    log = maillard.simulate_log("uniform", problem, count, seed=11, probabilities="chosen")
    return log.arms, log.rewards


DISTRIBUTIONS = {
    "gaussian:1,0.5,variance=0.25": [stats.norm(1, 0.5), stats.norm(0.5, 0.5)],
    "exponential:2,0.5": [stats.expon(scale=2), stats.expon(scale=0.5)],
    "uniform-noise:1,2,width=0.25": [stats.uniform(0.75, 0.5), stats.uniform(1.75, 0.5)],
}


@pytest.mark.parametrize("spec", DISTRIBUTIONS)
def test_continuous_rewards_have_their_distribution(spec) -> None:
    arms, rewards = rewards_of(spec)
    for arm, distribution in enumerate(DISTRIBUTIONS[spec]):
        assert stats.kstest(rewards[arms == arm], distribution.cdf).pvalue > 1e-5
        assert stats.kstest(rewards[arms == arm] * 1.1, distribution.cdf).pvalue < 1e-5


DISCRETE: dict[str, list[dict[float, float]]] = {
    "bernoulli:0.1,0.6": [{0: 0.9, 1: 0.1}, {0: 0.4, 1: 0.6}],
    "bounded:0.2/0.3/0.5,0.6/0/0.4,values=0/0.5/2": [{0: 0.2, 0.5: 0.3, 2: 0.5}, {0: 0.6, 2: 0.4}],
    "poisson:2,0.5": [{k: stats.poisson(mean).pmf(k) for k in range(8)} for mean in (2, 0.5)],
}


@pytest.mark.parametrize("spec", DISCRETE)
def test_discrete_rewards_have_their_distribution(spec) -> None:
    arms, rewards = rewards_of(spec)
    for arm, distribution in enumerate(DISCRETE[spec]):
        some = rewards[arms == arm]
        for value, probability in distribution.items():
            seen = np.count_nonzero(some == value)
            assert stats.binomtest(seen, some.size, min(float(probability), 1.0)).pvalue > 1e-5


@pytest.mark.parametrize(
    ("delay", "known"),
    [
        (Fixed(3), lambda t: max(0, t - 3)),
        (Batched(4), lambda t: t - t % 4),
        (Fixed(0), lambda t: t),
        (Batched(1), lambda t: t),
    ],
)
def test_rewards_are_observed_after_their_delay(delay, known) -> None:
    from maillard.simulation.cpu_backend import run_trials
    from maillard.simulation.plans import Plan

    for t in range(1, 30):
        problem = Bernoulli([0.5, 0.5, 0.5], delay=delay)
        tally = run_trials(Plan(maillard.policy("uniform"), problem, (t,), 0), 0, 1).tally
        assert tally.pulls.sum() == known(t)


def test_geometric_delays_have_their_mean_and_memory() -> None:
    from maillard.simulation.cpu_backend import run_trials
    from maillard.simulation.plans import Plan

    plan = Plan(maillard.policy("uniform"), Bernoulli([0.5, 0.5], delay=Geometric(20)), (400,), 0)
    waiting = np.array([400 - run_trials(plan, trial, 1).tally.pulls.sum() for trial in range(3000)])
    # A reward of age k is still delayed with probability (20/21)^(k+1), independently of the others.
    alive = (20 / 21) ** np.arange(1, 401)
    mean, variance = alive.sum(), (alive * (1 - alive)).sum()
    assert abs(waiting.mean() - mean) < 5 * math.sqrt(variance / 3000)
    assert abs(waiting.var() / variance - 1) < 5 * math.sqrt(2 / 3000)


def test_replacement_arms_have_their_distribution() -> None:
    problem = "bernoulli-dynamic:arms=4,rate=0.2,a=2,b=3"
    result = maillard.simulate("uniform", problem, 50, 4000, seed=2)
    means = np.random.default_rng(3).beta(2, 3, (200_000, 4))
    gap = means.max(axis=1).mean() - 0.4  # expected regret per round of uniform choice
    mean, error = result.mean_regret[0, -1], result.standard_error[0, -1]
    assert abs(mean - 50 * gap) < 5 * error + 50 * 0.002
    still = maillard.simulate("ms", "bernoulli-dynamic:arms=4,rate=0,a=2,b=3", 400, 500, seed=2)
    moving = maillard.simulate("ms", "bernoulli-dynamic:arms=4,rate=0.1,a=2,b=3", 400, 500, seed=2)
    assert moving.mean_regret[0, -1] > 1.5 * still.mean_regret[0, -1]


def test_a_threshold_problem_reports_its_loss() -> None:
    problem = "gaussian:0.8,0.7,0.3,0.2,variance=0.25,threshold=0.5,epsilon=0.1"
    result = maillard.simulate(["apt:epsilon=0.1", "uniform", "ms"], problem, 60, 2000, seed=4)
    assert result.measure == "loss"
    assert set(np.unique(result.final_loss)) <= {0.0, 1.0}
    apt, uniform, ms = result.mean_loss[:, -1]
    assert apt < uniform < ms  # policies that minimize regret rarely choose bad arms
    assert result.mean_loss[0, 0] == 1.0  # after one round three arms have no mean, and two of them should
    with pytest.raises(maillard.MaillardError, match="no regret"):
        _ = result.final_regret


def test_a_user_defined_sampler() -> None:
    problem = Custom(lambda rng, arm: rng.choice([0.0, 1.0, 2.0][arm:]), means=[1.0, 1.5, 2.0], limits=(0, 2))
    result = maillard.simulate(["ms", "ts", "ucb1", "phe"][:3], problem, 300, 50, seed=5)
    assert (result.mean_regret[:, -1] < 100).all()
    assert result.pulls[:, :, 2].mean() > 150
    with pytest.raises(InvalidValue, match="kl-ms on the problem"):
        maillard.simulate("kl-ms", problem, 100, 1)
    wild = Custom(lambda rng, arm: float("nan") if arm else 0.0, means=[0.0, 1.0])
    with pytest.raises(InvalidValue, match="sampler's reward for arm 1"):
        maillard.simulate("ms:sigma2=1", wild, 100, 1)
    nothing = Custom(lambda rng, arm: None, means=[0.0, 1.0])
    with pytest.raises(InvalidValue, match=r"reward for arm 0: expected a finite number .*got None"):
        maillard.simulate("ms:sigma2=1", nothing, 100, 1)
    broken = Custom(lambda rng, arm: 1 / 0, means=[0.0, 1.0])
    with pytest.raises(ZeroDivisionError):
        maillard.simulate("ms:sigma2=1", broken, 100, 1)
