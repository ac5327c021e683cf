"""A sequential test of a probability: it is high, or it is low, or more trials are needed."""

from __future__ import annotations

import math

_ERROR = 0.01


def evidence(hits: int, trials: int, low: float, high: float) -> float:
    """The logarithm of the likelihood ratio of the probabilities `high` and `low`."""
    return hits * math.log(high / low) + (trials - hits) * math.log((1.0 - high) / (1.0 - low))


def is_clear(ratio: float) -> bool:
    """Whether so much evidence is enough.

    By Ville's inequality, evidence for the wrong one of the two probabilities is ever this strong in at most
    1% of all sequences of trials, however often one looks (Wald's sequential probability ratio test).

    >>> is_clear(evidence(17, 17, 0.75, 0.85)), is_clear(evidence(40, 40, 0.75, 0.85))
    (False, True)
    """
    return abs(ratio) >= math.log(1.0 / _ERROR)
