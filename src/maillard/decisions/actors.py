"""For whom a thread makes changes: the id of an API key, which events record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_actor: ContextVar[str | None] = ContextVar("actor", default=None)


@contextmanager
def acting_as(actor: str | None) -> Iterator[None]:
    """Within this block, this thread makes changes for the API key with this id."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def current_actor() -> str | None:
    """The id of the API key for which this thread makes changes, or None."""
    return _actor.get()
