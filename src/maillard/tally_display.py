"""How tallies are shown in a notebook: HTML, a figure and a data frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from maillard import html_fragments
from maillard.errors import InvalidValue
from maillard.optional_packages import data_frame, needs_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_DRAWN, _LISTED = 30, 100  # arms in a figure, and in an HTML table


class TallyDisplay:
    """The methods of `Tally`, `LinearTally` and `SegmentTally` for notebooks."""

    __slots__ = ()

    def _columns(self) -> dict[str, list[Any]]:
        """What `to_frame` has: names of arms or models, then `pulls`, `sum` and `mean`."""
        raise NotImplementedError

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame with a row for each arm: `arm`, `pulls`, `sum` and `mean`.

        The mean of an arm without pulls is NaN. The rows of a `SegmentTally` also have a `segment`. If all
        arms of a `LinearTally` share a model, `arm` is "all"; its pulls are the observed rewards.

        >>> from maillard import Tally
        >>> Tally(pulls=[4, 1], sums=[3, 0]).to_frame()
           arm  pulls  sum  mean
        0    0      4  3.0  0.75
        1    1      1  0.0  0.00
        """
        return data_frame(self._columns())

    @needs_extra("notebook")
    def plot(self, kind: str = "means") -> Figure:
        """Return a figure of the "means" of the arms, or of their "pulls".

        It has no intervals: a policy chose how often each arm was pulled, so that usual intervals are not
        valid. `evaluate` computes valid ones from a log. Of many arms, it shows those with the most pulls.

        >>> from maillard import Tally
        >>> Tally(pulls=[4, 1], sums=[3, 0]).plot("pulls")  # doctest: +ELLIPSIS
        <...Figure size ...>
        """
        from maillard import figures

        if kind not in ("means", "pulls"):
            raise InvalidValue("kind", kind, "means or pulls")
        *names, pulls, _, means = self._columns().values()
        texts = [" ".join(map(str, row)) for row in zip(*names, strict=True)]
        if not texts:
            raise InvalidValue("tally", self, "a tally with at least one segment")
        shown = sorted(sorted(range(len(pulls)), key=lambda place: -pulls[place])[:_DRAWN])
        if kind == "pulls":
            values = [float(pulls[place]) for place in shown]
            labels = [f"{pulls[place]:,}" for place in shown]
        else:
            values = [means[place] if pulls[place] else 0.0 for place in shown]
            labels = [
                f"{means[place]:.4g} ({pulls[place]:,})" if pulls[place] else "no pulls" for place in shown
            ]
        rest = sum(pulls) - sum(pulls[place] for place in shown)
        left = len(pulls) - len(shown)
        return figures.bars(
            [texts[place] for place in shown],
            values,
            values=labels,
            limit=max(0.0, *values) or 1.0,
            label="pulls" if kind == "pulls" else "mean reward, and pulls in parentheses",
            title=f"{kind.capitalize()} of {len(pulls):,} arms",
            note=f"{left:,} more rows have {rest:,} pulls" if left else "",
        )

    def _repr_html_(self) -> str:
        columns = self._columns()
        *names, pulls, sums, means = columns.values()
        total, most = sum(pulls), max(pulls, default=0)
        rows = [
            [*labels, count, html_fragments.bar(count / max(most, 1)), part, None if not count else mean]
            for *labels, count, part, mean in zip(*names, pulls, sums, means, strict=True)
        ]
        *heads, _, _, _ = columns
        return html_fragments.fragment(
            type(self).__name__,
            html_fragments.table([*heads, "pulls", "", "sum", "mean"], rows[:_LISTED]),
            html_fragments.more_rows(len(rows) - _LISTED, "rows"),
            facts=f"{total:,} observed rewards",
        )


def mean_of(total: float, pulls: int) -> float:
    """The mean reward; NaN without pulls."""
    return total / pulls if pulls else math.nan
