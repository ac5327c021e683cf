"""The command line: parse, call, print."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import maillard
from maillard.cli import evaluation_commands, log_commands, service_commands
from maillard.errors import InvalidValue, MaillardError
from maillard.policies import Policy, names, policy_class
from maillard.policies.table import COLUMNS, table_row

__all__ = ["main"]


class _Group(click.Group):
    """Turns the package's own errors into one line and exit status 2."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except MaillardError as error:
            click.echo(f"maillard: {error}", err=True)
            context.exit(2)
        except KeyboardInterrupt:
            click.echo("maillard: stopped", err=True)
            context.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(maillard.__version__, prog_name="maillard")
@click.option(
    "--load",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A Python file with policies of your own; may be repeated.",
)
def main(load: tuple[Path, ...]) -> None:
    """Bandit policies whose every choice comes with its exact probability."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show ✓ gets a ?
            stream.reconfigure(errors="replace")
    for path in load:
        _run_file(path)


for _command in (
    evaluation_commands.compare,
    evaluation_commands.evaluate,
    evaluation_commands.plan,
    evaluation_commands.replay,
    log_commands.export,
    log_commands.import_,
    log_commands.verify,
    service_commands.demo,
    service_commands.keys,
    service_commands.serve,
):
    main.add_command(_command)


@main.command()
@click.argument("name", required=False)
@click.option("--format", "form", type=click.Choice(["table", "markdown", "json"]), default="table")
def policies(name: str | None, form: str) -> None:
    """The table of all policies, or everything about one.

    The columns are those of the paper's Table 1. A tick means proved, a cross means not the case (or, with *, that no
    result is reported but it might hold), a blank that nothing is reported.
    """
    chosen = [policy_class(name)] if name else [policy_class(each) for each in names()]
    if form == "json":
        click.echo(json.dumps([describe(cls) for cls in chosen], indent=2, ensure_ascii=False))
    elif form == "markdown":
        click.echo(markdown_table(chosen))
    elif name:
        _explain(chosen[0])
    else:
        _print_table(chosen)


@main.command()
@click.argument("specs", metavar="POLICY...", nargs=-1, required=True)
@click.option(
    "--problem", default="gaussian-equal:arms=10", show_default=True, help="The problem, as a spec."
)
@click.option("--horizon", default=20_000, show_default=True, help="Rounds of a trial.")
@click.option("--trials", default=200, show_default=True, help="Trials of each policy.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    help="With the policy and the trial's number, all that a trial depends on.",
)
@click.option("--sigma2", type=float, help="For the policies that take it; by default the problem's.")
@click.option("--threads", type=int, help="By default one for each core.")
@click.option("--scheduler", metavar="tcp://...", help="Run on the Dask cluster of this scheduler instead.")
@click.option(
    "--engine", type=click.Choice(["lazy", "direct", "plain"]), help="By default the fastest that is exact."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda", "auto"]),
    default="cpu",
    show_default=True,
    help="cuda is an NVIDIA GPU; auto is one if there is one.",
)
@click.option(
    "--keep",
    type=click.Choice(["trials", "summary"]),
    default="trials",
    show_default=True,
    help="Every trial's curve and pulls; or, of very many trials, their summary.",
)
@click.option(
    "--output",
    "outputs",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    help="Write .npz, .json, .csv, .parquet, .png or .svg (a picture called *distributions* shows those); may be repeated.",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="What is printed."
)
@click.option("--progress/--no-progress", default=None, help="A bar on stderr; by default on terminals.")
def simulate(  # noqa: PLR0917  # click passes them by name
    specs: tuple[str, ...],
    problem: str,
    horizon: int,
    trials: int,
    seed: int,
    sigma2: float | None,
    threads: int | None,
    scheduler: str | None,
    engine: str | None,
    device: str,
    keep: str,
    outputs: tuple[Path, ...],
    form: str,
    progress: bool | None,
) -> None:
    """Run policies on a problem and print their regret.

    \b
    maillard simulate ms+ ts ucb1 --problem gaussian-equal:arms=10 --trials 1000
    maillard simulate ms+:booster=8 kl-ms --problem bernoulli:0.1,0.05 --output curves.png --output result.npz
    maillard simulate ms+ --device cuda --trials 1000000 --keep summary
    """  # noqa: D301  # click looks for this very character
    from maillard.simulation.plans import check_folder
    from maillard.simulation.result_files import FORMATS, SUMMARIES, write

    for path in outputs:
        check_folder("--output", path)
        if path.suffix not in FORMATS:
            raise InvalidValue("--output", str(path), "a name that ends in " + ", ".join(FORMATS))
        if keep == "summary" and path.suffix not in SUMMARIES:
            raise InvalidValue(
                "--output with --keep summary", str(path), "a name that ends in " + ", ".join(SUMMARIES)
            )
    given = [maillard.policy(spec, sigma2=sigma2) if sigma2 is not None else spec for spec in specs]
    options: dict[str, Any] = {"engine": engine, "device": device, "keep": keep, "progress": progress}
    try:
        with _executor(scheduler) as executor:
            result = maillard.simulate(
                given, problem, horizon, trials, seed, threads=threads, executor=executor, **options
            )
    except KeyboardInterrupt as stopped:
        click.echo(f"maillard: {stopped or 'stopped'}", err=True)
        raise SystemExit(130) from None
    for path in outputs:
        write(result, path)
    if form == "json":
        rows = [{**row, "measure": result.measure} for row in result.summary()]
        click.echo(json.dumps({"provenance": result.provenance, "summary": rows}, indent=2))
    else:
        _print_summary(result)
    for path in outputs:
        click.echo(f"wrote {path}", err=True)


@main.command()
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="The folder of the report; an earlier report in it is replaced once the new one is whole.",
)
@click.option("--trials", type=int, help="Of the paper's experiments, 200; the others keep their proportion.")
@click.option(
    "--horizon", type=int, help="Of the paper's experiments, 20000; the others keep their proportion."
)
@click.option(
    "--seed", default=0, show_default=True, help="The same seed gives the same results, to the byte."
)
@click.option("--only", multiple=True, metavar="EXPERIMENT", help="Only this experiment; may be repeated.")
@click.option("--quick", is_flag=True, help="A tenth of the trials and of the rounds: a look in seconds.")
@click.option(
    "--full", is_flag=True, help="The delay study at its full size, a million rounds and 100 trials."
)
@click.option("--threads", type=int, help="By default one for each core.")
@click.option(
    "--progress/--no-progress", default=None, help="On stderr: a bar on terminals, lines elsewhere."
)
def reproduce(  # noqa: PLR0917  # click passes them by name
    output: Path,
    trials: int | None,
    horizon: int | None,
    seed: int,
    only: tuple[str, ...],
    quick: bool,
    full: bool,
    threads: int | None,
    progress: bool | None,
) -> None:
    """Run the paper's evaluation, check its claims, and write a report.

    A run that is interrupted goes on when the same command is given again.

    \b
    maillard reproduce
    maillard reproduce --only booster --only bernoulli --trials 1000 --output more
    """  # noqa: D301  # click looks for this very character
    try:
        from maillard.reproduction import Settings
        from maillard.reproduction import reproduce as run
    except ImportError as error:
        raise MaillardError(f"reproduce needs {error.name}: pip install 'maillard[reproduction]'") from None
    settings = Settings(trials, horizon, seed, only, quick, full)
    try:
        report = run(output, settings, threads=threads, show=progress, fork=True)
    except KeyboardInterrupt:
        click.echo("maillard: stopped; the same command goes on from here", err=True)
        raise SystemExit(130) from None
    _print_claims(report.claims)
    click.echo(f"\n{output / 'index.html'}")


def _print_claims(claims: Sequence[Any]) -> None:
    """A line for each, cut at the terminal's width."""
    console = Console(highlight=False)
    width = max(len(row.id) for row in claims)
    styles = {"holds": "green", "fails": "red", "open": "yellow"}
    for row in claims:
        if row.verdict != "not run":
            verdict = (f"{row.verdict:8}", styles.get(row.verdict, "dim"))
            line = Text.assemble(verdict, f"{row.id:{width}}  ", (row.statistic, "dim"))
            console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    left = sum(row.verdict == "not run" for row in claims)
    if left:
        console.print(f"{left} not run", style="dim")


