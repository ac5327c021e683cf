"""From sums to an answer: an estimate with its interval and what that assumes, or a refusal that says why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.audit import Audit
from maillard.evaluation.evaluation_report import Estimate
from maillard.evaluation.intervals import bernstein_halfwidth
from maillard.evaluation.level_selection import choose, independent_widths
from maillard.evaluation.moments import WEIGHT
from maillard.evaluation.promised_floors import floor_for
from maillard.evaluation.sequential.sequential_runner import ASSUMES, NEEDS_LAWS, SEQUENCES, Follower

if TYPE_CHECKING:
    from maillard.evaluation.bound_targets import Target
    from maillard.evaluation.diagnostics import Diagnostics
    from maillard.evaluation.estimators.additive import Additive
    from maillard.evaluation.query import Settings

__all__ = ["Facts", "answer", "normal", "refused", "refused_sequential", "too_few"]

_NO_FLOOR = (
    "the probabilities changed, so this log is taken to have been learned from while it grew (adaptive=False, --not-adaptive, if not), and no floor "
    "under them is known that does not sink faster than t^-0.7: the interval may cover far less often than it says"
)
_FEW = 10  # outcomes of the rarer kind, from which a sum of them is near enough to normal
_BIAS = ". It covers what the estimate is on average, and not the bias that shrinking makes"
_FEWEST_UNITS = 10
_ALIKE = "all rewards that count are alike: there is no error to make an interval of. The confidence sequences need none"
_TOO_LARGE = "rewards and weights too large to be squared, or no weight at all"


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """What is known of a log and a target when answers are made."""

    settings: Settings
    diagnostics: Diagnostics
    target: Target
    arms: tuple[str, ...]
    reward_range: tuple[float, float] | None
    largest: float | None
    "The largest weight that there can be, by design."
    laws: bool
    floored: bool
    "Whether a floor under the probabilities is known, one that sinks or not."
    unseen: float
    "How much of the target lies on arms that were never drawn."
    modelled: bool
    centre: float
    repeated: int
    by_unit: bool

    @property
    def z(self) -> float:
        """The normal quantile of the intervals."""
        return NormalDist().inv_cdf(0.5 + self.settings.confidence / 2)

    @property
    def caveat(self) -> str:
        """What is not known to hold of a normal interval on this log."""
        d, known = self.diagnostics, []
        if d.adaptive and not self.floored:
            known.append(_NO_FLOOR + (". The confidence sequences hold" if self.reward_range else ""))
        if self.repeated and not self.by_unit:
            known.append(f'{self.repeated:,} rows repeat the draw of another; see cluster="unit"')
        if d.rare is not None and d.rare < _FEW:
            known.append(
                f"only {d.rare} of the {d.positive:,} rewards that count are of the rarer kind: a confidence sequence is surer"
            )
        return "; ".join([*known, *self.doubts])

    @property
    def doubts(self) -> list[str]:
        """What is not known to hold of any interval on this log."""
        d, found = self.diagnostics, []
        if d.missing:
            found.append(
                f"{d.missing:.1%} of the rows have no reward and are left out, as if that did not depend on what it would have been; "
                "a window and a default settle it"
            )
        if not self.laws and abs(d.mean_weight - 1.0) > 5.0 * d.mean_weight_error:
            found.append(
                f"the mean weight is {d.mean_weight:.3g} and not 1: the probabilities may be wrong, or the target's arms not always have been there"
            )
        return found


@np.errstate(over="ignore", invalid="ignore")
def answer(
    name: str, forms: Sequence[Additive], sums: Mapping[Any, Any], follower: Follower, facts: Facts
) -> Estimate:
    """One estimator's answer; `forms` are those of an additive one, of which a level is to be chosen."""
    refusal = refused(facts) or (
        _refused_additive(forms, facts) if forms else refused_sequential(name, facts)
    )
    if refusal:
        return Estimate(name=name, refusal=refusal)
    if forms:
        return _additive(name, forms, sums, follower, facts)
    if name in SEQUENCES:
        value, lower, upper = follower.sequences()[name]
        if math.isnan(value):
            share = 1.0 - facts.settings.confidence
            why = f"no value is left in it. That happens on at most {share:.3g} of honest logs; else means of arms changed, or probabilities are wrong"
            return Estimate(name=name, refusal=why)
        return Estimate(
            name=name,
            value=value,
            lower=lower,
            upper=upper,
            interval="confidence sequence",
            assumes=ASSUMES[name],
            caveat="; ".join(facts.doubts),
        )
    value, error = follower.weighted()[name]
    return normal(name, value, error, facts, assumes=ASSUMES[name], caveat=facts.caveat)


