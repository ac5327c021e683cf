"""The bare Starlette server that the service is compared with.

It runs in the same uvicorn with the same settings as the service. `python -m benchmarks.bare_starlette 8001`
serves it on port 8001.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

ARMS = [f"arm-{i}" for i in range(10)]
EXPERIMENT = "bench"


def bare_server() -> Any:
    """A Starlette application whose endpoint decodes JSON and encodes JSON as long as a decision.

    Another endpoint sends a constant of this length, and reads nothing.
    """
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    numbers = dict.fromkeys(ARMS, -2.3025850929940455)
    content = {
        "id": "0" * 36, "experiment": EXPERIMENT, "arm": ARMS[0], "probabilities": numbers,
        "log_probabilities": numbers, "policy_version": 1, "formula_version": 1, "state": 1, "epoch": 1,
        "cold": True, "more": "." * 260,
    }  # fmt: skip
    constant = json.dumps(content | {"unit": "user-12345"}, separators=(",", ":")).encode()

    async def choose(request: Request) -> Response:
        given = await request.json()
        return JSONResponse(content | {"unit": given["unit"]}, 201)

    async def send_constant(_: Request) -> Response:
        return Response(constant, 201, media_type="application/json")

    async def ready(_: Request) -> Response:
        return Response()

    return Starlette(
        routes=[
            Route("/v1/experiments/{experiment}/decisions", choose, methods=["POST"]),
            Route("/v1/experiments/{experiment}/constant", send_constant, methods=["POST"]),
            Route("/readyz", ready),
        ]
    )


def serve_bare(port: int) -> None:
    """Serve the bare application with the settings of the service."""
    import uvicorn

    from maillard.service.server import uvicorn_config

    with socket.create_server(("127.0.0.1", port), backlog=1024) as listening:
        uvicorn.Server(uvicorn_config(bare_server)).run(sockets=[listening])


if __name__ == "__main__":
    serve_bare(int(sys.argv[1]))
