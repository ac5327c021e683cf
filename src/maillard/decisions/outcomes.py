"""Which decisions have a final reward, and what can be said about the arms from them.

A reward is final when the window of its decision has closed; without a window, when it has arrived. Means
and intervals use final rewards only: until a window closes, the rewards that have arrived are a biased subset
(clicks arrive, missing clicks do not).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from maillard.decisions.pruned_logs import pruned_decisions
from maillard.decisions.reward_rule import Reward
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Transaction, Visits
from maillard.decisions.timestamps import from_microseconds
from maillard.tally import Tally

MAX_MISSING = 0.05
"The largest fraction of decisions without a reward with which the others may stand for all."
MAX_DESIGN_EFFECT = 1.2
"The design effect above which the decisions of a unit are not treated as independent."

_NOTES = {
    "on_close": "A decision counts when its window closes, with its reward or the default.",
    "provisional": (
        "The policy learns from provisional rewards: a decision counts at once with the default, until its "
        "reward arrives. This biases the policy toward the default for recent decisions. Means and intervals "
        "use only decisions whose window has closed."
    ),
    "on_arrival": (
        "The policy learns from each reward when it arrives. Means and intervals use only decisions whose "
        "window has closed."
    ),
}
_REVISABLE = (
    "Without a window no reward is final: a later event of the same decision can revise it (combine is {})."
)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The rewards of the decisions of the current epoch, as far as they are final."""

    tally: Tally
    "The final rewards of each arm; without a window, all rewards."
    pending: dict[str, int]
    "For each arm, the decisions whose window is still open."
    missing: dict[str, int]
    "For each arm, the decisions that have no reward although their window has closed, or without a window."
    next_close: int | None
    "When the next window closes, in microseconds since 1970."
    note: str | None
    "How the policy learns, in words, if that is not at once."
    visits: Visits
    "How often units returned."
    refusal: str | None = None
    "Why the means must not be used for conclusions about the arms."


def read_outcomes(transaction: Transaction, state: State, visits: Visits | None = None) -> Outcomes:
    """The outcomes of the decisions of the current epoch. `visits`: if they were counted before."""
    rule, tally, pending = state.reward, state.tally, dict.fromkeys(state.arms, 0)
    next_close: int | None = None
    if rule.window is not None:
        tally = tally.copy()
        for window in transaction.open_windows(state.epoch, applied=rule.learn != "on_close"):
            pending[window.arm] = pending.get(window.arm, 0) + window.decisions
            next_close = window.closes if next_close is None else min(next_close, window.closes)
            if window.value is not None:
                place = 0 if state.dynamic else state.arms.index(window.arm)
                tally.remove(place, window.value, window.decisions)
    missing = dict.fromkeys(state.arms, 0)
    if not rule.settles:
        decisions = Counter(transaction.decisions_of_epoch(state.epoch))
        if state.pruned:
            decisions.update(pruned_decisions(transaction, state.epoch))
        for arm, pulls in zip(state.arms, tally.pulls.tolist(), strict=not state.dynamic):
            # Rewards from elsewhere (a warm start) have no decisions.
            missing[arm] = max(0, decisions.get(arm, 0) - pending[arm] - pulls)
    visits = transaction.visits(state.epoch) if visits is None else visits
    found = Outcomes(tally, pending, missing, next_close, _note(rule), visits)
    return replace(found, refusal=_refusal(rule, found))


def _note(rule: Reward) -> str | None:
    if rule.window is not None:
        return _NOTES[rule.learn]
    return None if rule.combine == "first" else _REVISABLE.format(rule.combine)


def _refusal(rule: Reward, found: Outcomes) -> str | None:
    final, pending = int(found.tally.pulls.sum()), sum(found.pending.values())
    if rule.window is None and rule.combine != "first":
        return _REVISABLE.format(rule.combine)
    if not final and found.next_close is not None:
        first = f"{from_microseconds(found.next_close):%Y-%m-%d %H:%M:%S} UTC"
        what = "1 decision is" if pending == 1 else f"{pending:,} decisions are"
        return f"No window has closed yet: {what} open. The first window closes at {first}."
    missing = sum(found.missing.values())
    if missing > MAX_MISSING * (final + missing):
        return (
            f"{missing:,} of {final + missing:,} decisions have no reward, so the others may be a biased "
            "subset. If a missing reward means 0, as for clicks, start an experiment with a window and "
            "default 0."
        )
    return _returning(found.visits)


def _returning(visits: Visits) -> str | None:
    """A refusal if units returned so often that their decisions may not be treated as independent.

    If all rewards of a unit were equal, the variance of a mean would be Σ m² / Σ m times that of independent
    decisions, where m are the numbers of decisions of the units. No design effect is larger.
    """
    if visits.squares <= MAX_DESIGN_EFFECT * visits.decisions:
        return None
    return (
        f"Visitors return ({visits.decisions:,} decisions, {visits.units:,} units), and the rewards of one "
        "visitor may be alike, so an interval for independent decisions could be too narrow. An evaluation "
        "gives one that allows for this: evaluate(), or What if? in the dashboard."
    )
