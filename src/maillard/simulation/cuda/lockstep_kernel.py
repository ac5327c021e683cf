"""The CUDA kernel for separable indices: all trials are in the same round, and some threads share a trial.

The threads of a trial, its lanes, hold its arms in turn. In single precision, a thread holds of each of its
arms the mean and the width of the index, both in registers, so an index costs one multiplication and addition
with the round's level. The error of that is bounded (see `ROUNDING`). If only one arm can have the largest
index, it is chosen. Otherwise the formula decides between those that can, in double precision, and equal
indices are chosen uniformly. The exact pulls and sums of all arms are in shared memory.

Every lane has its own random numbers. A lane generates two at a time, for two of the next rounds, so that all
lanes of a trial generate numbers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.problems.codes import GAUSSIAN
from maillard.simulation.compiling import call
from maillard.simulation.cuda import cuda_toolkit
from maillard.simulation.cuda.device_random_numbers import normals, seed_stream
from maillard.simulation.cuda.engines.trial_memory import INDEX_MASK, N, S, record_at
from maillard.simulation.cuda.warps import (
    WARP_SIZE,
    any_thread,
    exchange,
    lowest_place,
    read_thread,
    threads_with,
)
from maillard.simulation.engines.random_numbers import uniform

if TYPE_CHECKING:
    from maillard.problems import Problem

cuda = cuda_toolkit.cuda()
MAX_ARMS_PER_THREAD = 13
MAX_REGISTERS = 80
MAX_ARMS = WARP_SIZE * MAX_ARMS_PER_THREAD
THREADS_PER_BLOCK = 128
SAVED_NUMBERS = 2  # per thread, between two launches
# The error of the computed index m + w l is at most 6 times 2^-24 (|m| + |m + w l|): m is rounded twice, and
# w, l, the product and the sum once. The rest covers the rounding of the comparison itself.
ROUNDING = 9.5 * 2.0**-24


def shape_of(arms: int) -> tuple[int, int]:
    """Return the number of threads per trial, a power of two, and of arms per thread."""
    lanes = 1
    while lanes * MAX_ARMS_PER_THREAD < arms:
        lanes *= 2
    return lanes, -(-arms // lanes)


def center_and_slack(problem: Problem) -> tuple[float, np.float32]:
    """Return the number that is subtracted from all means, and a bound on the rounding of double precision.

    The difference of two means is more precise in single precision than the means are.
    """
    means = problem.reward_distribution()[1]
    return float(means.max()), np.float32(2.0**-46 * np.abs(means).max() + 1e-37)


def larger(a: Any, b: Any) -> Any:
    """Return the larger number; a GPU has an instruction for it."""
    return max(a, b)


def largest_of_trial(value: Any, lanes: int) -> Any:
    """Return the largest value of a trial's threads, for single precision."""
    distance = 1
    while distance < lanes:
        value = larger(value, exchange(value, distance))
        distance *= 2
    return value


def largest_index_of_trial(value: float, lanes: int) -> float:
    """Return the largest value of a trial's threads, for double precision."""
    distance = 1
    while distance < lanes:
        value = max(value, exchange(value, distance))
        distance *= 2
    return value


def sum_of_trial(value: float, lanes: int) -> float:
    """Return the sum of the values of a trial's threads, the same in each of them."""
    distance = 1
    while distance < lanes:
        value += exchange(value, distance)
        distance *= 2
    return value


def sum_of_threads_before(value: float, lane: int, lanes: int) -> float:
    """Return the sum of the values of the trial's threads before this one."""
    distance, before, total = 1, 0.0, value
    while distance < lanes:
        other = exchange(total, distance)
        if lane & distance:
            before += other
        total += other
        distance *= 2
    return before


