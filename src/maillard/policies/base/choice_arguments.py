"""Checks of the arguments of a choice: the round and the eligible arms."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from maillard.array_types import Bools
from maillard.errors import InvalidValue
from maillard.linear_tally import LinearTally
from maillard.tally import Tally


def check_round(round: int, tally: Tally | LinearTally) -> int:
    """Return the round of a choice; raise InvalidValue if it cannot be that."""
    if isinstance(round, bool) or not isinstance(round, int | np.integer):
        raise InvalidValue("round", round, "a whole number")
    most = int((tally.pulls if isinstance(tally, Tally) else tally.counts).max())
    if not most < round <= 2**53:
        allowed = f"a whole number greater than the pulls of every arm ({most}) and at most 2**53"
        raise InvalidValue("round", round, allowed)
    return int(round)


def check_eligible(eligible: ArrayLike, arms: int) -> Bools:
    """Return which arms are eligible; raise InvalidValue if that is not one boolean per arm, or none is."""
    try:
        mask = np.asarray(eligible)
    except ValueError:  # rows have different lengths
        mask = np.empty(0)
    if mask.dtype != np.bool_ or mask.shape != (arms,):
        raise InvalidValue("eligible", eligible, f"a list of {arms} booleans, one per arm")
    if not mask.any():
        raise InvalidValue("eligible", eligible, "at least one eligible arm")
    return mask
