"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from maillard.errors import InvalidValue, MaillardError

Command = TypeVar("Command", bound=Callable[..., Any])


def add_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds these options to a command, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _parse_time(_context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """Parse a time; without a zone it is UTC."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        allowed = "a time such as 2026-03-01 or 2026-03-01T12:00+01:00"
        raise InvalidValue(f"--{option.name}", text, allowed) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _parse_range(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[float, float] | None:
    if text is None:
        return None
    low, dots, high = text.partition("..")
    try:
        return float(low), float(high if dots else "")
    except ValueError:
        raise InvalidValue("--reward-range", text, "LOW..HIGH, such as 0..1") from None


def _parse_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse "a=b,c=d". A comma that is not followed by "name=" is part of the value."""
    pairs: dict[str, str] = {}
    for text in texts:
        for item in re.split(r",(?=[^,=]+=)", text):
            name, equals, value = item.partition("=")
            if not name or not equals or not value or name in pairs:
                raise InvalidValue(option, text, "NAME=VALUE,..., each name once")
            pairs[name] = value
    return pairs


def _parse_columns(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    return _parse_pairs("--columns", texts) or None


def parse_numbers(
    _context: click.Context, option: click.Parameter, text: str | None
) -> dict[str, float] | None:
    """Parse a number for each name, as in "red=0.3,blue=0.5"."""
    if text is None:
        return None
    name = f"--{(option.name or '').replace('_', '-')}"
    pairs = _parse_pairs(name, [text])
    try:
        return {arm: float(value) for arm, value in pairs.items()}
    except ValueError:
        raise InvalidValue(name, text, "a number for each arm, such as red=0.3,blue=0.5") from None


def _list_or_none(
    _context: click.Context, _option: click.Parameter, values: tuple[Any, ...]
) -> list[Any] | None:
    return list(values) or None


CONFIDENCE = click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Confidence level of the intervals."
)
EXPERIMENT = click.option(
    "--experiment", metavar="NAME", help="Which experiment, if the log contains several."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
THREADS = click.option("--threads", type=int, help="Number of threads. Default: one per core.")
REWARD_RANGE = click.option(
    "--reward-range",
    callback=_parse_range,
    metavar="LOW..HIGH",
    help="The range of all rewards, if the log does not declare it.",
)
SELECTION = (
    EXPERIMENT,
    click.option(
        "--since", callback=_parse_time, metavar="TIME", help="Only decisions from TIME on (UTC by default)."
    ),
    click.option("--until", callback=_parse_time, metavar="TIME", help="Only decisions before TIME."),
    click.option("--unit", multiple=True, callback=_list_or_none, help="Only this unit; may be repeated."),
    click.option(
        "--epoch", type=int, multiple=True, callback=_list_or_none, help="Only this epoch; may be repeated."
    ),
    click.option(
        "--columns", multiple=True, callback=_parse_columns, metavar="OURS=THEIRS,...",
        help="Column names of a table from another program, such as arm=item_id,reward=click.",
    ),
)  # fmt: skip


def check_output_file(
    option: str, path: Path | None, endings: Sequence[str], logs: Sequence[str] = ()
) -> None:
    """Refuse, before any work is done, a file that cannot be written or that would overwrite a log."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise InvalidValue(option, str(path), "a name that ends in " + " or ".join(endings))
    if not path.absolute().parent.is_dir():
        raise InvalidValue(option, str(path), "a file in a folder that exists")
    from maillard.decisions.files.output_files import check_report_path

    check_report_path(path, logs)


@contextlib.contextmanager
def requires_extra(command: str, extra: str) -> Iterator[None]:
    """If an import fails in the block, raise an error that names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise MaillardError(f"{command} needs {error.name}: pip install 'maillard[{extra}]'") from None
