"""The assumptions of a replayed learning curve, as text."""

from __future__ import annotations

from maillard.evaluation.replays.replay_intervals import LOGS, MIN_PARTS, PARTS
from maillard.evaluation.replays.replay_methods import QUEUES, REJECTION, ReplayMethod


def assumptions(method: ReplayMethod, basis: str, parts: int, horizon: int) -> tuple[str, ...]:
    """The assumptions of a curve and of its interval."""
    texts = [
        "the rewards of each arm are independent and identically distributed, regardless of time and of "
        "earlier choices",
        "the policy would have received each reward before its next choice",
    ]
    if method.name == QUEUES:
        texts.append("the choices in the log depend only on the past")
        if method.guaranteed:
            texts.append(f"every arm was to receive {method.guaranteed} rewards, whatever their values")
        if horizon > method.guaranteed:
            rounds = f"beyond round {method.guaranteed} " if method.guaranteed else ""
            texts.append(
                f"{rounds}only bounds on the curve are known, because the length of a queue depends on its "
                f"rewards"
            )
    else:
        relation = "at least" if method.name == REJECTION else "exactly"
        texts += [
            f"every arm had a probability of {relation} {method.acceptance_probability:.4g} in every row, "
            "fixed before logging",
            "the length of the log does not depend on its rewards",
        ]
    if basis in (LOGS, PARTS):
        units = "independent logs" if basis == LOGS else "parts of the log"
        texts.append(f"interval: Student's t over {parts} {units}; for the policy's expected reward")
    else:
        texts.append(
            "interval: normal, for the noise of the rewards given the choices (a martingale); it does not "
            f"include that the policy would choose differently on another log ({MIN_PARTS} logs, or a "
            f"horizon short enough for {MIN_PARTS} parts, would show that)"
        )
    return tuple(texts)
