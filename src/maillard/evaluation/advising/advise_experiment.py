"""`advise`: suggest a policy and a floor for an experiment, and simulate what to expect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from maillard.decisions.timestamps import Duration
from maillard.errors import InvalidValue
from maillard.evaluation.advising.advice_requirements import Requirements, make_requirements
from maillard.evaluation.advising.advice_result import Advice, AdviceOption
from maillard.evaluation.advising.advice_rules import (
    DEFAULT_FLOOR,
    NOTES,
    alternatives,
    choose_option,
    policy_rule,
)
from maillard.evaluation.advising.advice_text import difference, reward_name


def advise(
    arms: int | Sequence[str] | None = None,
    *,
    reward: str | None = None,
    reward_range: tuple[float, float] | None = None,
    rate: float | None = None,
    lift: float | None = None,
    deviation: float | None = None,
    traffic: float | None = None,
    horizon: int | str | None = None,
    delay: Duration | None = None,
    contexts: str | None = None,
    context_size: int | None = None,
    evaluate: bool | None = None,
    max_regret: float | None = None,
    quick: bool = False,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Advice:
    """Suggest a policy and a floor, with reasons, and simulate what they and two alternatives cost.

    Every answer has a default, and the advice states the defaults that it used.

    - `arms`: their number or their names.
    - `reward`: "clicks" (only successes are reported), "binary" (0 or 1 for every decision), "bounded" (in
      `reward_range`) or "unbounded".
    - `rate`: the mean reward of an ordinary arm, such as a click rate of 0.03. `lift`: the difference that
      is worth finding, in the same unit: 0.01 for 4% instead of 3%. `deviation`: the standard deviation of
      a reward that is not 0 or 1.
    - `traffic`: decisions per day. `horizon`: all decisions of the experiment, or its duration, "14d".
    - `delay`: how long after a decision its reward is known, such as "1h".
    - `contexts`: None, "segments" (a few groups of visitors), "features" (attributes of the visitor) or
      "actions" (the arms have attributes and differ at every decision). `context_size`: the number of
      segments or features.
    - `evaluate`: whether the log will be evaluated, for example to say how much better one arm is.
    - `max_regret`: the most reward that the experiment may lose.

    With `quick`, the simulation is a tenth as long. `progress(what, fraction)` is called as it proceeds.

    >>> advice = advise(3, rate=0.1, lift=0.1, horizon=2000, delay="10m", quick=True)
    >>> advice.policy, advice.reward.window
    ('kl-ms+:floor=0.5', 600.0)
    """
    from maillard.evaluation.advising.advice_simulation import simulate_options

    if not isinstance(quick, bool):
        raise InvalidValue("quick", quick, "true or false")
    r = make_requirements(
        arms, reward=reward, reward_range=reward_range, rate=rate, lift=lift, deviation=deviation,
        traffic=traffic, horizon=horizon, delay=delay, contexts=contexts, context_size=context_size,
        evaluate=evaluate, max_regret=max_regret,
    )  # fmt: skip
    rule = policy_rule(r)
    found = simulate_options(
        r, rule.policy(r), quick=quick, seed=seed, threads=threads,
        progress=progress or (lambda _what, _fraction: None),
    )  # fmt: skip
    if r.linear:
        chosen, why = found.options[0], "default"
        shown: tuple[AdviceOption, ...] = found.options
    else:
        needed = r.needed_width * math.sqrt(r.part_horizon / found.horizon)
        chosen, why = choose_option(found.options, needed, r.max_regret, evaluate=r.evaluate)
        picked = (chosen, *alternatives(found.options, chosen))
        shown = tuple(sorted(picked, key=lambda each: each.floor))
    # What the intervals of each option would be at the end of the experiment.
    shrink = math.sqrt(found.horizon / r.part_horizon)
    split = found.options[-1]
    decisions = None if r.linear else math.ceil(r.horizon * (split.width * shrink / r.needed_width) ** 2)
    warnings = [note.text(r) for note in NOTES if note.applies(r)]
    if r.max_regret is not None and chosen.regret > r.max_regret:
        warnings.insert(
            0,
            f"The suggestion costs more than the most that you accept, {r.max_regret:g}; so would every other "
            "floor that was tried.",
        )
    return Advice(
        requirements=r,
        policy=chosen.policy,
        floor=chosen.floor,
        reasons=(rule.reason, _floor_reason(r, chosen, why, split.width * shrink, shrink, decisions)),
        evidence=rule.evidence,
        warnings=tuple(warnings),
        options=shown,
        tried=found.options,
        resolves=None if r.linear else chosen.valid and chosen.width * shrink <= r.needed_width,
        needed_decisions=decisions,
        problem=found.problem,
        horizon=found.horizon,
        runs=found.runs,
        trials=found.trials,
        seed=seed,
    )


def _floor_reason(
    r: Requirements, chosen: AdviceOption, why: str, split: float, shrink: float, decisions: int | None
) -> str:
    """Say why this floor was chosen; `split` is the width of an equal split at the end."""
    lift, needed = difference(r, r.lift), difference(r, r.needed_width)
    if why == "no evaluation" or (why == "default" and not r.evaluate):
        return (
            "No floor, because you will not evaluate the log: the policy may choose worse arms as rarely as it "
            "likes. Decide this before you start: a log without a floor says little about those arms."
        )
    if chosen.floor == 1.0:
        what = f"An equal split chooses every arm with probability {1 / len(r.arms):.3g}, like an A/B test."
    else:
        what = (
            f"floor={chosen.floor:g} divides {chosen.floor:.0%} of the decisions equally among the arms, so "
            f"that each always has a probability of at least {chosen.floor / len(r.arms):.2g}, and the log "
            "can evaluate each."
        )
    if why == "default":
        return f"{what} {DEFAULT_FLOOR:.0%} is the default of a new bandit."
    margin = difference(r, chosen.width * shrink)
    if why == "resolves":
        which = "Nothing less" if chosen.floor == 1.0 else "No smaller floor that was tried"
        return (
            f"{what} {which} finds a difference of {lift} in about 80% of experiments: that takes a margin of "
            f"at most {needed}, and it has {margin}."
        )
    if why == "too expensive":
        return (
            f"{what} It finds a difference of {lift} less often than in 80% of experiments (its margin is "
            f"{margin}, and {needed} would do), but a larger floor loses more {reward_name(r)} than you accept."
        )
    assert decisions is not None
    return (
        f"With {r.horizon:,} decisions, not even an equal split finds a difference of {lift} in 80% of "
        f"experiments: its margin is {difference(r, split)}, and at most {needed} would do. That takes about "
        f"{_rounded(decisions):,} decisions ({decisions / r.traffic:,.0f} days), or a difference of "
        f"{difference(r, r.lift * split / r.needed_width)}. So this is a compromise: {what[0].lower()}{what[1:]} "
        "It is the smallest floor tried whose margin is at most 1.5 times that of an equal split."
    )


def _rounded(count: int) -> int:
    """A number with two significant digits."""
    return int(float(f"{count:.2g}"))
