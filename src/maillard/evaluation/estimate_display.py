"""How reports and comparisons are shown in a notebook: text, HTML, a figure and a data frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from maillard import html_fragments
from maillard.errors import InvalidValue
from maillard.evaluation.estimate_formatting import decimals_of
from maillard.optional_packages import data_frame, needs_extra
from maillard.short_reprs import fit_screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from maillard.evaluation.evaluation_report import Estimate, Estimates

_HEADS: tuple[str, ...] = ("estimator", "value", "lower", "upper", "standard error", "level", "interval")


class EstimatesDisplay:
    """The methods of `Report` and `Comparison` for notebooks."""

    def __repr__(self) -> str:
        return fit_screen(str(self))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name != "json_fields"]

    def _repr_html_(self: Any) -> str:
        return estimates_html(self)

    @needs_extra("notebook")
    def plot(self: Any, kind: str = "estimates") -> Figure:
        """Return a figure of the "estimates" with their intervals, or of the "weights" of a report.

        >>> from maillard import evaluate, simulate_log
        >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=1000, seed=1)
        >>> report = evaluate(log, "arm:1")
        >>> report.plot(), report.plot("weights")  # doctest: +ELLIPSIS
        (<...Figure size ...>, <...Figure size ...>)
        """
        from maillard.evaluation import estimate_figures

        kinds = ["estimates"] + ["weights"] * hasattr(self, "diagnostics")
        if kind not in kinds:
            raise InvalidValue("kind", kind, " or ".join(kinds))
        if kind == "weights":
            return estimate_figures.draw_weights(self.diagnostics)
        return estimate_figures.draw_estimates(self, title=self.target)

    def to_frame(self: Any) -> DataFrame:
        """Return a pandas data frame with a row for each estimator, also for those that were refused.

        The columns are `target`, `estimator`, `value`, `lower`, `upper`, `standard_error`, `confidence`,
        `interval` (its type), `anytime_valid`, `level` (of clipping or shrinkage), `recommended`, `refusal`,
        `caveat` and `assumes`.

        >>> from maillard import evaluate, simulate_log
        >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=1000, seed=1)
        >>> frame = evaluate(log, "arm:1").to_frame()
        >>> frame.loc[frame["recommended"], ["target", "estimator", "value"]].round(3).values.tolist()
        [['arm:1', 'aipw-two-point', 0.296]]
        """
        return data_frame(estimate_columns(self))


def estimate_columns(result: Any) -> dict[str, list[Any]]:
    """The columns of `to_frame`, for a report or a comparison."""
    estimates: list[Estimate] = list(result.values())

    def numbers(field: str) -> list[float]:
        given = (getattr(each, field) for each in estimates)
        return [math.nan if each is None else each for each in given]

    return {
        "target": [result.target] * len(estimates),
        "estimator": [each.name for each in estimates],
        **{field: numbers(field) for field in ("value", "lower", "upper", "standard_error")},
        "confidence": [result.confidence] * len(estimates),
        "interval": [each.interval for each in estimates],
        "anytime_valid": [each.anytime_valid for each in estimates],
        "level": numbers("level"),
        "recommended": [each is result.best for each in estimates],
        "refusal": [each.refusal or "" for each in estimates],
        "caveat": [each.caveat for each in estimates],
        "assumes": [each.assumes for each in estimates],
    }


def estimate_rows(result: Estimates) -> list[tuple[str, ...]]:
    """Rows of a table: estimator, value, both ends, standard error, level and type of the interval."""
    digits = decimals_of(result.values())

    def text(value: float | None, extra_digits: int = 0) -> str:
        return "–" if value is None else f"{value:,.{digits + extra_digits}f}".replace("-", "−")

    return [
        (
            each.name,
            *map(text, (each.value, each.lower, each.upper)),
            text(each.standard_error, 1),
            "–" if each.level is None else f"{each.level:g}",
            each.interval,
        )
        for each in result.values()
        if each.value is not None
    ]


def verdict(result: Any) -> str:
    """Which target of a comparison is better, by the estimate to read first; "" if nothing can be said.

    >>> from maillard import compare, simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=1000, seed=1)
    >>> verdict(compare(log, "arm:1", "arm:0"))
    'arm:0 is better than arm:1: by 0.205 to 0.404 per decision, with 95% confidence.'
    """
    best = result.best
    if hasattr(result, "diagnostics") or best is None or best.lower is None:
        return ""
    if best.lower <= 0 <= best.upper:
        return "Undecided: the interval of the difference contains 0, so either target may be better."
    better, worse = (each.target for each in (result.first, result.second))
    ends = [best.lower, best.upper]
    if best.upper < 0:
        better, worse, ends = worse, better, [-best.upper, -best.lower]
    digits = decimals_of(result.values())
    return (
        f"{better} is better than {worse}: by {ends[0]:,.{digits}f} to {ends[1]:,.{digits}f} per decision, "
        f"with {100 * result.confidence:.4g}% confidence."
    )


def estimates_html(result: Any) -> str:
    """A report or a comparison as HTML: the table of the estimates, then what a reader must know."""
    from maillard.evaluation.evaluation_report import grouped

    heads, rows, best = _HEADS, estimate_rows(result), result.best
    marked = [place for place, row in enumerate(rows) if best is not None and row[0] == best.name]
    shown = [(f"★ {row[0]}" if place in marked else row[0], *row[1:]) for place, row in enumerate(rows)]
    problems = [
        f"{word} {names}: {text}"
        for word, field in (("refused:", "refusal"), ("caveat of", "caveat"))
        for names, text in grouped((each.name, getattr(each, field) or "") for each in result.values())
    ]
    assumptions = grouped((each.name, each.assumes) for each in result.values())
    if all(row[5] == "–" for row in shown):  # no estimator has a level
        heads = (*_HEADS[:5], *_HEADS[6:])
        shown = [(*row[:5], *row[6:]) for row in shown]
    value = "Mean reward of a decision" if hasattr(result, "diagnostics") else "Difference in mean reward"
    caption = f"{value}, {100 * result.confidence:.4g}% intervals"
    return html_fragments.fragment(
        result.target,
        html_fragments.Html(f"<div>{html_fragments.html(verdict(result))}</div>"),
        html_fragments.table(heads, shown, marked=marked, caption=caption) if shown else "",
        html_fragments.items([f"★ {result.why_best}" if best is not None else result.why_best]),
        html_fragments.items([note.strip() for note in result.notes]),
        html_fragments.items(problems, title="Estimators without a usable answer:"),
        html_fragments.details(
            "Assumptions", html_fragments.items(f"{names}: {text}" for names, text in assumptions)
        ),
        facts=result._size_text,
    )
