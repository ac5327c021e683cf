"""How long a curve a log gives, and the parts of its rows that are replayed by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from maillard.errors import CannotAnswer, InvalidValue
from maillard.evaluation.replays.replay_intervals import MIN_PARTS
from maillard.evaluation.replays.replay_methods import QUEUES, ReplayMethod, reliable_rounds
from maillard.simulation.log_replay import LoggedRewards
from maillard.simulation.plans import check_count

if TYPE_CHECKING:
    from maillard.evaluation.replays.logged_rows import LoggedRows

__all__ = ["plan_parts", "split_rows"]

_USUAL, _MOST = 8, 64  # stretches in all


def plan_parts(logs: Sequence[LoggedRows], way: ReplayMethod, horizon: int | None) -> tuple[int, int]:
    """How many rounds the curve has, and into how many stretches each log is cut. Neither looks at a reward.

    With enough logs these say how much curves vary, and none is cut. Else each is, if the stretches are long enough.
    """
    whole = min(_rounds(each, way, 1) for each in logs)
    if horizon is not None:
        check_count("horizon", horizon, 10**9)
        _check_range(logs, way, horizon)
        most = 1 if len(logs) >= MIN_PARTS else min(whole // int(horizon), _MOST)
        while most > 1 and min(_rounds(each, way, most) for each in logs) < horizon:
            most -= 1
        return int(horizon), most if len(logs) * most >= MIN_PARTS else 1
    if way.method == QUEUES and not way.guaranteed:
        horizon = min(map(len, logs))
        _check_range(logs, way, horizon)
        return horizon, 1
    if not whole:
        rows, needed = min(map(len, logs)), 20 * len(logs[0].arms) / way.acceptance_probability
        raise CannotAnswer(
            f"{logs[0].source}: {rows} rows, each accepted with probability {way.acceptance_probability:.3g}, give no curve; "
            f"20 rounds for each arm would need about {needed:.3g} rows, or a floor {needed / rows:.3g} times as large"
        )
    count = 1 if len(logs) >= MIN_PARTS else -(-_USUAL // len(logs))
    apart = min(_rounds(each, way, count) for each in logs)
    return (apart, count) if apart > 2 * len(logs[0].arms) else (whole, 1)


def split_rows(
    events: LoggedRows, way: ReplayMethod, stretches: int, horizon: int
) -> Iterator[LoggedRewards]:
    """The rows of each stretch, with which probability each is kept; or the next `horizon` rewards of every queue."""
    if way.method != QUEUES:
        keep = np.minimum(way.acceptance_probability / events.probability, 1.0)
        for part in range(stretches):
            cut = slice(len(events) * part // stretches, len(events) * (part + 1) // stretches)
            yield LoggedRewards(events.reward[cut], events.arm[cut], keep[cut])
        return
    mine = events.arm >= 0
    arm, k = events.arm[mine], len(events.arms)
    order = np.argsort(arm, kind="stable")
    arm, reward = arm[order], events.reward[mine][order]
    place = np.arange(arm.size) - np.searchsorted(arm, arm)  # in its queue
    for part in range(stretches):
        some = place // horizon == part if stretches > 1 else np.ones(arm.size, np.bool_)
        starts = np.searchsorted(arm[some], np.arange(k + 1)).astype(np.int64)
        yield LoggedRewards(reward[some], starts=starts)


def _rounds(events: LoggedRows, way: ReplayMethod, stretches: int) -> int:
    """How many rounds each of so many stretches can be counted on to have."""
    if way.method == QUEUES:
        return way.guaranteed // stretches
    return reliable_rounds(len(events) // stretches, way.acceptance_probability)


def _check_range(logs: Sequence[LoggedRows], way: ReplayMethod, horizon: int) -> None:
    if way.method == QUEUES and horizon > way.guaranteed and any(each.reward_range is None for each in logs):
        allowed = f"(low, high): rounds beyond the guaranteed {way.guaranteed} are bounded by it"
        raise InvalidValue("reward_range", None, allowed)
