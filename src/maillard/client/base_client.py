"""The base class of both clients, and how a method definition becomes a method of each of them."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from maillard.client.retries import RetryLimits
from maillard.client.transport import Transport
from maillard.decisions.identifiers import check_name
from maillard.errors import InvalidValue
from maillard.short_reprs import COLUMNS, cut

Connections = TypeVar("Connections")
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Scope:
    """The address of a service, and the experiment that methods use by default."""

    url: str
    experiment: str | None = None

    def __str__(self) -> str:
        return f"of {self.url}" + ("" if self.experiment is None else f", experiment {self.experiment!r}")

    def experiment_name(self, experiment: str | None) -> str:
        """The given experiment, or the default one."""
        name = self.experiment if experiment is None else experiment
        if name is None:
            allowed = (
                "a name: experiment='home' here or in Client(url, experiment='home'), "
                "or client.bandit('home')"
            )
            raise InvalidValue("experiment", None, allowed)
        return check_name("experiment", name)


def copy_signature(definition: Callable[..., Any]) -> Callable[[Method], Method]:
    """Give a method the name, the signature and the docstring of its definition."""
    signature = inspect.signature(definition)
    first, *others = signature.parameters.values()
    results = str(signature.return_annotation).split(" | ")
    result = " | ".join(each.removeprefix("Steps[").removesuffix("]") for each in results)

    def decorate(method: Method) -> Method:
        functools.update_wrapper(method, definition)
        del method.__wrapped__  # type: ignore[attr-defined]  # `inspect` would use it
        method.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[first.replace(name="self", annotation=inspect.Parameter.empty), *others],
            return_annotation=result,
        )
        method.__annotations__ = {**definition.__annotations__, "return": result}
        return method

    return decorate


class BaseClient(Generic[Connections]):
    """What the blocking and the asynchronous client have in common."""

    _connect: Callable[[Transport], Connections]

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
        transport = Transport(url, key, insecure=insecure)
        name = None if experiment is None else check_name("experiment", experiment)
        self._limits, self._scope = RetryLimits(timeout, retries), Scope(transport.url, name)
        self._connections = self._connect(transport)
        self._shares_connections = False

    @property
    def experiment(self) -> str | None:
        """The experiment that methods use by default."""
        return self._scope.experiment

    def bandit(self, experiment: str) -> Self:
        """A client for this experiment. It shares the connections of this client, which closes them.

        >>> client.bandit("prices").experiment
        'prices'
        """
        bound = copy.copy(self)
        bound._scope = Scope(self._scope.url, check_name("experiment", experiment))
        bound._shares_connections = True
        return bound

    def __repr__(self) -> str:
        return f"<{cut(f'{type(self).__name__} {self._scope}', COLUMNS - 2)}>"
