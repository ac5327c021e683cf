"""The rows of a log as they were after an earlier event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from maillard.decisions.reward_rule import Learn
from maillard.decisions.stores.contract import Row


def rows_until(rows: Iterable[Row], number: int, end: int | None, learn: Learn) -> Iterator[Row]:
    """Yield rows as they were after the event with this number; `end` is the time of the next one, if any."""
    for decision, rewards, applied in rows:
        if decision.state > number:
            return
        if end is not None:
            # Whether the decision itself was appended later.
            later = bool(applied) and applied[0].number > number and learn != "on_close"
            if later and learn == "provisional":  # its default was written together with it
                continue
            rewards = tuple(  # noqa: PLW2901
                each for each in rewards if each.arrived < end and (each.late or not later)
            )
            applied = tuple(event for event in applied if event.number <= number)  # noqa: PLW2901
        yield Row(decision, tuple(sorted(rewards, key=lambda each: (each.arrived, each.event))), applied)
