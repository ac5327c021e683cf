"""`simulate_log`: simulated decision logs with the exact log probability of every choice."""

from __future__ import annotations

import concurrent.futures
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies import Policy
from maillard.problems import Problem
from maillard.problems import problem as problem_of
from maillard.simulation.log_recorder import record
from maillard.simulation.plans import Plan, check_count, check_folder, make_plan, workers_for
from maillard.simulation.result_files import pyarrow

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Log:
    """One simulated run: in each round, the chosen arm, its reward, and the log probability of the choice.

    The first `forced` rounds pull every arm once, in order, as in the paper. Those choices have probability 1
    and carry no information about other policies.
    """

    arms: NDArray[np.int64]
    rewards: NDArray[np.float64]
    log_probability: NDArray[np.float64]  # of the chosen arm
    log_probabilities: NDArray[np.float64] | None  # round x arm
    forced: int
    provenance: dict[str, Any]

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file: run, round, arm, reward, log probability, and those of every arm."""
        _write(path, iter([self]))


@overload
def simulate_log(
    policy: str | Policy, problem: str | Problem, horizon: int, seed: int = 0, *, probabilities: str = "all"
) -> Log: ...


@overload
def simulate_log(
    policy: str | Policy,
    problem: str | Problem,
    horizon: int,
    seed: int = 0,
    *,
    runs: int,
    path: str | Path | None = None,
    probabilities: str = "all",
    threads: int | None = None,
) -> list[Log]: ...


def simulate_log(
    policy: str | Policy,
    problem: str | Problem,
    horizon: int,
    seed: int = 0,
    *,
    runs: int | None = None,
    path: str | Path | None = None,
    probabilities: str = "all",
    threads: int | None = None,
) -> Log | list[Log]:
    """Simulate one run as a log, or several as a list.

    With a `path`, the logs are written to a Parquet file as they finish, and the returned list is empty.
    `probabilities` is "all" to keep the log probabilities of every arm, or "chosen". Each arm is sampled from
    exactly the logged distribution, which is `policy.log_probabilities` for the rewards observed so far.

    >>> log = simulate_log("ms", "bernoulli:0.5,0.4", horizon=100, seed=1)
    >>> log.log_probabilities.shape, bool((log.log_probability <= 0).all())
    ((100, 2), True)
    """
    plan = make_plan(policy, problem_of(problem), horizon, seed)
    if probabilities not in ("all", "chosen"):
        raise InvalidValue("probabilities", probabilities, "all or chosen")
    workers = workers_for(threads)
    check_count("horizon", horizon, 10**9)  # every round is recorded
    if path is not None:
        check_folder("path", path)
    if runs is None:
        if path is None:
            return _log(plan, 0, probabilities)
        runs = 1
    check_count("runs", runs, 2**40)
    made = _logs(plan, runs, probabilities, workers)
    if path is None:
        return list(made)
    _write(path, made)
    return []


def _log(plan: Plan, run: int, probabilities: str) -> Log:
    recorded = record(plan, run, every_arm=probabilities == "all")
    provenance = {
        "policy": str(plan.policy),
        "problem": str(plan.problem),
        "horizon": plan.horizon,
        "seed": plan.seed,
        "run": run,
    }
    return Log(*recorded, provenance)


def _logs(plan: Plan, runs: int, probabilities: str, workers: int) -> Iterator[Log]:
    """Yield the logs in order, computing a few ahead of the consumer."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        ahead: deque[Any] = deque()
        for run in range(runs):
            ahead.append(pool.submit(_log, plan, run, probabilities))
            if len(ahead) > 2 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _write(path: str | Path, logs: Iterator[Log]) -> None:
    """Write a Parquet file with one row per round and one row group per run."""
    pa, pq = pyarrow()
    path = Path(path)
    if path.suffix != ".parquet":
        raise InvalidValue("path", str(path), "a file name that ends in .parquet")
    partial = path.with_name(path.name + ".partial")  # renamed when complete
    writer: Any = None
    try:
        for log in logs:
            columns = {
                "run": pa.array(np.full(log.arms.size, log.provenance["run"])),
                "round": pa.array(np.arange(1, log.arms.size + 1)),
                "arm": pa.array(log.arms),
                "reward": pa.array(log.rewards),
                "log_probability": pa.array(log.log_probability),
            }
            if log.log_probabilities is not None:
                flat = pa.array(log.log_probabilities.ravel())
                columns["log_probabilities"] = pa.FixedSizeListArray.from_arrays(
                    flat, log.log_probabilities.shape[1]
                )
            table = pa.table(columns)
            if writer is None:
                metadata = {"maillard": json.dumps({**log.provenance, "forced": log.forced})}
                writer = pq.ParquetWriter(partial, table.schema.with_metadata(metadata))
            writer.write_table(table.cast(writer.schema))
        if writer is not None:
            writer.close()
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
