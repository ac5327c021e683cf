"""Divides the links of a hash chain between two processes.

Every link has the hash of the one before it, so its rows can be checked before the earlier links are. The
process that checks the chain from its beginning answers a `LinkRequest`: it stops in the middle of the links
that remain. The other checks the rest (`check_after`). The results are joined only if both found no problem.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from maillard.decisions.chain_verification import ChainChecker, ChainReport, check_links
from maillard.decisions.stores.contract import Transaction
from maillard.errors import MaillardError

_INPUT = 0  # the standard input

Read = Callable[[], AbstractContextManager[Transaction]]


def write_line(content: Any) -> None:
    """Write a line of JSON to the standard output, for the other process."""
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


class FirstPart(NamedTuple):
    """The result for the first links, up to the commit of the report."""

    report: ChainReport
    rewards: int
    next_event: int
    complete: bool

    @classmethod
    def of(cls, checker: ChainChecker) -> FirstPart:
        """Return what a checker has found so far."""
        return cls(checker.report, checker.rewards, checker.next_event, checker.complete)


class LinkRequest:
    """Waits for a byte at the standard input, the request to leave some of the links to another process."""

    def __init__(self, least: int) -> None:
        self.last: int | None = None
        "The last commit to check in this process; None for all."
        self._least, self._answered = least, False
        self.arrived = threading.Event()
        "Whether there is a request."
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        if os.read(_INPUT, 1):  # otherwise, the other process has ended
            self.arrived.set()

    def end(self, transaction: Transaction, done: int) -> int | None:
        """Return the last commit to check. Write it when there is a request."""
        if self.arrived.is_set() and not self._answered:
            head = transaction.chain_end()
            rest = (head[0] if head else 0) - done
            if rest >= self._least:
                self.last = done + rest // 2
            self._answered = True
            write_line({"end": self.last})
        return self.last


class LastPart:
    """The result for the links after a commit."""

    def __init__(self, checker: ChainChecker, start: str, problems: list[str]) -> None:
        self._checker, self._start, self._problems = checker, start, problems

    def join(self, first: FirstPart, read: Read) -> ChainReport | None:
        """Add the first part, which has no problem, and check the end; None if there is a problem."""
        checker, before = self._checker, first.report
        fits = before.head == self._start and checker.first_event in (0, first.next_event)
        if not fits or self._problems:
            return None
        report = checker.report
        report.decisions += before.decisions
        report.erased += before.erased
        report.time = before.time if report.time is None else report.time
        report.anchor = before.anchor if report.anchor is None else report.anchor
        checker.rewards += first.rewards
        checker.next_event, checker.complete = checker.next_event or first.next_event, first.complete
        if check_links(checker, read):
            checker.check_anchor()
        return None if self._problems else report


def check_after(read: Read, commit: int, anchor: str | None) -> LastPart | None:
    """Check the links after a commit, up to the present end of the chain; None if that is impossible."""
    problems: list[str] = []
    checker = ChainChecker(lambda _, what: problems.append(what), anchor)
    try:
        with read() as transaction:
            links, head = transaction.links(commit - 1, 1), transaction.chain_end()
    except MaillardError:
        return None
    if not links or head is None or links[0].number != commit:
        return None
    start, end = links[0].hash.hex(), head[0]
    checker.start_after(commit, start, -1)  # it is not known which event is the next
    check_links(checker, read, lambda *_: end)
    return LastPart(checker, start, problems)
