"""What a verb is spoken to: an address and an experiment; and how a verb becomes a method."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from maillard.decisions.identifiers import check_name
from maillard.errors import InvalidValue

__all__ = ["Scope", "spoken_like"]

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Scope:
    """A service, and the experiment that is meant where none is named."""

    url: str
    experiment: str | None = None

    def __str__(self) -> str:
        return f"of {self.url}" + ("" if self.experiment is None else f", experiment {self.experiment!r}")

    def named(self, experiment: str | None) -> str:
        """The experiment of a call."""
        name = self.experiment if experiment is None else experiment
        if name is None:
            allowed = "a name: experiment='home' here or in Client(url, experiment='home'), or client.bandit('home')"
            raise InvalidValue("experiment", None, allowed)
        return check_name("experiment", name)

    def of(self, experiment: str) -> Scope:
        """The same service, and this experiment."""
        return dataclasses.replace(self, experiment=check_name("experiment", experiment))


def spoken_like(verb: Callable[..., Any]) -> Callable[[Method], Method]:
    """Give a method the name, the arguments and the docstring of its verb, for `help` and for tools that look."""
    signature = inspect.signature(verb)
    first, *others = signature.parameters.values()
    results = str(signature.return_annotation).split(" | ")
    result = " | ".join(each.removeprefix("Steps[").removesuffix("]") for each in results)

    def dress(method: Method) -> Method:
        functools.update_wrapper(method, verb)
        del method.__wrapped__  # type: ignore[attr-defined]  # `signature` would look through to the verb
        method.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[first.replace(name="self", annotation=inspect.Parameter.empty), *others],
            return_annotation=result,
        )
        method.__annotations__ = {**verb.__annotations__, "return": result}
        return method

    return dress
