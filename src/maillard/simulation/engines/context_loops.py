"""The loops over a block of rounds with contexts: linear models, and one table for each segment.

`LINEAR` closes a loop over a function that chooses from mu and s2 (see `linear_choices`). `SEGMENTS` closes
one over the functions of a direct engine, which gets the table of the round's segment. The state of a trial
is in arrays that the caller keeps from block to block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from maillard.simulation.compiling import NUMBERS, PLACES, TABLE, borrowed
from maillard.simulation.engines.reward_sampling import sample_reward
from maillard.simulation.engines.ridge_models import (
    CENTRE,
    INTERVAL,
    IS_SHARED,
    RIDGE,
    USES_GROWTH,
    USES_S2,
    compute_estimates,
    compute_uncertainties,
    multiply_features,
    refactor,
    update_model,
)
from maillard.simulation.engines.trial_loop import sample_mixed_in

DONE, FAILED, SINGULAR = range(3)  # what a loop returns: done; a formula is invalid; V is singular
ROUND, PLACE, ARM = range(3)  # progress: the last round, the next checkpoint; the arm of an invalid formula

_F8, _I8 = types.float64, types.int64
_ROWS = types.Array(_F8, 3, "C")
_POLICY = (
    PLACES,  # f: the addresses of parameters and formulas
    NUMBERS,  # constant probabilities mixed in, cumulative; or empty
    NUMBERS,  # probabilities mixed in over those, times t^-decay, cumulative; or empty
    _F8,  # decay
    _I8,  # forced: initial rounds that pull the arms in order
)
_BLOCK = (
    PLACES,  # the row of means of each round
    TABLE,  # means
    NUMBERS,  # the best mean of each row
    _I8,  # code of the reward distribution
    _I8,  # the address of its sampler, or 0
    NUMBERS,  # its first parameter
    NUMBERS,  # second
    TABLE,  # values of a finite support
    TABLE,  # where each value's probability ends
)
_TRIAL = (
    PLACES,  # progress
    NUMBERS,  # the regret so far
    PLACES,  # checkpoints
    NUMBERS,  # out: regret at each
    PLACES,  # out: pulls of each arm
    types.npy_rng,
)
_LINEAR_SIGNATURE = _I8(
    *_POLICY,
    NUMBERS,  # g: the numbers of a linear policy
    TABLE,  # w: the table of scores
    _ROWS,  # inverses, one matrix per model
    TABLE,  # the same as flat rows
    TABLE,  # Gram matrices
    TABLE,  # coefficients
    TABLE,  # sums of (reward - centre) x
    PLACES,  # updates of each model until it is factored anew
    NUMBERS,  # the growth of all ln det V
    NUMBERS,  # scratch: d * d numbers
    NUMBERS,  # scratch: d numbers
    _ROWS,  # feature rows: contexts x (1 or arms) x features
    PLACES,  # the context of each round
    *_BLOCK,
    *_TRIAL,
)
_SEGMENT_SIGNATURE = _I8(
    *_POLICY,
    _ROWS,  # the table of each segment
    PLACES,  # the number of rewards of each segment
    PLACES,  # the segment of each round
    *_BLOCK,
    *_TRIAL,
)


class Loop(NamedTuple):
    """A loop as `compile_function` takes it."""

    build: Any
    SIGNATURE: Any


def build_linear(choose: Any, fingerprint: int) -> Any:
    """Return the loop of linear policies around a function that chooses an arm."""

    def run(  # type: ignore[no-untyped-def]
        f, constant, decaying, decay, forced, g, w, inverse, flat_inverse, gram, theta, sums, left, growth,
        products, u, rows, row, mean, means, best, code, sampler, first, second, values, ends, progress, lost,
        checkpoints, regret, pulls, rng,
    ):  # fmt: skip
        arms, t, place, total = means.shape[1], progress[ROUND], progress[PLACE], lost[0] + fingerprint * 0
        f, g, w, rows, rng = borrowed(f), borrowed(g), borrowed(w), borrowed(rows), borrowed(rng)
        inverse, flat_inverse, gram = borrowed(inverse), borrowed(flat_inverse), borrowed(gram)
        theta, sums, products, u = borrowed(theta), borrowed(sums), borrowed(products), borrowed(u)
        constant, shared, uses_s2 = borrowed(constant), g[IS_SHARED] > 0.0, g[USES_S2] > 0.0
        decaying, first, second = borrowed(decaying), borrowed(first), borrowed(second)
        values, ends = borrowed(values), borrowed(ends)
        for i in range(row.size):
            t += 1
            x = rows[row[i]]
            arm, multiplied = sample_mixed_in(constant, decaying, decay, t, rng), False
            if arm < 0:
                compute_estimates(g, w, arms, x, theta)
                if uses_s2:
                    compute_uncertainties(g, w, arms, x, inverse, flat_inverse, products)
                multiplied = uses_s2 and not shared
                arm = choose(f, g, w, arms, t, rng, x, inverse, growth[0])
                if arm < 0:
                    progress[ROUND], progress[ARM] = t, -1 - arm
                    return FAILED
            reward = sample_reward(code, sampler, first, second, values, ends, mean[i] * arms + arm, rng)
            pulls[arm] += 1
            total += best[mean[i]] - means[mean[i], arm]
            model, own = (0, arm) if shared else (arm, 0)
            if not multiplied:
                multiply_features(x[own], products)
            s2 = update_model(
                x[own],
                reward - g[CENTRE],
                inverse[model],
                gram[model],
                products,
                theta[model],
                sums[model],
                u,
            )
            if g[USES_GROWTH] > 0.0:
                growth[0] += np.log1p(s2)
            left[model] -= 1
            if left[model] == 0:
                left[model] = int(g[INTERVAL])
                if not refactor(g[RIDGE], inverse[model], gram[model], theta[model], sums[model]):
                    return SINGULAR
            if t == checkpoints[place]:
                regret[place] = total
                place += 1
        progress[ROUND], progress[PLACE], lost[0] = t, place, total
        return DONE

    return run


def build_segments(choose: Any, update: Any, fingerprint: int) -> Any:
    """Return the loop of policies that have a tally for each segment, around the functions of an engine."""

    def run(  # type: ignore[no-untyped-def]
        f, constant, decaying, decay, forced, tables, counts, segment, mean, means, best, code, sampler,
        first, second, values, ends, progress, lost, checkpoints, regret, pulls, rng,
    ):  # fmt: skip
        arms, t, place, total = means.shape[1], progress[ROUND], progress[PLACE], lost[0] + fingerprint * 0
        f, tables, rng, constant = borrowed(f), borrowed(tables), borrowed(rng), borrowed(constant)
        decaying, first, second = borrowed(decaying), borrowed(first), borrowed(second)
        values, ends = borrowed(values), borrowed(ends)
        for i in range(segment.size):
            t += 1
            w, which = tables[segment[i]], segment[i]
            if t <= forced:
                arm = t - 1
            else:
                arm = sample_mixed_in(constant, decaying, decay, counts[which] + 1, rng)
                if arm < 0:
                    arm = choose(f, w, arms, counts[which] + 1, rng)
                if arm < 0:
                    progress[ROUND], progress[ARM] = t, -1 - arm
                    return FAILED
            reward = sample_reward(code, sampler, first, second, values, ends, mean[i] * arms + arm, rng)
            pulls[arm] += 1
            total += best[mean[i]] - means[mean[i], arm]
            counts[which] += 1
            update(f, w, arms, arm, reward, counts[which] + 1)
            if t == checkpoints[place]:
                regret[place] = total
                place += 1
        progress[ROUND], progress[PLACE], lost[0] = t, place, total
        return DONE

    return run


LINEAR, SEGMENTS = Loop(build_linear, _LINEAR_SIGNATURE), Loop(build_segments, _SEGMENT_SIGNATURE)
