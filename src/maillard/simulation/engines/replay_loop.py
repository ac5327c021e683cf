"""The loop that plays a policy on logged rewards: a problem's place is taken by the rows of a log.

Two ways to read them. *Thinned*: the policy's choice waits for the next row that has drawn the same arm and passes a coin, which comes up
with probability `keep` of that row. *Queued*: the j-th pull of an arm reads the j-th reward that the log has of it.
"""

from __future__ import annotations

from typing import Any

from numba import types

from maillard.simulation.compiling import borrowed, compile_function
from maillard.simulation.engines.trial_loop import N, S, choose_arm

__all__ = ["build", "compile_loop"]

_F8, _I8 = types.float64, types.int64
_NUMBERS, _PLACES, _TABLE = types.Array(_F8, 1, "C"), types.Array(_I8, 1, "C"), types.Array(_F8, 2, "C")
SIGNATURE = _I8(
    _PLACES,  # f: the addresses of parameters and formulas
    _NUMBERS,  # shares mixed in: where each arm's ends, or nothing
    _NUMBERS,  # shares mixed in over those, times t^-decay: where each arm's ends, or nothing
    _F8,  # decay
    _I8,  # forced: that many rounds pull one arm after the other
    _PLACES,  # thinned: the arm of each row; queued: nothing
    _NUMBERS,  # thinned: with which probability a row is kept; queued: nothing
    _NUMBERS,  # the reward of each row; queued: one arm's after the other's
    _PLACES,  # queued: where each arm's rewards begin, and the last one's end; thinned: nothing
    _NUMBERS,  # marks: a number for each arm
    _PLACES,  # checkpoints, the last of which is the horizon
    _NUMBERS,  # out: the sum of rewards at each
    _NUMBERS,  # out: the sum of the marks of the arms that were played
    _PLACES,  # out: how many rounds there were; the arm of a formula that gave no number
    _NUMBERS,  # out: observed pulls
    _NUMBERS,  # out: observed sums
    types.npy_rng,
)


def compile_loop(begin: Any, choose: Any, update: Any) -> Any:
    """The loop, compiled with the functions of one engine."""
    return compile_function(build, (begin, choose, update), SIGNATURE)


def build(begin: Any, choose: Any, update: Any, fingerprint: int) -> Any:
    """The loop over the functions of one engine."""

    def run(  # type: ignore[no-untyped-def]
        f, shares, fading, decay, forced, drawn, keep, rewards, starts, marks, checkpoints, sums, marked, ended,
        observed_pulls, observed_sums, rng,
    ):  # fmt: skip
        arms, horizon, row, bad = marks.size, checkpoints[-1], fingerprint * 0, 0
        heads, queued = starts.copy(), starts.size > 0
        table = begin(arms)
        w, f, shares, fading = borrowed(table), borrowed(f), borrowed(shares), borrowed(fading)
        drawn, keep, rewards, rng = borrowed(drawn), borrowed(keep), borrowed(rewards), borrowed(rng)
        total, mark, place, t = 0.0, 0.0, 0, 1
        while t <= horizon:
            arm = t - 1 if t <= forced else choose_arm(choose, f, w, arms, shares, fading, decay, t, rng)
            if arm < 0:
                ended[1], bad = -1 - arm, t
                break
            if queued:
                row = heads[arm]
                if row == starts[arm + 1]:
                    break
                heads[arm] += 1
            else:
                row = next_accepted_row(drawn, keep, row, arm, rng)
                if row == drawn.size:
                    break
            reward = rewards[row]
            row += 1
            update(f, w, arms, arm, reward, t + 1)
            total += reward
            mark += marks[arm]
            if t == checkpoints[place]:
                sums[place], marked[place] = total, mark
                place += 1
            t += 1
        sums[place:], marked[place:] = total, mark  # what had been collected when the rows gave out
        ended[0] = t - 1
        observed_pulls[:], observed_sums[:] = table[N, :arms], table[S, :arms]
        return bad

    return run


def next_accepted_row(drawn: Any, keep: Any, row: int, arm: int, rng: Any) -> int:
    """The next row that has drawn this arm and is kept."""
    while row < drawn.size:
        if drawn[row] == arm and (keep[row] >= 1.0 or rng.random() < keep[row]):
            return row
        row += 1
    return row
