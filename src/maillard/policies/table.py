"""Tables of all policies: the paper's Table 1 for K-armed ones, and one for policies that use a context."""

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
CONTEXT_COLUMNS = ("policy", "rule", "regret", "probabilities", "source")


def columns_of(cls: type[Policy]) -> tuple[str, ...]:
    """Return the columns of the table that contains a policy."""
    return CONTEXT_COLUMNS if cls.uses_context else COLUMNS


def table_row(cls: type[Policy]) -> list[str]:
    """Return the row of a policy in its table."""
    row: Guarantees = cls.guarantees
    if cls.uses_context:
        name = cls.name + (" †" if row.note else "")
        regret = row.regret or ("linear regret" if row.minimax_ratio == "linear regret" else "")
        return [name, cls.formula, regret, cls.probability_kind, row.source]
    optimal = _mark(row.asymptotically_optimal) + ("*" if row.optimality_is_open else "")
    closed = {"closed form": "✓", "quadrature": "✗"}.get(cls.probability_kind, "N/A")
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
