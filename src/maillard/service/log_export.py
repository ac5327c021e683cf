"""Exports a log over HTTP: a worker process writes a file, which is sent while it grows.

An export has no time limit. If it takes long, a caller that gets nothing before the file is complete would
give up. A Parquet file is written from its beginning to its end, so the part that exists can be sent.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maillard.service import jobs

if TYPE_CHECKING:
    from maillard.service.service_state import Service

_START_TIME = 5.0  # seconds until an unfinished file is sent; until then, an error has its own status
_POLL_INTERVAL = 0.1  # seconds
_CHUNK = 1 << 18  # bytes


class LogExport:
    """The Parquet file of an experiment, in chunks. `aclose` stops the export and removes the file.

    If the export fails after the first chunk, the next one raises the error. The response then has no end,
    and the caller sees that it is not complete.
    """

    def __init__(self, service: Service, experiment: str) -> None:
        self._run = service.experiments.run
        self._folder = Path(tempfile.mkdtemp(prefix="maillard-export-"))
        path = str(self._folder / "log.parquet")
        self._writing = asyncio.ensure_future(service.exporter.run(jobs.export, experiment, path))
        self._file: Any = None

    @classmethod
    async def start(cls, service: Service, experiment: str) -> LogExport:
        """Start an export, and wait until it is complete or has run for a few seconds."""
        export = cls(service, experiment)
        try:
            await asyncio.wait([export._writing], timeout=_START_TIME)
            while not await service.experiments.run(export._open):
                await asyncio.wait([export._writing], timeout=_POLL_INTERVAL)
        except BaseException:
            await export.aclose()
            raise
        return export

    def _open(self) -> bool:
        """Open the file if it exists. Raise the error of an export that has failed."""
        if self._writing.done():
            self._writing.result()
        for path in self._folder.iterdir():  # it has another name until it is complete
            self._file = path.open("rb", buffering=0)
            return True
        return False

    def __aiter__(self) -> LogExport:
        return self

    async def __anext__(self) -> bytes:
        while True:
            finished = self._writing.done()
            chunk: bytes = await self._run(self._file.read, _CHUNK)
            if chunk:
                return chunk
            if finished:
                self._writing.result()
                raise StopAsyncIteration
            await asyncio.wait([self._writing], timeout=_POLL_INTERVAL)

    async def aclose(self) -> None:
        """Stop the export and remove the file."""
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
        if self._file is not None:
            self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)