def build(lanes: int, slots: int, threads: int, codes: tuple[int, ...]) -> Any:
    """Return the kernel for so many threads per trial, arms per thread, and threads per block.

    `codes` are the engine's numbers after the parameters: the number of the formula is the first.
    """
    size = slots * threads
    formula, none, zero, rounding = codes[0], np.float32(-np.inf), np.float32(0.0), np.float32(ROUNDING)

    def advance(  # type: ignore[no-untyped-def]
        memory, paused, streams, key, trial, parameters, kind, first, second, gaps, forced, since, until,
        checkpoints, regret, failures, widths, levels, center, slack,
    ):  # fmt: skip
        thread, place = cuda.threadIdx.x, cuda.grid(1)
        row, lane = place // lanes, place % lanes
        start = (thread & (WARP_SIZE - 1)) - lane  # the trial's first thread in the warp
        arms, horizon = first.size & INDEX_MASK, checkpoints[checkpoints.size - 1]
        pulls = cuda.shared.array(
            size, np.int32
        )  # numba's simulator tells shared arrays apart by their lines
        sums = cuda.shared.array(size, np.float64)
        base, width = cuda.local.array(slots, np.float32), cuda.local.array(slots, np.float32)
        index = cuda.local.array(slots, np.float32)
        rng = cuda.local.array(2, np.uint64)
        one = two = 0.0
        checkpoint = 0
        if since == 1:
            seed_stream(rng, key, np.uint64((trial + row) * WARP_SIZE + lane))
        else:
            rng[0], rng[1] = streams[0, place], streams[1, place]
            one, two = paused[place, 0], paused[place, 1]
        arm, at = lane, thread  # a loop that is not unrolled: few rounds run it
        while arm < arms:
            n, s = 0, 0.0
            if since > 1:
                n, s = int(memory[row, record_at(arm) + N]), memory[row, record_at(arm) + S]
            elif arm < horizon:
                n = 1
                if kind == GAUSSIAN:
                    s = first[arm & INDEX_MASK] + second[arm & INDEX_MASK] * normals(rng)[0]
                else:
                    s = 1.0 if uniform(rng) < first[arm & INDEX_MASK] else 0.0
            pulls[at], sums[at] = n, s
            arm, at = arm + lanes, at + threads
        for slot in range(slots):
            n = 0
            if slot * lanes + lane < arms:
                n = pulls[slot * threads + thread]
            base[slot], width[slot] = none, zero
            if n > 0:
                near = np.float32(sums[slot * threads + thread] - n * center) / np.float32(n)
                base[slot], width[slot] = near, widths[n & INDEX_MASK]
        if since == 1:
            lost = 0.0
            for arm in range(min(arms, horizon)):
                lost += gaps[arm & INDEX_MASK]
                if checkpoints[checkpoint & INDEX_MASK] == arm + 1:
                    regret[checkpoint & INDEX_MASK, row] = lost
                    checkpoint = min(checkpoint + 1, checkpoints.size - 1)
        t = max(since, arms + 1)
        while checkpoint < checkpoints.size - 1 and checkpoints[checkpoint & INDEX_MASK] < t:
            checkpoint += 1
        following, due, margin, resumed = levels[min(t, horizon)], checkpoints[checkpoint], zero, True
        while t <= until:
            level = following
            following = levels[t + 1]
            turn = (t - arms - 1) & (2 * lanes - 1)
            if turn == 0:
                if kind == GAUSSIAN:
                    one, two = normals(rng)
                else:
                    one, two = uniform(rng), uniform(rng)
            if turn == 0 or resumed:
                margin, resumed = zero, False
                for slot in range(slots):
                    margin = larger(margin, abs(base[slot]) if base[slot] > none else zero)
                margin = margin * rounding + slack
            # `low`: no larger than the largest exact index. An arm whose index is below it by more than the
            # error of both cannot win.
            top = none
            for slot in range(slots):
                index[slot] = base[slot] + level * width[slot]
                top = larger(top, index[slot])
            low = largest_of_trial(top - rounding * abs(top) - margin, lanes)
            low -= margin
            low -= rounding * abs(low)
            bits = 0
            for slot in range(slots):
                if not index[slot] < low:
                    bits |= 1 << slot
            chosen = bits != 0
            several = (bits & (bits - 1)) != 0
            if lanes > 1:
                holders = (threads_with(chosen) >> start) & ((1 << lanes) - 1)
                several = several or (holders & (holders - 1)) != 0
            slot = lowest_place(bits)
            if any_thread(several):
                best, ties = -np.inf, 0.0
                while bits != 0:
                    each = lowest_place(bits)
                    bits &= bits - 1
                    at = each * threads + thread
                    count = float(pulls[at])
                    if count > 0.0:
                        own = sums[at] / count
                        value = call(formula, parameters, count, own, np.nan, float(t), float(arms))
                        if value > best:
                            best, slot, ties = value, each, 1.0
                        elif value == best:
                            ties += 1.0
                            if uniform(rng) * ties < 1.0:
                                slot = each
                if best < largest_index_of_trial(best, lanes):
                    ties = 0.0
                total = sum_of_trial(ties, lanes)
                before = sum_of_threads_before(ties, lane, lanes)
                pick = 0.0
                if lane == 0 and total > 1.0:  # a draw only if this trial needs one
                    pick = uniform(rng) * total
                if lanes > 1:
                    pick = read_thread(pick, start)
                chosen = before <= pick < before + ties
                if total == 0.0:
                    failures[row] = t
            number = one if turn < lanes else two
            if lanes > 1:
                number = read_thread(number, start + (turn & (lanes - 1)))
            if chosen:
                arm, at = slot * lanes + lane, slot * threads + thread
                n, s = pulls[at] + 1, sums[at]
                if kind == GAUSSIAN:
                    s += first[arm & INDEX_MASK] + second[arm & INDEX_MASK] * number
                elif number < first[arm & INDEX_MASK]:
                    s += 1.0
                pulls[at], sums[at] = n, s
                near, wide = np.float32(s - n * center) / np.float32(n), widths[n & INDEX_MASK]
                margin = larger(margin, rounding * abs(near) + slack)
                for each in range(slots):  # branches would move both arrays out of the registers
                    base[each] = near if each == slot else base[each]
                    width[each] = wide if each == slot else width[each]
            if t == due:
                lost, arm, at = 0.0, lane, thread
                while arm < arms:
                    lost += pulls[at] * gaps[arm & INDEX_MASK]
                    arm, at = arm + lanes, at + threads
                regret[checkpoint & INDEX_MASK, row] = sum_of_trial(lost, lanes)
                checkpoint = min(checkpoint + 1, checkpoints.size - 1)
                due = checkpoints[checkpoint & INDEX_MASK]
            t += 1
        arm, at = lane, thread
        while arm < arms:
            memory[row, record_at(arm) + N], memory[row, record_at(arm) + S] = pulls[at], sums[at]
            arm, at = arm + lanes, at + threads
        streams[0, place], streams[1, place] = rng[0], rng[1]
        paused[place, 0], paused[place, 1] = one, two

    return advance
