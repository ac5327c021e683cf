"""How an evaluation is made: what it asks of the log, and what it takes for granted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

from maillard.errors import InvalidValue, UnknownName

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from maillard.decisions.selection import Names, Numbers, Time

__all__ = ["Options", "Settings"]


class Options(TypedDict, total=False):
    """What `evaluate` and `compare` take by name, beside targets, estimators and confidence. `Settings` says what each means."""

    experiment: str | None
    since: Time | None
    until: Time | None
    unit: Names
    epoch: Numbers
    columns: Mapping[str, str] | None
    reward_range: tuple[float, float] | None
    reward_model: Mapping[str, float] | ArrayLike | None
    floor: float | Sequence[float] | None
    adaptive: bool | None
    interval: str
    cluster: str | None
    min_effective_size: float
    max_unsupported: float
    executor: Executor | None
    on_rows: Callable[[int], None] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """The same, checked."""

    confidence: float = 0.95
    experiment: str | None = None
    "Which one, where the log holds several."
    since: Time | None = None
    until: Time | None = None
    unit: Names = None
    epoch: Numbers = None
    "Only these decisions."
    columns: Mapping[str, str] | None = None
    "What a table that is not ours calls our columns."
    reward_range: tuple[float, float] | None = None
    "Where every reward lies, if the log does not say."
    reward_model: Any = None
    "What each arm is believed to give, known before the log: by name, in order, or arms x positions."
    floor: float | Sequence[float] | None = None
    "As in a policy's floor=, if the log does not say: of K arms each had at least floor / K, by design; or a share for each."
    adaptive: bool | None = None
    "Whether the log was learned from while it grew; None: if its probabilities changed."
    interval: str = "normal"
    "Of additive estimators: normal or bernstein."
    cluster: str | None = None
    '"unit": the rows of a unit may depend on each other.'
    min_effective_size: float = 30.0
    "Below this an answer is refused."
    max_unsupported: float = 0.2
    "In how many rows the target's choice may have been impossible."
    executor: Executor | None = None
    "Whose workers add up the parts of the log."
    on_rows: Callable[[int], None] | None = None
    "Told now and then how many rows have been read."

    @classmethod
    def of(cls, confidence: float, options: Mapping[str, Any]) -> Settings:
        """From what a caller gave by name."""
        names = [each.name for each in fields(cls)]
        for name in options:
            if name not in names:
                raise UnknownName("option", name, names)
        return cls(confidence=confidence, **options)

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise InvalidValue("confidence", self.confidence, "a number between 0 and 1, as in 0.95")
        if self.interval not in ("normal", "bernstein"):
            raise InvalidValue("interval", self.interval, "normal or bernstein")
        if not self.min_effective_size >= 0:
            raise InvalidValue("min_effective_size", self.min_effective_size, "a number >= 0")
        if not 0 <= self.max_unsupported <= 1:
            raise InvalidValue("max_unsupported", self.max_unsupported, "a number from 0 to 1")
        if self.cluster not in (None, "unit"):
            raise InvalidValue("cluster", self.cluster, "unit, or None")
        if self.reward_range is not None:
            object.__setattr__(self, "reward_range", _range(self.reward_range))

    @property
    def selection(self) -> dict[str, Any]:
        """What `read_log` is asked for."""
        return {
            name: getattr(self, name) for name in ("experiment", "since", "until", "unit", "epoch", "columns")
        }


def _range(given: Any) -> tuple[float, float]:
    try:
        low, high = map(float, given)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not -math.inf < low < high < math.inf:
        raise InvalidValue("reward_range", given, "two finite numbers, the lower first")
    return low, high
