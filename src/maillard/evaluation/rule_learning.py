"""`learn_rule`: the best rule of a small class, learned on one part of a log and evaluated on the other.

Each row of the first part has a doubly robust score for every arm (Athey and Wager, 2021),

    Γ(a) = q(a) + 1{a chosen} (r - q(a)) / p(a),

whose expectation is the mean reward of arm a for this visitor. The model q is fitted on earlier rows only,
which takes the place of cross-fitting and stays valid on adaptive logs. The value of a rule is estimated by
the mean score of the arms that it chooses. All trees of depth two are searched: a first condition, one more
on either side, and the best arm in each of the four cells. A linear rule chooses the arm with the largest
ridge regression of its scores (linear_rules.py). The second part of the log was not used, so its report is
valid for the rule that was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from maillard import html_fragments
from maillard.array_types import Floats, Ints
from maillard.decisions.columns import Columns
from maillard.decisions.contexts import Contexts
from maillard.decisions.selection import Names
from maillard.errors import CannotAnswer, InvalidValue, UnknownName
from maillard.evaluation.comparing import Comparison, compare_with_bounds, default_names
from maillard.evaluation.estimate_display import estimate_columns
from maillard.evaluation.evaluating import run_with_bounds
from maillard.evaluation.evaluation_log import EvaluationLog, open_log
from maillard.evaluation.evaluation_report import Report
from maillard.evaluation.linear_rules import LinearRule, best_linear, declared_features
from maillard.evaluation.reward_models import with_predictions
from maillard.evaluation.rules import Rule
from maillard.evaluation.segments import SHOWN_HEADS, shown_cells, shown_estimate, split_log, summary
from maillard.evaluation.settings import Options, Settings, with_options
from maillard.evaluation.tree_search import best_tree, candidate_conditions, holds_in
from maillard.evaluation.unit_hashes import unit_hashes
from maillard.evaluation.weighted_rows import rewarded_columns
from maillard.features import Features
from maillard.optional_packages import data_frame, needs_extra
from maillard.policies.targets import FixedArm
from maillard.short_reprs import fit_screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_MAX_KEYS = 8
_HASH_STEPS = 10_000
_MIN_ELIGIBLE = 0.9  # of the decisions, in which an arm of a rule must have been eligible


@dataclass(frozen=True, kw_only=True)
class LearnedRule:
    """A rule, and its value on decisions that were not used to learn it.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> device, arm = rng.choice(["phone", "desktop"], 600), rng.choice(["red", "blue"], 600)
    >>> log = {"arm": arm, "probability": np.full(600, 0.5), "device": device}
    >>> log["reward"] = rng.random(600) < np.where((arm == "red") == (device == "phone"), 0.8, 0.3)
    >>> found = learn_rule(log, "device", depth=1, context="device", reward_range=(0, 1))
    >>> found.to_dict()["rule"], found.rows
    ('rule:device=desktop->blue,else->red', (300, 300))
    >>> round(found.report.best.value, 2), found.comparison.best.lower > 0  # better than the best arm
    (0.82, True)
    """

    rule: str
    "The spec of the rule, which `evaluate` accepts."
    description: str
    "The rule in words; the same as the spec if that can be read."
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
                self.description,
                f"  learned on {first:,} decisions, evaluated on {second:,} others ({self.split})",
                f"  value           {summary(self.report)}",
                f"  minus {f'arm:{self.best_arm}':9} {gain}",
            ]
        )

    def __repr__(self) -> str:
        return fit_screen(str(self))

    def _repr_html_(self) -> str:
        first, second = self.rows
        minus = f"minus arm:{self.best_arm}"
        facts = [
            ("rule", html_fragments.code(self.rule)),
            ("learned on", f"{first:,} decisions"),
            ("evaluated on", f"{second:,} others ({self.split})"),
        ]
        values = [("the rule", *shown_cells(self.report))]
        if self.comparison is not None:
            values.append((minus, *shown_cells(self.comparison)))
        return html_fragments.fragment(
            self.description,
            html_fragments.table([], facts),
            html_fragments.table(["on the second part", *SHOWN_HEADS], values),
            html_fragments.details("The rule on the second part of the log", self.report._repr_html_()),
            "" if self.comparison is None else html_fragments.details(minus, self.comparison._repr_html_()),
            facts="learned rule",
        )

    @needs_extra("notebook")
    def plot(self) -> Figure:
        """Return a figure of the value of the rule and of the best arm, on decisions not used to learn it.

        >>> rng = np.random.default_rng(1)
        >>> device, arm = rng.choice(["phone", "desktop"], 600), rng.choice(["red", "blue"], 600)
        >>> reward = np.where(device == "phone", arm == "red", arm == "blue")
        >>> log = {"arm": arm, "probability": np.full(600, 0.5), "reward": reward, "device": device}
        >>> learned = learn_rule(log, "device", depth=1, context="device", reward_range=(0, 1))
        >>> learned.plot()  # doctest: +ELLIPSIS
        <...Figure size ...>
        """
        from maillard.evaluation.estimate_figures import draw_intervals, level_text

        named = [("the rule", shown_estimate(self.report))]
        if self.comparison is not None:
            named.append((f"arm:{self.best_arm}", shown_estimate(self.comparison.second)))
        title = f"Mean reward with {level_text(self.report.confidence)} intervals"
        return draw_intervals(named, is_difference=False, title=title)

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame: the estimates of the rule, and of its difference from the best arm.

        The columns are those of `Report.to_frame`. The column `target` tells the two apart.

        >>> rng = np.random.default_rng(1)
        >>> device, arm = rng.choice(["phone", "desktop"], 600), rng.choice(["red", "blue"], 600)
        >>> reward = np.where(device == "phone", arm == "red", arm == "blue")
        >>> log = {"arm": arm, "probability": np.full(600, 0.5), "reward": reward, "device": device}
        >>> learned = learn_rule(log, "device", depth=1, context="device", reward_range=(0, 1))
        >>> learned.to_frame()["target"].unique().tolist()[0]
        'rule:device=desktop->blue,else->red'
        """
        columns = estimate_columns(self.report)
        if self.comparison is not None:
            more = estimate_columns(self.comparison)
            columns = {name: [*values, *more[name]] for name, values in columns.items()}
        return data_frame(columns)

    def to_dict(self) -> dict[str, Any]:
        """The result as values that JSON supports."""
        return {
            "rule": self.rule,
            "description": self.description,
            "best_arm": self.best_arm,
            "split": self.split,
            "rows": list(self.rows),
            "learned_value": self.learned_value,
            "report": self.report.to_dict(),
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
        }


