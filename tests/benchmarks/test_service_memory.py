"""The growth of the memory that the benchmark of the service reports."""

from __future__ import annotations

import pytest

from benchmarks.service import fitted_growth


def test_growth_is_that_of_a_line_through_the_samples() -> None:
    noise = [2, -1, -3, 1, 0, 1, -3, -1, 4]  # as large as the limit, and without a trend of its own
    trend = sum((place - 4) * each for place, each in enumerate(noise))
    noise[-1] -= trend / 4
    for growth in (0.0, 0.02, 0.1):
        samples = [100 + 100 * growth * place / 8 for place in range(9)]
        assert fitted_growth(samples) == pytest.approx(growth)
        mean = sum(noise) / 9
        noisy = [sample + each - mean for sample, each in zip(samples, noise, strict=True)]
        assert fitted_growth(noisy) == pytest.approx(growth, abs=0.001)
    assert fitted_growth([100, 100, 110]) > 0.02  # a leak is seen
