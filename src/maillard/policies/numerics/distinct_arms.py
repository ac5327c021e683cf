"""The distinct score distributions of the arms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maillard.array_types import Floats, Indices
from maillard.policies.numerics.cdf_tables import CdfTable
from maillard.policies.numerics.score_distributions import ScoreDistribution

_MOST_TABLES = 2048  # of ten kilobytes each


@dataclass(frozen=True, eq=False)
class Arms:
    """Distinct score distributions and their numbers of copies, sorted by upper end, highest first."""

    noise: ScoreDistribution
    a: Floats
    b: Floats
    copies: Floats
    low: Floats
    high: Floats
    spread: Floats
    peak: Floats
    log_norm: Floats

    @classmethod
    def sorted(cls, noise: ScoreDistribution, a: Floats, b: Floats, copies: Floats) -> tuple[Arms, Indices]:
        """Return arms with these parameters in the order of their upper ends, and the order."""
        low, high = noise.ends(a, b)
        if noise.shifts:
            # The narrow distributions that matter are near the highest lower end. With the origin there,
            # x - a is exact.
            a = a - a[np.argmax(low)]
            low, high = noise.ends(a, b)
        order = np.argsort(-high, kind="stable")
        columns = (a, b, copies, low, high, noise.spread(a, b), noise.peak(a, b), noise.log_norm(a, b))
        return cls(noise, *(column[order] for column in columns)), order

    def rows(self, part: slice) -> Arms:
        """Return some of the arms."""
        columns = self.a, self.b, self.copies, self.low, self.high, self.spread, self.peak, self.log_norm
        return Arms(self.noise, *(column[part] for column in columns))

    def logs(self, x: Floats, which: Indices) -> tuple[Floats, Floats]:
        """Return ln F(x) and ln(f(x) / F(x)) of some arms; `x` has one row per arm, or one for all."""
        if self._table is not None:
            return self._table.logs(x, which)
        return self.noise.logs(x, self.a[which, None], self.b[which, None])

    @cached_property
    def _table(self) -> CdfTable | None:
        if not self.noise.has_slow_cdf or self.a.size > _MOST_TABLES:
            return None
        return CdfTable(self.noise, self.a, self.b, low=self.low, high=self.high, log_norm=self.log_norm)
