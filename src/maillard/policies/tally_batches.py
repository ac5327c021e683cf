"""Log probabilities of many tallies at once, for policies whose formulas are elementwise.

`log_probabilities_of_rows` evaluates the same formulas as `Policy.log_probabilities`, on matrices with one
tally per row. Without a set of eligible arms the results are the same floats. With one, sums over arms may
be rounded differently, so results may differ by 1e-13 max(1, |log p|).

Policies that need quadrature, and policies with methods that only know a single tally, have no such form:
the result is None, and the caller computes one tally after the other.
"""

from __future__ import annotations

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.errors import MaillardError
from maillard.policies.base.policy import Policy
from maillard.tally import Tally

_MAX_BLOCK_VALUES = 1 << 16  # per temporary array: fast while it fits into the cache
_TOLERANCE = 1e-13


def log_probabilities_of_rows(
    policy: Policy, pulls: Ints, sums: Floats, rounds: Ints, eligible: Bools | None = None
) -> Floats | None:
    """Return the log probability of every arm in each of many tallies; None if the policy cannot.

    `pulls`, `sums` and `eligible` have one row per tally and one column per arm, `rounds` has one number per
    tally. A row for which `Policy.log_probabilities` raises an error is NaN.

    >>> from maillard import MaillardSampling
    >>> pulls, sums = np.array([[4, 4], [1, 0]]), np.array([[3.0, 2.0], [1.0, 0.0]])
    >>> rows = log_probabilities_of_rows(MaillardSampling(sigma2=0.25), pulls, sums, np.array([9, 2]))
    >>> np.exp(rows).round(4)
    array([[0.6225, 0.3775],
           [0.5   , 0.5   ]])
    """
    if not policy.solves_many:
        return None
    found = np.empty(pulls.shape, order="F")
    size = max(1, _MAX_BLOCK_VALUES // pulls.shape[1])
    for start in range(0, pulls.shape[0], size):
        part = slice(start, start + size)
        mask = None if eligible is None else eligible[part]
        if mask is not None and mask.all():
            mask = None
        log = _solve_block(policy, pulls[part], sums[part], rounds[part], mask)
        if log is None:
            return None
        found[part] = log
    return found


def _solve_block(
    policy: Policy, pulls: Ints, sums: Floats, rounds: Ints, eligible: Bools | None
) -> Floats | None:
    def solve_one(row: int) -> Floats:
        tally, mask = Tally(pulls[row], sums[row]), None if eligible is None else eligible[row]
        try:
            return policy.log_probabilities(tally, round=int(rounds[row]), eligible=mask)
        except MaillardError:
            return np.full(pulls.shape[1], np.nan)

    n, s = np.ascontiguousarray(pulls.T, np.float64), np.ascontiguousarray(sums.T)
    mask = None if eligible is None else np.ascontiguousarray(eligible.T)
    try:
        with np.errstate(all="ignore"):
            log = policy._solve_many(n, s, rounds.astype(np.float64), mask)
    except (MaillardError, TypeError, ValueError, IndexError):  # a formula that does not accept matrices
        return None
    if log is None:
        return None
    bad = np.isnan(log).any(axis=0)
    for _, broken in policy._broken_rules(n, s):
        bad |= broken.any(axis=0)
    if mask is not None:
        bad |= ~mask.any(axis=0)
    log[:, bad] = np.nan
    # A formula that is not elementwise, but uses a sum over arms, for example, is found here.
    return log.T if _agree(log[:, 0], solve_one(0)) and _agree(log[:, -1], solve_one(-1)) else None


def _agree(one: Floats, other: Floats) -> bool:
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= _TOLERANCE * np.maximum(1.0, np.abs(other))
    return bool((near | (one == other) | (np.isnan(one) & np.isnan(other))).all())
