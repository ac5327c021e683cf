"""Checks the hash chain of a large log in a second process, while the first recomputes probabilities.

The two checks are independent. The process is a new interpreter, which does not import the main module of
this one, so `verify` needs no `if __name__ == "__main__"` around it.
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
from typing import NamedTuple

from maillard.decisions.chain_verification import ChainReport, check_chain
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores.bulk_columns import OddRows
from maillard.decisions.stores.bulk_reads import BulkReader
from maillard.decisions.stores.machine_code import loops
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import MaillardError

MIN_DECISIONS = 200_000  # below, starting a process takes longer than it saves
_MAX_RETURNED = 100  # problems
_PROGRAM = (
    "import json, sys; given = json.load(sys.stdin); sys.path[:] = given.pop('path'); "
    "from maillard.decisions.chain_process import run; run(**given)"
)


class ChainResult(NamedTuple):
    """The result of a check of the chain."""

    report: ChainReport
    problems: list[tuple[str | None, str]]
    "The first problems, each with the id of a decision or None."
    problem_count: int


def check_log_chain(log: DecisionLog, anchor: str | None) -> ChainResult:
    """Check the chain of a log in a store, in this process."""
    assert log.read_chain is not None
    problems: list[tuple[str | None, str]] = []
    count = 0

    def add(decision: str | None, what: str) -> None:
        nonlocal count
        count += 1
        if len(problems) < _MAX_RETURNED:
            problems.append((decision, what))

    report = check_chain(log.read_chain, add, anchor, log.pruned)
    return ChainResult(report, problems, count)


class ChainProcess:
    """A process that checks the chain of an experiment in a SQLite file."""

    def __init__(self, file: str, experiment: str, anchor: str | None) -> None:
        self._process = subprocess.Popen(  # this interpreter
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        given = {"path": sys.path, "file": file, "experiment": experiment, "anchor": anchor}
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.write(json.dumps(given).encode())
            self._process.stdin.close()
        self._process.stdin = None

    def result(self) -> ChainResult | None:
        """Wait for the result; None if the process failed."""
        output, _ = self._process.communicate()
        try:
            found = json.loads(output)
            problems = [(decision, what) for decision, what in found["problems"]]
            return ChainResult(ChainReport(**found["report"]), problems, found["count"])
        except (ValueError, KeyError, TypeError):
            return None

    def stop(self) -> None:
        """End the process, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def run(file: str, experiment: str, anchor: str | None) -> None:
    """Check the chain, and print the result as JSON: the program of the process."""
    gc.freeze()  # what is loaded now stays
    store = SQLiteStore(file, read_only=True)
    log = DecisionLog(lambda: (), experiment=experiment, source=file)
    log.read_chain = lambda: store.reading(experiment)
    report, problems, count = check_log_chain(log, anchor)
    store.close()
    json.dump({"report": asdict(report), "problems": problems, "count": count}, sys.stdout)


@contextmanager
def started_chain_process(log: DecisionLog, anchor: str | None) -> Iterator[ChainProcess | None]:
    """Start a process for a large log in a SQLite file; None for any other log, or if there is one core."""
    file = _file_of(log) if _count_cores() > 1 and sys.executable else None
    try:
        process = None if file is None else ChainProcess(file, log.experiment, anchor)
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
    try:
        with log.read_chain() as transaction:
            reader = BulkReader(transaction)
            if not reader.has_decisions(MIN_DECISIONS):
                return None
            loops(build=True)  # before the process begins: otherwise, both would make the machine code
            return reader.file()
    except (OddRows, MaillardError):
        return None
