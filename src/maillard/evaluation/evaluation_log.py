"""A log as evaluation needs it: its columns, and what is known of how it was made."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard import problems
from maillard.decisions import read_log
from maillard.decisions.columns import MAX_BATCH_ROWS, Columns
from maillard.errors import InvalidValue, MaillardError
from maillard.evaluation.promised_floors import promised_decay, promised_shares
from maillard.simulation import Log

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Opened", "open_log", "simulated_world"]

_IN_MEMORY = 1 << 28  # bytes of a log that has to be kept, before they go to a file


@dataclass(frozen=True, eq=False, kw_only=True)
class Opened:
    """The columns of a log, as often as they are asked for, and what is known without reading them."""

    source: str
    experiment: str
    arms: tuple[str, ...]
    parts: tuple[Callable[[], Iterable[Columns]], ...]
    size: int
    "How many rows there are, at most."
    columns: Callable[[], Iterable[Columns]]
    foreign: bool
    "Whether nothing is known but its rows."
    requires_closed_windows: bool = False
    "Whether rewards are final only when their windows have closed."
    arms_unordered: bool = False
    "Whether its arms have names, and no order but that in which they were met."
    reward_range: tuple[float, float] | None = None
    shares: NDArray[np.float64] | None = None
    "Of each arm, the probability below which the log's policies say that it never was; None where they say nothing."
    decay: float | None = None
    "The exponent at which the floor under its probabilities sinks, 0 for one that does not; None where none is known."
    sticky: bool = False
    "Whether decisions may repeat the draw of another."
    close: Callable[[], None] = lambda: None


def open_log(
    log: Any,
    reward_range: tuple[float, float] | None = None,
    on_rows: Callable[[int], None] | None = None,
    **selection: Any,
) -> Opened:
    """Whatever `read_log` opens, or a simulated log."""
    if isinstance(log, Log):
        for name, value in selection.items():
            if value is not None:
                raise InvalidValue(name, value, "None: a simulated log has no such thing")
        return _simulated(log, reward_range)
    with ExitStack() as closing:
        opened = read_log(log, **selection)
        if opened is not log:
            closing.callback(opened.close)
        if on_rows is not None:
            opened.on_rows = on_rows
        parts, size, columns = opened.column_parts, opened.row_count, opened.columns
        if not parts or size is None:
            spool = closing.enter_context(_Spool())
            spool.fill(columns())
            parts, size, columns = (spool,), spool.rows, spool
        rule = opened.reward
        return Opened(
            source=opened.source,
            experiment=opened.experiment,
            arms=opened.arms,
            parts=parts,
            size=size,
            columns=columns,
            foreign=opened.foreign,
            requires_closed_windows=opened.requires_closed_windows,
            arms_unordered=opened.arms_unordered,
            reward_range=reward_range or (None if rule is None else rule.range),
            shares=promised_shares(opened.policies.values(), opened.arms),
            decay=promised_decay(opened.policies.values()),
            sticky=opened.sticky,
            close=closing.pop_all().close,
        )


def _simulated(log: Log, reward_range: tuple[float, float] | None) -> Opened:
    """A run of the simulator. Its forced first pulls say nothing about other policies, and are left out."""
    world, names = simulated_world(log)
    if reward_range is None and world is not None and np.isfinite(world.support).all():
        reward_range = world.support
    columns = partial(_simulated_columns, log)
    spec = log.provenance["policy"]
    return Opened(
        source=f"log of {spec}",
        experiment="simulated",
        arms=names,
        parts=(columns,),
        size=log.arms.size - log.forced,
        columns=columns,
        foreign=True,
        reward_range=reward_range,
        shares=promised_shares([spec], names),
        decay=promised_decay([spec]),
    )


def simulated_world(log: Log) -> tuple[problems.Problem | None, tuple[str, ...]]:
    """The problem of a run, None where it is a sampler of somebody's own; and its arms, which have numbers for names."""
    try:
        world = problems.problem(log.provenance["problem"])
    except MaillardError:
        world = None
    if log.log_probabilities is not None:
        count = log.log_probabilities.shape[1]
    else:
        count = int(log.arms.max(initial=0)) + 1 if world is None else world.arms
    return world, tuple(map(str, range(count)))


def _simulated_columns(log: Log) -> Iterator[Columns]:
    for first in range(log.forced, log.arms.size, MAX_BATCH_ROWS):
        part = slice(first, min(first + MAX_BATCH_ROWS, log.arms.size))
        row = np.arange(part.start + 1, part.stop + 1)
        none, no = np.broadcast_to(np.int64(0), row.size), np.broadcast_to(np.False_, row.size)
        yield Columns(
            row=row,
            arm=log.arms[part],
            reward=log.rewards[part],
            log_probability=log.log_probability[part],
            log_probabilities=None
            if log.log_probabilities is None
            else np.asfortranarray(log.log_probabilities[part]),
            position=none,
            epoch=none,
            state=row,
            time=none,
            closed=no,
            repeated=no,
        )


class _Spool:
    """Columns that cost much to read, kept for further readings: in memory, or in a file once they are many."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  # kept as long as this is
        self.rows = 0

    def fill(self, columns: Iterable[Columns]) -> None:
        """Keep these."""
        for some in columns:
            pickle.dump(some, self._file)
            self.rows += len(some)

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __call__(self) -> Iterator[Columns]:
        place = 0
        while True:
            self._file.seek(place)
            try:
                some = pickle.load(self._file)  # written above
            except EOFError:
                return
            place = self._file.tell()
            yield some
