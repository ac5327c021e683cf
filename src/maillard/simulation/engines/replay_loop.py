"""The loop that replays a policy on logged rewards instead of a problem.

There are two methods. *Thinned* (rejection sampling): a choice takes the next row of the same arm that is
accepted, with probability `keep` of that row. *Queued*: the j-th pull of an arm takes the j-th logged reward
of the arm.
"""

from __future__ import annotations

from typing import Any

from numba import types

from maillard.simulation.compiling import borrowed, compile_function
from maillard.simulation.engines.trial_loop import N, S, choose_arm

_F8, _I8 = types.float64, types.int64
_NUMBERS, _PLACES, _TABLE = types.Array(_F8, 1, "C"), types.Array(_I8, 1, "C"), types.Array(_F8, 2, "C")
SIGNATURE = _I8(
    _PLACES,  # f: the addresses of parameters and formulas
    _NUMBERS,  # constant probabilities mixed in, cumulative; or empty
    _NUMBERS,  # probabilities mixed in over those, times t^-decay, cumulative; or empty
    _F8,  # decay
    _I8,  # forced: initial rounds that pull the arms in order
    _PLACES,  # thinned: the arm of each row; queued: empty
    _NUMBERS,  # thinned: the acceptance probability of each row; queued: empty
    _NUMBERS,  # the reward of each row; queued: one arm's after the other's
    _PLACES,  # queued: the first reward of each arm, and the end; thinned: empty
    _NUMBERS,  # arm_values: one number per arm
    _PLACES,  # checkpoints, the last of which is the horizon
    _NUMBERS,  # out: the sum of rewards at each
    _NUMBERS,  # out: the sum of arm_values over the chosen arms at each
    _PLACES,  # out: the number of rounds; the arm of a formula that returned an invalid number
    _NUMBERS,  # out: observed pulls
    _NUMBERS,  # out: observed sums
    types.npy_rng,
)


def compile_loop(begin: Any, choose: Any, update: Any) -> Any:
    """Compile the loop with the functions of one engine."""
    return compile_function(build, (begin, choose, update), SIGNATURE)


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
        sums[place:], arm_value_sums[place:] = total, value_sum  # collected when the rows ran out
        ended[0] = t - 1
        observed_pulls[:], observed_sums[:] = table[N, :arms], table[S, :arms]
        return bad

    return run


def next_accepted_row(row_arms: Any, keep: Any, row: int, arm: int, rng: Any) -> int:
    """Return the next row of this arm that is accepted."""
    while row < row_arms.size:
        if row_arms[row] == arm and (keep[row] >= 1.0 or rng.random() < keep[row]):
            return row
        row += 1
    return row
