"""Commands for off-policy evaluation: evaluate, compare, learn-rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maillard.cli import options
from maillard.cli.options import FILE, JSON, add_options, check_output_file, option, requires_extra
from maillard.cli.terminal import row_progress
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from maillard.evaluation import Segments

_EXIT_REFUSED = 3
LOG = click.argument("log", nargs=-1, required=True)
TAIL = option(
    "--tail",
    "The log that was exported to the folder LOG: its later changes are read from there.",
    metavar="PATH|URL",
)
_PAGE = option("--page", "Also write a report with figures to an .html file.", type=FILE)
FLOOR = option(
    "--floor",
    "The floor=E of the logging policy: every arm had probability >= E / K. Default: from the log.",
    type=float, metavar="E",
)  # fmt: skip
_QUERY_OPTIONS = (
    option(
        "--estimator",
        "Such as snips, aipw-two-point or clipped-ips:5; may be repeated. Default: by the log.",
        dest="estimators", multiple=True, metavar="NAME",
    ),
    options.CONFIDENCE,
    *options.SELECTION,
    options.REWARD_RANGE,
    option(
        "--second-moment",
        "A bound on the mean squared reward of every arm, for heavy tails such as revenue (cs-catoni).",
        type=float,
    ),
    FLOOR,
    option(
        "--adaptive/--not-adaptive",
        "Whether the logging policy adapted to the rewards. Default: yes if its probabilities changed.",
        default=None,
    ),
    option(
        "--cluster",
        "unit: allow for dependence between rows of the same unit; row: all rows are independent. "
        "Default: unit if units repeat and their rewards are alike.",
        type=click.Choice(["unit", "row"]),
    ),
    option(
        "--comparisons",
        "Number of intervals that must be valid together. Default: one for each target; in a comparison of "
        "two arms, one for each pair of arms.",
        type=int,
    ),
    option(
        "--running/--finished",
        "Whether the experiment is still running, so that intervals must be valid at any time. Default: "
        "running if LOG is a database and the experiment is not archived.",
        dest="active", default=None,
    ),
    option("--all-epochs", "Pool all epochs. Default: only the last one.", is_flag=True),
    option("--min-effective-size", "Refuse an estimate below this effective sample size.", default=30.0),
    option(
        "--max-unsupported",
        "Largest fraction of rows in which the logging policy could not choose the target's arm.",
        default=0.2,
    ),
)  # fmt: skip
_BY = option(
    "--by", "A report for each value of this key of the context; may be repeated. The intervals of all "
    "segments are valid together.",
    multiple=True, metavar="KEY",
)  # fmt: skip
_CONTEXT = (
    option(
        "--context",
        "A column of a table that is a key of the context, if there is no column `context`; may be repeated.",
        multiple=True, metavar="COLUMN",
    ),
    option(
        "--features",
        "A key of the context that the reward model uses as a category; may be repeated. Default: all keys.",
        multiple=True, metavar="KEY",
    ),
)  # fmt: skip
_MODEL = option(
    "--reward-model",
    "Mean reward of each arm, fixed before the log was collected; for dm, dr and related estimators.",
    parse=options.parse_numbers, metavar="ARM=VALUE,...",
)  # fmt: skip
_INTERVAL = option(
    "--interval",
    "Interval of ips and related estimators. bernstein: valid for small samples, but needs "
    "independent rows and bounded weights.",
    type=click.Choice(["normal", "bernstein"]), default="normal",
)  # fmt: skip


def _with_epochs(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of an evaluation, in which --all-epochs means epoch="all"."""
    pooled = settings.pop("all_epochs")
    if pooled and settings["epoch"]:
        raise InvalidValue("--all-epochs", True, "either --all-epochs or --epoch")
    return settings | ({"epoch": "all"} if pooled else {})


