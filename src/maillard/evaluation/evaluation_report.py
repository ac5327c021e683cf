"""What an evaluation answers: estimates with intervals, refusals with reasons, and what to look at before either is believed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from maillard.errors import UnknownName
from maillard.evaluation.diagnostics import Diagnostics

if TYPE_CHECKING:
    from maillard.evaluation.estimates import Facts

__all__ = ["Answers", "Estimate", "Report", "lines_of", "plain"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One estimator's answer. Where it was refused, `value` is None and `refusal` says why."""

    name: str
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    standard_error: float | None = None
    interval: str = ""
    "What kind the interval is of."
    assumes: str = ""
    "What it needs to hold as often as it says."
    caveat: str = ""
    "What of that is not known to hold for this log."
    level: float | None = None
    "Of clipping or shrinkage, where there is one."
    refusal: str | None = None

    @property
    def width(self) -> float:
        """Of the interval."""
        return math.nan if self.lower is None or self.upper is None else self.upper - self.lower


@dataclass(frozen=True, kw_only=True)
class Answers(Mapping[str, Estimate]):
    """Estimates by the names of their estimators."""

    confidence: float
    estimates: Mapping[str, Estimate]

    def __getitem__(self, name: str) -> Estimate:
        if name not in self.estimates:
            raise NotAsked("estimator, of those that were asked for", name, list(self.estimates))
        return self.estimates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.estimates)

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def adaptive(self) -> bool:
        """Whether the log is taken to have been learned from while it grew."""
        raise NotImplementedError

    @property
    def best(self) -> Estimate | None:
        """The one to read first: by what they assume, never by what they say. None where all were refused, or assume what is not known.

        On a log that was learned from aipw-two-point, then aipw-sqrt; where either has a caveat, a confidence sequence. On others snips.
        """
        order = _FIRST[self.adaptive] + tuple(self.estimates)
        sure = (self.estimates[name] for name in order if name in self.estimates)
        return next((each for each in sure if each.lower is not None and not each.caveat), None)

    @property
    def refusals(self) -> dict[str, str]:
        """Why, for each estimator that gave no answer."""
        return {name: each.refusal for name, each in self.estimates.items() if each.refusal is not None}


# What to read first, where the log was not and where it was learned from while it grew.
_FIRST = (
    ("snips", "dr", "aipw-two-point", "aipw-sqrt", "aipw"),
    ("aipw-two-point", "aipw-sqrt", "cs-betting", "cs-dr", "cs-bernstein"),
)


class NotAsked(UnknownName, KeyError):
    """An estimator that is not among the answers."""

    __str__ = UnknownName.__str__


@dataclass(frozen=True, kw_only=True)
class Report(Answers):
    """The value of one target, by each estimator that was asked for."""

    target: str
    source: str
    experiment: str
    diagnostics: Diagnostics
    facts: Facts = field(repr=False, compare=False)

    @property
    def adaptive(self) -> bool:
        return self.diagnostics.adaptive

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON can hold them."""
        made: dict[str, Any] = {
            name: getattr(self, name) for name in ("target", "source", "experiment", "confidence", "refusals")
        }
        made["best"] = None if self.best is None else self.best.name
        made["estimates"] = {name: dataclasses.asdict(each) for name, each in self.estimates.items()}
        made["diagnostics"] = dataclasses.asdict(self.diagnostics)
        plain_values: dict[str, Any] = plain(made)
        return plain_values

    def __str__(self) -> str:
        d = self.diagnostics
        lines = [
            f"{self.target} on {self.source}: {d.rows:,} rows, effective size {d.effective_sample_size:,.1f}, "
            f"mean weight {d.mean_weight:.4g}, largest {d.max_weight:.4g}"
        ]
        return "\n".join([*lines, *lines_of(self)])


def lines_of(answers: Answers) -> list[str]:
    """Estimates to read, a line for each and one for what is not known; a star for the one to read first."""
    lines, wide, best = [], max(map(len, answers), default=0), answers.best
    for name, each in answers.items():
        if each.value is None:
            lines.append(f"  {name:{wide}}  refused: {each.refusal}")
            continue
        bounds = (
            "" if each.lower is None else f"  {answers.confidence:.0%} [{each.lower:.6g}, {each.upper:.6g}]"
        )
        star = "*" if each is best else " "
        lines.append(f"{star} {name:{wide}}  {each.value:.6g}{bounds}  {each.interval}")
        if each.caveat:
            lines.append(f"  {'':{wide}}  but {each.caveat}")
    return lines


def plain(value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
