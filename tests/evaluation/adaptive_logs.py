"""Small logs of a learning policy on Bernoulli arms, for statistical tests: many runs in parallel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Logs(NamedTuple):
    arm: np.ndarray  # [runs, rows]
    reward: np.ndarray  # [runs, rows]
    probabilities: np.ndarray  # [runs, rows, arms]

    def weight(self, target: np.ndarray) -> np.ndarray:
        chosen = np.take_along_axis(self.probabilities, self.arm[..., None], axis=2)[..., 0]
        return np.asarray(target[self.arm] / chosen)

    def propensity(self, target: np.ndarray) -> np.ndarray:
        return np.asarray(1 / (target**2 / self.probabilities).sum(axis=2))


def simulate_logs(
    means: list[float], runs: int, rows: int, seed: int, floor: float, learns: bool = True
) -> Logs:
    """Logs of Maillard sampling (sigma2 = 1/4) with a floor; of uniform sampling if `learns` is false."""
    rng = np.random.default_rng(seed)
    arms = len(means)
    pulls, sums = np.ones((runs, arms)), np.full((runs, arms), 0.5)
    logs = Logs(np.empty((runs, rows), np.int64), np.empty((runs, rows)), np.empty((runs, rows, arms)))
    every = np.arange(runs)
    for t in range(rows):
        average = sums / pulls
        gap = average.max(axis=1, keepdims=True) - average
        probabilities = np.exp(-2 * pulls * gap**2)
        probabilities = (
            (1 - floor) * probabilities / probabilities.sum(axis=1, keepdims=True) + floor / arms
            if learns
            else np.full_like(probabilities, 1 / arms)
        )
        arm = np.minimum((rng.random((runs, 1)) > probabilities.cumsum(axis=1)).sum(axis=1), arms - 1)
        reward = (rng.random(runs) < np.asarray(means)[arm]).astype(float)
        logs.arm[:, t], logs.reward[:, t], logs.probabilities[:, t] = arm, reward, probabilities
        pulls[every, arm] += 1
        sums[every, arm] += reward
    return logs