class _Target(click.types.StringParamType):
    """A target. The error about a missing one has examples."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:  # noqa: ARG002  # click passes both
        return "For example: --target arm:NAME for each arm, or --target uniform."


@click.command()
@LOG
@option(
    "--target", "arm:NAME, uniform, dist:NAME=PROBABILITY,..., rule:KEY=VALUE->ARM,...,else->ARM, "
    "linear:{...}, logged, frozen:STATE or rank:NUMBER; may be repeated.",
    dest="targets", multiple=True, required=True, type=_Target(), metavar="TARGET",
)  # fmt: skip
@add_options(TAIL, _BY, *_CONTEXT, *_QUERY_OPTIONS, _MODEL, _INTERVAL, JSON, _PAGE)
def evaluate(
    *, log: tuple[str, ...], tail: str | None, as_json: bool, page: Path | None, **settings: Any
) -> None:
    """Estimate the mean reward if TARGET had made the decisions in LOG.

    LOG is a SQLite log, a postgresql:// URL, a .parquet, .csv, .dsjson or .npz file, several .parquet files,
    a folder of .parquet files, or a folder that `maillard export --since-last` has written.

    \b
    maillard evaluate decisions.db --target arm:blue --target uniform
    maillard evaluate clicks/ --target dist:red=0.7,blue=0.3 --columns arm=item_id,reward=click --json
    maillard evaluate exported/ --tail decisions.db --target arm:blue
    maillard evaluate decisions.parquet --target 'rule:device=phone->blue,else->red' --by device

    A rule chooses an arm by the context: the first clause decides whose conditions (KEY=VALUE, KEY<NUMBER,
    KEY>=NUMBER, joined by &) all hold; `maillard learn-rule --kind linear` writes linear:{...}. logged is the
    logging policy itself, and frozen:STATE is the policy as it was at that state. If the arms differ at every
    decision, rank:1 is the action that was listed first.

    Exit status: 0 if every target has an estimate (with --by in every segment), 3 if all estimators were
    refused for some target, 2 if the query or the log is invalid. --json prints {"reports": [...]} in the
    order of the targets. Each report has "target", "estimates" by name ("value", "lower", "upper",
    "interval", "assumes", "caveat", "refusal", ...), "refusals" and "diagnostics". With --by, each has
    "segments", a list of {"segment", "rows", "report"}, and "whole", the report for the whole log. Values
    that are not finite are null.
    """  # noqa: D301  # click requires this character
    check_output_file("--page", page, (".html", ".htm"), log)
    _refuse_page(page, settings)
    with requires_extra("evaluate", "evaluation"):
        from maillard.evaluation import evaluate_each

    with row_progress("read") as on_rows:
        reports = evaluate_each(single_or_list(log, tail), on_rows=on_rows, **_with_epochs(settings))
    if as_json:
        echo_json({"reports": [each.to_dict() for each in reports]})
    elif settings["by"] is not None:
        _print_segments(reports)
    else:
        from maillard.cli.output import print_reports

        print_reports(reports)
    _finish(reports, page)


@click.command()
@LOG
@click.argument("first")
@click.argument("second")
@add_options(
    TAIL,
    _BY,
    *_CONTEXT,
    *_QUERY_OPTIONS,
    option(
        "--penalty",
        "Penalty of w-decorrelation, which requires it. Choose it without looking at the rewards.",
        type=float,
    ),
    JSON,
    _PAGE,
)
def compare(
    *,
    log: tuple[str, ...],
    tail: str | None,
    first: str,
    second: str,
    as_json: bool,
    page: Path | None,
    **settings: Any,
) -> None:
    """Estimate the difference in mean reward between the targets FIRST and SECOND.

    LOG and the targets are as in `maillard evaluate`. If the interval lies above 0, FIRST is better.

    \b
    maillard compare decisions.db arm:blue arm:red
    maillard compare decisions.parquet 'rule:device=phone->blue,else->red' arm:red --by country
    maillard compare news.db logged rank:1

    Exit status: 0 if there is an estimate, 3 if all estimators were refused, 2 if the query or the log is
    invalid. --json prints an object with the "estimates" of the difference, "refusals", and the reports
    "first" and "second".
    """  # noqa: D301  # click requires this character
    check_output_file("--page", page, (".html", ".htm"), log)
    _refuse_page(page, settings)
    with requires_extra("compare", "evaluation"):
        from maillard.evaluation import compare as run

    with row_progress("read") as on_rows:
        found = run(single_or_list(log, tail), first, second, on_rows=on_rows, **_with_epochs(settings))
    if as_json:
        echo_json(found.to_dict())
    elif settings["by"] is not None:
        _print_segments([found])
    else:
        from maillard.cli.output import print_comparison

        print_comparison(found)
    _finish(found, page)


@click.command("learn-rule")
@LOG
@option(
    "--key", "A key of the context that the rule may use; may be repeated. Default: all keys, at most 8.",
    dest="keys", multiple=True, metavar="KEY",
)  # fmt: skip
@option(
    "--kind", "tree: conditions on the keys; linear: the arm with the largest linear score.",
    type=click.Choice(["tree", "linear"]), default="tree",
)  # fmt: skip
@option("--depth", "Conditions that a tree may combine: 0, 1 or 2.", default=2)
@option(
    "--split",
    "Learn from the first decisions (order), or from some of the units (unit). Default: unit if they repeat.",
    type=click.Choice(["order", "unit"]),
)  # fmt: skip
@option("--fraction", "Fraction of the decisions, or of the units, to learn from.", default=0.5)
@option("--min-rows", "Smallest number of decisions in each part of the rule.", default=50)
@add_options(TAIL, *_CONTEXT, *_QUERY_OPTIONS, JSON)
def learn_rule(*, log: tuple[str, ...], tail: str | None, as_json: bool, **settings: Any) -> None:
    """Learn a rule that chooses an arm by the context, and evaluate it on decisions that were not used.

    The rule is the best tree with one condition and one more on either side, or with --kind linear the arm
    with the largest linear score. It is learned from a part of LOG, and its value is estimated from the other
    part, also minus that of the best single arm. The rule is a target of `maillard evaluate`.

    \b
    maillard learn-rule decisions.parquet --key device --key age
    maillard learn-rule decisions.parquet --key device --key age --kind linear

    Exit status: as for `maillard evaluate`. --json prints an object with "rule", "description", "report" and
    "comparison".
    """  # noqa: D301  # click requires this character
    with requires_extra("learn-rule", "evaluation"):
        from maillard.evaluation import learn_rule as run

    with row_progress("read") as on_rows:
        found = run(single_or_list(log, tail), on_rows=on_rows, **_with_epochs(settings))
    if as_json:
        echo_json(found.to_dict())
    else:
        from maillard.cli.output import print_rule

        print_rule(found)
    _finish([found.report], None)


def single_or_list(log: tuple[str, ...], tail: str | None = None) -> str | list[str]:
    """The log as `read_log` takes it: one path, several, or a folder and its live log."""
    if tail is not None:
        _check_tail(log, tail)
        return [*log, tail]
    return log[0] if len(log) == 1 else list(log)


def _check_tail(log: tuple[str, ...], tail: str) -> None:
    from maillard.decisions.files.export_folders import is_export
    from maillard.decisions.log_locations import redact

    if len(log) != 1 or not is_export(Path(log[0])):
        allowed = "one LOG that is a folder, as `maillard export --since-last` writes it"
        raise InvalidValue(f"--tail {redact(tail)}: LOG", " ".join(map(redact, log)), allowed)


def echo_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def _refuse_page(page: Path | None, settings: Mapping[str, Any]) -> None:
    if page is not None and settings["by"] is not None:
        raise InvalidValue("--page", str(page), "no page together with --by; use --json")


def _print_segments(found: Sequence[Segments[Any]]) -> None:
    from maillard.cli.output import print_segments

    print_segments(found)


def _finish(found: Any, page: Path | None) -> None:
    """Write the page, and exit with a status of its own if all estimators were refused for a target."""
    if page is not None:
        from maillard import __version__
        from maillard.evaluation.evaluation_page import write_page

        write_page(found, page, {"made with": f"maillard {__version__}"})
        click.echo(f"wrote {page}", err=True)
    for each in found if isinstance(found, list) else [found]:
        # A result by segment has the results of the segments as values.
        results = [each] if hasattr(each, "estimates") else each.values()
        if not all(result.answered for result in results):
            raise SystemExit(_EXIT_REFUSED)
