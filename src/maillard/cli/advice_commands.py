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

_REWARDS = ["clicks", "binary", "bounded", "unbounded"]
_CONTEXTS = ["none", "segments", "features", "actions"]


def _parse_number(name: str, text: str) -> float:
    """Parse a number such as 0.03, 3% or 2,000."""
    digits = text.strip().replace(",", "")
    try:
        return float(digits.removesuffix("%")) / (100 if digits.endswith("%") else 1)
    except ValueError:
        raise InvalidValue(name, text, "a number such as 0.03, 3% or 2,000") from None


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


_SYNONYMS = {"revenue": "bounded", "sales": "clicks", "conversions": "clicks"}


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
    from maillard.evaluation.advising.advice_formatting import amount

    better, today = amount(r, r.rate + r.lift), amount(r, r.rate)
    example = f"{amount(r, r.lift)} is for a variant at {better} instead of {today}"
    return f"Which difference is worth finding? {example}"


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
            "  bounded    a number in a known range, such as a rating from 1 to 5, or revenue up to 100\n"
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
        "rate",
        lambda r: (
            "Which percentage of visitors clicks today, roughly?"
            if r.reward == "clicks"
            else "What is the average reward of a decision today, roughly?"
        ),
        _parse_number,
    ),
    _Question("lift", _lift_question, _parse_number),
    _Question(
        "deviation",
        lambda _: (
            "What is the standard deviation of a reward? If you do not know, press Enter for a careful guess"
        ),
        _parse_number,
        lambda r: not r.zero_or_one,
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
    "--reward", "clicks: only successes are reported. binary: 0 or 1. bounded: in a range. unbounded.",
    type=click.Choice(_REWARDS),
)  # fmt: skip
@option("--reward-range", "Of bounded rewards.", parse=_parse_reward_range, metavar="LOW..HIGH")
@option("--rate", "Mean reward of an ordinary arm, such as 3%.", parse=_parse_number, metavar="NUMBER")
@option(
    "--lift", "Difference worth finding, in the same unit: 1% for 4% instead of 3%.",
    parse=_parse_number, metavar="NUMBER",
)  # fmt: skip
@option(
    "--deviation", "Standard deviation of a reward that is not 0 or 1.", parse=_parse_number, metavar="NUMBER"
)
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
    maillard advise --reward bounded --reward-range 0..100 --rate 2 --no-evaluate --yes
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
        return make_requirements(
            **given | {"contexts": None if given["contexts"] == "none" else given["contexts"]}
        )

    click.echo("Press Enter to accept the value in brackets.\n", err=True)
    for question in _QUESTIONS:
        name, r = question.name, check()
        if settings[name] is not None or not question.applies(r):
            continue
        default = answers(r).get(name, "none")
        if name in ("rate", "lift"):
            default = amount(r, getattr(r, name))
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
