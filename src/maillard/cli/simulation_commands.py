"""The commands `simulate` and `reproduce`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

import maillard
from maillard.cli.terminal import text_table
from maillard.errors import InvalidValue, MaillardError


@click.command()
@click.argument("specs", metavar="POLICY...", nargs=-1, required=True)
@click.option(
    "--problem", default="gaussian-equal:arms=10", show_default=True, help="The bandit problem, as a spec."
)
@click.option("--horizon", default=20_000, show_default=True, help="Rounds per trial.")
@click.option("--trials", default=200, show_default=True, help="Trials per policy.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    help="Random seed. A trial depends only on the seed, the policy and the trial number.",
)
@click.option(
    "--sigma2",
    type=float,
    help="Reward variance for policies that need it. Default: the variance of the problem.",
)
@click.option("--threads", type=int, help="Number of threads. Default: one per core.")
@click.option("--scheduler", metavar="tcp://...", help="Run on the Dask cluster with this scheduler.")
@click.option(
    "--engine",
    type=click.Choice(["lazy", "direct", "plain"]),
    help="Simulation engine. Default: the fastest exact one.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda", "auto"]),
    default="cpu",
    show_default=True,
    help="cuda: an NVIDIA GPU. auto: a GPU if there is one, otherwise the CPU.",
)
@click.option(
    "--keep",
    type=click.Choice(["trials", "summary"]),
    default="trials",
    show_default=True,
    help="trials: keep the curve and pulls of every trial. summary: keep only summary statistics.",
)
@click.option(
    "--output",
    "outputs",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    help="Write a .npz, .json, .csv, .parquet, .png or .svg file; may be repeated. A figure with "
    "'distributions' in its name shows the distributions of the final regret.",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="Output format."
)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show a progress bar on stderr. Default: only on a terminal.",
)
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
    """Simulate policies on a bandit problem and print their regret.

    \b
    maillard simulate ms+ ts ucb1 --problem gaussian-equal:arms=10 --trials 1000
    maillard simulate ms+:booster=8 kl-ms --problem bernoulli:0.1,0.05 --output curves.png --output result.npz
    maillard simulate ms+ --device cuda --trials 1000000 --keep summary
    """  # noqa: D301  # click looks for this very character
    from maillard.simulation.plans import check_folder
    from maillard.simulation.result_files import FORMATS, SUMMARY_FORMATS, write

    for path in outputs:
        check_folder("--output", path)
        if path.suffix not in FORMATS:
            raise InvalidValue("--output", str(path), "a name that ends in " + ", ".join(FORMATS))
        if keep == "summary" and path.suffix not in SUMMARY_FORMATS:
            raise InvalidValue(
                "--output with --keep summary", str(path), "a name that ends in " + ", ".join(SUMMARY_FORMATS)
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


@click.command()
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="Folder for the report. An earlier report is replaced when the new one is complete.",
)
@click.option(
    "--trials",
    type=int,
    help="Trials of the paper's experiments (default 200); the other experiments scale in proportion.",
)
@click.option(
    "--horizon",
    type=int,
    help="Rounds of the paper's experiments (default 20000); the other experiments scale in proportion.",
)
@click.option(
    "--seed", default=0, show_default=True, help="Random seed. The same seed gives identical results."
)
@click.option(
    "--only", multiple=True, metavar="EXPERIMENT", help="Run only this experiment; may be repeated."
)
@click.option("--quick", is_flag=True, help="Use a tenth of the trials and rounds. Takes seconds.")
@click.option(
    "--full", is_flag=True, help="Run the delay experiment at full size: a million rounds, 100 trials."
)
@click.option("--threads", type=int, help="Number of threads. Default: one per core.")
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show progress on stderr: a bar on a terminal, lines elsewhere.",
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
    """Run the paper's experiments, check its claims, and write a report.

    To resume an interrupted run, repeat the same command.

    \b
    maillard reproduce
    maillard reproduce --only booster --only bernoulli --trials 1000 --output more
    """  # noqa: D301  # click looks for this very character
    try:
        from maillard.reproduction import ReproductionSettings
        from maillard.reproduction import reproduce as run
    except ImportError as error:
        raise MaillardError(f"reproduce needs {error.name}: pip install 'maillard[reproduction]'") from None
    settings = ReproductionSettings(trials, horizon, seed, only, quick, full)
    try:
        report = run(output, settings, threads=threads, show=progress, fork=True)
    except KeyboardInterrupt:
        click.echo("maillard: stopped; repeat the same command to resume", err=True)
        raise SystemExit(130) from None
    _print_claims(report.claims)
    click.echo(f"\n{output / 'index.html'}")


def _print_claims(claims: Sequence[Any]) -> None:
    """Print one line per claim, cut at the width of the terminal."""
    console = Console(highlight=False)
    width = max(len(row.id) for row in claims)
    styles = {"holds": "green", "fails": "red", "open": "yellow"}
    for row in claims:
        if row.verdict != "not run":
            verdict = (f"{row.verdict:8}", styles.get(row.verdict, "dim"))
            line = Text.assemble(verdict, f"{row.id:{width}}  ", (row.statistic, "dim"))
            console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    if not_run := sum(row.verdict == "not run" for row in claims):
        console.print(f"{not_run} not run", style="dim")


@contextlib.contextmanager
def _executor(scheduler: str | None) -> Iterator[Any]:
    """Yield the executor of a Dask cluster; None without a scheduler."""
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
        reason = f"the address of a reachable Dask scheduler ({error})"
        raise InvalidValue("--scheduler", scheduler, reason) from None
    with client:
        yield client.get_executor()


def _print_summary(result: maillard.Result) -> None:
    rows = result.summary()
    table = text_table("policy", right=tuple(list(rows[0])[1:]))
    for row in rows:
        table.add_row(
            row["policy"],
            *(f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}" for value in list(row.values())[1:]),
        )
    run = result.provenance
    rounds = run["trials"] * run["horizon"] * len(rows)
    console = Console()
    console.print(table)
    console.print(
        f"\nfinal {result.measure} on {run['problem'][:60]}: {run['trials']:,} trials of "
        f"{run['horizon']:,} rounds, seed {run['seed']}, {run['seconds']:.2f} s "
        f"({1e9 * run['seconds'] / rounds:,.0f} ns per round)",
        style="dim",
        highlight=False,
    )
