"""`learn_rule`: the best rule of a small class, learned on one part of a log and evaluated on the other.

Each row of the first part has a doubly robust score for every arm (Athey and Wager, 2021),

    Γ(a) = q(a) + 1{a chosen} (r - q(a)) / p(a),

whose expectation is the mean reward of arm a for this visitor. The model q is fitted on earlier rows only,
which takes the place of cross-fitting and stays valid on adaptive logs. The value of a rule is estimated by
the mean score of the arms that it chooses. All trees of depth two are searched: a first condition, one more
on either side, and the best arm in each of the four cells. The second part of the log was not used, so its
report is valid for the rule that was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.columns import Columns
from maillard.decisions.contexts import Contexts, value_text
from maillard.decisions.selection import Names
from maillard.errors import CannotAnswer, InvalidValue
from maillard.evaluation.comparing import Comparison, compare_with_bounds, default_names
from maillard.evaluation.evaluating import run_with_bounds
from maillard.evaluation.evaluation_log import EvaluationLog, open_log
from maillard.evaluation.evaluation_report import Report
from maillard.evaluation.query import Options, Settings
from maillard.evaluation.reward_models import with_predictions
from maillard.evaluation.rules import Clause, Condition, Rule
from maillard.evaluation.segments import split_log, summary
from maillard.evaluation.unit_hashes import unit_hashes
from maillard.evaluation.weighted_rows import rewarded_columns
from maillard.policies.targets import FixedArm

_MAX_KEYS, _MAX_LEVELS, _MAX_THRESHOLDS = 8, 12, 12
_HASH_STEPS = 10_000
_MIN_ELIGIBLE = 0.9  # of the decisions, in which an arm of a rule must have been eligible


@dataclass(frozen=True, kw_only=True)
class LearnedRule:
    """A rule, and its value on decisions that were not used to learn it."""

    rule: str
    "The spec of the rule, which `evaluate` accepts."
    report: Report
    "The rule on the second part of the log."
    best_arm: str
    "The arm with the largest mean score in the first part."
    comparison: Comparison | None
    "The rule minus that arm, on the second part; None if the rule always chooses it."
    split: str
    "How the log was split, in words."
    rows: tuple[int, int]
    "Decisions of the two parts."
    learned_value: float
    "The mean score of the rule on the first part, which is too large because the rule was chosen by it."

    def __str__(self) -> str:
        first, second = self.rows
        gain = "the same as the best arm" if self.comparison is None else summary(self.comparison)
        return "\n".join(
            [
                self.rule,
                f"  learned on {first:,} decisions, evaluated on {second:,} others ({self.split})",
                f"  value           {summary(self.report)}",
                f"  minus {f'arm:{self.best_arm}':9} {gain}",
            ]
        )

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """The result as values that JSON supports."""
        return {
            "rule": self.rule,
            "best_arm": self.best_arm,
            "split": self.split,
            "rows": list(self.rows),
            "learned_value": self.learned_value,
            "report": self.report.to_dict(),
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
        }


def learn_rule(
    log: Any,
    keys: Names = None,
    *,
    depth: int = 2,
    split: str | None = None,
    fraction: float = 0.5,
    min_rows: int = 50,
    confidence: float = 0.95,
    estimators: Sequence[str] | None = None,
    **options: Unpack[Options],
) -> LearnedRule:
    """Learn the best rule of a tree of `depth` 0, 1 or 2 on a part of the log, and evaluate it on the rest.

    `keys` are the keys of the context that the rule may use, by default those of the log (at most 8). Text
    and flags are compared for equality, numbers with thresholds. Each cell of the tree has at least
    `min_rows` decisions. `fraction` of the decisions are used to learn: the first ones (`split="order"`), or
    those of units whose hash is small (`split="unit"`), so that no unit is in both parts. The default is
    "unit" if units repeat, otherwise "order". The other options are those of `evaluate`.
    """
    _check(depth, split, fraction, min_rows)
    settings = Settings.of(confidence, {**options}).for_comparisons(1)
    names = _names(keys)
    with open_log(log, settings, names) as opened:
        opened.require_rows()
        if opened.action_names is not None:
            raise CannotAnswer(
                f"{opened.source}: the arms differ at every decision, and rules are learned for arms that "
                "all decisions share. A function of the context and the actions is a target of `evaluate`"
            )
        chosen = names or list(_keys_of(opened))
        opened.require_keys(chosen)
        by_unit = split == "unit" or (split is None and _units_repeat(opened))
        with _parts(opened, fraction, by_unit=by_unit) as (first, second, how):
            rule, arm, value = _learn(with_predictions(first, settings.features), chosen, depth, min_rows)
            report = run_with_bounds(second, [str(rule)], estimators, settings)[0]
            comparison = None
            if len(rule.clauses) > 1:
                pair = str(rule), FixedArm(arm)
                comparison = compare_with_bounds(second, pair, default_names(second), settings, None)
            return LearnedRule(
                rule=str(rule),
                report=report,
                best_arm=arm,
                comparison=comparison,
                split=how,
                rows=(first.size, second.size),
                learned_value=value,
            )


def _check(depth: int, split: str | None, fraction: float, min_rows: int) -> None:
    if depth not in (0, 1, 2):
        raise InvalidValue("depth", depth, "0, 1 or 2")
    if split not in (None, "order", "unit"):
        raise InvalidValue("split", split, "order or unit")
    if not 0 < fraction < 1:
        raise InvalidValue("fraction", fraction, "a number between 0 and 1")
    if not min_rows >= 1:
        raise InvalidValue("min_rows", min_rows, "a whole number >= 1")


def _names(keys: Names) -> list[str]:
    return [keys] if isinstance(keys, str) else list(keys or ())


def _keys_of(log: EvaluationLog) -> tuple[str, ...]:
    contexts = log._first_columns.contexts
    keys = () if contexts is None else contexts.keys
    if not keys:
        raise CannotAnswer(
            f"{log.source} has no keys of a context to learn a rule from; name columns with keys=[...]"
        )
    return keys[:_MAX_KEYS]


def _units_repeat(log: EvaluationLog) -> bool:
    """Whether a unit occurs twice in the first rows."""
    units = log._first_columns.unit
    known = [] if units is None else [unit for unit in units if unit is not None]
    return len(set(known)) < len(known)


@contextmanager
def _parts(
    log: EvaluationLog, fraction: float, *, by_unit: bool
) -> Iterator[tuple[EvaluationLog, EvaluationLog, str]]:
    """The part to learn from, the part to evaluate on, and how they were made."""
    seen = 0

    def places(columns: Columns) -> Ints:
        nonlocal seen
        if by_unit:
            units = [None] * len(columns) if columns.unit is None else columns.unit.tolist()
            rows = [f"row {row}" for row in columns.row.tolist()]
            named = [row if unit is None else unit for unit, row in zip(units, rows, strict=True)]
            found: Ints = (unit_hashes(named) % _HASH_STEPS >= fraction * _HASH_STEPS).astype(np.int64)
            return found
        row = np.arange(seen, seen + len(columns))
        seen += len(columns)
        return (row >= fraction * log.size).astype(np.int64)

    how = "by unit: no unit is in both parts" if by_unit else "by order: the first decisions, then the others"
    with split_log(log, places, ["to learn", "to evaluate"]) as (first, second):
        for part in (first, second):
            if not part.size:
                raise CannotAnswer(f"{part.source}: no decisions; a rule needs more rows")
        yield first, second, how


def _learn(log: EvaluationLog, keys: Sequence[str], depth: int, min_rows: int) -> tuple[Rule, str, float]:
    """The best rule, the best single arm, and the mean score of the rule."""
    scores, kept, eligible = [], [], np.zeros(len(log.arms))
    for columns in log.columns():
        rewarded, _ = rewarded_columns(columns, log)
        if len(rewarded):
            scores.append(scores_of(rewarded))
            kept.append(rewarded.contexts)
            able = rewarded.eligible
            eligible += len(rewarded) if able is None else able.sum(axis=0)
    if not scores:
        raise CannotAnswer(f"{log.source}: no decision has a final reward")
    gamma = np.vstack(scores)
    # A rule that chooses an arm which many visitors could not have seen could not be evaluated.
    usual = np.flatnonzero(eligible >= _MIN_ELIGIBLE * len(gamma))
    gamma, arms = gamma[:, usual], [log.arms[place] for place in usual.tolist()]
    if not arms:
        raise CannotAnswer(f"{log.source}: no arm was eligible in most decisions")
    contexts = [each for each in kept if each is not None]
    conditions = candidate_conditions(contexts, keys, min_rows) if depth else []
    holds = np.vstack([_holds(each, conditions) for each in contexts])
    rule = best_tree(gamma, holds, conditions, arms, depth=depth, min_rows=min_rows)
    value = float(_rule_scores(rule, contexts, gamma, arms).mean())
    return rule, arms[int(gamma.sum(axis=0).argmax())], value


def scores_of(columns: Columns) -> Floats:
    """Γ of each row and arm, n x K."""
    n = len(columns)
    q = columns.predictions
    assert q is not None
    every, gamma = np.arange(n), q.copy()
    residual = (columns.reward - q[every, columns.arm]) * np.exp(-columns.log_probability)
    gamma[every, columns.arm] += residual
    return gamma


def _rule_scores(rule: Rule, contexts: Sequence[Contexts], gamma: Floats, arms: Sequence[str]) -> Floats:
    place = np.concatenate([rule.places(each) for each in contexts])
    chosen = rule.probabilities(arms)[place]
    scores: Floats = (chosen * gamma).sum(axis=1)
    return scores


def candidate_conditions(contexts: Sequence[Contexts], keys: Sequence[str], min_rows: int) -> list[Condition]:
    """The conditions that a tree may use: the most common values of text, and quantiles of numbers."""
    found: list[Condition] = []
    for key in keys:
        columns = [each.column(key) for each in contexts]
        numbers = [column.numbers() for column in columns]
        if all(each is not None for each in numbers):
            found += _thresholds(key, np.concatenate([each for each in numbers if each is not None]))
            continue
        counts: dict[str, int] = {}
        for column in columns:
            each = np.bincount(column.codes, minlength=len(column.values)).tolist()
            for value, count in zip(column.values, each, strict=True):
                if (text := value_text(value)) is not None:
                    counts[text] = counts.get(text, 0) + count
        common = sorted(counts, key=lambda text: (-counts[text], text))[:_MAX_LEVELS]
        found += [Condition(key, "=", text) for text in common if counts[text] >= min_rows]
    return found


def _thresholds(key: str, numbers: Floats) -> list[Condition]:
    known = numbers[np.isfinite(numbers)]
    if not known.size:
        return []
    values = np.unique(known)
    if values.size > _MAX_THRESHOLDS + 1:
        levels = np.arange(1, _MAX_THRESHOLDS + 1) / (_MAX_THRESHOLDS + 1)
        values = np.unique(np.quantile(known, levels, method="nearest"))
    else:
        values = values[1:]
    return [Condition(key, "<", value_text(value) or "") for value in values.tolist()]


def _holds(contexts: Contexts, conditions: Sequence[Condition]) -> Bools:
    """Whether each condition holds, n x S."""
    every = [each.holds(contexts) for each in conditions]
    return np.stack(every, axis=1) if every else np.zeros((len(contexts), 0), np.bool_)


def best_tree(
    gamma: Floats,
    holds: Bools,
    conditions: Sequence[Condition],
    arms: Sequence[str],
    *,
    depth: int = 2,
    min_rows: int = 1,
) -> Rule:
    """The tree with the largest sum of scores; the simplest of several."""
    packed, place = np.unique(np.packbits(holds, axis=1), axis=0, return_inverse=True)
    place = place.reshape(-1)
    cells = len(packed)
    # Rows in which the same conditions hold are added up first. The first condition always holds.
    sums = np.stack([np.bincount(place, weights=each, minlength=cells) for each in gamma.T], axis=1)
    sums = np.hstack([sums, np.bincount(place, minlength=cells)[:, np.newaxis]])
    true = np.unpackbits(packed, axis=1, count=holds.shape[1]).astype(np.float64)
    true = np.hstack([np.ones((cells, 1)), true])
    both = np.stack([(true * each[:, np.newaxis]).T @ true for each in sums.T], axis=2)  # S x S x (K + 1)
    one, total = both[0], both[0, 0]
    every = list(range(true.shape[1]))
    first, second = every[: 1 if depth == 0 else None], every[: 1 if depth < 2 else None]
    best: tuple[float, tuple[int, int, int]] | None = None
    for s in first:
        inside, outside = one[s], total - one[s]
        left = [_pair(both[s, t], inside - both[s, t], min_rows) for t in second]
        right = [_pair(one[t] - both[s, t], outside - one[t] + both[s, t], min_rows) for t in second]
        value = max(left) + max(right)
        if best is None or value > best[0] + 1e-9 * max(1.0, abs(best[0])):
            best = value, (s, second[int(np.argmax(left))], second[int(np.argmax(right))])
    assert best is not None
    s, t, u = best[1]
    cells_of_tree = [
        ((s, t), both[s, t]),
        ((s,), one[s] - both[s, t]),
        ((u,), one[u] - both[s, u]),
        ((), total - one[s] - one[u] + both[s, u]),
    ]
    return _rule(cells_of_tree, conditions, arms)


def _pair(one: Floats, other: Floats, min_rows: int) -> float:
    """The sum of the best scores in two cells, the last entry of which is the number of rows."""
    value = 0.0
    for cell in (one, other):
        if 0.5 < cell[-1] < min_rows:
            return -np.inf
        value += float(cell[:-1].max()) if cell[-1] > 0.5 else 0.0
    return value


def _rule(
    cells: Sequence[tuple[tuple[int, ...], Floats]], conditions: Sequence[Condition], arms: Sequence[str]
) -> Rule:
    """The cells of a tree in order as a rule, without clauses that change nothing."""
    clauses: list[Clause] = []
    for used, cell in cells:
        if cell[-1] < 0.5:  # no row
            continue
        named = tuple(conditions[each - 1] for each in used if each > 0)
        clauses.append(Clause(named, arms[int(cell[:-1].argmax())]))
        if not named:
            break
    last = clauses[-1]
    clauses[-1] = Clause((), last.arm)
    # A clause is not needed if the next one that could hold instead chooses the same arm.
    kept: list[Clause] = [clauses[-1]]
    for clause in reversed(clauses[:-1]):
        follower = next((each for each in kept if set(each.conditions) <= set(clause.conditions)), kept[-1])
        between = kept[: kept.index(follower)]
        if follower.arm != clause.arm or any(each.arm != clause.arm for each in between):
            kept.insert(0, clause)
    return Rule(tuple(kept))
