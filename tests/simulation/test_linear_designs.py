"""The compiled engine of LinMED on shared models; tests/simulation/test_contexts.py compares its choices."""

from __future__ import annotations

import numpy as np
import pytest

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
