"""The internals of uvicorn that `http_protocol` overrides and uses. An upgrade that changes them fails here.

After an upgrade: read the changes of uvicorn/protocols/http/httptools_impl.py, adapt `http_protocol`, then
these tables.
"""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState
from uvicorn.supervisors import Multiprocess

from maillard.service.http_protocol import LimitedHttpProtocol

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
CYCLE_PARAMETERS = ["scope", "transport", "flow", "message_event"]
CYCLE_ATTRIBUTES = ["disconnected", "response_complete", "response_started"]


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


def test_the_package_allows_one_minor_version() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    requirements = map(Requirement, project["optional-dependencies"]["service"])
    (allowed,) = [each.specifier for each in requirements if each.name == "uvicorn"]
    installed = version("uvicorn")
    major, minor, *_ = map(int, installed.split("."))
    assert installed in allowed
    assert f"{major}.{minor + 1}.0" not in allowed
    assert f"{major}.{minor - 1}.9" not in allowed
