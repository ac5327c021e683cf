"""Calls of the service and its answers, as data. Nothing here sends anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

__all__ = ["Answer", "Call", "Steps", "encode", "path_of"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and what may be done when it fails."""

    method: str
    path: str
    body: Any = None
    "What is sent as JSON; nothing, if None."
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    "Whether it may be sent again although the service may have carried it out."
    patience: float = 0.0
    "Seconds that the service may take to answer, where that is more than the client's timeout."
    batch: bool = False
    "Whether it has several entries, each with a status of its own in the answer."
    sink: Path | None = None
    "The file that the body of a good answer is written to."

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    call: Call
    status: int
    headers: Mapping[str, str]
    "By names in lower case."
    content: bytes
    uncertain: bool = False
    "Whether an earlier try of the same call may have been carried out."

    @property
    def good(self) -> bool:
        """Whether the service did what was asked."""
        return 200 <= self.status < 300

    def after(self, *, uncertain: bool) -> Answer:
        """The same, as the answer of a later try."""
        return dataclasses.replace(self, uncertain=uncertain) if uncertain else self


# A verb: it yields calls, is sent their answers, and returns what the verb returns.
Steps: TypeAlias = Generator[Call, Answer, Result]


def encode(body: Any) -> bytes:
    """JSON, of strings of whatever class: frames have their own."""
    return msgspec.json.encode(body, enc_hook=_plain)


def _plain(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def path_of(*parts: str, verb: str = "") -> str:
    """A path of the API, whatever characters its names have.

    >>> path_of("experiments", "a/b", verb="pause")
    '/v1/experiments/a%2Fb:pause'
    """
    quoted = [quote(part, safe="") for part in ("v1", *parts)]
    # A part of nothing but dots would lead elsewhere.
    path = "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in quoted)
    return f"/{path}:{verb}" if verb else f"/{path}"
