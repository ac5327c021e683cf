"""Known regret guarantees of a policy: its row in the paper's Table 1."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """Proved properties of a policy's regret, for sub-Gaussian rewards unless `note` says otherwise.

    None means that the literature reports no result.
    """

    sub_ucb: bool | None = None
    asymptotically_optimal: bool | None = None
    minimax_ratio: str | None = None
    anytime: bool = True
    closed_form_probability: bool | None = None  # None: not applicable, the choice is deterministic
    source: str
    note: str = ""
    optimality_is_open: bool = (
        False  # not proved to be asymptotically optimal, but it might be: the paper's ✗*
    )
