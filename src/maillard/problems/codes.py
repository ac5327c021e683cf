"""Integer codes of reward distributions and delays, for compiled code."""

from __future__ import annotations

GAUSSIAN, BERNOULLI, POISSON, EXPONENTIAL, UNIFORM, FINITE, OWN = range(7)
NO_DELAY, FIXED, BATCHED, GEOMETRIC = range(4)
