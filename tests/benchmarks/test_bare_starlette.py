"""The server that the service is compared with does comparable work."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from benchmarks.bare_starlette import ARMS, EXPERIMENT, bare_server
from tests.serving import serving


def call(path: str, body: bytes) -> tuple[int, bytes]:
    """The status and the body of the response to a POST request."""
    sent: list[Any] = []
    content = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": b"", "headers": [(b"content-type", b"application/json")],
    }  # fmt: skip

    async def receive() -> Any:
        return content.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(bare_server()(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


def test_it_reads_json_and_its_response_is_as_long_as_a_decision(tmp_path: Path) -> None:
    body = b'{"unit":"user-12345"}'
    status, response = call(f"/v1/experiments/{EXPERIMENT}/decisions", body)
    assert status == 201
    assert json.loads(response)["unit"] == "user-12345"
    with serving(tmp_path / "log.db") as service:
        new = {
            "experiment": EXPERIMENT,
            "arms": ARMS,
            "reward": {"low": 0, "high": 1},
            "policy": "ms+:booster=8",
        }
        httpx2.post(f"{service.url}/v1/experiments", json=new).raise_for_status()
        headers = {"Content-Type": "application/json", "Idempotency-Key": "run-0-12345"}
        path = f"{service.url}/v1/experiments/{EXPERIMENT}/decisions"
        decision = httpx2.post(path, content=body, headers=headers).content
    assert abs(len(response) - len(decision)) <= 0.05 * len(decision)
    _, constant = call(f"/v1/experiments/{EXPERIMENT}/constant", body)
    assert constant == response


def test_it_does_not_accept_anything_else() -> None:
    with pytest.raises(json.JSONDecodeError):
        call(f"/v1/experiments/{EXPERIMENT}/decisions", b"no JSON")
    assert call(f"/v1/experiments/{EXPERIMENT}/constant", b"no JSON")[0] == 201  # it reads nothing
