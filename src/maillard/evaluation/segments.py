"""Segments: one report for each group of decisions with the same values of some keys of the context.

The intervals of all segments are valid together: each has the error probability of one, divided by the number
of segments (Bonferroni). Which segments there are depends on the contexts alone, never on the rewards.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from maillard import html_fragments
from maillard.array_types import Ints
from maillard.decisions.columns import Columns
from maillard.decisions.contexts import value_text
from maillard.errors import UnknownName
from maillard.evaluation.contextual_targets import contexts_of
from maillard.evaluation.estimate_display import estimate_columns
from maillard.evaluation.estimate_formatting import decimals_of
from maillard.evaluation.evaluation_log import EvaluationLog, store_columns, stored_columns
from maillard.evaluation.evaluation_report import Estimate, Estimates, plain
from maillard.evaluation.settings import Settings
from maillard.optional_packages import data_frame, needs_extra
from maillard.short_reprs import LINES, fit_screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

OTHER, MISSING, WHOLE = "(other)", "(missing)", "(whole log)"
_DRAWN = 30  # segments in a figure or an HTML table
_MAX_MEMORY = 1 << 24  # bytes of each segment kept in memory; a longer one goes to a temporary file

Segment = str | tuple[str, ...]
"The value of the key as text, or those of several keys."
Result = TypeVar("Result", bound=Estimates)


@dataclass(frozen=True, kw_only=True, repr=False)
class Segments(Mapping[Segment, Result], Generic[Result]):
    """The result for each segment, the largest first, and for the whole log.

    >>> import numpy as np
    >>> from maillard import evaluate
    >>> rng = np.random.default_rng(1)
    >>> arm, device = rng.choice(["red", "blue"], 600), rng.choice(["phone", "desktop"], 600)
    >>> reward = rng.random(600) < np.where((arm == "red") == (device == "phone"), 0.8, 0.3)
    >>> log = {"arm": arm, "probability": np.full(600, 0.5), "reward": reward, "device": device}
    >>> found = evaluate(log, "arm:red", ["snips"], context="device", by="device", reward_range=(0, 1))
    >>> {segment: round(report["snips"].value, 2) for segment, report in found.items()}
    {'phone': 0.77, 'desktop': 0.26}
    >>> round(found.whole["snips"].value, 2), found.sizes, found.to_dict()["by"]
    (0.52, {'phone': 314, 'desktop': 286}, ['device'])
    """

    by: tuple[str, ...]
    results: Mapping[Segment, Result]
    whole: Result
    "The result for the whole log. Its interval is valid by itself, not together with those of the segments."
    sizes: Mapping[Segment, int]
    "The number of decisions of each segment."
    notes: tuple[str, ...] = ()
    "Which segments were pooled, and why."

    def __getitem__(self, segment: Segment) -> Result:
        if segment not in self.results:
            raise UnknownSegment("segment", segment_text(segment), list(map(segment_text, self.results)))
        return self.results[segment]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __str__(self) -> str:
        """The best estimate of each segment, then those of the whole log."""
        return "\n".join([*self._lines(), "the whole log:", str(self.whole)])

    def __repr__(self) -> str:
        lines = self._lines()
        kept = LINES - 2 - sum(len(line) // 110 for line in lines)  # lines that are too long are wrapped
        more = [f"  ... and {len(lines) - kept:,} more segments"] if len(lines) > kept else []
        return fit_screen("\n".join([*lines[:kept], *more, f"  the whole log  {summary(self.whole)}"]))

    def _lines(self) -> list[str]:
        first: Any = next(iter(self.results.values()))
        width = max(len(segment_text(each)) for each in self.results)
        lines = [
            f"{first.target} by {', '.join(self.by)}: {len(self)} segments. {self.validity}",
            *(f"  note: {each}" for each in self.notes),
        ]
        for segment, each in self.results.items():
            name, size = f"{segment_text(segment):{width}}", f"{self.sizes[segment]:>9,}"
            lines.append(f"  {name}  {size} rows  {summary(each)}")
        return lines

    def _shown(self) -> list[tuple[str, int, Result]]:
        """Name, size and result of the segments that a figure and a table have, then of the whole log."""
        largest = list(self.results.items())[:_DRAWN]
        return [
            *((segment_text(name), self.sizes[name], each) for name, each in largest),
            (WHOLE, sum(self.sizes.values()), self.whole),
        ]

    def _repr_html_(self) -> str:
        first: Any = next(iter(self.results.values()))
        rows = [[name, size, *shown_cells(each)] for name, size, each in self._shown()]
        head = [", ".join(self.by), "decisions", *SHOWN_HEADS]
        return html_fragments.fragment(
            f"{first.target} by {', '.join(self.by)}",
            html_fragments.table(head, rows, marked=[len(rows) - 1], caption=self.validity),
            html_fragments.more_rows(len(self) - _DRAWN, "segments"),
            html_fragments.items(self.notes),
            facts=f"{len(self)} segments",
        )

    @needs_extra("notebook")
    def plot(self) -> Figure:
        """Return a figure of the best estimate of each segment, and of the whole log, with their intervals.

        >>> from maillard import evaluate
        >>> rng = np.random.default_rng(1)
        >>> device, arm = rng.choice(["phone", "desktop"], 600), rng.choice(["red", "blue"], 600)
        >>> log = {"arm": arm, "probability": np.full(600, 0.5), "reward": arm == "red", "device": device}
        >>> found = evaluate(log, "arm:red", by="device", reward_range=(0, 1))
        >>> found.plot()  # doctest: +ELLIPSIS
        <...Figure size ...>
        """
        from maillard.evaluation.comparing import Comparison
        from maillard.evaluation.estimate_figures import draw_intervals, level_text

        first: Any = next(iter(self.results.values()))
        return draw_intervals(
            [(name, shown_estimate(each)) for name, _, each in self._shown()],
            is_difference=isinstance(self.whole, Comparison),
            title=f"{first.target} by {', '.join(self.by)} with {level_text(first.confidence)} intervals "
            f"(whole log: {level_text(self.whole.confidence)})",
            note=f"{left} more segments are not shown" if (left := len(self) - _DRAWN) > 0 else "",
        )

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame with a row for each segment and estimator.

        The first columns are `segment` (as text) and `decisions`; the others are those of the report or the
        comparison of the segment. The last rows have the segment `(whole log)`.

        >>> from maillard import evaluate
        >>> rng = np.random.default_rng(1)
        >>> device, arm = rng.choice(["phone", "desktop"], 600), rng.choice(["red", "blue"], 600)
        >>> log = {"arm": arm, "probability": np.full(600, 0.5), "reward": arm == "red", "device": device}
        >>> frame = evaluate(log, "arm:red", by="device", reward_range=(0, 1)).to_frame()
        >>> frame.loc[frame["recommended"], ["segment", "decisions"]].values.tolist()
        [['desktop', 303], ['phone', 297], ['(whole log)', 600]]
        """
        columns: dict[str, list[Any]] = {"segment": [], "decisions": []}
        named = [*((segment_text(name), self.sizes[name], each) for name, each in self.results.items())]
        for name, size, each in [*named, (WHOLE, sum(self.sizes.values()), self.whole)]:
            found = estimate_columns(each)
            found |= {"segment": [name] * len(each), "decisions": [size] * len(each)}
            for column, values in found.items():
                columns.setdefault(column, []).extend(values)
        return data_frame(columns)

    @property
    def confidence(self) -> float:
        """The probability with which as many intervals as `comparisons` are valid together."""
        first = next(iter(self.results.values()))
        return 1.0 - (1.0 - first.confidence) * first.comparisons

    @property
    def validity(self) -> str:
        """Which intervals are valid together, in words."""
        first, level = next(iter(self.results.values())), f"{100 * self.confidence:.4g}%"
        if first.comparisons < len(self):
            return f"The interval of each segment is valid by itself with {100 * first.confidence:.4g}%"
        text = f"Their intervals are valid together with {level}; that of the whole log is valid by itself"
        if first.comparisons == len(self):
            return text
        return (
            f"{text}. Each has {100 * first.confidence:.4g}%, because you may also pick one of several "
            f"targets or pairs of arms, {first.comparisons} intervals in all; if you chose this one in "
            f"advance, pass comparisons={len(self)} (--comparisons {len(self)})"
        )

    @property
    def answered(self) -> bool:
        """Whether at least one segment has an estimate."""
        return any(each.answered for each in self.results.values())

    def to_dict(self) -> dict[str, Any]:
        """The results as values that JSON supports."""
        segments = [
            {
                "segment": dict(zip(self.by, _names(segment, len(self.by)), strict=True)),
                "rows": self.sizes[segment],
                "report": each.to_dict(),
            }
            for segment, each in self.results.items()
        ]
        made: dict[str, Any] = plain({"by": self.by, "notes": self.notes, "segments": segments})
        return made | {"whole": self.whole.to_dict()}


