"""Commands for decision logs: verify, head, export, import, backup, erase-unit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from maillard.cli.options import COLUMNS, EXPERIMENT, FILE, FORMAT, TIMES, add_options, option
from maillard.cli.terminal import VERDICT_STYLES, row_progress, text_table
from maillard.errors import InvalidValue
from maillard.short_reprs import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from maillard.decisions import Verification
    from maillard.decisions.chain_verification import ChainReport

# The attributes of a Verification that are printed as JSON without conversion.
_PLAIN_FIELDS = (
    "verdict", "experiment", "source", "decisions", "recomputed", "not_audited", "largest_error",
    "problem_count", "audit_verdict", "limit", "seeded", "simulated_clock", "verified_before", "notes",
)  # fmt: skip


_CHOSEN_ONLY = (
    "only the probability of the chosen arm is known, not that of every arm\n"
    "`maillard evaluate` prints the mean weight of a target: if these probabilities are right, it is close\n"
    "to 1 for every arm (arm:NAME); in other targets, errors of several arms may cancel"
)


class _FileFormat(click.Choice):  # type: ignore[type-arg]  # not generic in click 8.1
    """The name of a file format. Its table is imported only when a command needs it."""

    def __init__(self) -> None:
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]  # an attribute of click.Choice
        from maillard.decisions.files.file_formats import FORMATS

        return tuple(FORMATS)


@click.command()
@click.argument("log")
@EXPERIMENT
@option(
    "--anchor", "A hash that `maillard head` printed earlier: LOG must extend the log of that time.",
    metavar="HASH",
)  # fmt: skip
@option(
    "--checkpoint", "Verify only what is new since the run that wrote FILE, and update FILE.", type=FILE,
)  # fmt: skip
@COLUMNS
@FORMAT
def verify(
    *,
    log: str,
    experiment: str | None,
    anchor: str | None,
    checkpoint: Path | None,
    columns: dict[str, str] | None,
    form: str,
) -> None:
    """Recompute every probability in LOG and test whether the choices agree with them.

    LOG is a SQLite log, a postgresql:// URL, or a file: an export, or a table of another program. A log in a
    database has a hash chain, which shows whether rows were deleted, added or changed. The verdict is
    "consistent", "broken", "not enough data" or "cannot be audited" (a table with only the probabilities of
    the chosen arms). The exit status is 1 if the log is broken, otherwise 0, even if it cannot be audited.

    \b
    maillard verify decisions.db
    maillard verify decisions.db --checkpoint verified.json
    maillard verify decisions.parquet --format json
    maillard verify clicks.csv --columns arm=item_id,reward=click,probability=propensity
    """  # noqa: D301  # click requires this character
    from maillard.decisions import verify as run

    with row_progress("verified") as on_rows:
        found = run(log, experiment, anchor=anchor, checkpoint=checkpoint, columns=columns, on_rows=on_rows)
    if form == "json":
        click.echo(json.dumps(_to_json(found), indent=1, ensure_ascii=False))
    else:
        _print(found)
    if found.verdict == "broken":
        raise SystemExit(1)


@click.command()
@click.argument("log")
@EXPERIMENT
@FORMAT
def head(log: str, experiment: str | None, form: str) -> None:
    """Print the end of the hash chain of LOG, a path or a postgresql:// URL.

    Store the hash in another place, which people who can change LOG cannot change. Later, `maillard verify
    --anchor HASH LOG` tells whether LOG still contains everything that it contains now.

    \b
    maillard head decisions.db
    maillard head postgresql://localhost/shop --experiment home --format json
    """  # noqa: D301  # click requires this character
    from contextlib import closing

    from maillard.decisions.chain import head_of
    from maillard.decisions.log import select_experiment
    from maillard.decisions.stores import open_store
    from maillard.decisions.timestamps import from_microseconds

    with closing(open_store(log, create=False, read_only=True)) as store:
        name = select_experiment(store.experiments(), experiment, store.where)
        with store.reading(name) as transaction:
            found = head_of(transaction.last_link())
    time = None if found.time is None else from_microseconds(found.time).isoformat()
    if form == "json":
        data = {"experiment": name, "commit": found.commit, "hash": found.hash, "time": time}
        click.echo(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        click.echo(f"{found.hash}  {name!r}: commit {found.commit:,}, {time or 'none yet'}")


@click.command()
@click.argument("log")
@click.argument("target", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@option(
    "--format", "File format. Default: by the ending of FILE: .parquet, .csv, .npz (obp), .dsjson.",
    dest="form", type=_FileFormat(),
)  # fmt: skip
@option(
    "--since-last", "Add what has changed since the last export to FOLDER, as Parquet files by day.",
    is_flag=True,
)  # fmt: skip
@add_options(
    EXPERIMENT,
    *TIMES,
    option("--from-state", "Only decisions made in state N or a later one.", type=int, metavar="N"),
    option("--to-state", "Only decisions made in state N or an earlier one.", type=int, metavar="N"),
)
def export(
    *, log: str, target: Path, experiment: str | None, form: str | None, since_last: bool, **part: Any
) -> None:
    """Write the decisions of LOG, a path or a postgresql:// URL, to FILE, or their changes to FOLDER.

    FILE may replace an earlier export with one of these endings, but never LOG itself. With --since-last, the
    first export to FOLDER writes all decisions; later ones add the decisions that are new or have new
    rewards. `maillard evaluate FOLDER` reads it.

    \b
    maillard export decisions.db decisions.parquet
    maillard export decisions.db march.parquet --since 2026-03-01 --until 2026-04-01
    maillard export postgresql://localhost/shop home.npz --experiment home
    maillard export decisions.db exported/ --since-last
    """  # noqa: D301  # click requires this character
    if since_last:
        _export_changes(log, target, experiment, form=form, **part)
        return
    from maillard.decisions import read_log, write_log

    with read_log(log, experiment, **part) as opened, row_progress("written") as opened.on_rows:
        rows, left_out = write_log(opened, target, form)
    note = f"; {left_out:,} without a reward left out" if left_out else ""
    click.echo(f"{target}: {rows:,} decisions of {opened.experiment!r}{note}")


def _export_changes(log: str, folder: Path, experiment: str | None, **others: Any) -> None:
    for name, value in others.items():
        if value is not None:
            option_name = {"form": "--format"}.get(name, f"--{name.replace('_', '-')}")
            raise InvalidValue(option_name, value, "no such option together with --since-last")
    from maillard.decisions import export_changes

    with row_progress("written") as on_rows:
        found = export_changes(log, folder, experiment, on_rows=on_rows)
    files = "1 file" if found.files == 1 else f"{found.files:,} files"
    changed = f"{found.rows:,} new or changed decisions of {found.experiment!r} in {files}"
    click.echo(f"{found.folder}: {changed}, up to commit {found.commit:,}")


@click.command("import")
@click.argument("file")
@click.argument("log")
@option("--experiment", "Name of the experiment in LOG. Default: its name in FILE.", metavar="NAME")
def import_(file: str, log: str, experiment: str | None) -> None:
    """Copy the exported log FILE into LOG, a path or a postgresql:// URL. The experiment can continue there.

    \b
    maillard import decisions.parquet decisions.db
    """  # noqa: D301  # click requires this character
    from maillard.decisions import read_log
    from maillard.decisions.files.store_transfer import write

    with read_log(file) as opened, row_progress("read") as opened.on_rows:
        name = experiment or opened.experiment
        rows, store = write(opened, log, name)
    click.echo(f"{store}: {rows:,} decisions of {name!r}")


@click.command()
@click.argument("log")
@click.argument("file", type=FILE)
def backup(log: str, file: Path) -> None:
    """Copy the SQLite log LOG to the new file FILE, and check the copy. A service may be using LOG.

    FILE has everything that was acknowledged before the backup began. Only its owner can read it. To restore
    a backup, stop the service, move the old files away, and copy in the other direction.

    \b
    maillard backup maillard.db backups/monday.db
    maillard backup backups/monday.db maillard.db
    """  # noqa: D301  # click requires this character
    from maillard.decisions.backup import back_up

    made = back_up(log, file)
    experiments = f"{made.experiments:,} experiment{'' if made.experiments == 1 else 's'}"
    click.echo(f"{file}: {made.decisions:,} decisions of {experiments}, {made.size / 1e6:,.1f} MB")


@click.command("erase-unit")
@click.argument("log")
@click.argument("unit")
@EXPERIMENT
def erase_unit(log: str, unit: str, experiment: str | None) -> None:
    """Replace the name of UNIT in LOG, and the idempotency keys of its decisions, by a random token.

    LOG is a SQLite log or a postgresql:// URL. Without --experiment, UNIT is erased from all experiments.
    Exports that were made before still contain the name.

    \b
    maillard erase-unit decisions.db user-17
    """  # noqa: D301  # click requires this character
    from contextlib import closing

    from maillard.decisions import Bandit
    from maillard.decisions.stores import open_store

    with closing(open_store(log, create=False)) as store:
        for name in store.experiments() if experiment is None else [experiment]:
            count = Bandit(log=store, experiment=name).erase_unit(unit)
            click.echo(f"{store.where}: {count:,} decisions of {name!r} changed")


def _to_json(found: Verification) -> dict[str, Any]:
    scores = [*found.arms, *([found.weights] if found.weights else [])]
    return {
        **{name: getattr(found, name) for name in _PLAIN_FIELDS},
        "not_recomputed": dict(found.not_recomputed),
        "chain": None if found.chain is None else dataclasses.asdict(found.chain),
        "problems": [dataclasses.asdict(problem) for problem in found.problems],
        "scores": [{**dataclasses.asdict(score), "z": score.z} for score in scores],
    }


def _print_chain(chain: ChainReport, echo: Callable[..., None]) -> None:
    echo(f"hash chain: {chain.commits:,} commits, head {chain.head}")
    if chain.pruned is not None:
        part = f"{chain.pruned.decisions:,} decisions up to commit {chain.pruned.commit:,} were pruned"
        echo(f"{part}; the hash of this commit is {chain.pruned.hash}", "dim")
    if chain.anchor is not None:
        echo(f"the log extends the anchor: it is the hash of commit {chain.anchor:,}", "green")
    if chain.erased:
        echo(
            f"{chain.erased:,} decisions have an erased unit; the chain covers the rest of their rows", "dim"
        )
    if chain.unchained:
        echo(f"{chain.unchained:,} decisions were logged before the log had a chain", "yellow")


def _print(found: Verification) -> None:
    console = Console(highlight=False, soft_wrap=True)

    def echo(line: str, style: str | None = None) -> None:
        console.print(Text(printable(line, "\n")), style=style)

    experiment = f", experiment {found.experiment!r}" if found.experiment else ""  # unknown if unreadable
    echo(f"{found.source}{experiment}: {found.decisions:,} decisions\n")
    if found.seeded:
        echo("choices were made with a seed: anyone who knows it can predict them", "yellow")
    if found.simulated_clock:
        echo("times come from a clock that the caller provided", "yellow")
    if found.recomputed:
        largest = f"largest difference {found.largest_error:.2g} (allowed: 1e-12)"
        echo(f"{found.recomputed:,} recomputed from the log; {largest}")
    if found.verified_before:
        echo(f"{found.verified_before:,} of them were verified before, according to the checkpoint", "dim")
    reasons = (f"{count:,} not recomputed: {reason}" for reason, count in found.not_recomputed.items())
    for each in (*reasons, *found.notes):
        echo(each, "yellow")
    if found.chain is not None:
        _print_chain(found.chain, echo)
    if found.audit_verdict == "cannot be audited":
        echo(f"{found.not_audited:,} not audited: {_CHOSEN_ONLY}", "yellow")
    elif found.not_audited:
        reason = "they repeat a sticky assignment, or not all their probabilities are known"
        echo(f"{found.not_audited:,} not audited: {reason}", "dim")
    for problem in found.problems:
        echo(f"{problem.decision or 'the log'}: {problem.what}", "red")
    if found.problem_count > len(found.problems):
        echo(f"... and {found.problem_count - len(found.problems):,} more", "red")
    if found.audit_verdict == "cannot be audited" or not found.arms:
        echo(f"\n{found.verdict}", VERDICT_STYLES[found.verdict])
        return
    table = text_table("arm", right=("chosen", "expected", "z"))
    for score in [*found.arms, *([found.weights] if found.weights else [])]:
        z = "not enough data" if score.z is None else f"{score.z:.2f}"
        style = "red" if score.z is not None and abs(score.z) > found.limit else None
        name = "sum of weights 1/p" if score is found.weights else printable(score.name)
        table.add_row(Text(name), f"{score.observed:,.0f}", f"{score.expected:,.1f}", z, style=style)
    echo("")
    console.print(table)
    echo(f"\nlimit |z| = {found.limit:.2f}: a correct log exceeds it with probability 1 in 10,000", "dim")
    choices_only = found.verdict != "broken" and not found.recomputed
    note = " (only the choices were audited: no probability could be recomputed)" if choices_only else ""
    echo(f"\n{found.verdict}{note}", VERDICT_STYLES[found.verdict])
