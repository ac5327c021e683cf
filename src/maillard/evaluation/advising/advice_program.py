"""Advice as a program, and as commands."""

from __future__ import annotations

import itertools
import json
import shlex
from typing import TYPE_CHECKING

from maillard.evaluation.advising.advice_formatting import duration
from maillard.evaluation.advising.advice_requirements import ACTIONS, SEGMENTS, Requirements
from maillard.evaluation.advising.reward_answers import CLICKS

if TYPE_CHECKING:
    from maillard.evaluation.advising.advice_result import Advice


_SHOWN_ARMS, _SHOWN_PAIRS = 4, 6  # comparisons of four arms


def answers(r: Requirements) -> dict[str, str]:
    """The answers as text, by the name of their option."""
    found = {
        "arms": str(len(r.arms)) if r.arms[0] in ("A", "arm-1") else ",".join(r.arms),
        "reward": r.reward,
        "reward_range": f"{r.low:g}..{r.high:g}",
        "rate": f"{r.rate:g}",
        "lift": f"{r.lift:g}",
        "deviation": f"{r.deviation:g}",
        "buyers": f"{r.buyers:g}" if r.buyers is not None else "",
        "order": f"{r.order:g}" if r.order is not None else "",
        "traffic": f"{r.traffic:g}",
        "horizon": str(r.horizon),
        "delay": duration(r.window),
        "contexts": r.contexts or "none",
        "context_size": str(r.context_size),
        "evaluate": "yes" if r.evaluate else "no",
    }
    if not r.limited:
        del found["reward_range"]
    if r.order is None:
        del found["buyers"], found["order"]
    else:
        del found["rate"]
        if r.deviation_is_derived:
            del found["deviation"]
    if r.zero_or_one:
        del found["deviation"]
    if r.contexts is None:
        del found["contexts"], found["context_size"]
    if r.max_regret is not None:
        found["max_regret"] = f"{r.max_regret:g}"
    return found


def command(advice: Advice) -> str:
    """Return the command that gives the same advice."""
    r = advice.requirements
    values = answers(r)
    exact = ("rate", "lift", "deviation", "buyers", "order")
    values |= {name: _exact(getattr(r, name)) for name in exact if name in values}
    days = r.horizon / r.traffic
    if days >= 1 and days.is_integer() and round(r.traffic * days) == r.horizon:
        values["horizon"] = f"{days:.0f}d"
    evaluated = values.pop("evaluate")
    words = [f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in values.items()]
    words += ["--evaluate" if evaluated == "yes" else "--no-evaluate"]
    words += [f"--seed {advice.seed}"] * bool(advice.seed) + ["--quick"] * advice.quick
    return " ".join(["maillard advise", *words, "--yes"])


def _exact(value: float) -> str:
    """A number as text, with all digits."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def program(r: Requirements, policy: str) -> str:
    """Return a program with a function that makes a decision, and one that reports its reward."""
    arms = json.dumps(r.arms, ensure_ascii=False) if len(r.arms) <= 26 else _many_arms(r)
    names, features, parameters, choose = ["Bandit", "Reward"], "", "visitor", "unit=visitor"
    settings = [f"reward={_reward_code(r)}", 'log="decisions.db"']
    if r.contexts == SEGMENTS:
        settings.insert(0, 'segments=["device"]')
        parameters += ", device"
        choose += ', context={"device": device}'
    elif r.linear:
        names.insert(1, "Features")
        settings.insert(0, "features=features")
        attributes = '"device": ["phone", "desktop"], "age": (18, 90)'
        parameters += ", device, age"
        choose += ', context={"device": device, "age": age}'
        if r.contexts == ACTIONS:
            arms, attributes = "[]", '"device": ["phone", "desktop"], "price": (0, 100)'
            settings.insert(1, 'model="shared"')
            parameters = "device, articles"
            choose = 'context={"device": device}, actions=articles'
        features = f"features = Features({{{attributes}}})  # your attributes\n"
    lines = "".join(f"    {line},\n" for line in (arms, f'"{policy}"', *settings))
    about = '  # articles: {"article-1": {"price": 5}, ...}' if r.contexts == ACTIONS else ""
    return (
        f"from maillard import {', '.join(names)}\n{features}bandit = Bandit(\n{lines})\n\n"
        f"def decide({parameters}):{about}\n"
        f"    decision = bandit.choose({choose})\n"
        "    return decision.arm, decision.id  # show the arm, keep the id\n\n"
        f"{_report_code(r)}"
    )


def _report_code(r: Requirements) -> str:
    """The function that reports a reward."""
    if r.reward == CLICKS and r.window:
        when = f"  # if the visitor clicks within {duration(r.window)}; otherwise nothing"
        return f"def report(decision_id):{when}\n    bandit.reward(decision_id, 1)"
    if r.zero_or_one:
        return "def report(decision_id, success):\n    bandit.reward(decision_id, 1 if success else 0)"
    name, rule = "order_value" if r.mostly_nothing else "value", f"  # {r.low:g} to {r.high:g}"
    when = ""
    if r.mostly_nothing:
        when = "  # if there is an order" if r.window else "  # after every decision, also if it is 0"
    divided = f"{name} / {r.divisor:g}" if r.divisor != 1.0 else name
    limits = rule if r.limited else ""
    return f"def report(decision_id, {name}):{when}\n    bandit.reward(decision_id, {divided}){limits}"


def ending(r: Requirements) -> list[tuple[str, list[str]]]:
    """What to do at the end of the experiment: sentences, each with its commands."""
    wait = f", and wait {duration(r.window)} for the last rewards" if r.window else ""
    names = [shlex.quote(f"arm:{name}") for name in r.arms]
    pairs = list(itertools.combinations(names, 2))
    end = "--finished" + " --by device" * (r.contexts == SEGMENTS)
    scale = f" in fractions of {r.divisor:g}: multiply it by {r.divisor:g}" if r.divisor != 1.0 else ""
    per = "as a fraction" if r.zero_or_one else "per decision"
    alone = (
        f"Stop making decisions{wait}. What would each arm have earned, if it had been chosen in every "
        f"decision? This estimates the mean reward, {per}{scale}."
    )
    if len(names) > _SHOWN_ARMS:
        names, alone = names[:1], f"{alone} Do the same for the other arms."
    better = (
        "Which arm is better? The first arm of a comparison is better if its interval lies above 0, the "
        "second if it lies below 0."
    )
    if len(pairs) > _SHOWN_PAIRS:
        better += f" Do the same for the other pairs of arms: there are {len(pairs)}."
        pairs = pairs[:1]
    targets = " ".join(f"--target {name}" for name in names)
    return [
        (alone, [f"maillard evaluate decisions.db {targets} {end}"]),
        (better, [f"maillard compare decisions.db {first} {second} {end}" for first, second in pairs]),
    ]


def _many_arms(r: Requirements) -> str:
    generated = r.arms[0] == "arm-1"
    return (
        f'[f"arm-{{i}}" for i in range(1, {len(r.arms) + 1})]'
        if generated
        else json.dumps(r.arms, ensure_ascii=False)
    )


def _reward_code(r: Requirements) -> str:
    window = f'window="{duration(r.window)}"' if r.window else ""
    if r.reward == CLICKS and window:
        return f"Reward.clicks({window})"
    rule = r.reward_rule
    words = (
        [f"low={rule.low:g}, high={rule.high:g}"] if rule.low is not None and rule.high is not None else []
    )
    words += ["binary=True"] * rule.binary + [window] * bool(window)
    words += [f"default={rule.default:g}"] if rule.default is not None else []
    return f"Reward({', '.join(words)})"
