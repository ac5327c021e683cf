"""The answers about rewards: their type, range, mean and deviation, and the orders of a shop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from maillard.errors import InvalidValue, UnknownName

REWARDS = CLICKS, BINARY, REVENUE, BOUNDED, UNBOUNDED = (
    "clicks", "binary", "revenue", "bounded", "unbounded",
)  # fmt: skip
_RATES = {CLICKS: 0.03, BINARY: 0.1, UNBOUNDED: 1.0}
_LARGEST_ORDER, _BUYERS = 100.0, 0.02

Answer = Callable[[str, Any], Any]
"""The answer of this name, or this default."""


class Rewards(NamedTuple):
    """The fields of `Requirements` about rewards."""

    low: float
    high: float
    rate: float
    lift: float
    deviation: float
    buyers: float | None
    order: float | None


def check_rewards(kind: str, given: dict[str, Any], answer: Answer) -> Rewards:
    """Check the answers about rewards of this type."""
    binary = kind in (CLICKS, BINARY)
    low, high = _reward_range(kind, given.get("reward_range"), answer)
    buyers, order = _orders(high, given, answer) if kind == REVENUE else _no_orders(kind, given)
    mean = _rate(kind, low, high, answer) if buyers is None or order is None else buyers * order
    room = high - mean
    least = mean - low if math.isfinite(low) else mean
    usual = min(least, room) / 2
    lift = check_number("lift", answer("lift", usual), 0.0, room, most_allowed=True, percent=binary)
    if binary:
        deviation = math.sqrt(mean * room)
    elif kind == UNBOUNDED:
        deviation = check_number("deviation", answer("deviation", 5.0 * mean), 0.0, math.inf)
    else:
        largest = math.sqrt((mean - low) * room)
        guess = None if buyers is None or order is None else order_deviation(buyers, order, high)
        wanted = answer("deviation", largest) if guess is None else given.get("deviation", guess)
        # A prompt shows six digits of the largest deviation, which may be slightly more than it is.
        shown = max(largest, guess or 0.0, float(f"{largest:g}"))
        deviation = min(largest, check_number("deviation", wanted, 0.0, shown, most_allowed=True))
    return Rewards(low, high, mean, lift, deviation, buyers, order)


def one_of(name: str, given: object, known: tuple[str, ...]) -> str:
    """Return one of the known names, or refuse it."""
    if not isinstance(given, str) or given not in known:
        raise UnknownName(name, str(given), known)
    return given


def check_number(
    name: str, given: object, low: float, high: float, *, most_allowed: bool = False, percent: bool = False
) -> float:
    """A number between two limits. The upper one is allowed on request.

    With `percent`, the message about a number from 1 to 100 suggests that it is a percentage.
    """
    number = math.nan
    if isinstance(given, int | float) and not isinstance(given, bool):
        number = float(given)
    if not low < number or not (number < high or (most_allowed and number == high)) or math.isinf(number):
        limits = [f"> {low:g}"] * math.isfinite(low)
        limits += [f"{'<=' if most_allowed else '<'} {high:g}"] * math.isfinite(high)
        allowed = " ".join(["a number", " and ".join(limits)]).strip()
        if percent and 1 <= number <= 100:
            allowed += f" (did you mean {number:g}%, which is {number / 100:g}?)"
        raise InvalidValue(name, given, allowed)
    return number


def _reward_range(kind: str, given: object, answer: Answer) -> tuple[float, float]:
    if kind not in (BOUNDED, REVENUE):
        if given is not None:
            allowed = f"None: only {BOUNDED} rewards and {REVENUE} have one, and the reward is {kind}"
            raise InvalidValue("reward_range", given, allowed)
        return (-math.inf, math.inf) if kind == UNBOUNDED else (0.0, 1.0)
    given = answer("reward_range", (0.0, 1.0 if kind == BOUNDED else _LARGEST_ORDER))
    allowed = "two numbers, the lowest and the highest reward, such as (0, 100)"
    try:
        low, high = map(float, given)  # type: ignore[call-overload]  # checked by doing it
    except (TypeError, ValueError):
        raise InvalidValue("reward_range", given, allowed) from None
    if not -1e100 < low < high < 1e100:
        raise InvalidValue("reward_range", given, allowed)
    if kind == REVENUE and low != 0.0:
        allowed = f"a range from 0, because a decision without an order earns 0, such as 0..{high:g}"
        raise InvalidValue("reward_range", f"{low:g}..{high:g}", allowed)
    return low, high


def _rate(kind: str, low: float, high: float, answer: Answer) -> float:
    """The mean reward, unless the reward is revenue."""
    usual = (low + high) / 2 if kind == BOUNDED else _RATES[kind]
    least = max(low, 0.0) if kind == UNBOUNDED else low
    return check_number("rate", answer("rate", usual), least, high, percent=kind in (CLICKS, BINARY))


def _no_orders(kind: str, given: dict[str, Any]) -> tuple[None, None]:
    """Refuse answers about orders, because the reward is not revenue."""
    for name in ("buyers", "order"):
        if name in given:
            raise InvalidValue(name, given[name], f"None: only {REVENUE} has it, and the reward is {kind}")
    return None, None


def _orders(high: float, given: dict[str, Any], answer: Answer) -> tuple[float, float]:
    """The fraction of buyers and a typical order; with the mean reward, one follows from the other."""
    if {"rate", "buyers", "order"} <= given.keys():
        raise InvalidValue("rate", given["rate"], "None: it is buyers times order")
    rate = check_number("rate", given["rate"], 0.0, high) if "rate" in given else None
    buyers = None
    if rate is None or "buyers" in given:
        buyers = check_number("buyers", answer("buyers", _BUYERS), 0.0, 1.0, percent=True)
    if rate is not None and buyers is not None:
        return buyers, check_number("rate", rate, 0.0, buyers * high, most_allowed=True) / buyers
    order = check_number("order", answer("order", high / 5), 0.0, high, most_allowed=True)
    if buyers is None:
        buyers = check_number("rate", rate, 0.0, order) / order
    return buyers, order


def order_deviation(buyers: float, order: float, largest: float) -> float:
    """The standard deviation of revenue per decision, if orders vary by as much as their mean.

    Then the mean square of an order is twice the square of its mean, as with an exponential distribution, but
    at most order x largest, because no order is above the largest.

    >>> round(order_deviation(0.02, 40, 300), 2)
    7.96
    """
    squares = min(2.0 * order, largest) * order
    return math.sqrt(buyers * squares - (buyers * order) ** 2)
