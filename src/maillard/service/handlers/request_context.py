"""The request as handlers get it, and helpers that several handlers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from maillard import wire_schema as wire
from maillard.decisions.state import State
from maillard.service.experiment_registry import OpenExperiment
from maillard.service.http_responses import HttpError, error_detail

if TYPE_CHECKING:
    from maillard.service.api_keys import Key
    from maillard.service.service_state import Service


class RequestContext(NamedTuple):
    """An authorized request."""

    service: Service
    parameters: dict[str, str]
    "From the path."
    query: dict[str, str]
    body: Any
    headers: dict[bytes, bytes]
    key: Key | None
    "The caller's API key; None if no key is needed."

    @property
    def opened(self) -> OpenExperiment | None:
        """The experiment in the path, if it is open, which it nearly always is."""
        return self.service.experiments.opened.get(self.parameters["experiment"])

    async def experiment(self) -> OpenExperiment:
        """The experiment in the path."""
        return await self.service.experiments.get(self.parameters["experiment"])

    @property
    def key_id(self) -> str | None:
        """The id of the caller's API key, for the log of changes."""
        return None if self.key is None else self.key.id

    @property
    def expected(self) -> int | None:
        """The version in If-Match: None for `*` or no header, -1 if it is not a version."""
        given = self.headers.get(b"if-match", b"*").strip()
        if given == b"*":
            return None
        inner = given.removeprefix(b"W/").strip(b'"')
        return int(inner) if inner.isdigit() and len(inner) < 19 else -1


async def owner_of(context: RequestContext, identifier: str) -> str | None:
    """The experiment of a decision. Keys for other experiments do not learn whether it exists."""
    key = await context.service.experiments.experiment_of(identifier)
    limited = context.key is not None and context.key.experiments is not None
    if limited and (key is None or not context.key.reaches(key)):  # type: ignore[union-attr]  # it is not None
        message = "This key does not allow access to the experiment of that decision."
        raise HttpError(403, "forbidden", message)
    return key


def status_of(state: State) -> wire.Status:
    """The status of an experiment in the wire schema."""
    if state.archived:
        return "archived"
    return "paused" if state.paused else "running"


def item_error(error: HttpError, item_path: str) -> wire.ErrorDetail:
    """The error of one item of a batch, with the path of the item."""
    return error_detail(error, item_path + (error.path or "$")[1:])
