"""The command that removes old decisions: prune."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

from maillard.cli.options import BEFORE, EXPERIMENT, FORMAT, option
from maillard.cli.terminal import row_progress


@click.command()
@click.argument("log")
@BEFORE
@option(
    "--exported", "The folder that LOG was exported to. Only decisions in it are removed.",
    metavar="FOLDER", required=True,
)  # fmt: skip
@EXPERIMENT
@option("--dry-run", "Check everything and print what would be removed, but remove nothing.", is_flag=True)
@FORMAT
def prune(log: str, *, dry_run: bool, form: str, **options: Any) -> None:
    """Remove old decisions from LOG, a SQLite log or a postgresql:// URL. The state and the hash chain stay.

    Only the first commits of LOG are removed: those whose decisions were made before TIME, are in FOLDER, and
    have final rewards. They are verified first, and the files in FOLDER are compared with its manifest.
    `maillard verify` accepts the rest. The idempotency keys of removed decisions are forgotten, and later
    rewards of them are refused.

    \b
    maillard prune decisions.db --before 2026-01-01 --exported exports
    maillard prune decisions.db --before 2026-01-01 --exported exports --dry-run
    """  # noqa: D301  # click requires this character
    from maillard.decisions import prune as run

    with row_progress("verified") as on_rows:
        found = run(log, dry_run=dry_run, on_rows=on_rows, **options)
    if form == "json":
        click.echo(json.dumps(dataclasses.asdict(found), indent=1, ensure_ascii=False))
        return
    where = f"{found.source}, experiment {found.experiment!r}"
    if not found.decisions:
        click.echo(f"{where}: no decisions before this time can be removed")
        return
    done = "would be removed" if dry_run else "removed"
    click.echo(f"{where}: {found.decisions:,} decisions {done}, up to commit {found.commit:,}")
    click.echo(f"the hash of this commit, an anchor for verify: {found.hash}")
