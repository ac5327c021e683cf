"""Half-widths of intervals for means of bounded terms."""

from __future__ import annotations

import math

__all__ = ["bernstein_halfwidth"]


def bernstein_halfwidth(variance: float, count: int, span: float, alpha: float) -> float:
    """Maurer and Pontil (2009), Theorem 4, on both sides: independent terms within `span` of each other.

    `variance` is that of the mean of `count` terms. With L = ln(4 / α), √(2 V L / n) + 7 span L / (3 (n - 1)), V with n - 1.

    >>> round(bernstein_halfwidth(0.25 / 1000, 1000, 1.0, 0.05), 4)
    0.0571
    """
    if count < 2:
        return math.inf
    log = math.log(4.0 / alpha)
    sample = variance * count * count / (count - 1)  # Σ (x - mean)² / (n - 1)
    return math.sqrt(2.0 * sample * log / count) + 7.0 * span * log / (3.0 * (count - 1))
