"""API calls and responses as data. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request, and how to handle its failure."""

    method: str
    path: str
    body: Any = None
    "Sent as JSON; None sends no body."
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    "Whether it may be sent again even if the service may have carried it out."
    response_timeout: float = 0.0
    "Seconds that the service may take to respond, if that is more than the client's timeout."
    batch: bool = False
    "Whether it has several entries, each with its own status in the response."
    output_file: Path | None = None
    "The file to which the body of a successful response is written."

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response of the service."""

    call: ApiCall
    status: int
    headers: Mapping[str, str]
    "Header names are in lower case."
    content: bytes
    uncertain: bool = False
    "Whether the service may have carried out an earlier attempt of the same call."

    @property
    def ok(self) -> bool:
        """Whether the status is a success."""
        return 200 <= self.status < 300


# The definition of a client method: a generator that yields calls, receives responses and returns the result.
Steps: TypeAlias = Generator[ApiCall, ApiResponse, Result]
Yielded = TypeVar("Yielded")


def resume(generator: Generator[Yielded, Any, Any], received: object) -> Yielded:
    """Send a value into a generator, or throw an exception into it; returns what it yields next."""
    return generator.throw(received) if isinstance(received, Exception) else generator.send(received)


def encode(body: Any) -> bytes:
    """The body as JSON. It may contain subclasses of `str`, which data frames use."""
    return msgspec.json.encode(body, enc_hook=_encode_str_subclass)


def _encode_str_subclass(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def api_path(*parts: str, verb: str = "") -> str:
    """A path of the API, with the names escaped.

    >>> api_path("experiments", "a/b", verb="pause")
    '/v1/experiments/a%2Fb:pause'
    """
    quoted = [quote(part, safe="") for part in ("v1", *parts)]
    # Servers and proxies interpret the parts . and .. of a path.
    path = "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in quoted)
    return f"/{path}:{verb}" if verb else f"/{path}"