@contextlib.contextmanager
def _executor(scheduler: str | None) -> Iterator[Any]:
    """The workers of a Dask cluster, or None."""
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise MaillardError("--scheduler needs Dask: pip install 'maillard[distributed]'") from None
    try:
        client = Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        reason = f"the address of a Dask scheduler that answers ({error})"
        raise InvalidValue("--scheduler", scheduler, reason) from None
    with client:
        yield client.get_executor()


def _print_summary(result: maillard.Result) -> None:
    rows = result.summary()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("policy", no_wrap=True)
    for name in list(rows[0])[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["policy"],
            *(f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}" for value in list(row.values())[1:]),
        )
    facts = result.provenance
    rounds = facts["trials"] * facts["horizon"] * len(rows)
    console = Console()
    console.print(table)
    console.print(
        f"\nfinal {result.measure} on {facts['problem'][:60]}: {facts['trials']:,} trials of {facts['horizon']:,} rounds, seed "
        f"{facts['seed']}, {facts['seconds']:.2f} s ({1e9 * facts['seconds'] / rounds:,.0f} ns a round)",
        style="dim",
        highlight=False,
    )


# The columns for a terminal of 80.
_HEADERS = (
    "policy",
    "sub-\nUCB",
    "asympt.\noptimal",
    "minimax\nratio",
    "any-\ntime",
    "closed\nform",
    "source",
)


