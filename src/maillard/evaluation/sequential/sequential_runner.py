"""Estimators that follow a log in its order, row by row: for logs that were learned from while they grew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from maillard.errors import InvalidValue
from maillard.evaluation.level_selection import DELTA
from maillard.evaluation.sequential.aipw import WEIGHTINGS, Weighted
from maillard.evaluation.sequential.bernstein import EmpiricalBernstein
from maillard.evaluation.sequential.betting import Betting
from maillard.evaluation.sequential.doubly_robust import DoublyRobust

if TYPE_CHECKING:
    from maillard.evaluation.estimators.additive import Additive
    from maillard.evaluation.weighted_rows import Rows

__all__ = ["ASSUMES", "NEEDS_LAWS", "SEQUENCES", "SEQUENTIAL", "WEIGHTINGS", "Follower"]

SEQUENCES = ("cs-bernstein", "cs-dr", "cs-betting")
SEQUENTIAL = WEIGHTINGS + SEQUENCES
NEEDS_LAWS = frozenset({"aipw-sqrt", "aipw-propensity", "aipw-two-point", "cs-dr"})
# What each interval needs, beside arms whose means do not change.
ASSUMES = {
    "aipw": "many rows, none of which decides the variance: probabilities that stay away from 0",
    "aipw-sqrt": "many rows, and probabilities that sink more slowly than 1 / t, or settle: a floor",
    "aipw-propensity": "many rows, and probabilities that settle",
    "aipw-two-point": "many rows, and a floor under the probabilities that sinks like t^-0.7 or more slowly",
    "cs-bernstein": "rewards in a known range. It holds at every row at once, whenever one looks",
    "cs-dr": "rewards in a known range. It holds at every row at once, whenever one looks",
    "cs-betting": "rewards in a known range. It holds at every row at once, whenever one looks",
}


class Follower:
    """The sequential estimators of one target that are asked for; and `forms`, of whose levels one is to be chosen."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        arms: int,
        horizon: int,
        alpha: float,
        reward_range: tuple[float, float] | None,
        largest: float | None,
        decay: float,
        forms: Iterable[Additive] = (),
    ) -> None:
        wanted = set(names)
        self._forms = {each.key: (each, EmpiricalBernstein.start(2 * DELTA)) for each in forms}
        self.busy = bool(wanted or self._forms)
        self._largest = largest
        self._low, high = reward_range or (0.0, 1.0)
        self._scale = high - self._low
        self._weighted: Weighted | None = None
        self._bernstein: EmpiricalBernstein | None = None
        self._robust: DoublyRobust | None = None
        self._betting: Betting | None = None
        if wanted & set(WEIGHTINGS):
            self._weighted = Weighted.start(arms=arms, horizon=max(horizon, 1), decay=decay)
        if "cs-bernstein" in wanted:
            self._bernstein = EmpiricalBernstein.start(alpha)
        if "cs-dr" in wanted:
            self._robust = DoublyRobust.start(arms, alpha)
        if "cs-betting" in wanted:
            self._betting = Betting.start(alpha, highest=largest)

    def advance(self, rows: Rows) -> None:
        """Follow some further rows."""
        if not self.busy:
            return
        if self._weighted is not None:
            self._weighted.advance(
                arm=rows.arm,
                reward=rows.reward,
                weight=rows.weight,
                propensity=rows.propensity,
                law=rows.law,
                laws=rows.laws,
            )
        scaled = np.clip((rows.reward - self._low) / self._scale, 0.0, 1.0)  # rounding apart, they lie there
        for form, sequence in self._forms.values():
            sequence.advance(weight=form.shrink(rows.weight, form.level or 0.0), reward=scaled)
        if self._bernstein is not None:
            self._bernstein.advance(weight=rows.weight, reward=scaled)
        if self._betting is not None:
            self._check_floor(rows)
            self._betting.advance(weight=rows.weight, reward=scaled)
        if self._robust is not None and rows.chances is not None:
            self._robust.advance(
                arm=rows.arm,
                reward=scaled,
                weight=rows.weight,
                chances=rows.chances,
                law=rows.law,
                laws=rows.laws,
            )

    def _check_floor(self, rows: Rows) -> None:
        """No weight may be above what the floor allows: bets on that could not be paid."""
        if self._largest is None or not len(rows) or rows.weight.max() <= self._largest:
            return
        at = int(rows.weight.argmax())
        allowed = f"a probability that the floor allows: it makes weights of at most {self._largest:.6g}"
        raise InvalidValue(f"row {rows.row[at]}: weight", float(rows.weight[at]), allowed)

    def widths(self, forms: Sequence[Additive]) -> list[float] | None:
        """SLOPE's half-widths on a log that was learned from: a confidence sequence's, of ω (r - low); None where none was followed."""
        if any(form.key not in self._forms for form in forms):
            return None
        return [self._forms[form.key][1].half_width() * self._scale for form in forms]

    def weighted(self) -> dict[str, tuple[float, float]]:
        """Value and standard error by each weighting."""
        return {} if self._weighted is None else self._weighted.estimates()

    def sequences(self) -> dict[str, tuple[float, float, float]]:
        """Value, lower and upper bound by each confidence sequence."""
        made = zip(SEQUENCES, (self._bernstein, self._robust, self._betting), strict=True)
        found = {}
        for name, each in made:
            if each is not None:
                value, lower, upper = (
                    self._low + self._scale * bound for bound in (each.value(), *each.interval())
                )
                found[name] = value, lower, upper
        return found
