"""The summary of an experiment: its configuration, its counts and its final rewards."""

from __future__ import annotations

import dataclasses
from typing import Any

from maillard.decisions.outcomes import Outcomes, read_outcomes
from maillard.decisions.session import Session
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Counts, Transaction
from maillard.decisions.timestamps import from_microseconds


def summarize(session: Session) -> dict[str, Any]:
    """The arms, counts, policy and status of the experiment; `Bandit.summary` describes the fields."""

    def read(transaction: Transaction, state: State) -> tuple[Counts, Outcomes]:
        return transaction.counts(), read_outcomes(transaction, state)

    state, (counts, outcomes) = session.refresh_with(read)
    final, next_close = outcomes.tally, outcomes.next_close
    probabilities: dict[str, float] | None = None
    if state.context is None:
        chosen_from = state.choice_distribution()
        probabilities = dict(zip(chosen_from.arms, chosen_from.probabilities.tolist(), strict=True))
    tally = state.tally
    # If the arms differ at every decision, there are none here.
    arms = zip(
        state.arms, state.active, tally.pulls.tolist(), tally.sums.tolist(),
        final.pulls.tolist(), final.sums.tolist(), strict=not state.dynamic,
    )  # fmt: skip
    return {
        "experiment": session.experiment,
        "log": session.store.where,
        "policy": str(state.policy),
        "policy_version": state.policy_version,
        "epoch": state.epoch,
        "state": state.number,
        "paused": state.paused,
        "archived": state.archived,
        "sticky": state.sticky,
        "seeded": state.seeded,
        "simulated_clock": state.simulated_clock,
        "reward": dataclasses.asdict(state.reward),
        "context": None if state.context is None else state.context.to_data(),
        "feature_version": state.feature_version,
        "decisions": sum(counts.decisions.values()),
        "units": outcomes.visits.units,
        "rewards": counts.rewards,
        "late": counts.late,
        "parked": counts.parked,
        "pending": sum(outcomes.pending.values()),
        "next_close": None if next_close is None else from_microseconds(next_close),
        "note": outcomes.note,
        "refusal": outcomes.refusal,
        "arms": {
            arm: {
                "active": active,
                "decisions": counts.decisions.get(arm, 0),
                "pulls": pulls,
                "sum": total,
                "final": final_pulls,
                "pending": outcomes.pending[arm],
                "missing": outcomes.missing[arm],
                "mean": final_sum / final_pulls if final_pulls else None,
                "probability": None if probabilities is None else probabilities.get(arm, 0.0),
            }
            for arm, active, pulls, total, final_pulls, final_sum in arms
        },
    }
