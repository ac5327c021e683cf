"""A connection to PostgreSQL that does not wait for ever."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from maillard.errors import MaillardError

try:
    import psycopg
    from psycopg.adapt import AdaptersMap
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.types.numeric import Int8BinaryDumper
except ImportError as missing:
    raise MaillardError(
        f"a log in PostgreSQL needs psycopg: pip install 'maillard[postgresql]' ({missing})"
    ) from None

__all__ = ["Connection", "Context", "conninfo_to_dict", "psycopg"]

# One type for all integers, so that a statement is prepared once and not for each of their sizes.
_types = AdaptersMap(psycopg.adapters)
_types.register_dumper(int, Int8BinaryDumper)


class Context:
    """How values are written, for every connection."""

    adapters = _types
    connection = None


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait for ever."""

    patience = 60.0
    "Seconds of silence after which a server is taken to be gone."
    generation = 0
    quiet = False
    "Whether there is nothing to say to the server, nor to hear from it."
    lost = False
    "Whether the server had ended it."

    def wait(self, gen: Any, *rest: Any, **more: Any) -> Any:
        """As psycopg does, with an end to the server's silence."""
        return None if self.quiet else super().wait(self._steps(gen), *rest, **more)

    def _steps(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        ready: Any = None
        end = time.monotonic() + self.patience
        while True:
            try:
                wanted = steps.send(ready)
            except StopIteration as done:
                return done.value
            ready = yield wanted
            if ready:
                end = time.monotonic() + self.patience
            elif time.monotonic() > end:
                raise psycopg.OperationalError(f"the server has not answered for {self.patience:g} seconds")

    def give_up(self, error: BaseException) -> None:
        """Close it, whatever state it is in: the next one is new."""
        ended = str(getattr(error, "sqlstate", None)).startswith("57P")
        self.lost = self.lost or self.broken or ended
        self.quiet = True
        self.close()

    def __del__(self, *_: object) -> None:
        """Nothing: one that ends with its store or with the program is no mistake that psycopg should warn of."""