class UnknownSegment(UnknownName, KeyError):
    """There is no such segment."""

    __str__ = UnknownName.__str__


def _names(segment: Segment, count: int) -> tuple[str, ...]:
    return segment if isinstance(segment, tuple) else (segment,) * count


def segment_text(segment: Segment) -> str:
    """The name of a segment.

    >>> segment_text(("phone", "de"))
    'phone, de'
    """
    return segment if isinstance(segment, str) else ", ".join(segment)


def shown_estimate(found: Estimates) -> Estimate | None:
    """The recommended estimate; if each has a caveat, the first with an interval; None if all are refused."""
    return found.best or next((each for each in found.values() if each.lower is not None), None)


def summary(found: Estimates) -> str:
    """The estimate to read first, in one line, or why there is none."""
    best = shown_estimate(found)
    if best is None:
        return "refused: " + next(iter(found.refusals.values()), "no estimate has an interval")
    level = f"{100 * found.confidence:.4g}%"
    caveat = f"  but: {best.caveat}" if found.best is None else ""
    return f"{best.value:.6g}  {level} [{best.lower:.6g}, {best.upper:.6g}]  {best.name}{caveat}"


SHOWN_HEADS = ("value", "lower", "upper", "estimator", "note")


def shown_cells(found: Estimates) -> tuple[str | None, ...]:
    """Cells of a table for the estimate to read first: value, both ends, estimator, and what is in doubt."""
    best = shown_estimate(found)
    if best is None:
        return (None, None, None, "", summary(found))
    digits = decimals_of([best])
    value, lower, upper = (f"{each:,.{digits}f}" for each in (best.value, best.lower, best.upper))
    return (value, lower, upper, best.name, best.caveat if found.best is None else "")


