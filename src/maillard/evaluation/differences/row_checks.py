"""Validation of the rows that both difference estimators take."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue


def check_rows(
    arm: ArrayLike, reward: ArrayLike, batch: ArrayLike | None, pair: tuple[int, int], confidence: float
) -> tuple[Ints, Floats, Ints]:
    """Arms, rewards and batches as arrays of equal length, in log order.

    If `batch` is None, all rows are in one batch. The two arms of `pair` and the confidence are checked too.

    >>> check_rows([0, 1], [0.5, 1], None, (0, 1), 0.95)[1]
    array([0.5, 1. ])
    """
    arms, rewards = _integers("arm", arm), np.asarray(reward, np.float64)
    batches = np.zeros_like(arms) if batch is None else _integers("batch", batch)
    for name, array in (("reward", rewards), ("batch", batches)):
        if array.shape != arms.shape:
            raise InvalidValue(name, f"shape {array.shape}", f"one value for each of the {arms.size} rows")
    bad = ~np.isfinite(rewards)
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidValue(f"reward[{row}]", float(rewards[row]), "a finite number")
    if not 0 < confidence < 1:
        raise InvalidValue("confidence", confidence, "a number between 0 and 1")
    if pair[0] == pair[1]:
        raise InvalidValue("second", pair[1], "an arm other than the first")
    return arms, rewards, batches


def _integers(name: str, given: ArrayLike) -> Ints:
    array = np.asarray(given)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise InvalidValue(name, f"{array.dtype} of shape {array.shape}", "whole numbers, one for each row")
    return array.astype(np.int64)
