"""When a reward is observed. A delay of none is observed before the next choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from maillard import specs
from maillard.errors import InvalidValue, UnknownName
from maillard.problems import kinds

__all__ = ["Batched", "Delay", "Fixed", "Geometric", "delay"]


@dataclass(frozen=True)
class Delay:
    """A rule for when rewards are observed, with its one number."""

    rounds: float
    name: ClassVar[str]
    kind: ClassVar[int]
    least: ClassVar[int] = 1
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number = self.rounds
        allowed = f"a {'whole ' if self.whole else ''}number from {self.least} to 2**31"
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not self.least <= number <= 2**31
        ):
            raise InvalidValue(f"delay {self.name}", number, allowed)
        if self.whole and number != int(number):
            raise InvalidValue(f"delay {self.name}", number, allowed)

    def __str__(self) -> str:
        return specs.write(specs.Spec(self.name, (self.rounds,), {}))


class Fixed(Delay):
    """The reward of round t is observed at the end of round t + rounds."""

    name, kind, least = "fixed", kinds.FIXED, 0


class Batched(Delay):
    """Rewards are observed together, at the end of every so many rounds."""

    name, kind = "batched", kinds.BATCHED


class Geometric(Delay):
    """A reward is observed after a random number of rounds, geometric with this mean."""

    name, kind, least, whole = "geometric", kinds.GEOMETRIC, 0, False


_KNOWN = {cls.name: cls for cls in (Fixed, Batched, Geometric)}


def delay(given: Delay | str | int | None) -> Delay | None:
    """A delay from itself, from `fixed:100`, `batched:100` or `geometric:100`, or from a number: fixed.

    >>> delay("batched:100")
    Batched(rounds=100)
    """
    if given is None or isinstance(given, Delay):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return Fixed(given)
    name, values, options = specs.read(given)  # type: ignore[arg-type]  # refuses what is no text
    if name not in _KNOWN:
        raise UnknownName("delay", name, _KNOWN)
    if len(values) != 1 or options:
        raise InvalidValue(f"delay {given!r}", values or options, "one number, as in batched:100")
    return _KNOWN[name](values[0])  # type: ignore[arg-type]  # checked there
