"""`simulate`: many trials of many policies, on threads or on any executor."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import queue
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies import Policy
from maillard.problems import Problem
from maillard.simulation.machine import CPU, CUDA, Plan, prepare, run_trials
from maillard.simulation.plans import KEEP, SUMMARY, Study, check_device, make_study, versions, workers_for
from maillard.simulation.result import Result
from maillard.simulation.summary import Part, Summary, merge, sum_up

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Interrupted",
    "run_studies",
    "simulate",
]

_ROUNDS = 4_000_000  # of one task: a fraction of a second


class Interrupted(KeyboardInterrupt):
    """Somebody pressed Ctrl-C; the message says what was done by then."""


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
    keep: Literal["summary"],
    checkpoints: ArrayLike | None = None,
    engine: str | None = None,
    device: str = "cpu",
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
    """Run every policy on the problem, `trials` times `horizon` rounds, and return regret and pulls.

    A trial depends on the seed, the policy and its own number alone: not on threads, chunks, the other policies or the
    machine that runs it. `threads` are all cores unless told; `executor` is any `concurrent.futures.Executor`, such as a process pool or
    Dask's `client.get_executor()`. Policies by name get sigma2 from the problem, and the horizon if they need one. `checkpoints` are
    the rounds at which regret is kept (64 of them, evenly spaced in log t). `engine` forces "direct", the obvious loop, or
    "plain", the same around `policy.choose`; without it the fastest that is exact is used. `device="cuda"` runs on an NVIDIA GPU, "auto" there
    if it can and else here; a GPU's random numbers are others, so its trials are too. `keep="summary"` returns a `Summary`
    instead of a `Result`: curves, quantiles, mean pulls, and of each trial the final regret alone, for very many trials.
    `progress` shows a bar, by default on terminals.

    >>> result = simulate(["ms", "uniform"], "bernoulli:0.5,0.4", horizon=100, trials=10, seed=1)
    >>> result.final_regret.shape, result.rounds[-1]
    ((2, 10), np.int64(100))
    """
    check_device(device)
    if keep not in KEEP:
        raise InvalidValue("keep", keep, " or ".join(KEEP))
    study = make_study(
        policies,
        problem,
        horizon,
        trials,
        seed,
        checkpoints=checkpoints,
        engine=engine,
        device=device,
        keep=keep,
    )
    workers = workers_for(threads)
    if executor is not None and not isinstance(executor, Executor):
        raise InvalidValue(
            "executor", executor, "a concurrent.futures.Executor (Dask: client.get_executor())"
        )
    if executor is not None and device == CUDA:
        raise InvalidValue("executor with device 'cuda'", executor, "None: a GPU runs all trials itself")
    done = np.zeros(len(study.plans), np.int64)
    try:
        with _bar(len(study.plans) * trials, progress) as show:

            def advance(_study: int, policy: int, count: int) -> None:
                done[policy] += count
                show(count)

            ((_, result),) = run_studies([study], workers, executor, advance)
    except KeyboardInterrupt:
        counts = zip(study.names, done, strict=True)
        what = ", ".join(f"{name} {count} of {trials}" for name, count in counts)
        raise Interrupted(f"stopped; trials done: {what}") from None
    return result


def run_studies(
    studies: Iterable[Study],
    workers: int,
    executor: Executor | None = None,
    advance: Callable[[int, int, int], None] = lambda _study, _policy, _count: None,
) -> Iterator[tuple[int, Result]]:
    """The studies' results as they are done, each with its place; all share the workers.

    `advance` hears of every task that ends: which study, which of its policies, how many trials. A study is compiled while those before
    it run, and a GPU's kernel while its other policies run.
    """
    stop = np.zeros(1, np.int64)
    own = executor is None
    under_way: dict[int, _UnderWay] = {}
    finished: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    futures: dict[Future[Any], tuple[int, int, int, int]] = {}

    def collect(*, wait: bool) -> Iterator[tuple[int, Result]]:
        """What has ended; or after waiting for it, in short spells, so that Ctrl-C is heard at once."""
        while futures:
            try:
                future = finished.get(wait, 0.1)
            except queue.Empty:
                return
            place, policy, first, count = futures.pop(future)
            study = under_way[place]
            study.take(policy, first, count, future.result())
            advance(place, policy, count)
            if not study.left:
                yield place, under_way.pop(place).result()

    with contextlib.ExitStack() as stack:
        # The tasks end within milliseconds of `stop`; whoever waits for them waits no longer.
        pool = executor or stack.enter_context(concurrent.futures.ThreadPoolExecutor(workers))
        gpu: list[Executor] = []  # one thread, so that its waves come one after the other

        def pool_of(plan: Plan) -> Executor:
            if plan.device == CPU:
                return pool
            if not gpu:
                gpu.append(stack.enter_context(concurrent.futures.ThreadPoolExecutor(1)))
            return gpu[0]

        try:
            for place, study in enumerate(studies):
                for i, plan in enumerate(study.plans):
                    if own and (plan.device == CPU or i == 0):
                        prepare(plan)
                under_way[place] = _UnderWay(study)
                for i, first, count in _tasks(study, workers):
                    extra = (stop,) if own else ()  # which other processes could not see
                    plan = study.plans[i]
                    if plan.device == CUDA and i > 0 and first == 0:
                        prepare(plan)  # while the trials of those before it run
                        yield from collect(wait=False)
                    future = pool_of(plan).submit(_chunk, plan, first, count, study.keep, *extra)
                    futures[future] = (place, i, first, count)
                    future.add_done_callback(finished.put)
                yield from collect(wait=False)
            while futures:
                yield from collect(wait=True)
        except BaseException:
            stop[0] = 1
            for future in futures:
                future.cancel()
            raise


def _tasks(study: Study, workers: int) -> list[tuple[int, int, int]]:
    """Policy, first trial, number of trials: a fraction of a second each, or on a GPU a wave."""
    trials, tasks = study.trials, []
    for i, plan in enumerate(study.plans):
        if plan.device == CUDA:
            from maillard.simulation.cuda import machine as device

            chunk = device.wave_size(plan)
        else:
            chunk = max(1, min(_ROUNDS // plan.horizon, -(-trials // (4 * workers)), 1000))
        tasks += [(i, first, min(chunk, trials - first)) for first in range(0, trials, chunk)]
    return tasks


class _UnderWay:
    """A study under way: each trial's result has its place, whoever computes it."""

    def __init__(self, study: Study) -> None:
        self.study, self.started = study, time.perf_counter()
        plan, policies = study.plans[0], len(study.plans)
        trials = 0 if study.keep == SUMMARY else study.trials
        self.regret = np.zeros((policies, trials, len(plan.checkpoints)))
        self.pulls = np.zeros((policies, trials, plan.problem.arms), np.int64)
        self.final = np.zeros((policies, study.trials if study.keep == SUMMARY else 0))
        self.parts: list[dict[int, Part]] = [{} for _ in range(policies)]
        self.left = policies * study.trials

    def take(self, policy: int, first: int, count: int, done: Any) -> None:
        """Put what a task gave in its place."""
        self.left -= count
        block = slice(first, first + count)
        if self.study.keep != SUMMARY:
            self.regret[policy, block], self.pulls[policy, block] = done
            return
        self.final[policy, block] = done.final
        parts = self.parts[policy]
        parts[first] = dataclasses.replace(done, final=done.final[:0])
        # Merged in the order of trials, so that the same bits come whichever was first; and at once, as each is megabytes.
        while (whole := parts.get(0)) and whole.count in parts:
            parts[0] = merge([whole, parts.pop(whole.count)])

    def result(self) -> Any:
        plans = self.study.plans
        provenance = {
            "policies": [str(plan.policy) for plan in plans],
            "problem": str(plans[0].problem),
            "horizon": plans[0].horizon,
            "trials": self.study.trials,
            "seed": plans[0].seed,
            "engine": plans[0].engine or "fastest",
            "device": _device_names(plans),
            "versions": versions(),
            # Without compiling, but for that of a GPU's further kernels.
            "seconds": round(time.perf_counter() - self.started, 3),
        }
        rounds, measure = np.array(plans[0].checkpoints, np.int64), plans[0].problem.measure
        if self.study.keep == SUMMARY:
            parts = tuple(
                dataclasses.replace(each[0], final=self.final[i]) for i, each in enumerate(self.parts)
            )
            return Summary(self.study.names, measure, rounds, parts, provenance)
        return Result(self.study.names, measure, rounds, self.regret, self.pulls, provenance)


def _device_names(plans: Sequence[Plan]) -> str:
    """What the trials ran on."""
    used = {plan.device for plan in plans}
    if CUDA not in used:
        return CPU
    from maillard.simulation.cuda import machine as device

    return " and ".join([CPU] * (CPU in used) + [f"{CUDA} ({device.device_name()})"])


def _chunk(plan: Plan, first: int, count: int, keep: str, stop: NDArray[np.int64] | None = None) -> Any:
    """One task; a module's function, so that other processes find it."""
    if plan.device == CUDA:
        from maillard.simulation.cuda import machine as device

        wave = device.run_wave(plan, first, count, whole=keep != SUMMARY, stop=stop)
        return wave.part if keep == SUMMARY else (wave.regret, wave.pulls)
    made = run_trials(plan, first, count, stop=stop)
    return sum_up(made.regret, made.pulls) if keep == SUMMARY else (made.regret, made.pulls)


@contextlib.contextmanager
def _bar(total: int, progress: bool | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, or nothing."""
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("trials"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=total)
        yield lambda count: shown.advance(task, count)
