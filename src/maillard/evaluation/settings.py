"""The options of an evaluation: their types, defaults, meanings and checks.

Functions take them as `**options`. `with_options` adds their names, types, defaults and meanings to the
signature and the docstring, so that `help`, completion and the API reference show all of them.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from maillard.errors import InvalidValue, UnknownName
from maillard.features import Features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from maillard.decisions.selection import Names, Numbers, Time

F = TypeVar("F", bound=Callable[..., Any])


class SharedOptions(TypedDict, total=False):
    """Options of `evaluate`, `compare` and others; `Settings` describes them."""

    experiment: str | None
    since: Time | None
    until: Time | None
    unit: Names
    epoch: Numbers | Literal["all"]
    columns: Mapping[str, str] | None
    context: Names
    reward_range: tuple[float, float] | None
    second_moment: float | None
    floor: float | Sequence[float] | None
    active: bool | None
    adaptive: bool | None
    features: Features | Names
    comparisons: int | None
    cluster: Literal["unit", "row"] | None
    missing: Literal["bounds", "ignore"]
    min_segment_rows: int
    max_segments: int
    min_effective_size: float
    max_unsupported: float
    max_missing: float
    executor: Executor | None
    on_rows: Callable[[int], None] | None
    first_position: Literal[0, 1] | None


class Options(SharedOptions, total=False):
    """All options, including those that `compare` does not have."""

    reward_model: Mapping[str, float] | ArrayLike | None
    interval: Literal["normal", "bernstein"]


_MEANINGS = """\
Which decisions of the log are used:
- `experiment`: name of the experiment, if the log contains several.
- `since`: only decisions from this time on, an aware datetime or seconds since 1970.
- `until`: only decisions before this time.
- `unit`: only decisions of this unit, or of several units.
- `epoch`: number of an epoch, or several numbers; "all" pools all epochs. By default, the last epoch.
- `columns`: the column names of a foreign table, by our names, as in {"arm": "item_id"}.
- `context`: columns of a table that are keys of the context, if the table has no column `context`.

What is known about the log:
- `reward_range`: the lowest and the highest possible reward, if the log does not state them.
- `second_moment`: a bound, known in advance, on the mean squared reward of every arm. `cs-catoni` uses it
  for rewards with heavy tails, such as revenue.
- `floor`: the floor of the logging policy, if the log does not state it: each of K arms had a probability of
  at least floor / K. Or a lower bound for each arm.
- `active`: whether the experiment is still running, so that intervals must be valid at any time. By default
  true if the log is in a store and the experiment is not archived.
- `adaptive`: whether the logging policy learned from the log. By default true if probabilities changed.
- `first_position`: the position, 0 or 1, of the first column of a target that has a column for each
  position. By default derived from the log.

How rewards are predicted, for estimators that use a model:
- `reward_model`: predictions that were known before the log began: a mapping by arm, a list in the order of
  arms, or an array of arms and positions.
- `features`: how contexts become the features of the model that is fitted on earlier rows of a log with
  contexts: a `Features`, or keys of the context that are used as categories. By default the encoded rows of
  the log, otherwise its keys as categories.

How intervals are made:
- `comparisons`: the number of intervals among which the reader will choose. The probability of an error is
  divided by it, so that all are valid together. By default 1 for one target, the number of targets for
  several, and in a comparison of two arms the number of pairs of arms in the log.
- `interval`: the interval of additive estimators, "normal" (the default) or "bernstein".
- `cluster`: "unit" if the rows of a unit may depend on each other, "row" if all rows are independent. By
  default "unit" if units repeat and their rewards are alike (a design effect above 1.2).
- `missing`: what missing rewards mean. "bounds" (the default) widens intervals to all values that these
  rewards could have, if their range is known. "ignore" leaves their rows out, as if rewards were missing at
  random.

Segments, if `by` is given:
- `min_segment_rows`: segments with fewer rows are pooled as "(other)". By default 100.
- `max_segments`: the largest segments have a report each, up to this number; the others are pooled as
  "(other)". By default 20.

When an estimator is refused:
- `min_effective_size`: the smallest accepted effective sample size, by default 30. Several segments need
  more.
- `max_unsupported`: the largest accepted fraction of rows in which the target's choice was impossible, from
  0 to 1. By default 0.2.
- `max_missing`: the largest accepted fraction of rows whose rewards are missing, from 0 to 1. By default 0.2.

Computation:
- `executor`: a `concurrent.futures.Executor`, whose workers process parts of the log in parallel. By default
  threads are used where they help.
