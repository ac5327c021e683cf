"""The CUDA kernel: every thread runs one trial, and the threads of a warp do rare work together.

A thread runs rounds on its own while its leader wins at once. Otherwise it waits until enough threads of its
warp wait, or none can continue; then they choose and update in step. The most expensive work, rebuilding all
bounds, waits for a second such group. So the threads of a warp are in different rounds. The grouping affects
the cost of a round, never the trial, which depends on its seed and number only.

An engine has six functions. All take the numbers in registers `x`, the memory `w`, the number of arms, and
the block size of the arms as a shift. `begin` runs after every arm's first reward. `try_leader` returns
whether the leader is chosen at once. `keeps_leader` returns whether the leader's new reward leaves all bounds
valid. `choose_arm` returns an arm, -1 to sample again, or -2 if a formula returned an invalid number.
`update` returns what to rebuild afterwards (REBUILD_ALL waits). `rebuild` does that, and returns for how many
rounds the result is valid, or 0 if a formula returned an invalid number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.problems.codes import GAUSSIAN
from maillard.simulation.cuda import cuda_toolkit
from maillard.simulation.cuda.device_random_numbers import normals, seed_stream
from maillard.simulation.cuda.engines.trial_memory import (
    COUNT,
    INDEX_MASK,
    LEADER,
    OTHERS_REGRET,
    REBUILD_ALL,
    SUM,
    N,
    S,
    load_leader,
    record_at,
    save_leader,
)
from maillard.simulation.cuda.warps import FULL_WARP, sync_warp
from maillard.simulation.engines.leader_runs import longest_run, rounds_before, sample_run
from maillard.simulation.engines.random_numbers import normal, uniform

cuda = cuda_toolkit.cuda()
REGISTERS = 8
SAVED_NUMBERS = REGISTERS + 4  # per thread, between two launches
RUNNING, NEEDS_CHOICE, NEEDS_UPDATE, NEEDS_REBUILD_ALL, NEEDS_REBUILD, DONE = range(6)  # states of a thread


def count_in_warp(yes: bool) -> int:
    """Return the number of threads of the warp for which this is true."""
    return cuda.popc(cuda.ballot_sync(FULL_WARP, yes))


def record_regret(
    regret: Any, thread: int, checkpoints: Any, place: int, t: int, x: Any, w: Any, gap: float
) -> int:
    """Record a trial's regret at its checkpoints before round t; return the place of the next checkpoint.

    After each of these checkpoints, the leader, whose gap is given, won all rounds.
    """
    while place < checkpoints.size and checkpoints[place & INDEX_MASK] < t:
        since = t - 1 - checkpoints[place & INDEX_MASK]
        regret[place & INDEX_MASK, thread] = w[OTHERS_REGRET] + gap * (x[COUNT] - since)
        place += 1
    return place


def sample_reward(kind: int, first: Any, second: Any, arm: int, rng: Any) -> float:
    """Sample one reward of an arm."""
    if kind == GAUSSIAN:
        return first[arm & INDEX_MASK] + second[arm & INDEX_MASK] * normal(rng)
    return 1.0 if uniform(rng) < first[arm & INDEX_MASK] else 0.0


def sample_mixed_in(cumulative: Any, total: float, rng: Any) -> int:
    """Sample an arm from cumulative mixed-in probabilities; return -1 for the policy's own choice."""
    u = uniform(rng) * total
    arm = 0
    while arm < cumulative.size and u >= cumulative[arm & INDEX_MASK]:
        arm += 1
    return arm if arm < cumulative.size else -1


def no_number(x: Any) -> float:
    """Stand for a function of `runs` where there are none."""
    return 0.0


def no_position(x: Any, rng: Any) -> None:
    """Stand for a function of `runs` where there are none."""


