"""What a forked child must not share with its parent: locks that another thread holds, connections, generators."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["renew_after_fork"]


class Renewable(Protocol):
    """Something that can be put in order in a child."""

    def renew(self) -> None:
        """Drop what belongs to the parent."""


_living: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(thing: Renewable) -> None:
    """Call `thing.renew()` in every child that is forked while the thing lives."""
    _living.add(thing)


def _renew_all() -> None:
    for thing in list(_living):
        thing.renew()


os.register_at_fork(after_in_child=_renew_all)
