"""Checks of the contexts in a log: the encoded form against the raw one, and the rows of rewards."""

from __future__ import annotations

from maillard.decisions.decision import Decision
from maillard.decisions.encoded_contexts import encode, row_of_chosen_arm, same_row, same_rows
from maillard.decisions.raw_contexts import read_context
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Row
from maillard.errors import MaillardError


def context_problem(decision: Decision, state: State) -> str | None:
    """How the encoded context of a decision contradicts its raw context or its state; None if it does not."""
    if (state.context is None) != (decision.encoded is None):
        uses = "uses contexts" if state.context else "does not use contexts"
        return f"{'has no' if state.context else 'has an'} encoded context, but the experiment {uses}"
    rule, statistics = state.context, state.statistics
    erased = decision.context is None and decision.actions is None
    # A repeated choice has the distribution of another decision, and a context of its own.
    if rule is None or statistics is None or erased or decision.origin is not None:
        return None
    try:
        raw = read_context(decision.context, decision.actions)
        if state.dynamic and tuple(raw.actions or ()) != decision.eligible:
            return "its eligible arms are not its actions"
        same = same_rows(encode(rule.encode(raw, decision.eligible, statistics)), decision.encoded)
    except MaillardError as error:
        return f"its context cannot be encoded: {error}"
    return None if same else "its encoded context does not follow from its context"


def row_problem(row: Row) -> str | None:
    """How the rows of a decision's tally updates contradict the decision; None if they do not."""
    if all(event.row is None for event in row.applied) and (row.decision.encoded is None or not row.applied):
        return None
    exact = row_of_chosen_arm(row.decision)
    for event in row.applied:
        if not same_row(event.row, exact):
            return f"event {event.number} does not have the feature row or the segment of its decision"
    return None
