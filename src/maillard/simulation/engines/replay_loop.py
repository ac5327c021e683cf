"""The loop that replays a policy on logged rewards instead of a problem.

There are two methods. *Thinned* (rejection sampling): a choice takes the next row of the same arm that is
accepted, with probability `keep` of that row. *Queued*: the j-th pull of an arm takes the j-th logged reward
of the arm.
"""

from __future__ import annotations

from typing import Any

from numba import types

from maillard.simulation.compiling import NUMBERS, PLACES, borrowed
from maillard.simulation.engines.trial_loop import POLICY, choose_arm, copy_tally

SIGNATURE = types.int64(
    *POLICY,
    PLACES,  # thinned: the arm of each row; queued: empty
    NUMBERS,  # thinned: the acceptance probability of each row; queued: empty
    NUMBERS,  # the reward of each row; queued: one arm's after the other's
    PLACES,  # queued: the first reward of each arm, and the end; thinned: empty
    NUMBERS,  # arm_values: one number per arm
    PLACES,  # checkpoints, the last of which is the horizon
    NUMBERS,  # out: the sum of rewards at each
    NUMBERS,  # out: the sum of arm_values over the chosen arms at each
    PLACES,  # out: the number of rounds; the arm of a formula that returned an invalid number
    NUMBERS,  # out: observed pulls
    NUMBERS,  # out: observed sums
    types.npy_rng,
)


def build(begin: Any, choose: Any, update: Any, fingerprint: int) -> Any:
    """Return the loop around the functions of one engine."""

    def run(  # type: ignore[no-untyped-def]
        f, constant, decaying, decay, forced, row_arms, keep, rewards, starts, arm_values, checkpoints, sums,
        arm_value_sums, ended, observed_pulls, observed_sums, rng,
    ):  # fmt: skip
        arms, horizon, row, bad = arm_values.size, checkpoints[-1], fingerprint * 0, 0
        heads, queued = starts.copy(), starts.size > 0
        table = begin(arms)
        w, f, constant, decaying = borrowed(table), borrowed(f), borrowed(constant), borrowed(decaying)
        row_arms, keep, rewards, rng = borrowed(row_arms), borrowed(keep), borrowed(rewards), borrowed(rng)
        total, value_sum, place, t = 0.0, 0.0, 0, 1
        while t <= horizon:
            arm = t - 1 if t <= forced else choose_arm(choose, f, w, arms, constant, decaying, decay, t, rng)
            if arm < 0:
                ended[1], bad = -1 - arm, t
                break
            if queued:
                row = heads[arm]
                if row == starts[arm + 1]:
                    break
                heads[arm] += 1
            else:
                row = next_accepted_row(row_arms, keep, row, arm, rng)
                if row == row_arms.size:
                    break
            reward = rewards[row]
            row += 1
            update(f, w, arms, arm, reward, t + 1)
            total += reward
            value_sum += arm_values[arm]
            if t == checkpoints[place]:
                sums[place], arm_value_sums[place] = total, value_sum
                place += 1
            t += 1
        for later in range(place, sums.size):  # collected when the rows ran out
            sums[later], arm_value_sums[later] = total, value_sum
        ended[0] = t - 1
        copy_tally(table, arms, observed_pulls, observed_sums)
        return bad

    return run


def next_accepted_row(row_arms: Any, keep: Any, row: int, arm: int, rng: Any) -> int:
    """Return the next row of this arm that is accepted."""
    while row < row_arms.size:
        if row_arms[row] == arm and (keep[row] >= 1.0 or rng.random() < keep[row]):
            return row
        row += 1
    return row
