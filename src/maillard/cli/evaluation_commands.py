"""Commands for off-policy evaluation (evaluate, compare, replay) and for planning an experiment (plan)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from maillard.cli.options import (
    CONFIDENCE,
    JSON,
    REWARD_RANGE,
    SELECTION,
    THREADS,
    add_options,
    check_output_file,
    parse_numbers,
    requires_extra,
)
from maillard.cli.terminal import row_progress, run_progress
from maillard.errors import InvalidValue

_EXIT_REFUSED = 3
_LOG = click.argument("log", nargs=-1, required=True)
_PAGE = click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a report with figures to an .html file.",
)
_FIGURE = click.option(
    "--figure",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a figure to a .png or .svg file.",
)
_QUERY_OPTIONS = (
    click.option(
        "--estimator", "estimators", multiple=True, metavar="NAME",
        help="Such as snips, aipw-two-point or clipped-ips:5; may be repeated. Default: by the log.",
    ),
    CONFIDENCE,
    *SELECTION,
    REWARD_RANGE,
    click.option(
        "--floor", type=float, metavar="E",
        help="The floor=E of the logging policy: every arm had probability >= E / K. Default: from the log.",
    ),
    click.option(
        "--adaptive/--not-adaptive", default=None,
        help="Whether the logging policy adapted to the rewards. Default: yes if its probabilities changed.",
    ),
    click.option(
        "--cluster", type=click.Choice(["unit"]), help="Allow for dependence between rows of the same unit."
    ),
    click.option(
        "--min-effective-size", type=float, default=30.0, show_default=True,
        help="Refuse an estimate below this effective sample size.",
    ),
    click.option(
        "--max-unsupported", type=float, default=0.2, show_default=True,
        help="Largest fraction of rows in which the logging policy could not choose the target's arm.",
    ),
)  # fmt: skip
_MODEL = click.option(
    "--reward-model", callback=parse_numbers, metavar="ARM=VALUE,...",
    help="Mean reward of each arm, fixed before the log was collected; for dm, dr and related estimators.",
)  # fmt: skip
_INTERVAL = click.option(
    "--interval", type=click.Choice(["normal", "bernstein"]), default="normal", show_default=True,
    help="Interval of ips and related estimators. bernstein: valid for small samples, but needs "
    "independent rows and bounded weights.",
)  # fmt: skip


@click.command()
@_LOG
@click.option(
    "--target", "targets", multiple=True, required=True, metavar="TARGET",
    help="arm:NAME, uniform, or dist:NAME=PROBABILITY,...; may be repeated.",
)  # fmt: skip
@add_options(*_QUERY_OPTIONS, _MODEL, _INTERVAL, JSON, _PAGE)
def evaluate(
    *,
    log: tuple[str, ...],
    targets: tuple[str, ...],
    estimators: tuple[str, ...],
    as_json: bool,
    page: Path | None,
    **options: Any,
) -> None:
    """Estimate the mean reward if TARGET had made the decisions in LOG.

    LOG is a SQLite log, a postgresql:// URL, a .parquet, .csv, .dsjson or .npz file, several .parquet files,
    or a folder of .parquet files.

    \b
    maillard evaluate decisions.db --target arm:blue --target uniform
    maillard evaluate clicks/ --target dist:red=0.7,blue=0.3 --columns arm=item_id,reward=click --json

    Exit status: 0 if every target has an estimate, 3 if all estimators were refused for some target, 2 if the
    query or the log is invalid. --json prints {"reports": [...]} in the order of the targets. Each report has
    "target", "estimates" by name ("value", "lower", "upper", "interval", "assumes", "caveat", "refusal",
    ...), "refusals" and "diagnostics". Values that are not finite are null.
    """  # noqa: D301  # click requires this character
    check_output_file("--page", page, (".html", ".htm"), log)
    with requires_extra("evaluate", "evaluation"):
        from maillard.evaluation import evaluate_each

    with row_progress("read") as on_rows:
        reports = evaluate_each(
            _single_or_list(log), list(targets), list(estimators) or None, on_rows=on_rows, **options
        )
    if as_json:
        click.echo(_json({"reports": [each.to_dict() for each in reports]}))
    else:
        from maillard.cli.output import print_reports

        print_reports(reports)
    _write_page(reports, page)
    if not all(_has_estimate(each) for each in reports):
        raise SystemExit(_EXIT_REFUSED)


@click.command()
@_LOG
@click.argument("first")
@click.argument("second")
@add_options(*_QUERY_OPTIONS)
@click.option("--penalty", type=float, help="Penalty of w-decorrelation.")
@add_options(JSON, _PAGE)
def compare(
    *,
    log: tuple[str, ...],
    first: str,
    second: str,
    estimators: tuple[str, ...],
    as_json: bool,
    page: Path | None,
    **options: Any,
) -> None:
    """Estimate the difference in mean reward between the targets FIRST and SECOND.

    LOG and the targets are as in `maillard evaluate`. If the interval lies above 0, FIRST is better.

    \b
    maillard compare decisions.db arm:blue arm:red

    Exit status: 0 if there is an estimate, 3 if all estimators were refused, 2 if the query or the log is
    invalid. --json prints an object with the "estimates" of the difference, "refusals", and the reports
    "first" and "second".
    """  # noqa: D301  # click requires this character
    check_output_file("--page", page, (".html", ".htm"), log)
    with requires_extra("compare", "evaluation"):
        from maillard.evaluation import compare as run

    with row_progress("read") as on_rows:
        found = run(_single_or_list(log), first, second, list(estimators) or None, on_rows=on_rows, **options)
    if as_json:
        click.echo(_json(found.to_dict()))
    else:
        from maillard.cli.output import print_comparison

        print_comparison(found)
    _write_page(found, page)
    if not _has_estimate(found):
        raise SystemExit(_EXIT_REFUSED)


@click.command()
@_LOG
@click.option(
    "--policy",
    "policies",
    multiple=True,
    required=True,
    metavar="POLICY",
    help="Policy spec; may be repeated.",
)
@click.option(
    "--method",
    type=click.Choice(["rejection", "matching", "queues"]),
    help="Default: the first method that applies to the log.",
)
@click.option(
    "--horizon", type=int, help="Rounds of the learning curve. Default: as many as the log supports."
)
@click.option("--replays", type=int, help="Number of replays of the same rows with different random numbers.")
@click.option("--seed", default=0, show_default=True, help="Random seed.")
@click.option(
    "--floor", type=float, metavar="E",
    help="The floor=E of the logging policy: every arm had probability >= E / K. Default: from the log.",
)  # fmt: skip
@click.option(
    "--guaranteed", type=int, help="For --method queues: rewards per arm that the design guaranteed."
)
@click.option(
    "--arm", "arms", multiple=True, metavar="NAME",
    help="An arm that the policy may choose; may be repeated, the order matters. Default: all arms.",
)  # fmt: skip
@THREADS
@add_options(CONFIDENCE, *SELECTION, REWARD_RANGE, JSON, _FIGURE)
def replay(
    *,
    log: tuple[str, ...],
    policies: tuple[str, ...],
    arms: tuple[str, ...],
    as_json: bool,
    figure: Path | None,
    experiment: str | None,
    **options: Any,
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

    chosen = {name: options.pop(name) for name in ("since", "until", "unit", "epoch", "columns")}
    with row_progress("read") as on_rows:
        logs = [read_log(each, experiment, **chosen) for each in log]
        try:
            for each in logs:
                each.on_rows = on_rows
            found = [run(logs, each, arms=list(arms) or None, **options) for each in policies]
        finally:
            for each in logs:
                each.close()
    from maillard.cli.output import draw_curves, print_replays

    if as_json:
        click.echo(_json({"replays": [each.to_dict() for each in found]}))
    else:
        print_replays(found)
    _write_figure(lambda: draw_curves(found), figure)


@click.command()
@click.argument("problem")
@click.option("--horizon", type=int, required=True, help="Rounds of the experiment.")
@click.option("--policy", default="ms+", show_default=True, help="Policy to which floors are added.")
@click.option(
    "--floor", "floors", type=float, multiple=True, metavar="E",
    help="Every arm has probability >= E / K; may be repeated. Default: 0, 0.01, 0.02, 0.05, 0.1 and 0.2.",
)  # fmt: skip
@click.option(
    "--decay", "decays", type=float, multiple=True, metavar="D",
    help="A floor of t^-D / K in round t; may be repeated. Default: 0.7, unless floors are given.",
)  # fmt: skip
@click.option(
    "--booster", "boosters", type=float, multiple=True, metavar="B",
    help="Booster to try; may be repeated. Default: 1, 4 and 16, if the policy has this parameter.",
)  # fmt: skip
@click.option(
    "--target", "targets", multiple=True, metavar="TARGET",
    help="Target to evaluate later: arm:1, uniform, ...; may be repeated. Default: each arm except the best.",
)  # fmt: skip
@click.option("--against", metavar="TARGET", help="Estimate the difference from this target.")
@click.option("--estimator", default="aipw-two-point", show_default=True, help="Estimator to use on the log.")
@add_options(CONFIDENCE)
@click.option("--runs", default=200, show_default=True, help="Simulated experiments per policy.")
@click.option(
    "--seed", default=0, show_default=True, help="Random seed. The seed and the index of a run determine it."
)
@THREADS
@click.option(
    "--width", type=float, help="Print the policy with the least regret whose half-width is at most this."
)
@add_options(JSON, _FIGURE)
def plan(
    *,
    problem: str,
    horizon: int,
    as_json: bool,
    figure: Path | None,
    width: float | None,
    targets: tuple[str, ...],
    floors: tuple[float, ...],
    decays: tuple[float, ...],
    boosters: tuple[float, ...],
    **options: Any,
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
        options |= {"floors": list(floors), "decays": list(decays)}
    with run_progress() as progress:
        found = run(
            problem, horizon,
            target=list(targets) or None, boosters=list(boosters) or None, progress=progress, **options,
        )  # fmt: skip
    # Print the result first: choosing by width may fail.
    click.echo(_json(plain(found.to_dict())) if as_json else str(found))
    _write_figure(found.figure, figure)
    if width is not None:
        best = found.choose(width)
        click.echo(f"least regret with a half-width of at most {width:g}: {best.policy}", err=as_json)


def _single_or_list(log: tuple[str, ...]) -> str | list[str]:
    return log[0] if len(log) == 1 else list(log)


def _has_estimate(found: Any) -> bool:
    return any(each.value is not None for each in found.values())


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)


def _write_page(found: Any, path: Path | None) -> None:
    if path is None:
        return
    from maillard import __version__
    from maillard.evaluation.evaluation_page import write_page

    write_page(found, path, {"made with": f"maillard {__version__}"})
    click.echo(f"wrote {path}", err=True)


def _write_figure(draw: Callable[[], Any], path: Path | None) -> None:
    if path is None:
        return
    from maillard import figures

    try:
        figures.save(draw(), path)
    except OSError as error:
        raise InvalidValue("--figure", str(path), f"a file that can be written ({error.strerror})") from None
    click.echo(f"wrote {path}", err=True)
