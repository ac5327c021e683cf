"""The best tree of conditions on the context, by exhaustive search.

The value of a tree is the sum of the scores Γ of the arms that it chooses. Its first condition splits the
rows in two, one more condition on either side gives four cells, and each cell gets its best arm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maillard.array_types import Bools, Floats
from maillard.decisions.contexts import Contexts, value_text
from maillard.evaluation.rules import Clause, Condition, Rule, common_values

_MAX_THRESHOLDS = 12


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
        found += [Condition(key, "=", text) for text in common_values(counts) if counts[text] >= min_rows]
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


def holds_in(contexts: Contexts, conditions: Sequence[Condition]) -> Bools:
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
