"""`replay`: passes over a log, in which another policy learns from what the log has of its choices."""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import CannotAnswer, InvalidValue
from maillard.evaluation.replays.log_parts import plan_parts, split_rows
from maillard.evaluation.replays.logged_problem import problem_of_logs, variances_of
from maillard.evaluation.replays.logged_rows import LoggedRows, read_rows
from maillard.evaluation.replays.replay_assumptions import assumptions
from maillard.evaluation.replays.replay_intervals import CurveEstimate, PartTotals, interval_basis, summarise
from maillard.evaluation.replays.replay_methods import QUEUES, choose_method
from maillard.evaluation.replays.replay_result import Replay
from maillard.policies.targets import FixedArm, FixedDistribution
from maillard.simulation.log_replay import LoggedRewards, ReplayedRun, prepare, replay_trial
from maillard.simulation.plans import check_count, make_plan, workers_for

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from maillard.policies import Policy
    from maillard.simulation.plans import Plan

__all__ = ["replay", "replay_rows"]

_REPLAYS = 100
_EACH = 2**32  # the random numbers of a replay: of its part's number times this, plus its own


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
    """The curve that another policy, learning from its own choices, would have had where this log was made.

    `log` is whatever `read_log` opens or a simulated log, or a list of such, of independent experiments with the same arms. "rejection" needs
    a constant `floor` (ε, as in a policy's floor=: every arm had at least ε / K) that was fixed before logging, and knows it where the
    log was made by a policy with one; "matching" needs uniform logging; "queues" bounds the curve by the reward range beyond the
    number of rewards `guaranteed` to each arm by design. Without `method`, the first that applies of matching, rejection and queues.

    `horizon` is how many rounds the curve has: without it, what each of eight parts of the log can give, so that these say how much
    they vary; or what the whole log can, where that is little. `replays` are many on the same rows, each with random numbers of its own. `arms` are those that the policy may choose, all unless told.

    >>> from maillard import simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.5,0.3", horizon=20_000, seed=1)
    >>> result = replay(log, "kl-ms", replays=20)
    >>> result.method, result.interval, int(result.rounds[-1])
    ('rejection', 'parts of the log', 204)
    >>> bool(result.lower[-1] < 0.48 < result.upper[-1])
    True
    """
    logs = list(log) if isinstance(log, list | tuple) else [log]
    if not logs:
        raise InvalidValue("log", log, "at least one log")
    limits = _check_limits(reward_range)
    read = [read_rows(logs[0], arms, limits)]
    read += [read_rows(each, arms or read[0].arms, limits) for each in logs[1:]]
    return replay_rows(
        read,
        policy,
        method=method,
        horizon=horizon,
        replays=replays,
        seed=seed,
        floor=floor,
        guaranteed=guaranteed,
        confidence=confidence,
        checkpoints=checkpoints,
        threads=threads,
        engine=engine,
    )


def replay_rows(
    logs: Sequence[LoggedRows],
    policy: str | Policy,
    *,
    method: str | None = None,
    horizon: int | None = None,
    replays: int | None = None,
    seed: int = 0,
    floor: float | Sequence[float] | None = None,
    guaranteed: int | None = None,
    confidence: float = 0.95,
    checkpoints: ArrayLike | None = None,
    threads: int | None = None,
    engine: str | None = None,
) -> Replay:
    """The same for logs that have been read."""
    if not isinstance(confidence, float | int) or not 0 < confidence < 1:
        raise InvalidValue("confidence", confidence, "a number between 0 and 1")
    way = choose_method(logs, method, floor, guaranteed)
    used = list(logs) if way.method == QUEUES else [each.randomized_rows() for each in logs]
    long, stretches = plan_parts(used, way, horizon)
    plan = make_plan(policy, problem_of_logs(logs), long, seed, checkpoints, engine, names=logs[0].arms)
    count = _REPLAYS if replays is None else replays
    check_count("replays", count, _EACH - 1)
    rows = [part for each in used for part in split_rows(each, way, stretches, long)]
    parts = _play_all(plan, rows, variances_of(used), count, workers_for(threads))
    rounds, kind = np.array(plan.checkpoints, np.int64), interval_basis(len(logs), len(parts))
    curve = summarise(
        parts,
        rounds,
        kind,
        queued=way.method == QUEUES,
        reward_range=logs[0].reward_range,
        confidence=float(confidence),
    )
    if not curve.reached[0]:
        raise CannotAnswer(
            f"{logs[0].source}: no replay got past the first round: {sum(map(len, used))} rows, accepted with "
            f"probability {way.acceptance_probability:.3g}; a longer log or a larger floor would answer"
        )
    if way.method != QUEUES:  # rounds that no replay got to are not in the curve
        reached = curve.reached > 0
        rounds, curve = rounds[reached], CurveEstimate(*(each[reached] for each in curve))
    known = (rounds <= way.guaranteed) if way.method == QUEUES else np.ones(rounds.size, np.bool_)
    return Replay(
        policy=str(policy if isinstance(plan.policy, FixedArm | FixedDistribution) else plan.policy),
        method=way.method,
        source=logs[0].source,
        rounds=rounds,
        mean=np.where(known, curve.least, np.nan),
        least=curve.least,
        most=curve.most,
        lower=curve.lower,
        upper=curve.upper,
        reached=curve.reached,
        interval=kind,
        assumes=assumptions(way, kind, len(parts), long),
        confidence=float(confidence),
        replays=count,
        parts=len(parts),
        logs=len(logs),
        rows=sum(map(len, used)),
        accepted=float(sum(part.lengths.mean() for part in parts)),
        acceptance_probability=way.acceptance_probability,
        guaranteed=way.guaranteed,
        logged_mean=float(np.mean(np.concatenate([each.reward for each in logs]))),
        left_out=_add([each.left_out for each in used]),
        seed=seed,
    )


def _play_all(
    plan: Plan, rows: Sequence[LoggedRewards], variances: NDArray[np.float64], count: int, workers: int
) -> list[PartTotals]:
    """That many replays on each part of the rows."""
    prepare(plan)
    chunk = max(1, -(-count * len(rows) // (4 * workers)))

    def some(number: int, first: int) -> list[ReplayedRun]:
        numbers = range(first, min(first + chunk, count))
        return [replay_trial(plan, rows[number], variances, number * _EACH + each) for each in numbers]

    parts = []
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = [
            [pool.submit(some, number, first) for first in range(0, count, chunk)]
            for number in range(len(rows))
        ]
        try:
            for each in futures:
                sums, marked, lengths = zip(*(one for future in each for one in future.result()), strict=True)
                parts.append(PartTotals(np.array(sums), np.array(marked), np.array(lengths, np.int64)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return parts


def _add(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for each in counts for name in each)
    return {name: sum(each.get(name, 0) for each in counts) for name in names}


def _check_limits(given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError):
        low = high = math.nan
    if not low < high or not math.isfinite(high - low):
        raise InvalidValue("reward_range", given, "(low, high), two finite numbers, low < high")
    return low, high
