"""Exports the changes of all experiments to a folder, at regular intervals."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from maillard.decisions.files.export_folders import try_lock
from maillard.decisions.stores import Store
from maillard.service import jobs
from maillard.service.worker_process import WorkerProcess

# Receives what failed, and the error.
OnFailure = Callable[[str, Exception], None]


class ScheduledExports:
    """Exports in a worker process of their own, so that neither requests nor other jobs wait for them.

    Of several processes that serve one database, the first one that locks the folder exports, until it ends.

    Args:
        store: the store whose experiments are exported.
        database: its path or URL.
        folder: where to write.
        interval: seconds between the beginnings of two exports. A longer export delays the next one.
        on_success: receives the time when every experiment has been exported, in seconds since 1970.
        on_failure: receives failures. The next export tries again.

    """

    def __init__(
        self,
        store: Store,
        database: str,
        folder: str,
        interval: float,
        *,
        on_success: Callable[[float], None],
        on_failure: OnFailure,
    ) -> None:
        self._store, self._folder, self._interval = store, Path(folder), interval
        self._on_success, self._on_failure = on_success, on_failure
        # An export takes as long as it takes.
        self._worker = WorkerProcess(database, math.inf)
        self._lock = ExitStack()
        self._locked = False

    async def run(self) -> None:
        """Export again and again, until cancelled."""
        while True:
            began = time.monotonic()
            await self._export_all()
            await asyncio.sleep(max(0.0, self._interval - (time.monotonic() - began)))

    async def close(self) -> None:
        """Stop a running export. The folder stays as it was before."""
        await self._worker.close()
        self._lock.close()

    async def _export_all(self) -> None:
        try:
            if not await asyncio.to_thread(self._try_lock):
                return
            names = await asyncio.to_thread(self._store.experiments)
        except Exception as error:  # noqa: BLE001  # the service goes on
            self._on_failure("the export failed", error)
            return
        failed = False
        for name in names:
            try:
                await self._worker.run(jobs.export_changes, name, str(self._folder))
            except Exception as error:  # noqa: BLE001  # the other experiments are exported
                failed = True
                self._on_failure(f"the export of {name!r} failed", error)
        if not failed:
            self._on_success(time.time())

    def _try_lock(self) -> bool:
        if not self._locked:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._locked = self._lock.enter_context(try_lock(self._folder))
            if not self._locked:
                self._lock.close()
        return self._locked
