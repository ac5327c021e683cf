"""Reverse proxies in front of a service: a minimal one in Python, and nginx."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmarks.load import free_port
from tests.serving import Service

_TIMEOUT = 120.0  # seconds; a busy machine may need them
_UNPACKED = Path(__file__).parents[1] / ".nginx" / "usr" / "sbin"  # by `make nginx`
_NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            {settings}
            proxy_pass http://127.0.0.1:{upstream};
        }}
    }}
}}
"""


@contextmanager
def minimal_proxy(service: Service) -> Iterator[str]:
    """A proxy that sends the upstream's address as Host and adds no header. Yields its URL."""

    class Forward(BaseHTTPRequestHandler):
        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            upstream = http.client.HTTPConnection(service.host, service.port, timeout=_TIMEOUT)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            upstream.request(self.command, self.path, body, headers)
            response = upstream.getresponse()
            content = response.read()
            self.send_response_only(response.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            upstream.close()

        do_GET = do_POST = forward  # noqa: N815  # names of the base class

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Forward) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def nginx_proxy(service: Service, folder: Path, settings: str = "") -> Iterator[str]:
    """nginx with `proxy_pass` and no other settings than the given ones. Yields its URL.

    Without nginx, the test is skipped, or fails if CI=true.
    """
    program = shutil.which("nginx") or shutil.which("nginx", path=f"/usr/sbin:{_UNPACKED}")
    if program is None:
        stop = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        stop("nginx is not tested: it is not installed; run `make nginx`")
    port = free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(
        _NGINX.format(folder=folder, port=port, upstream=service.port, settings=settings)
    )
    command = [program, "-e", "stderr", "-p", str(folder), "-c", str(configuration)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            _await_connection(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _await_connection(port: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + _TIMEOUT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < end, "nginx does not listen"
            time.sleep(0.05)
