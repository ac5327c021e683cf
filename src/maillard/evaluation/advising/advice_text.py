"""Advice as text for people."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from maillard import html_fragments as html
from maillard.evaluation.advising.advice_formatting import (
    amount,
    difference,
    duration,
    percent,
    revenue_formula,
    reward_name,
    share,
    with_error,
)
from maillard.evaluation.advising.advice_program import answers, ending
from maillard.evaluation.advising.advice_requirements import ACTIONS, FEATURES, SEGMENTS, Requirements
from maillard.evaluation.advising.reward_answers import BOUNDED, CLICKS, REVENUE
from maillard.evaluation.advising.sequential_test import is_clear

if TYPE_CHECKING:
    from maillard.evaluation.advising.advice_result import Advice, AdviceOption

_WIDTH = 80


def describe(advice: Advice) -> str:
    """Return the advice as text for a terminal."""
    r = advice.requirements
    parts = [
        f"Suggestion: {advice.policy}\n\n" + _bullets([_verdict(advice)], ""),
        _bullets([f"For {situation(r)}.", *_assumptions(r)], ""),
        "Why\n" + _bullets(advice.reasons),
        "What to expect\n" + _table(advice) + "\n" + _bullets(_legend(advice), ""),
        "Keep in mind\n" + _bullets(advice.warnings),
        "In your program\n" + textwrap.indent(advice.code, "  "),
        *([_ending(r)] if r.evaluate and r.contexts != ACTIONS else []),
        f"To repeat\n  {advice.command}",
    ]
    return "\n\n".join(part.rstrip() for part in parts)


def _ending(r: Requirements) -> str:
    parts = (f"{_bullets([text], '')}\n{_commands(lines)}" for text, lines in ending(r))
    return "When it has ended\n" + "\n".join(parts)


def _commands(lines: list[str]) -> str:
    return "\n".join(f"  {each}" for each in lines)


def summarise(advice: Advice) -> str:
    """Return the suggestion and the table."""
    return f"Suggestion: {advice.policy}\n\n{_table(advice)}\n\nprint() shows the reasons and a program."


def _verdict(advice: Advice) -> str:
    """Say in a sentence what to expect."""
    r, option, name = advice.requirements, advice.suggestion, reward_name(advice.requirements)
    loss = f" ({percent(option.loss)})" if math.isfinite(option.loss) else ""
    lost = with_error(option.regret, option.regret_error).partition(" ")[0]
    cost = f"about {lost} clicks" if name == "clicks" else f"a reward of about {lost}{_unit(r)}"
    text = f"It costs {cost}{loss}, compared with knowing the best arm from the start"
    if advice.runs and r.evaluate and advice.horizon == r.part_horizon:
        found = share(option.found, option.logs)
        text += f", and finds a difference of {difference(r, r.lift)} in {found} of simulated experiments"
    return text + "."


def _unit(r: Requirements) -> str:
    """What a reward is measured in."""
    return "" if r.zero_or_one else " in all, in the unit of your rewards"


def situation(r: Requirements) -> str:
    """Describe the experiment in a sentence."""
    arms = f"{len(r.arms)} arms"
    rewards = {
        CLICKS: f"about {amount(r, r.rate)} of decisions clicked",
        BOUNDED: f"rewards from {r.low:g} to {r.high:g}, {r.rate:g} on average",
        REVENUE: f"revenue of {r.rate:.3g} per decision on average, orders up to {r.high:g}",
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
    text = ", ".join(found) + f". A difference of {difference(r, r.lift)} is worth finding"
    if r.evaluate and not r.linear and r.visible_lift < r.lift:
        visible = difference(r, float(f"{r.visible_lift:.2g}"))
        text += f"; the smallest that your traffic can find is about {visible}"
    return text


def _assumptions(r: Requirements) -> list[str]:
    """State what follows from the answers, and the answers that were not given."""
    found = [revenue_formula(r)] if r.deviation_is_derived else []
    if r.looks_like_orders:
        found.append(
            f"Assumed: every decision earns something, {r.rate:g} on average. If {r.rate:g} is an average "
            "order, and most decisions earn nothing, use --reward revenue --reward-range "
            f"0..{r.high:g} --order {r.rate:g}, and --buyers with the percentage of visitors who buy."
        )
    values = answers(r)
    named = [f"{name} {values[name]}" for name in r.assumed if name in values]
    return [*found, f"Assumed, because not given: {', '.join(named)}."] if named else found


def _bullets(lines: list[str] | tuple[str, ...], mark: str = "- ") -> str:
    return "\n".join(
        textwrap.fill(line, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark)) for line in lines
    )


def fragment(advice: Advice) -> str:
    """Return the advice as HTML for a notebook."""
    r = advice.requirements
    head, *rows = _rows(advice)
    place = next(place for place, each in enumerate(advice.options) if each.policy == advice.policy)
    names = [row[0].lstrip("* ") for row in rows]
    return html.fragment(
        advice.policy,
        html.items([_verdict(advice), f"For {situation(r)}.", *_assumptions(r)]),
        html.table(
            [each.strip() for each in head],
            [[name, *row[1:]] for name, row in zip(names, rows, strict=True)],
            marked=[place],
        ),
        html.details("What the columns mean", html.items(_legend(advice))),
        html.items(advice.reasons, title="Why"),
        html.items(advice.warnings, title="Keep in mind"),
        html.details("In your program", f"<pre>{html.html(advice.code)}</pre>"),
        facts="the suggestion of advise",
    )


def _rows(advice: Advice) -> list[list[str]]:
    """The names of the columns, and the options; the suggestion begins with a star."""
    head = ["  policy", f"lost {reward_name(advice.requirements)}", "margin", "finds it", "one arm"]
    rows = [head, *(_cells(advice, each) for each in advice.options)]
    return rows if advice.runs else [row[:2] for row in rows]


def _table(advice: Advice) -> str:
    """The options, one per line."""
    rows = _rows(advice)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _cells(advice: Advice, option: AdviceOption) -> list[str]:
    loss = "" if math.isnan(option.loss) else f" ({percent(option.loss)})"
    scale = 100 if advice.requirements.zero_or_one else 1
    wrong = advice.runs and option.valid is False and math.isfinite(option.width)

    def margin(width: float, error: float) -> str:
        return with_error(scale * width, scale * error) if math.isfinite(width) else "no interval"

    return [
        ("* " if option.policy == advice.policy else "  ") + option.policy + _remark(advice, option),
        with_error(option.regret, option.regret_error) + loss,
        "not valid" if wrong else margin(option.width, option.width_error),
        share(option.found, option.logs) if advice.runs else "",
        margin(option.mean_width, option.mean_width_error),
    ]


def _remark(advice: Advice, option: AdviceOption) -> str:
    """What a reader should know about the policy."""
    if option.floor == 1.0:
        return " (equal split)"
    return " (ignores contexts)" * (advice.requirements.linear and not option.policy.startswith("lin-"))


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
        + " If you count sales or sign-ups, read them for clicks." * (name == "clicks")
    ]
    if advice.runs:
        points = " (in points)" * r.zero_or_one
        pairs = math.comb(len(r.arms), 2)
        pairs_of = "2 arms" if pairs == 1 else f"{pairs:,} pairs of arms"
        groups = f" in each of {r.parts} segments" * (r.parts > 1)
        together = f" for all {r.pairs:,} comparisons together ({pairs_of}{groups})" * (r.pairs > 1)
        lines += [
            f"margin{points}: how precise the comparison of two arms is. The difference "
            f"is estimated plus or minus the margin, at 95% confidence{together}.",
            f"finds it: in how many experiments the comparison{' within one segment' * (r.parts > 1)} shows "
            f"that an arm that is {difference(r, r.lift)} better is better.",
            "one arm: how precise the mean reward of one arm is, if it is not the best.",
            *_missing_intervals(advice),
        ]
    if advice.horizon < r.part_horizon:
        lines.append(
            f"Only the first {advice.horizon:,} of {r.part_horizon:,} decisions"
            + " of a segment" * (r.contexts == SEGMENTS)
            + " were simulated. Margins shrink with the square root of the number of decisions: by a factor "
            f"of {math.sqrt(r.part_horizon / advice.horizon):.2g} until the end."
        )
    logs = ""
    if advice.runs:
        counts = sorted({each.logs for each in advice.options})
        number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        logs = f" and {number} evaluated logs"
    rough = " These numbers are rough: repeat without --quick before you decide." * advice.quick
    lines.append(
        f"From {advice.trials} simulated experiments{logs} per policy; ± is the standard error."
        f"{rough or _unclear(advice)}"
    )
    return lines


def _unclear(advice: Advice) -> str:
    """Say what the logs of the suggestion leave open."""
    option = advice.suggestion
    if not option.logs or not advice.requirements.evaluate:
        return ""
    doubts = ["its intervals are valid"] * (option.valid is None)
    doubts += ["it finds the difference in 80% of experiments"] * (
        option.resolves and not is_clear(option.power_evidence)
    )
    return (
        f" Not clear from the {option.logs} logs of the suggestion: whether {' and whether '.join(doubts)}."
        * bool(doubts)
    )


def _missing_intervals(advice: Advice) -> list[str]:
    """Explain margins that the table does not have, and floors whose margin cannot be trusted."""
    shown, found = advice.options, []
    if any(math.isinf(each.width) or math.isinf(each.mean_width) for each in shown):
        found.append(
            "no interval: many of the logs have too few rewards of this arm for any interval that can be "
            "recommended."
        )
    wrong = [each.label for each in advice.tried if each.valid is False and math.isfinite(each.width)]
    if wrong:
        found.append(
            f"not valid: the intervals contained the true difference too rarely ({', '.join(wrong)})."
        )
    return found
