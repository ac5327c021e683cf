"""From sums to an answer: an estimate with its interval and what that assumes, or a refusal that says why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from maillard.decisions.audit import Audit
from maillard.evaluation.floors import floor_for
from maillard.evaluation.following import ASSUMES, NEEDS_LAWS, SEQUENCES, Follower
from maillard.evaluation.intervals import bernstein_halfwidth
from maillard.evaluation.report import Estimate
from maillard.evaluation.slope import choose

if TYPE_CHECKING:
    from maillard.evaluation.diagnostics import Diagnostics
    from maillard.evaluation.estimators.additive import Additive
    from maillard.evaluation.settings import Settings
    from maillard.evaluation.targets import Target

__all__ = ["Facts", "answer", "normal", "refused", "refused_sequential"]

_NO_FLOOR = (
    "this log was learned from while it grew and no floor under its probabilities is known: the interval may cover far less often "
    "than it says. The confidence sequences hold here"
)


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
        """What a normal interval on this log does not know."""
        d = self.diagnostics
        if d.adaptive and not self.floored:
            return _NO_FLOOR
        if self.repeated and not self.by_unit:
            return f'{self.repeated:,} rows repeat the draw of another, as if they were independent; see cluster="unit"'
        return ""


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
        return _additive(name, forms, sums, facts)
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
        )
    value, error = follower.weighted()[name]
    if math.isnan(error):
        return Estimate(name=name, refusal="fewer than three rows: no standard error")
    return normal(name, value, error, facts, assumes=ASSUMES[name], caveat=facts.caveat)


def normal(name: str, value: float, error: float, facts: Facts, **more: Any) -> Estimate:
    """An estimate with a normal interval."""
    return Estimate(
        name=name,
        value=value,
        lower=value - facts.z * error,
        upper=value + facts.z * error,
        standard_error=error,
        interval="normal, by unit" if facts.by_unit else "normal",
        **more,
    )


def _additive(name: str, forms: Sequence[Additive], sums: Mapping[Any, Any], facts: Facts) -> Estimate:
    solved = [each.estimate(sums[each.key], model=facts.modelled, centre=facts.centre) for each in forms]
    best = 0
    if len(forms) > 1:
        values, variances = zip(*solved, strict=True)
        best = choose(values, variances, facts.diagnostics.rows)
    form, (value, variance) = forms[best], solved[best]
    if not math.isfinite(value):
        return Estimate(name=name, refusal="no row in the log has an arm that the target would have chosen")
    adaptive = facts.diagnostics.adaptive
    assumes = (
        "many rows, none of which decides the variance, and a floor under the probabilities"
        if adaptive
        else "many independent rows, none of which decides the variance"
    )
    caveat = facts.caveat
    if form.name == "dm":
        assumes, caveat = "that the model of rewards is right", "as good as the model, whatever the log says"
    elif form.level is not None:
        assumes += ". It covers what the estimate is on average, and not the bias that shrinking makes"
    if facts.settings.interval == "bernstein":
        return _bernstein(form, value, variance, name, facts)
    return normal(name, value, math.sqrt(variance), facts, assumes=assumes, caveat=caveat, level=form.level)


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
        assumes="independent rows, rewards in the known range and weights below the known bound; any number of rows",
        level=form.level,
    )


def refused(facts: Facts) -> str | None:
    """Why nothing can be said at all."""
    d, settings = facts.diagnostics, facts.settings
    if d.audit == "broken":
        return "the draws do not agree with the logged probabilities (maillard verify says where): no weight can be trusted"
    limit = Audit.limit_for(len(facts.arms))
    if d.mean_weight_z is not None and abs(d.mean_weight_z) > limit:
        return f"the mean weight is {d.mean_weight_z:+.1f} standard deviations from 1: the logged probabilities cannot be right"
    advice = floor_for(
        max(settings.min_effective_size, 1.0), max(d.rows, 1), len(facts.arms), facts.target.size
    )
    if not d.rows:
        some = ", ".join(f"{count:,} {why}" for why, count in d.left_out.items())
        if set(d.left_out) <= {"window not closed", "without a reward"}:
            return f"no row has a final reward ({some})"
        return f"in no row could all that the target chooses have been drawn ({some}): a floor=... in the policy gives every arm support"
    if d.unsupported > settings.max_unsupported:
        return (
            f"what the target chooses could not have been drawn in {d.unsupported:.1%} of the rows "
            f"(at most {settings.max_unsupported:.0%} are let pass); {advice}"
        )
    return None


def _too_few(found: float, what: str, facts: Facts) -> str | None:
    least = facts.settings.min_effective_size
    if found >= least:
        return None
    rows = facts.diagnostics.rows
    return f"{what} {found:,.1f} of {rows:,} rows, below {least:g}; {floor_for(least, rows, len(facts.arms), facts.target.size)}"


def _refused_additive(forms: Sequence[Additive], facts: Facts) -> str | None:
    d, form = facts.diagnostics, forms[0]
    if form.modelled and d.adaptive and (not facts.modelled or form.name == "mrdr"):
        return (
            "its model of rewards is fitted to the whole log, which biases it on a log that was learned from while it grew: "
            "use aipw, give a reward_model that was known before, or say adaptive=False if the log was not"
        )
    if d.rows < 2:
        return "a single row has no variance"
    if len(forms) > 1 and d.adaptive:
        return f"a level can be chosen from the data only where rows are independent; name one, as in {form.name}:{form.levels[2]:g}"
    if form.name == "mrdr" and facts.by_unit:
        return "there is no interval by unit for it"
    if form.name == "dm":
        return None
    return _too_few(d.effective_sample_size, "the effective size is", facts)


def refused_sequential(name: str, facts: Facts) -> str | None:
    """Why an estimator that follows the log has no answer."""
    d = facts.diagnostics
    if facts.repeated or facts.by_unit:
        return "it takes rows one by one, each drawn for itself; rows that repeat a draw, or are clustered by unit, need ips or snips"
    if name in NEEDS_LAWS and not facts.laws:
        return "the log has only the chosen arm's probability, in some rows at least, and this needs that of every arm"
    if name in SEQUENCES:
        if facts.reward_range is None:
            return "it needs the range of rewards: say reward_range=(low, high), --reward-range low..high, if there is one"
        return None
    if name == "aipw":
        return _too_few(d.effective_sample_size, "the effective size is", facts)
    return _too_few(float(d.positive), "the target's arms were drawn in", facts)
