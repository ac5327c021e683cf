"""Types of the values in request and response bodies, with their limits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

MAX_ITEMS = 1_000
"The largest number of entries in a batch, and of arms in an experiment."

_NO_NUL = r"^[^\x00]*$"
# The log checks the characters of a name, so the pattern is only for the OpenAPI document.
Name = Annotated[str, Meta(min_length=1, max_length=512, extra_json_schema={"pattern": _NO_NUL})]
# The name of a new experiment is part of URLs, so it has only characters that need no escaping.
ExperimentName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$(?!\n)", max_length=128, examples=["home"])
]
PolicySpec = Annotated[str, Meta(min_length=1, max_length=2_000, pattern=_NO_NUL, examples=["ms+:booster=8"])]
ArmNames = Annotated[list[Name], Meta(min_length=1, max_length=MAX_ITEMS)]
DecisionId = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-"
        r"[0-9a-fA-F]{12}$(?!\n)",
        description="A UUID of version 7.",
    ),
]
UtcTime = Annotated[datetime, Meta(tz=True)]
Time = UtcTime | Annotated[float, Meta(ge=0, lt=253_402_300_800, description="Seconds since 1970.")]
Status = Literal["running", "paused", "archived"]
Outcome = Literal["applied", "revised", "unchanged", "waiting", "old epoch", "duplicate", "parked", "late"]
EvaluationTarget = Annotated[
    str, Meta(min_length=1, max_length=20_000, pattern=_NO_NUL, examples=["arm:blue"])
]
