"""Validation of the rows that both difference estimators take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def check_rows(
    arm: ArrayLike, reward: ArrayLike, batch: ArrayLike | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Arms, rewards and batches as arrays of equal length, in log order.

    By default all rows are in one batch.

    >>> check_rows([0, 1], [0.5, 1])[1]
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
    return arms, rewards, batches


def _integers(name: str, given: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(given)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise InvalidValue(name, f"{array.dtype} of shape {array.shape}", "whole numbers, one for each row")
    return array.astype(np.int64)