def normal(name: str, value: float, error: float, facts: Facts, **more: Any) -> Estimate:
    """An estimate with a normal interval; a refusal where there is no error to make one of."""
    if math.isnan(error):
        return Estimate(name=name, refusal="fewer than three rows: no standard error")
    if not (math.isfinite(value) and math.isfinite(error)):
        return Estimate(name=name, refusal=_TOO_LARGE)
    if not error > 0:
        return Estimate(name=name, refusal=_ALIKE)
    return Estimate(
        name=name,
        value=value,
        lower=value - facts.z * error,
        upper=value + facts.z * error,
        standard_error=error,
        interval="normal, by unit" if facts.by_unit else "normal",
        **more,
    )


def _additive(  # noqa: PLR0911  # a reason each
    name: str, forms: Sequence[Additive], sums: Mapping[Any, Any], follower: Follower, facts: Facts
) -> Estimate:
    solved = [each.estimate(sums[each.key], model=facts.modelled, centre=facts.centre) for each in forms]
    values, variances = zip(*solved, strict=True)
    best = 0
    if len(forms) > 1:
        widths = (
            follower.widths(forms)
            if facts.diagnostics.adaptive
            else independent_widths(variances, facts.diagnostics.rows)
        )
        if widths is None:
            why = f"a level can be chosen here only by confidence sequences, which need reward_range; name one, as in {name}:{forms[0].levels[2]:g}"
            return Estimate(name=name, refusal=why)
        best = choose(values, widths)
    form, value, variance = forms[best], values[best], variances[best]
    if not sums[form.key].count:
        return Estimate(name=name, refusal="no row in the log has an arm that the target would have chosen")
    if not (math.isfinite(value) and math.isfinite(variance)):
        return Estimate(name=name, refusal=_TOO_LARGE)
    if form.name == "dm" and facts.modelled:
        return Estimate(name=name, value=value, interval="none", assumes="that the model of rewards is right")
    if facts.settings.interval == "bernstein":
        return _bernstein(form, value, variance, name, facts)
    assumes = (
        "many rows, none of which decides the variance, and a floor under the probabilities"
        if facts.diagnostics.adaptive
        else "many independent rows, none of which decides the variance"
    )
    if form.name == "dm":
        assumes = "that all arms give the same, so that the log's mean reward is anybody's"
    elif len(forms) == 1 and form.level is not None:
        assumes += _BIAS
    if facts.by_unit:
        units = len(sums[form.key].units)
        if units < _FEWEST_UNITS:
            return Estimate(
                name=name,
                refusal=f"there are {units} units, and an interval by unit needs at least {_FEWEST_UNITS}",
            )
        # Student's t, as a factor of the error: as many independent sums as there are units.
        variance *= (_student(facts.settings.confidence, units - 1) / facts.z) ** 2
    cut = _cut(form, sums, facts)
    caveat = "; ".join(filter(None, [facts.caveat, cut if len(forms) == 1 else ""]))
    made = normal(name, value, math.sqrt(variance), facts, assumes=assumes, caveat=caveat, level=form.level)
    if len(forms) == 1 or made.value is None:
        return made
    # What was chosen for its small variance is biased by as much as the others allow: the least shrunken form bounds it.
    widest = max(range(len(forms)), key=lambda i: variances[i])
    half = facts.z * math.sqrt(variances[widest])
    return replace(
        made,
        lower=min(values[widest] - half, value),
        upper=max(values[widest] + half, value),
        interval=f"normal, of {forms[widest]}",
        assumes=assumes + ", and that the least shrunken form is hardly biased",
    )


def _cut(form: Additive, sums: Mapping[Any, Any], facts: Facts) -> str:
    """What a level does to the weights, where it does much."""
    if form.level is None or not facts.diagnostics.mean_weight:
        return ""
    left = float(sums[form.key].mean[WEIGHT]) / facts.diagnostics.mean_weight
    return (
        f"its level takes away {1 - left:.0%} of all weight, and the estimate is biased by as much"
        if left < 0.95
        else ""
    )


