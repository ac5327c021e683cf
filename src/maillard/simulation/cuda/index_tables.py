"""Tables of a separable index: the mean plus a width, which depends on the pulls, times a level of the round.

Both come from the policy's formula, and are rounded to single precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.policies import Indexed

MAX_ROUNDS = 1 << 22  # tables of 32 MB; pulls fit into 32 bits
CHECKED, TOLERANCE = 64, 1e-9


class IndexTables(NamedTuple):
    """The width for every number of pulls, and the level of every round; element 0 is unused."""

    widths: NDArray[np.float32]
    levels: NDArray[np.float32]


def tabulate(policy: Indexed, arms: int, horizon: int) -> IndexTables | None:
    """Return the tables of a policy, or None if single precision cannot represent them.

    Raise `InvalidValue` if the index is not what `index_form` declares.
    """
    if horizon > MAX_ROUNDS:
        return None
    counted = np.arange(horizon + 2, dtype=np.float64)
    counted[0] = 1.0

    def bonus(n: Any, t: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.broadcast_to(policy.index(n, 0.0 * n, np.nan, t, float(arms)), counted.shape)

    levels = bonus(np.ones_like(counted), counted)
    most = int(np.argmax(np.abs(levels)))
    widths = bonus(counted, counted[most])
    if levels[most] != 0.0:
        widths = widths / levels[most]
    elif widths.any():
        return None
    with np.errstate(over="ignore"):
        single = np.stack([widths, levels]).astype(np.float32)
    if not np.isfinite(single).all():
        return None
    _check(policy, arms, widths, levels)
    return IndexTables(single[0], single[1])


def _check(policy: Indexed, arms: int, widths: Any, levels: Any) -> None:
    """Compare the product of the tables with the formula."""
    n, t = (np.geomspace(1, widths.size - 1, CHECKED).astype(int), np.arange(CHECKED) * 7919 % widths.size)
    t[t == 0] = 1
    mean = np.cos(np.arange(CHECKED))
    with np.errstate(all="ignore"):
        index = policy.index(n.astype(float), mean, np.nan, t.astype(float), float(arms))
    error = np.abs(index - (mean + widths[n] * levels[t]))
    if not (error <= TOLERANCE * (np.abs(index) + np.abs(mean))).all():
        place = int(np.argmax(error))
        where = f"{policy.name}: index of {n[place]} pulls in round {t[place]}"
        raise InvalidValue(where, float(index[place]), "what `index_form` declares: mean + f(n) g(t)")
