"""Known regret guarantees of a policy: its row in the paper's Table 1."""

from __future__ import annotations

from dataclasses import dataclass

from maillard.short_reprs import dataclass_repr


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """Proved properties of a policy's regret, for sub-Gaussian rewards unless `note` says otherwise.

    None means that the literature reports no result.

    >>> from maillard import MaillardSampling
    >>> found = MaillardSampling.guarantees
    >>> found.asymptotically_optimal, found.minimax_ratio
    (True, '√(log T)')
    """

    sub_ucb: bool | None = None
    asymptotically_optimal: bool | None = None
    minimax_ratio: str | None = None
    anytime: bool = True
    closed_form_probability: bool | None = None  # by default, `Policy` derives it from `probability_kind`
    regret: str | None = None  # the order of the regret of a linear policy
    source: str
    note: str = ""
    # Not proved to be asymptotically optimal, but it might be: the paper's ✗*.
    optimality_is_open: bool = False

    __repr__ = dataclass_repr


def linear_regret(source: str, note: str = "") -> Guarantees:
    """Return the guarantees of a policy with linear regret and closed-form probabilities."""
    return Guarantees(
        sub_ucb=False, asymptotically_optimal=False, minimax_ratio="linear regret",
        closed_form_probability=True, source=source, note=note,
    )  # fmt: skip
