"""What a forked child must not share with its parent: locks that another thread holds, connections, generators."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

__all__ = ["hold_during_fork", "renew_after_fork"]


class Renewable(Protocol):
    """Something that can be put in order in a child."""

    def renew(self) -> None:
        """Drop what belongs to the parent."""


class Holdable(Renewable, Protocol):
    """Something that must be at rest while a child is made."""

    def hold(self) -> None:
        """Before the fork, in the parent: nobody begins to write."""

    def rest(self) -> None:
        """When all are held: come to rest."""

    def release(self) -> None:
        """Go on, in the parent, after the fork."""


_living: weakref.WeakSet[Renewable] = weakref.WeakSet()
_resting: weakref.WeakSet[Holdable] = weakref.WeakSet()
_forking = threading.local()  # what its thread holds


def renew_after_fork(thing: Renewable) -> None:
    """Call `thing.renew()` in every child that is forked while the thing lives."""
    _living.add(thing)


def hold_during_fork(thing: Holdable) -> None:
    """Call `thing.hold()` and `rest()` before every fork, then `release()` in the parent and `renew()` in the child."""
    _resting.add(thing)
    _living.add(thing)


def _hold_all() -> None:
    _forking.held = sorted(_resting, key=id)  # in one order, for two threads may fork
    for thing in _forking.held:
        thing.hold()
    for thing in _forking.held:  # not before: who writes to one may be reading another
        thing.rest()


def _release_all() -> None:
    for thing in _forking.held:
        thing.release()
    del _forking.held


def _renew_all() -> None:
    del _forking.held
    for thing in list(_living):
        thing.renew()


os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_renew_all)
