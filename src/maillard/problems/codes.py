"""Numbers by which compiled code knows kinds of rewards and of delays."""

from __future__ import annotations

GAUSSIAN, BERNOULLI, POISSON, EXPONENTIAL, UNIFORM, FINITE, OWN = range(7)
NO_DELAY, FIXED, BATCHED, GEOMETRIC = range(4)
