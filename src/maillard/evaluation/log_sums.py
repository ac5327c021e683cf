"""One pass over a log, in any order and in any number of parts: everything that estimators and diagnostics add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.audit import Audit, Score, verdict_for
from maillard.errors import InvalidLog
from maillard.evaluation.diagnostics import Overlap, Spread, WeightTest, spread_of, weight_test
from maillard.evaluation.weighted_rows import Question, Rows, rows_for, with_rewards

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.columns import Columns
    from maillard.evaluation.estimators.additive import Additive

    Floats = NDArray[np.float64]

__all__ = ["Asked", "Sums", "TargetSums", "add_up", "kinds_of", "rows_of", "sums_of", "total_of"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Asked:
    """What is to be added up, and how the log is to be read."""

    questions: tuple[Question, ...]
    estimators: tuple[Additive, ...]
    "One of each kind of sum."
    source: str
    arms: tuple[str, ...]
    foreign: bool
    requires_closed_windows: bool
    reward_range: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class TargetSums:
    """Of one target: the spread of its weights by epoch, the sums of each kind, and the rows that say nothing of it."""

    spread: Mapping[int, Spread]
    sums: Mapping[tuple[str, float | None], Any]
    test: WeightTest
    "Of all draws, whether they have a reward or not."
    left_out: Counter[str]

    def __add__(self, other: TargetSums) -> TargetSums:
        return TargetSums(
            merged(self.spread, other.spread),
            merged(self.sums, other.sums),
            self.test + other.test,
            self.left_out + other.left_out,
        )


@dataclass(frozen=True, eq=False)
class Sums:
    """Of a part of a log."""

    rows: int
    laws: bool
    "Whether every row has the probability of every arm."
    units: bool
    "Whether some row is somebody's."
    repeated: int
    left_out: Counter[str]
    audit: Audit
    overlap: Overlap
    chances: Mapping[int, Floats]
    "By position, the smallest and largest log probability with which each arm was drawn."
    targets: tuple[TargetSums, ...]

    def __add__(self, other: Sums) -> Sums:
        chances = dict(self.chances)
        for position, (low, high) in other.chances.items():
            mine = chances.get(position, np.array([np.full_like(low, np.inf), np.full_like(low, -np.inf)]))
            chances[position] = np.array([np.minimum(mine[0], low), np.maximum(mine[1], high)])
        return Sums(
            self.rows + other.rows,
            self.laws and other.laws,
            self.units or other.units,
            self.repeated + other.repeated,
            self.left_out + other.left_out,
            self.audit + other.audit,
            self.overlap + other.overlap,
            chances,
            tuple(one + another for one, another in zip(self.targets, other.targets, strict=True)),
        )

    def drawn(self) -> Floats:
        """How often each arm was drawn."""
        total: Floats = sum((table[1] for table in self.overlap.epochs.values()), np.zeros(1))
        return total

    def verdict(self) -> str:
        """Whether the draws agree with the probabilities: of whole laws, or of arms that always had the same."""
        if (
            self.laws
            or not self.constant
            or len(self.chances) > 1
            or len(self.overlap.epochs) > 1
            or self.repeated
        ):
            return self.audit.verdict
        [(low, _)] = self.chances.values()
        [(eligible, drawn, *_)] = self.overlap.epochs.values()
        known = np.isfinite(low)
        p, n = np.exp(low[known]), eligible[known]
        if p.sum() > 1.0 + 1e-6 and (n == self.rows).all():
            return "broken"
        scores = [
            Score(name="", observed=float(d), expected=float(e), variance=float(v), largest=1.0)
            for d, e, v in zip(drawn[known], n * p, n * p * np.maximum(1.0 - p, 0.0), strict=True)
        ]
        return verdict_for(scores) if (n == self.rows).all() and scores else "not enough data"

    @property
    def constant(self) -> bool:
        """Whether an arm was always drawn with the same probability."""
        return all(bool(((high - low < 1e-9) | (high < low)).all()) for low, high in self.chances.values())


def rows_of(some: Columns, asked: Asked) -> tuple[list[tuple[Rows, Mapping[str, int]]], Mapping[str, int]]:
    """The rows of each target, those that say nothing of it counted; and how many have no final reward."""
    rewarded, left_out = with_rewards(
        some,
        requires_closed_windows=asked.requires_closed_windows,
        foreign=asked.foreign,
        reward_range=asked.reward_range,
        source=asked.source,
    )
    return [rows_for(rewarded, question, asked.source) for question in asked.questions], left_out


@np.errstate(over="ignore", invalid="ignore")  # what is too large is refused when it is solved
def sums_of(some: Columns, asked: Asked, then: Callable[[int, Rows], None] | None = None) -> Sums:
    """What some decisions add; `then` is told the rows of each target."""
    from maillard.evaluation.compiled_sums import applies_to, quick_sums

    if then is None and applies_to(some, asked) and (made := quick_sums(some, asked)) is not None:
        return made
    k = len(asked.arms)
    beyond = (some.arm < 0) | (some.arm >= k)
    if beyond.any():
        at = int(beyond.argmax())
        raise InvalidLog(
            f"{asked.source}, row {some.row[at]}: arm", int(some.arm[at]), f"a place among {k} arms"
        )
    audit = Audit()
    audit.add_columns(asked.arms, some)
    overlap = Overlap.of(some, k)
    by_position = any(question.target.positions > 1 for question in asked.questions)
    chances = _chances(some, k, by_position=by_position)
    found, left_out = rows_of(some, asked)
    targets = []
    for place, (rows, left) in enumerate(found):
        if then is not None:
            then(place, rows)
        spread = {int(epoch): spread_of(rows.filter(rows.epoch == epoch)) for epoch in np.unique(rows.epoch)}
        drawn = (
            rows if not any(left_out.values()) else rows_for(some, asked.questions[place], asked.source)[0]
        )
        sums = {each.key: each.sums(rows) for each in asked.estimators}
        targets.append(TargetSums(spread, sums, weight_test(drawn), Counter(left)))
    repeated = int(some.repeated.sum())
    return Sums(
        len(some),
        some.has_all_probabilities,
        some.unit is not None,
        repeated,
        Counter(left_out),
        audit,
        overlap,
        chances,
        tuple(targets),
    )


def _chances(some: Columns, arms: int, *, by_position: bool) -> dict[int, Floats]:
    found = {}
    for position in np.unique(some.position) if by_position else (0,):
        part = some.filter(some.position == position) if by_position else some
        low, high = np.full(arms, np.inf), np.full(arms, -np.inf)
        np.minimum.at(low, part.arm, part.log_probability)
        np.maximum.at(high, part.arm, part.log_probability)
        found[int(position)] = np.array([low, high])
    return found


def add_up(part: Callable[[], Iterable[Columns]], asked: Asked) -> Sums | None:
    """The sums of a part of a log; None where it has no rows. This is what travels to other machines."""
    from maillard.evaluation.compiled_sums import applies, scan

    if applies(part, asked):
        return scan(part, asked)  # type: ignore[arg-type]  # as it says
    return total_of(sums_of(some, asked) for some in part() if len(some))


@np.errstate(over="ignore", invalid="ignore")
def total_of(parts: Iterable[Sums | None]) -> Sums | None:
    """The sums of several parts, in whatever order."""
    total: Sums | None = None
    for each in parts:
        if each is not None:
            total = each if total is None else total + each
    return total


def merged(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    """Two mappings, values of the same key added."""
    both = dict(one)
    for key, value in other.items():
        both[key] = both[key] + value if key in both else value
    return both


def kinds_of(estimators: Sequence[Additive]) -> tuple[Additive, ...]:
    """One estimator of each kind of sum."""
    return tuple({each.key: each for each in estimators}.values())