@contextmanager
def segments_of(
    log: EvaluationLog, settings: Settings
) -> Iterator[tuple[dict[Segment, EvaluationLog], tuple[str, ...]]]:
    """The log of each segment, the largest first, and which segments were pooled."""
    by = settings.by or ()
    log.require_keys(by)
    sizes: Counter[tuple[str, ...]] = Counter()
    for columns in log.columns():
        names, codes = _segment_codes(columns, log, by)
        sizes.update(dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True)))
    ordered = [name for name, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))]
    kept = [name for name in ordered if sizes[name] >= settings.min_segment_rows][: settings.max_segments]
    pooled = [name for name in ordered if name not in set(kept)]
    if len(pooled) == 1:  # there is nothing to pool it with
        kept, pooled = [*kept, *pooled], []
    place = {name: kept.index(name) if name in set(kept) else len(kept) for name in ordered}
    labels: list[Segment] = [name[0] if len(by) == 1 else name for name in kept]
    labels += [OTHER] * bool(pooled)

    def places(columns: Columns) -> Ints:
        names, codes = _segment_codes(columns, log, by)
        found: Ints = np.array([place[name] for name in names], np.int64)[codes]
        return found

    titles = [f"{', '.join(by)} = {segment_text(label)}" for label in labels]
    with split_log(log, places, titles) as parts:
        logs = {
            label: replace(part, segment=segment_text(label))
            for label, part in zip(labels, parts, strict=True)
        }
        yield logs, _notes(pooled, sizes, settings)


def _notes(
    pooled: list[tuple[str, ...]], sizes: Mapping[tuple[str, ...], int], settings: Settings
) -> tuple[str, ...]:
    if not pooled:
        return ()
    shown = ", ".join(repr(segment_text(name)) for name in pooled[:5]) + (", ..." if len(pooled) > 5 else "")
    rows = sum(sizes[name] for name in pooled)
    why = f"fewer than {settings.min_segment_rows:,} rows"
    if any(sizes[name] >= settings.min_segment_rows for name in pooled):
        why += f", or not among the {settings.max_segments} largest"
    return (f"{len(pooled):,} segments with {rows:,} rows are pooled as {OTHER} ({why}): {shown}",)


def _segment_codes(
    columns: Columns, log: EvaluationLog, by: tuple[str, ...]
) -> tuple[list[tuple[str, ...]], Ints]:
    """The names of the segments in some rows, and the place of each row's segment among them."""
    contexts, codes = contexts_of(columns, log.source).distinct(by)
    # Values with the same text, such as 1 and "1", are one segment.
    names = [tuple(value_text(each.get(key)) or MISSING for key in by) for each in contexts]
    place = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return list(place), np.array([place[name] for name in names], np.int64)[codes]


@contextmanager
def split_log(
    log: EvaluationLog, places: Callable[[Columns], Ints], titles: Collection[str]
) -> Iterator[list[EvaluationLog]]:
    """The log in parts: `places` tells the part of each row, and `titles` name the parts."""
    with ExitStack() as closing:
        files: list[IO[bytes]] = [
            closing.enter_context(tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY)) for _ in titles
        ]
        rows = [0] * len(files)
        for columns in log.columns():
            place = places(columns)
            for each in np.unique(place).tolist():
                part = columns.filter(place == each)
                row = np.arange(rows[each] + 1, rows[each] + len(part) + 1)
                # Rows are numbered within the part, and numbers of the whole table have gaps here.
                rows[each] += store_columns([replace(part, row=row, step=None)], files[each])
        yield [
            _part_of(log, f"{log.source}, {title}", file, size)
            for title, file, size in zip(titles, files, rows, strict=True)
        ]


def _part_of(log: EvaluationLog, source: str, file: IO[bytes], size: int) -> EvaluationLog:
    read: Callable[[], Iterator[Columns]] = partial(stored_columns, file)
    return replace(log, columns=read, parts=(read,), size=size, source=source)
