"""Options that several commands share, and how they are read."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from maillard.errors import InvalidValue, MaillardError

__all__ = [
    "CONFIDENCE",
    "JSON",
    "REWARD_RANGE",
    "SELECTION",
    "check_file",
    "give",
    "naming_extra",
    "numbers",
    "showing_runs",
]

Command = TypeVar("Command", bound=Callable[..., Any])


def give(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """A decorator that gives a command all these options, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _time(_context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """A time, by UTC unless it says otherwise."""
    if text is None:
        return None
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(
            f"--{option.name}", text, "a time as in 2026-03-01, or 2026-03-01T12:00+01:00"
        ) from None
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def _range(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    low, dots, high = text.partition("..")
    try:
        return float(low), float(high if dots else "")
    except ValueError:
        raise InvalidValue("--reward-range", text, "low..high, as in 0..1") from None


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """From "a=b,c=d"; a comma that no "name=" follows is part of a value."""
    found: dict[str, str] = {}
    for text in texts:
        for item in re.split(r",(?=[^,=]+=)", text):
            name, equals, value = item.partition("=")
            if not name or not equals or not value or name in found:
                raise InvalidValue(option, text, "NAME=VALUE,..., each name once")
            found[name] = value
    return found


def _columns(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    return _pairs("--columns", texts) or None


def numbers(_context: click.Context, option: click.Parameter, text: str | None) -> dict[str, float] | None:
    """Of "red=0.3,blue=0.5", the numbers by their names."""
    if text is None:
        return None
    name = f"--{(option.name or '').replace('_', '-')}"
    try:
        return {arm: float(value) for arm, value in _pairs(name, [text]).items()}
    except ValueError as error:
        if isinstance(error, MaillardError):
            raise
        raise InvalidValue(name, text, "a number for each arm, as in red=0.3,blue=0.5") from None


def _some(_context: click.Context, _option: click.Parameter, values: tuple[Any, ...]) -> list[Any] | None:
    return list(values) or None


CONFIDENCE = click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="How often an interval holds."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
REWARD_RANGE = click.option(
    "--reward-range",
    callback=_range,
    metavar="LOW..HIGH",
    help="Where every reward lies, if the log does not say.",
)
SELECTION = (
    click.option("--experiment", metavar="NAME", help="Which one, where the log holds several."),
    click.option("--since", callback=_time, metavar="TIME", help="Only decisions from then on; UTC without a zone."),
    click.option("--until", callback=_time, metavar="TIME", help="Only decisions before then."),
    click.option("--unit", multiple=True, callback=_some, help="Only decisions for this unit; may be repeated."),
    click.option(
        "--epoch", type=int, multiple=True, callback=_some, help="Only decisions of this epoch; may be repeated."
    ),
    click.option(
        "--columns", multiple=True, callback=_columns, metavar="OURS=THEIRS,...",
        help="What a table that is not ours calls our columns, as in arm=item_id,reward=click.",
    ),
)  # fmt: skip


def check_file(option: str, path: Path | None, endings: Sequence[str], logs: Sequence[str] = ()) -> None:
    """Refuse a file that could not be written, or that may be something else, a log above all, before anything runs."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise InvalidValue(option, str(path), "a name that ends in " + " or ".join(endings))
    if not path.absolute().parent.is_dir():
        raise InvalidValue(option, str(path), "a file in a folder that exists")
    from maillard.decisions.files.output_files import check_report_path

    check_report_path(path, logs)


@contextlib.contextmanager
def naming_extra(command: str) -> Iterator[None]:
    """Where a package is missing, say which extra brings it."""
    try:
        yield
    except ImportError as error:
        raise MaillardError(f"{command} needs {error.name}: pip install 'maillard[evaluation]'") from None


@contextlib.contextmanager
def showing_runs() -> Iterator[Callable[[int, int], None] | None]:
    """What shows how many runs are done, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with Console(stderr=True).status("compiling") as status:
        yield lambda done, total: status.update(f"{done:,} of {total:,} runs")
