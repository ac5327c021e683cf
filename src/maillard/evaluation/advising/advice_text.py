"""Advice as text, as a program and as a command."""

from __future__ import annotations

import math
import shlex
import textwrap
from typing import TYPE_CHECKING

from maillard.evaluation.advising.advice_requirements import (
    ACTIONS,
    BOUNDED,
    CLICKS,
    FEATURES,
    SEGMENTS,
    Requirements,
)

if TYPE_CHECKING:
    from maillard.evaluation.advising.advice_result import Advice, AdviceOption

_WIDTH = 100
_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def describe(advice: Advice) -> str:
    """Return the advice as text for a terminal."""
    r = advice.requirements
    parts = [
        f"Suggestion: {advice.policy}\n\n" + _bullets([f"For {situation(r)}.", *_assumptions(r)], ""),
        "Why\n" + _bullets(advice.reasons),
        "What to expect\n" + _table(advice) + "\n" + _bullets(_legend(advice), ""),
        "Keep in mind\n" + _bullets(advice.warnings),
        "In your program\n" + textwrap.indent(advice.code, "  "),
        f"To repeat\n  {advice.command}",
    ]
    return "\n\n".join(part.rstrip() for part in parts)


def summarise(advice: Advice) -> str:
    """Return the suggestion and the table."""
    return f"Suggestion: {advice.policy}\n\n{_table(advice)}\n\nprint() shows the reasons and a program."


def situation(r: Requirements) -> str:
    """Describe the experiment in a sentence."""
    arms = f"{len(r.arms)} arms"
    rewards = {
        CLICKS: f"about {amount(r, r.rate)} of decisions clicked",
        BOUNDED: f"rewards from {r.low:g} to {r.high:g}, {r.rate:g} on average",
    }.get(r.reward, f"rewards of {amount(r, r.rate)} on average")
    found = [arms, rewards]
    found.append(f"{r.horizon:,} decisions at {r.traffic:,g} per day")
    if r.window:
        known = "clicks count within" if r.reward == CLICKS else "rewards known after"
        found.append(f"{known} {duration(r.window)} (the time of {r.delay:,} decisions)")
    if r.contexts == SEGMENTS:
        found.append(f"{r.context_size} segments")
    elif r.linear:
        of = "visitors" if r.contexts == FEATURES else "arms that change"
        found.append(f"{r.context_size} features of {of}")
    found.append("a log that will " + "not " * (not r.evaluate) + "be evaluated")
    return ", ".join(found) + f". A difference of {difference(r, r.lift)} is worth finding"


def _assumptions(r: Requirements) -> list[str]:
    """State the answers that were not given."""
    values = answers(r)
    named = [f"{name} {values[name]}" for name in r.assumed if name in values]
    return [f"Assumed, because not given: {', '.join(named)}."] if named else []


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
    values = answers(advice.requirements)
    evaluated = values.pop("evaluate")
    words = [f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in values.items()]
    words += ["--evaluate" if evaluated == "yes" else "--no-evaluate"]
    words += [f"--seed {advice.seed}"] * bool(advice.seed) + ["--quick"] * advice.quick
    return " ".join(["maillard advise", *words, "--yes"])


def program(r: Requirements, policy: str) -> str:
    """Return a program that makes a decision."""
    arms = repr(list(r.arms)).replace("'", '"') if len(r.arms) <= 26 else _many_arms(r)
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
    return (
        f"{imports}{features}bandit = Bandit(\n{lines})\n"
        f"decision = bandit.choose({choose})  # show decision.arm\n"
        f"bandit.reward(decision, {outcome}"
    )


def _many_arms(r: Requirements) -> str:
    generated = r.arms[0] == "arm-1"
    return f'[f"arm-{{i}}" for i in range(1, {len(r.arms) + 1})]' if generated else repr(list(r.arms))


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
    return f"Reward({', '.join(words)})"


def duration(seconds: float) -> str:
    """A duration as text, such as 90s or 2h."""
    for unit, size in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def reward_name(r: Requirements) -> str:
    """What is lost: clicks or reward."""
    return "clicks" if r.reward == CLICKS else "reward"


def amount(r: Requirements, value: float) -> str:
    """A mean reward as text: a percentage if rewards are 0 or 1."""
    return f"{100 * value:.3g}%" if r.zero_or_one else f"{value:.3g}"


