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
FILE = click.Path(dir_okay=False, path_type=Path)


def option(
    name: str,
    help: str,
    *,
    dest: str | None = None,
    parse: Callable[[str, Any], Any] | None = None,
    **settings: Any,
) -> Callable[[Command], Command]:
    """Make a click option. The help shows its default; `parse(name, value)` converts a given value.

    An option with `multiple=True` gives a list, or None if it does not occur.
    """
    if parse is None and settings.get("multiple"):
        parse = _parse_list

    def convert(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
        return value if parse is None or value is None else parse(name, value)

    settings.setdefault("show_default", settings.get("default") is not None)
    names = [name] if dest is None else [name, dest]
    return click.option(*names, help=help, callback=convert, **settings)


def add_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds these options to a command, in this order."""

    def decorate(command: Command) -> Command:
        for each in reversed(options):
            command = each(command)
        return command

    return decorate


def _parse_list(_name: str, values: tuple[Any, ...]) -> list[Any] | None:
    return list(values) or None


def _parse_time(name: str, text: str) -> datetime:
    """Parse a time; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(name, text, "a time such as 2026-03-01 or 2026-03-01T12:00+01:00") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_range(name: str, text: str) -> tuple[float, float]:
    """Parse two numbers, as in 0..1."""
    low, dots, high = text.partition("..")
    try:
        return float(low), float(high if dots else "")
    except ValueError:
        raise InvalidValue(name, text, "LOW..HIGH, such as 0..1") from None


def _parse_pairs(name: str, texts: Sequence[str]) -> dict[str, str] | None:
    """Parse "a=b,c=d". A comma that is not followed by "name=" is part of the value."""
    pairs: dict[str, str] = {}
    for text in texts:
        for item in re.split(r",(?=[^,=]+=)", text):
            key, equals, value = item.partition("=")
            if not key or not equals or not value or key in pairs:
                raise InvalidValue(name, text, "NAME=VALUE,..., each name once")
            pairs[key] = value
    return pairs or None


def parse_numbers(name: str, text: str) -> dict[str, float]:
    """Parse a number for each name, as in "red=0.3,blue=0.5"."""
    pairs = _parse_pairs(name, [text]) or {}
    try:
        return {arm: float(value) for arm, value in pairs.items()}
    except ValueError:
        raise InvalidValue(name, text, "a number for each arm, such as red=0.3,blue=0.5") from None


CONFIDENCE = option("--confidence", "Confidence level of the intervals.", type=float, default=0.95)
EXPERIMENT = option("--experiment", "Which experiment, if the log contains several.", metavar="NAME")
FORMAT = option(
    "--format", "Output format.", dest="form",
    type=click.Choice(["table", "json"]), default="table", show_default=False,
)  # fmt: skip
BEFORE = option(
    "--before", "Only decisions before TIME (UTC by default), at least a day ago.",
    parse=_parse_time, metavar="TIME", required=True,
)  # fmt: skip
JSON = option("--json", "Print one JSON object.", dest="as_json", is_flag=True)
THREADS = option("--threads", "Number of threads. Default: one per core.", type=int)
REWARD_RANGE = option(
    "--reward-range", "The range of all rewards, if the log does not declare it.",
    parse=parse_range, metavar="LOW..HIGH",
)  # fmt: skip
TIMES = (
    option("--since", "Only decisions from TIME on (UTC by default).", parse=_parse_time, metavar="TIME"),
    option("--until", "Only decisions before TIME.", parse=_parse_time, metavar="TIME"),
)
COLUMNS = option(
    "--columns", "Column names of a table from another program, such as arm=item_id,reward=click.",
    parse=_parse_pairs, multiple=True, metavar="OURS=THEIRS,...",
)  # fmt: skip
SELECTION = (
    EXPERIMENT,
    *TIMES,
    option("--unit", "Only this unit; may be repeated.", multiple=True),
    option("--epoch", "Only this epoch; may be repeated.", type=int, multiple=True),
    COLUMNS,
)


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
