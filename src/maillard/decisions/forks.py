"""Fork safety: a child process must not share locks, connections and random generators with its parent."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Renewable(Protocol):
    """An object that a forked child must reinitialize."""

    def renew(self) -> None:
        """In the child: drop everything that belongs to the parent."""


class Quiescent(Renewable, Protocol):
    """An object that must be idle while the process forks."""

    def hold(self) -> None:
        """Before the fork, in the parent: block new writers."""

    def quiesce(self) -> None:
        """Before the fork, once all objects are held: wait for readers and close files."""

    def release(self) -> None:
        """After the fork, in the parent: allow access again."""


_renewables: weakref.WeakSet[Renewable] = weakref.WeakSet()
_quiescents: weakref.WeakSet[Quiescent] = weakref.WeakSet()
_forking = threading.local()  # the objects that the forking thread holds


def renew_after_fork(thing: Renewable) -> None:
    """Call `thing.renew()` in every child that is forked while `thing` exists."""
    _renewables.add(thing)


def quiesce_during_fork(thing: Quiescent) -> None:
    """Call `hold` and `quiesce` before a fork, then `release` in the parent and `renew` in the child."""
    _quiescents.add(thing)
    _renewables.add(thing)


def _hold_all() -> None:
    _forking.held = sorted(_quiescents, key=id)  # in a fixed order, because two threads may fork at once
    for thing in _forking.held:
        thing.hold()
    for thing in _forking.held:  # only now: the writer of one object may be reading another
        thing.quiesce()


def _release_all() -> None:
    for thing in _forking.held:
        thing.release()
    del _forking.held


def _renew_all() -> None:
    del _forking.held
    for thing in list(_renewables):
        thing.renew()


os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_renew_all)
