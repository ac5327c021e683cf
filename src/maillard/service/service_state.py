"""A service that runs: what its operations share, and what it does by itself once a second."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO

import msgspec

from maillard.decisions.stores import Store
from maillard.service.access_log import Journal
from maillard.service.api_keys import Keyring
from maillard.service.experiment_registry import ExperimentRegistry
from maillard.service.log_monitor import Monitor
from maillard.service.metrics import Metrics
from maillard.service.openapi import describe
from maillard.service.rate_limits import Limiter
from maillard.service.worker_process import WorkerProcess

__all__ = ["COUNTS", "Service"]

COUNTS = "MAILLARD_COUNTS"
"Names the folder, in the environment, where processes that serve together leave their counts."

_KEYS, _EVERY = 0.8, 1.0  # seconds
_ADOPT = 3  # turns
_FOLLOW = 0.4  # seconds that a request lets the monitor read on
_PROBE = 0.5  # seconds that a probe is good for
_PIECE = 1 << 18  # bytes


class Service:
    """Everything that operations share. Made inside the event loop; `async with` starts and stops it."""

    def __init__(
        self, store: Store, database: str, *, rate_limit: float, exposed: bool, journal: Journal
    ) -> None:
        self.store, self.journal, self._exposed = store, journal, exposed
        self.experiments = ExperimentRegistry(store)
        self.keyring = Keyring(store)
        self.limiter = Limiter(rate_limit or None)
        self.metrics = Metrics(os.environ.get(COUNTS))
        self.monitor = Monitor(store)
        self.worker = WorkerProcess(database)
        self.description = msgspec.Raw(msgspec.json.encode(describe()))
        self._following: asyncio.Future[None] | None = None
        self._followed = False
        self._parent = os.getppid() if COUNTS in os.environ else None
        self._probed = 0.0
        self._probing: asyncio.Future[None] | None = None
        self._chores: list[asyncio.Task[None]] = []

    @property
    def open(self) -> bool:
        """Whether no key is needed: none was ever made, and only this machine can reach the service."""
        return not self._exposed and not self.keyring.any_made

    async def follow(self) -> None:
        """Let the monitor read what is new; who asks meanwhile waits for the same."""
        self._followed = True
        if self._following is None:
            self._following = asyncio.ensure_future(self._follow())
        await asyncio.shield(self._following)

    async def _follow(self) -> None:
        try:
            await self.experiments.run(self.monitor.advance, _FOLLOW)
        except Exception as error:  # noqa: BLE001  # what it has counted is still true; it says how old that is
            self._warn("following failed", error)
        finally:
            self._following = None

    async def probe(self) -> None:
        """Write to the log; raises where that cannot be done. Who asks meanwhile, or soon after, hears the same."""
        if self._probing is None or (self._probing.done() and time.monotonic() - self._probed > _PROBE):
            self._probing = asyncio.ensure_future(self.experiments.change(self._write_probe))
            self._probing.add_done_callback(self._note_probe)
        await asyncio.shield(self._probing)

    def _note_probe(self, probing: asyncio.Future[None]) -> None:
        self._probed = time.monotonic()
        if not probing.cancelled():
            probing.exception()  # who asked has heard of it

    def _write_probe(self) -> None:
        with self.store.transaction("", lock=False) as transaction:
            transaction.put_document("probe", "probe", str(transaction.now))

    async def read_chunks(self, file: IO[bytes]) -> AsyncIterator[bytes]:
        """The content of an open file, which is closed in the end."""
        try:
            while piece := await self.experiments.run(file.read, _PIECE):
                yield piece
        finally:
            file.close()

    # What it does by itself. Whatever fails, the rest goes on, and the next time may be better.

    async def _read_keys(self) -> None:
        while True:
            await asyncio.sleep(_KEYS)
            if self._parent not in (None, os.getppid()):  # who started this worker has been killed
                signal.raise_signal(signal.SIGTERM)
            with self._warned("reading keys failed"):
                await asyncio.to_thread(self.keyring.refresh)  # whatever else waits for the log
            with self._warned("sharing counts failed"):
                self.metrics.share()

    async def _tidy(self) -> None:
        for turn in itertools.count(1):
            await asyncio.sleep(_EVERY)
            for experiment in self.experiments.opened:
                if experiment.bandit.state.reward.settles:
                    with self._warned("closing windows failed"):
                        await self.experiments.change(experiment.bandit.session.settle_some)
            if turn % _ADOPT == 0:
                with self._warned("adopting rewards failed"):
                    for row in await self.experiments.adopt():
                        self.journal.write("warning", "reward out of range", decision_id=row.decision)
            if self._followed and not self.monitor.complete:
                await self.follow()  # there was more to read than who asked could wait for

    @contextmanager
    def _warned(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  # see above
            self._warn(what, error)

    def _warn(self, what: str, error: Exception) -> None:
        self.journal.write("warning", what, error=f"{type(error).__name__}: {error}")

    async def __aenter__(self) -> Service:
        gc.collect()
        gc.freeze()  # what there is now stays: nobody need look through it again and again
        self._chores = [asyncio.ensure_future(chore) for chore in (self._read_keys(), self._tidy())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self.worker.close()
        await asyncio.get_running_loop().run_in_executor(None, self.experiments.close)
        self.journal.close()
