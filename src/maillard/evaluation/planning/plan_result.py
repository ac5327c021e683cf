"""The result of `plan`: regret and interval width of each policy, the frontier, a table and a figure."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maillard import html_fragments
from maillard.errors import CannotAnswer, InvalidValue
from maillard.optional_packages import data_frame, needs_extra
from maillard.short_reprs import dataclass_repr, fit_screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_SHOWN, _LISTED = 14, 100  # rows of a representation, and of an HTML table


@dataclass(frozen=True)
class PlanOption:
    """A policy of the grid, with its regret and the quality of the intervals from its log.

    With several targets, each field has the value of the worst target.
    """

    policy: str
    floor: float
    "ε: in round t, every arm has a probability of at least ε t^-decay / K."
    decay: float
    booster: float | None
    "None if the policy has no booster."
    exploration: float
    "The expected number of rounds that the floor uses, Σ ε t^-decay."
    regret: float
    "Mean over the runs, and its standard error."
    regret_error: float
    width: float
    "Mean half-width of the interval, and its standard error; inf if more than 5% of the logs gave none."
    width_error: float
    estimator: str
    "The estimator that most logs used."
    unanswered: float
    "The fraction of runs for which `evaluate` recommends no estimate."
    coverage: float
    "The fraction of intervals that contained the true value."
    decided: float
    "The fraction of runs whose interval excludes 0: with `against`, those that found a difference."
    effective_share: float
    "Mean effective sample size, (Σ|w|)² / Σw², as a fraction of the rows."
    low_coverage: bool
    "Whether the coverage falls short of the confidence by more than 2 points: below 93% for 95% intervals."
    valid: bool
    "Whether the coverage falls short of the confidence by at most 2 points plus two standard errors."

    __repr__ = dataclass_repr

    @property
    def floor_label(self) -> str:
        """The floor as text: none, 5%, t^-0.7, 20% t^-0.5."""
        if not self.floor:
            return "none"
        constant = f"{100 * self.floor:g}%"
        if not self.decay:
            return constant
        return f"t^-{self.decay:g}" if self.floor == 1 else f"{constant} t^-{self.decay:g}"


@dataclass(frozen=True, repr=False)
class ExplorationPlan:
    """Regret and interval width for every floor and booster of the grid.

    >>> from maillard import plan
    >>> found = plan("bernoulli:0.5,0.3", 500, floors=(0.05, 0.4), decays=(), boosters=(4,), runs=20)
    >>> [(row.floor, row.regret < 20, row.width < 0.3) for row in found.rows]
    [(0.05, True, True), (0.4, False, True)]
    >>> found.choose(width=0.2).policy, found.to_dict()["runs"]
    ('ms+:floor=0.05,sigma2=0.25', 20)
    >>> found.plot().savefig("plan.png")
    """

    problem: str
    horizon: int
    policy: str
    targets: tuple[str, ...]
    against: str | None
    estimator: str | None
    "The estimator that the caller requested; None: the one that `evaluate` recommends for each log."
    active: bool
    "Whether the logs were evaluated as if the experiment were still running."
    confidence: float
    runs: int
    seed: int
    rows: tuple[PlanOption, ...]

    @property
    def frontier(self) -> tuple[PlanOption, ...]:
        """The valid rows that no other valid row beats in both regret and width, by increasing regret."""
        kept: list[PlanOption] = []
        for row in sorted(self.rows, key=lambda row: (row.regret, row.width)):
            if row.valid and row.width < (kept[-1].width if kept else math.inf):
                kept.append(row)
        return tuple(kept)

    def choose(self, width: float) -> PlanOption:
        """The valid row with the least regret whose mean half-width is at most `width`."""
        if isinstance(width, bool) or not isinstance(width, int | float) or not width > 0:
            raise InvalidValue("width", width, "a number > 0")
        for row in self.frontier:
            if row.width <= width:
                return row
        allowed = "a plan with at least one valid interval (there is none: raise the floors)"
        if self.frontier:
            narrowest = f"at least {self.frontier[-1].width:.3g}, the narrowest here"
            allowed = f"{narrowest} (a longer horizon or a higher floor gives narrower ones)"
        raise InvalidValue("width", width, allowed)

    @needs_extra("notebook")
    def plot(self) -> Figure:
        """Return a figure of regret against half-width: a path for each booster, along which the floor rises.

        >>> from maillard import plan
        >>> found = plan("bernoulli:0.5,0.3", 500, floors=(0.05, 0.4), decays=(), boosters=(4,), runs=20)
        >>> found.plot()  # doctest: +ELLIPSIS
        <...Figure size ...>
        """
        from maillard import figures

        paths: dict[float | None, list[PlanOption]] = {}
        for row in sorted(self.rows, key=lambda row: row.exploration):
            if row.width < math.inf:
                paths.setdefault(row.booster, []).append(row)
        if not paths:
            raise CannotAnswer("no log of this plan gave an interval, so there is nothing to draw")
        regret = [[row.regret for row in path] for path in paths.values()]
        width = [[row.width for row in path] for path in paths.values()]
        # The floors are the same along every path, so only the longest path gets labels.
        longest = max(paths, key=lambda each: _path_length(paths[each]))
        floors = ", ".join(row.floor_label for row in paths[longest])
        return figures.frontier(
            [self.policy if each is None else f"B = {each:g}" for each in paths],
            regret,
            width,
            # The name of a path is next to its last point.
            [
                [_point_label(row, each == longest and row is not path[-1]) for row in path]
                for each, path in paths.items()
            ],
            title=f"{self.policy} on {self.problem}, {self.horizon:,} rounds",
            xlabel="mean regret",
            ylabel=f"half-width of the {100 * self.confidence:g}% interval",
            xscale=_scale(regret),
            yscale=_scale(width),
            note=f"Along a path the floor rises: {floors}. {self.runs} runs each, {self._estimator_label}",
        )

    @property
    def _estimator_label(self) -> str:
        looks = ", while the experiment is running" if self.active else ""
        return (self.estimator or "the estimator that evaluate recommends") + looks

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame with a row for each policy of the grid.

        The columns are the fields of the options: `policy`, `floor`, `decay`, `booster`, `exploration`,
        `regret` and `width` (means over the runs) with their standard errors `regret_error` and
        `width_error`, `estimator`, `unanswered`, `coverage`, `decided`, `effective_share`, `low_coverage` and
        `valid`.
        `frontier` tells whether no other policy has both less regret and a narrower interval.

        >>> from maillard import plan
        >>> found = plan("bernoulli:0.5,0.3", 500, floors=(0.05, 0.4), decays=(), boosters=(4,), runs=20)
        >>> found.to_frame()[["floor", "frontier"]].values.tolist()
        [[0.05, True], [0.4, True]]
        """
        names = [field.name for field in dataclasses.fields(PlanOption)]
        columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in self.rows] for name in names}
        best = set(self.frontier)
        return data_frame(columns | {"frontier": [row in best for row in self.rows]})

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, for JSON."""
        return dataclasses.asdict(self) | {"frontier": [row.policy for row in self.frontier]}

    def __str__(self) -> str:
        return self._text(self.rows)

    def __repr__(self) -> str:
        return fit_screen(self._text(self.rows[:_SHOWN]))

    def _text(self, rows: Sequence[PlanOption]) -> str:
        head, cells = self._table(rows)
        table = [head, *cells]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in table]
        left = len(self.rows) - len(rows)
        more = [f"... and {left} more policies; the frontier has {len(self.frontier)}"] if left else []
        text = ["", *(line.rstrip() for line in lines), *more, "", *self._marks]
        return "\n".join([self._title, self._question, *text])

    def _repr_html_(self) -> str:
        head, cells = self._table(self.rows[:_LISTED])
        best = set(self.frontier)
        return html_fragments.fragment(
            self._title,
            html_fragments.table(
                head,
                cells,
                marked=[place for place, row in enumerate(self.rows[:_LISTED]) if row in best],
                caption=self._question,
            ),
            html_fragments.more_rows(len(self.rows) - _LISTED, "policies"),
            html_fragments.items(self._marks),
        )

    def _table(self, rows: Sequence[PlanOption]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Column names and cells, without the column of boosters if there are none."""
        best = set(self.frontier)
        head = ("booster", "floor", "regret", "half-width", "coverage", "effective rows", "estimator", "")
        start = int(all(row.booster is None for row in self.rows))
        return head[start:], [_cells(row, row in best)[start:] for row in rows]

    @property
    def _title(self) -> str:
        return f"{self.policy} on {self.problem}, {self.horizon:,} rounds, {self.runs} runs"

    @property
    def _question(self) -> str:
        of = ", ".join(self.targets) + (f" minus {self.against}" if self.against else "")
        return f"{self._estimator_label}, {100 * self.confidence:g}% intervals of {of}"

    @property
    def _marks(self) -> list[str]:
        """What the marks in the last column mean."""
        marks = ["*  on the frontier: no other policy has both less regret and a narrower interval"]
        if not all(row.valid for row in self.rows):
            marks.append("!  the interval is not valid: its coverage is too low")
        if any(row.low_coverage and row.valid for row in self.rows):
            least = 100 * self.confidence - 2
            marks.append(f"?  the coverage is under {least:g}%, maybe by chance: use more runs")
        return marks


