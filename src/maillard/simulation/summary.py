"""Summaries of very many trials: moments and quantiles at checkpoints, mean pulls, and final values.

A `PartialSummary` summarizes some trials; summaries of different trials can be merged. Quantiles at
checkpoints come from a histogram whose bins are narrower than 1% of their value. At the horizon, quantiles
and tail counts are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import InvalidValue
from maillard.simulation.result import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

PER_OCTAVE = 128
LEAST = 2.0**-20  # smaller values count as 0
OCTAVES = 64
BINS = 1 + PER_OCTAVE * OCTAVES
_FIRST = -19  # the exponent, as frexp has it, of the smallest values above LEAST


def bin_of(value: float) -> int:
    """Return the bin of a value: 0 for values up to LEAST, then 128 bins of equal width per doubling."""
    if not value > LEAST:
        return 0
    mantissa, exponent = math.frexp(value)
    return min(1 + (exponent - _FIRST) * PER_OCTAVE + int((mantissa - 0.5) * (2 * PER_OCTAVE)), BINS - 1)


def _middles() -> Floats:
    """Return the middle of each bin."""
    octave, place = np.divmod(np.arange(BINS - 1), PER_OCTAVE)
    middles = np.ldexp(0.5 + (place + 0.5) / (2 * PER_OCTAVE), octave + _FIRST)
    return np.concatenate([[0.0], middles])


@dataclass(frozen=True, eq=False)
class PartialSummary:
    """The summary of some trials of one policy."""

    count: int  # of trials
    mean: Floats  # at each checkpoint
    square: Floats  # sum of squared deviations from the mean
    most: Floats  # maximum
    histogram: NDArray[np.int64]  # checkpoint x bin
    pulls: Floats  # total of all trials: arm
    final: Floats  # of each trial


def merge(parts: Sequence[PartialSummary]) -> PartialSummary:
    """Merge summaries of different trials, in order (Chan, Golub and LeVeque 1983)."""
    done, mean, square, most = 0, parts[0].mean, parts[0].square * 0.0, parts[0].most
    histogram, pulls = parts[0].histogram * 0, parts[0].pulls * 0.0
    for part in parts:
        more = part.count
        difference, weight = part.mean - mean, more / (done + more)
        mean = mean + difference * weight
        square = square + part.square + difference**2 * (done * weight)
        most, histogram, pulls = np.maximum(most, part.most), histogram + part.histogram, pulls + part.pulls
        done += more
    final = np.concatenate([part.final for part in parts])
    return PartialSummary(done, mean, square, most, histogram, pulls, final)


def summarize_trials(values: Floats, pulls: NDArray[np.int64]) -> PartialSummary:
    """Summarize trials: values are trial x checkpoint, pulls are trial x arm."""
    mean = values.mean(axis=0)
    mantissa, exponent = np.frexp(values)
    bins = 1 + (exponent - _FIRST) * PER_OCTAVE + ((mantissa - 0.5) * (2 * PER_OCTAVE)).astype(np.int64)
    bins = np.where(values > LEAST, np.minimum(bins, BINS - 1), 0)
    histogram = np.stack([np.bincount(column, minlength=BINS) for column in bins.T])
    square = ((values - mean) ** 2).sum(axis=0)
    counts = pulls.sum(axis=0, dtype=np.float64)
    return PartialSummary(
        len(values), mean, square, values.max(axis=0), histogram, counts, values[:, -1].copy()
    )


@dataclass(frozen=True, eq=False)
class Summary(Outcome):
    """Curves, quantiles, tails and mean pulls of every policy, and every trial's final regret or loss.

    >>> from maillard import simulate
    >>> found = simulate(["ms", "uniform"], "bernoulli:0.5,0.4", 100, trials=10, seed=1, keep="summary")
    >>> found.trials, found.mean[:, -1].round(2), found.mean_pulls.sum(axis=1)
    (10, array([4.35, 4.99]), array([100., 100.]))
    >>> found.quantile(0.95)[:, -1].round(1), found.tail(above=4), found.summary()[0]["policy"]
    (array([6.6, 5.6]), array([ 6, 10]), 'ms')
    >>> found.plot("distributions").savefig("regret.png")
    """

    policies: tuple[str, ...]
    measure: str  # "regret" or "loss"
    rounds: NDArray[np.int64]  # the checkpoints
    parts: tuple[PartialSummary, ...]
    provenance: dict[str, Any]

    __repr__ = Outcome.__repr__

    @property
    def trials(self) -> int:
        """Number of trials of each policy."""
        return self.parts[0].count

    @property
    def final(self) -> Floats:
        """Regret or loss at the horizon: policy x trial."""
        return np.stack([part.final for part in self.parts])

    @property
    def mean(self) -> Floats:
        """Mean over trials: policy x checkpoint."""
        return np.stack([part.mean for part in self.parts])

    @property
    def sd(self) -> Floats:
        """Standard deviation over trials: policy x checkpoint; 0 for a single trial."""
        return np.sqrt(np.stack([part.square for part in self.parts]) / max(self.trials - 1, 1))

    @property
    def max(self) -> Floats:
        """Maximum over trials: policy x checkpoint."""
        return np.stack([part.most for part in self.parts])

    @property
    def mean_pulls(self) -> Floats:
        """Mean number of pulls: policy x arm."""
        return np.stack([part.pulls for part in self.parts]) / self.trials

    def quantile(self, q: float | Sequence[float]) -> Floats:
        """Return quantiles over trials: policy x checkpoint, with q as the first axis if there are several.

        They are exact at the horizon, and within 0.4% at other checkpoints.
        """
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
            raise InvalidValue("q", q, "numbers from 0 to 1")
        found = np.empty((levels.size, len(self.parts), self.rounds.size))
        middles, ranks = _middles(), np.maximum(np.ceil(levels * self.trials), 1)
        for i, part in enumerate(self.parts):
            for place, counts in enumerate(part.histogram.cumsum(axis=1)):
                found[:, i, place] = np.minimum(middles[np.searchsorted(counts, ranks)], part.most[place])
            found[:, i, -1] = np.quantile(part.final, levels)
        return found[0] if np.ndim(q) == 0 else found
