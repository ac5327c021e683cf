"""A policy on the rewards of a log, where a simulation would draw them from a problem."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maillard.simulation import machine
from maillard.simulation.engines import direct, replaying
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]

__all__ = ["Played", "Rows", "play", "prepare"]

_NOWHERE, _NOTHING = np.zeros(0, np.int64), np.zeros(0)


@dataclass(frozen=True, eq=False)
class Rows:
    """What a policy reads in the place of a problem: rows that it waits for, or a queue for each arm.

    Thinned: a choice is answered by the next row that has `drawn` the same arm and passes a coin of probability `keep`. Queued: the rewards of
    one arm stand after those of the other, from `starts[arm]` to `starts[arm + 1]`, and each pull reads the next.
    """

    rewards: Floats
    drawn: Places = dataclasses.field(default_factory=lambda: _NOWHERE)
    keep: Floats = dataclasses.field(default_factory=lambda: _NOTHING)
    starts: Places = dataclasses.field(default_factory=lambda: _NOWHERE)


class Played(NamedTuple):
    """What a policy collected by each checkpoint, or by when the rows gave out."""

    sums: Floats
    "Of rewards."
    marked: Floats
    "Of the marks of the arms that were played."
    length: int
    "How many rounds there were."


def prepare(plan: machine.Plan) -> None:
    """Compile what the plan needs, or find it compiled."""
    _replayer(plan)


def play(plan: machine.Plan, rows: Rows, marks: Floats, number: int) -> Played:
    """The plan's policy on these rows; `marks` are a number for each arm.

    What happens depends on the rows, the plan's seed, its policy and `number` alone.
    """
    made = _replayer(plan)
    checkpoints = np.array(plan.checkpoints, np.int64)
    sums, marked, ended = np.zeros(checkpoints.size), np.zeros(checkpoints.size), np.zeros(2, np.int64)
    n, s = np.zeros(marks.size), np.zeros(marks.size)
    status = made.run(
        made.addresses, made.shares, made.fading, made.decay, made.forced, rows.drawn, rows.keep, rows.rewards, rows.starts,
        marks, checkpoints, sums, marked, ended, n, s, machine.generator(plan.seed, plan.policy, number),
    )  # fmt: skip
    if status:
        machine._explain(plan, made, status, int(ended[1]), n, s)
    return Played(sums, marked, int(ended[0]))


@functools.lru_cache(maxsize=256)
def _replayer(plan: machine.Plan) -> Any:
    """Compiled where the policy has formulas, else the same loop around `policy.choose`."""
    kind = plan.engine or machine._engines(plan)[0]
    if kind != machine.PLAIN:
        shape, made = machine.formulas(plan.policy, plan.problem.arms)
        return dataclasses.replace(made, run=_compiled(kind, shape))

    def choose(_f: Any, w: Any, _arms: int, t: int, rng: np.random.Generator) -> int:
        return plan.policy.choose(Tally(w[direct.N].astype(np.int64), w[direct.S]), rng, round=t)

    run = replaying.build(direct.begin, choose, direct.learn, 1)
    # The choice has the shares in it.
    forced = machine.forced_rounds(machine.inner_of(plan.policy), plan.problem.arms)
    return machine._Machine(run, np.zeros(1, np.int64), _NOTHING, _NOTHING, 0.0, forced, ())


@functools.cache
def _compiled(kind: str, shape: str) -> Any:
    return replaying.replayer(*machine.functions(kind, shape))
