"""The command line interface. Commands parse their arguments, call the library and print the result."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import click

import maillard
from maillard.cli import (
    advice_commands,
    evaluation_commands,
    log_commands,
    policy_commands,
    replay_commands,
    retention_commands,
    service_commands,
    simulation_commands,
)
from maillard.errors import InvalidValue, MaillardError, UnknownName

__all__ = ["main"]


class _Group(click.Group):
    """A command group that prints the package's own errors as one line and exits with status 2."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except MaillardError as error:
            own = isinstance(error, UnknownName) and error.kind == "policy"
            hint = ". For a policy of your own, load its file: maillard --load FILE.py ..." if own else ""
            click.echo(f"maillard: {error}{hint}", err=True)
            context.exit(2)
        except KeyboardInterrupt as stopped:
            click.echo(f"maillard: {str(stopped) or 'stopped'}", err=True)
            context.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(maillard.__version__, prog_name="maillard")
@click.option(
    "--load",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A Python file that defines policies of your own; may be repeated.",
)
def main(load: tuple[Path, ...]) -> None:
    """Bandit policies that report the exact probability of every choice."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show ✓ prints a ?
            stream.reconfigure(errors="replace")
    for path in load:
        _run_file(path)


for _command in (
    advice_commands.advise,
    evaluation_commands.compare,
    evaluation_commands.evaluate,
    evaluation_commands.learn_rule,
    replay_commands.plan,
    replay_commands.replay,
    log_commands.backup,
    log_commands.erase_unit,
    log_commands.head,
    log_commands.export,
    log_commands.import_,
    log_commands.verify,
    policy_commands.policies,
    retention_commands.prune,
    service_commands.demo,
    service_commands.keys,
    service_commands.serve,
    simulation_commands.reproduce,
    simulation_commands.simulate,
):
    main.add_command(_command)


def _run_file(path: Path) -> None:
    """Import a user's file, which registers the policies that it defines."""
    name = f"maillard_load_{path.stem}"  # a prefix, so that a user's json.py does not replace the module json
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidValue("--load", str(path), "a Python file, something.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.append(folder)  # the file may import its neighbours; at the end, for the same reason
    try:
        spec.loader.exec_module(module)
    except MaillardError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's file may fail in any way
        reason = f"a file that runs ({type(error).__name__}: {error})"
        raise InvalidValue("--load", str(path), reason) from None
