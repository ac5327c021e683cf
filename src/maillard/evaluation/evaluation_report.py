"""The result of an evaluation: estimates with intervals, refusals with reasons, and diagnostics."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.errors import UnknownName
from maillard.evaluation.diagnostics import Diagnostics
from maillard.evaluation.estimators import all_estimators
from maillard.evaluation.estimators.estimator import CONFIDENCE_SEQUENCE

if TYPE_CHECKING:
    from maillard.evaluation.estimates import Evidence


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The result of one estimator. If it was refused, `value` is None and `refusal` is the reason."""

    name: str
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    standard_error: float | None = None
    interval: str = ""
    "The type of the interval."
    assumes: str = ""
    "What the interval requires to be valid."
    caveat: str = ""
    "Which of these requirements are in doubt for this log."
    level: float | None = None
    "The level of clipping or shrinkage, if there is one."
    refusal: str | None = None

    @property
    def width(self) -> float:
        """The width of the interval."""
        return math.nan if self.lower is None or self.upper is None else self.upper - self.lower

    @property
    def anytime_valid(self) -> bool:
        """Whether the interval is a confidence sequence: valid at every row simultaneously."""
        estimator = all_estimators().get(self.name)
        return self.value is not None and estimator is not None and estimator.interval == CONFIDENCE_SEQUENCE


@dataclass(frozen=True, kw_only=True)
class Estimates(Mapping[str, Estimate]):
    """Estimates by the names of their estimators."""

    confidence: float
    estimates: Mapping[str, Estimate]
    json_fields: ClassVar[tuple[str, ...]]
    "What `to_dict` returns, in this order."

    def __getitem__(self, name: str) -> Estimate:
        if name not in self.estimates:
            raise NotRequested("estimator in this report", name, list(self.estimates))
        return self.estimates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.estimates)

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def adaptive(self) -> bool:
        """Whether the log is assumed to be adaptive: its policy learned from it."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The result as values that JSON supports."""
        values = {name: getattr(self, name) for name in self.json_fields}
        values["best"] = None if self.best is None else self.best.name
        made: dict[str, Any] = plain(values)
        return made

    @property
    def best(self) -> Estimate | None:
        """The estimate to read first, chosen by its assumptions, not by its value; None if each has a caveat.

        On an adaptive log this is aipw-two-point, then aipw-sqrt, then a confidence sequence; on others
        snips.
        """
        known = all_estimators()
        ordered = sorted(
            self.estimates.values(),
            key=lambda each: known[each.name].priority[self.adaptive] if each.name in known else math.inf,
        )
        return next((each for each in ordered if each.lower is not None and not each.caveat), None)

    @property
    def answered(self) -> bool:
        """Whether at least one estimator gave an estimate."""
        return any(each.value is not None for each in self.estimates.values())

    @property
    def refusals(self) -> dict[str, str]:
        """The reasons of the estimators that were refused."""
        return {name: each.refusal for name, each in self.estimates.items() if each.refusal is not None}


class NotRequested(UnknownName, KeyError):
    """The estimator is not in the report."""

    __str__ = UnknownName.__str__


@dataclass(frozen=True, kw_only=True)
class Report(Estimates):
    """The value of one target by each requested estimator."""

    target: str
    source: str
    experiment: str
    diagnostics: Diagnostics
    evidence: Evidence = field(repr=False, compare=False)
    json_fields: ClassVar = (
        "target", "source", "experiment", "confidence", "refusals", "best", "estimates", "diagnostics",
    )  # fmt: skip

    @property
    def adaptive(self) -> bool:
        return self.diagnostics.adaptive

    def __str__(self) -> str:
        d = self.diagnostics
        sizes = f"{d.rows:,} rows, effective size {d.effective_sample_size:,.1f}"
        weights = f"mean weight {d.mean_weight:.4g}, largest {d.max_weight:.4g}"
        title = f"{self.target} on {self.source}" + (f": {sizes}, {weights}" if d.rows else "")
        return "\n".join([title, *open_lines(self), *lines_of(self)])


def open_lines(report: Report) -> list[str]:
    """A line with the number of decisions that are not used because their windows are open, if any."""
    count = report.diagnostics.open
    what = "1 decision is" if count == 1 else f"{count:,} decisions are"
    used = report.diagnostics.rows
    return [f"  {what} not used, because the reward window is still open"] if count and used else []


def lines_of(estimates: Estimates) -> list[str]:
    """Text lines: one for each estimate, then their caveats and refusals; a star marks the best estimate."""
    lines, wide, best = [], max(map(len, estimates), default=0), estimates.best
    for name, each in estimates.items():
        if each.value is None:
            continue
        star, bounds = "*" if each is best else " ", ""
        if each.lower is not None:
            bounds = f"  {estimates.confidence:.0%} [{each.lower:.6g}, {each.upper:.6g}]"
        lines.append(f"{star} {name:{wide}}  {each.value:.6g}{bounds}  {each.interval}")
    every = ", ".join(estimates)
    for word, texts in (
        ("refused", [(name, each.refusal or "") for name, each in estimates.items()]),
        ("but", [(name, each.caveat) for name, each in estimates.items()]),
    ):
        for names, text in grouped(texts):
            lines.append(f"  {word}: {'' if names == every else f'{names}: '}{text}")
    return lines


def grouped(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The names that share a text, joined, with that text; names without a text are left out.

    >>> grouped([("ips", "many rows"), ("cs-dr", ""), ("snips", "many rows")])
    [('ips, snips', 'many rows')]
    """
    found: dict[str, dict[str, None]] = {}
    for name, text in pairs:
        if text:
            found.setdefault(text, {})[name] = None
    return [(", ".join(names), text) for text, names in found.items()]


def plain(value: Any) -> Any:
    """The value in types that JSON supports; None for a number that is not finite."""
    if isinstance(value, Estimates):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
