"""SLOPE: choose a level of shrinkage from the data by Lepski's principle.

Methods: Su, Srinath and Krishnamurthy (2020); Tucker and Lee (2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from maillard.evaluation.unit_intervals import student_quantile

DELTA = 0.1
_C = math.sqrt(6.0) - 1.0


def independent_widths(variances: Sequence[float], count: int) -> list[float]:
    """One-sided Student half-widths of estimates from independent rows."""
    quantile = student_quantile(1.0 - DELTA, count - 1)
    return [quantile * math.sqrt(variance * count / (count - 1)) for variance in variances]


def choose(values: Sequence[float], widths: Sequence[float]) -> int:
    """The index of the narrowest estimate that no wider one contradicts.

    Estimates are visited from the widest down, while |θ_i - θ_j| <= c_i + (√6 - 1) c_j for every earlier j; c
    are half-widths.

    >>> choose([0.5, 0.49, 0.1], [0.1, 0.03, 0.01])
    1
    """
    order = sorted(range(len(values)), key=lambda i: -widths[i])
    best = order[0]
    for place, i in enumerate(order[1:], 1):
        before = order[:place]
        if any(abs(values[i] - values[j]) > widths[i] + _C * widths[j] for j in before):
            break
        best = i
    return best
