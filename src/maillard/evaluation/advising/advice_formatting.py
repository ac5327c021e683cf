"""Numbers of advice as text: rates, differences, durations, and numbers with their errors."""

from __future__ import annotations

import math

from maillard.evaluation.advising.advice_requirements import Requirements
from maillard.evaluation.advising.reward_answers import CLICKS

_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def duration(seconds: float) -> str:
    """A duration as text, such as 90s or 2h."""
    for unit, size in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def reward_name(r: Requirements) -> str:
    """What is lost: clicks or reward."""
    return "clicks" if r.reward == CLICKS else "reward"


def amount(r: Requirements, value: float) -> str:
    """A mean reward as text: a percentage if rewards are 0 or 1."""
    return f"{100 * value:.3g}%" if r.zero_or_one else f"{value:.3g}"


def difference(r: Requirements, value: float) -> str:
    """A difference between mean rewards as text: in points if rewards are 0 or 1."""
    if not r.zero_or_one:
        return f"{value:.3g}"
    return "1 point" if f"{100 * value:.3g}" == "1" else f"{100 * value:.3g} points"


def revenue_formula(r: Requirements) -> str:
    """Say how the mean and the deviation of revenue follow from the orders."""
    assert r.buyers is not None
    assert r.order is not None
    square = f"2 × {r.order:g}²" if 2 * r.order <= r.high else f"{r.order:g} × {r.high:g}"
    mean = f"{r.buyers:.3g} × {r.order:.4g} = {r.rate:.3g}"
    deviation = f"√({r.buyers:.3g} × {square} - {r.rate:.3g}²) = {r.deviation:.3g}"
    return (
        f"{100 * r.buyers:.3g}% of decisions end in an order of {r.order:.4g} on average, so the mean reward "
        f"is {mean}, and the standard deviation is {deviation}. This assumes that orders vary by as much as "
        "their average; if you know better, use --deviation."
    )


def with_error(value: float, error: float) -> str:
    """A number with its standard error, both rounded to the first digit of the error.

    >>> with_error(0.94271, 0.0113), with_error(1234.5, 31), with_error(2.5, 0)
    ('0.94 ± 0.01', '1,230 ± 30', '2.5 ± 0')
    """
    if not error > 0:
        return f"{value:,.3g} ± 0"
    digits = -math.floor(math.log10(error))
    return f"{round(value, digits):,.{max(0, digits)}f} ± {round(error, digits):,.{max(0, digits)}f}"


def share(fraction: float, runs: int) -> str:
    """A fraction of the runs with its standard error, which is not 0 even if all runs agree."""
    near = (fraction * runs + 1) / (runs + 2)
    return f"{fraction:.0%} ± {math.sqrt(near * (1 - near) / runs):.0%}"


def percent(fraction: float) -> str:
    """A percentage with two significant digits.

    >>> percent(0.0384), percent(0.1396), percent(1)
    ('3.8%', '14%', '100%')
    """
    return f"{fraction:.1%}" if fraction < 0.0995 else f"{fraction:.0%}"
