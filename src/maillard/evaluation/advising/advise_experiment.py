"""`advise`: suggest a policy and a floor for an experiment, and simulate what to expect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from maillard.decisions.timestamps import Duration
from maillard.errors import InvalidValue
from maillard.evaluation.advising.advice_requirements import make_requirements
from maillard.evaluation.advising.advice_result import Advice, AdviceOption
from maillard.evaluation.advising.advice_rules import (
    NOTES,
    alternatives,
    choose_option,
    policy_rule,
)
from maillard.evaluation.advising.floor_reasons import floor_reason, price_of_less


def advise(
    arms: int | Sequence[str] | None = None,
    *,
    reward: str | None = None,
    reward_range: tuple[float, float] | None = None,
    rate: float | None = None,
    lift: float | None = None,
    deviation: float | None = None,
    buyers: float | None = None,
    order: float | None = None,
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
    - `reward`: "clicks" (only successes are reported), "binary" (0 or 1 for every decision), "revenue" (most
      decisions earn nothing, the others an order), "bounded" (in `reward_range`) or "unbounded".
    - `rate`: the mean reward of an ordinary arm, such as a click rate of 0.03. `lift`: the difference that
      is worth finding, in the same unit: 0.01 for 4% instead of 3%. `deviation`: the standard deviation of
      a reward that is not 0 or 1.
    - `buyers` and `order`, for revenue: the fraction of decisions that end in an order, and the value of a
      typical one. The mean and the deviation follow from them; `reward_range` is 0 and the largest order.
    - `traffic`: decisions per day. `horizon`: all decisions of the experiment, or its duration, "14d".
    - `delay`: how long after a decision its reward is known, such as "1h".
    - `contexts`: None, "segments" (a few groups of visitors), "features" (attributes of the visitor) or
      "actions" (the arms have attributes and differ at every decision). `context_size`: the number of
      segments or features.
    - `evaluate`: whether the log will be evaluated, for example to say how much better one arm is.
    - `max_regret`: the most reward that the experiment may lose.

    With `quick`, the simulation is a tenth as long. The same `seed` gives the same numbers, on any number of
    `threads`. `progress(what, fraction)` is called as it proceeds.

    >>> advice = advise(3, rate=0.1, lift=0.1, horizon=2000, delay="10m", quick=True)
    >>> advice.policy, advice.reward.window
    ('kl-ms+:floor=0.5', 600.0)
    """
    from maillard.evaluation.advising.advice_simulation import simulate_options

    if not isinstance(quick, bool):
        raise InvalidValue("quick", quick, "true or false")
    r = make_requirements(
        arms, reward=reward, reward_range=reward_range, rate=rate, lift=lift, deviation=deviation,
        buyers=buyers, order=order, traffic=traffic, horizon=horizon, delay=delay,
        contexts=contexts, context_size=context_size, evaluate=evaluate, max_regret=max_regret,
    )  # fmt: skip
    rule = policy_rule(r)
    found = simulate_options(
        r, rule.spec(r), quick=quick, seed=seed, threads=threads,
        progress=progress or (lambda _what, _fraction: None),
    )  # fmt: skip
    if r.linear:
        chosen, why = found.options[0], "default"
        shown: tuple[AdviceOption, ...] = found.options
    else:
        needed = r.needed_width * math.sqrt(r.part_horizon / found.horizon)  # at the simulated horizon
        chosen, why = choose_option(found.options, needed, r.max_regret, evaluate=r.evaluate)
        picked = (chosen, *alternatives(found.options, chosen))
        shown = tuple(sorted(picked, key=lambda each: each.floor))
    floors = [each for each in found.options if 0 < each.floor < chosen.floor]
    shrink = math.sqrt(found.horizon / r.part_horizon)  # of intervals, until the end of the experiment
    at_end, split = (replace(each, width=each.width * shrink) for each in (chosen, found.options[-1]))
    cheaper = price_of_less(r, chosen, floors[-1]) if floors and shrink == 1.0 else ""
    warnings = [note.text(r) for note in NOTES if note.applies(r)]
    if r.max_regret is not None and chosen.regret > r.max_regret:
        warnings.insert(
            0,
            f"The suggestion loses more than you accept ({r.max_regret:g}), and so does every other floor.",
        )
    return Advice(
        requirements=r,
        policy=chosen.policy,
        floor=chosen.floor,
        reasons=(*[rule.reason] * (chosen.policy != "uniform"), floor_reason(r, at_end, split, why, cheaper)),
        evidence=rule.evidence,
        warnings=tuple(warnings),
        options=shown,
        tried=found.options,
        resolves=None if r.linear else chosen.resolves,
        needed_decisions=None if r.linear else r.needed_decisions,
        problem=found.problem,
        horizon=found.horizon,
        runs=found.runs,
        trials=found.trials,
        seed=seed,
        quick=quick,
    )
