"""`replay`: passes over a log in which another policy learns from the logged rewards."""

from __future__ import annotations

import concurrent.futures
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maillard.array_types import Floats
from maillard.errors import CannotAnswer, InvalidValue
from maillard.evaluation.mergeable_sums import merged
from maillard.evaluation.replays.log_parts import plan_parts, split_rows
from maillard.evaluation.replays.logged_problem import problem_of_logs, reward_variances
from maillard.evaluation.replays.logged_rows import LoggedRows, read_rows
from maillard.evaluation.replays.replay_assumptions import assumptions
from maillard.evaluation.replays.replay_intervals import CurveEstimate, PartTotals, interval_basis, summarise
from maillard.evaluation.replays.replay_methods import QUEUES, choose_method
from maillard.evaluation.replays.replay_result import Replay
from maillard.policies import Policy
from maillard.policies.targets import FixedArm, FixedDistribution
from maillard.simulation.log_replay import LoggedRewards, ReplayedRun, prepare, replay_trial
from maillard.simulation.plans import Plan, check_count, make_plan, workers_for

_DEFAULT_REPLAYS = 100
_STREAMS_PER_PART = 2**32  # replay r of part p uses random stream p * _STREAMS_PER_PART + r


def replay(
    log: Any,
    policy: str | Policy,
    *,
    method: str | None = None,
    horizon: int | None = None,
    replays: int | None = None,
    seed: int = 0,
    floor: float | Sequence[float] | None = None,
    guaranteed: int | None = None,
    reward_range: tuple[float, float] | None = None,
    arms: Sequence[str] | None = None,
    confidence: float = 0.95,
    checkpoints: ArrayLike | None = None,
    threads: int | None = None,
    engine: str | None = None,
) -> Replay:
    """Estimate the learning curve that another learning policy would have had on this log.

    `log` is anything that `read_log` opens, a simulated log, or a list of these from independent experiments
    with the same arms. `policy` is the other policy, or its spec.

    There are three values of `method`. "matching" needs uniform logging. "rejection" needs a constant `floor`
    that was fixed before logging: the ε of a policy's floor=, which gives every arm a probability of at least
    ε / K. If the log was made by a policy with a floor, the floor is known. "queues" needs neither. It gives
    exact results up to the number of rewards that was `guaranteed` to each arm by design, and bounds from the
    reward range after that. The default is the first of matching, rejection and queues that applies.

    `horizon` is the number of rounds of the curve. By default the log is split into eight parts whose
    variation gives the interval, and the horizon is what each part supports. If that is too short, it is what
    the whole log supports. `replays` is the number of passes over the same rows, each with its own random
    numbers, derived from the `seed`. `arms` restricts the arms that the policy may choose.

    `reward_range` is the lowest and the highest possible reward, if the log does not state them. `confidence`
    is that of the interval. `checkpoints` are the rounds of the curve, and `threads` the number of threads,
    both as for `simulate`. `engine` is "direct" or "plain", as for `simulate`, to check that both agree.

    >>> from maillard import simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.5,0.3", horizon=20_000, seed=1)
    >>> result = replay(log, "kl-ms", replays=20)
    >>> result.method, result.interval, int(result.rounds[-1])
    ('rejection', 'parts of the log', 204)
    >>> bool(result.lower[-1] < 0.466 < result.upper[-1])  # 0.466 by simulation
    True
    """
    if not isinstance(confidence, float | int) or not 0 < confidence < 1:
        raise InvalidValue("confidence", confidence, "a number between 0 and 1")
    logs = _read_logs(log, arms, _check_range(reward_range))
    chosen = choose_method(logs, method, floor, guaranteed)
    queued = chosen.name == QUEUES
    used = logs if queued else [each.randomized_rows() for each in logs]
    length, parts_per_log = plan_parts(used, chosen, horizon)
    plan = make_plan(policy, problem_of_logs(logs), length, seed, checkpoints, engine, names=logs[0].arms)
    count = _DEFAULT_REPLAYS if replays is None else replays
    check_count("replays", count, _STREAMS_PER_PART - 1)
    rows = [part for each in used for part in split_rows(each, chosen, parts_per_log, length)]
    parts = _play_parts(plan, rows, reward_variances(used), count, workers_for(threads))
    rounds, basis = np.array(plan.checkpoints, np.int64), interval_basis(len(logs), len(parts))
    limits = logs[0].reward_range
    curve = summarise(parts, rounds, basis, queued=queued, reward_range=limits, confidence=float(confidence))
    if not curve.reached[0]:
        raise CannotAnswer(
            f"{logs[0].source}: no replay got past the first round ({sum(map(len, used))} rows, each "
            f"accepted with probability {chosen.acceptance_probability:.3g}); use a longer log, or one that "
            "was logged with a larger floor"
        )
    if not queued:  # drop the rounds that no replay reached
        reached = curve.reached > 0
        rounds, curve = rounds[reached], CurveEstimate(*(each[reached] for each in curve))
    known = (rounds <= chosen.guaranteed) if queued else np.ones(rounds.size, np.bool_)
    return Replay(
        policy=str(policy if isinstance(plan.policy, FixedArm | FixedDistribution) else plan.policy),
        method=chosen.name,
        source=logs[0].source,
        rounds=rounds,
        mean=np.where(known, curve.least, np.nan),
        **curve._asdict(),
        interval=basis,
        assumes=assumptions(chosen, basis, len(parts), length),
        confidence=float(confidence),
        replays=count,
        parts=len(parts),
        logs=len(logs),
        rows=sum(map(len, used)),
        accepted=float(sum(part.lengths.mean() for part in parts)),
        acceptance_probability=chosen.acceptance_probability,
        guaranteed=chosen.guaranteed,
        logged_mean=float(np.mean(np.concatenate([each.reward for each in logs]))),
        left_out=functools.reduce(merged, (each.left_out for each in used)),
        seed=seed,
    )


def _read_logs(
    log: Any, arms: Sequence[str] | None, reward_range: tuple[float, float] | None
) -> list[LoggedRows]:
    """The rows of all logs; a `LoggedRows` is used unchanged."""
    given = list(log) if isinstance(log, list | tuple) else [log]
    if not given:
        raise InvalidValue("log", log, "at least one log")
    logs: list[LoggedRows] = []
    for each in given:
        same_arms = arms or (logs[0].arms if logs else None)
        logs.append(each if isinstance(each, LoggedRows) else read_rows(each, same_arms, reward_range))
    return logs


def _play_parts(
    plan: Plan, rows: Sequence[LoggedRewards], variances: Floats, count: int, workers: int
) -> list[PartTotals]:
    """Replay each part `count` times, on threads."""
    prepare(plan)
    chunk = max(1, -(-count * len(rows) // (4 * workers)))

    def play_chunk(part: int, first: int) -> list[ReplayedRun]:
        streams = (part * _STREAMS_PER_PART + number for number in range(first, min(first + chunk, count)))
        return [replay_trial(plan, rows[part], variances, stream) for stream in streams]

    totals = []
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = [
            [pool.submit(play_chunk, part, first) for first in range(0, count, chunk)]
            for part in range(len(rows))
        ]
        try:
            for of_part in futures:
                played = (one for future in of_part for one in future.result())
                totals.append(PartTotals(*map(np.array, zip(*played, strict=True))))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return totals


def _check_range(given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError):
        low = high = math.nan
    if not low < high or not math.isfinite(high - low):
        raise InvalidValue("reward_range", given, "(low, high), two finite numbers, low < high")
    return low, high
