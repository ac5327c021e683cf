"""Commands for logs of decisions: verify, export, import."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from maillard.decisions import Verification

__all__ = ["export", "import_", "verify"]

_WHICH = click.option("--experiment", metavar="NAME", help="Which one, where the log holds several.")
_STYLES = {"consistent": "bold green", "broken": "bold red", "not enough data": "bold yellow"}


@click.command()
@click.argument("log")
@_WHICH
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="What is printed."
)
def verify(log: str, experiment: str | None, form: str) -> None:
    """Recompute every probability in LOG from the log alone, and audit the draws.

    LOG is a SQLite log, a postgresql:// URL, or an exported file. The verdict is "consistent", "broken" or "not enough data"; the exit status is
    1 if it is broken.

    \b
    maillard verify decisions.db
    maillard verify decisions.parquet --format json
    """  # noqa: D301  # click looks for this very character
    from maillard.decisions import verify as run

    with _counting("verified") as count:
        found = run(log, experiment, on_rows=count)
    if form == "json":
        click.echo(json.dumps(_plain(found), indent=1, ensure_ascii=False))
    else:
        _print(found)
    if found.verdict == "broken":
        raise SystemExit(1)


@click.command()
@click.argument("log")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_WHICH
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "csv", "obp", "dsjson"]),
    help="By default what the file's name ends in: .parquet, .csv, .npz (obp), .dsjson.",
)
def export(log: str, file: Path, experiment: str | None, form: str | None) -> None:
    """Write the decisions of LOG, a path or a postgresql:// URL, to FILE.

    FILE may replace an older export, if its name has one of these endings, and never LOG itself.

    \b
    maillard export decisions.db decisions.parquet
    maillard export postgresql://localhost/shop home.npz --experiment home
    """  # noqa: D301  # click looks for this very character
    from maillard.decisions import read_log, write_log

    with read_log(log, experiment) as opened, _counting("written") as opened.on_rows:
        rows, left_out = write_log(opened, file, form)
    left = f"; {left_out:,} without a reward left out" if left_out else ""
    click.echo(f"{file}: {rows:,} decisions of {opened.experiment!r}{left}")


@click.command("import")
@click.argument("file")
@click.argument("log")
@click.option("--experiment", metavar="NAME", help="Its name in LOG; by default the one that it has in FILE.")
def import_(file: str, log: str, experiment: str | None) -> None:
    """Copy the log in FILE into LOG, a path or a postgresql:// URL, as it is: there the experiment goes on.

    \b
    maillard import decisions.parquet decisions.db
    """  # noqa: D301  # click looks for this very character
    from maillard.decisions import read_log
    from maillard.decisions.files.store_transfer import write

    with read_log(file) as opened, _counting("read") as opened.on_rows:
        name = experiment or opened.experiment
        rows, where = write(opened, log, name)
    click.echo(f"{where}: {rows:,} decisions of {name!r}")


@contextlib.contextmanager
def _counting(what: str) -> Iterator[Callable[[int], None] | None]:
    """What shows how far it is, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with Console(stderr=True).status("opening") as status:
        yield lambda rows: status.update(f"{rows:,} decisions {what}")


def _plain(found: Verification) -> dict[str, Any]:
    """A verification as JSON holds it."""
    scores = [*found.arms, *([found.weights] if found.weights else [])]
    return {
        "verdict": found.verdict,
        **{
            name: getattr(found, name)
            for name in (
                "experiment",
                "source",
                "decisions",
                "recomputed",
                "not_audited",
                "largest_error",
                "problem_count",
                "audit_verdict",
                "limit",
            )
        },
        "not_recomputed": dict(found.not_recomputed),
        "problems": [dataclasses.asdict(problem) for problem in found.problems],
        "scores": [{**dataclasses.asdict(score), "z": score.z} for score in scores],
    }


def _print(found: Verification) -> None:
    console = Console(highlight=False, soft_wrap=True)

    def say(line: str, style: str | None = None) -> None:
        console.print(Text(_printable(line, "\n")), style=style)

    say(f"{found.source}, experiment {found.experiment!r}: {found.decisions:,} decisions\n")
    if found.recomputed:
        say(
            f"{found.recomputed:,} recomputed from the log; largest difference {found.largest_error:.2g} (allowed: 1e-12)"
        )
    for reason, count in found.not_recomputed.items():
        say(f"{count:,} not recomputed: {reason}", "yellow")
    if found.not_audited:
        what = "repeats of a sticky assignment, or a law that is not known in whole"
        say(f"{found.not_audited:,} not counted as draws: {what}", "dim")
    for problem in found.problems:
        say(f"{problem.decision or 'the log'}: {problem.what}", "red")
    if found.problem_count > len(found.problems):
        say(f"... and {found.problem_count - len(found.problems):,} more", "red")
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("arm", no_wrap=True)
    for name in ("drawn", "expected", "z"):
        table.add_column(name, justify="right", no_wrap=True)
    for score in [*found.arms, *([found.weights] if found.weights else [])]:
        z = "not enough data" if score.z is None else f"{score.z:.2f}"
        style = "red" if score.z is not None and abs(score.z) > found.limit else None
        name = "sum of weights 1/p" if score is found.weights else score.name
        table.add_row(
            Text(_printable(name)), f"{score.observed:,.0f}", f"{score.expected:,.1f}", z, style=style
        )
    say("")
    console.print(table)
    say(f"\nlimit |z| = {found.limit:.2f}: of 10,000 honest logs, one goes beyond it", "dim")
    alone = (
        ""
        if found.recomputed or found.problem_count
        else " (only the choices were audited: no probability could be recomputed)"
    )
    say(f"\n{found.verdict}{alone}", _STYLES[found.verdict])


def _printable(words: str, keep: str = "") -> str:
    """Names as they are, but nothing in them that a terminal would obey."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in words)
