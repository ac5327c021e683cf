"""Commands for learning curves of other policies (replay) and for planning an experiment (plan)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from maillard.cli import options
from maillard.cli.evaluation_commands import FLOOR, LOG, TAIL, echo_json, single_or_list
from maillard.cli.options import FILE, JSON, add_options, check_output_file, option, requires_extra
from maillard.cli.terminal import progress, row_progress
from maillard.errors import InvalidValue

_FIGURE = option("--figure", "Also write a figure to a .png or .svg file.", type=FILE)


@click.command()
@LOG
@option(
    "--policy", "Policy spec; may be repeated.",
    dest="policies", multiple=True, required=True, metavar="POLICY",
)  # fmt: skip
@option(
    "--method", "Default: the first method that applies to the log.",
    type=click.Choice(["rejection", "matching", "queues"]),
)  # fmt: skip
@option("--horizon", "Rounds of the learning curve. Default: as many as the log supports.", type=int)
@option("--replays", "Number of replays of the same rows with different random numbers.", type=int)
@option("--seed", "Random seed.", default=0)
@FLOOR
@option("--guaranteed", "For --method queues: rewards per arm that the design guaranteed.", type=int)
@option(
    "--arm", "An arm that the policy may choose; may be repeated, the order matters. Default: all arms.",
    dest="arms", multiple=True, metavar="NAME",
)  # fmt: skip
@add_options(
    TAIL, options.THREADS, options.CONFIDENCE, *options.SELECTION, options.REWARD_RANGE, JSON, _FIGURE
)
def replay(
    *,
    log: tuple[str, ...],
    tail: str | None,
    policies: list[str],
    as_json: bool,
    figure: Path | None,
    experiment: str | None,
    **settings: Any,
) -> None:
    """Estimate the learning curve of another POLICY from LOG.

    Several LOGs are independent experiments with the same arms. Each is a log as in `maillard evaluate`; a
    folder of .parquet files is one log.

    \b
    maillard replay decisions.db --policy ms+:booster=16
    maillard replay week1.db week2.db --policy ts --policy kl-ms --figure curves.svg

    --json prints {"replays": [...]} in the order of the policies.
    """  # noqa: D301  # click requires this character
    check_output_file("--figure", figure, (".png", ".svg"), log)
    with requires_extra("replay", "evaluation"):
        from maillard.evaluation.replays import replay as run
    from maillard.decisions import read_log

    chosen = {name: settings.pop(name) for name in ("since", "until", "unit", "epoch", "columns")}
    with row_progress("read") as on_rows, contextlib.ExitStack() as stack:
        sources = log if tail is None else [single_or_list(log, tail)]
        logs = [stack.enter_context(read_log(each, experiment, **chosen)) for each in sources]
        for each in logs:
            each.on_rows = on_rows
        found = [run(logs, each, **settings) for each in policies]
    from maillard.cli.output import draw_curves, print_replays

    if as_json:
        echo_json({"replays": [each.to_dict() for each in found]})
    else:
        print_replays(found)
    _write_figure(lambda: draw_curves(found), figure)


@click.command()
@click.argument("problem")
@option("--horizon", "Rounds of the experiment.", type=int, required=True)
@option("--policy", "Policy to which floors are added.", default="ms+")
@option(
    "--floor",
    "Every arm has probability >= E / K; may be repeated. Default: 0, 0.01, 0.02, 0.05, 0.1 and 0.2.",
    dest="floors", type=float, multiple=True, metavar="E",
)  # fmt: skip
@option(
    "--decay", "A floor of t^-D / K in round t; may be repeated. Default: 0.7, unless floors are given.",
    dest="decays", type=float, multiple=True, metavar="D",
)  # fmt: skip
@option(
    "--booster", "Booster to try; may be repeated. Default: 1, 4 and 16, if the policy has this parameter.",
    dest="boosters", type=float, multiple=True, metavar="B",
)  # fmt: skip
@option(
    "--target",
    "Target to evaluate later: arm:1, uniform, ...; may be repeated. Default: each arm except the best.",
    multiple=True, metavar="TARGET",
)  # fmt: skip
@option("--against", "Estimate the difference from this target.", metavar="TARGET")
@option("--estimator", "Estimator to use on the log. Default: the one that evaluate recommends (slower).")
@option("--active", "Evaluate as if the experiment were still running.", is_flag=True)
@options.CONFIDENCE
@option("--runs", "Simulated experiments per policy.", default=200)
@option("--seed", "Random seed. The seed and the index of a run determine it.", default=0)
@options.THREADS
@option("--width", "Print the policy with the least regret whose half-width is at most this.", type=float)
@add_options(JSON, _FIGURE)
def plan(
    *,
    as_json: bool,
    figure: Path | None,
    width: float | None,
    floors: list[float] | None,
    decays: list[float] | None,
    **settings: Any,
) -> None:
    """Simulate what a probability floor costs in regret and gains in precision.

    Run this before an experiment. PROBLEM is a guess of the arms' rewards, as in `maillard simulate`.

    \b
    maillard plan bernoulli:0.05,0.06,0.04 --horizon 20000
    maillard plan bernoulli:0.5,0.4 --horizon 5000 --floor 0.05 --floor 0.1 --width 0.05 --figure frontier.svg

    --json prints an object with "rows", one per policy, and "frontier", the policies that no other policy
    beats in both regret and width.
    """  # noqa: D301  # click requires this character
    check_output_file("--figure", figure, (".png", ".svg"))
    with requires_extra("plan", "evaluation"):
        from maillard.evaluation.planning import plan as run
    from maillard.evaluation.evaluation_report import plain

    if floors or decays:
        settings |= {"floors": floors or [], "decays": decays or []}
    with progress("compiling", "{:,} of {:,} runs") as on_runs:
        found = run(progress=on_runs, **settings)
    # Print the result first: choosing by width may fail.
    if as_json:
        echo_json(plain(found.to_dict()))
    else:
        click.echo(str(found))
    _write_figure(found.plot, figure)
    if width is not None:
        best = found.choose(width)
        click.echo(f"least regret with a half-width of at most {width:g}: {best.policy}", err=as_json)


def _write_figure(draw: Callable[[], Any], path: Path | None) -> None:
    if path is None:
        return
    from maillard import figures

    try:
        figures.save(draw(), path)
    except OSError as error:
        raise InvalidValue("--figure", str(path), f"a file that can be written ({error.strerror})") from None
    click.echo(f"wrote {path}", err=True)