def build(
    engine: Any, runs: Any, codes: tuple[int, ...], scores: bool, has_constant: bool, has_decaying: bool
) -> Any:
    """Return the kernel around an engine.

    `scores`: `try_leader` needs a normal number. `has_constant`, `has_decaying`: whether constant or decaying
    probabilities are mixed in. `runs`: None, or three functions of an engine that simulates many rounds at
    once, for normal rewards (see `leader_runs`). They return the probability that a round is uncertain and
    the limit of the leader's mean, and sample what `choose_arm` needs in an uncertain round.
    """
    begin, try_leader, keeps_leader, choose_arm, update, rebuild = engine
    uncertain_probability, limit_of, begin_uncertain = runs or (no_number, no_number, no_position)
    has_runs = runs is not None

    def advance(  # type: ignore[no-untyped-def]
        memory, paused, streams, key, trial, parameters, kind, first, second, gaps, forced, since, until,
        checkpoints, regret, failures, constant, decaying, decay, shift, enough, many, pairs,
    ):  # fmt: skip
        thread = cuda.grid(1)
        w, kept = memory[thread], paused[thread]
        rng = cuda.local.array(2, np.uint64)
        x = cuda.local.array(REGISTERS, np.float64)
        f = (parameters, *codes)
        arms, horizon = first.size & INDEX_MASK, checkpoints[checkpoints.size - 1]
        t, place, left, arm, floor_sampled = since, 0, 0, -1, False
        state, what, spare = NEEDS_REBUILD_ALL, REBUILD_ALL, 0.0
        if since == 1:
            seed_stream(rng, key, np.uint64(trial + thread))
            lost = 0.0
            for each in range(arms):
                at = record_at(each)
                w[at + N], w[at + S] = 0.0, 0.0
                if each < forced and t <= horizon:
                    w[at + N], w[at + S] = 1.0, sample_reward(kind, first, second, each, rng)
                    lost += gaps[each & INDEX_MASK]
                    if t == checkpoints[place & INDEX_MASK]:
                        regret[place & INDEX_MASK, thread] = lost
                        place += 1
                    t += 1
            load_leader(x, w, 0)
            if t > horizon:
                state = DONE
            else:
                begin(f, x, w, arms, shift, t)
            w[OTHERS_REGRET] = lost - x[COUNT] * gaps[int(x[LEADER]) & INDEX_MASK]
        else:
            rng[0], rng[1] = streams[0, thread], streams[1, thread]
            for each in range(REGISTERS):
                x[each] = kept[each]
            t, left, place = int(kept[REGISTERS]), int(kept[REGISTERS + 1]), int(kept[REGISTERS + 2])
            floor_sampled = kept[REGISTERS + 3] > 0.0
            state = DONE if t > horizon or failures[thread] > 0 else RUNNING
        lead = int(x[LEADER])
        mean, deviation, gap = first[lead & INDEX_MASK], second[lead & INDEX_MASK], gaps[lead & INDEX_MASK]
        while True:
            going = state == RUNNING and t <= until
            busy = count_in_warp(going or NEEDS_CHOICE <= state <= NEEDS_REBUILD_ALL)
            if busy == 0:
                break
            holding = count_in_warp(state == NEEDS_REBUILD_ALL)
            rebuilding = holding >= many or holding == busy
            if has_runs:
                if going:
                    rivals, limit, most, before = uncertain_probability(x), limit_of(x), 1.0, np.inf
                    above, mixed = x[SUM] - limit * x[COUNT], 0.0
                    if not floor_sampled:  # else one more try of the policy in the same round
                        mixed = constant[constant.size - 1] if has_constant else 0.0
                        if pairs > 0:
                            most = max(min(longest_run(above, deviation), float(left)), 1.0)
                    before = rounds_before(rivals + mixed * (1.0 - rivals), rng)
                    one, spare = normals(rng)  # the second is for the reward of the arm that is chosen next
                    done, total = sample_run(above, limit, mean, deviation, min(before, most), one, rng)
                    x[COUNT] += done
                    x[SUM] += total
                    t += int(done)
                    left -= int(done)
                    place = record_regret(regret, thread, checkpoints, place, t, x, w, gap)
                    if done > 0.0:
                        floor_sampled = False
                    if done > 0.0 and (not keeps_leader(f, x) or left <= 0):
                        state = NEEDS_UPDATE
                    elif done == before and before < most:
                        state, arm = NEEDS_CHOICE, -1
                        if has_constant and not floor_sampled:
                            mixed = constant[constant.size - 1]
                            arm = sample_mixed_in(constant, mixed + (1.0 - mixed) * rivals, rng)
                        floor_sampled = has_constant
                        begin_uncertain(x, rng)
            else:
                for _ in range(max(pairs, 1)):
                    sync_warp()
                    one = two = 0.0
                    pair = state == RUNNING and t <= until  # both rounds of a pair use one pair of normals
                    for half in range(2):
                        if pair and state == RUNNING and (half == 0 or pairs > 0):
                            if not floor_sampled:
                                arm = -1
                                if has_decaying:
                                    arm = sample_mixed_in(decaying, float(t) ** decay, rng)
                                if has_constant and arm < 0:
                                    arm = sample_mixed_in(constant, 1.0, rng)
                                # Once per round, even if `choose_arm` samples again.
                                floor_sampled = has_constant or has_decaying
                            if (scores or kind == GAUSSIAN) and (scores or half == 0):
                                one, two = normals(rng)
                            if arm < 0 and try_leader(f, x, w, arms, shift, t, one, rng):
                                if kind == GAUSSIAN:
                                    reward = mean + deviation * (two if scores or half else one)
                                else:
                                    reward = 1.0 if uniform(rng) < mean else 0.0
                                x[COUNT] += 1.0
                                x[SUM] += reward
                                t += 1
                                left -= 1
                                floor_sampled = False
                                if not keeps_leader(f, x) or left <= 0:
                                    state = NEEDS_UPDATE
                            else:
                                state = NEEDS_CHOICE
            sync_warp()
            waiting = count_in_warp(NEEDS_CHOICE <= state <= NEEDS_UPDATE)
            running = count_in_warp(state == RUNNING and t <= until)
            if waiting >= enough or running == 0:
                if state == NEEDS_UPDATE:
                    arm = -1
                if state == NEEDS_CHOICE:
                    if arm < 0:
                        arm = choose_arm(f, x, w, arms, shift, t, rng)
                    if arm >= 0:
                        if has_runs:
                            reward = first[arm & INDEX_MASK] + second[arm & INDEX_MASK] * spare
                        else:
                            reward = sample_reward(kind, first, second, arm, rng)
                        if arm == lead:
                            x[COUNT] += 1.0
                            x[SUM] += reward
                        else:
                            at = record_at(arm)
                            w[at + N] += 1.0
                            w[at + S] += reward
                            w[OTHERS_REGRET] += gaps[arm & INDEX_MASK]
                        t += 1
                        floor_sampled = False
                if NEEDS_CHOICE <= state <= NEEDS_UPDATE:
                    state = NEEDS_REBUILD
                    place = record_regret(regret, thread, checkpoints, place, t, x, w, gap)
                    if t > horizon:
                        state = DONE
                        save_leader(x, w)  # the final regret, without accumulated rounding errors
                        lost = 0.0
                        for each in range(arms):
                            lost += w[record_at(each) + N] * gaps[each & INDEX_MASK]
                        regret[(checkpoints.size - 1) & INDEX_MASK, thread] = lost
                    elif arm < -1:
                        failures[thread] = t
                        state = DONE
                    else:
                        what = update(f, x, w, arms, shift, arm, t)
                        if what == REBUILD_ALL:
                            state = NEEDS_REBUILD_ALL
            sync_warp()
            if state == NEEDS_REBUILD or (state == NEEDS_REBUILD_ALL and rebuilding):
                left = rebuild(f, x, w, arms, shift, what, t)
                old, lead = lead, int(x[LEADER])
                if old != lead:
                    w[OTHERS_REGRET] += w[record_at(old) + N] * gap
                    mean, deviation = first[lead & INDEX_MASK], second[lead & INDEX_MASK]
                    gap = gaps[lead & INDEX_MASK]
                    w[OTHERS_REGRET] -= x[COUNT] * gap
                state = RUNNING
                if left <= 0:
                    failures[thread] = t
                    state = DONE
                else:
                    last = horizon if has_runs else checkpoints[place & INDEX_MASK]
                    left = min(left, last + 1 - t)
        save_leader(x, w)
        streams[0, thread], streams[1, thread] = rng[0], rng[1]
        for each in range(REGISTERS):
            kept[each] = x[each]
        kept[REGISTERS], kept[REGISTERS + 1], kept[REGISTERS + 2] = t, left, place
        kept[REGISTERS + 3] = 1.0 if floor_sampled else 0.0

    return advance
