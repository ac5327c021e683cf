"""`simulate`: runs many trials of several policies, on threads or on any executor."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies import Policy
from maillard.problems import Problem
from maillard.simulation.backends import AUTO, backend_for, check_device
from maillard.simulation.plans import KEEP, SUMMARY, Experiment, Plan, make_experiment, versions, workers_for
from maillard.simulation.result import Result
from maillard.simulation.summary import PartialSummary, Summary, merge

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Interrupted(KeyboardInterrupt):
    """Raised when Ctrl-C stops a simulation; the message says how many trials were done.

    >>> try:
    ...     result = simulate("ms", "bernoulli:0.5,0.4", horizon=100, trials=10)
    ... except Interrupted as interruption:  # Ctrl-C
    ...     print(interruption)
    """


@overload
def simulate(
    policies: str | Policy | Sequence[str | Policy],
    problem: str | Problem,
    horizon: int,
    trials: int = 200,
    seed: int = 0,
    threads: int | None = None,
    executor: Executor | None = None,
    *,
    checkpoints: ArrayLike | None = None,
    engine: str | None = None,
    device: str = "cpu",
    keep: Literal["trials"] = "trials",
    progress: bool | None = None,
) -> Result: ...


@overload
def simulate(
    policies: str | Policy | Sequence[str | Policy],
    problem: str | Problem,
    horizon: int,
    trials: int = 200,
    seed: int = 0,
    threads: int | None = None,
    executor: Executor | None = None,
    *,
    checkpoints: ArrayLike | None = None,
    engine: str | None = None,
    device: str = "cpu",
    keep: Literal["summary"],
    progress: bool | None = None,
) -> Summary: ...


def simulate(
    policies: str | Policy | Sequence[str | Policy],
    problem: str | Problem,
    horizon: int,
    trials: int = 200,
    seed: int = 0,
    threads: int | None = None,
    executor: Executor | None = None,
    *,
    checkpoints: ArrayLike | None = None,
    engine: str | None = None,
    device: str = "cpu",
    keep: str = "trials",
    progress: bool | None = None,
) -> Result | Summary:
    """Run all `policies` on the `problem`, `trials` times for `horizon` rounds; return regret and pulls.

    A trial is determined by its plan, the `seed` and its number. It does not depend on the number of
    threads, on the other policies, or on the machine. Policies given by name get sigma2 from the problem, and
    the horizon if they need one.

    - `threads`: the number of threads; by default, all cores.
    - `executor`: a `concurrent.futures.Executor`, such as a process pool or Dask's `client.get_executor()`.
      Then `threads` is the number of its workers: trials are divided into about four tasks per worker.
    - `checkpoints`: the rounds at which regret is recorded; by default, 64 rounds evenly spaced in log t.
    - `engine`: "direct" evaluates every arm in every round, "plain" calls `policy.choose`. By default, the
      fastest exact engine is used.
    - `device`: "cuda" runs on an NVIDIA GPU, "auto" on a GPU if it can run the plan. A GPU uses different
      random numbers, so its trials differ from those of the CPU.
    - `keep`: "summary" returns a `Summary` instead of a `Result`: curves, quantiles, mean pulls, and the
      final regret of each trial. Use it for very many trials.
    - `progress`: whether to show a progress bar; by default, on a terminal.

    >>> result = simulate(["ms", "uniform"], "bernoulli:0.5,0.4", horizon=100, trials=10, seed=1)
    >>> result.final_regret.shape, result.rounds[-1]
    ((2, 10), np.int64(100))
    """
    check_device(device)
    if keep not in KEEP:
        raise InvalidValue("keep", keep, " or ".join(KEEP))
    experiment = make_experiment(policies, problem, horizon, trials, seed, checkpoints, engine, device, keep)
    workers = workers_for(threads)
    if executor is not None and not isinstance(executor, Executor):
        allowed = "a concurrent.futures.Executor (Dask: client.get_executor())"
        raise InvalidValue("executor", executor, allowed)
    if executor is not None and device != AUTO and backend_for(device).SERIAL:
        raise InvalidValue(f"executor with device {device!r}", executor, "None: the device runs all trials")
    done = np.zeros(len(experiment.plans), np.int64)
    try:
        with _progress_bar(len(experiment.plans) * trials, progress) as show:

            def advance(_experiment: int, policy: int, count: int) -> None:
                done[policy] += count
                show(count)

            ((_, result),) = run_experiments([experiment], workers, executor, advance)
    except KeyboardInterrupt:
        counts = zip(experiment.names, done, strict=True)
        completed = ", ".join(f"{name} {count} of {trials}" for name, count in counts)
        raise Interrupted(f"stopped; trials done: {completed}") from None
    return result


def run_experiments(
    experiments: Iterable[Experiment],
    workers: int,
    executor: Executor | None = None,
    advance: Callable[[int, int, int], None] = lambda _experiment, _policy, _count: None,
) -> Iterator[tuple[int, Result]]:
    """Yield the index and the result of each experiment as it completes; all experiments share the workers.

    `advance(experiment, policy, trials)` is called with two indices whenever a batch of trials completes. An
    experiment is compiled while earlier ones run. On a serial backend, a plan is compiled while earlier plans
    run.
    """
    stop = np.zeros(1, np.int64)
    visible_stop = stop if executor is None else None  # other processes cannot see it
    running: dict[int, _Collector] = {}
    completed: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    futures: dict[Future[Any], tuple[int, int, int, int]] = {}

    def collect(*, wait: bool) -> Iterator[tuple[int, Result]]:
        """Collect the completed batches; wait for the next one in short intervals, so that Ctrl-C works."""
        while futures:
            try:
                future = completed.get(wait, 0.1)
            except queue.Empty:
                return
            index, policy, first, count = futures.pop(future)
            collector = running[index]
            collector.add(policy, first, count, future.result())
            advance(index, policy, count)
            if not collector.trials_left:
                yield index, running.pop(index).result()

    with contextlib.ExitStack() as stack:
        # On exit the pools wait for their batches, which end within milliseconds of `stop`.
        pool = executor or stack.enter_context(concurrent.futures.ThreadPoolExecutor(workers))
        # It starts no thread until it is used.
        serial_pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        try:
            for index, experiment in enumerate(experiments):
                plans = [(plan, backend_for(plan.device)) for plan in experiment.plans]
                for i, (plan, backend) in enumerate(plans):
                    if executor is None and (not backend.SERIAL or i == 0):
                        backend.prepare(plan)
                running[index] = _Collector(experiment)
                for i, (plan, backend) in enumerate(plans):
                    size = backend.batch_size(plan, experiment.trials, workers)
                    if backend.SERIAL and i > 0:
                        backend.prepare(plan)
                        yield from collect(wait=False)
                    for first in range(0, experiment.trials, size):
                        count = min(size, experiment.trials - first)
                        future = (serial_pool if backend.SERIAL else pool).submit(
                            _run_batch, plan, first, count, experiment.keep == SUMMARY, visible_stop
                        )
                        futures[future] = (index, i, first, count)
                        future.add_done_callback(completed.put)
                yield from collect(wait=False)
            while futures:
                yield from collect(wait=True)
        except BaseException as error:
            stop[0] = 1
            _cancel(futures, pool, error)
            raise


def _cancel(futures: Iterable[Future[Any]], pool: Executor, error: BaseException) -> None:
    """Cancel the batches that wait.

    Ctrl-C may end a worker of a process pool before its first batch. In Python 3.11, a pool whose worker
    ended never terminates if one of its futures was cancelled from outside, so such a pool is shut down and
    cancels them itself. A later `shutdown` by its owner would withdraw that, hence `wait`.
    """
    broken = isinstance(error, (KeyboardInterrupt, concurrent.futures.BrokenExecutor))
    if broken and isinstance(pool, concurrent.futures.ProcessPoolExecutor):
        pool.shutdown(wait=True, cancel_futures=True)
    else:
        for future in futures:
            future.cancel()


def _run_batch(plan: Plan, first: int, count: int, summarize: bool, stop: NDArray[np.int64] | None) -> Any:
    """Run one batch; a function of the module, so that it can be pickled."""
    if multiprocessing.parent_process() and threading.current_thread() is threading.main_thread():
        # A worker interrupted by Ctrl-C could leave half a message in a pipe of its pool, which then hangs.
        # The calling process stops the pool.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return backend_for(plan.device).run(plan, first, count, summarize=summarize, stop=stop)


class _Collector:
    """Collects the batches of an experiment, in any order, into one result."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, self.started = experiment, time.perf_counter()
        plan, policies = experiment.plans[0], len(experiment.plans)
        self.summarize = experiment.keep == SUMMARY
        trials = 0 if self.summarize else experiment.trials
        self.regret = np.zeros((policies, trials, len(plan.checkpoints)))
        self.pulls = np.zeros((policies, trials, plan.problem.arms), np.int64)
        self.final = np.zeros((policies, experiment.trials if self.summarize else 0))
        self.parts: list[dict[int, PartialSummary]] = [{} for _ in range(policies)]
        self.trials_left = policies * experiment.trials

    def add(self, policy: int, first: int, count: int, batch: Any) -> None:
        """Add the trials `first`, ..., `first + count - 1` of a policy."""
        self.trials_left -= count
        block = slice(first, first + count)
        if not self.summarize:
            self.regret[policy, block], self.pulls[policy, block] = batch.regret, batch.pulls
            return
        self.final[policy, block] = batch.final
        parts = self.parts[policy]
        parts[first] = dataclasses.replace(batch, final=batch.final[:0])
        # Merging in the order of trials gives the same bits in every run. Each part takes megabytes: merge
        # soon.
        while (merged := parts.get(0)) and merged.count in parts:
            parts[0] = merge([merged, parts.pop(merged.count)])

    def result(self) -> Any:
        experiment, plans = self.experiment, self.experiment.plans
        devices = dict.fromkeys(sorted(plan.device for plan in plans))
        provenance = {
            "policies": [str(plan.policy) for plan in plans],
            "problem": str(plans[0].problem),
            "horizon": plans[0].horizon,
            "trials": experiment.trials,
            "seed": plans[0].seed,
            "engine": plans[0].engine or "fastest",
            "device": " and ".join(backend_for(device).device_name() for device in devices),
            "versions": versions(),
            # Without compilation, except for that of a serial backend's further plans.
            "seconds": round(time.perf_counter() - self.started, 3),
        }
        rounds, measure = np.array(plans[0].checkpoints, np.int64), plans[0].problem.measure
        if self.summarize:
            parts = tuple(
                dataclasses.replace(each[0], final=self.final[i]) for i, each in enumerate(self.parts)
            )
            return Summary(experiment.names, measure, rounds, parts, provenance)
        return Result(experiment.names, measure, rounds, self.regret, self.pulls, provenance)


@contextlib.contextmanager
def _progress_bar(total: int, progress: bool | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr, unless it is turned off."""
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("simulating", BarColumn(), MofNCompleteColumn(), "trials", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=total)
        yield lambda count: shown.advance(task, count)
