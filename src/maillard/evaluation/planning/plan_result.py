"""What a plan holds: its policies with their regret and their intervals, the frontier, a table, a figure."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maillard.errors import CannotAnswer, InvalidValue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ExplorationPlan", "PlanOption"]


@dataclass(frozen=True)
class PlanOption:
    """A policy of the grid: what it costs, and what its log can tell.

    Of several targets, each figure is that of the target for which it is worst.
    """

    policy: str
    floor: float
    "ε: every arm has at least ε t^-decay / K in round t."
    decay: float
    booster: float | None
    "None: the policy has none."
    exploration: float
    "How many of the rounds are given to the floor, Σ ε t^-decay."
    regret: float
    "Mean over the runs, and its standard error."
    regret_error: float
    width: float
    "Mean half-width of the interval, and its standard error; inf where a log gave no interval."
    width_error: float
    coverage: float
    "The share of runs whose interval had the truth in it."
    effective_share: float
    "Mean effective sample size, (Σ|w|)² / Σw², as a share of the rows."
    holds: bool
    "Whether that coverage is no sign (two standard errors) of one more than 2 points under the confidence."

    @property
    def floor_label(self) -> str:
        """The floor as a person would write it: none, 5%, t^-0.7, 20% t^-0.5."""
        share = f"{100 * self.floor:g}%"
        if not self.floor:
            return "none"
        if not self.decay:
            return share
        return f"t^-{self.decay:g}" if self.floor == 1 else f"{share} t^-{self.decay:g}"


@dataclass(frozen=True)
class ExplorationPlan:
    """Regret against the width of intervals, for every floor and booster that was tried."""

    problem: str
    horizon: int
    policy: str
    targets: tuple[str, ...]
    against: str | None
    estimator: str
    confidence: float
    runs: int
    seed: int
    rows: tuple[PlanOption, ...]

    @property
    def frontier(self) -> tuple[PlanOption, ...]:
        """The rows that no other beats in both regret and width, cheapest first; only rows whose interval holds."""
        rows = sorted(
            (row for row in self.rows if row.holds and row.width < math.inf),
            key=lambda row: (row.regret, row.width),
        )
        best, kept = math.inf, []
        for row in rows:
            if row.width < best:
                best = row.width
                kept.append(row)
        return tuple(kept)

    def choose(self, width: float) -> PlanOption:
        """The row with the least regret whose mean half-width is at most this, and whose interval holds."""
        if isinstance(width, bool) or not isinstance(width, int | float) or not width > 0:
            raise InvalidValue("width", width, "a number > 0")
        for row in self.frontier:
            if row.width <= width:
                return row
        if not self.frontier:
            raise InvalidValue(
                "width", width, "a plan in which some interval holds (none does: raise the floors)"
            )
        least = self.frontier[-1].width
        allowed = f"at least {least:.3g}, the narrowest here (a longer horizon or a higher floor gives less)"
        raise InvalidValue("width", width, allowed)

    def figure(self) -> Figure:
        """Regret against half-width: a path for each booster, along which the floor rises."""
        from maillard import figures

        paths: dict[float | None, list[PlanOption]] = {}
        for row in sorted(self.rows, key=lambda row: row.exploration):
            if row.width < math.inf:
                paths.setdefault(row.booster, []).append(row)
        if not paths:
            raise CannotAnswer("no log of this plan gave an interval: there is nothing to draw")
        regret = [[row.regret for row in path] for path in paths.values()]
        width = [[row.width for row in path] for path in paths.values()]
        # The floors are the same along every path: the one that has the most room for them says which.
        longest = max(paths, key=lambda each: _length(paths[each]))
        floors = [row.floor_label for row in paths[longest]]
        return figures.frontier(
            [self.policy if each is None else f"B = {each:g}" for each in paths],
            regret,
            width,
            # The last point of a path has the path's name beside it.
            [
                [_label(row, each == longest and row is not path[-1]) for row in path]
                for each, path in paths.items()
            ],
            title=f"{self.policy} on {self.problem}, {self.horizon:,} rounds",
            xlabel="mean regret",
            ylabel=f"half-width of the {100 * self.confidence:g}% interval",
            xscale=_scale(regret),
            yscale=_scale(width),
            note=f"Along a path the floor rises: {', '.join(floors)}. {self.runs} runs each, {self.estimator}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return dataclasses.asdict(self) | {"frontier": [row.policy for row in self.frontier]}

    def __str__(self) -> str:
        best = set(self.frontier)
        head = ("booster", "floor", "regret", "half-width", "coverage", "effective rows", "")
        table = [head, *(_cells(row, row in best) for row in self.rows)]
        if all(row.booster is None for row in self.rows):
            table = [line[1:] for line in table]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in table]
        of = ", ".join(self.targets) + (f" minus {self.against}" if self.against else "")
        first = f"{self.policy} on {self.problem}, {self.horizon:,} rounds, {self.runs} runs"
        second = f"{self.estimator}, {100 * self.confidence:g}% intervals of {of}"
        marks = ["*  no other has less regret and a narrower interval"]
        marks += ["!  the interval does not hold"] if not all(row.holds for row in self.rows) else []
        return "\n".join([first, second, "", *(line.rstrip() for line in lines), "", *marks])


def _scale(paths: Sequence[Sequence[float]]) -> str:
    """Logarithmic where the values differ by more than a factor."""
    values = [value for path in paths for value in path]
    return "log" if 0 < 3 * min(values) < max(values) else "linear"


def _length(path: Sequence[PlanOption]) -> float:
    """How far apart the points of a path are, in factors."""
    return sum(
        math.hypot(math.log1p(b.regret) - math.log1p(a.regret), math.log(b.width / a.width))
        for a, b in itertools.pairwise(path)
        if a.width > 0 < b.width
    )


def _label(row: PlanOption, named: bool) -> str:
    """The floor, and what its interval covers where that is too little."""
    if not row.holds:
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
        "*" if best else "" if row.holds else "!",
    )
