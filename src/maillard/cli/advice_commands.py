"""The command `advise`: questions, and the advice that follows from the answers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from maillard.cli import options
from maillard.cli.evaluation_commands import echo_json
from maillard.cli.options import FILE, JSON, check_output_file, option, requires_extra
from maillard.cli.terminal import progress
from maillard.errors import InvalidValue, MaillardError

_REWARDS = ["clicks", "binary", "revenue", "bounded", "unbounded"]
_CONTEXTS = ["none", "segments", "features", "actions"]


class _Percentage(float):
    """A number that was given as a percentage."""

    def __repr__(self) -> str:
        return f"{100 * self:g}%"


def _parse_number(name: str, text: str) -> float:
    """Parse a number such as 0.03, 3% or 2,000."""
    digits = text.strip().replace(",", "")
    try:
        return _Percentage(float(digits[:-1]) / 100) if digits.endswith("%") else float(digits)
    except ValueError:
        raise InvalidValue(name, text, "a number such as 0.03, 3% or 2,000") from None


def _check_percentages(answers: dict[str, Any]) -> None:
    """Refuse percentages of rewards that are amounts: 2% of visitors who buy are not a mean of 0.02 euros."""
    reward = answers["reward"]
    if reward in (None, "clicks", "binary") or answers["reward_range"] == (0, 1):
        return
    for name in ("rate", "lift", "deviation", "order"):
        if isinstance(answers[name], _Percentage):
            allowed = f"a number in the unit of the rewards, not a percentage, because rewards are {reward}"
            if name == "rate" and reward != "revenue":
                allowed += (
                    f" (if {answers[name]!r} of decisions end in an order, use --reward revenue "
                    f"--buyers {answers[name]!r} --order with the value of a typical order)"
                )
            raise InvalidValue(name, answers[name], allowed)


def _parse_arms(name: str, text: str) -> int | list[str]:
    """Parse a number of arms, or their names."""
    if "," in text:
        return [each.strip() for each in text.split(",")]
    try:
        return int(text)
    except ValueError:
        raise InvalidValue(name, text, "a number of arms, or their names, such as red,blue") from None


def _parse_horizon(_name: str, text: str) -> int | str:
    """Parse a number of decisions; anything else is a duration."""
    digits = text.strip().replace(",", "")
    return int(digits) if digits.isdecimal() else _parse_duration(_name, digits)


def _parse_duration(_name: str, text: str) -> str:
    """Shorten the unit of a duration: 18 hours is 18h."""
    written = re.fullmatch(r"([\d.]+) *(second|sec|minute|hour|day|week)s?", text.strip().lower())
    return f"{written[1]}{written[2][0]}" if written else text.strip()


def _parse_reward_range(name: str, text: str) -> tuple[float, float]:
    """Parse two numbers, as in 0..300, 0-300 or 0 to 300."""
    written = re.fullmatch(r"\s*(-?[\d.]+?)\s*(?:-|–|to|\.\.)\s*(-?[\d.]+)\s*", text)
    return options.parse_range(name, f"{written[1]}..{written[2]}" if written else text)


def _parse_largest_order(name: str, text: str) -> tuple[float, float]:
    """Parse the largest order, or the range of orders; a decision without an order earns 0."""
    try:
        return 0.0, float(_parse_number(name, text))
    except InvalidValue:
        return 0.0, _parse_reward_range(name, text)[1]


_SYNONYMS = {"sales": "clicks", "conversions": "clicks"}


def _parse_reward(_name: str, text: str) -> str:
    """Parse a type of reward."""
    word = text.strip().lower()
    return _SYNONYMS.get(word, word)


def _parse_whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidValue(name, text, "a whole number") from None


class _Question(NamedTuple):
    """A question that is asked if the answer is missing."""

    name: str
    text: Callable[[Any], str]
    "The question, given the answers so far."
    parse: Callable[[str, str], Any] = lambda _name, text: text.strip()
    applies: Callable[[Any], bool] = lambda _: True
    choices: list[str] | None = None


def _lift_question(r: Any) -> str:
    from maillard.evaluation.advising.advice_formatting import amount, revenue_formula

    better, today = amount(r, r.rate + r.lift), amount(r, r.rate)
    example = f"{amount(r, r.lift)} is for a variant at {better} instead of {today}"
    if r.order is None:
        return f"Which difference is worth finding? {example}"
    more = (
        f"{100 * r.buyers:.3g}% of them buy, and {100 * (r.rate + r.lift) / r.order:.3g}% with that variant"
    )
    return f"{revenue_formula(r)}\nWhich difference per visitor is worth finding? {example}, as when {more}"


_QUESTIONS = (
    _Question(
        "arms",
        lambda _: "How many variants (arms) do you compare? A number, or their names: red,blue",
        _parse_arms,
    ),
    _Question(
        "reward",
        lambda _: (
            "What is a reward?\n"
            "  clicks     visitors click, or buy; nothing is reported about the others\n"
            "  binary     every decision is reported as a success (1) or a failure (0)\n"
            "  revenue    most visitors buy nothing, the others an order of some value\n"
            "  bounded    a number in a known range, such as a rating from 1 to 5\n"
            "  unbounded  a number without a known maximum\n"
            "Your reward"
        ),
        _parse_reward,
        choices=_REWARDS,
    ),
    _Question(
        "reward_range",
        lambda _: "What are the lowest and the highest reward?",
        _parse_reward_range,
        lambda r: r.reward == "bounded",
    ),
    _Question(
        "reward_range",
        lambda _: "What is the largest order?",
        _parse_largest_order,
        lambda r: r.reward == "revenue",
    ),
    _Question(
        "buyers",
        lambda _: "Which percentage of visitors buys today, roughly?",
        _parse_number,
        lambda r: r.reward == "revenue",
    ),
    _Question(
        "order",
        lambda _: "What is a typical order worth? If you know it: revenue divided by the number of orders",
        _parse_number,
        lambda r: r.reward == "revenue",
    ),
    _Question(
        "rate",
        lambda r: (
            "Which percentage of visitors clicks today, roughly?"
            if r.reward == "clicks"
            else "What is the average reward of a decision today, roughly?"
        ),
        _parse_number,
        lambda r: r.reward != "revenue",
    ),
    _Question("lift", _lift_question, _parse_number),
    _Question(
        "deviation",
        lambda _: (
            "What is the standard deviation of a reward? If you do not know, press Enter for a careful guess"
        ),
        _parse_number,
        lambda r: r.reward in ("bounded", "unbounded"),
    ),
    _Question("traffic", lambda _: "How many decisions per day, such as page views?", _parse_number),
    _Question(
        "horizon",
        lambda _: "How long will it run? A duration such as 14d, or the number of decisions",
        _parse_horizon,
    ),
    _Question(
        "delay",
        lambda r: (
            "How long after a page view may a click come? Later ones do not count. 30s, 1h, 2d, ..."
            if r.reward == "clicks"
            else "How long after a decision is its reward known? 0s: at once; 30s, 1h, 2d, ..."
        ),
        _parse_duration,
    ),
    _Question(
        "contexts",
        lambda _: (
            "Does the best variant depend on the visitor?\n"
            "  none      one variant is best for everyone\n"
            "  segments  it may differ between a few groups, such as phone and desktop\n"
            "  features  it depends on several attributes, such as age and device\n"
            "  actions   the variants have attributes and change all the time, as in news\n"
            "Your contexts"
        ),
        choices=_CONTEXTS,
    ),
    _Question(
        "context_size",
        lambda r: f"How many {'groups' if r.contexts == 'segments' else 'attributes'}?",
        _parse_whole,
        lambda r: r.contexts is not None,
    ),
)
_EVALUATE = "Will you use the log afterwards to say how good each variant is, and which is better?"


@click.command()
@option("--arms", "Number of arms, or their names, such as red,blue.", parse=_parse_arms)
@option(
    "--reward",
    "clicks: only successes are reported. binary: 0 or 1. revenue: mostly 0, else an order. "
    "bounded: in a range. unbounded.",
    parse=_parse_reward, metavar=f"[{'|'.join(_REWARDS)}]",
)  # fmt: skip
@option(
    "--reward-range",
    "Of bounded rewards; of revenue: 0 and the largest order.",
    parse=_parse_reward_range,
    metavar="LOW..HIGH",
)
@option("--rate", "Mean reward of an ordinary arm, such as 3%.", parse=_parse_number, metavar="NUMBER")
@option(
    "--lift", "Difference worth finding, in the same unit: 1% for 4% instead of 3%.",
    parse=_parse_number, metavar="NUMBER",
)  # fmt: skip
@option(
    "--deviation", "Standard deviation of a reward that is not 0 or 1.", parse=_parse_number, metavar="NUMBER"
)
@option(
    "--buyers",
    "Revenue: the fraction of visitors who buy, such as 2%.",
    parse=_parse_number,
    metavar="NUMBER",
)
@option("--order", "Revenue: the value of a typical order.", parse=_parse_number, metavar="NUMBER")
@option("--traffic", "Decisions per day.", parse=_parse_number, metavar="NUMBER")
@option(
    "--horizon", "Decisions in all, or a duration such as 14d.", parse=_parse_horizon, metavar="NUMBER|TIME"
)
@option("--delay", "How long until the reward is known, such as 1h.", parse=_parse_duration, metavar="TIME")
@option("--contexts", "Whether the best arm depends on the visitor.", type=click.Choice(_CONTEXTS))
@option("--context-size", "Number of segments or features.", type=int)
@option("--evaluate/--no-evaluate", "Whether the log will be evaluated.", default=None)
@option("--max-regret", "The most reward that may be lost.", parse=_parse_number, metavar="NUMBER")
@option("--ask/--yes", "Ask for missing answers, or use defaults. Default: ask on a terminal.", default=None)
@option("--quick", "A rough answer in a few seconds.", is_flag=True)
@option("--seed", "Random seed of the simulations.", default=0)
@options.THREADS
@option("--figure", "Also write a figure to a .png or .svg file.", type=FILE)
@JSON
def advise(*, ask: bool | None, as_json: bool, figure: Path | None, **settings: Any) -> None:
    """Suggest a policy and a floor for an experiment, and simulate what they cost.

    Asks for what the suggestion depends on; every answer is also an option. Prints the suggestion with its
    reasons, the simulated regret and interval width of it and two alternatives, and a program.

    \b
    maillard advise
    maillard advise --arms 4 --rate 3% --lift 1.5% --traffic 2000 --horizon 14d --delay 1h --yes
    maillard advise --reward revenue --reward-range 0..300 --buyers 2% --order 40 --yes
    maillard advise --reward bounded --reward-range 1..5 --rate 3 --no-evaluate --yes
    """  # noqa: D301  # click requires this character
    check_output_file("--figure", figure, (".png", ".svg"))
    with requires_extra("advise", "evaluation"):
        from maillard.evaluation import advise as run
    from maillard.evaluation.evaluation_report import plain

    run_settings = {name: settings.pop(name) for name in ("quick", "seed", "threads")}
    if ask if ask is not None else sys.stdin.isatty():
        _ask(settings)
    if settings["contexts"] == "none":
        settings["contexts"] = None
    _check_percentages(settings)
    with progress("starting the simulation (up to 20 seconds)", "{}: {:.0%}") as on_progress:
        found = run(**settings, **run_settings, progress=on_progress)
    if as_json:
        echo_json(plain(found.to_dict()))
    else:
        click.echo(str(found))
    if figure is not None:
        from maillard import figures

        figures.save(found.plot(), figure)
        click.echo(f"wrote {figure}", err=True)


def _ask(settings: dict[str, Any]) -> None:
    """Ask for the answers that are missing, and add them to the settings."""
    from maillard.evaluation.advising.advice_formatting import amount
    from maillard.evaluation.advising.advice_program import answers
    from maillard.evaluation.advising.advice_requirements import DEFAULT_HORIZON, make_requirements

    def check(**answer: Any) -> Any:
        given = settings | answer
        _check_percentages(given)
        return make_requirements(
            **given | {"contexts": None if given["contexts"] == "none" else given["contexts"]}
        )

    def confirm_orders() -> bool:
        """Ask whether a bounded reward is revenue; of orders from 20 to 300, the lowest reward is still 0."""
        text = "Do most decisions earn nothing (0), as with revenue?"
        found = click.confirm(text, default=False, err=True)
        click.echo(err=True)
        if found and settings["reward_range"] is not None:
            settings["reward_range"] = (0.0, settings["reward_range"][1])
        return found

    click.echo("Press Enter to accept the value in brackets.\n", err=True)
    for question in _QUESTIONS:
        name, r = question.name, check()
        asks_range = name == "reward_range" and r.reward == "bounded" and question.applies(r)
        if asks_range and settings["rate"] is None and confirm_orders():
            settings["reward"] = "revenue"
            r = check()
        if settings[name] is not None or not question.applies(r):
            continue
        default = answers(r).get(name, "none")
        if name in ("rate", "lift"):
            default = amount(r, getattr(r, name))
        elif name == "buyers":
            default = f"{100 * r.buyers:g}%"
        elif name == "reward_range" and r.reward == "revenue":
            default = f"{r.high:g}"
        elif name == "horizon":
            default = DEFAULT_HORIZON

        def parse(text: str, question: _Question = question) -> Any:
            try:
                value = question.parse(question.name, text)
                if question.choices is not None and value not in question.choices:
                    raise InvalidValue(question.name, value, "one of " + ", ".join(question.choices))
                check(**{question.name: value})
            except MaillardError as error:
                _, _, message = str(error).rpartition(f"{question.name}: ")
                raise click.BadParameter(message) from None
            return value

        settings[name] = click.prompt(question.text(r), default=default, value_proc=parse, err=True)
        click.echo(err=True)
    if settings["evaluate"] is None:
        settings["evaluate"] = click.confirm(_EVALUATE, default=True, err=True)
        click.echo(err=True)
