"""The log that an evaluation reads: its columns and what is known about how it was made."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from maillard import problems
from maillard.array_types import Floats
from maillard.decisions import read_log
from maillard.decisions.action_columns import widened
from maillard.decisions.columns import MAX_BATCH_ROWS, Columns
from maillard.decisions.timestamps import from_microseconds
from maillard.errors import CannotAnswer, InvalidLog, InvalidValue, MaillardError, UnknownName
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.estimators.estimator import (
    ALL_PROBABILITIES,
    ONLY_CHOSEN_PROBABILITY,
    REWARD_RANGE,
    SECOND_MOMENT,
)
from maillard.evaluation.promised_floors import min_probabilities, promised_decay, promised_probabilities
from maillard.simulation import Log

if TYPE_CHECKING:
    from maillard.decisions.log import DecisionLog
    from maillard.decisions.state import State
    from maillard.evaluation.settings import Settings

_SHARED_WITH_DECISION_LOG = (
    "source", "experiment", "foreign", "requires_closed_windows", "arms_unordered", "sticky",
    "active",
)  # fmt: skip
_MAX_MEMORY = 1 << 28  # bytes of a log kept in memory; a longer one goes to a temporary file
_ROUNDING = 1e-9  # of a quotient of probabilities


@dataclass(frozen=True, eq=False, kw_only=True)
class EvaluationLog:
    """An open log: `columns()` reads it from the start each time; the other fields need no pass over it."""

    source: str
    experiment: str
    arms: tuple[str, ...]
    parts: tuple[Callable[[], Iterable[Columns]], ...]
    size: int
    "An upper bound on the number of rows."
    columns: Callable[[], Iterable[Columns]]
    foreign: bool
    "Whether the log is a plain table of rows, without the events of a bandit."
    requires_closed_windows: bool = False
    "Whether a reward is final only after the window of its decision has closed."
    active: bool = False
    "Whether the experiment is still running, so that the log grows."
    window: float | None = None
    "How long after its decision a reward may arrive, in seconds; None: unlimited, or unknown."
    arms_unordered: bool = False
    "Whether the arms are listed in the order in which they occur, which means nothing."
    reward_range: tuple[float, float] | None = None
    second_moment: float | None = None
    "A bound on the mean squared reward of every arm, if the caller stated one."
    floor_probabilities: Floats | None = None
    "A lower bound, by design, on the probability of each arm; None if there is none."
    floor_decay: float | None = None
    "The exponent with which the floor decays; 0 for a constant floor, None if no floor is known."
    sticky: bool = False
    "Whether a decision may repeat the choice of an earlier one of the same unit."
    pruned_before: datetime | None = None
    "The time before which decisions were pruned; None if the log has all of them."
    rebuild: Callable[[int], State] | None = None
    "Rebuilds the state after an event; None if the log has no events."
    segment: str = ""
    "The segment whose decisions these are, as text; empty for all decisions."
    predicts: bool = False
    "Whether the rows have predicted rewards, from a model that is fitted on earlier rows."
    action_names: frozenset[str] | None = None
    """The names of all actions, if the arms differ at every decision; `arms` are then ranks, the order in
    which the caller listed the actions. None otherwise."""

    @property
    def arm_count(self) -> int:
        """The number of arms that a reader may compare."""
        return len(self.arms if self.action_names is None else self.action_names)

    @property
    def reward_bounds(self) -> tuple[float, float]:
        """The reward range; [0, 1] if it is unknown."""
        return self.reward_range or (0.0, 1.0)

    @property
    def has_floor(self) -> bool:
        """Whether a floor is known that is constant or decays no faster than t^-0.7."""
        slow = self.floor_decay is not None and self.floor_decay <= 0.7
        return slow or self.floor_probabilities is not None

    @cached_property
    def _first_columns(self) -> Columns:
        first = next(iter(self.columns()), None) if self.size else None
        if first is None:
            raise CannotAnswer(f"{self.source} has no decisions: an evaluation needs at least one decision")
        return first

    @cached_property
    def contextual(self) -> bool:
        """Whether decisions have contexts or actions, so that probabilities may depend on the visitor."""
        first = self._first_columns if self.size else None
        return first is not None and (first.contexts is not None or first.actions is not None)

    def require_contexts(self) -> None:
        """Raise an error if no decision has a context."""
        if not self.contextual and all(columns.contexts is None for columns in self.columns()):
            raise CannotAnswer(
                f"{self.source} has no contexts: pass context={{...}} to `choose`; a table needs a column "
                "`context`, or the names of the columns that are its keys (context=[...], or --context)"
            )

    def require_keys(self, keys: Sequence[str]) -> None:
        """Raise an error if the log has no contexts, or none of them has one of these keys."""
        self.require_contexts()
        first = self._first_columns.contexts
        known = dict.fromkeys(() if first is None else first.keys)
        if not set(keys) <= set(known):  # a key may occur only later
            for columns in self.columns():
                known |= dict.fromkeys(() if columns.contexts is None else columns.contexts.keys)
        for key in keys:
            if key not in known:
                raise UnknownName("key of the context", key, list(known))

    def state_at(self, number: int) -> State:
        """The state of the experiment after an event."""
        if self.rebuild is None:
            raise CannotAnswer(f"{self.source} has no events, so the policy at state {number} is unknown")
        return self.rebuild(number)

    def require_rows(self) -> None:
        """Raise an error if the log is empty."""
        _ = self._first_columns

    @cached_property
    def has_all_probabilities(self) -> bool:
        """Whether the first rows have the probability of every arm, not only of the chosen one."""
        return self._first_columns.has_all_probabilities

    @cached_property
    def first_close(self) -> datetime | None:
        """When the first reward window closes; None if that is unknown."""
        if self.window is None:
            return None
        return from_microseconds(int(self._first_columns.time.min()) + round(1e6 * self.window))

    @cached_property
    def center(self) -> float:
        """The mean of the first rewards. Sums of r - center are more precise than sums of large rewards."""
        reward = self._first_columns.reward
        known = reward[np.isfinite(reward)]
        return float(known.mean()) if known.size else 0.0

    @cached_property
    def positions(self) -> set[int]:
        """Every position in the log; this reads all of it."""
        return {int(each) for columns in self.columns() for each in np.unique(columns.position)}

    def missing(self, requirements: Sequence[str]) -> list[str]:
        """Those of an estimator's requirements that the log does not satisfy."""
        has = {
            ALL_PROBABILITIES: self.has_all_probabilities,
            ONLY_CHOSEN_PROBABILITY: not self.has_all_probabilities,
            REWARD_RANGE: self.reward_range is not None,
            SECOND_MOMENT: self.second_moment is not None,
        }
        return [each for each in requirements if not has[each]]

    def max_weight(self, target: Target) -> float | None:
        """The largest weight that the floor allows; None without a floor."""
        if self.floor_probabilities is None:
            return None
        return float((np.abs(target.probabilities) / self.floor_probabilities).max()) * (1.0 + _ROUNDING)

    def check_weight(self, weight: float, target: Target, field: str) -> None:
        """Raise an error if a weight exceeds what the floor allows; `field` names the weight."""
        limit = self.max_weight(target)
        if limit is None or not weight > limit:
            return
        assert self.floor_probabilities is not None
        floor = float(self.floor_probabilities.sum())
        allowed = (
            f"at most {limit:.6g}, the largest weight that a floor of {floor:.4g} allows (this one needs "
            f"a floor of at most {floor * limit / weight:.4g})"
        )
        raise InvalidLog(f"{self.source}{field}", weight, allowed)

    def detached(self) -> EvaluationLog:
        """A copy without open files, which can be sent to another process."""
        made = replace(self, parts=(), columns=tuple, rebuild=None)
        object.__setattr__(made, "contextual", self.contextual)
        object.__setattr__(made, "center", self.center)
        object.__setattr__(made, "first_close", self.first_close)
        return made


