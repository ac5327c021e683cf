"""Advice as a program, and as commands."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from maillard.evaluation.advising.advice_formatting import duration
from maillard.evaluation.advising.advice_requirements import (
    ACTIONS,
    BOUNDED,
    CLICKS,
    SEGMENTS,
    Requirements,
)

if TYPE_CHECKING:
    from maillard.evaluation.advising.advice_result import Advice


def answers(r: Requirements) -> dict[str, str]:
    """The answers as text, by the name of their option."""
    found = {
        "arms": str(len(r.arms)) if r.arms[0] in ("A", "arm-1") else ",".join(r.arms),
        "reward": r.reward,
        "reward_range": f"{r.low:g}..{r.high:g}",
        "rate": f"{r.rate:g}",
        "lift": f"{r.lift:g}",
        "deviation": f"{r.deviation:g}",
        "traffic": f"{r.traffic:g}",
        "horizon": str(r.horizon),
        "delay": duration(r.window),
        "contexts": r.contexts or "none",
        "context_size": str(r.context_size),
        "evaluate": "yes" if r.evaluate else "no",
    }
    if r.reward != BOUNDED:
        del found["reward_range"]
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
    values |= {name: _exact(getattr(r, name)) for name in ("rate", "lift", "deviation") if name in values}
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
    """Return a program that makes a decision."""
    arms = json.dumps(r.arms, ensure_ascii=False) if len(r.arms) <= 26 else _many_arms(r)
    names, features, choose = ["Bandit", "Reward"], "", 'unit="visitor-1"'
    settings = [f"reward={_reward_code(r)}", 'log="decisions.db"']
    if r.contexts == SEGMENTS:
        settings.insert(0, 'segments=["device"]')
        choose += ', context={"device": "phone"}'
    elif r.linear:
        names.insert(1, "Features")
        settings.insert(0, "features=features")
        attributes = '"device": ["phone", "desktop"], "age": (18, 90)'
        choose += ', context={"device": "phone", "age": 40}'
        if r.contexts == ACTIONS:
            arms, attributes = "[]", '"device": ["phone", "desktop"], "price": (0, 100)'
            settings.insert(1, 'model="shared"')
            choose = (
                'context={"device": "phone"}, actions={"article-1": {"price": 5}, "article-2": {"price": 9}}'
            )
        features = f"features = Features({{{attributes}}})  # your attributes\n"
    lines = "".join(f"    {line},\n" for line in (arms, f'"{policy}"', *settings))
    imports = f"from maillard import {', '.join(names)}\n"
    outcome = "1)  # if the visitor clicks; otherwise nothing"
    if r.reward != CLICKS or not r.window:
        outcome = "1)  # or 0" if r.zero_or_one else f"{_reward_value(r)})  # the reward of this decision"
        if r.mostly_nothing:
            outcome += ", if there is one" if r.window else ", also if it is 0"
    return (
        f"{imports}{features}bandit = Bandit(\n{lines})\n"
        f"decision = bandit.choose({choose})  # show decision.arm\n"
        f"bandit.reward(decision, {outcome}"
    )


def comparison(r: Requirements) -> str:
    """The command that compares two arms."""
    first, second = (shlex.quote(f"arm:{name}") for name in r.arms[:2])
    return f"maillard compare decisions.db {first} {second} --finished" + " --by device" * (
        r.contexts == SEGMENTS
    )


def _many_arms(r: Requirements) -> str:
    generated = r.arms[0] == "arm-1"
    return (
        f'[f"arm-{{i}}" for i in range(1, {len(r.arms) + 1})]'
        if generated
        else json.dumps(r.arms, ensure_ascii=False)
    )


def _reward_value(r: Requirements) -> str:
    return f"{r.rate:g} / {r.divisor:g}" if r.divisor != 1.0 else f"{r.rate:g}"


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
