"""Tests for faults of the program that wrote a log: wrong order, rows that occur twice, late probabilities.

Three statistics are martingales for a correct log, however its policy adapts. Here a is the arm of row t, and
b that of row t - 1; a pair of rows counts if both have the same position, and neither repeats another choice.

- Order: Σ (1{a = b} - p_t(b)). If the log has only the probabilities of chosen arms, p_t(b) is known only if
  a = b. Then Σ (1{a = b, q / p_t <= 2} q / p_t - q) takes its place, with q = p_{t-1}(b). It tends to fall or
  stays level for a correct log, so that only a rise counts.
- Copies: the same sums over those pairs that have the same unit, time and probability of b. Whether a pair
  has them is known before arm a is chosen. With the probabilities of chosen arms only, a pair needs the same
  unit and time. These pairs also have the likelihood ratio Π (0.98 1{a = b} / p_t + 0.02). Its expectation
  in a correct log is 1, so it is 100,000 or more with probability at most 1 in 100,000.
- Late probabilities: Σ (r - m) s, where m is the mean of the arm's earlier rewards at the same position, and
  s the direction in which the arm's logged probability there changed last. In a correct log s is known
  before r. If the probability was computed with r, then s has the sign of r - m.

Sums of 1{a = b} - p have terms within [-1, 1] and the known variance V = Σ p (1 - p), so that Bennett's
inequality holds for any number of rows: |Σ| is as large as S with probability at most
2 exp(-V h(S / V)), h(u) = (1 + u) ln(1 + u) - u. The other sums are divided by the root of their sum of
squares. Each batch of rows starts anew, so that sums of batches can be added in any order.

If the rows of a table are numbered (row_numbers.py), a number that occurs twice shows a copy, and a number
that is skipped shows that a row was removed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from maillard.decisions.audit import TRUNCATION, Score
from maillard.decisions.row_numbers import RowNumbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.columns import Columns

    Floats = NDArray[np.float64]

LIMIT = 4.5
"The largest |z| of a correct log. A normal score exceeds it with probability 7 in 1,000,000."
_MAX_CHANCE = 1e-5  # probability of a sum in a correct log, by Bennett's inequality, from which it is a fault
MIN_CORRELATION = 0.1
"Of rewards and changes of probabilities. Rewards that depend on the time of day have a smaller one."
MIN_ORDERINGS = math.log(1e6)  # of the rewards, among which the logged one is sorted by chance
NO_COPY = 0.02  # probability that a row with the time of the one before is no copy, if there are copies
FIRST_REWARDS = 3  # of an arm, after which its mean is used
SAME = 1e-9  # a smaller change of a log probability is rounding

_ORDER = (
    "the rows are not in the order in which they were decided, or some rows appear twice; sort the rows by "
    "the time of the decision and remove copies"
)
_COPIES = "some rows appear twice; remove the copies"
_NO_NUMBERS = "no column numbers the rows: missing rows, and copies that are far apart, cannot be found"
_NO_TIMES = "no times: a wrong order can be found only if the choices show it"
_REPEATS = (
    "rows next to each other have the same arm more often than their probabilities allow: rows may be sorted "
    "by arm or appear twice, visitors who came back saw the same arm again, or the choices were not random. "
    "Estimators that need the order of the decisions, or independent rows, may be wrong"
)
_LATE = (
    "the logged probabilities seem to have been computed after the reward was learned; log the probabilities "
    "with which the arm was chosen"
)
_SORTED = "the rows are sorted by reward; sort them by the time of the decision"


def _no_sums() -> Floats:
    return np.zeros(4)


@dataclass(eq=False)
class PipelineAudit:
    """Accumulates the statistics of a log. The four numbers: sum, variance, largest term, number of terms."""

    order: Floats = field(default_factory=_no_sums)
    copies: Floats = field(default_factory=_no_sums)
    chosen_order: Floats = field(default_factory=_no_sums)
    "The order of rows that have only the probability of the chosen arm."
    copy_evidence: float = 0.0
    "The log likelihood ratio of copies, over all pairs of rows that could be copies."
    weights: Floats = field(default_factory=_no_sums)
    "Of these rows: Σ 1 / p, Σ 1 / p², the number of arms and that of rows."
    late: Floats = field(default_factory=_no_sums)
    is_sorted: bool = True
    "Whether the rewards never fall within a batch, or never rise."
    orderings: float = 0.0
    "The log of the number of orderings of these rewards, divided by the number of sorted ones."
    numbers: RowNumbers = field(default_factory=RowNumbers)
    first_copy: float = math.inf
    "The first row that looks like a copy of the one before. The compiled loop does not find it."
    has_times: bool = False

    def add_columns(self, columns: Columns, *, foreign: bool) -> None:
        """Add rows. Only those of a foreign log are tested for late probabilities and sorted rewards."""
        self.add_numbers(columns)
        self.has_times |= bool(columns.time.any())
        columns = columns.filter(~columns.repeated)
        if len(columns) > 1:
            self._add_pairs(columns)
            if foreign:
                self._add_rewards(columns)

    def add_numbers(self, columns: Columns) -> None:
        """Add the numbers of these rows, if they have numbers."""
        if columns.step is not None:
            content = columns.arm, columns.log_probability, columns.position, columns.time
            self.numbers += RowNumbers.of(columns.step, *content)
            self.first_copy = min([self.first_copy, *columns.row[columns.step == 0][:1].tolist()])

    def _add_pairs(self, columns: Columns) -> None:
        arm, time, logs = columns.arm, columns.time, columns.log_probabilities
        pair = columns.position[1:] == columns.position[:-1]
        has_times = bool(time[0] != time[-1])
        if logs is None:
            log = columns.log_probability
            self.weights = _merged(self.weights, _weights_of(arm, np.exp(log)))
            q, apart = np.exp(log[:-1]), np.maximum(log[:-1], -1e3) - np.maximum(log[1:], -1e3)
            # A ratio of 2, which is common, is rounded up or down.
            repeat = (arm[1:] == arm[:-1]) & (apart <= math.log(2.0) + SAME)
            terms = np.where(repeat, np.exp(np.minimum(apart, 1.0)), 0.0) - q
            self.chosen_order = _merged(self.chosen_order, _sums_of(terms[pair], terms[pair] ** 2))
            if has_times:
                pair &= of_same_unit(time[1:] == time[:-1], columns)
                self._add_copies((arm[1:] == arm[:-1])[pair], np.exp(log[1:])[pair], columns.row[1:][pair])
            return
        every = np.arange(len(columns))
        before, now = logs[every[:-1], arm[:-1]], logs[every[1:], arm[:-1]]
        pair &= ~np.isnan(now)
        p = np.exp(np.minimum(now, 0.0))
        terms, variance = (arm[1:] == arm[:-1]) - p, p * (1.0 - p)
        self.order = _merged(self.order, _sums_of(terms[pair], variance[pair]))
        with np.errstate(invalid="ignore"):
            same = pair & (np.abs(now - before) <= SAME) & (time[1:] == time[:-1])
        same = of_same_unit(same, columns)
        if has_times or same.sum() < 0.5 * pair.sum():  # otherwise this would be the same sum once more
            self.copies = _merged(self.copies, _sums_of(terms[same], variance[same]))
            self._add_copies((arm[1:] == arm[:-1])[same], p[same], columns.row[1:][same])

    def _add_copies(self, repeat: NDArray[np.bool_], p: Floats, row: NDArray[np.int64]) -> None:
        self.first_copy = min([self.first_copy, *row[repeat][:1].tolist()])
        ratio = np.divide(1.0 - NO_COPY, p, out=np.zeros_like(p), where=repeat & (p > 0))
        self.copy_evidence += float(np.log(NO_COPY + ratio).sum())

    def _add_rewards(self, columns: Columns) -> None:
        known = np.isfinite(columns.reward)
        reward, time = columns.reward[known], columns.time[known]
        # Both may depend on the position, which is known before the choice.
        arm, position = columns.arm[known], columns.position[known]
        apart = arm * (position.max() + 1) + position if position.size and position.any() else arm
        terms = late_terms(apart, columns.log_probability[known], reward)
        self.late = _merged(self.late, _sums_of(terms, terms * terms))
        self.add_order_of_rewards(reward, time)

    def add_order_of_rewards(self, reward: Floats, time: NDArray[np.int64]) -> None:
        """Add the order of these rewards. If their times differ, those show the order."""
        if not reward.size:
            return
        first = reward[:1000]  # most logs show there that they are not sorted
        few = first[1:] - first[:-1]
        if few.max(initial=0.0) > 0 > few.min(initial=0.0):
            self.is_sorted = False
            return
        step = np.diff(reward)
        self.is_sorted &= bool(time.min() == time.max() and ((step >= 0).all() or (step <= 0).all()))
        if self.is_sorted:
            runs = np.diff(np.flatnonzero(np.concatenate([[True], step != 0, [True]])))
            if runs.size > 1:
                same = sum(math.lgamma(n + 1) for n in runs.tolist())
                self.orderings += math.lgamma(reward.size + 1) - same - math.log(2.0)

    def __add__(self, other: PipelineAudit) -> PipelineAudit:
        """Return the audit of the rows of both."""
        return PipelineAudit(
            _merged(self.order, other.order),
            _merged(self.copies, other.copies),
            _merged(self.chosen_order, other.chosen_order),
            self.copy_evidence + other.copy_evidence,
            _merged(self.weights, other.weights),
            _merged(self.late, other.late),
            self.is_sorted and other.is_sorted,
            self.orderings + other.orderings,
            self.numbers + other.numbers,
            min(self.first_copy, other.first_copy),
            self.has_times or other.has_times,
        )

    def scores(self) -> list[Score]:
        """Return the scores, each with the name of its statistic."""
        named = {
            "order": self.order,
            "copies": self.copies,
            "order of chosen arms": self.chosen_order,
            "late probabilities": self.late,
        }
        return [
            Score(name, observed, 0.0, variance, largest)
            for name, (observed, variance, largest, _) in (
                (name, each.tolist()) for name, each in named.items()
            )
        ]

    @property
    def faults(self) -> list[str]:
        """The likely faults of the program that wrote the log, in words; empty if none was found."""
        return list(dict.fromkeys(self._faults()))

    @property
    def located_faults(self) -> list[str]:
        """The same, with the number of a row that looks like a copy."""
        where = f" (row {self.first_copy:,} looks like a copy of the row before it)"
        located = {_COPIES: _COPIES + where * math.isfinite(self.first_copy)}
        return [located.get(fault, fault) for fault in self.faults]

    @property
    def unchecked(self) -> list[str]:
        """Which faults cannot be found, because the rows have no numbers or no times."""
        return [_NO_NUMBERS] * (not self.numbers.rows) + [_NO_TIMES] * (not self.has_times)

    @property
    def doubts(self) -> list[str]:
        """What is unusual about the log, but has harmless explanations too."""
        *_, chosen, _ = (score.z or 0.0 for score in self.scores())
        inverse, squares, arms, rows = self.weights.tolist()
        too_small = rows and (inverse - rows * arms) > LIMIT * math.sqrt(squares)
        repeats = _REPEATS if chosen > LIMIT and not too_small else ""
        return [each for each in (repeats, self.numbers.warning) if each]

    def _faults(self) -> Iterator[str]:
        *_, late = (score.z or 0.0 for score in self.scores())
        if self.is_sorted and self.orderings > MIN_ORDERINGS:
            yield _SORTED
        elif self._has_copies:
            yield _COPIES
        elif _is_unlikely(self.order) or _is_unlikely(self.copies):
            yield _ORDER
        if abs(late) > LIMIT and abs(late) > MIN_CORRELATION * math.sqrt(self.late[3]):
            yield _LATE

    @property
    def _has_copies(self) -> bool:
        repeats = _is_unlikely(self.copies) and self.copies[0] > 0
        return repeats or self.copy_evidence > -math.log(_MAX_CHANCE) or self.numbers.occur_twice


def of_same_unit(pairs: NDArray[np.bool_], columns: Columns) -> NDArray[np.bool_]:
    """Those pairs of a row and the next one that have the same unit; all of them if units are not known."""
    if columns.unit is None:
        return pairs
    found, places = pairs.copy(), np.flatnonzero(pairs)
    found[places] = columns.unit[places] == columns.unit[places + 1]
    return found


def _is_unlikely(sums: Floats) -> bool:
    """Whether a sum of terms within [-1, 1] is too far from 0 for its variance, by Bennett's inequality."""
    total, variance = abs(float(sums[0])), float(sums[1])
    if not variance:
        return total > SAME * max(1.0, float(sums[3]))
    u = total / variance
    return variance * ((1.0 + u) * math.log1p(u) - u) > math.log(2.0 / _MAX_CHANCE)


