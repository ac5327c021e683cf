"""Foreign logs: decisions with probabilities and rewards, but without the events of an experiment.

Missing fields get defaults: ids and states are row indices, all arms are eligible, and unknown log
probabilities are NaN. The final reward is the only reward event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE, POSSIBLE, RewardEvent
from maillard.decisions.files.row_codec import CHECKS, make_decision
from maillard.decisions.identifiers import check_name
from maillard.decisions.log import DecisionLog, select_experiment
from maillard.decisions.row_numbers import NumberedRow
from maillard.decisions.stores.contract import Row
from maillard.decisions.timestamps import from_microseconds
from maillard.errors import InvalidLog

MakeRow: TypeAlias = Callable[[Mapping[str, Any], int], Row]  # of the values of a row and its index
_DEFAULTS = {
    "arm": None, "time": 0, "unit": None, "policy_version": 0, "formula_version": 0, "epoch": 0,
    "cold": False, "idempotency_key": None, "position": 0, "origin": None,
}  # fmt: skip
# Without events, nobody knows which features were encoded.
_UNKNOWN = {"encoded", "feature_version"}


def foreign_row(values: Mapping[str, Any], place: int, arms: Sequence[str] = ()) -> Row:
    """Make a row from plain values. `place` is its index; `arms` are eligible by default."""
    given = {name: value for name, value in values.items() if value is not None and name not in _UNKNOWN}
    known = {"state": place, "eligible": list(arms), **_DEFAULTS, **given}
    known["log_probability"] = log = _chosen_log_probability(given)
    if "log_probabilities" not in given:
        arm = given.get("arm")
        known["log_probabilities"] = [log if name == arm else math.nan for name in known["eligible"]]
    identifier = check_name("id", given.get("id", f"{place:09}"))
    decision = make_decision(known, identifier, check_name("experiment", given.get("experiment", "default")))
    if "reward" not in given:
        return Row(decision, (), ())
    reward, time = CHECKS["float"]("reward", given["reward"]), decision.time
    event = RewardEvent(decision=identifier, event=identifier, value=reward, at=time, arrived=time)
    return Row(decision, (event,), ())


def with_steps(make: MakeRow, number: str | None, *, contexts: bool = False) -> MakeRow:
    """Return a function that makes rows with their steps. `number` is the column that numbers the rows.

    With `contexts`, rows also have the JSON text in the column `context`.
    """
    if number is None and not contexts:
        return make
    last: int | None = None

    def made(values: Mapping[str, Any], place: int) -> Row:
        nonlocal last
        context = values.get("context") if contexts else None
        plain = {name: each for name, each in values.items() if name != "context"} if contexts else values
        before, row = last, make(plain, place)
        last = None if number is None else _whole_number(values.get(number))
        if last is None and context is None:
            return row
        row = NumberedRow(*row)
        row.context = context
        if last is not None:
            row.step = 1 if before is None else last - before
        return row

    return made


def _whole_number(value: object) -> int | None:
    """Return a value as a number of 64 bits; None if it is not a whole number."""
    if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
        return None
    return int(value) if isinstance(value, int | str) and abs(int(value)) < 2**62 else None


def _chosen_log_probability(given: Mapping[str, Any]) -> float:
    """Return the log probability of the chosen arm."""
    log, probability = given.get("log_probability"), given.get("probability")
    if isinstance(log, float):
        return log
    if not isinstance(probability, float) or not 0 < probability <= 1 + LOG_PROBABILITY_TOLERANCE:
        raise InvalidLog("probability", probability, POSSIBLE)
    return math.log(probability)


def refuse_disorder(source: str, row: int, time: int) -> None:
    """Raise an error about the first row of a foreign log that is older than the row before it."""
    allowed = "a time that is not before that of an earlier row; sort the rows by time"
    shown = from_microseconds(time).isoformat().replace("+00:00", "Z")
    raise InvalidLog(f"{source}, row {row}: time", shown, allowed)


def foreign_log(
    rows: Callable[[], Iterable[Row]], source: str, experiment: str | None, arms: Sequence[str] = ()
) -> DecisionLog:
    """Make a foreign log. The rows are read once to find their experiments and arms.

    Its arms differ at every decision if they have attributes, and the lists of arms differ.
    """
    experiments: dict[str, None] = {}
    names = dict.fromkeys(arms)
    latest: dict[str, int] = {}
    disorder: dict[str, tuple[int, int]] = {}
    lists: dict[str, tuple[str, ...]] = {}  # the first one of each experiment
    differing, described = set(), set()
    for number, row in enumerate(rows(), 1):
        d = row.decision
        experiments[d.experiment] = None
        if d.eligible != lists.setdefault(d.experiment, d.eligible):
            differing.add(d.experiment)
        if d.actions is not None:
            described.add(d.experiment)
        # Without states of their own, rows are numbered in the order of the source, from 0.
        if d.state == number - 1 and 0 < d.time < latest.get(d.experiment, 0):
            disorder.setdefault(d.experiment, (number, d.time))
        latest[d.experiment] = d.time or latest.get(d.experiment, 0)  # 0: unknown
        if d.arm not in names or not names.keys() >= set(d.eligible):
            names.update(dict.fromkeys(d.eligible))
    only = select_experiment(sorted(experiments) or ["default"], experiment, source)
    if only in disorder:
        refuse_disorder(source, *disorder[only])
    chosen = partial(rows_of_experiment, rows, only)
    log = DecisionLog(chosen, experiment=only, source=source, arms=tuple(names))
    log.arms_unordered = bool(arms) and not are_indices(log.arms)
    log.lists_actions = only in differing & described
    return log


def rows_of_experiment(rows: Callable[[], Iterable[Row]], experiment: str) -> Iterator[Row]:
    """Return those rows that belong to the experiment."""
    return (row for row in rows() if row.decision.experiment == experiment)


def complete_arms(names: Iterable[str]) -> list[str]:
    """Return names in the given order; if all are numbers, return 0, 1, ... up to the largest.

    >>> complete_arms(["blue", "red"]), complete_arms(["3", "1", "0"])
    (['blue', 'red'], ['0', '1', '2', '3'])
    """
    arms = list(names)
    if arms and all(arm.isascii() and arm.isdigit() and str(int(arm)) == arm for arm in arms):
        most = max(map(int, arms))
        if most < 10 * len(arms) + 100:  # otherwise they are identifiers, not indices
            return [str(number) for number in range(most + 1)]
    return arms


def are_indices(arms: Sequence[str]) -> bool:
    """Whether each arm's name is its index."""
    return all(arm == str(place) for place, arm in enumerate(arms))
