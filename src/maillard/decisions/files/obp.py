"""Logs as the `bandit_feedback` dict of Open Bandit Pipeline (OBP), and .npz files of it.

The arrays `action`, `reward` and `pscore` have one entry per round. `pi_b` has the probabilities of all arms,
if they are known. `arms`, `id` and `origin` are additions of this package. The file has no pickled objects,
so `context` and `position` are in it only if they are arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maillard.decisions.columns import MAX_BATCH_ROWS, MAX_BATCH_VALUES, Columns
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE
from maillard.decisions.files.file_formats import FileFormat, WriteResult
from maillard.decisions.files.foreign_logs import check_row_order, foreign_row
from maillard.decisions.files.output_files import atomic_file
from maillard.decisions.log import DecisionLog, Row, select_experiment
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from maillard.decisions.columns import Floats, Integers


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
    ids: list[str] = []
    origins: list[str] = []
    chosen: list[tuple[int, float, float]] = []
    distributions: list[np.ndarray[Any, np.dtype[np.float64]]] = []
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
        ids.append(d.id)
        origins.append(d.origin or "")
        chosen.append((place[d.arm], reward, d.probability))
    actions, rewards, probabilities = zip(*chosen, strict=True) if chosen else ((), (), ())
    feedback: dict[str, Any] = {
        "n_rounds": len(chosen),
        "n_actions": len(place),
        "context": None,
        "action": np.array(actions, dtype=np.int64),
        "position": None,
        "reward": np.array(rewards, dtype=np.float64),
        "pscore": np.array(probabilities, dtype=np.float64),
        "arms": np.array(log.arms, dtype=np.str_),
        "id": np.array(ids, dtype=np.str_),
        "origin": np.array(origins, dtype=np.str_),
    }
    has_all_probabilities = np.array(distributions).reshape(len(chosen), len(place), 1)
    if not np.isnan(has_all_probabilities).any():
        feedback["pi_b"] = has_all_probabilities
    return feedback, left_out


def write(log: DecisionLog, path: Path) -> WriteResult:
    """Write the dict as a .npz file."""
    feedback, left_out = _feedback(log)
    arrays = {name: value for name, value in feedback.items() if value is not None}
    with atomic_file(path) as partial, partial.open("wb") as file:
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
    actions = _array(feedback, "action", "iu", source)
    count = len(actions)
    rewards = _array(feedback, "reward", "fiub", source, count).astype(np.float64)
    probabilities = _array(feedback, "pscore", "fiu", source, count).astype(np.float64)
    positions = None
    if feedback.get("position") is not None:
        positions = _array(feedback, "position", "iu", source, count).astype(np.int64)
    distributions = _read_distributions(feedback, positions, count, source)
    arms = _arms(feedback, actions, distributions, source)
    ids, origins = (_names(feedback, name, count, source) for name in ("id", "origin"))
    if count and not 0 <= actions.min() <= actions.max() < len(arms):
        allowed = f"indices of {len(arms)} arms, from 0"
        worst = actions.min() if actions.min() < 0 else actions.max()
        raise InvalidValue(f"{source}: action", int(worst), allowed)
    if len(set(arms)) < len(arms):
        raise InvalidValue(f"{source}: arms", list(arms), "each name once")
    if distributions is not None and not (distributions >= 0).all():
        at = int((~(distributions >= 0)).any(axis=1).argmax())
        raise InvalidValue(f"{source}, round {at}: pi_b", distributions[at].tolist(), "numbers >= 0")
    if distributions is not None and not (distributions[np.arange(count), actions] > 0).all():
        raise InvalidValue(f"{source}: pi_b", 0.0, "a probability > 0 for every chosen action")

    def rows() -> Iterator[Row]:
        for place in range(count):
            values: dict[str, Any] = {
                "arm": arms[int(actions[place])],
                "probability": float(probabilities[place]),
                "reward": float(rewards[place]),
                "position": 0 if positions is None else int(positions[place]),
                "id": None if ids is None else ids[place],
                "origin": None if origins is None else origins[place] or None,
            }
            if distributions is not None:
                values["eligible"] = [arm for arm, p in zip(arms, distributions[place], strict=True) if p > 0]
                values["log_probabilities"] = [math.log(p) for p in distributions[place].tolist() if p > 0]
            try:
                row = foreign_row(values, place, arms)
            except InvalidValue as error:
                raise error.with_location(f"{source}, round {place}") from None
            yield row

    log = DecisionLog(
        lambda: check_row_order(rows(), source),
        experiment=select_experiment(["default"], experiment, source),
        source=source,
        arms=arms,
    )
    rounds = _Rounds(actions, rewards, probabilities, positions, distributions, origins)
    if count:
        log.set_column_parts(partial(_columns, rounds, source), row_count=count)
    return log


class _Rounds(NamedTuple):
    """The checked arrays of an Open Bandit Pipeline `bandit_feedback` dict, one entry per round."""

    actions: Integers
    rewards: Floats
    probabilities: Floats
    positions: Integers | None
    distributions: Floats | None
    origins: list[str] | None


def _columns(rounds: _Rounds, source: str) -> Iterator[Columns]:
    """Yield the rounds as columns."""
    actions, rewards, probabilities, positions, distributions, origins = rounds
    count = len(actions)
    most = max(
        1, min(MAX_BATCH_ROWS, MAX_BATCH_VALUES // (1 if distributions is None else distributions.shape[1]))
    )
    for first in range(0, count, most):
        part = slice(first, min(first + most, count))
        row = np.arange(part.start, part.stop)
        for name, bad, values, allowed in (
            (
                "probability",
                ~((probabilities[part] > 0) & (probabilities[part] <= 1 + LOG_PROBABILITY_TOLERANCE)),
                probabilities,
                "a number > 0 and <= 1",
            ),
            ("reward", ~np.isfinite(rewards[part]), rewards, "a finite number"),
        ):
            if bad.any():
                at = first + int(bad.argmax())
                raise InvalidValue(f"{source}, round {at}: {name}", float(values[at]), allowed)
        none = np.broadcast_to(np.int64(0), row.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = None if distributions is None else np.log(np.asfortranarray(distributions[part]))
        yield Columns(
            row=row,
            arm=actions[part],
            reward=rewards[part],
            log_probability=np.log(probabilities[part]),
            log_probabilities=logs,
            eligible=None,
            position=none if positions is None else positions[part],
            epoch=none,
            state=row,
            time=none,
            closed=np.broadcast_to(np.False_, row.size),
            repeated=np.broadcast_to(np.False_, row.size)
            if origins is None
            else np.array([bool(each) for each in origins[part]]),
        ).check(source)


def _array(
    feedback: Mapping[str, Any], name: str, kinds: str, source: str, count: int | None = None
) -> np.ndarray[Any, Any]:
    """Return an array with one number per round."""
    try:
        array = np.asarray(feedback[name])
    except KeyError:
        allowed = "action, reward and pscore"
        raise InvalidValue(f"{source}: keys", list(feedback), allowed) from None
    except ValueError:  # ragged
        array = np.asarray(None)
    if (
        array.ndim != 1
        or (array.dtype.kind not in kinds and len(array))
        or len(array) != (count or len(array))
    ):
        allowed = "a number for each round" + ("" if count is None else f", {count} of them")
        raise InvalidValue(f"{source}: {name}", f"{array.dtype}{list(array.shape)}", allowed)
    return array.astype(np.int64) if kinds == "iu" else array


def _read_distributions(
    feedback: Mapping[str, Any], positions: np.ndarray[Any, Any] | None, count: int, source: str
) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Return the probabilities of all arms in each round, at the position of the round."""
    if feedback.get("pi_b") is None:
        return None
    try:
        distributions = np.asarray(feedback["pi_b"])
    except ValueError:  # ragged
        distributions = np.asarray(None)
    if distributions.ndim == 2:
        distributions = distributions[:, :, np.newaxis]
    good = (
        distributions.ndim == 3
        and distributions.dtype.kind in "fiu"
        and len(distributions) == count
        and distributions.shape[1] > 0
    )
    if good and distributions.shape[2] != 1:
        good = positions is not None and (
            not count or 0 <= positions.min() <= positions.max() < distributions.shape[2]
        )
    if not good:
        allowed = f"shape ({count}, arms, positions), and a position for each round if there are several"
        raise InvalidValue(f"{source}: pi_b", f"{distributions.dtype}{list(distributions.shape)}", allowed)
    if distributions.shape[2] > 1 and positions is not None:
        return distributions[np.arange(count), :, positions].astype(np.float64)
    return distributions[:, :, 0].astype(np.float64)


