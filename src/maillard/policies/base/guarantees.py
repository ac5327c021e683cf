"""A policy's row of the paper's Table 1."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Guarantees"]


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """What is proved about a policy's regret, for sub-Gaussian rewards unless `note` says otherwise.

    None means that no result is reported.
    """

    sub_ucb: bool | None = None
    asymptotically_optimal: bool | None = None
    minimax_ratio: str | None = None
    anytime: bool = True
    closed_form_probability: bool | None = None  # None: deterministic, so not applicable
    source: str
    note: str = ""
    optimality_is_open: bool = False  # asymptotic optimality is not reported but might hold: the paper's ✗*
