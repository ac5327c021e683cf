"""The compiled engine of LinMED on shared models has the design and the distribution of the policy."""

from __future__ import annotations

import numpy as np
import pytest

from maillard import LinearTally, policy, problems, simulate
from maillard.policies.numerics.optimal_design import design
from maillard.simulation.engines.linear_designs import design_of
from tests.policies.linear_states import random_rows


def test_the_design_is_that_of_the_policy() -> None:
    for seed in range(80):
        rng = np.random.default_rng(seed)
        d, k = int(rng.integers(1, 7)), int(rng.integers(1, 30))
        x = random_rows(rng, k, d)
        if seed % 3 == 0:  # equal rows, so that residuals tie
            x = x[rng.integers(0, k, k)]
        exponent = -rng.exponential(3, k) * (seed % 2)
        if x.any():
            assert design_of(x, exponent) == pytest.approx(design(x.T * np.exp(0.5 * exponent)), abs=1e-12)
    assert design_of(np.zeros((4, 2)), np.zeros(4)).tolist() == [0.25] * 4
    far = design_of(np.array([[0.0], [0.0], [1.0]]), np.array([0.0, -1.0, -1e6]))
    assert far.tolist() == [0, 0, 1]


ROWS = np.array([[1.0, 0.0], [0.5, 0.75], [-0.25, 1.0], [0.5, -0.5]])
THETA = np.array([0.5, 0.25])
HORIZON, TRIALS = 3, 20_000


def pulls_and_second_moments(spec: str) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the covariance of the pulls of each arm in a trial, over all sequences of arms.

    The noise has variance 0, so the state after a sequence is certain.
    """
    made = policy(spec, sigma2=0.25, centre=0.5)
    mean, square = np.zeros(4), np.zeros((4, 4))

    def visit(tally: LinearTally, pulls: np.ndarray, probability: float) -> None:
        if pulls.sum() == HORIZON:
            mean[:] += probability * pulls
            square[:] += probability * np.outer(pulls, pulls)
            return
        for arm, p in enumerate(made.probabilities(tally, ROWS)):
            after = tally.copy()
            after.add(ROWS[arm], 0.5 + float(ROWS[arm] @ THETA))
            visit(after, pulls + np.eye(4)[arm], probability * p)

    visit(LinearTally.empty(2, None), np.zeros(4), 1.0)
    return mean, square - np.outer(mean, mean)


def z_scores(simulated: str, expected: str) -> np.ndarray:
    problem = problems.Linear(rows=ROWS, coefficients=THETA, model="shared", variance=0.0)
    made = policy(simulated, sigma2=0.25, centre=0.5)
    found = simulate([made], problem, horizon=HORIZON, trials=TRIALS, seed=1).pulls[0].mean(axis=0)
    mean, covariance = pulls_and_second_moments(expected)
    return np.asarray((found - mean) / np.sqrt(np.diagonal(covariance) / TRIALS))


@pytest.mark.parametrize("spec", ["lin-med:emp=0.5,opt=0.4", "lin-med:beta=0.5"])
def test_choices_follow_the_policy(spec) -> None:
    assert np.abs(z_scores(spec, spec)).max() < 4.5  # four tests of 7e-6 each


def test_another_design_is_detected() -> None:
    assert np.abs(z_scores("lin-med:emp=0.5,opt=0.4", "lin-med:emp=0.5,opt=0")).max() > 8