def difference(r: Requirements, value: float) -> str:
    """A difference between mean rewards as text: in points if rewards are 0 or 1."""
    if not r.zero_or_one:
        return f"{value:.3g}"
    return "1 point" if f"{100 * value:.3g}" == "1" else f"{100 * value:.3g} points"


def _bullets(lines: list[str] | tuple[str, ...], mark: str = "- ") -> str:
    return "\n".join(
        textwrap.fill(line, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark)) for line in lines
    )


def _table(advice: Advice) -> str:
    """The options, one per line."""
    r = advice.requirements
    unit = " (points)" if r.zero_or_one else ""
    head = ["", "policy", f"lost {reward_name(r)}", f"margin{unit}", "finds it", f"margin of one arm{unit}"]
    rows = [head, *(_cells(advice, each) for each in advice.options)]
    if not advice.runs:
        rows = [row[:3] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _cells(advice: Advice, option: AdviceOption) -> list[str]:
    loss = "" if math.isnan(option.loss) else f" ({option.loss:.1%})"
    scale = 100 if advice.requirements.zero_or_one else 1

    def margin(width: float, error: float) -> str:
        return with_error(scale * width, scale * error) if math.isfinite(width) else "no interval"

    return [
        "*" if option.policy == advice.policy else "",
        option.policy + _remark(advice, option),
        with_error(option.regret, option.regret_error) + loss,
        margin(option.width, option.width_error) if option.valid or not advice.runs else "not valid",
        _share(option.found, advice.runs) if advice.runs else "",
        margin(option.mean_width, option.mean_width_error),
    ]


def _share(fraction: float, runs: int) -> str:
    """A fraction of the runs with its standard error, which is not 0 even if all runs agree."""
    near = (fraction * runs + 1) / (runs + 2)
    return f"{fraction:.0%} ± {math.sqrt(near * (1 - near) / runs):.0%}"


def _remark(advice: Advice, option: AdviceOption) -> str:
    """What a reader should know about the policy."""
    if option.floor == 1.0:
        return " (equal split)"
    return " (ignores contexts)" * (advice.requirements.linear and not option.policy.startswith("lin-"))


def with_error(value: float, error: float) -> str:
    """A number with its standard error, both rounded to the first digit of the error.

    >>> with_error(0.94271, 0.0113), with_error(1234.5, 31), with_error(2.5, 0)
    ('0.94 ± 0.01', '1,230 ± 30', '2.5 ± 0')
    """
    if not error > 0:
        return f"{value:,.3g} ± 0"
    digits = -math.floor(math.log10(error))
    return f"{round(value, digits):,.{max(0, digits)}f} ± {round(error, digits):,.{max(0, digits)}f}"


def _legend(advice: Advice) -> list[str]:
    """Explain the columns."""
    r, name = advice.requirements, reward_name(advice.requirements)
    fewer = "how many fewer" if name == "clicks" else "how much less"
    every = "in all segments" if r.contexts == SEGMENTS else "in all"
    guess = f"if one arm is at {amount(r, r.rate + r.lift)} and the others at {amount(r, r.rate)}"
    if r.linear:
        of = "visitors" if r.contexts == FEATURES else "arms"
        better = f"{difference(r, r.lift)} better " + (
            "for visitors with its feature" if r.contexts == FEATURES else "if it has the first feature"
        )
        guess = f"if half of the {of} have each feature, and an arm is {better}"
    lines = [
        f"lost {name}: {fewer} than from always choosing the best arm, {every} (and in percent), {guess}."
    ]
    if advice.runs:
        lines.append(
            "margin: half the width of the interval for the difference between two arms"
            + (f", with all {r.pairs:,} comparisons valid together at 95%" if r.pairs > 1 else ", at 95%")
            + f". finds it: experiments in which it shows that an arm that is {difference(r, r.lift)} better "
            "is better. margin of one arm: the same for the mean of an arm that is not the best."
        )
    if advice.horizon < r.part_horizon:
        lines.append(
            f"Only the first {advice.horizon:,} of {r.part_horizon:,} decisions"
            + " of a segment" * (r.contexts == SEGMENTS)
            + " were simulated. Margins shrink with the square root of the number of decisions: by a factor "
            f"of {math.sqrt(r.part_horizon / advice.horizon):.2g} until the end."
        )
    logs = f" and {advice.runs} evaluated logs" if advice.runs else ""
    lines.append(f"From {advice.trials} simulated experiments{logs} per policy; ± is the standard error.")
    return lines
