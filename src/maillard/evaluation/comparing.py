"""`compare`: whether one target is better than another, and by how much, from the same rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.estimates import Facts, normal, refused, refused_sequential, too_few
from maillard.evaluation.evaluating import reports_of
from maillard.evaluation.evaluation_log import open_log
from maillard.evaluation.evaluation_report import Answers, Estimate, Report, lines_of, plain
from maillard.evaluation.log_sums import rows_of
from maillard.evaluation.looking import Looked, look
from maillard.evaluation.moments import Moments
from maillard.evaluation.query import Options, Settings
from maillard.evaluation.sequential.sequential_runner import ASSUMES, SEQUENCES, WEIGHTINGS, Follower
from maillard.policies import Policy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.evaluation.weighted_rows import Rows

__all__ = ["COMPARING", "Comparison", "compare"]

_BATCHED, _DECORRELATED = _OF_ARMS = ("bols", "w-decorrelation")
COMPARING = ("ips", "snips", *WEIGHTINGS, *SEQUENCES, *_OF_ARMS)
"The estimators of differences."
_SHARED = "in the rows that both targets share,"


@dataclass(frozen=True, kw_only=True)
class Comparison(Answers):
    """The value of one target minus that of another, by each estimator that was asked for."""

    first: Report
    second: Report

    @property
    def adaptive(self) -> bool:
        return self.first.adaptive

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON can hold them."""
        made: dict[str, Any] = plain(
            {
                "first": self.first.to_dict(),
                "second": self.second.to_dict(),
                "confidence": self.confidence,
                "estimates": {name: dataclasses.asdict(each) for name, each in self.estimates.items()},
                "best": None if self.best is None else self.best.name,
                "refusals": self.refusals,
            }
        )
        return made

    def __str__(self) -> str:
        title = f"{self.first.target} minus {self.second.target} on {self.first.source}"
        return "\n".join([title, *lines_of(self)])


def compare(
    log: Any,
    a: str | Policy,
    b: str | Policy,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    *,
    penalty: float | None = None,
    **options: Unpack[Options],
) -> Comparison:
    """How much more reward target `a` would have had than target `b`, on average, with intervals of the difference.

    Both are estimated from the same rows, those in which all that either chooses could have been drawn, so what they share cancels.
    `bols` and `w-decorrelation` are for two arms, whose rewards they keep in memory; the latter needs its `penalty`, which
    differences.decorrelation.choose_penalty finds. Of the confidence sequences either target's is made at half of what may go wrong, and so
    are both reports. The options are those of `evaluate`, but for `interval` and `reward_model`.

    >>> from maillard import simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=5000, seed=1)
    >>> compare(log, "arm:0", "arm:1")["aipw-two-point"].lower > 0
    True
    """
    settings = Settings.of(confidence, options)
    for name, plain_value in (("interval", "normal"), ("reward_model", None)):
        if getattr(settings, name) is not plain_value and getattr(settings, name) != plain_value:
            raise InvalidValue(
                name, getattr(settings, name), f"{plain_value} here: differences have no other"
            )
    given = [estimators] if isinstance(estimators, str) else estimators
    names = list(COMPARING[:-2] if given is None else given)
    for name in names:
        if name not in COMPARING:
            raise UnknownName("estimator of differences", name, COMPARING)
    opened = open_log(log, settings.reward_range, settings.on_rows, **settings.selection)
    try:
        looked = look(opened, settings)
        pair = looked.bind(a), looked.bind(b)
        difference = pair[0] - pair[1]
        if not difference.laws.any():
            raise InvalidValue("b", str(b), f"another target than {pair[0].name}")
        # Each of the two confidence sequences may go wrong half as often.
        halved = replace(settings, confidence=0.5 + confidence / 2)
        both = ["ips", "snips", *(name for name in names if name in SEQUENCES)]
        first, second = reports_of(replace(looked, settings=halved), pair, both)
        paired = _follow(looked, pair, difference, names)
    finally:
        opened.close()
    facts = replace(first.facts, settings=settings, target=difference)
    made = {}
    for name in names:
        refusal = _refusal(name, first, second, facts, paired)
        if refusal:
            made[name] = Estimate(name=name, refusal=refusal)
        elif name in _OF_ARMS:
            made[name] = _of_arms(name, paired, confidence, penalty)
        else:
            made[name] = _answer(name, (first, second), paired, facts)
    return Comparison(first=first, second=second, confidence=confidence, estimates=made)


class _Paired:
    """What the rows that both targets share come to."""

    def __init__(self, follower: Follower, pair: tuple[Target, Target], *, keep: bool) -> None:
        self.follower, self.pair, self.keep = follower, pair, keep
        self.moments: Moments | None = None
        self.kept: list[tuple[NDArray[Any], ...]] = []
        self.roots = 0.0

    def advance(self, rows: Rows) -> None:
        """Follow some further rows."""
        if not len(rows):
            return
        self.follower.advance(rows)
        inverse = np.exp(-rows.log_probability)
        weights = [
            target.laws[np.minimum(rows.law, len(target.laws) - 1), rows.arm] * inverse
            for target in self.pair
        ]
        if rows.propensity is not None:
            self.roots += float(np.sqrt(rows.propensity).sum())
        parts = np.stack([weights[0], weights[0] * rows.reward, weights[1], weights[1] * rows.reward])
        some = Moments.of(parts, rows.unit)
        self.moments = some if self.moments is None else self.moments + some
        if self.keep:
            self.kept.append((rows.arm, rows.reward, rows.state))

    def effective_size(self, which: int) -> float:
        """Of the weights of either target, in the rows that both share."""
        assert self.moments is not None
        n, mean = self.moments.count, self.moments.mean[2 * which]
        squares = self.moments.scatter[2 * which, 2 * which] + n * mean**2
        return float((n * mean) ** 2 / squares) if squares else 0.0


