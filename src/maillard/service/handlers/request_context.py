"""Requests that were let in, and what several operations make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from maillard import wire_schema
from maillard.decisions.state import State
from maillard.service.experiment_registry import OpenExperiment
from maillard.service.http_responses import HttpError, error_detail

if TYPE_CHECKING:
    from maillard.service.api_keys import Key
    from maillard.service.service_state import Service

__all__ = ["RequestContext", "failed", "owner_of", "status_of"]


class RequestContext(NamedTuple):
    """A request that was let in."""

    service: Service
    parameters: dict[str, str]
    "Of the path."
    query: dict[str, str]
    body: Any
    headers: dict[bytes, bytes]
    key: Key | None
    "Of the caller; None where nobody needs one."

    async def experiment(self) -> OpenExperiment:
        """The one that the path names."""
        return await self.service.experiments.get(self.parameters["experiment"])

    @property
    def expected(self) -> int | None:
        """The number that If-Match names; None where it names none."""
        given = self.headers.get(b"if-match", b"*").strip()
        if given == b"*":
            return None
        inner = given.removeprefix(b"W/").strip(b'"')
        return int(inner) if inner.isdigit() and len(inner) < 19 else -1


async def owner_of(context: RequestContext, identifier: str) -> str | None:
    """The experiment of a decision. A key that is limited to others learns nothing, not even whether there is one."""
    key = await context.service.experiments.of(identifier)
    limited = context.key is not None and context.key.experiments is not None
    if limited and (key is None or not context.key.reaches(key)):  # type: ignore[union-attr]  # it is not None
        raise HttpError(403, "forbidden", "This key is not for the experiment of that decision.")
    return key


def status_of(state: State) -> wire_schema.Status:
    """Whether an experiment chooses."""
    if state.archived:
        return "archived"
    return "paused" if state.paused else "running"


def failed(refusal: HttpError, where: str | None = None) -> wire_schema.ErrorDetail:
    """What was wrong with an item, with the path to it."""
    path = refusal.path if where is None else where + (refusal.path or "$")[1:]
    return error_detail(refusal, path)
