"""`simulate_log`: simulated decision logs with the exact log probability of every choice."""

from __future__ import annotations

import concurrent.futures
import functools
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies import Policy
from maillard.problems import ContextualProblem, Problem
from maillard.problems import problem as problem_of
from maillard.short_reprs import dataclass_repr
from maillard.simulation import compiled_plans
from maillard.simulation.compiling import compile_function
from maillard.simulation.cpu_backend import problem_arguments
from maillard.simulation.engines import direct_engines, recording_loop
from maillard.simulation.plain_contexts import record_contexts
from maillard.simulation.plans import Plan, check_count, check_folder, make_plan, workers_for
from maillard.simulation.policy_formulas import engine_shape, forced_rounds, mixed_in
from maillard.simulation.random_streams import trial_generator
from maillard.simulation.result_files import list_column, pyarrow
from maillard.simulation.user_samplers import sampler_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Log:
    """One simulated run: in each round, the chosen arm, its reward, and the log probability of the choice.

    The first `forced` rounds pull every arm once, in order, as in the paper. Those choices have probability 1
    and carry no information about other policies.

    >>> log = simulate_log("ms", "bernoulli:0.5,0.4", horizon=100, seed=1)
    >>> log.arms.size, log.forced, round(float(log.rewards.mean()), 2)
    (100, 2, 0.44)
    >>> log.to_parquet("log.parquet")
    """

    arms: NDArray[np.int64]
    rewards: NDArray[np.float64]
    log_probability: NDArray[np.float64]  # of the chosen arm
    log_probabilities: NDArray[np.float64] | None  # round x arm
    forced: int
    provenance: dict[str, Any]
    contexts: NDArray[np.float64] | None = None
    """The encoded features of each round, as the policy saw them: round x d, or round x arm x d if the
    model is shared. None for a problem without contexts."""
    segments: NDArray[np.str_] | None = None  # of each round; None for a problem without segments

    __repr__ = dataclass_repr

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file: run, round, arm, reward, log probability, and those of every arm.

        A log with contexts has the columns `context` and, with segments, `segment`.
        """
        _write(path, iter([self]))


@overload
def simulate_log(
    policy: str | Policy,
    problem: str | Problem,
    horizon: int,
    seed: int = 0,
    *,
    runs: None = None,
    path: None = None,
    probabilities: str = "all",
    threads: int | None = None,
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


@overload
def simulate_log(
    policy: str | Policy,
    problem: str | Problem,
    horizon: int,
    seed: int = 0,
    *,
    runs: int | None = None,
    path: str | Path,
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
    """Simulate one run of a `policy` on a `problem` as a log, or with `runs` several as a list.

    With a `path`, the logs are written to a Parquet file as they finish, and the returned list is empty.
    `threads` is the number of threads for several runs; by default, all cores. `probabilities` is "all" to
    keep the log probabilities of every arm, or "chosen". Each arm is sampled from exactly the logged
    distribution, which is `policy.log_probabilities` for the rewards observed so far and, if the problem has
    contexts, for the context of the round.

    >>> log = simulate_log("ms", "bernoulli:0.5,0.4", horizon=100, seed=1)
    >>> log.log_probabilities.shape, bool((log.log_probability <= 0).all())
    ((100, 2), True)
    """
    plan = make_plan(policy, problem_of(problem), horizon, seed)
    if probabilities not in ("all", "chosen"):
        raise InvalidValue("probabilities", probabilities, "all or chosen")
    every_arm, workers = probabilities == "all", workers_for(threads)
    check_count("horizon", horizon, 10**9)  # every round is recorded
    if path is not None:
        check_folder("path", path)
    if runs is None:
        if path is None:
            return record(plan, 0, every_arm=every_arm)
        runs = 1
    check_count("runs", runs, 2**40)
    made = _record_all(plan, runs, every_arm, workers)
    if path is None:
        return list(made)
    _write(path, made)
    return []


def record(plan: Plan, run: int, *, every_arm: bool) -> Log:
    """Record one run of a plan, with the log probabilities of every arm or of the chosen one only."""
    problem, horizon = plan.problem, plan.horizon
    chosen, rewards, log_chosen = np.zeros(horizon, np.int64), np.zeros(horizon), np.zeros(horizon)
    log_all = np.zeros((horizon, problem.arms) if every_arm else (0, 0))
    forced = min(forced_rounds(plan.policy, problem.arms), horizon)
    provenance: dict[str, Any] = {"policy": str(plan.policy), "problem": str(problem), "horizon": horizon}
    provenance |= {"seed": plan.seed, "run": run}
    if isinstance(problem, ContextualProblem):
        rng = trial_generator(plan.seed, plan.policy, run)
        contexts, segments = record_contexts(plan, problem, rng, chosen, rewards, log_chosen, log_all)
        log = log_all if every_arm else None
        return Log(chosen, rewards, log_chosen, log, forced, provenance, contexts, segments)
    compiled = prepare_recorder(plan)
    n, s = np.zeros(problem.arms), np.zeros(problem.arms)
    sampler = sampler_of(problem, in_python=compiled.in_python)
    rng = trial_generator(plan.seed, plan.policy, run)
    sampler.start_trial(rng)
    status = compiled.run(
        *compiled.arguments, *problem_arguments(problem, sampler), chosen, rewards, log_chosen, log_all, n, s,
        rng,
    )  # fmt: skip
    sampler.raise_error()
    if status:
        compiled_plans.raise_failure(plan, compiled, status, int(chosen[0]), n, s)
    return Log(chosen, rewards, log_chosen, log_all if every_arm else None, forced, provenance)


@functools.lru_cache(maxsize=64)
def prepare_recorder(plan: Plan) -> compiled_plans.CompiledPlan:
    """Compile the recorder of a plan.

    Without a compiled distribution, it calls `policy.log_probabilities`.
    """
    shape = engine_shape(compiled_plans.formula_policy(plan.policy))
    if shape in direct_engines.DISTRIBUTIONS:
        functions = direct_engines.DISTRIBUTIONS[shape], direct_engines.ENGINES[shape][2]
        run = compile_function(recording_loop.build, functions, recording_loop.SIGNATURE)
        return compiled_plans.formula_plan(plan, run, mixed_in(plan.policy, plan.problem.arms))

    def compute(_f: Any, w: Any, _arms: int, t: int) -> int:
        w[direct_engines.LOG] = plan.policy.log_probabilities(compiled_plans.tally_of(w), round=t)
        w[direct_engines.PROBABILITY] = np.exp(w[direct_engines.LOG])
        return 0

    return compiled_plans.plain_plan(plan, recording_loop.build(compute, direct_engines.update, 1))


def _record_all(plan: Plan, runs: int, every_arm: bool, workers: int) -> Iterator[Log]:
    """Yield the logs in order, computing a few ahead of the consumer."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        ahead: deque[Any] = deque()
        for run in range(runs):
            ahead.append(pool.submit(record, plan, run, every_arm=every_arm))
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
                "run": np.full(log.arms.size, log.provenance["run"]),
                "round": np.arange(1, log.arms.size + 1),
                "arm": log.arms,
                "reward": log.rewards,
                "log_probability": log.log_probability,
            }
            if log.log_probabilities is not None:
                columns["log_probabilities"] = list_column(log.log_probabilities)
            if log.contexts is not None:
                columns["context"] = list_column(log.contexts)
            if log.segments is not None:
                columns["segment"] = log.segments
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
