"""Commands for the decision service: serve, keys, demo."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

import maillard
from maillard.cli.options import JSON, Command, option, requires_extra
from maillard.cli.terminal import text_table
from maillard.errors import InvalidValue, MaillardError
from maillard.short_reprs import printable

if TYPE_CHECKING:
    from maillard.decisions.stores import Store
    from maillard.service.api_keys import Key

_DATABASE = option(
    "--database", "A SQLite file, or a postgresql:// URL.",
    default="maillard.db", envvar="MAILLARD_DATABASE", show_envvar=True, metavar="PATH|URL",
)  # fmt: skip


def _serve_option(name: str, help: str, **settings: Any) -> Callable[[Command], Command]:
    """Make an option of `serve`, with its environment variable: MAILLARD_RATE_LIMIT for --rate-limit."""
    variable = "MAILLARD_" + name.removeprefix("--").replace("-", "_").upper()
    return option(name, help, envvar=variable, show_envvar=True, **settings)


_NUMBERS = {"rate_limit": "requests per second", "job_timeout": "seconds", "drain_delay": "seconds"}
_KEY_COLUMNS = ("id", "name", "scopes", "experiments", "rate", "created", "revoked")
_EXAMPLE = {
    "experiment": "home",
    "arms": ["red", "blue"],
    "reward": {"low": 0, "high": 1, "window": "1h", "default": 0},
}


@click.command()
@_DATABASE
@_serve_option("--host", "Address to listen on.", default="127.0.0.1")
@_serve_option("--port", "0: any free port.", type=click.IntRange(0, 65535), default=8000)
@_serve_option(
    "--workers", "Number of processes; more than one requires PostgreSQL.",
    type=click.IntRange(min=1), default=1,
)  # fmt: skip
@_serve_option("--rate-limit", "Requests per second and caller; 0: no limit.", default=10_000.0)
@_serve_option(
    "--job-timeout", "Seconds that an evaluation or a verification may take; 0: no limit.", default=120.0
)
@_serve_option("--drain-delay", "Seconds to go on after a signal to stop, while /readyz fails.", default=0.0)
@_serve_option(
    "--log-level", "Level of the log on stderr, one JSON object per line.",
    type=click.Choice(["debug", "info", "warning", "error"]), default="info",
)  # fmt: skip
@_serve_option(
    "--export-to", "Add the changes of all experiments to this folder, as Parquet files.", metavar="FOLDER"
)
@_serve_option("--export-every", "Time between exports, such as 15m or 1h.", default="1h", metavar="DURATION")
@_serve_option(
    "--personalizer",
    "Offer the Rank, Reward and Activate calls of Azure Personalizer, for this experiment (default: "
    "personalizer). A new one is created.",
    is_flag=False, flag_value="personalizer", metavar="[EXPERIMENT]",
)  # fmt: skip
@_serve_option(
    "--no-keys", "For development: require no API key, and listen on this machine only.",
    is_flag=True, default=False, show_default=False,
)  # fmt: skip
def serve(*, database: str, workers: int, no_keys: bool, **settings: Any) -> None:
    """Serve decisions over HTTP, with a dashboard.

    \b
    maillard serve
    maillard serve --database postgresql://localhost/shop --workers 4

    Callers need an API key. The first start creates one with the scope admin. On a terminal it is printed
    once, with a link to the dashboard; otherwise it is written to a file that only you can read.
    """  # noqa: D301  # click requires this character
    check_workers(database, workers)
    for name, what in _NUMBERS.items():
        if not 0 <= settings[name] < float("inf"):
            raise InvalidValue(f"--{name.replace('_', '-')}", settings[name], f"{what}, a finite number >= 0")
    with requires_extra("serve", "service"):
        from maillard.service.server import run
    with _store(database, create=True) as store:
        where = store.where
    first_key = _FirstKey(database)

    def announce(url: str) -> None:
        click.echo(_welcome(_reachable(url), where, no_keys=no_keys, fragment=first_key.fragment), err=True)
        if settings["personalizer"] is not None:
            name = printable(settings["personalizer"])
            click.echo(f"endpoint for Personalizer's SDK: {_reachable(url)} (experiment {name})", err=True)

    run(
        database,
        workers=workers,
        no_keys=no_keys,
        show_first_key=first_key.show,
        on_listening=announce,
        **settings,
    )


class _FirstKey:
    """Shows the key that the first start creates: on a terminal, or in a file if stderr is not a terminal."""

    fragment = ""
    "The end of the dashboard's URL, with the key if it was shown on a terminal."

    def __init__(self, database: str) -> None:
        from maillard.decisions.log_locations import is_postgresql

        name = "maillard" if is_postgresql(database) else database
        self._path = Path(f"{name}.admin-key").absolute()

    def show(self, secret: str) -> None:
        """Show the secret."""
        if sys.stderr.isatty():
            self.fragment = f"#key={secret}"
            notice = f"Created an API key with the scope admin. Save it now; it is not shown again:\n{secret}"
        else:
            _write_secret(self._path, secret)
            notice = f"Created an API key with the scope admin, in the file {self._path}"
        click.echo(notice, err=True)


def _write_secret(path: Path, secret: str) -> None:
    """Write a secret to a new file that only this user can read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                os.fchmod(descriptor, 0o600)  # whatever the umask
                file.write(f"{secret}\n")
                file.flush()
                os.fsync(descriptor)
        except OSError:
            path.unlink()
            raise
    except FileExistsError:
        reason = "the file exists. It may have the key of another database: move it, or remove it"
        raise MaillardError(f"cannot write the first API key to {path}: {reason}") from None
    except OSError as error:
        raise MaillardError(f"cannot write the first API key to {path}: {error.strerror}") from None


