"""Checks the hash chain of a large log in a second process, while the first recomputes probabilities.

The two checks are independent. The process is a new interpreter, which does not import the main module of
this one, so `verify` needs no `if __name__ == "__main__"` around it. If the first process
finishes earlier, it takes half of the links that remain (see `chain_parts`).
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, NamedTuple

from maillard.decisions.chain_parts import FirstPart, LinkRequest, check_after, write_line
from maillard.decisions.chain_verification import ChainChecker, ChainReport, check_chain, check_links
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores.bulk_columns import OddRows
from maillard.decisions.stores.bulk_reads import BulkReader
from maillard.decisions.stores.machine_code import loops
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import MaillardError

MIN_DECISIONS = 200_000  # below, starting a process takes longer than it saves
MIN_SHARED = 1_000  # links: fewer of them are not divided between the processes
_MAX_RETURNED = 100  # problems
_PROGRAM = (
    "import json, sys; given = json.loads(open(0, 'rb', buffering=0, closefd=False).readline()); "
    "sys.path[:] = given.pop('path'); "
    "from maillard.decisions.chain_process import run; run(**given)"
)


class ChainResult(NamedTuple):
    """The result of a check of the chain."""

    report: ChainReport
    problems: list[tuple[str | None, str]]
    "The first problems, each with the id of a decision or None."
    problem_count: int


class _Problems:
    """The first problems, and the number of all."""

    def __init__(self) -> None:
        self.first: list[tuple[str | None, str]] = []
        self.count = 0

    def add(self, decision: str | None, what: str) -> None:
        self.count += 1
        if len(self.first) < _MAX_RETURNED:
            self.first.append((decision, what))


def check_log_chain(log: DecisionLog, anchor: str | None) -> ChainResult:
    """Check the chain of a log in a store, in this process."""
    assert log.read_chain is not None
    problems = _Problems()
    report = check_chain(log.read_chain, problems.add, anchor, log.pruned)
    return ChainResult(report, problems.first, problems.count)


class ChainProcess:
    """A process that checks the chain of an experiment in a SQLite file."""

    def __init__(self, log: DecisionLog, file: str, anchor: str | None) -> None:
        self._log, self._anchor = log, anchor
        self._process = subprocess.Popen(  # this interpreter
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        given = {
            "path": sys.path,
            "file": file,
            "experiment": log.experiment,
            "anchor": anchor,
            "min_shared": MIN_SHARED,
        }
        self._write(json.dumps(given).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def _read(self) -> Any:
        """Return what the process prints next; raise ValueError if it has ended."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def result(self) -> ChainResult | None:
        """Take a part of the links that remain, and return the result; None if the process failed."""
        assert self._log.read_chain is not None
        self._write(b"\n")
        try:
            found, rest, last = self._read(), None, None
            if "end" in found:
                if (last := found["end"]) is not None:
                    rest = check_after(self._log.read_chain, last, self._anchor)
                found = self._read()
            problems = [(decision, what) for decision, what in found["problems"]]
            first = FirstPart(ChainReport(**found["report"]), **found["checker"])
            count = found["count"]
        except (ValueError, KeyError, TypeError):
            return None
        if last is None:
            return ChainResult(first.report, problems, count)
        report = None if rest is None or count else rest.join(first, self._log.read_chain)
        # If anything is wrong, one process must say what.
        return check_log_chain(self._log, self._anchor) if report is None else ChainResult(report, [], 0)

    def stop(self) -> None:
        """End the process, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def run(file: str, experiment: str, anchor: str | None, min_shared: int) -> None:
    """Check the chain, and write the result as JSON: the program of the process."""
    gc.freeze()  # what is loaded now stays
    store, problems, request = SQLiteStore(file, read_only=True), _Problems(), LinkRequest(min_shared)
    checker = ChainChecker(problems.add, anchor)
    if check_links(checker, lambda: store.reading(experiment), request.end) and request.last is None:
        checker.check_anchor()
    store.close()
    first = FirstPart.of(checker)._asdict()
    report = asdict(first.pop("report"))
    found = {"report": report, "checker": first, "problems": problems.first, "count": problems.count}
    write_line(found)


@contextmanager
def started_chain_process(log: DecisionLog, anchor: str | None) -> Iterator[ChainProcess | None]:
    """Start a process for a large log in a SQLite file; None for any other log, or if there is one core."""
    file = _file_of(log) if _count_cores() > 1 and sys.executable else None
    try:
        process = None if file is None else ChainProcess(log, file, anchor)
    except OSError:  # the system allows no more processes
        process = None
    try:
        yield process
    finally:
        if process is not None:
            process.stop()


def _count_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _file_of(log: DecisionLog) -> str | None:
    """Return the path of a large log in a SQLite file; None for any other log."""
    assert log.read_chain is not None
    if log.pruned is not None:  # the process does not know what was pruned
        return None
    try:
        with log.read_chain() as transaction:
            reader = BulkReader(transaction)
            if not reader.has_decisions(MIN_DECISIONS):
                return None
            loops(build=True)  # before the process begins: otherwise, both would make the machine code
            return reader.file()
    except (OddRows, MaillardError):
        return None
