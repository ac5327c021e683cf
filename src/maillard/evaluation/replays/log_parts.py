"""The length of the curve that a log supports, and the parts that are replayed separately."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from maillard.errors import CannotAnswer, InvalidValue
from maillard.evaluation.replays.logged_rows import LoggedRows
from maillard.evaluation.replays.replay_intervals import MIN_PARTS
from maillard.evaluation.replays.replay_methods import QUEUES, ReplayMethod, reliable_rounds
from maillard.simulation.log_replay import LoggedRewards
from maillard.simulation.plans import check_count

_DEFAULT_PARTS, _MAX_PARTS = 8, 64  # over all logs; for each log


def plan_parts(logs: Sequence[LoggedRows], method: ReplayMethod, horizon: int | None) -> tuple[int, int]:
    """The number of rounds of the curve, and the number of parts into which each log is split.

    Neither depends on a reward. If there are enough logs, their variation gives the interval and no log is
    split. Otherwise each log is split, if the parts are long enough.
    """
    whole = min(_rounds(each, method, 1) for each in logs)
    if horizon is not None:
        check_count("horizon", horizon, 10**9)
        _require_range(logs, method, horizon)
        parts = 1 if len(logs) >= MIN_PARTS else min(whole // int(horizon), _MAX_PARTS)
        while parts > 1 and min(_rounds(each, method, parts) for each in logs) < horizon:
            parts -= 1
        return int(horizon), parts if len(logs) * parts >= MIN_PARTS else 1
    if method.name == QUEUES and not method.guaranteed:
        horizon = min(map(len, logs))
        _require_range(logs, method, horizon)
        return horizon, 1
    if not whole:
        rows, needed = min(map(len, logs)), 20 * len(logs[0].arms) / method.acceptance_probability
        raise CannotAnswer(
            f"{logs[0].source}: {rows} rows, each accepted with probability "
            f"{method.acceptance_probability:.3g}, are too few for a curve; 20 rounds per arm need about "
            f"{needed:.3g} rows, or a floor {needed / rows:.3g} times as large"
        )
    parts = 1 if len(logs) >= MIN_PARTS else -(-_DEFAULT_PARTS // len(logs))
    rounds = min(_rounds(each, method, parts) for each in logs)
    return (rounds, parts) if rounds > 2 * len(logs[0].arms) else (whole, 1)


def split_rows(logged: LoggedRows, method: ReplayMethod, parts: int, horizon: int) -> Iterator[LoggedRewards]:
    """The rows of each part, with their acceptance probabilities.

    With queues, a part contains the next `horizon` rewards of every arm instead.
    """
    if method.name != QUEUES:
        keep = np.minimum(method.acceptance_probability / logged.probability, 1.0)
        for part in range(parts):
            cut = slice(len(logged) * part // parts, len(logged) * (part + 1) // parts)
            yield LoggedRewards(logged.reward[cut], logged.arm[cut], keep[cut])
        return
    mine = logged.arm >= 0
    arm, k = logged.arm[mine], len(logged.arms)
    order = np.argsort(arm, kind="stable")
    arm, reward = arm[order], logged.reward[mine][order]
    position = np.arange(arm.size) - np.searchsorted(arm, arm)  # in the queue of its arm
    for part in range(parts):
        chosen = position // horizon == part if parts > 1 else np.ones(arm.size, np.bool_)
        starts = np.searchsorted(arm[chosen], np.arange(k + 1)).astype(np.int64)
        yield LoggedRewards(reward[chosen], starts=starts)


def _rounds(logged: LoggedRows, method: ReplayMethod, parts: int) -> int:
    """The number of rounds that each part almost surely has if the log is split into `parts` parts."""
    if method.name == QUEUES:
        return method.guaranteed // parts
    return reliable_rounds(len(logged) // parts, method.acceptance_probability)


def _require_range(logs: Sequence[LoggedRows], method: ReplayMethod, horizon: int) -> None:
    bounded = method.name == QUEUES and horizon > method.guaranteed
    if bounded and any(each.reward_range is None for each in logs):
        allowed = f"(low, high), which bounds the rounds beyond the guaranteed {method.guaranteed}"
        raise InvalidValue("reward_range", None, allowed)
