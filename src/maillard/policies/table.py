"""The paper's Table 1 for every policy: its guarantees as ticks and crosses."""

from __future__ import annotations

from maillard.policies.base import Guarantees, Policy

COLUMNS = (
    "policy",
    "sub-UCB",
    "asymptotically optimal",
    "minimax ratio",
    "anytime",
    "closed-form probability",
    "source",
)


def table_row(cls: type[Policy]) -> list[str]:
    """Return the row of a policy in Table 1."""
    row: Guarantees = cls.guarantees
    optimal = _mark(row.asymptotically_optimal) + ("*" if row.optimality_is_open else "")
    closed = {"closed form": "✓", "quadrature": "✗", "deterministic": "N/A"}[cls.probability_kind]
    return [
        cls.name + (" †" if row.note else ""),
        _mark(row.sub_ucb),
        optimal,
        row.minimax_ratio or "",
        _mark(row.anytime),
        closed,
        row.source,
    ]


def _mark(value: bool | None) -> str:
    return {True: "✓", False: "✗", None: ""}[value]
