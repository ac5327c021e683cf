"""What a replayed curve rests on, in words."""

from __future__ import annotations

from maillard.evaluation.replays.replay_intervals import LOGS, MIN_PARTS, PARTS
from maillard.evaluation.replays.replay_methods import QUEUES, REJECTION, ReplayMethod

__all__ = ["assumptions"]


def assumptions(way: ReplayMethod, kind: str, parts: int, horizon: int) -> tuple[str, ...]:
    """What the curve and its interval rest on, in words."""
    said = [
        "each arm's rewards are independent draws of one law, the same at all times and whatever was chosen before",
        "the policy would have learned each reward before its next choice",
    ]
    if way.method == QUEUES:
        said.append("the log's choices used nothing but the past")
        if way.guaranteed:
            said.append(f"every arm was to have {way.guaranteed} rewards, whatever they turned out to be")
        if horizon > way.guaranteed:
            beyond = f"beyond round {way.guaranteed} " if way.guaranteed else ""
            said.append(f"{beyond}the curve is between bounds: a queue's length depends on the rewards in it")
    else:
        under = "exactly" if way.method != REJECTION else "at least"
        said.append(
            f"every arm had a probability of {under} {way.acceptance_probability:.4g} in every row, as fixed before logging"
        )
        said.append("when the log ended did not depend on its rewards")
    if kind == LOGS:
        said.append(f"interval: Student's t over {parts} independent logs; for the policy's expected reward")
    elif kind == PARTS:
        said.append(f"interval: Student's t over {parts} parts of the log; for the policy's expected reward")
    else:
        said.append(
            "interval: normal, for the noise of rewards given the choices made (a martingale); that the policy would choose otherwise "
            f"on another log is not in it ({MIN_PARTS} logs, or a horizon that leaves {MIN_PARTS} stretches, would tell)"
        )
    return tuple(said)
