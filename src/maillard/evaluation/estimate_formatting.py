"""Estimates as people read them: how many decimals, and what several have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable

from maillard.evaluation.evaluation_report import Estimate

__all__ = ["decimals_of", "grouped"]

_MOST = 10


def decimals_of(estimates: Iterable[Estimate]) -> int:
    """The decimals that show two digits of the narrowest interval's half-width, so that numbers below each other can be compared.

    >>> decimals_of([Estimate(name="ips", value=0.4973, lower=0.4746, upper=0.5201)])
    3
    """
    halves = [each.width / 2 for each in estimates if each.value is not None]
    least = min((half for half in halves if 0 < half < math.inf), default=1e-4)
    return min(max(1 - math.floor(math.log10(least)), 0), _MOST)


def grouped(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names that have the same text, joined, with the text; those that have none left out.

    >>> grouped([("ips", "many rows"), ("cs-dr", ""), ("snips", "many rows")])
    [('ips, snips', 'many rows')]
    """
    found: dict[str, dict[str, None]] = {}
    for name, text in pairs:
        if text:
            found.setdefault(text, {})[name] = None
    return [(", ".join(names), text) for text, names in found.items()]