def _student(confidence: float, freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def _bernstein(form: Additive, value: float, variance: float, name: str, facts: Facts) -> Estimate:
    """Maurer and Pontil's interval, for the estimators that are means of bounded terms."""
    most = min(form.most(), facts.largest or math.inf)
    if form.modelled or form.name == "snips" or not math.isfinite(most) or facts.reward_range is None:
        why = "an empirical Bernstein interval needs a mean of bounded terms: ips or a shrunken form of it, a known reward_range, " \
              "and a floor or a level that bounds the weights"  # fmt: skip
        return Estimate(name=name, refusal=why)
    if facts.diagnostics.adaptive or facts.by_unit:
        return Estimate(
            name=name,
            refusal="empirical Bernstein needs independent rows; cs-bernstein is its form for logs that were learned from",
        )
    low, high = facts.reward_range
    span = most * (max(high, 0.0) - min(low, 0.0))
    half = bernstein_halfwidth(variance, facts.diagnostics.rows, span, 1.0 - facts.settings.confidence)
    return Estimate(
        name=name,
        value=value,
        lower=value - half,
        upper=value + half,
        standard_error=math.sqrt(variance),
        interval="empirical Bernstein",
        assumes="independent rows, rewards in the known range and weights below the known bound; any number of rows"
        + ("" if form.level is None else _BIAS),
        caveat="; ".join(facts.doubts),
        level=form.level,
    )


def refused(facts: Facts) -> str | None:  # noqa: PLR0911  # a reason each
    """Why nothing can be said at all."""
    d, settings = facts.diagnostics, facts.settings
    if d.audit == "broken":
        where = " (maillard verify says where)" if facts.laws else f": the mean weight is {d.mean_weight:.3g}"
        return f"the draws do not agree with the logged probabilities{where}. No weight can be trusted"
    limit = Audit.limit_for(len(facts.arms))
    if d.mean_weight_z is not None and abs(d.mean_weight_z) > limit:
        return f"the mean weight is {d.mean_weight_z:+.1f} standard deviations from 1: the logged probabilities cannot be right"
    advice = floor_for(
        max(settings.min_effective_size, 1.0), max(d.rows, 1), len(facts.arms), facts.target.size
    )
    if not d.rows:
        some = ", ".join(f"{count:,} {why}" for why, count in d.left_out.items())
        final = set(d.left_out) <= {"window not closed", "without a reward"}
        return (
            f"no row has a final reward ({some})"
            if final
            else f"in no row could all that the target chooses have been drawn ({some}): a floor=... in the policy gives every arm support"
        )
    if d.missing > settings.max_missing:
        return (
            f"{d.missing:.1%} of the rows have no reward (at most {settings.max_missing:.0%} are let pass): if only some outcomes are "
            "reported, what is left is no sample. A window with a default says what no report means"
        )
    if not facts.laws and facts.unseen > settings.max_unsupported:
        return (
            f"{facts.unseen:.1%} of what the target chooses are arms that were never drawn, and whose probabilities the log does not have "
            f"(at most {settings.max_unsupported:.0%} are let pass)"
        )
    if d.unsupported > settings.max_unsupported:
        return (
            f"what the target chooses could not have been drawn in {d.unsupported:.1%} of the rows "
            f"(at most {settings.max_unsupported:.0%} are let pass); {advice}"
        )
    return None


def too_few(found: float, what: str, facts: Facts) -> str | None:
    """Why so few rows are not enough, and what floor would have given more."""
    least = facts.settings.min_effective_size
    if found >= least:
        return None
    rows = facts.diagnostics.rows
    return f"{what} {found:,.1f} of {rows:,} rows, below {least:g}; {floor_for(least, rows, len(facts.arms), facts.target.size)}"


def _refused_additive(forms: Sequence[Additive], facts: Facts) -> str | None:  # noqa: PLR0911  # a reason each
    d, form = facts.diagnostics, forms[0]
    if form.modelled and d.adaptive and (not facts.modelled or form.name == "mrdr"):
        return (
            "its model of rewards is fitted to the whole log, which biases it where the log was learned from while it grew, and probabilities that "
            "change say so: use aipw, give a reward_model that was known before, or say adaptive=False (--not-adaptive) if it was not"
        )
    if d.rows < 2:
        return "a single row has no variance"
    if d.alike and form.name != "dm":
        return _ALIKE
    if len(forms) > 1 and d.adaptive and form.modelled:
        return f"its level can be chosen from the data only where rows are independent; name one, as in {form.name}:{form.levels[2]:g}"
    if form.name == "mrdr" and facts.by_unit:
        return "there is no interval by unit for it"
    if form.name == "dm":
        return None
    return too_few(d.effective_sample_size, "the effective size is", facts)


def refused_sequential(name: str, facts: Facts) -> str | None:  # noqa: PLR0911  # a reason each
    """Why an estimator that follows the log has no answer."""
    d = facts.diagnostics
    if facts.repeated or facts.settings.cluster is not None:
        return "it takes rows one by one, each drawn for itself; rows that repeat a draw, or are clustered by unit, need ips or snips"
    if name in NEEDS_LAWS and not facts.laws:
        return "the log has only the chosen arm's probability, in some rows at least, and this needs that of every arm"
    if name in SEQUENCES:
        if facts.reward_range is None:
            return "it needs the range of rewards: say reward_range=(low, high), --reward-range low..high, if there is one"
        return None
    if d.alike:
        return _ALIKE
    if name == "aipw" or d.effective_pulls is None:
        return too_few(d.effective_sample_size, "the effective size is", facts)
    return too_few(d.effective_pulls, "the effective pulls are", facts)
