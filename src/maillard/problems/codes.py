"""Integer codes of reward distributions and delays, for compiled code."""

from __future__ import annotations

GAUSSIAN, BERNOULLI, POISSON, EXPONENTIAL, UNIFORM, FINITE, OWN, OWN_BLOCKS, OWN_COMPILED = range(9)
NO_DELAY, FIXED, BATCHED, GEOMETRIC = range(4)
