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
from maillard.cli.options import FILE, FORMAT, THREADS, option, requires_extra
from maillard.cli.terminal import text_table
from maillard.errors import InvalidValue, MaillardError


@click.command()
@click.argument("specs", metavar="POLICY...", nargs=-1, required=True)
@option("--problem", "The bandit problem, as a spec.", default="gaussian-equal:arms=10")
@option("--horizon", "Rounds per trial.", default=20_000)
@option("--trials", "Trials per policy.", default=200)
@option(
    "--seed",
    "Random seed. A trial does not depend on the threads, the number of trials or the other policies.",
    default=0,
)
@option(
    "--sigma2",
    "Reward variance for policies that need it. Default: the variance of the problem.",
    type=float,
)
@THREADS
@option("--scheduler", "Run on the Dask cluster with this scheduler.", metavar="tcp://...")
@option(
    "--engine",
    "shortlist, lazy: evaluate few arms. dense, leveled: compare all scores of Thompson sampling in vectors. "
    "direct: evaluates all arms each round. plain: calls the policy in Python. All are exact; the default is "
    "the fastest.",
    type=click.Choice(["shortlist", "dense", "leveled", "lazy", "direct", "plain"]),
)
@option(
    "--device", "cuda: an NVIDIA GPU. auto: a GPU if there is one, otherwise the CPU.",
    type=click.Choice(["cpu", "cuda", "auto"]), default="cpu",
)  # fmt: skip
@option(
    "--keep", "trials: keep the curve and pulls of every trial. summary: keep only summary statistics.",
    type=click.Choice(["trials", "summary"]), default="trials",
)  # fmt: skip
@option(
    "--output",
    "Write a .npz, .json, .csv, .parquet, .png or .svg file; may be repeated. A figure with "
    "'distributions' in its name shows the distributions of the final regret.",
    dest="outputs", type=FILE, multiple=True,
)  # fmt: skip
@FORMAT
@option(
    "--progress/--no-progress", "Show a progress bar on stderr. Default: only on a terminal.", default=None
)
def simulate(
    *,
    specs: tuple[str, ...],
    sigma2: float | None,
    scheduler: str | None,
    outputs: list[Path] | None,
    form: str,
    **settings: Any,
) -> None:
    """Simulate policies on a bandit problem and print their regret.

    \b
    maillard simulate ms+ ts ucb1 --problem gaussian-equal:arms=10 --trials 1000
    maillard simulate ms+:booster=8 kl-ms --problem bernoulli:0.1,0.05 --output curves.png --output result.npz
    maillard simulate lin-ms lin-ucb uniform --problem linear:arms=5,dim=4 --horizon 1000
    maillard simulate ms+ --device cuda --trials 1000000 --keep summary
    """  # noqa: D301  # click looks for this very character
    from maillard.simulation.plans import check_folder
    from maillard.simulation.result_files import FORMATS, SUMMARY_FORMATS, write

    outputs, summary = outputs or [], settings["keep"] == "summary"
    for path in outputs:
        check_folder("--output", path)
        endings, mode = (SUMMARY_FORMATS, " with --keep summary") if summary else (FORMATS, "")
        if path.suffix not in endings:
            raise InvalidValue(f"--output{mode}", str(path), "a name that ends in " + ", ".join(endings))
    given = [maillard.policy(spec, sigma2=sigma2) if sigma2 is not None else spec for spec in specs]
    with _executor(scheduler) as executor:
        result = maillard.simulate(given, executor=executor, **settings)
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
@option(
    "--output", "Folder for the report. An earlier report is replaced when the new one is complete.",
    type=click.Path(file_okay=False, path_type=Path), default=Path("reproduction"),
)  # fmt: skip
@option(
    "--trials",
    "Trials of the paper's experiments (default 200); the other experiments scale in proportion.",
    type=int,
)
@option(
    "--horizon",
    "Rounds of the paper's experiments (default 20000); the other experiments scale in proportion.",
    type=int,
)
@option("--seed", "Random seed. The same seed gives identical results.", default=0)
@option("--only", "Run only this experiment; may be repeated.", multiple=True, metavar="EXPERIMENT")
@option("--quick", "Use a tenth of the trials and rounds. Takes seconds.", is_flag=True)
@option("--full", "Run the delay experiment at full size: a million rounds, 100 trials.", is_flag=True)
@THREADS
@option(
    "--progress/--no-progress",
    "Show progress on stderr: a bar on a terminal, lines elsewhere.",
    default=None,
)
def reproduce(
    *, output: Path, only: list[str] | None, threads: int | None, progress: bool | None, **settings: Any
) -> None:
    """Run the paper's experiments, check its claims, and write a report.

    To resume an interrupted run, repeat the same command.

    \b
    maillard reproduce
    maillard reproduce --only booster --only bernoulli --trials 1000 --output more
    """  # noqa: D301  # click looks for this very character
    with requires_extra("reproduce", "reproduction"):
        from maillard.reproduction import ReproductionSettings
        from maillard.reproduction import reproduce as run
    chosen = ReproductionSettings(only=tuple(only or ()), **settings)
    try:
        report = run(output, chosen, threads=threads, show=progress, fork=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; repeat the same command to resume") from None
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
