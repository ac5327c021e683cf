"""The picture and the table of the guide "Which policy?"."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from maillard import figures
from maillard.evaluation.advising.advice_rules import POLICY_RULES
from maillard.figures.style import LARGE, RC

_PAGE = "how-to/choose-policy.md"
_LINE, _GAP, _TOP = 25.0, 24.0, 10.0  # points
_QUESTION, _REPLY, _ANSWER, _WIDE = 138.0, 174.0, 382.0, 590.0  # left ends; the first is the width of a box


class Question(NamedTuple):
    """A question, and for each reply what to write."""

    title: str
    text: str
    replies: tuple[tuple[str, str], ...]


FLOW = (
    Question(
        "Visitors",
        "Does the best arm\ndepend on the visitor?",
        (
            ("no, the same for everyone", "go to 2"),
            ("on a group, such as the device", 'segments=["device"], go to 2'),
            ("on several attributes", "lin-ms, features=..., go to 3"),
            ("arms come and go, as in news", 'lin-ms, model="shared", go to 3'),
        ),
    ),
    Question(
        "Reward",
        "What is a reward?",
        (
            ("0 or 1, such as a click", "kl-ms+"),
            ("a rating or other number in a range", "ms+"),
            ("revenue: mostly 0, with a maximum", "kl-ms+, reward / maximum"),
            ("a number without a maximum", "ms+:sigma2=VARIANCE"),
        ),
    ),
    Question(
        "Log",
        "Say afterwards how\ngood each arm is?",
        (
            ("no", "no floor"),
            ("yes", "floor=... from maillard advise"),
            ("yes, before you know your traffic", "floor=0.1"),
        ),
    ),
)


def rules_table() -> str:
    """Return the rules that choose a policy as Markdown."""
    rows = ["| the experiment | policy | why | evidence |", "| --- | --- | --- | --- |"]
    for rule in POLICY_RULES:
        page, _, anchor = rule.evidence.partition("#")
        link = f"#{anchor}" if page == _PAGE else f"{os.path.relpath(page, 'how-to')}#{anchor}"
        policy = rule.policy.replace("{variance}", "VARIANCE")
        rows.append(f"| {rule.name} | `{policy}` | {rule.reason} | [{rule.basis}]({link}) |")
    return "\n".join(rows)


@mpl.rc_context(RC)
def draw_flow() -> Figure:
    """Draw the questions from top to bottom, each with its replies on the right."""
    heights = [_LINE * len(each.replies) for each in FLOW]
    high = sum(heights) + _GAP * (len(FLOW) - 1) + 2 * _TOP
    figure = Figure(figsize=(_WIDE / 72, high / 72))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDE), ylim=(0, high))
    axes.set_axis_off()
    top = high - _TOP
    for number, (question, height) in enumerate(zip(FLOW, heights, strict=True), 1):
        colour = figures.COLOURS[number - 1]
        _draw_box(axes, (4, top - height + 4), (_QUESTION - 8, height - 8), colour)
        middle = top - height / 2
        _write(axes, _QUESTION / 2, middle + 15, f"{number}  {question.title}", color=colour, weight="bold",
               fontsize=LARGE, ha="center")  # fmt: skip
        _write(axes, _QUESTION / 2, middle - 9, question.text, ha="center", va="center")
        for place, (reply, answer) in enumerate(question.replies):
            y = top - _LINE * (place + 0.5)
            _connect(axes, [_QUESTION, _QUESTION + 18, _QUESTION + 18, _REPLY - 6], [middle, middle, y, y])
            _write(axes, _REPLY, y - 3.4, reply)
            _connect(axes, [_ANSWER - 26, _ANSWER - 4], [y, y], arrow=True)
            _draw_box(axes, (_ANSWER, y - 9.5), (_WIDE - _ANSWER - 4, 19), colour)
            _write(axes, _ANSWER + 8, y - 3, answer, family="DejaVu Sans Mono", fontsize=8.5)
        if number < len(FLOW):
            x, bottom = _QUESTION / 2, top - height
            _connect(axes, [x, x], [bottom + 2, bottom - _GAP - 2], arrow=True)
        top -= height + _GAP
    return figure


def _draw_box(axes: Axes, corner: tuple[float, float], size: tuple[float, float], colour: str) -> None:
    style = "round,pad=0,rounding_size=5"
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=style, facecolor="none", edgecolor=colour))


def _connect(axes: Axes, x: list[float], y: list[float], *, arrow: bool = False) -> None:
    axes.plot(x, y, color=figures.MUTED, linewidth=0.9, solid_joinstyle="round")
    if arrow:
        head: Any = {
            "arrowstyle": "-|>",
            "color": figures.MUTED,
            "linewidth": 0.9,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate("", (x[-1], y[-1]), (x[0], y[0]), arrowprops=head)


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    look: dict[str, Any] = {"color": figures.INK, "fontsize": 9.5, "linespacing": 1.2}
    axes.text(x, y, text, **look | style)
