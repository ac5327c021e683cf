"""Fields of a policy that document and check themselves.

A policy declares ``booster: float = real("how much ...", default=4.0, at_least=1)``: what the parameter means, its
default (without one it must be given), and what is allowed. The constructor, spec strings and `maillard policies NAME` all read that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from maillard.errors import InvalidValue

__all__ = ["Parameter", "choice", "flag", "interval", "real", "whole"]


@dataclass(frozen=True)
class Parameter:
    """What a parameter means, what is allowed, and how a given value becomes the stored one."""

    meaning: str
    allowed: str
    convert: Callable[[Any], Any]  # raises ValueError or TypeError where a value is not allowed
    optional: bool = False

    def check(self, name: str, value: object) -> Any:
        """The value to store, or an error that says what is allowed."""
        if value is None and self.optional:
            return None
        try:
            return self.convert(value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidValue(name, value, self.allowed) from None


def _declare(default: object, parameter: Parameter) -> Any:
    return field(default=default, metadata={"parameter": parameter})


def real(
    meaning: str,
    *,
    default: float | None = None,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    least: float = 0.0,
    needed: str = "",
    optional: bool = False,
) -> Any:
    """A finite number within bounds. Without a default it must be given; `needed` says how.

    `optional` means that it may be None, as where another parameter makes it meaningless; `least` refuses
    what is too near 0 to compute with.
    """
    limits = [f"> {above:g}"] if above > -math.inf else []
    limits += [f">= {at_least:g}"] if at_least > -math.inf else []
    limits += [f"<= {at_most:g}"] if at_most < math.inf else []

    def convert(value: Any) -> float:
        if not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError
        number = float(value)
        if not (math.isfinite(number) and number > above and at_least <= number <= at_most):
            raise ValueError
        if abs(number) < least:
            raise ValueError
        return number

    allowed = " ".join(["a finite number", " and ".join(limits)]).strip() + needed
    return _declare(default, Parameter(meaning, allowed, convert, optional))


def whole(meaning: str, *, default: int | None = None, at_least: int) -> Any:
    """A whole number up to 2**53, or None: not known yet."""

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError
        number = int(float(value))
        if number != value or not at_least <= number <= 2**53:
            raise ValueError
        return number

    allowed = f"a whole number >= {at_least} (and <= 2**53)"
    return _declare(default, Parameter(meaning, allowed, convert, optional=True))


def flag(meaning: str, *, default: bool) -> Any:
    """True or false."""

    def convert(value: Any) -> bool:
        if not isinstance(value, bool | Integral) or value not in (0, 1):
            raise TypeError
        return bool(value)

    return _declare(default, Parameter(meaning, "true or false", convert))


def choice(meaning: str, options: Sequence[str], *, default: str) -> Any:
    """One of a few words."""

    def convert(value: Any) -> str:
        if value not in options:
            raise ValueError
        return str(value)

    return _declare(default, Parameter(meaning, "one of " + ", ".join(options), convert))


def interval(name: str, value: object) -> tuple[float, float]:
    """Two finite numbers, low < high."""
    try:
        low, high = (float(end) for end in value)  # type: ignore[attr-defined]  # checked by failing
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(name, value, "(low, high), or low..high in a spec") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidValue(name, value, "two finite numbers, low < high")
    return low, high
