"""Runs the service with uvicorn: one process, or several that share a socket and a PostgreSQL database."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from maillard.decisions.log_locations import redact
from maillard.decisions.stores import open_store
from maillard.decisions.timestamps import Duration, to_seconds
from maillard.errors import InvalidValue, MaillardError, Unavailable
from maillard.service.access_log import AccessLog, AccessLogHandler
from maillard.service.api_keys import check_any_made, check_no_keys, create_first
from maillard.service.application import ASGI, application
from maillard.service.http_protocol import LimitedHttpProtocol
from maillard.service.personalizer.experiment import open_experiment
from maillard.service.service_state import METRICS_FOLDER, Service

_CONNECTIONS = 12  # to PostgreSQL, per process
_MIN_EXPORT_INTERVAL = 1.0  # seconds; shorter ones make many small files
_RETRY_INTERVAL = 1.0  # seconds between attempts to open the log
# Seconds after which a thread gives up the interpreter lock. With the usual 5 ms the thread that writes waits
# too long.
_SWITCH_INTERVAL = 0.0005
_HANGUP = getattr(signal, "SIGHUP", None)  # not on Windows
LEVELS = ("debug", "info", "warning", "error")


def run(
    database: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    rate_limit: float = 10_000.0,
    log_level: str = "info",
    job_timeout: float = 120.0,
    drain_delay: float = 0.0,
    no_keys: bool = False,
    export_to: str | None = None,
    export_every: Duration = 3600.0,
    personalizer: str | None = None,
    show_first_key: Callable[[str], None] | None = None,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serve until interrupted. Calls `on_listening` with the URL.

    Callers need an API key. If there is none, the service creates one with the scope admin and passes its
    secret to `show_first_key`; without that function it does not start. With `no_keys`, callers need no key,
    but the service listens on loopback only, and starts only if no key exists.

    `job_timeout` is how many seconds an evaluation or a verification may take; 0: no limit. When the process
    is told to stop, `/readyz` fails, and the service goes on for `drain_delay` seconds. With `export_to`, the
    changes of all experiments are added to this folder after each `export_every`, such as "1h". With
    `personalizer`, this experiment answers the calls of Azure Personalizer's API; it is created if necessary.
    """
    interval = to_seconds("--export-every", export_every)
    if not interval >= _MIN_EXPORT_INTERVAL:
        raise InvalidValue("--export-every", export_every, "at least 1s")
    if export_to is not None:
        _make_folder(export_to)
    with closing(open_store(database)) as store:  # errors appear before the service listens
        if no_keys:
            check_no_keys(store, host)
        elif show_first_key is None:
            check_any_made(store)
        if personalizer is not None:
            open_experiment(store, personalizer)
    if not store.concurrent_decisions and workers > 1:
        allowed = f"1, for {redact(database)} is a SQLite file, which has one writer"
        raise InvalidValue("workers", workers, allowed)
    with _listen(host, port) as listening:
        if show_first_key is not None and not no_keys:
            with closing(open_store(database)) as store:
                create_first(store, show_first_key)
        address = listening.getsockname()
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        make = partial(
            _application, database, log_level, drain_delay, no_keys=no_keys, rate_limit=rate_limit,
            job_timeout=job_timeout, export_to=export_to, export_every=interval, personalizer=personalizer,
        )  # fmt: skip
        config = uvicorn_config(make, workers=workers)
        if on_listening is not None:
            on_listening(f"http://{name}:{address[1]}")
        if workers == 1:
            uvicorn.Server(config).run(sockets=[listening])
            return
        with tempfile.TemporaryDirectory(prefix="maillard-metrics-") as folder:
            os.environ[METRICS_FOLDER] = folder  # before the server processes start
            _Workers(config, sockets=[listening]).run()


def uvicorn_config(make: Callable[[], ASGI], *, workers: int = 1) -> uvicorn.Config:
    """The uvicorn configuration of the service (and of the benchmark's bare server)."""
    return uvicorn.Config(
        make,
        factory=True,
        http=LimitedHttpProtocol,
        ws="none",
        lifespan="on",
        workers=workers,
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        backlog=1024,
    )


def _application(database: str, log_level: str, drain_delay: float, **options: Any) -> ASGI:
    """The application of one server process."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    access_log = AccessLog(quiet=LEVELS.index(log_level) > LEVELS.index("info"))
    logging.basicConfig(handlers=[AccessLogHandler(access_log)], level=log_level.upper(), force=True)
    stopping = _notice_signals(drain_delay)

    async def start() -> Service:
        # `run` has opened the log before. If PostgreSQL is down now, this process waits for it.
        while True:
            try:
                store = open_store(database, connections=_CONNECTIONS)
                return Service(store, database, access_log, stopping=stopping, **options)
            except Unavailable as error:
                access_log.log_event("warning", "the log cannot be opened", error=str(error))
                await asyncio.sleep(_RETRY_INTERVAL)

    return application(start, personalizer=options.get("personalizer") is not None)


def _notice_signals(drain_delay: float) -> threading.Event:
    """Return an event that is set when the process is told to stop. SIGHUP stops it like SIGTERM.

    The server goes on for `drain_delay` seconds, so that a load balancer notices that it is not ready. A
    repeated SIGINT (Ctrl-C) stops it at once. A repeated SIGTERM does not: a service manager may send it to
    all processes, and the parent process sends it again.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # it cannot handle signals
        return stopping
    stop = signal.getsignal(signal.SIGTERM)  # uvicorn's handler, which drains the connections

    def handle(number: int, frame: FrameType | None) -> None:
        again = stopping.is_set()
        stopping.set()
        if not callable(stop):
            return
        given = signal.SIGTERM if number == _HANGUP else number
        if not drain_delay or (again and number == signal.SIGINT):
            stop(given, frame)
        elif not again:
            timer = threading.Timer(drain_delay, stop, [given, None])
            timer.daemon = True
            timer.start()

    for number in (signal.SIGTERM, signal.SIGINT, _HANGUP):
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as set by nohup
            signal.signal(number, handle)
    return stopping


class _Workers(Multiprocess):
    """Uvicorn's parent of several server processes. SIGHUP stops them instead of restarting them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        ignored = _HANGUP is not None and signal.getsignal(_HANGUP) is signal.SIG_IGN
        super().__init__(*arguments, **options)
        if ignored:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def handle_hup(self) -> None:
        """Stop, as for SIGTERM."""
        self.handle_term()


def _make_folder(path: str) -> None:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue("--export-to", path, f"a folder ({error.strerror})") from None


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=1024)
    except OverflowError:
        raise InvalidValue("port", port, "a whole number from 0 to 65535") from None
    except OSError as error:
        raise MaillardError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    listening.set_inheritable(True)
    return listening
