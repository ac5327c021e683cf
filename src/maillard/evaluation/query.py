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
    first_position: int | None
    interval: str
    cluster: str | None
    min_effective_size: float
    max_unsupported: float
    max_missing: float
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
    first_position: int | None = None
    "0 or 1: what a log calls the position of a target's first column; None: as the log's positions show."
    interval: str = "normal"
    "Of additive estimators: normal or bernstein."
    cluster: str | None = None
    '"unit": the rows of a unit may depend on each other.'
    min_effective_size: float = 30.0
    "Below this an answer is refused."
    max_unsupported: float = 0.2
    "In how many rows the target's choice may have been impossible."
    max_missing: float = 0.2
    "How many of the rows whose rewards should be there may have none."
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
        if not _between(self.confidence) or self.confidence == 0 or 0.5 + self.confidence / 2 >= 1:
            raise InvalidValue("confidence", self.confidence, "a number between 0 and 1, as in 0.95")
        if not isinstance(self.interval, str) or self.interval not in ("normal", "bernstein"):
            raise InvalidValue("interval", self.interval, "normal or bernstein")
        if not _between(self.min_effective_size, 1e18):
            raise InvalidValue("min_effective_size", self.min_effective_size, "a number >= 0")
        for name in ("max_unsupported", "max_missing"):
            if not _between(getattr(self, name)):
                raise InvalidValue(name, getattr(self, name), "a number from 0 to 1")
        if self.first_position not in (None, 0, 1):
            raise InvalidValue("first_position", self.first_position, "0 or 1")
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise InvalidValue("executor", self.executor, "an executor of concurrent.futures, or one like it")
        if not isinstance(self.adaptive, bool | None):
            raise InvalidValue("adaptive", self.adaptive, "true, false or None")
        if self.on_rows is not None and not callable(self.on_rows):
            raise InvalidValue("on_rows", self.on_rows, "a function of a number")
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


def _between(value: Any, most: float = 1.0) -> bool:
    """Whether this is a number from 0 on."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


def _range(given: Any) -> tuple[float, float]:
    try:
        low, high = map(float, given)
    except (TypeError, ValueError, OverflowError):
        low, high = math.nan, math.nan
    if not -math.inf < low < high < math.inf:
        raise InvalidValue("reward_range", given, "two finite numbers, the lower first")
    return low, high
