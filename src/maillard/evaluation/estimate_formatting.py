"""Formatting of estimates: the number of decimals, and names that share a text."""

from __future__ import annotations

import math
from collections.abc import Iterable

from maillard.evaluation.evaluation_report import Estimate

_MAX_DECIMALS = 10


def decimals_of(estimates: Iterable[Estimate]) -> int:
    """The number of decimals that shows two digits of the narrowest interval's half-width.

    >>> decimals_of([Estimate(name="ips", value=0.4973, lower=0.4746, upper=0.5201)])
    3
    """
    halves = [each.width / 2 for each in estimates if each.value is not None]
    least = min((half for half in halves if 0 < half < math.inf), default=1e-4)
    return min(max(1 - math.floor(math.log10(least)), 0), _MAX_DECIMALS)


def grouped(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The names that share a text, joined, with that text; names without a text are left out.

    >>> grouped([("ips", "many rows"), ("cs-dr", ""), ("snips", "many rows")])
    [('ips, snips', 'many rows')]
    """
    found: dict[str, dict[str, None]] = {}
    for name, text in pairs:
        if text:
            found.setdefault(text, {})[name] = None
    return [(", ".join(names), text) for text, names in found.items()]
