"""Checks whether the rewards that were applied to the tally follow from the reward events of a decision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from maillard.decisions.decision import RewardEvent
from maillard.decisions.events import AdministrativeEvent
from maillard.decisions.reward_rule import Reward
from maillard.decisions.stores.contract import Row

_MAX_SUBSET_REWARDS = 10  # rewards of a decision up to which all subsets are tried


def reward_problems(row: Row, rule: Reward, epoch_end: int | None) -> Iterator[str]:
    """Yield how the rewards applied to the tally contradict the logged reward events.

    `epoch_end` is the event that ended the decision's epoch, if one did.
    """
    low, high = rule.bounds
    for each in row.rewards:
        if not low <= each.value <= high:
            yield f"reward {each.event!r} is {each.value!r}, outside the reward range"
            return
    timely = [each for each in row.rewards if not each.late]
    for place, event in enumerate(row.applied):
        if problem := _event_problem(row, place, timely, rule, epoch_end):
            yield f"event {event.number} {problem}"
    yield from _lateness_problems(row, timely, rule, epoch_end)
    yield from _total_problems(row, timely, rule, epoch_end)


def _event_problem(
    row: Row, place: int, timely: Sequence[RewardEvent], rule: Reward, epoch_end: int | None
) -> str | None:
    """Return the problem with one of the events that applied a decision's rewards."""
    decision, event, before = row.decision, row.applied[place], row.applied[place - 1] if place else None
    closes = rule.closes(decision.time)
    early = closes is not None and event.time < closes
    provisional = rule.learn == "provisional"
    revisable = before is not None and (provisional or before.kind != "default")
    problem = None
    if event.number <= decision.state:
        problem = "applied its reward before the decision"
    elif epoch_end is not None and event.number > epoch_end:
        problem = "applied its reward after its epoch"
    elif event.arm != decision.arm:
        problem = f"has arm {event.arm!r}, but the decision has {decision.arm!r}"
    elif event.kind == "revision":
        if not revisable or rule.learn == "on_close" or event.previous != row.applied[place - 1].value:
            problem = "revises a reward that was not applied"
    elif before is not None:
        problem = "applied its reward twice"
    elif event.kind == "default":
        if rule.default is None or event.value != rule.default or (not provisional and (timely or early)):
            problem = f"applied the default {event.value!r}, but there are {len(timely)} rewards"
    elif provisional:
        problem = "applied its reward without revising the default"
    elif rule.learn == "on_close" and early:
        problem = "applied its reward before its window closed"
    return problem


def _lateness_problems(
    row: Row, timely: Sequence[RewardEvent], rule: Reward, epoch_end: int | None
) -> Iterator[str]:
    """Yield a problem with late flags. A settled window stays closed even if the clock is set back."""
    closes, late = rule.closes(row.decision.time), [each for each in row.rewards if each.late]
    ended = row.applied or epoch_end is not None or (rule.default is None and not timely)
    if closes is None:
        if late:
            yield f"reward {late[0].event!r} is late, but there is no window"
    elif missed := [each for each in timely if each.arrived >= closes]:
        yield f"reward {missed[0].event!r} arrived after the window closed, but is not late"
    elif late and not (rule.settles and ended) and all(each.arrived < closes for each in late):
        yield f"reward {late[0].event!r} is late, but arrived before the window closed"


def _total_problems(
    row: Row, timely: Sequence[RewardEvent], rule: Reward, epoch_end: int | None
) -> Iterator[str]:
    """Yield a problem with the last applied value. Rewards after the epoch are not applied."""
    total, ended = rule.total(timely), epoch_end is not None
    if rule.learn == "provisional" and total is None:
        total = rule.default
    if not row.applied:
        if total is not None and not ended and rule.learn != "on_close":
            yield f"its reward, {total!r}, was never applied"
    elif row.applied[0].kind != "default" or rule.learn == "provisional":
        value, complete = row.applied[-1].value, rule.learn == "on_close" or not ended
        unrevised = rule.learn == "provisional" and value == rule.default
        partial = unrevised or _is_partial_total(value, timely, rule)
        if value != total and (complete or not partial):
            yield f"its reward was applied as {value!r}, but its reward events give {total!r}"


def _is_partial_total(value: float, rows: Sequence[RewardEvent], rule: Reward) -> bool:
    """Whether a value can be the total of the rewards that arrived before the epoch ended.

    These are the first rewards by arrival. If the clock was set back or stood still, they can be any subset.
    """
    if rule.combine != "sum":
        return any(row.value == value for row in rows)
    if any(rule.total(rows[:size]) == value for size in range(1, len(rows))):
        return True
    if len(rows) > _MAX_SUBSET_REWARDS:
        low, high = (math.fsum(clip(row.value, 0.0) for row in rows) for clip in (min, max))
        return low <= value <= high
    sizes = range(1, len(rows))
    return any(rule.total(subset) == value for size in sizes for subset in itertools.combinations(rows, size))


def epoch_ends(events: Iterable[AdministrativeEvent]) -> dict[int, int]:
    """The event that ended each epoch, except the last epoch."""
    return dict(enumerate((each.number for each in events if each.begins_epoch), 1))