def _scale(paths: Sequence[Sequence[float]]) -> str:
    """Logarithmic if the values differ by more than a factor of 3."""
    values = [value for path in paths for value in path]
    return "log" if 0 < 3 * min(values) < max(values) else "linear"


def _path_length(path: Sequence[PlanOption]) -> float:
    """The length of a path on logarithmic axes."""
    return sum(
        math.hypot(math.log1p(b.regret) - math.log1p(a.regret), math.log(b.width / a.width))
        for a, b in itertools.pairwise(path)
        if a.width > 0 < b.width
    )


def _point_label(row: PlanOption, named: bool) -> str:
    """The label of a point: the floor, and the coverage if it is too low."""
    if not row.valid:
        return f"{row.floor_label}: covers {100 * row.coverage:.0f}%"
    return row.floor_label if named else ""


def _cells(row: PlanOption, best: bool) -> tuple[str, ...]:
    return (
        "" if row.booster is None else f"{row.booster:g}",
        row.floor_label,
        f"{row.regret:.1f} ± {row.regret_error:.1f}",
        f"{row.width:.3g} ± {row.width_error:.1g}",
        f"{100 * row.coverage:.1f}%",
        f"{100 * row.effective_share:.2g}%",
        row.estimator,
        "!" if not row.valid else "*" * best + "?" * row.low_coverage,
    )