@np.errstate(over="ignore", invalid="ignore")
def _follow(looked: Looked, pair: tuple[Target, Target], difference: Target, names: Sequence[str]) -> _Paired:
    """One pass over the log, of which only the rows that both targets share count."""
    keep = bool(set(_OF_ARMS) & set(names))
    weightings = [name for name in names if name in WEIGHTINGS]
    paired, asked = (
        _Paired(looked.follower(difference, weightings), pair, keep=keep),
        looked.asked([difference]),
    )
    for some in looked.opened.columns():
        if len(some):
            paired.advance(rows_of(some, asked)[0][0][0])
    return paired


def _refusal(name: str, first: Report, second: Report, facts: Facts, paired: _Paired) -> str | None:
    """Why one estimator of the difference has no answer: what either target is refused for, and what it needs itself."""
    if paired.moments is None or not paired.moments.count:
        return "there is no row in which all that either target chooses could have been drawn"
    for place, report in enumerate((first, second)):
        # Of those that follow the log, aipw depends on weights as ips does.
        like = name if name in report else "ips" if name == "aipw" else None
        why = refused(report.facts) if like is None else report[like].refusal
        if why is None and name in ("ips", "snips", "aipw"):
            why = too_few(paired.effective_size(place), f"{_SHARED} the effective size is", facts)
        if why is None and name in WEIGHTINGS:
            pulls = paired.roots**2 / paired.moments.count
            few = too_few(pulls, f"{_SHARED} the effective pulls are", facts) if name != "aipw" else None
            why = few or refused_sequential(name, report.facts)
        if why is not None:
            return f"{report.target}: {why}"
    if name in _OF_ARMS and (_arm(paired.pair[0]) is None or _arm(paired.pair[1]) is None):
        return "it is for the difference of two arms"
    if name in _OF_ARMS and (facts.repeated or facts.by_unit):
        return "it needs rows each drawn for itself"
    return None


def _answer(name: str, reports: tuple[Report, Report], paired: _Paired, facts: Facts) -> Estimate:
    if name in SEQUENCES:
        a, b = (report[name] for report in reports)
        return Estimate(
            name=name,
            value=_known(a.value) - _known(b.value),
            lower=_known(a.lower) - _known(b.upper),
            upper=_known(a.upper) - _known(b.lower),
            interval="two confidence sequences, both of which hold",
            assumes=ASSUMES[name],
            caveat="; ".join(dict.fromkeys([*reports[0].facts.doubts, *reports[1].facts.doubts])),
        )
    if name in ("ips", "snips"):
        value, error = _moment_difference(name, paired)
        assumes = ASSUMES["aipw"]
    else:
        (value, error), assumes = paired.follower.weighted()[name], ASSUMES[name]
    return normal(name, value, error, facts, assumes=assumes, caveat=facts.caveat)


def _known(number: float | None) -> float:
    """Of an estimate that was not refused."""
    assert number is not None
    return number


def _moment_difference(name: str, paired: _Paired) -> tuple[float, float]:
    """The difference of two means of w r, or of two weighted means, and its standard error."""
    moments = paired.moments
    assert moments is not None
    w_a, a, w_b, b = moments.mean.tolist()
    if name == "ips":
        value, gradient = a - b, np.array([0.0, 1.0, 0.0, -1.0])
    else:
        value = a / w_a - b / w_b
        gradient = np.array([-a / w_a**2, 1.0 / w_a, b / w_b**2, -1.0 / w_b])
    return value, math.sqrt(moments.variance(gradient))


def _arm(target: Target) -> int | None:
    """The one arm of a target."""
    places = np.flatnonzero((target.laws != 0).any(axis=0))
    return int(places[0]) if places.size == 1 else None


def _of_arms(name: str, paired: _Paired, confidence: float, penalty: float | None) -> Estimate:
    """The estimators that are made for two arms."""
    arm, reward, batch = (np.concatenate(each) for each in zip(*paired.kept, strict=True))
    one, other = _arm(paired.pair[0]), _arm(paired.pair[1])
    assert one is not None
    assert other is not None
    try:
        if name == _BATCHED:
            from maillard.evaluation.differences.batched_difference import batched_difference

            found = batched_difference(arm, reward, batch, one, other, confidence=confidence)
            return Estimate(
                name=name,
                value=found.value,
                lower=found.lower,
                upper=found.upper,
                interval=f"least squares in each of {found.batches:,} batches",
                assumes="batches, those of the log's states, whose ends do not depend on their rewards, and one variance for both arms",
            )
        if penalty is None:
            why = "it needs penalty=..., found without a look at the rewards (differences.decorrelation.choose_penalty)"
            return Estimate(name=name, refusal=why)
        from maillard.evaluation.differences.decorrelation import decorrelated_difference

        apart = decorrelated_difference(arm, reward, one, other, penalty=penalty, confidence=confidence)
    except InvalidValue as error:
        return Estimate(name=name, refusal=str(error))
    return Estimate(
        name=name,
        value=apart.value,
        lower=apart.lower,
        upper=apart.upper,
        interval="W-decorrelation",
        assumes="one variance for both arms, and a penalty chosen without a look at the rewards",
    )
