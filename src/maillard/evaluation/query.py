"""The query of an evaluation: its targets, its estimators and its settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation import linear_rules, rules
from maillard.evaluation.bound_targets import AnyTarget, Target, bind_to_log
from maillard.evaluation.estimators import all_estimators, parse
from maillard.evaluation.estimators.estimator import Estimator
from maillard.evaluation.linear_rules import LinearRule
from maillard.evaluation.rules import Rule
from maillard.features import Features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from maillard.decisions.selection import Names, Numbers, Time
    from maillard.evaluation.evaluation_log import EvaluationLog


class Options(TypedDict, total=False):
    """Keyword arguments of `evaluate` and `compare`; `Settings` describes them."""

    comparisons: int | None
    experiment: str | None
    since: Time | None
    until: Time | None
    unit: Names
    epoch: Numbers | Literal["all"]
    columns: Mapping[str, str] | None
    reward_range: tuple[float, float] | None
    second_moment: float | None
    reward_model: Mapping[str, float] | ArrayLike | None
    floor: float | Sequence[float] | None
    active: bool | None
    adaptive: bool | None
    first_position: int | None
    interval: str
    cluster: str | None
    min_effective_size: float
    max_unsupported: float
    max_missing: float
    missing: str
    executor: Executor | None
    on_rows: Callable[[int], None] | None
    context: Names
    features: Features | Names
    min_segment_rows: int
    max_segments: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """The validated options of an evaluation."""

    confidence: float = 0.95
    comparisons: int | None = None
    """The number of intervals among which the reader will choose. The probability of an error is divided by
    it, so that all of them are valid together. By default 1 for one target, the number of targets for
    several, and in a comparison of two arms the number of pairs of arms in the log."""
    experiment: str | None = None
    "The experiment, if the log contains several."
    since: Time | None = None
    until: Time | None = None
    unit: Names = None
    epoch: Numbers | Literal["all"] = None
    "These five select decisions. By default, those of the last epoch; `epoch='all'` pools all epochs."
    columns: Mapping[str, str] | None = None
    "The column names of a foreign table, by our names."
    reward_range: tuple[float, float] | None = None
    "The lowest and highest possible reward, if the log does not state it."
    second_moment: float | None = None
    """A bound, known in advance, on the mean squared reward of every arm. `cs-catoni` uses it for rewards
    with heavy tails, such as revenue."""
    reward_model: Any = None
    "Predicted rewards, known before the log began: by arm name, in order, or arms x positions."
    floor: float | Sequence[float] | None = None
    """The floor of the logging policy, if the log does not state it: each of K arms had a probability of at
    least floor / K; or a lower bound for each arm."""
    active: bool | None = None
    """Whether the experiment is still running, so that intervals must be valid at any time. By default, if
    the log is in a store and the experiment is not archived."""
    adaptive: bool | None = None
    "Whether the logging policy learned from the log; None: yes if the probabilities changed."
    first_position: int | None = None
    "The position (0 or 1) of a target's first column; None: derived from the log."
    interval: str = "normal"
    "The interval of additive estimators: normal or bernstein."
    cluster: str | None = None
    """Whether the rows of a unit may depend on each other ("unit"), or all rows are independent ("row"). By
    default "unit" if units repeat and their rewards are alike (a design effect above 1.2)."""
    min_effective_size: float = 30.0
    """An estimator is refused if the effective sample size is smaller. Several segments need more rows: see
    `for_segments`."""
    max_unsupported: float = 0.2
    "The largest accepted fraction of rows in which the target's choice was impossible."
    max_missing: float = 0.2
    "The largest accepted fraction of rows whose rewards are missing."
    missing: str = "bounds"
    """What missing rewards mean: "bounds" widens intervals to all values that they could have, if their range
    is known; "ignore" leaves these rows out, as if rewards were missing at random."""
    executor: Executor | None = None
    "Its workers process parts of the log in parallel."
    on_rows: Callable[[int], None] | None = None
    "Called from time to time with the number of rows read."
    by: tuple[str, ...] | None = None
    """A key of the context, or several: one report for each segment, a group of decisions with the same
    values. The intervals of all segments are valid together (Bonferroni)."""
    context: tuple[str, ...] | None = None
    "Columns of a table that are keys of the context, if it has no column `context`."
    features: Any = None
    """How contexts become the features of the reward model: a `Features`, or keys of the context that are
    used as categories. By default the encoded rows of the log, otherwise its keys as categories."""
    min_segment_rows: int = 100
    max_segments: int = 20
    "Segments with fewer rows, and all but the largest ones, are pooled as (other)."

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


_KEYS_OF: Mapping[str, Callable[[str], Rule | LinearRule]] = {
    rules.PREFIX: Rule.read,
    linear_rules.PREFIX: LinearRule.read,
}


def keys_of(targets: Iterable[AnyTarget], settings: Settings) -> list[str]:
    """The keys of the context that a query uses: those of rules, segments and features."""
    keys = [*(settings.by or ())]
    if isinstance(settings.features, Features):
        keys += settings.features.inputs
    else:
        keys += settings.features or ()
    for target in targets:
        for prefix, read in _KEYS_OF.items() if isinstance(target, str) else ():
            if str(target).strip().startswith(prefix):
                keys += read(str(target)).keys
    return list(dict.fromkeys(keys))


@dataclass(frozen=True, eq=False, kw_only=True)
class Query:
    """What is asked of a log: the values of targets, by estimators, under settings."""

    targets: tuple[Target, ...]
    estimators: Mapping[str, tuple[Any, ...]]
    "By the name in the report: one estimator, or one for each level to choose from."
    settings: Settings
    default_estimators: bool
    "Whether the caller named no estimators."
    by_unit: bool
    "Whether the rows of a unit may depend on each other."
    shared_rows: bool = False
    "Whether only rows count in which every arm of all targets could have been chosen, as in a comparison."
    fill_missing: tuple[float, ...] | None = None
    "Numbers that replace missing rewards, one per arm, to bound what these could change."

    @classmethod
    def of(
        cls,
        log: EvaluationLog,
        targets: Sequence[AnyTarget],
        estimators: Sequence[str] | None,
        settings: Settings,
    ) -> Query:
        """A query of this log; an error if the log has no rows."""
        log.require_rows()
        return cls(
            targets=tuple(bind_to_log(each, log, settings) for each in targets),
            estimators=_default_estimators(log) if estimators is None else _named_estimators(estimators),
            settings=settings,
            default_estimators=estimators is None,
            by_unit=settings.cluster == "unit" or log.sticky,
        )

    @property
    def wanted(self) -> NDArray[np.bool_] | None:
        """The arms that every row must be able to choose, if rows are shared by all targets; else None."""
        if not self.shared_rows or any(target.contextual for target in self.targets):
            return None
        wanted: NDArray[np.bool_] = np.logical_or.reduce([target.chosen_arms for target in self.targets])
        return wanted

    @property
    def row_options(self) -> dict[str, Any]:
        """The options of `weighted_rows`."""
        contextual = self.shared_rows and any(target.contextual for target in self.targets)
        shared = [part for target in self.targets for part in target.parts] if contextual else []
        return {"by_unit": self.by_unit, "wanted_arms": self.wanted, "shared_with": shared}

    @property
    def additive(self) -> list[Any]:
        """The additive estimators, one for each set of moments that they need."""
        found = [each for group in self.estimators.values() for each in group if not each.sequential]
        return list({each.key: each for each in found}.values())

    def detached(self) -> Query:
        """A copy without the executor and the callback, which can be sent to another process."""
        return replace(self, settings=replace(self.settings, executor=None, on_rows=None))


def _default_estimators(log: EvaluationLog) -> dict[str, tuple[Estimator, ...]]:
    return {
        cls.name: (cls(),)
        for cls in sorted(all_estimators().values(), key=lambda cls: cls.order)
        if cls.default_for is not None and not log.missing(cls.default_for)
    }


def _named_estimators(specs: Sequence[str]) -> dict[str, tuple[Estimator, ...]]:
    if isinstance(specs, str):
        specs = [specs]
    if not isinstance(specs, Sequence):
        raise InvalidValue("estimators", specs, "names of estimators")
    if not specs:
        raise InvalidValue("estimators", specs, f"at least one of {', '.join(all_estimators())}")
    chosen: dict[str, tuple[Estimator, ...]] = {}
    for spec in specs:
        cls, level = parse(spec)
        if level is None and cls.levels:
            chosen[cls.name] = tuple(cls(each) for each in cls.levels)
        else:
            chosen[spec if level is not None else cls.name] = (cls(level),)
    return chosen


def _names(field: str, given: Any) -> tuple[str, ...] | None:
    """Names as a tuple without repetition; None if there are none."""
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidValue(field, given, "the name of a key of the context, or several names")
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
