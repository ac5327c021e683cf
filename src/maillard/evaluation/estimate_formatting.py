"""Formatting of estimates: the number of decimals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maillard.evaluation.evaluation_report import Estimate

_MAX_DECIMALS = 10


def decimals_of(estimates: Iterable[Estimate]) -> int:
    """The number of decimals that shows two digits of the narrowest interval's half-width.

    >>> from maillard.evaluation import Estimate
    >>> decimals_of([Estimate(name="ips", value=0.4973, lower=0.4746, upper=0.5201)])
    3
    """
    halves = [each.width / 2 for each in estimates if each.value is not None]
    least = min((half for half in halves if 0 < half < math.inf), default=1e-4)
    return min(max(1 - math.floor(math.log10(least)), 0), _MAX_DECIMALS)