@with_options(Options)
def learn_rule(
    log: Any,
    keys: Names = None,
    *,
    kind: str = "tree",
    depth: int = 2,
    split: str | None = None,
    fraction: float = 0.5,
    min_rows: int = 50,
    confidence: float = 0.95,
    estimators: Sequence[str] | None = None,
    **options: Unpack[Options],
) -> LearnedRule:
    """Learn a rule on a part of the log, and evaluate it on the rest.

    The result is a `LearnedRule`: the rule, its report on decisions that were not used to learn it, and its
    comparison with the best arm.

    - `log`: anything that `read_log` opens, with contexts.
    - `keys`: keys of the context that the rule may use. By default those of the log, at most 8. A tree
      compares text and flags for equality, and numbers with thresholds.
    - `kind`: "tree" for the best tree, "linear" for the arm with the largest linear score. A linear rule uses
      `features=Features(...)`, or for keys without declared features the range of numbers and the values of
      text that at least `min_rows` decisions have.
    - `depth`: the depth of the tree: 0, 1 or 2.
    - `split`: "order" learns from the first decisions, "unit" from those of units whose hash is small, so
      that no unit is in both parts. By default "unit" if units repeat, otherwise "order".
    - `fraction`: the fraction of the decisions that are used to learn, between 0 and 1.
    - `min_rows`: the smallest number of decisions in a cell of the tree.
    - `confidence`: the probability, between 0 and 1, with which an interval contains the true value.
    - `estimators`: names of estimators for the report, as for `evaluate`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> device, arm = rng.choice(["phone", "desktop"], 600), rng.choice(["red", "blue"], 600)
    >>> reward = np.where(device == "phone", arm == "red", arm == "blue")
    >>> log = {"arm": arm, "probability": np.full(600, 0.5), "reward": reward, "device": device}
    >>> found = learn_rule(log, "device", depth=1, context="device", reward_range=(0, 1))
    >>> found.rule
    'rule:device=desktop->blue,else->red'
    >>> found.comparison["cs-bernstein"].value > 0.4  # better than the best arm
    True
    """
    _check(kind, depth, split, fraction, min_rows)
    settings = Settings.of(confidence, {**options}).for_comparisons(1)
    names = _names(keys)
    if kind == "linear" and isinstance(settings.features, Features):
        if names:
            raise InvalidValue("keys", names, "None, because the linear rule uses the declared features")
        names = list(settings.features.inputs)
    search = _SEARCHES[kind]
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
            features = settings.features if isinstance(settings.features, Features) else None
            wanted = Search(chosen, features, depth, min_rows)
            part = with_predictions(first, settings.features)
            rule, arm, value, constant = _learn(part, partial(search, wanted))
            report = run_with_bounds(second, [str(rule)], estimators, settings)[0]
            comparison = None
            if not constant:
                pair = str(rule), FixedArm(arm)
                comparison = compare_with_bounds(second, pair, default_names(second), settings, None)
            return LearnedRule(
                rule=str(rule),
                description=rule.describe(),
                report=report,
                best_arm=arm,
                comparison=comparison,
                split=how,
                rows=(first.size, second.size),
                learned_value=value,
            )