def _arms(
    feedback: Mapping[str, Any], actions: np.ndarray[Any, Any], distributions: Any, source: str
) -> Sequence[str]:
    """Return the names of the arms, or their numbers if they have no names."""
    if distributions is not None:
        count = distributions.shape[1]
    elif feedback.get("n_actions") is not None:
        count = _count(feedback["n_actions"], source)
    else:
        count = (
            len(feedback["arms"]) if feedback.get("arms") is not None else int(actions.max(initial=-1)) + 1
        )
    return _names(feedback, "arms", count, source) or [str(arm) for arm in range(count)]


def _count(value: object, source: str) -> int:
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "iu" or not 0 < int(array) <= 10**6:
        raise InvalidValue(f"{source}: n_actions", value, "a number of arms")
    return int(array)


def _names(feedback: Mapping[str, Any], name: str, count: int, source: str) -> list[str] | None:
    if feedback.get(name) is None:
        return None
    names = np.asarray(feedback[name])
    if names.ndim != 1 or names.dtype.kind != "U" or len(names) != count:
        raise InvalidValue(f"{source}: {name}", f"{names.dtype}{list(names.shape)}", f"{count} names")
    return names.tolist()  # type: ignore[no-any-return]  # strings


FORMAT = FileFormat("obp", (".npz",), write, open_file)