@contextmanager
def open_log(log: Any, settings: Settings, keys: Sequence[str] = ()) -> Iterator[EvaluationLog]:
    """Open anything that `read_log` accepts, or a simulated log; `keys` of the context may be columns."""
    if isinstance(log, Log):
        for name, value in settings.selection.items():
            if value is not None:
                raise InvalidValue(name, value, "None: a simulated log cannot be selected from")
        yield _with_settings(_simulated(log), settings)
        return
    with ExitStack() as closing:
        selection = settings.selection
        context = dict.fromkeys([*(settings.context or ()), *keys])
        whole = read_log(
            log, selection.pop("experiment"), columns=selection.pop("columns"), context=list(context)
        )
        if whole is not log:
            closing.callback(whole.close)
        del selection["context"]
        opened = whole.select(**selection)
        if settings.epoch is None and len({each.epoch for each in opened.configurations}) > 1:
            opened = opened.select(epoch=opened.configurations[-1].epoch, keep=True)
        if settings.on_rows is not None:
            opened.on_rows = settings.on_rows
        opened.check_rows()
        parts, size, columns, arms = opened.column_parts, opened.row_count, opened.columns, opened.arms
        names: frozenset[str] | None = None
        if opened.has_actions or not parts or size is None:
            file = closing.enter_context(tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY))
            if opened.has_actions:
                size, columns, arms, names = _store_actions(opened, file)
            else:
                size, columns = store_columns(columns(), file), partial(stored_columns, file)
            parts = (columns,)
        made = EvaluationLog(
            **{name: getattr(opened, name) for name in _SHARED_WITH_DECISION_LOG},
            arms=arms,
            action_names=names,
            parts=parts,
            size=size,
            columns=columns,
            reward_range=None if opened.reward is None else opened.reward.range,
            window=None if opened.reward is None else opened.reward.window,
            pruned_before=None if opened.pruned is None else from_microseconds(opened.pruned.before),
            floor_probabilities=promised_probabilities(opened.policies.values(), arms),
            floor_decay=promised_decay(opened.policies.values()),
            rebuild=None if whole.foreign else whole.state_at,
        )
        yield _with_settings(made, settings)


