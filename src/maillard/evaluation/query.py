"""The query of an evaluation: its targets, its estimators and its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import InvalidValue
from maillard.evaluation import linear_rules, rules
from maillard.evaluation.bound_targets import AnyTarget, Target, bind_to_log
from maillard.evaluation.estimators import all_estimators, parse
from maillard.evaluation.estimators.estimator import Estimator
from maillard.evaluation.linear_rules import LinearRule
from maillard.evaluation.rules import Rule
from maillard.evaluation.settings import Settings
from maillard.features import Features

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.evaluation.evaluation_log import EvaluationLog


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
