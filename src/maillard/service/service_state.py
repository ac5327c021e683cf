"""The state of a running service, which all handlers share, and its periodic tasks."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from maillard.decisions.deferred_events import sweep
from maillard.decisions.ledger import MAX_PARKED
from maillard.decisions.stores import Store
from maillard.service.access_log import AccessLog
from maillard.service.api_keys import Keyring
from maillard.service.context_monitor import ContextMonitor
from maillard.service.experiment_registry import ExperimentRegistry
from maillard.service.log_monitor import Monitor
from maillard.service.metrics import Metrics
from maillard.service.openapi import openapi_document
from maillard.service.rate_limits import RateLimiter
from maillard.service.scheduled_exports import ScheduledExports
from maillard.service.worker_process import WorkerProcess

_COLLECTED_OBJECTS = 20_000  # new objects until the garbage collector looks for unreachable ones among them
METRICS_FOLDER = "MAILLARD_COUNTS"
"The environment variable with the folder in which the workers of one service share their metrics."

_KEY_INTERVAL, _MAINTENANCE_INTERVAL = 0.8, 1.0  # seconds
_UNPARK_INTERVAL = 3  # rounds of maintenance
_SWEEP_INTERVAL = 600  # rounds of maintenance
_MONITOR_TIME = 0.4  # seconds for which one request lets the monitor read
_PROBE_LIFETIME = 0.5  # seconds for which the result of a write probe is reused
_UNAUTHORIZED_SHARE = 0.1  # of the rate limit, for requests without a valid key from one address
_DAY = 86_400.0  # seconds; a reward is parked for at most a day
_EARLY_REWARDS = MAX_PARKED / 10  # that each key may park in a day


class Service:
    """The shared state of all handlers. Create it inside the event loop; `async with` starts and stops it."""

    def __init__(
        self,
        store: Store,
        database: str,
        access_log: AccessLog,
        *,
        rate_limit: float,
        no_keys: bool,
        stopping: threading.Event,
        job_timeout: float = 120.0,
        export_to: str | None = None,
        export_every: float = 3600.0,
        personalizer: str | None = None,
    ) -> None:
        self.stopping = stopping
        "Set when the process has received a signal to stop."
        self.store, self.access_log, self._no_keys = store, access_log, no_keys
        self.personalizer = personalizer
        "The experiment that answers the calls of Personalizer's API; None if they are not offered."
        self.experiments = ExperimentRegistry(store)
        self.keyring = Keyring(store)
        self.limiter = RateLimiter(rate_limit or None)
        self.unauthorized_limiter = RateLimiter(_UNAUTHORIZED_SHARE * rate_limit or None)
        self.early_reward_limiter = RateLimiter(_EARLY_REWARDS / _DAY, burst=_DAY)
        self.body_bytes = 0
        "Bytes of request bodies that have arrived in part."
        self.metrics = Metrics(os.environ.get(METRICS_FOLDER))
        self.monitor = Monitor(store)
        self.contexts = ContextMonitor(store)
        limit = job_timeout or math.inf
        self.worker = WorkerProcess(database, limit)
        # Exports have no time limit, so evaluations must not wait for them.
        self.exporter = WorkerProcess(database, math.inf, max_wait=limit)
        self._exports = None
        if export_to is not None:
            self._exports = ScheduledExports(
                store, database, export_to, export_every,
                on_success=self.metrics.note_export, on_failure=self._note_failure,
            )  # fmt: skip
        self.description = msgspec.Raw(
            msgspec.json.encode(openapi_document(personalizer=personalizer is not None))
        )
        self._updating: asyncio.Future[None] | None = None
        self._monitor_used = self._monitor_restored = False
        self._parent = os.getppid() if METRICS_FOLDER in os.environ else None
        self._probe_time = 0.0
        self._probing: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def open(self) -> bool:
        """Whether callers need no key: the service was started with --no-keys, and none was created since."""
        return self._no_keys and not self.keyring.any_made

    def record_rejection(self, request_id: str, status: int, message: str, peer: str | None) -> None:
        """Count and log a request that the HTTP protocol has rejected, so that no handler has seen it."""
        self.metrics.count_request("none", status, 0.0)
        self.access_log.log_event(
            "warning", "rejected", request_id=request_id, status=status, message=message, peer=peer
        )

    async def update_monitor(self) -> None:
        """Let the monitor read new rows of the log. Concurrent callers share one update."""
        self._monitor_used = True
        if self._updating is None:
            self._updating = asyncio.ensure_future(self._advance_monitor())
        await asyncio.shield(self._updating)

    async def _advance_monitor(self) -> None:
        try:
            with self._log_failure("reading the log failed"):  # the monitor still has its older counts
                if not self._monitor_restored:
                    await self.experiments.run(self.monitor.restore)
                    self._monitor_restored = True
                await self.experiments.run(self.monitor.advance, _MONITOR_TIME)
        finally:
            self._updating = None

    async def read_contexts(self, experiment: str, by: str | None) -> dict[str, Any]:
        """Statistics of an experiment's contexts, after reading some of its new rows."""
        return await self.experiments.run(self.contexts.read, experiment, by, _MONITOR_TIME)

    async def probe(self) -> None:
        """Write to the log; raises if that fails. Callers within half a second share one write."""
        if self._probing is None or (
            self._probing.done() and time.monotonic() - self._probe_time > _PROBE_LIFETIME
        ):
            self._probing = asyncio.ensure_future(self.experiments.change(self._write_probe))
            self._probing.add_done_callback(self._probe_done)
        await asyncio.shield(self._probing)

    def _probe_done(self, probing: asyncio.Future[None]) -> None:
        self._probe_time = time.monotonic()
        if not probing.cancelled():
            probing.exception()  # the callers of `probe` have received it

    def _write_probe(self) -> None:
        with self.store.transaction("", lock=False) as transaction:
            transaction.put_document("probe", "probe", str(transaction.now))

    # Periodic tasks. If one step fails, the others go on, and the next round tries again.

    async def _refresh_periodically(self) -> None:
        while True:
            await asyncio.sleep(_KEY_INTERVAL)
            if self._parent not in (None, os.getppid()):  # the parent process was killed
                signal.raise_signal(signal.SIGTERM)
            with self._log_failure("reading keys failed"):
                await asyncio.to_thread(self.keyring.refresh)  # not in the threads that wait for the log
            with self._log_failure("sharing metrics failed"):
                self.metrics.share()

    async def _maintain_periodically(self) -> None:
        for round_number in itertools.count(1):
            await asyncio.sleep(_MAINTENANCE_INTERVAL)
            with self._log_failure("closing windows failed"):
                for name in await self.experiments.due():
                    with self._log_failure(f"closing windows of {name!r} failed"):
                        await self.experiments.settle(name)
            if round_number % _UNPARK_INTERVAL == 0:
                with self._log_failure("applying parked rewards failed"):
                    for row in await self.experiments.apply_parked():
                        self.access_log.log_event("warning", "reward out of range", decision_id=row.decision)
            if self.personalizer is not None and round_number % _SWEEP_INTERVAL == 1:
                with self._log_failure("removing expired events failed"):
                    waiting = await self.experiments.get(self.personalizer)
                    await self.experiments.change(waiting.bandit.session.write, sweep)
            if self._monitor_used and not self.monitor.complete:
                await self.update_monitor()  # requests have not waited for all of it
            with self._log_failure("reading contexts failed"):
                await self.experiments.run(self.contexts.advance, _MONITOR_TIME)
            if self._monitor_restored and self.monitor.save_is_due:
                await self._save_monitor()

    async def _save_monitor(self) -> None:
        with self._log_failure("saving the position of the monitor failed"):
            await self.experiments.change(self.monitor.save)

    @contextmanager
    def _log_failure(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  # the service goes on
            self._note_failure(what, error)

    def _note_failure(self, what: str, error: Exception) -> None:
        self.access_log.log_event("warning", what, error=f"{type(error).__name__}: {error}")

    async def __aenter__(self) -> Service:
        gc.collect()
        gc.freeze()  # what exists now stays; the collector need not look at it again
        # The objects of a batch of requests live until their commit; collecting more often only visits them.
        gc.set_threshold(_COLLECTED_OBJECTS, *gc.get_threshold()[1:])
        loops = [self._refresh_periodically(), self._maintain_periodically()]
        if self._exports is not None:
            loops.append(self._exports.run())
        self._tasks = [asyncio.ensure_future(loop) for loop in loops]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._exports is not None:
            await self._exports.close()
        await asyncio.gather(self.worker.close(), self.exporter.close())
        if self._monitor_restored:
            await self._save_monitor()
        await asyncio.get_running_loop().run_in_executor(None, self.experiments.close)
        self.access_log.close()