def describe(cls: type[Policy]) -> dict[str, Any]:
    """All that is known of a policy, as data."""
    return {
        "name": cls.name,
        "class": cls.__name__,
        "summary": _summary(cls),
        "formula": cls.formula,
        "probabilities": cls.probability_kind,
        "parameters": [
            {"name": name, "default": default, "meaning": parameter.meaning, "allowed": parameter.allowed}
            for name, parameter, default in cls.parameters()
        ],
        "reference": cls.reference,
        "guarantees": dataclasses.asdict(cls.guarantees),
    }


def markdown_table(chosen: list[type[Policy]]) -> str:
    """The table of policies in Markdown."""
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *(table_row(cls) for cls in chosen)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _print_table(chosen: list[type[Policy]]) -> None:
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    rows = [table_row(cls) for cls in chosen]
    left = console.width
    for place, header in enumerate(_HEADERS[:-1]):
        width = max(len(text) for text in (*header.split("\n"), *(row[place] for row in rows)))
        table.add_column(header, justify="center" if place else "left", no_wrap=True, width=width)
        left -= width + 1
    # Only sources give way on a narrow terminal.
    table.add_column(_HEADERS[-1], no_wrap=True, overflow="ellipsis", width=max(left, 6))
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell[:1], "")) for cell in row))
    console.print(table)
    console.print(
        "\n✓ proved  ✗ not the case  ✗* might hold  blank: not reported  † with a condition\n"
        "maillard policies NAME explains one.",
        style="dim",
    )


def _explain(cls: type[Policy]) -> None:
    console = Console(highlight=False)
    console.print(Text.assemble((cls.name, "bold"), f"  {cls.__name__}"))
    console.print(Text(_summary(cls)))
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_row("formula", Text(cls.formula))
    facts.add_row("probabilities", cls.probability_kind)
    low, high = cls.support
    if low > -float("inf"):
        facts.add_row("rewards", f"from {low:g} to {high:g}")
    for column, cell in list(zip(COLUMNS, table_row(cls), strict=True))[1:-1]:
        facts.add_row(column, Text(cell or "not reported", style=_STYLES.get(cell[:1], "")))
    if cls.guarantees.note:
        facts.add_row("note", Text(cls.guarantees.note))
    facts.add_row("reference", Text(cls.reference))
    facts.add_row("source", Text(cls.guarantees.source))
    console.print(facts)
    if cls.parameters():
        console.print()
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column in ("parameter", "default", "allowed", "meaning"):
            table.add_column(column, no_wrap=column == "parameter")
        for name, parameter, default in cls.parameters():
            shown = "" if default is None else str(default)
            table.add_row(name, shown, Text(parameter.allowed), Text(parameter.meaning))
        console.print(table)
    console.print(Text(f"\nexample: maillard.policy({_example(cls)})", style="dim"))


def _example(cls: type[Policy]) -> str:
    needed = [f"{name}=..." for name, _, default in cls.parameters() if default is None]
    return ", ".join([repr(cls.name), *needed])


def _summary(cls: type[Policy]) -> str:
    paragraphs = (cls.__doc__ or "").split("\n\n")
    return " ".join(paragraphs[0].split())


_STYLES = {"✓": "green", "✗": "red"}


def _run_file(path: Path) -> None:
    """Import a user's file, so that the policies in it register."""
    name = f"maillard_load_{path.stem}"  # not the bare stem: a file called json.py is not json
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidValue("--load", str(path), "a Python file, something.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except MaillardError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's file may fail in any way
        reason = f"a file that runs ({type(error).__name__}: {error})"
        raise InvalidValue("--load", str(path), reason) from None
