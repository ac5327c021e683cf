"""The loop that records a run: in each round, the distribution, the arm sampled from it, and its reward."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from maillard.problems.codes import NO_DELAY
from maillard.simulation.compiling import NUMBERS, PLACES, TABLE, borrowed
from maillard.simulation.engines import trial_loop
from maillard.simulation.engines.direct_engines import LOG, PROBABILITY, begin, sample_arm
from maillard.simulation.engines.reward_sampling import sample_reward
from maillard.simulation.engines.trial_loop import (
    copy_tally,
    make_queue,
    queue_reward,
    replace_arm,
    sample_new_means,
)

# Out: arms, rewards, the log probability of the chosen arm, those of every arm (or empty), final pulls and
# sums. Then the random numbers. The probabilities mixed in are not cumulative.
_OUT = (PLACES, NUMBERS, NUMBERS, TABLE, NUMBERS, NUMBERS)
SIGNATURE = types.int64(*trial_loop.POLICY, *trial_loop.PROBLEM, *_OUT, types.npy_rng)


def build(compute: Any, update: Any, fingerprint: int) -> Any:
    """Return the loop around `compute(f, w, arms, t)`, which fills in the (log) probabilities."""

    def run(  # type: ignore[no-untyped-def]
        f, constant, decaying, decay, forced, code, sampler, first, second, values, ends, true_means,
        delay_code, delay, churn, binomial, numbers, beta, chosen, rewards, logs, all_logs,
        observed_pulls, observed_sums, rng,
    ):  # fmt: skip
        arms, observed, since = first.size, fingerprint * 0, np.zeros(first.size, np.int64)
        table, queue = begin(arms), make_queue(delay_code, min(delay, float(chosen.size)))
        w, f, rng = borrowed(table), borrowed(f), borrowed(rng)
        sample_new_means(first, true_means, churn, beta, rng)
        for t in range(1, chosen.size + 1):
            if t <= forced:
                arm = t - 1
                w[PROBABILITY], w[LOG] = 0.0, -np.inf
                w[PROBABILITY, arm], w[LOG, arm] = 1.0, 0.0
            else:
                bad = compute(f, w, arms, observed + 1)
                if bad < 0:
                    chosen[0] = -1 - bad
                    copy_tally(table, arms, observed_pulls, observed_sums)
                    return t
                mix_in(w, arms, constant, 1.0)
                mix_in(w, arms, decaying, float(observed + 1) ** -decay)
                arm = sample_arm(w, arms, rng)
            reward = sample_reward(code, sampler, first, second, values, ends, arm, rng)
            if np.isnan(reward):  # the user's sampler failed
                return t
            chosen[t - 1], rewards[t - 1], logs[t - 1] = arm, reward, w[LOG, arm]
            for each in range(arms if all_logs.size else 0):
                all_logs[t - 1, each] = w[LOG, each]
            if delay_code == NO_DELAY:
                observed += 1
                update(f, w, arms, arm, reward, observed + 1)
            else:
                observed = queue_reward(
                    update, f, w, arms, queue, since, arm, reward, t, observed, delay_code, delay,
                    binomial, numbers, rng,
                )  # fmt: skip
            replace_arm(w, first, true_means, since, churn, beta, arm, t, rng)
        copy_tally(table, arms, observed_pulls, observed_sums)
        return 0 * table.size  # keeps the table alive until here

    return run


def mix_in(w: Any, arms: int, constant: Any, scale: float) -> None:
    """Mix probabilities, times a scale, into the table's, as `WithFloor` does."""
    if not constant.size:
        return
    rest = max(0.0, 1.0 - scale * constant.sum())
    for arm in range(arms):
        w[PROBABILITY, arm] = rest * w[PROBABILITY, arm] + scale * constant[arm]
        if constant[arm] > 0.0:
            w[LOG, arm] = np.log(w[PROBABILITY, arm])
        elif w[LOG, arm] > -np.inf:
            w[LOG, arm] += np.log(rest)