- `on_rows`: a function that is called from time to time with the number of rows read."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """The validated options of an evaluation, and their defaults."""

    confidence: float = 0.95
    by: tuple[str, ...] | None = None
    experiment: str | None = None
    since: Time | None = None
    until: Time | None = None
    unit: Names = None
    epoch: Numbers | Literal["all"] = None
    columns: Mapping[str, str] | None = None
    context: tuple[str, ...] | None = None
    reward_range: tuple[float, float] | None = None
    second_moment: float | None = None
    floor: float | Sequence[float] | None = None
    active: bool | None = None
    adaptive: bool | None = None
    first_position: int | None = None
    reward_model: Any = None
    features: Any = None
    comparisons: int | None = None
    interval: str = "normal"
    cluster: str | None = None
    missing: str = "bounds"
    min_segment_rows: int = 100
    max_segments: int = 20
    min_effective_size: float = 30.0
    max_unsupported: float = 0.2
    max_missing: float = 0.2
    executor: Executor | None = None
    on_rows: Callable[[int], None] | None = None

    @classmethod
    def of(cls, confidence: float, options: Mapping[str, Any]) -> Settings:
        """Settings from keyword arguments."""
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
        if self.comparisons is not None and not _is_count(self.comparisons):
            raise InvalidValue("comparisons", self.comparisons, "a whole number from 1 to 1,000,000")
        if self.first_position not in (None, 0, 1):
            raise InvalidValue("first_position", self.first_position, "0 or 1")
        self._check_callables()
        for name in ("active", "adaptive"):
            if not isinstance(getattr(self, name), bool | None):
                raise InvalidValue(name, getattr(self, name), "true, false or None")
        if self.missing not in ("bounds", "ignore"):
            raise InvalidValue("missing", self.missing, "bounds or ignore")
        if self.cluster not in (None, "unit", "row"):
            raise InvalidValue("cluster", self.cluster, "unit or row, or None")
        if self.reward_range is not None:
            object.__setattr__(self, "reward_range", _range(self.reward_range))
        self._check_second_moment()
        self._check_contexts()

    def _check_contexts(self) -> None:
        for name in ("by", "context"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        if not isinstance(self.features, Features):
            object.__setattr__(self, "features", _names("features", self.features))
        for name in ("min_segment_rows", "max_segments"):
            if not _is_count(getattr(self, name)):
                raise InvalidValue(name, getattr(self, name), "a whole number from 1 to 1,000,000")

    def _check_second_moment(self) -> None:
        bound = self.second_moment
        if bound is not None and not (_between(bound, 1e200) and bound > 0):
            raise InvalidValue("second_moment", bound, "a finite number > 0")

    def _check_callables(self) -> None:
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise InvalidValue("executor", self.executor, "an executor of concurrent.futures, or one like it")
        if self.on_rows is not None and not callable(self.on_rows):
            raise InvalidValue("on_rows", self.on_rows, "a function of a number")

    def for_comparisons(self, default: int) -> Settings:
        """The settings of intervals that are valid together: the error probability is divided."""
        count = default if self.comparisons is None else self.comparisons
        return replace(self, comparisons=count, confidence=1.0 - (1.0 - self.confidence) / count)

    def for_segments(self, default: int) -> Settings:
        """The settings of intervals of segments, which are small and must be valid together.

        With n rows, the relative error of a normal approximation at the quantile z grows like z^3 / sqrt(n).
        So that it stays the same, the smallest effective sample size grows like z^6: from 30 to 67 for two
        segments at 95%, to 100 for three and to 259 for ten.
        """
        together = self.for_comparisons(default)
        z, single = (NormalDist().inv_cdf(0.5 + each.confidence / 2) for each in (together, self))
        return replace(together, min_effective_size=self.min_effective_size * (z / single) ** 6)

    @property
    def selection(self) -> dict[str, Any]:
        """The arguments of `read_log`."""
        names = ("experiment", "since", "until", "unit", "epoch", "columns", "context")
        given = {name: getattr(self, name) for name in names}
        return given | {"epoch": None} if self.epoch == "all" else given


def with_options(known: type[SharedOptions]) -> Callable[[F], F]:
    """Show the options that a function takes as `**options` in its signature and its docstring."""
    types = {name: getattr(each, "__forward_arg__", each) for name, each in known.__annotations__.items()}

    def add(function: F) -> F:
        own = inspect.signature(function)
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
            for name, default in _defaults().items()
            if name in types
        ]
        signature = own.replace(parameters=[*list(own.parameters.values())[:-1], *options])
        function.__signature__ = signature  # type: ignore[attr-defined]  # `inspect` reads it
        if function.__doc__:  # python -OO removes it
            function.__doc__ = f"{inspect.cleandoc(function.__doc__)}\n\n{_meanings(types)}\n"
        return function

    return add


def _defaults() -> dict[str, Any]:
    return {each.name: each.default for each in fields(Settings)}


def _meanings(known: Iterable[str]) -> str:
    """The meanings of some options, as a list under each heading."""
    parts = []
    for part in _MEANINGS.split("\n\n"):
        heading, *items = re.split(r"\n(?=- )", part)
        if items := [item for item in items if item.split("`")[1] in known]:
            parts.append("\n".join([heading, *items]))
    return "\n\n".join(parts)


def _names(name: str, given: Any) -> tuple[str, ...] | None:
    """Names as a tuple without repetition; None if there are none."""
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidValue(name, given, "the name of a key of the context, or several names")
    return tuple(dict.fromkeys(names))


def _between(value: Any, most: float = 1.0) -> bool:
    """Whether the value is a number from 0 to `most`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**6


def _range(given: Any) -> tuple[float, float]:
    try:
        low, high = map(float, given)
    except (TypeError, ValueError, OverflowError):
        low, high = math.nan, math.nan
    if not -math.inf < low < high < math.inf:
        raise InvalidValue("reward_range", given, "two finite numbers, the lower first")
    return low, high
