"""The events that change the state of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

__all__ = ["ADMINISTRATIVE", "Event", "Kind"]

Kind = Literal[
    "start", "add_arm", "retire_arm", "policy", "pause", "resume", "archive", "reset", "warm_start", "restore", "erase_unit",
    "reward", "revision", "default",
]  # fmt: skip
# Events other than those that rewards make.
ADMINISTRATIVE = frozenset(Kind.__args__) - {"reward", "revision", "default"}  # type: ignore[attr-defined]


class Event(NamedTuple):
    """A change of state: number n turns the state after n - 1 events into the state after n."""

    number: int
    kind: Kind
    time: int
    decision: str | None = None
    arm: str | None = None
    value: float | None = None
    "What the decision's reward is from now on."
    previous: float | None = None
    "What it was before (revisions)."
    payload: Mapping[str, Any] = MappingProxyType({})
    "What an administrative event changes."
