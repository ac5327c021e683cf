"""Commands for the decision service: serve, keys, demo."""

from __future__ import annotations

import contextlib
import json
import shlex
import webbrowser
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import maillard
from maillard.cli.log_commands import _printable
from maillard.cli.options import JSON
from maillard.errors import InvalidValue, MaillardError

if TYPE_CHECKING:
    from maillard.decisions.stores import Store
    from maillard.service.api_keys import Key

__all__ = ["check_workers", "demo", "keys", "serve"]

_DATABASE = click.option(
    "--database", default="maillard.db", show_default=True, envvar="MAILLARD_DATABASE", show_envvar=True,
    metavar="PATH|URL", help="A SQLite file, or a postgresql:// URL.",
)  # fmt: skip
_EXAMPLE = {"experiment": "home", "arms": ["red", "blue"], "policy": "ms+", "reward": {"low": 0, "high": 1}}


@click.command()
@_DATABASE
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen; others than this machine need a key.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 is any that is free."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes; several need PostgreSQL.",
)
@click.option(
    "--rate-limit",
    type=float,
    default=10_000.0,
    show_default=True,
    help="Requests a second of one caller; 0 is no limit.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True,
    help="What is written to stderr, one JSON object a line.",
)  # fmt: skip
def serve(*, database: str, host: str, port: int, workers: int, rate_limit: float, log_level: str) -> None:
    """Serve decisions over HTTP, with a dashboard.

    \b
    maillard serve
    maillard serve --database postgresql://localhost/shop --workers 4

    As long as no key was made, it listens on this machine alone and asks nobody for one.
    """  # noqa: D301  # click looks for this very character
    check_workers(database, workers)
    if not 0 <= rate_limit < float("inf"):
        raise InvalidValue("--rate-limit", rate_limit, "requests a second, a finite number >= 0")
    with _naming_extra("serve"):
        from maillard.service.api_keys import Keyring
        from maillard.service.server import run
    with _store(database, create=True) as store:
        where, keyless = store.where, not Keyring(store).any_made

    def announce(url: str) -> None:
        click.echo(_welcome(_reachable(url), where, keyless=keyless), err=True)

    run(
        database,
        host=host,
        port=port,
        workers=workers,
        rate_limit=rate_limit,
        log_level=log_level,
        on_listening=announce,
    )