def _sums_of(terms: Floats, variance: Floats) -> Floats:
    largest = float(np.abs(terms).max(initial=0.0))
    return np.array([terms.sum(), variance.sum(), largest, np.count_nonzero(terms)])


def _weights_of(arm: NDArray[np.int64], probability: Floats) -> Floats:
    """Return Σ 1 / p and Σ 1 / p² for p >= 0.01, the number of arms and that of rows."""
    inverse = 1.0 / probability[probability >= TRUNCATION]
    return np.array([inverse.sum(), (inverse * inverse).sum(), arm.max(initial=-1) + 1.0, arm.size])


def _merged(one: Floats, other: Floats) -> Floats:
    both = one + other
    both[2] = max(one[2], other[2])
    return both


def late_terms(arm: NDArray[np.int64], log_probability: Floats, reward: Floats) -> Floats:
    """Return (r - m) s for each row, grouped by arm.

    m is the mean of the arm's earlier rewards, and s the sign of the last change of its log probability; the
    term is divided by its standard deviation in units of that of a reward, for the error of m. It is 0 for
    the first rewards of an arm, and while its probability has not changed.
    """
    small = arm.astype(np.int16) if arm.size and arm.max() < 1 << 15 else arm  # sorted in linear time
    rows = np.argsort(small, kind="stable")
    log, r, every = log_probability[rows], reward[rows], np.arange(arm.size)
    first = np.concatenate([[True], small[rows][1:] != small[rows][:-1]])[: arm.size]
    start = np.maximum.accumulate(np.where(first, every, 0))
    count = every - start
    r = r - (r.mean() if r.size else 0.0)
    total = np.concatenate([[0.0], np.cumsum(r)])[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (total - total[start]) / count
    step = np.diff(log, prepend=0.0)
    changed = ~first & (np.abs(step) > SAME)
    last = np.maximum.accumulate(np.where(changed | first, every, 0))
    sign = np.where(changed[last], np.sign(step[last]), 0.0)
    used = count >= FIRST_REWARDS
    terms = np.where(used, (r - np.where(used, mean, 0.0)) * sign, 0.0)
    return np.asarray(terms / np.sqrt(1.0 + 1.0 / np.maximum(count, 1)))
