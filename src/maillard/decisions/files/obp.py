"""Logs as the `bandit_feedback` dict of Open Bandit Pipeline (OBP), and .npz files of it.

The arrays `action`, `reward` and `pscore` have one entry per round. `pi_b` has the probabilities of all arms,
if they are known. `context` has the feature rows of disjoint models. `arms`, `id` and `origin` are additions
of this package. The file has no pickled objects, so `context` and `position` are in it only if they are
arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from maillard.array_types import Bools, Floats
from maillard.decisions.columns import MAX_BATCH_ROWS, MAX_BATCH_VALUES, Columns
from maillard.decisions.contexts import Contexts
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE, POSSIBLE
from maillard.decisions.encoded_contexts import decode
from maillard.decisions.files.file_formats import WriteResult
from maillard.decisions.files.foreign_logs import foreign_row
from maillard.decisions.files.output_files import atomic_file
from maillard.decisions.files.row_codec import make_rows
from maillard.decisions.log import DecisionLog, select_experiment
from maillard.decisions.raw_contexts import check_context
from maillard.decisions.stores.contract import Row
from maillard.errors import InvalidValue
from maillard.feature_grid import STEPS


def to_obp(log: DecisionLog) -> dict[str, Any]:
    """Return the decisions with a final reward as OBP's `bandit_feedback`. An action is an index into `arms`.

    >>> from maillard.decisions import Bandit
    >>> bandit = Bandit(["red", "blue"], "uniform")
    >>> bandit.reward(bandit.choose().id, 1.0)
    'applied'
    >>> from maillard.decisions.opening import read_log
    >>> to_obp(read_log(bandit))["pscore"].tolist()
    [0.5]
    """
    return _feedback(log)[0]


def _feedback(log: DecisionLog) -> tuple[dict[str, Any], int]:
    place = {arm: i for i, arm in enumerate(log.arms)}
    rounds: list[tuple[int, float, float, str, str]] = []
    distributions: list[Floats] = []
    encoded: list[bytes | None] = []
    left_out = 0
    for row in log.rows():
        reward, d = log.final_reward_of(row), row.decision
        if reward is None:
            left_out += 1
            continue
        if not place.keys() >= {d.arm, *d.eligible}:
            raise InvalidValue(f"{log.source}: eligible", list(d.eligible), "arms of the experiment")
        distribution = np.zeros(len(place))
        distribution[[place[arm] for arm in d.eligible]] = list(map(math.exp, d.log_probabilities))
        distributions.append(distribution)
        encoded.append(d.encoded)
        rounds.append((place[d.arm], reward, d.probability, d.id, d.origin or ""))
    actions, rewards, probabilities, ids, origins = zip(*rounds, strict=True) if rounds else ((),) * 5
    feedback: dict[str, Any] = {
        "n_rounds": len(rounds),
        "n_actions": len(place),
        "context": _feature_rows(encoded),
        "action": np.array(actions, dtype=np.int64),
        "position": None,
        "reward": np.array(rewards, dtype=np.float64),
        "pscore": np.array(probabilities, dtype=np.float64),
        "arms": np.array(log.arms, dtype=np.str_),
        "id": np.array(ids, dtype=np.str_),
        "origin": np.array(origins, dtype=np.str_),
    }
    pi_b = np.array(distributions).reshape(len(rounds), len(place), 1)
    if not np.isnan(pi_b).any():
        feedback["pi_b"] = pi_b
    return feedback, left_out


def _feature_rows(encoded: Sequence[bytes | None]) -> Floats | None:
    """Return the feature row of each round; None unless every round has one, all with the same columns."""
    rows = [None if each is None else decode(each) for each in encoded]
    units = [each for each in rows if isinstance(each, np.ndarray) and each.ndim == 1]
    if not rows or len(units) < len(rows) or len({each.size for each in units}) > 1:
        return None
    return np.array(units) / STEPS


def write(log: DecisionLog, path: Path) -> WriteResult:
    """Write the dict as a .npz file."""
    feedback, left_out = _feedback(log)
    arrays = {name: value for name, value in feedback.items() if value is not None}
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return WriteResult(feedback["n_rounds"], left_out)


def open_file(path: Path, experiment: str | None, _columns: object = None) -> DecisionLog:
    """Open the log in a .npz file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            feedback = {name: arrays[name] for name in arrays.files}
    except Exception as error:  # noqa: BLE001  # a damaged zip file may raise anything
        allowed = f"a .npz file of arrays without pickles ({error})"
        raise InvalidValue("log", str(path), allowed) from None
    return open_feedback(feedback, experiment, str(path))


