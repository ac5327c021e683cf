"""Declarations of policy parameters: meaning, default and allowed values.

A policy declares a parameter as ``booster: float = real("factor on ...", default=4.0, at_least=1)``. The
constructor, spec strings and `maillard policies NAME` read the declaration. A parameter without a default is
required.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from maillard.errors import InvalidValue
from maillard.specs import Range


@dataclass(frozen=True)
class Parameter:
    """The meaning of a parameter, its allowed values, and the conversion of a value to the stored one."""

    meaning: str
    allowed: str
    convert: Callable[[Any], Any]  # raises ValueError or TypeError if the value is not allowed
    optional: bool = False

    def check(self, name: str, value: object) -> Any:
        """Return the value to store. Raises InvalidValue if the value is not allowed."""
        if value is None and self.optional:
            return None
        try:
            return self.convert(value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidValue(name, value, self.allowed) from None


def describe_all(parameters: Iterable[tuple[str, Parameter, Any]]) -> str:
    """Return the meaning, the allowed values and the default of each parameter, as a list in Markdown."""
    lines = ["Parameters:"]
    for name, parameter, default in parameters:
        line = f"- `{name}`: {parameter.meaning}. Allowed: {parameter.allowed}."
        lines.append(line if default is None else f"{line} Default: {default}.")
    return "\n".join(lines)


def _declare(default: object, parameter: Parameter) -> Any:
    return field(default=default, metadata={"parameter": parameter})


def real(
    meaning: str,
    *,
    default: float | str | None = None,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    min_magnitude: float = 0.0,
    hint: str = "",
    optional: bool = False,
    word: str | None = None,
) -> Any:
    """Declare a finite number within bounds. Without a default it is required.

    `meaning` describes it in help texts and pages. It must be greater than `above`, or not less than
    `at_least`, and not greater than `at_most`. `hint` is appended to the error message. `optional` allows
    None, for a parameter that another one may make meaningless. `min_magnitude` rejects values that are too
    close to 0 to compute with. `word` is allowed in place of a number.

    >>> from maillard import Indexed
    >>> class Hopeful(Indexed):
    ...     c: float = real("size of the bonus", default=1.0, at_least=0)
    ...     def index(self, n, mean, best, t, k): return mean + self.c / n
    >>> Hopeful(c=-1)
    Traceback (most recent call last):
    maillard.errors.InvalidValue: Hopeful: c: expected a finite number >= 0, got -1
    """
    limits = [f"> {above:g}"] if above > -math.inf else []
    limits += [f">= {at_least:g}"] if at_least > -math.inf else []
    limits += [f"<= {at_most:g}"] if at_most < math.inf else []

    def convert(value: Any) -> float | str:
        if word is not None and value == word:
            return word
        if not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError
        number = float(value)
        if not (math.isfinite(number) and number > above and at_least <= number <= at_most):
            raise ValueError
        if abs(number) < min_magnitude:
            raise ValueError
        return number

    allowed = " ".join(["a finite number", " and ".join(limits)]).strip() + hint
    allowed += "" if word is None else f", or {word}"
    return _declare(default, Parameter(meaning, allowed, convert, optional))


def whole(meaning: str, *, default: int | None = None, at_least: int) -> Any:
    """Declare an integer from `at_least` to 2**53. None means that it is not known yet.

    `meaning` describes it in help texts and pages.

    >>> from maillard import Indexed
    >>> class Patient(Indexed):
    ...     pulls: int = whole("pulls of each arm before it is compared", default=10, at_least=1)
    >>> Patient(pulls=2.5)
    Traceback (most recent call last):
    maillard.errors.InvalidValue: Patient: pulls: expected a whole number from 1 to 2**53, got 2.5
    """

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError
        number = int(float(value))
        if number != value or not at_least <= number <= 2**53:
            raise ValueError
        return number

    allowed = f"a whole number from {at_least} to 2**53"
    return _declare(default, Parameter(meaning, allowed, convert, optional=True))


def flag(meaning: str, *, default: bool) -> Any:
    """Declare a boolean. `meaning` describes it in help texts and pages.

    >>> from maillard import Indexed
    >>> class Careful(Indexed):
    ...     squared: bool = flag("whether the bonus is squared", default=False)
    >>> Careful(squared=True)
    Careful(squared=True)
    """

    def convert(value: Any) -> bool:
        if not isinstance(value, bool | Integral) or value not in (0, 1):
            raise TypeError
        return bool(value)

    return _declare(default, Parameter(meaning, "true or false", convert))


def choice(meaning: str, options: Sequence[str], *, default: str) -> Any:
    """Declare a choice among the words `options`. `meaning` describes it in help texts and pages.

    >>> from maillard import Sampled
    >>> class Scheduled(Sampled):
    ...     schedule: str = choice("how the rate grows", ["constant", "log"], default="log")
    >>> Scheduled(schedule="linear")
    Traceback (most recent call last):
    maillard.errors.InvalidValue: Scheduled: schedule: expected one of constant, log, got 'linear'
    """

    def convert(value: Any) -> str:
        if value not in options:
            raise ValueError
        return str(value)

    return _declare(default, Parameter(meaning, "one of " + ", ".join(options), convert))


def interval(meaning: str) -> Any:
    """Declare a pair of numbers, low < high. None means that it is not known."""
    allowed = "(low, high) with low < high, or low..high in a spec string"

    def convert(value: Any) -> Range:
        return Range(*check_range("range", value))

    return _declare(None, Parameter(meaning, allowed, convert, optional=True))


def check_range(name: str, value: object) -> tuple[float, float]:
    """Return (low, high) as floats. Raises InvalidValue unless both are finite and low < high."""
    try:
        low, high = (float(end) for end in value)  # type: ignore[attr-defined]  # checked by failing
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(name, value, "(low, high), or low..high in a spec string") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidValue(name, value, "two finite numbers with low < high")
    return low, high