def _check(kind: str, depth: int, split: str | None, fraction: float, min_rows: int) -> None:
    if kind not in _SEARCHES:
        raise UnknownName("kind of rule", kind, list(_SEARCHES))
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


class Search(NamedTuple):
    """What a search for a rule may use."""

    keys: Sequence[str]
    features: Features | None
    "The declared features; None if there are none."
    depth: int
    min_rows: int


def _learn(
    log: EvaluationLog, search: Callable[[Floats, Sequence[Contexts], Sequence[str]], Rule | LinearRule]
) -> tuple[Rule | LinearRule, str, float, bool]:
    """The rule, the best single arm, the mean score of the rule, and whether it always chooses that arm."""
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
    rule, best = search(gamma, contexts, arms), int(gamma.sum(axis=0).argmax())
    place = np.concatenate([rule.places(each) for each in contexts])
    chosen = rule.probabilities(arms)[place]
    value = float((chosen * gamma).sum(axis=1).mean())
    return rule, arms[best], value, bool((chosen[:, best] == 1.0).all())


def _search_trees(wanted: Search, gamma: Floats, contexts: Sequence[Contexts], arms: Sequence[str]) -> Rule:
    """The best tree."""
    conditions = candidate_conditions(contexts, wanted.keys, wanted.min_rows) if wanted.depth else []
    holds = np.vstack([holds_in(each, conditions) for each in contexts])
    return best_tree(gamma, holds, conditions, arms, depth=wanted.depth, min_rows=wanted.min_rows)


def _search_linear(
    wanted: Search, gamma: Floats, contexts: Sequence[Contexts], arms: Sequence[str]
) -> LinearRule:
    """The linear rule of the declared features, or of features for the keys."""
    features = wanted.features or declared_features(contexts, wanted.keys, wanted.min_rows)
    return best_linear(gamma, contexts, features, arms)


_SEARCHES: Mapping[str, Callable[..., Rule | LinearRule]] = {"tree": _search_trees, "linear": _search_linear}


def scores_of(columns: Columns) -> Floats:
    """Γ of each row and arm, n x K."""
    n = len(columns)
    q = columns.predictions
    assert q is not None
    every, gamma = np.arange(n), q.copy()
    residual = (columns.reward - q[every, columns.arm]) * np.exp(-columns.log_probability)
    gamma[every, columns.arm] += residual
    return gamma
