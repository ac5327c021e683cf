"""A psycopg connection with a timeout on the server's silence."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from typing import Any

from maillard.decisions.forks import renew_after_fork
from maillard.decisions.stores.vectors import WrittenVectors
from maillard.errors import MaillardError

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.types.numeric import Int8BinaryDumper
except ImportError as missing:
    advice = f"pip install 'maillard[postgresql]' ({missing})"
    raise MaillardError(f"a log in PostgreSQL requires psycopg: {advice}") from None

__all__ = ["Connection", "conninfo_to_dict", "psycopg"]


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that raises if the server does not respond for `response_timeout` seconds."""

    response_timeout = 60.0
    generation = 0
    skip_io = False
    "Whether `wait` returns at once, without communicating with the server."
    current_pipeline: psycopg.Pipeline | None = None
    "The pipeline of the transaction in progress."
    lost = False
    "Whether the server has closed the connection."

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.written = WrittenVectors()
        # One type for all integers, so that each statement is prepared once, not once per integer size.
        self.adapters.register_dumper(int, Int8BinaryDumper)
        renew_after_fork(self)

    def renew(self) -> None:
        """After a fork: cut the child off from the socket that it shares with its parent.

        Whatever the child still does with the connection now fails without reaching the server. To close it,
        for example when the child ends a read that its parent began, would end the parent's session.
        """
        if not self.closed:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, self.fileno(), inheritable=False)
            os.close(null)

    def wait(self, gen: Any, *rest: Any, **more: Any) -> Any:
        """Wait as psycopg does, with a timeout."""
        return None if self.skip_io else super().wait(self._with_timeout(gen), *rest, **more)

    def _with_timeout(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        ready: Any = None
        end = time.monotonic() + self.response_timeout
        while True:
            try:
                wanted = steps.send(ready)
            except StopIteration as done:
                return done.value
            ready = yield wanted
            if ready:
                end = time.monotonic() + self.response_timeout
            elif time.monotonic() > end:
                raise psycopg.OperationalError(
                    f"the server has not responded for {self.response_timeout:g} seconds"
                )

    def discard(self, error: BaseException) -> None:
        """Close the connection in whatever state it is."""
        ended = str(getattr(error, "sqlstate", None)).startswith("57P")
        self.lost = self.lost or self.broken or ended
        self.skip_io = True
        self.close()

    def __del__(self, *_: object) -> None:
        """Suppress psycopg's warning about connections that are closed at exit."""
