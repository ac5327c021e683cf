"""The internals of uvicorn that `http_protocol` overrides and uses. An upgrade that changes them fails here.

After an upgrade: read the changes of uvicorn/protocols/http/httptools_impl.py, adapt `http_protocol`, then
these tables.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import tomllib
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState
from uvicorn.supervisors import Multiprocess

from maillard.service.http_protocol import LimitedHttpProtocol, send_at_once

OVERRIDDEN = {
    "connection_made": ["self", "transport"],
    "connection_lost": ["self", "exc"],
    "data_received": ["self", "data"],
    "pause_writing": ["self"],
    "resume_writing": ["self"],
    "timeout_keep_alive_handler": ["self"],
    "on_message_begin": ["self"],
    "on_headers_complete": ["self"],
    "on_message_complete": ["self"],
    "send_400_response": ["self", "msg"],
}
CALLED = {"_unset_keepalive_if_required": ["self"]}
PROTOCOL_ATTRIBUTES = ["app_state", "client", "connections", "cycle", "flow"]
PROTOCOL_ATTRIBUTES += ["timeout_keep_alive", "timeout_keep_alive_task"]
PROTOCOL_ATTRIBUTES += ["headers", "loop", "pipeline", "scope", "server_state", "transport"]
CYCLE_PARAMETERS = [
    "scope",
    "transport",
    "flow",
    "message_event",
    "default_headers",
    "keep_alive",
    "on_response",
]
CYCLE_ATTRIBUTES = ["disconnected", "response_complete", "response_started", "waiting_for_100_continue"]


@pytest.mark.parametrize(("name", "parameters"), [*OVERRIDDEN.items(), *CALLED.items()])
def test_methods_have_the_signature_that_is_overridden(name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(HttpToolsProtocol, name)).parameters) == parameters


def test_the_parent_of_the_workers_has_a_handler_for_each_signal() -> None:
    assert list(inspect.signature(Multiprocess.handle_hup).parameters) == ["self"]
    assert list(inspect.signature(Multiprocess.handle_term).parameters) == ["self"]


def test_all_overridden_methods_are_listed() -> None:
    """Every attribute of uvicorn's class that ours replaces is in the table above."""
    own = {name for name in vars(LimitedHttpProtocol) if not name.startswith("__")}
    inherited = {name for parent in LimitedHttpProtocol.__mro__[1:] for name in vars(parent)}
    assert own & inherited == OVERRIDDEN.keys()
    assert not own & set(PROTOCOL_ATTRIBUTES)


def test_attributes_exist() -> None:
    loop = asyncio.new_event_loop()
    try:
        config = uvicorn.Config(lambda: None, log_config=None)
        config.load()
        protocol = HttpToolsProtocol(config, ServerState(), {}, _loop=loop)
        assert [name for name in PROTOCOL_ATTRIBUTES if not hasattr(protocol, name)] == []
        protocol.on_message_begin()
        assert protocol.url == b""
    finally:
        loop.close()
    parameters = inspect.signature(RequestResponseCycle).parameters
    assert [name for name in CYCLE_PARAMETERS if name not in parameters] == []
    source = inspect.getsource(RequestResponseCycle)
    assert [name for name in CYCLE_ATTRIBUTES + CYCLE_PARAMETERS if f"self.{name} = " not in source] == []
    assert [
        name
        for name in ("read_paused", "write_paused", "resume_reading")
        if name not in inspect.getsource(FlowControl)
    ] == []
    assert hasattr(ServerState(), "default_headers")
    assert STATUS_LINE[408].startswith(b"HTTP/1.1 408 ")


class RecordingTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def new_cycle(method: str = "POST", **changes: Any) -> RequestResponseCycle:
    transport = RecordingTransport()
    options: dict[str, Any] = {
        "scope": {"method": method},
        "transport": transport,
        "flow": FlowControl(transport),
        "logger": logging.getLogger(),
        "access_logger": logging.getLogger(),
        "access_log": False,
        "default_headers": [],
        "message_event": asyncio.Event(),
        "expect_100_continue": True,
        "keep_alive": True,
        "on_response": lambda: None,
    }
    return RequestResponseCycle(**options | changes)


def test_a_response_at_once_is_the_one_that_uvicorn_sends() -> None:
    """The same bytes, and the same state of uvicorn's cycle."""
    calls: list[str] = []
    first, second = (new_cycle(on_response=partial(calls.append, name)) for name in ("at once", "uvicorn"))
    headers = [(b"content-type", b"application/json"), (b"x-request-id", b"r-1"), (b"content-length", b"2")]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)

    async def send() -> None:
        assert send_at_once(first.send, 201, lines, b"{}")
        await second.send({"type": "http.response.start", "status": 201, "headers": headers})
        await second.send({"type": "http.response.body", "body": b"{}"})

    asyncio.run(send())
    assert calls == ["at once", "uvicorn"]
    states = []
    for cycle in (first, second):
        assert isinstance(cycle.transport, RecordingTransport)
        state = {name: getattr(cycle, name) for name in (*CYCLE_ATTRIBUTES, "expected_content_length")}
        states.append((cycle.transport.written, cycle.transport.closed, cycle.message_event.is_set(), state))
    assert states[0] == states[1]
    assert states[0][0].startswith(b"HTTP/1.1 201 Created\r\ncontent-type:")


def paused_flow() -> FlowControl:
    flow = FlowControl(RecordingTransport())
    flow.pause_writing()
    return flow


@pytest.mark.parametrize(
    "cycle",
    [
        new_cycle("HEAD"),
        new_cycle(keep_alive=False),
        new_cycle(default_headers=[(b"server", b"x")]),
        new_cycle(flow=paused_flow()),
    ],
)
def test_responses_that_uvicorn_must_send(cycle: RequestResponseCycle) -> None:
    assert not send_at_once(cycle.send, 200, b"", b"")
    assert not cycle.response_started


def test_a_response_is_sent_once() -> None:
    cycle = new_cycle()
    assert send_at_once(cycle.send, 200, b"", b"")
    assert not send_at_once(cycle.send, 200, b"", b"")
    gone = new_cycle()
    gone.disconnected = True
    assert not send_at_once(gone.send, 200, b"", b"")
    assert not send_at_once(lambda message: None, 200, b"", b"")


def test_the_package_allows_one_minor_version() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    requirements = map(Requirement, project["optional-dependencies"]["service"])
    (allowed,) = [each.specifier for each in requirements if each.name == "uvicorn"]
    installed = version("uvicorn")
    major, minor, *_ = map(int, installed.split("."))
    assert installed in allowed
    assert f"{major}.{minor + 1}.0" not in allowed
    assert f"{major}.{minor - 1}.9" not in allowed