def _reachable(url: str) -> str:
    """Replace a wildcard address by the loopback address."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _welcome(url: str, where: str, *, no_keys: bool, fragment: str) -> str:
    """Return the text printed at the start: the address of the dashboard and a command to try."""
    bearer = "" if no_keys else ' -H "Authorization: Bearer $MAILLARD_KEY"'
    example = (
        f"curl {url}/v1/experiments{bearer} -H 'Content-Type: application/json' -d '{json.dumps(_EXAMPLE)}'"
    )
    callers = "this machine only, without API keys" if no_keys else "callers with an API key"
    first = f"maillard {maillard.__version__} serves {where} to {callers}"
    return f"{first}\ndashboard: {url}/{fragment}\ntry: {example}"


def check_workers(database: str, workers: int) -> None:
    """Refuse several worker processes on one SQLite file."""
    from maillard.decisions.log_locations import is_postgresql

    if workers > 1 and not is_postgresql(database):
        allowed = "1 with SQLite, which allows one writer; use a postgresql:// database for several workers"
        raise InvalidValue("--workers", workers, allowed)


@click.group()
def keys() -> None:
    """Create, list and revoke API keys."""


@keys.command()
@_DATABASE
@option("--name", "A name for the key, of your choice.", required=True)
@option(
    "--scope", "decide, reward, read, or admin (includes all others); may be repeated.",
    dest="scopes", multiple=True, required=True, metavar="SCOPE",
)  # fmt: skip
@option(
    "--experiment", "Restrict the key to this experiment; may be repeated.",
    dest="experiments", multiple=True, metavar="KEY",
)  # fmt: skip
@option("--rate", "Requests per second, instead of the service's --rate-limit.", type=float)
def create(*, database: str, **settings: Any) -> None:
    """Create an API key and print its secret once.

    \b
    maillard keys create --name web --scope decide --scope reward
    maillard keys create --name shop-admin --scope admin --experiment shop > key.txt

    Only the secret is written to stdout. It is not stored and cannot be shown again.
    """  # noqa: D301  # click requires this character
    with _store(database, create=True) as store:
        from maillard.service.api_keys import create as make

        key, secret = make(store, **settings)
        where = store.where
    click.echo(
        f"Key {key.id} ({printable(key.name)}) of {where}, for {_scope_of(key)}: {', '.join(key.scopes)}.\n"
        "Send it as 'Authorization: Bearer ...'. Save it now; it cannot be shown again:",
        err=True,
    )
    click.echo(secret)


@keys.command("list")
@_DATABASE
@JSON
def list_(*, database: str, as_json: bool) -> None:
    """List all API keys, including revoked ones, without their secrets.

    \b
    maillard keys list
    maillard keys list --database postgresql://localhost/shop --json
    """  # noqa: D301  # click requires this character
    with _store(database) as store:
        from maillard.service.api_keys import every, unreadable

        found, broken = every(store), unreadable(store)
    if as_json:
        click.echo(json.dumps({"keys": [_to_json(key) for key in found]}, indent=1, ensure_ascii=False))
    elif found:
        _print_keys(found)
    else:
        click.echo("There are no keys. Create one with: maillard keys create", err=True)
    for name in broken:
        click.echo(f"{printable(name)} is not a valid key record; it grants no access", err=True)


@keys.command()
@click.argument("id")
@_DATABASE
def revoke(*, id: str, database: str) -> None:
    """Revoke the key with this ID. Running services refuse it within a second.

    \b
    maillard keys revoke 6c0e4a2f91d3
    """  # noqa: D301  # click requires this character
    with _store(database) as store:
        from maillard.service.api_keys import revoke as end

        key = end(store, id)
    click.echo(f"Key {key.id} ({printable(key.name)}) is revoked.")


@click.command()
@option(
    "--scenario", "What the visitors see.", type=click.Choice(["buttons", "late-clicks"]), default="buttons"
)
@option(
    "--database",
    "Where to keep the log. Default: a temporary folder, removed at the end.",
    metavar="PATH|URL",
)
@option("--rate", "Visitors per second.", type=click.FloatRange(0.1, 200), default=20.0)
@option("--seconds", "Stop after this many seconds. Default: run until Ctrl-C.", type=click.FloatRange(min=0))
@option(
    "--port", "Port of the service. Default: any free port.",
    type=click.IntRange(0, 65535), default=0, show_default=False,
)  # fmt: skip
@option("--open/--no-open", "Open the dashboard in a browser.", dest="browse")
def demo(
    *, scenario: str, database: str | None, rate: float, seconds: float | None, port: int, browse: bool
) -> None:
    """Run a live experiment on this machine: a service with its dashboard, and simulated visitors.

    Visitors click at rates that the service does not know. Some clicks arrive late, some are reported
    twice. At the end, the command prints the true rates next to the estimates, and the verdict of the log's
    audit. The scenario late-clicks has four headlines whose clicks arrive up to an hour late, with an hour
    shortened to 20 seconds.

    \b
    maillard demo
    maillard demo --scenario late-clicks
    maillard demo --seconds 60 --rate 50 --database demo.db
    """  # noqa: D301  # click requires this character
    with requires_extra("demo", "service"):
        from maillard.cli.demo import SCENARIOS, StopSignal, Visitors, live_status, print_report
        from maillard.service.background import running
    with (
        StopSignal() as stop,
        tempfile.TemporaryDirectory(prefix="maillard-demo-") as folder,
        running(database or Path(folder, "demo.db"), port=port, no_keys=True) as url,
    ):
        click.echo(f"dashboard: {url}/")
        with maillard.Client(url) as client:
            visitors = Visitors(client, rate, SCENARIOS[scenario])
            visitors.start()
            if visitors.scenario.about:
                click.echo(visitors.scenario.about)
            if browse:
                webbrowser.open(f"{url}/")
            with live_status(visitors):
                visitors.run(seconds, stop)
            print_report(client, visitors)
    if database is not None:
        from maillard.decisions.log_locations import redact

        click.echo(f"The log is kept: maillard verify {shlex.quote(redact(database))}", err=True)


def _scope_of(key: Key) -> str:
    return "all experiments" if key.experiments is None else ", ".join(map(printable, key.experiments))


def _to_json(key: Key) -> dict[str, Any]:
    """Return a key as data for JSON."""
    times = {"created": _format_time(key.created), "revoked": _format_time(key.revoked)}
    return {name: getattr(key, name) for name in _KEY_COLUMNS} | times


def _format_time(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    from maillard.decisions.timestamps import from_microseconds

    return f"{from_microseconds(microseconds):%Y-%m-%dT%H:%M:%SZ}"


def _print_keys(found: list[Key]) -> None:
    table = text_table()
    for name in _KEY_COLUMNS:
        table.add_column(name, no_wrap=name in ("id", "created", "revoked"))
    for key in found:
        cells = (
            key.id, printable(key.name), ", ".join(key.scopes), _scope_of(key),
            f"{key.rate:g}" if key.rate else "",
            _format_time(key.created) or "", _format_time(key.revoked) or "",
        )  # fmt: skip
        table.add_row(*map(Text, cells), style="dim" if key.revoked else None)
    Console(highlight=False).print(table)


def _store(database: str, *, create: bool = False) -> contextlib.closing[Store]:
    with requires_extra("keys", "service"):
        import maillard.service.api_keys  # noqa: F401  # before a file is made
    from maillard.decisions.stores import open_store

    return contextlib.closing(open_store(database, create=create))
