"""Why a floor was chosen, in sentences."""

from __future__ import annotations

import math

from maillard.evaluation.advising.advice_formatting import difference, reward_name, share, with_error
from maillard.evaluation.advising.advice_requirements import Requirements
from maillard.evaluation.advising.advice_result import AdviceOption
from maillard.evaluation.advising.advice_rules import DEFAULT_FLOOR, compromise


def floor_reason(
    r: Requirements, chosen: AdviceOption, split: AdviceOption, why: str, cheaper: str = ""
) -> str:
    """Say why this option was chosen.

    `split` is an equal split. The widths of both are those at the end of the experiment. `cheaper` says what
    a smaller floor gives up.
    """
    if why == "no evaluation" or (why == "default" and not r.evaluate):
        return (
            "No floor, because you will not evaluate the log: the policy may choose worse arms as rarely as "
            "it likes. Decide this before you start: a log without a floor says little about those arms."
        )
    meaning = _meaning(r, chosen)
    if why == "default":
        return f"{meaning} {DEFAULT_FLOOR:.0%} is the default of a new bandit."
    lift, found = difference(r, r.lift), share(chosen.found, chosen.logs)
    if why == "resolves":
        no_smaller = "" if cheaper else " No smaller floor that was tried does."
        return (
            f"{meaning} It finds a difference of {lift} in about 80% of experiments or more ({found})."
            f"{no_smaller} {cheaper}"
        ).strip()
    if why == "too expensive":
        return (
            f"{meaning} It finds a difference of {lift} in {found} of experiments. A larger floor finds it "
            f"more often, but loses more {reward_name(r)} than you accept."
        )
    text = f"{_cannot_resolve(r, split)} So this is a compromise. {meaning} {_compromise(r, chosen, split)}"
    return f"{text} {cheaper}".strip()


def price_of_less(r: Requirements, chosen: AdviceOption, less: AdviceOption) -> str:
    """Say what a smaller floor saves and gives up."""
    saved = with_error(chosen.regret - less.regret, math.hypot(chosen.regret_error, less.regret_error))
    name = "clicks" if reward_name(r) == "clicks" else "of the reward"
    text = f"{less.label.capitalize()} would lose about {saved.partition(' ')[0]} {name} less, but "
    if less.valid is False:
        return f"{text}its intervals contain the true difference too rarely."
    return (
        f"{text}find the difference in {share(less.found, less.logs)} of experiments instead of "
        f"{share(chosen.found, chosen.logs)}."
    )


def _meaning(r: Requirements, chosen: AdviceOption) -> str:
    """What the floor does."""
    if chosen.floor == 1.0:
        return f"An equal split chooses each of the {len(r.arms)} arms equally often, like an A/B test."
    return (
        f"floor={chosen.floor:g} divides {chosen.floor:.0%} of the decisions equally among the arms. Each is "
        f"always chosen with a probability of at least {chosen.floor / len(r.arms):.1%}, so the log can tell "
        "how good it is."
    )


def _cannot_resolve(r: Requirements, split: AdviceOption) -> str:
    lift, needed = difference(r, r.lift), difference(r, r.needed_width)
    decisions = r.needed_decisions
    if decisions <= r.horizon or not math.isfinite(split.width):
        rewards = "Almost all rewards are 0" if r.rate < 0.5 else "Almost all rewards are 1"
        if not (r.zero_or_one or r.mostly_nothing):
            rewards = "Very high or low rewards are rare"
        return (
            f"With {r.horizon:,} decisions, the intervals that can be recommended are too wide to find a "
            f"difference of {lift} in 80% of experiments, even with an equal split. {rewards}, so it takes "
            "more decisions until a narrower interval is valid."
        )
    days = f"{decisions / r.traffic:,.0f} days" if decisions >= 2 * r.traffic else "a day or two"
    rounded, visible = float(f"{decisions:.2g}"), difference(r, float(f"{r.visible_lift:.2g}"))
    if visible == lift:
        visible = difference(r, r.visible_lift)
    about = "slightly more than" if visible == lift else "about"
    return (
        f"With {r.horizon:,} decisions, not even an equal split finds a difference of {lift} in 80% of "
        f"experiments: its margin is {difference(r, split.width)}, and it must be at most {needed}. That "
        f"takes about {rounded:,.0f} decisions ({days} of your traffic). What you can find is a difference "
        f"of {about} {visible}."
    )


def _compromise(r: Requirements, chosen: AdviceOption, split: AdviceOption) -> str:
    if chosen.floor == 1.0:
        return "It comes closest: no smaller floor is nearly as precise."
    times = f"{compromise(split.width, r.needed_width):.2g} times"
    return f"It is the smallest floor tried whose margin is at most {times} that of an equal split."
