"""The result of an evaluation: estimates with intervals, refusals with reasons, and diagnostics."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.decisions.outcomes import MAX_DESIGN_EFFECT
from maillard.errors import UnknownName
from maillard.evaluation.diagnostics import ALL_ACTIONS, Diagnostics, LateRewards, share_text
from maillard.evaluation.estimate_display import EstimatesDisplay
from maillard.evaluation.estimators import all_estimators
from maillard.evaluation.estimators.estimator import Estimator
from maillard.short_reprs import dataclass_repr

if TYPE_CHECKING:
    from maillard.evaluation.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The result of one estimator. If it was refused, `value` is None and `refusal` is the reason.

    >>> from maillard import evaluate, simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=2000, seed=1)
    >>> found = evaluate(log, "arm:1")["snips"]
    >>> round(found.value, 2), found.lower < 0.3 < found.upper, found.interval, found.refusal
    (0.3, True, 'normal', None)
    """

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
    anytime_valid: bool = False
    "Whether the interval is a confidence sequence: valid at all times simultaneously."

    __repr__ = dataclass_repr

    @property
    def width(self) -> float:
        """The width of the interval."""
        return math.nan if self.lower is None or self.upper is None else self.upper - self.lower


@dataclass(frozen=True, kw_only=True, repr=False)
class Estimates(EstimatesDisplay, Mapping[str, Estimate]):
    """Estimates by the names of their estimators."""

    confidence: float
    "Of each interval. It is higher than requested if several intervals must be valid together."
    estimates: Mapping[str, Estimate]
    comparisons: int = 1
    "The number of intervals that are valid together, with the confidence that was requested."
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
    def active(self) -> bool:
        """Whether the experiment is still running, so that the interval must be valid at any time."""
        raise NotImplementedError

    @property
    def changed(self) -> bool:
        """Whether the means changed over time."""
        raise NotImplementedError

    @property
    def best(self) -> Estimate | None:
        """The estimate to read first, chosen by its assumptions, not by its value; None if each has a caveat.

        While an experiment is active, this is a confidence sequence. On an adaptive log it is
        aipw-two-point, then aipw-sqrt, then a confidence sequence, then aipw; on others snips.
        """
        known = all_estimators()
        ordered = sorted(
            self.estimates.values(),
            key=lambda each: self._rank(known[each.name]) if each.name in known else math.inf,
        )
        usable = [each for each in ordered if each.lower is not None and not each.caveat]
        return next((each for each in usable if each.anytime_valid or not self.active), None)

    def _rank(self, estimator: type[Estimator]) -> int:
        # A confidence sequence is as valid on an adaptive log as on any other.
        adaptive = self.adaptive or self.active
        if adaptive and not self.has_floor and estimator.priority_without_floor is not None:
            return estimator.priority_without_floor
        return estimator.priority[adaptive]

    @property
    def has_floor(self) -> bool:
        """Whether the logging policy is known to have a floor."""
        raise NotImplementedError

    @property
    def why_best(self) -> str:
        """Why the best estimate was chosen, in words."""
        if self.best is None:
            return "no estimate can be recommended, because each one was refused or has a caveat"
        reasons = []
        if self.active:
            reasons.append(
                "the experiment is still running, so the interval must be valid no matter when you look"
            )
        if self.changed:
            reasons.append("the means changed over time, so it must not assume constant means")
        if self.adaptive and not self.active:
            reasons.append("the policy learned from this log, so the estimator must allow for that")
        reason = "; ".join(reasons) or "rows are independent, and none of its other assumptions is in doubt"
        return f"{self.best.name}: {reason}"

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


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Estimates):
    """The value of one target by each requested estimator.

    >>> from maillard import evaluate, simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=2000, seed=1)
    >>> report = evaluate(log, "arm:1", ["ips", "snips", "aipw-two-point"])
    >>> report.best.name, [round(each.value, 2) for each in report.values()]
    ('aipw-two-point', [0.32, 0.3, 0.29])
    >>> report.diagnostics.rows, report.warnings, report.to_dict()["target"]
    (1998, [], 'arm:1')
    """

    target: str
    source: str
    experiment: str
    diagnostics: Diagnostics
    evidence: Evidence = field(repr=False, compare=False)
    json_fields: ClassVar = (
        "target", "source", "experiment", "confidence", "comparisons", "refusals", "best", "why_best",
        "warnings", "population", "estimates", "diagnostics",
    )  # fmt: skip

    @property
    def adaptive(self) -> bool:
        return self.diagnostics.adaptive

    @property
    def active(self) -> bool:
        return self.evidence.log.active

    @property
    def changed(self) -> bool:
        return self.evidence.changed

    @property
    def has_floor(self) -> bool:
        return self.evidence.log.has_floor

    @property
    def population(self) -> str:
        """The decisions that the answer is about, if it is not about all of them; else ""."""
        d, arms = self.diagnostics, self.evidence.log.arms
        other = d.left_out.get("not eligible", 0) + d.left_out.get("without support", 0)
        if not other:
            return ""
        wanted = self.evidence.query.wanted
        chosen = self.evidence.target.chosen_arms if wanted is None else wanted
        names = " and ".join(repr(arm) for arm, is_chosen in zip(arms, chosen, strict=True) if is_chosen)
        if self.evidence.target.contextual:
            return f"the {d.rows:,} of {d.rows + other:,} decisions in which the target could have chosen"
        both = "both " if wanted is not None else ""
        return f"the {d.rows:,} of {d.rows + other:,} decisions in which {both}{names} could have been chosen"

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before using the estimates, in plain words."""
        d, found = self.diagnostics, []
        if d.rows:
            found += [
                f"the clause {when!r} of the rule decides for no row: no decision meets its conditions, or "
                "an earlier clause decides. Check the spelling of its values"
                for when in self.evidence.unused_clauses
            ]
        if d.constancy is not None and d.constancy.changed:
            quarters = ", ".join("-" if each is None else f"{each:.4g}" for each in d.constancy.values)
            shown = f": by quarter of the log, the value was {quarters}" if any(d.constancy.values) else ""
            found.append(
                f"the means changed over time{shown}. An estimate is an average over the period, not the "
                "value today"
            )
        if d.design_effect is not None and d.design_effect > MAX_DESIGN_EFFECT:
            allowed = "so intervals allow for dependence within units"
            ignored = "and intervals are too narrow, because cluster='row' ignores it"
            found.append(
                f"visitors return, and their rewards are alike: the design effect is {d.design_effect:.2g}, "
                + (allowed if self.evidence.query.by_unit else ignored)
            )
        sums, has_actions = self.evidence.sums, self.evidence.log.action_names is not None
        if sums.repeated and (sums.changed_eligibility or has_actions):
            found.append(
                f"{sums.repeated:,} rows repeat the choice of a sticky unit, and the eligible arms differ. A "
                "unit whose arm cannot be chosen gets another one. If that happened, which rows repeat a "
                "choice depends on the choice, so estimates are biased and intervals may miss the value"
            )
        if d.filled:
            found.append(
                f"{share_text(d.filled)} of the rewards are missing. The intervals are valid whatever these "
                "rewards would have been"
            )
        found += self._late_warnings()
        if self.population and self.evidence.query.wanted is None:
            found.append(
                f"this is about {self.population}. To compare it with another arm, use compare, which uses "
                "the decisions in which both could have been chosen"
            )
        if self.evidence.log.pruned_before is not None:
            since = f"{self.evidence.log.pruned_before:%Y-%m-%d %H:%M} UTC"
            found.append(f"decisions before {since} were pruned from the log, so the estimates omit them")
        found += self.evidence.sums.pipeline.doubts
        if len(d.epochs) > 1:
            found.append(
                f"{len(d.epochs)} epochs are pooled, although a reset usually means that something changed"
            )
        return found

    def _late_warnings(self) -> list[str]:
        """That late rewards would change which arm is best, or else the mean of an arm of the target."""
        late, target = self.diagnostics.late, self.evidence.target
        if not late:
            return []
        now, then = (
            max(late, key=lambda arm: getattr(late[arm], each)) for each in ("mean", "mean_with_late")
        )
        if now != then:
            return [
                f"{_late_text(then, late[then])}, {then!r} would have the largest mean "
                f"({late[then].mean_with_late:.4g}, and {now!r} {late[now].mean_with_late:.4g}) "
                f"instead of {now!r}: the window is too short"
            ]
        arms = self.evidence.log.arms
        chosen = [*compress(arms, target.chosen_arms.tolist()), ALL_ACTIONS]
        changed = [arm for arm in chosen if arm in late and late[arm].matter]
        if not changed:
            return []
        arm = max(changed, key=lambda arm: late[arm].change)
        return [
            f"{_late_text(arm, late[arm])}, its mean would be {late[arm].mean_with_late:.4g} instead of "
            f"{late[arm].mean:.4g}: the window is too short"
        ]

    @property
    def notes(self) -> list[str]:
        """What a reader must know, as lines of text: the population, unused decisions, and warnings."""
        return [*notes_of(self), *together_of(self)]

    def __str__(self) -> str:
        d = self.diagnostics
        weights = f", mean weight {d.mean_weight:.4g}, largest {d.max_weight:.4g}"
        title = f"{self.target} on {self._size_text}" + (weights if d.rows else "")
        return "\n".join([title, *self.notes, *lines_of(self)])

    @property
    def _size_text(self) -> str:
        """The log, the number of rows that were used, and their effective number."""
        d = self.diagnostics
        sizes = f": {d.rows:,} rows, effective size {d.effective_sample_size:,.1f}"
        return f"{self.source}{sizes if d.rows else ''}"


def _late_text(arm: str, late: LateRewards) -> str:
    return f"{late.count:,} rewards of {arm!r} arrived after the window had closed. With late rewards"


def notes_of(report: Report) -> list[str]:
    """Text lines: the population, decisions that are not used yet, and warnings."""
    count, used = report.diagnostics.open, report.diagnostics.rows
    what = "1 decision is" if count == 1 else f"{count:,} decisions are"
    return [
        *([f"  about {report.population}"] if report.population else []),
        *([f"  {what} not used, because the reward window is still open"] if count and used else []),
        *(f"  warning: {each}" for each in report.warnings),
    ]


def together_of(estimates: Estimates) -> list[str]:
    """A line that says how many intervals are valid together, if there are several."""
    if estimates.comparisons == 1:
        return []
    together = 100 * (1.0 - (1.0 - estimates.confidence) * estimates.comparisons)
    return [
        f"  each interval has {100 * estimates.confidence:.4g}% confidence, so that "
        f"{estimates.comparisons} of them are valid together with {together:.4g}%; if you chose this one in "
        "advance, pass comparisons=1 (--comparisons 1)"
    ]


def lines_of(estimates: Estimates) -> list[str]:
    """Text lines: one for each estimate, then their caveats and refusals; a star marks the best estimate."""
    lines, wide, best = [], max(map(len, estimates), default=0), estimates.best
    level = f"{100 * estimates.confidence:.4g}%"
    for name, each in estimates.items():
        if each.value is None:
            continue
        star, bounds = "*" if each is best else " ", ""
        if each.lower is not None:
            bounds = f"  {level} [{each.lower:.6g}, {each.upper:.6g}]"
        lines.append(f"{star} {name:{wide}}  {each.value:.6g}{bounds}  {each.interval}")
    every = ", ".join(estimates)
    if best is not None:
        lines += [f"  * {estimates.why_best}", f"    assumes: {best.assumes}"]
    elif estimates.answered:
        lines.append(f"  {estimates.why_best}")
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