def open_feedback(
    feedback: Mapping[str, Any], experiment: str | None, source: str = "bandit_feedback"
) -> DecisionLog:
    """Open the foreign log in a dict.

    Without `pi_b`, all arms are eligible and only the probability of the chosen arm is known.
    """
    rounds = _Rounds(feedback, source)
    rows = partial(make_rows, rounds.row, range(rounds.count), f"{source}, round", first=0)
    only = select_experiment(["default"], experiment, source)
    log = DecisionLog(rows, experiment=only, source=source, arms=rounds.arms)
    if rounds.count:
        log.set_column_parts(rounds.columns, row_count=rounds.count)
    return log


class _Rounds:
    """The checked arrays of a `bandit_feedback` dict, one entry per round."""

    def __init__(self, feedback: Mapping[str, Any], source: str) -> None:
        self.feedback, self.source = feedback, source
        self.count = 0
        self.actions = self.numbers("action", "iu")
        self.count = len(self.actions)
        self.rewards = self.numbers("reward", "fiub")
        self.probabilities = self.numbers("pscore", "fiu")
        self.positions = None if feedback.get("position") is None else self.numbers("position", "iu")
        self.distributions = None if feedback.get("pi_b") is None else self.read_distributions()
        self.arms = self.read_arms()
        self.ids, self.origins = self.names("id", self.count), self.names("origin", self.count)
        self.contexts = self.read_contexts()
        self.check()
        self.feedback = {}  # a reference would keep the caller's arrays in memory

    def error(self, name: str, value: object, allowed: str) -> InvalidValue:
        """An error about an array; arrays of a wrong type or shape are described."""
        shown = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else value
        return InvalidValue(f"{self.source}: {name}", shown, allowed)

    def refuse_round(self, name: str, good: Bools, values: Floats, allowed: str, start: int = 0) -> None:
        """Raise an error about the first round that is not good, if there is one."""
        if not good.all():
            at = int(good.argmin())
            where = f"{self.source}, round {start + at}: {name}"
            raise InvalidValue(where, values[at].tolist(), allowed)

    def numbers(self, name: str, kinds: str) -> Any:
        """Return an array with one number per round."""
        if name not in self.feedback:
            raise self.error("keys", list(self.feedback), "action, reward and pscore")
        array = _asarray(self.feedback[name])
        numeric = array.ndim == 1 and (array.dtype.kind in kinds or not len(array))
        if not numeric or len(array) != (self.count or len(array)):
            allowed = "a number for each round" + ("" if name == "action" else f", {self.count} of them")
            raise self.error(name, array, allowed)
        return array.astype(np.int64 if kinds == "iu" else np.float64, copy=False)

    def names(self, name: str, count: int) -> list[str] | None:
        """Return an array of names as a list; None if there is none."""
        if self.feedback.get(name) is None:
            return None
        names = np.asarray(self.feedback[name])
        if names.ndim != 1 or names.dtype.kind != "U" or len(names) != count:
            raise self.error(name, names, f"{count} names")
        return names.tolist()  # type: ignore[no-any-return]  # strings

    def read_distributions(self) -> Floats:
        """Return the probabilities of all arms in each round, at the position of the round."""
        given, count, positions = _asarray(self.feedback["pi_b"]), self.count, self.positions
        array = given[:, :, np.newaxis] if given.ndim == 2 else given
        good = array.ndim == 3 and array.dtype.kind in "fiu" and len(array) == count and array.shape[1] > 0
        if good and array.shape[2] != 1:
            good = positions is not None and (
                not count or 0 <= positions.min() <= positions.max() < array.shape[2]
            )
        if not good:
            allowed = f"shape ({count}, arms, positions), and a position for each round if there are several"
            raise self.error("pi_b", array, allowed)
        chosen = array[:, :, 0] if array.shape[2] == 1 else array[np.arange(count), :, positions]
        return chosen.astype(np.float64, copy=False)

    def read_contexts(self) -> Floats | None:
        """Return the rows of numbers that describe the rounds; None if there are none."""
        if self.feedback.get("context") is None:
            return None
        rows = _asarray(self.feedback["context"])
        if rows.ndim != 2 or rows.dtype.kind not in "fiub" or len(rows) != self.count:
            raise self.error("context", rows, f"a row of numbers for each of {self.count} rounds")
        found = rows.astype(np.float64, copy=False)
        self.refuse_round("context", np.isfinite(found).all(axis=1), found, "finite numbers")
        return found

    def read_arms(self) -> list[str]:
        """Return the names of the arms, or their numbers if they have no names."""
        count, given = self.feedback.get("n_actions"), self.feedback.get("arms")
        if self.distributions is not None:
            count = self.distributions.shape[1]
        elif count is not None:
            array = np.asarray(count)
            if array.ndim or array.dtype.kind not in "iu" or not 0 < int(array) <= 10**6:
                raise InvalidValue(f"{self.source}: n_actions", count, "a number of arms")
            count = int(array)
        else:
            count = len(given) if given is not None else int(self.actions.max(initial=-1)) + 1
        return self.names("arms", count) or [str(arm) for arm in range(count)]

    def check(self) -> None:
        """Check the arrays against each other."""
        actions, arms, distributions = self.actions, self.arms, self.distributions
        if self.count and not 0 <= actions.min() <= actions.max() < len(arms):
            worst = actions.min() if actions.min() < 0 else actions.max()
            raise self.error("action", int(worst), f"indices of {len(arms)} arms, from 0")
        if len(set(arms)) < len(arms):
            raise self.error("arms", arms, "each name once")
        if distributions is None:
            return
        if not (distributions >= 0).all():
            self.refuse_round("pi_b", distributions.min(axis=1) >= 0, distributions, "numbers >= 0")
        if not (distributions[np.arange(self.count), actions] > 0).all():
            raise self.error("pi_b", 0.0, "a probability > 0 for every chosen action")

    def row(self, place: int, _: int) -> Row:
        """Make the row of one round."""
        values: dict[str, Any] = {
            "arm": self.arms[int(self.actions[place])],
            "probability": float(self.probabilities[place]),
            "reward": float(self.rewards[place]),
            "position": 0 if self.positions is None else int(self.positions[place]),
            "id": None if self.ids is None else self.ids[place],
            "origin": None if self.origins is None else self.origins[place] or None,
        }
        if self.contexts is not None:
            numbers = {f"x{i}": each for i, each in enumerate(self.contexts[place].tolist())}
            values["context"] = check_context(numbers).text
        if self.distributions is not None:
            given = zip(self.arms, self.distributions[place].tolist(), strict=True)
            possible = {arm: math.log(p) for arm, p in given if p > 0}
            values |= {"eligible": list(possible), "log_probabilities": list(possible.values())}
        return foreign_row(values, place, self.arms)

    def columns(self) -> Iterator[Columns]:
        """Yield the rounds as columns."""
        width = 1 if self.distributions is None else self.distributions.shape[1]
        size = max(1, min(MAX_BATCH_ROWS, MAX_BATCH_VALUES // width))
        for start in range(0, self.count, size):
            yield self.batch(slice(start, start + size))

    def batch(self, part: slice) -> Columns:
        """Return some rounds as columns."""
        row = np.arange(part.start, min(part.stop, self.count))
        reward, probability, logs = self.rewards[part], self.probabilities[part], None
        possible = (probability > 0) & (probability <= 1 + LOG_PROBABILITY_TOLERANCE)
        self.refuse_round("probability", possible, probability, POSSIBLE, part.start)
        self.refuse_round("reward", np.isfinite(reward), reward, "a finite number", part.start)
        none, repeated = np.broadcast_to(np.int64(0), row.size), np.broadcast_to(np.False_, row.size)
        if self.origins is not None:
            repeated = np.array([bool(each) for each in self.origins[part]])
        if self.distributions is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.log(np.asfortranarray(self.distributions[part]))
        return Columns(
            row=row,
            arm=self.actions[part],
            reward=reward,
            log_probability=np.log(probability),
            log_probabilities=logs,
            position=none if self.positions is None else self.positions[part],
            epoch=none,
            state=row,
            time=none,
            closed=np.broadcast_to(np.False_, row.size),
            repeated=repeated,
            contexts=None if self.contexts is None else Contexts.of_rows(self.contexts[part]),
        ).check(self.source)


def _asarray(value: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value)
    except ValueError:  # ragged
        return np.asarray(None)
