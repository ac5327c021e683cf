"""Logs without events: decisions with probabilities and rewards, from other programs or cut loose from their states.

What such a log does not say is filled in: ids and states are places in the log, every arm is eligible, and a log probability
that nobody wrote down is NaN. The final reward is the one observation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE, RewardEvent
from maillard.decisions.files.row_codec import make_decision
from maillard.decisions.identifiers import check_name
from maillard.decisions.log import DecisionLog, Row, select_experiment
from maillard.errors import InvalidValue

__all__ = ["foreign_log", "foreign_row", "in_order", "numbered", "ordered"]

_DEFAULTS = {
    "time": 0, "unit": None, "policy_version": 0, "formula_version": 0, "epoch": 0, "cold": False,
    "idempotency_key": None, "position": 0, "origin": None,
}  # fmt: skip


def foreign_row(values: Mapping[str, Any], place: int, arms: Sequence[str] = ()) -> Row:
    """A row of plain values. `place` is its number in the log, `arms` who is eligible where it does not say."""
    given = {name: value for name, value in values.items() if value is not None}
    known = {"state": place, **_DEFAULTS, **given}
    known["log_probability"] = log = _log(given)
    if "eligible" not in given:
        known["eligible"] = list(arms)
    if "log_probabilities" not in given:
        arm = given.get("arm")
        known["log_probabilities"] = [log if name == arm else math.nan for name in known["eligible"]]
    known.setdefault("arm", None)
    identifier = check_name("id", given.get("id", f"{place:09}"))
    decision = make_decision(known, identifier, check_name("experiment", given.get("experiment", "default")))
    reward = given.get("reward")
    if reward is None:
        return Row(decision, (), ())
    if not isinstance(reward, float) or not math.isfinite(reward):
        raise InvalidValue("reward", reward, "a finite number")
    time = decision.time
    seen = RewardEvent(decision=identifier, event=identifier, value=reward, at=time, arrived=time)
    return Row(decision, (seen,), ())


def _log(given: Mapping[str, Any]) -> float:
    """The log probability of the arm that was chosen."""
    log, probability = given.get("log_probability"), given.get("probability")
    if isinstance(log, float):
        return log
    if not isinstance(probability, float) or not 0 < probability <= 1 + LOG_PROBABILITY_TOLERANCE:
        raise InvalidValue("probability", probability, "a number > 0 and <= 1")
    return math.log(probability)


def foreign_log(
    rows: Callable[[], Iterable[Row]], source: str, experiment: str | None, arms: Sequence[str] = ()
) -> DecisionLog:
    """A log of such rows, read once to see which experiments and arms are in it."""
    experiments: dict[str, None] = {}
    names = dict.fromkeys(arms)
    for row in ordered(rows(), source):
        d = row.decision
        experiments[d.experiment] = None
        if d.arm not in names or not names.keys() >= set(d.eligible):
            names.update(dict.fromkeys(d.eligible))
    only = select_experiment(sorted(experiments) or ["default"], experiment, source)

    def chosen() -> Iterator[Row]:
        return (row for row in rows() if row.decision.experiment == only)

    log = DecisionLog(chosen, experiment=only, source=source, arms=tuple(names))
    log.arms_unordered = bool(arms) and not numbered(log.arms)
    return log


def ordered(rows: Iterable[Row], source: str) -> Iterator[Row]:
    """The rows, or an error where an experiment's are not in the order of their states and ids."""
    before: dict[str, tuple[int, str]] = {}
    for row in rows:
        d = row.decision
        if (d.state, d.id) <= before.get(d.experiment, (-1, "")):
            allowed = "rows in this order, each once"
            raise InvalidValue(f"{source}: (state, id)", (d.state, d.id), allowed)
        before[d.experiment] = d.state, d.id
        yield row


def in_order(names: Iterable[str]) -> list[str]:
    """Names as they come; numbers from 0 up, none left out, so that an arm's number is its place.

    >>> in_order(["blue", "red"]), in_order(["3", "1", "0"])
    (['blue', 'red'], ['0', '1', '2', '3'])
    """
    arms = list(names)
    if arms and all(arm.isascii() and arm.isdigit() and str(int(arm)) == arm for arm in arms):
        most = max(map(int, arms))
        if most < 10 * len(arms) + 100:  # not if they are some shop's numbers
            return [str(number) for number in range(most + 1)]
    return arms


def numbered(arms: Sequence[str]) -> bool:
    """Whether each arm's name is its place."""
    return all(arm == str(place) for place, arm in enumerate(arms))