def _with_settings(log: EvaluationLog, settings: Settings) -> EvaluationLog:
    """The log with what the caller says about it."""
    if settings.active is not None:
        log = replace(log, active=settings.active)
    if settings.reward_range is not None:
        log = replace(log, reward_range=settings.reward_range)
    if settings.second_moment is not None:
        log = replace(log, second_moment=settings.second_moment)
    if settings.floor is not None:
        log = replace(log, floor_probabilities=min_probabilities(settings.floor, len(log.arms)))
    return log


def _simulated(log: Log) -> EvaluationLog:
    """A simulated log without its first rounds, in which each arm is chosen once, whatever the policy."""
    problem, names = simulated_problem(log)
    columns, spec = partial(_simulated_columns, log), log.provenance["policy"]
    return EvaluationLog(
        source=f"log of {spec}",
        experiment="simulated",
        arms=names,
        parts=(columns,),
        size=log.arms.size - log.forced,
        columns=columns,
        foreign=True,
        reward_range=problem.support if problem is not None and np.isfinite(problem.support).all() else None,
        floor_probabilities=promised_probabilities([spec], names),
        floor_decay=promised_decay([spec]),
    )


def simulated_problem(log: Log) -> tuple[problems.Problem | None, tuple[str, ...]]:
    """The problem of a simulated log (None for a custom sampler) and its arms, which are numbered."""
    try:
        problem = problems.problem(log.provenance["problem"])
    except MaillardError:
        problem = None
    if log.log_probabilities is not None:
        count = log.log_probabilities.shape[1]
    else:
        count = int(log.arms.max(initial=0)) + 1 if problem is None else problem.arms
    return problem, tuple(map(str, range(count)))


def _simulated_columns(log: Log) -> Iterator[Columns]:
    for first in range(log.forced, log.arms.size, MAX_BATCH_ROWS):
        part = slice(first, min(first + MAX_BATCH_ROWS, log.arms.size))
        row = np.arange(part.start + 1, part.stop + 1)
        every = log.log_probabilities
        none, no = np.broadcast_to(np.int64(0), row.size), np.broadcast_to(np.False_, row.size)
        yield Columns(
            row=row,
            arm=log.arms[part],
            reward=log.rewards[part],
            log_probability=log.log_probability[part],
            log_probabilities=None if every is None else np.asfortranarray(every[part]),
            position=none,
            epoch=none,
            state=row,
            time=none,
            closed=no,
            repeated=no,
        )


def store_columns(columns: Iterable[Columns], file: IO[bytes]) -> int:
    """Keep columns for several passes; returns the number of rows."""
    rows = 0
    for batch in columns:
        pickle.dump(batch, file)
        rows += len(batch)
    return rows


def _store_actions(
    log: DecisionLog, file: IO[bytes]
) -> tuple[int, Callable[[], Iterator[Columns]], tuple[str, ...], frozenset[str]]:
    """Keep the columns of a log whose arms differ at every decision.

    Returns the number of rows, how to read them, the ranks, and the names of all actions.
    """
    names: set[str] = set()
    width = 0

    def read() -> Iterator[Columns]:
        nonlocal width
        for columns in log.action_columns():
            assert columns.actions is not None
            names.update(columns.actions.names)
            width = max(width, int(columns.actions.sizes.max()))
            yield columns

    def reread() -> Iterator[Columns]:
        for columns in stored_columns(file):
            yield from widened(columns, width)

    size = store_columns(read(), file)
    return size, reread, tuple(f"rank {rank}" for rank in range(1, width + 1)), frozenset(names)


def stored_columns(file: IO[bytes]) -> Iterator[Columns]:
    """The columns that `store_columns` wrote. Several passes may take turns."""
    place = 0
    while True:
        file.seek(place)
        try:
            batch = pickle.load(file)
        except EOFError:
            return
        place = file.tell()
        yield batch
