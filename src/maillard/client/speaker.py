"""What both clients have in common: what they are made with, and the experiment that they are bound to."""

from __future__ import annotations

import copy
from typing import Generic, Self, TypeVar

from maillard.client.retries import Limits
from maillard.client.scope import Scope
from maillard.client.wire import Wire
from maillard.decisions.identifiers import check_name
from maillard.errors import InvalidValue

__all__ = ["Speaker"]

Connections = TypeVar("Connections")


class Speaker(Generic[Connections]):
    """A client, but for how it waits."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        experiment: str | None = None,
        timeout: float = 5.0,
        retries: int = 4,
        insecure: bool = False,
    ) -> None:
        if not isinstance(insecure, bool):
            raise InvalidValue("insecure", insecure, "true or false")
        wire = Wire(url, key, insecure=insecure)
        name = None if experiment is None else check_name("experiment", experiment)
        self._limits, self._scope = Limits(timeout, retries), Scope(wire.address.url, name)
        self._connections = self._connect(wire)
        self._shares = False

    def _connect(self, wire: Wire) -> Connections:
        raise NotImplementedError

    @property
    def experiment(self) -> str | None:
        """The experiment that is meant where a call names none."""
        return self._scope.experiment

    def bandit(self, experiment: str) -> Self:
        """The same client, for this experiment; its connections are shared, and closed with the client that made them."""
        bound = copy.copy(self)
        bound._scope, bound._shares = self._scope.of(experiment), True
        return bound

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._scope}>"
