"""Kinds of values that messages hold."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

__all__ = [
    "MOST_ITEMS",
    "DecisionId",
    "Key",
    "Moment",
    "Name",
    "Names",
    "Outcome",
    "Spec",
    "Status",
    "Target",
    "Time",
]

MOST_ITEMS = 1_000
"Of a batch, and arms of an experiment."

_NO_NUL = r"^[^\x00]*$"
# (What a name may hold is checked where it enters the log; here it is only described, for it would be looked for twice.)
Name = Annotated[str, Meta(min_length=1, max_length=512, extra_json_schema={"pattern": _NO_NUL})]
# A key is part of paths, so it has only characters that need no escape there.
Key = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$(?!\n)", max_length=128, examples=["home"])
]
Spec = Annotated[str, Meta(min_length=1, max_length=2_000, pattern=_NO_NUL, examples=["ms+:booster=8"])]
Names = Annotated[list[Name], Meta(min_length=1, max_length=MOST_ITEMS)]
DecisionId = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$(?!\n)",
        description="A UUID of version 7.",
    ),
]
Time = (
    Annotated[datetime, Meta(tz=True)]
    | Annotated[float, Meta(ge=0, lt=253_402_300_800, description="Seconds since 1970.")]
)
Moment = Annotated[datetime, Meta(tz=True)]
Status = Literal["running", "paused", "archived"]
Outcome = Literal["applied", "revised", "unchanged", "waiting", "old epoch", "duplicate", "parked", "late"]
Target = Annotated[str, Meta(min_length=1, max_length=20_000, pattern=_NO_NUL, examples=["arm:blue"])]
