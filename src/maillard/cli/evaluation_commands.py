"""Commands that ask a log what other choices would have earned: evaluate, compare, replay; and plan, before there is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from maillard.cli.log_commands import _counting
from maillard.cli.options import (
    CONFIDENCE,
    JSON,
    REWARD_RANGE,
    SELECTION,
    check_file,
    give,
    naming_extra,
    numbers,
    showing_runs,
)
from maillard.errors import InvalidValue

__all__ = ["compare", "evaluate", "plan", "replay"]

_REFUSED = 3
_LOG = click.argument("log", nargs=-1, required=True)
_PAGE = click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a report with figures too, as one .html file.",
)
_FIGURE = click.option(
    "--figure", type=click.Path(dir_okay=False, path_type=Path), help="Draw it too, as .png or .svg."
)
_ASKED = (
    click.option(
        "--estimator", "estimators", multiple=True, metavar="NAME",
        help="Such as snips, aipw-two-point, cs-betting or clipped-ips:5; may be repeated. By default those that suit the log.",
    ),
    CONFIDENCE,
    *SELECTION,
    REWARD_RANGE,
    click.option(
        "--floor", type=float, metavar="E",
        help="As in a policy's floor=E, fixed before logging: every one of K arms had at least E / K. By default what the log says.",
    ),
    click.option(
        "--adaptive/--not-adaptive", default=None,
        help="Whether the log was learned from while it grew; by default, if its probabilities changed.",
    ),
    click.option("--cluster", type=click.Choice(["unit"]), help="Rows of a unit may depend on each other."),
    click.option(
        "--min-effective-size", type=float, default=30.0, show_default=True, help="Below this an answer is refused."
    ),
    click.option(
        "--max-unsupported", type=float, default=0.2, show_default=True,
        help="In what share of the rows the target's choice may have been impossible.",
    ),
)  # fmt: skip
_MODEL = click.option(
    "--reward-model", callback=numbers, metavar="ARM=VALUE,...",
    help="What each arm was believed to give, before the log; for dm, dr and their kin.",
)  # fmt: skip
_INTERVAL = click.option(
    "--interval", type=click.Choice(["normal", "bernstein"]), default="normal", show_default=True,
    help="Of ips and its kin: bernstein needs no large numbers, but independent rows and bounded weights.",
)  # fmt: skip


@click.command()
@_LOG
@click.option(
    "--target", "targets", multiple=True, required=True, metavar="TARGET",
    help="arm:NAME, uniform, or dist:NAME=SHARE,...; may be repeated.",
)  # fmt: skip
@give(*_ASKED, _MODEL, _INTERVAL, JSON, _PAGE)
def evaluate(
    *,
    log: tuple[str, ...],
    targets: tuple[str, ...],
    estimators: tuple[str, ...],
    as_json: bool,
    page: Path | None,
    **options: Any,
) -> None:
    """What decisions would have earned, had a TARGET made them.

    LOG is a SQLite log, a postgresql:// URL, a .parquet, .csv, .dsjson or .npz file, several .parquet files, or a folder of them.

    \b
    maillard evaluate decisions.db --target arm:blue --target uniform
    maillard evaluate clicks/ --target dist:red=0.7,blue=0.3 --columns arm=item_id,reward=click --json

    The exit status is 0 if there is an answer for every target, 3 if for some target every estimator was refused, and 2 if the
    question or the log is in error. With --json: {"reports": [...]}, in the order of the targets, each with "target", "estimates" by
    name ("value", "lower", "upper", "interval", "assumes", "caveat", "refusal", ...), "refusals" and "diagnostics"; what is not a number
    is null.
    """  # noqa: D301  # click looks for this very character
    check_file("--page", page, (".html", ".htm"), log)
    with naming_extra("evaluate"):
        from maillard.evaluation import evaluate_each

    with _counting("read") as count:
        reports = evaluate_each(
            _source(log), list(targets), list(estimators) or None, on_rows=count, **options
        )
    if as_json:
        click.echo(_json({"reports": [each.to_dict() for each in reports]}))
    else:
        from maillard.cli.output import print_reports

        print_reports(reports)
    _write_page(reports, page)
    if not all(_answered(each) for each in reports):
        raise SystemExit(_REFUSED)


@click.command()
@_LOG
@click.argument("first")
@click.argument("second")
@give(*_ASKED)
@click.option("--penalty", type=float, help="Of w-decorrelation.")
@give(JSON, _PAGE)
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
    """How much more target FIRST would have earned than SECOND.

    LOG and targets are those of `maillard evaluate`. An interval that is wholly above 0 says that FIRST is better.

    \b
    maillard compare decisions.db arm:blue arm:red

    The exit status is 0 if there is an answer, 3 if every estimator was refused, 2 if the question or the log is in error. With --json:
    an object with the "estimates" of the difference, "refusals", and the reports of "first" and "second".
    """  # noqa: D301  # click looks for this very character
    check_file("--page", page, (".html", ".htm"), log)
    with naming_extra("compare"):
        from maillard.evaluation import compare as run

    with _counting("read") as count:
        found = run(_source(log), first, second, list(estimators) or None, on_rows=count, **options)
    if as_json:
        click.echo(_json(found.to_dict()))
    else:
        from maillard.cli.output import print_comparison

        print_comparison(found)
    _write_page(found, page)
    if not _answered(found):
        raise SystemExit(_REFUSED)


@click.command()
@_LOG
@click.option(
    "--policy", "policies", multiple=True, required=True, metavar="POLICY", help="As a spec; may be repeated."
)
@click.option(
    "--method",
    type=click.Choice(["rejection", "matching", "queues"]),
    help="By default the first that applies.",
)
@click.option("--horizon", type=int, help="Rounds of the curve; by default what the log can give.")
@click.option("--replays", type=int, help="On the same rows, each with random numbers of its own.")
@click.option("--seed", default=0, show_default=True, help="Of those random numbers.")
@click.option(
    "--floor", type=float, metavar="E",
    help="As in a policy's floor=E, fixed before logging: every one of K arms had at least E / K. By default what the log says.",
)  # fmt: skip
@click.option("--guaranteed", type=int, help="How many rewards each arm was to have by design; for queues.")
@click.option(
    "--arm", "arms", multiple=True, metavar="NAME",
    help="What the policy may choose, in this order; may be repeated. By default all.",
)  # fmt: skip
@click.option("--threads", type=int, help="By default one for each core.")
@give(CONFIDENCE, *SELECTION, REWARD_RANGE, JSON, _FIGURE)
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
    """The learning curve that another POLICY would have had.

    Several LOGs are independent experiments with the same arms; each is what `maillard evaluate` reads, and a folder of .parquet files is one.

    \b
    maillard replay decisions.db --policy ms+:booster=16
    maillard replay week1.db week2.db --policy ts --policy kl-ms --figure curves.svg

    With --json: {"replays": [...]}, in the order of the policies.
    """  # noqa: D301  # click looks for this very character
    check_file("--figure", figure, (".png", ".svg"), log)
    with naming_extra("replay"):
        from maillard.evaluation.replays import replay as run
    from maillard.decisions import read_log

    chosen = {name: options.pop(name) for name in ("since", "until", "unit", "epoch", "columns")}
    with _counting("read") as count:
        logs = [read_log(each, experiment, **chosen) for each in log]
        try:
            for each in logs:
                each.on_rows = count
            found = [run(logs, each, arms=list(arms) or None, **options) for each in policies]
        finally:
            for each in logs:
                each.close()
    from maillard.cli.output import curves_of, print_replays

    if as_json:
        click.echo(_json({"replays": [each.to_dict() for each in found]}))
    else:
        print_replays(found)
    _write_figure(lambda: curves_of(found), figure)


@click.command()
@click.argument("problem")
@click.option("--horizon", type=int, required=True, help="Rounds of the experiment.")
@click.option("--policy", default="ms+", show_default=True, help="Under which the floors are put.")
@click.option(
    "--floor", "floors", type=float, multiple=True, metavar="E",
    help="Every arm has at least E / K; may be repeated. By default 0, 0.01, 0.02, 0.05, 0.1 and 0.2.",
)  # fmt: skip
@click.option(
    "--decay", "decays", type=float, multiple=True, metavar="D",
    help="A floor of t^-D / K in round t; may be repeated. By default 0.7, unless floors are given.",
)  # fmt: skip
@click.option(
    "--booster", "boosters", type=float, multiple=True, metavar="B",
    help="May be repeated. By default 1, 4 and 16, where the policy has one.",
)  # fmt: skip
@click.option(
    "--target", "targets", multiple=True, metavar="TARGET",
    help="What the log will be asked for: arm:1, uniform, ...; may be repeated. By default each arm but the best.",
)  # fmt: skip
@click.option("--against", metavar="TARGET", help="Ask for the difference from this one.")
@click.option(
    "--estimator", default="aipw-two-point", show_default=True, help="That the log will be asked with."
)
@give(CONFIDENCE)
@click.option("--runs", default=200, show_default=True, help="Simulated experiments of each policy.")
@click.option(
    "--seed", default=0, show_default=True, help="With the run's number, all that a run depends on."
)
@click.option("--threads", type=int, help="By default one for each core.")
@click.option(
    "--width", type=float, help="Name the policy with the least regret whose half-width is at most this."
)
@give(JSON, _FIGURE)
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
    """What a floor under the probabilities costs, and buys.

    Regret against the width of intervals, simulated before an experiment. PROBLEM is a guess of the arms, as in `maillard simulate`.

    \b
    maillard plan bernoulli:0.05,0.06,0.04 --horizon 20000
    maillard plan bernoulli:0.5,0.4 --horizon 5000 --floor 0.05 --floor 0.1 --width 0.05 --figure frontier.svg

    With --json: an object with "rows", one for each policy, and "frontier", the policies that no other beats in both.
    """  # noqa: D301  # click looks for this very character
    check_file("--figure", figure, (".png", ".svg"))
    with naming_extra("plan"):
        from maillard.evaluation.planning import plan as run
    from maillard.evaluation.evaluation_report import plain

    if floors or decays:
        options |= {"floors": list(floors), "decays": list(decays)}
    with showing_runs() as progress:
        found = run(
            problem, horizon, target=list(targets) or None, boosters=list(boosters) or None, progress=progress, **options
        )  # fmt: skip
    # Whatever becomes of the width, what was simulated is printed.
    click.echo(_json(plain(found.to_dict())) if as_json else str(found))
    _write_figure(found.figure, figure)
    if width is not None:
        best = found.choose(width)
        click.echo(f"least regret with a half-width of at most {width:g}: {best.policy}", err=as_json)


def _source(log: tuple[str, ...]) -> str | list[str]:
    return log[0] if len(log) == 1 else list(log)


def _answered(found: Any) -> bool:
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