def _reachable(url: str) -> str:
    """The address by which this machine reaches a service that listens on all of them."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _welcome(url: str, where: str, *, keyless: bool) -> str:
    """The first lines: where the dashboard is, and something to try."""
    bearer = "" if keyless else ' -H "Authorization: Bearer $MAILLARD_KEY"'
    example = (
        f"curl {url}/v1/experiments{bearer} -H 'Content-Type: application/json' -d '{json.dumps(_EXAMPLE)}'"
    )
    who = "this machine alone, no key needed" if keyless else "whoever has a key"
    return f"maillard {maillard.__version__} serves {where} to {who}\ndashboard: {url}/\ntry: {example}"


def check_workers(database: str, workers: int) -> None:
    """Refuse several processes on one SQLite file."""
    if workers > 1 and not database.startswith(("postgresql://", "postgres://")):
        raise InvalidValue(
            "--workers",
            workers,
            "1 with SQLite, which has one writer at a time; several workers share a postgresql:// database",
        )


@click.group()
def keys() -> None:
    """API keys: make them, list them, revoke them."""


@keys.command()
@_DATABASE
@click.option("--name", required=True, help="What it is for, in your words.")
@click.option(
    "--scope", "scopes", multiple=True, required=True, metavar="SCOPE",
    help="decide, reward, read or admin, which means all of them; may be repeated.",
)  # fmt: skip
@click.option(
    "--experiment",
    "experiments",
    multiple=True,
    metavar="KEY",
    help="The only one that it is for; may be repeated.",
)
@click.option("--rate", type=float, help="Requests a second, in the place of the service's --rate-limit.")
def create(
    *, database: str, name: str, scopes: tuple[str, ...], experiments: tuple[str, ...], rate: float | None
) -> None:
    """Make a key and print its secret, once.

    \b
    maillard keys create --name web --scope decide --scope reward
    maillard keys create --name shop-admin --scope admin --experiment shop > key.txt

    Only the secret goes to stdout. It is not kept, so it cannot be shown again.
    """  # noqa: D301  # click looks for this very character
    with _store(database, create=True) as store:
        from maillard.service.api_keys import create as make

        key, secret = make(store, name, scopes, experiments or None, rate)
        where = store.where
    click.echo(
        f"Key {key.id} ({_printable(key.name)}) of {where}, for {_reach(key)}: {', '.join(key.scopes)}.\n"
        "Send it as 'Authorization: Bearer ...'. Keep it now; it cannot be shown again:",
        err=True,
    )
    click.echo(secret)


@keys.command("list")
@_DATABASE
@JSON
def list_(*, database: str, as_json: bool) -> None:
    """The keys that were ever made, never their secrets."""
    with _store(database) as store:
        from maillard.service.api_keys import every, unreadable

        found, broken = every(store), unreadable(store)
    if as_json:
        click.echo(json.dumps({"keys": [_plain(key) for key in found]}, indent=1, ensure_ascii=False))
    elif found:
        _print_keys(found)
    else:
        click.echo("There is no key: maillard keys create makes one.", err=True)
    for name in broken:
        click.echo(f"{_printable(name)} cannot be read as a key; it opens nothing", err=True)


@keys.command()
@click.argument("id")
@_DATABASE
def revoke(*, id: str, database: str) -> None:
    """Revoke the key with this ID. Services refuse it within a second."""
    with _store(database) as store:
        from maillard.service.api_keys import revoke as end

        key = end(store, id)
    click.echo(f"Key {key.id} ({_printable(key.name)}) is revoked.")


@click.command()
@click.option(
    "--database",
    metavar="PATH|URL",
    help="Keep the log there; by default in a folder that is removed in the end.",
)
@click.option(
    "--rate", type=click.FloatRange(0.1, 200), default=20.0, show_default=True, help="Visitors a second."
)
@click.option("--seconds", type=click.FloatRange(min=0), help="End after so many; by default at Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="By default any that is free.")
@click.option("--open/--no-open", "browse", default=False, help="Open the dashboard in a browser.")
def demo(*, database: str | None, rate: float, seconds: float | None, port: int, browse: bool) -> None:
    """A live experiment on this machine: a service, its dashboard, and visitors that are simulated.

    Three buttons are clicked at rates that the service does not know. Some clicks come late, some are reported twice. In the end the
    true rates are printed beside what was learned, with the verdict of the log's audit.

    \b
    maillard demo
    maillard demo --seconds 60 --rate 50 --database demo.db
    """  # noqa: D301  # click looks for this very character
    with _naming_extra("demo"):
        from maillard.cli.demo import Stop, Visitors, print_report, serving, showing
    if database is not None:
        _check_keyless(database)
    with Stop() as stop, serving(database, port) as url:
        click.echo(f"dashboard: {url}/")
        with maillard.Client(url) as client:
            visitors = Visitors(client, rate)
            visitors.begin()
            if browse:
                webbrowser.open(f"{url}/")
            with showing(visitors):
                visitors.run(seconds, stop)
            print_report(client, visitors)
    if database is not None:
        from maillard.decisions.log_locations import redact

        click.echo(f"The log is kept: maillard verify {shlex.quote(redact(database))}", err=True)


def _check_keyless(database: str) -> None:
    with _store(database, create=True) as store:
        from maillard.service.api_keys import Keyring

        if Keyring(store).any_made:
            raise InvalidValue(
                "--database", store.where, "a database without API keys, for the demo has none"
            )


def _reach(key: Key) -> str:
    return "all experiments" if key.experiments is None else ", ".join(map(_printable, key.experiments))


def _plain(key: Key) -> dict[str, Any]:
    """A key as JSON shows it."""
    return {
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "experiments": key.experiments,
        "rate": key.rate,
        "created": _time(key.created),
        "revoked": _time(key.revoked),
    }


def _time(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    from maillard.decisions.timestamps import from_microseconds

    return f"{from_microseconds(microseconds):%Y-%m-%dT%H:%M:%SZ}"


def _print_keys(found: list[Key]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("id", "name", "scopes", "experiments", "rate", "created", "revoked"):
        table.add_column(name, no_wrap=name in ("id", "created", "revoked"))
    for key in found:
        cells = (
            key.id, _printable(key.name), ", ".join(key.scopes), _reach(key), f"{key.rate:g}" if key.rate else "",
            _time(key.created) or "", _time(key.revoked) or "",
        )  # fmt: skip
        table.add_row(*map(Text, cells), style="dim" if key.revoked else None)
    Console(highlight=False).print(table)


@contextlib.contextmanager
def _naming_extra(command: str) -> Iterator[None]:
    """Where a package is missing, say which extra brings it."""
    try:
        yield
    except ImportError as error:
        raise MaillardError(f"{command} needs {error.name}: pip install 'maillard[service]'") from None


@contextlib.contextmanager
def _store(database: str, *, create: bool = False) -> Iterator[Store]:
    with _naming_extra("keys"):
        import maillard.service.api_keys  # noqa: F401  # before a file is made
    from maillard.decisions.stores import open_store

    store = open_store(database, create=create)
    try:
        yield store
    finally:
        store.close()
