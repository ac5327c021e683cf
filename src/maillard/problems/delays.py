"""When rewards are observed. Without a delay, a reward is observed before the next choice."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

from maillard import specs
from maillard.errors import InvalidValue, UnknownName
from maillard.problems import codes


@dataclass(frozen=True)
class Delay:
    """A rule for when rewards are observed, with one parameter.

    >>> from maillard.problems import Bernoulli
    >>> Bernoulli([0.1, 0.05], delay="geometric:20").delay
    Geometric(rounds=20.0)
    >>> Bernoulli([0.1, 0.05], delay=Fixed(20)).is_delayed
    True
    """

    rounds: float
    name: ClassVar[str]
    code: ClassVar[int]
    least: ClassVar[int] = 1  # the value without any delay
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if type(self) is Delay:
            raise InvalidValue("delay", "Delay", "Fixed, Batched or Geometric")
        number = self.rounds
        real = isinstance(number, Real) and not isinstance(number, bool)
        if not real or not self.least <= number <= 2**31 or (self.whole and number != int(number)):
            allowed = f"a {'whole ' if self.whole else ''}number from {self.least} to 2**31"
            raise InvalidValue(f"delay {self.name}", number, allowed)
        object.__setattr__(self, "rounds", int(number) if self.whole else float(number))

    @property
    def is_none(self) -> bool:
        """Whether every reward is observed before the next choice."""
        return self.rounds == self.least

    def __str__(self) -> str:
        return specs.write(specs.Spec(self.name, (self.rounds,), {}))


class Fixed(Delay):
    """The reward of round t is observed at the end of round t + rounds.

    >>> from maillard.problems import Bernoulli
    >>> str(Bernoulli([0.1, 0.05], delay=Fixed(20)))
    "bernoulli:0.1,0.05,delay='fixed:20'"
    """

    name, code, least = "fixed", codes.FIXED, 0


class Batched(Delay):
    """All waiting rewards are observed together, at the end of every `rounds`-th round.

    >>> from maillard.problems import Bernoulli
    >>> str(Bernoulli([0.1, 0.05], delay=Batched(100)))
    "bernoulli:0.1,0.05,delay='batched:100'"
    """

    name, code = "batched", codes.BATCHED


class Geometric(Delay):
    """A reward is observed after a geometric number of rounds with mean `rounds`.

    >>> from maillard.problems import Bernoulli
    >>> str(Bernoulli([0.1, 0.05], delay=Geometric(20)))
    "bernoulli:0.1,0.05,delay='geometric:20'"
    """

    name, code, least, whole = "geometric", codes.GEOMETRIC, 0, False


_KNOWN = {cls.name: cls for cls in (Fixed, Batched, Geometric)}


def delay(given: Delay | str | float | None) -> Delay | None:
    """Return a delay from a `Delay`, a spec such as `batched:100`, or a number of rounds (fixed).

    >>> delay("batched:100")
    Batched(rounds=100)
    """
    if given is None or isinstance(given, Delay):
        return given
    if isinstance(given, Real) and not isinstance(given, bool):
        return Fixed(given)
    if not isinstance(given, str):
        raise InvalidValue("delay", given, "a Delay, a number of rounds, or a spec such as batched:100")
    name, values, options = specs.read(given)
    if name not in _KNOWN:
        raise UnknownName("delay", name, _KNOWN)
    if len(values) != 1 or options:
        raise InvalidValue(f"delay {given!r}", values or options, "one number, as in batched:100")
    return _KNOWN[name](values[0])  # type: ignore[arg-type]  # checked there
