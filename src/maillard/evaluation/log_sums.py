"""The sums that estimators and diagnostics need: one pass over a log, in any order and number of parts."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.decisions.audit import Audit, Score, verdict_for
from maillard.decisions.columns import Columns
from maillard.decisions.pipeline_audit import PipelineAudit
from maillard.errors import InvalidLog
from maillard.evaluation import compiled_audit, diagnostics
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.mergeable_sums import MergeableSums, merged
from maillard.evaluation.query import Query
from maillard.evaluation.sequential.sequential_runner import SequentialRunner
from maillard.evaluation.term_sums import arm_sums, term_sums
from maillard.evaluation.unit_sums import UnitSums
from maillard.evaluation.weighted_rows import WeightedRows, rewarded_columns, weighted_rows


def _merge_terms(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


@dataclass(frozen=True, eq=False)
class TargetSums(MergeableSums):
    """The sums of one target: weights by epoch, moments by key, the weight test, rows left out by reason."""

    spread: Mapping[int, diagnostics.Spread]
    sums: Mapping[tuple[str, float | None], Any]
    test: diagnostics.WeightTest
    "Of all rows, with or without a reward."
    left_out: Counter[str]
    terms: Floats | None = None
    "The sums of `term_sums`; None if they were not computed."
    units: UnitSums | None = None
    "The sums by unit; None if there are no units."
    places: Floats | None = None
    "For each distribution of a contextual target: the rows, and those whose arm it can choose."
    merge_by: ClassVar = {
        "spread": merged,
        "sums": merged,
        "terms": _merge_terms,
        "units": _merge_terms,
        "places": _merge_terms,
    }


def _merge_extremes(one: Mapping[int, Floats], other: Mapping[int, Floats]) -> dict[int, Floats]:
    return merged(one, other, lambda a, b: np.array([np.minimum(a[0], b[0]), np.maximum(a[1], b[1])]))


def _merge_targets(one: tuple[TargetSums, ...], other: tuple[TargetSums, ...]) -> tuple[TargetSums, ...]:
    return tuple(map(operator.add, one, other))


@dataclass(frozen=True, eq=False)
class LogSums(MergeableSums):
    """All sums of a part of a log."""

    rows: int
    all_probabilities: bool
    "Whether every row has the probability of every arm."
    units: bool
    "Whether some row has a unit."
    repeated: int
    left_out: Counter[str]
    audit: Audit
    pipeline: PipelineAudit
    overlap: Mapping[int, Floats]
    extremes: Mapping[int, Floats]
    "By position, the smallest and largest log probability with which each arm was chosen."
    targets: tuple[TargetSums, ...]
    arm_quarters: Floats | None = None
    "The sums of `arm_sums`; None if they were not computed."
    late: Floats | None = None
    "By arm: final rewards, their sum, the number of late rewards, and the sum if late rewards counted."
    filled: int = 0
    "Rows whose missing reward was replaced by an end of the range."
    merge_by: ClassVar = {
        "all_probabilities": operator.and_,
        "units": operator.or_,
        "overlap": diagnostics.merge_overlaps,
        "extremes": _merge_extremes,
        "targets": _merge_targets,
        "arm_quarters": _merge_terms,
        "late": _merge_terms,
    }

    def chosen(self) -> Floats:
        """How often each arm was chosen."""
        total: Floats = sum((table[1] for table in self.overlap.values()), np.zeros(1))
        return total

    @property
    def varying_eligibility(self) -> bool:
        """Whether some arm could not be chosen in some rows."""
        return any((table[0] < table[0].max()).any() for table in self.overlap.values())

    @property
    def changed_eligibility(self) -> bool:
        """Whether some arm could be chosen in some rows, but not in all."""
        return any(((table[0] > 0) & (table[0] < table[0].max())).any() for table in self.overlap.values())

    def verdict(self) -> str:
        """Whether the chosen arms agree with the logged probabilities, and the rows show no fault."""
        return "broken" if self.faults else self._choices_verdict

    @cached_property
    def faults(self) -> list[str]:
        """The likely faults of the program that wrote the log; empty if probabilities are wrong anyway."""
        return [] if self._choices_verdict == "broken" else self.pipeline.faults

    @cached_property
    def _choices_verdict(self) -> str:
        """Whether the chosen arms agree with the logged probabilities.

        Without the probabilities of all arms, this can be tested only if each arm's probability is constant.
        """
        if not self._of_constant_choices:
            return self.audit.verdict
        scores = self.choice_scores(())
        if sum(score.expected for score in scores) > (1.0 + 1e-6) * self.rows:
            return "broken"
        return verdict_for(scores) if scores else "cannot be audited"

    @property
    def _of_constant_choices(self) -> bool:
        """Whether only the probabilities of chosen arms are known, and are the same in all rows."""
        same = self.constant and len(self.extremes) == len(self.overlap) == 1
        return same and not self.all_probabilities and not self.repeated

    def choice_scores(self, arms: Sequence[str]) -> list[Score]:
        """How often each arm was chosen, and how often it was expected; empty if this is not known."""
        if not self._of_constant_choices:
            return self.audit.scores()
        [(low, _)] = self.extremes.values()
        [(eligible, chosen, *_)] = self.overlap.values()
        known = np.flatnonzero(np.isfinite(low))
        if (eligible[known] != self.rows).any():
            return []
        p, n = np.exp(low[known]), self.rows
        return [
            Score(name=arms[place] if arms else "", observed=d, expected=e, variance=v, largest=1.0)
            for place, d, e, v in zip(
                known.tolist(),
                chosen[known].tolist(),
                (n * p).tolist(),
                (n * p * np.maximum(1.0 - p, 0.0)).tolist(),
                strict=True,
            )
        ]

    @property
    def constant(self) -> bool:
        """Whether each arm was always chosen with the same probability."""
        return all(bool(((high - low < 1e-9) | (high < low)).all()) for low, high in self.extremes.values())


def rows_by_target(
    columns: Columns, log: EvaluationLog, query: Query
) -> tuple[list[tuple[WeightedRows, Mapping[str, int]]], Mapping[str, int]]:
    """The rows of each target with the number of uninformative ones, and the number without a final reward.

    The numbers are by reason.
    """
    rewarded, left_out = rewarded_columns(columns, log, query.fill_missing)
    found = [weighted_rows(rewarded, log, each, **query.row_options) for each in query.targets]
    return found, left_out


@np.errstate(over="ignore", invalid="ignore")  # overflow is refused later, with the estimate
def sums_of(
    columns: Columns, log: EvaluationLog, query: Query, runners: Sequence[SequentialRunner] = ()
) -> LogSums:
    """The sums of some rows; the runner of each target, if there is one, processes its rows."""
    from maillard.evaluation.compiled_sums import accepts_columns, compiled_sums

    fast = not runners and accepts_columns(columns, log, query)
    if fast and (made := compiled_sums(columns, log, query)) is not None:
        return made
    k = len(log.arms)
    beyond = (columns.arm < 0) | (columns.arm >= k)
    if beyond.any():
        at = int(beyond.argmax())
        field = f"{log.source}, row {columns.row[at]}: arm"
        raise InvalidLog(field, int(columns.arm[at]), f"the index of one of {k} arms")
    audit = Audit()
    audit.add_columns(log.arms, columns)
    pipeline = PipelineAudit()
    compiled_audit.add_columns(pipeline, columns, log)
    found, left_out = rows_by_target(columns, log, query)
    final = columns.filter(columns.closed) if log.requires_closed_windows else columns
    targets = []
    for place, (rows, uninformative) in enumerate(found):
        if runners:
            runners[place].advance(rows)
        every = rows
        if any(left_out.values()):
            every = weighted_rows(columns, log, query.targets[place], **query.row_options)[0]
        spread = {epoch: diagnostics.spread_of(part) for epoch, part in diagnostics.parts_by_epoch(rows)}
        sums = {each.key: each.sums(rows) for each in query.additive}
        test, terms = diagnostics.weight_test(every), term_sums(rows, log.size)
        units = None if rows.named_unit is None else UnitSums.of(rows, rows.named_unit)
        by_place = _sums_by_place(rows, query.targets[place])
        targets.append(TargetSums(spread, sums, test, Counter(uninformative), terms, units, by_place))
    return LogSums(
        len(columns),
        columns.has_all_probabilities,
        columns.unit is not None,
        int(columns.repeated.sum()),
        Counter(left_out),
        audit,
        pipeline,
        diagnostics.overlap_of(columns, k),
        _extremes(columns, k, by_position=any(target.positions > 1 for target in query.targets)),
        tuple(targets),
        # A contextual policy shows an arm to other visitors as it learns, so the arm's own mean may change.
        None if log.contextual else arm_sums(final, k, log.size, log.center),
        _late_sums(final, k),
        0 if query.fill_missing is None else int(np.isnan(final.reward).sum()),
    )


def _sums_by_place(rows: WeightedRows, target: Target) -> Floats | None:
    if not target.contextual or target.summarises or target.is_difference:
        return None
    count = len(target.probabilities)
    every = np.bincount(rows.target_row, minlength=count)
    positive = np.bincount(rows.target_row[rows.weight > 0], minlength=count)
    return np.stack([every, positive], axis=1).astype(np.float64)


def _late_sums(columns: Columns, arms: int) -> Floats:
    missing = np.isnan(columns.reward)
    known = columns.filter(~missing) if missing.any() else columns
    rows = np.bincount(known.arm, minlength=arms)
    total = np.bincount(known.arm, weights=known.reward, minlength=arms)
    if known.late_reward is None:
        return np.stack([rows, total, np.zeros(arms), total], axis=1)
    is_late = ~np.isnan(known.late_reward)
    value = np.where(is_late, known.late_reward, known.reward)
    late, with_late = (np.bincount(known.arm, weights=each, minlength=arms) for each in (is_late, value))
    return np.stack([rows, total, late, with_late], axis=1)


def _extremes(columns: Columns, arms: int, *, by_position: bool) -> dict[int, Floats]:
    found = {}
    for position in np.unique(columns.position) if by_position else (0,):
        part = columns.filter(columns.position == position) if by_position else columns
        low, high = np.full(arms, np.inf), np.full(arms, -np.inf)
        np.minimum.at(low, part.arm, part.log_probability)
        np.maximum.at(high, part.arm, part.log_probability)
        found[int(position)] = np.array([low, high])
    return found


def sums_of_part(part: Callable[[], Iterable[Columns]], log: EvaluationLog, query: Query) -> LogSums | None:
    """The sums of a part of a log; None if it has no rows. Workers run this, possibly on other machines."""
    from maillard.evaluation.compiled_sums import accepts_part, sums_of_file

    if accepts_part(part, log, query):
        return sums_of_file(part, log, query)  # type: ignore[arg-type]  # checked above
    return total_of(sums_of(columns, log, query) for columns in part() if len(columns))


@np.errstate(over="ignore", invalid="ignore")
def total_of(parts: Iterable[LogSums | None]) -> LogSums | None:
    """The sums of several parts, in any order."""
    total: LogSums | None = None
    for each in parts:
        if each is not None:
            total = each if total is None else total + each
    return total
