"""`simulate`: many trials of many policies, on threads or on any executor."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import platform
import queue
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue
from maillard.policies import Policy, policy
from maillard.problems import Problem
from maillard.problems import problem as problem_of
from maillard.simulation.machine import CPU, CUDA, DEVICES, Plan, check_plan, prepare, run_trials
from maillard.simulation.result import Result
from maillard.simulation.summary import Part, Summary, merge, sum_up

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Interrupted",
    "Study",
    "check_count",
    "check_device",
    "check_folder",
    "check_seed",
    "make_plan",
    "make_study",
    "run_studies",
    "simulate",
    "versions",
    "workers_for",
]

AUTO = "auto"  # a device: a GPU if there is one
KEEP = _, SUMMARY = ("trials", "summary")
_CHECKPOINTS = 64
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


@dataclass(frozen=True)
class Study:
    """Policies on one problem, checked: what `simulate` runs."""

    plans: tuple[Plan, ...]
    names: tuple[str, ...]
    trials: int
    keep: str = "trials"  # or "summary"


def make_study(
    policies: str | Policy | Sequence[str | Policy],
    problem: str | Problem,
    horizon: int,
    trials: int,
    seed: int,
    *,
    checkpoints: ArrayLike | None = None,
    engine: str | None = None,
    device: str = "cpu",
    keep: str = "trials",
) -> Study:
    """Check all that can be refused before anything runs."""
    world = problem_of(problem)
    if not isinstance(policies, str | Policy | Iterable):
        raise InvalidValue("policies", policies, "policies and their specs")
    given = [policies] if isinstance(policies, str | Policy) else list(policies)
    if not given:
        raise InvalidValue("policies", policies, "at least one policy")
    check_count("trials", trials, 10**8)
    where = CPU if device == AUTO else device
    plans = [make_plan(each, world, horizon, seed, checkpoints, engine, device=where) for each in given]
    if device == AUTO:
        plans = [_at_best(plan) for plan in plans]
    return Study(tuple(plans), tuple(_label(each) for each in given), trials, keep)


def check_device(device: str) -> None:
    """Refuse a device that there is not."""
    if device not in (*DEVICES, AUTO):
        raise InvalidValue("device", device, " or ".join((*DEVICES, AUTO)))
    if device == CUDA:
        from maillard.simulation.cuda import toolkit

        toolkit.require_device()


def _at_best(plan: Plan) -> Plan:
    """The plan on a GPU, where there is one, and an engine for the plan on it; else as it is."""
    from maillard.simulation.cuda import toolkit

    there = dataclasses.replace(plan, device=CUDA)
    try:
        toolkit.require_device()
        check_plan(there)
        prepare(there)
    except (toolkit.NoDevice, InvalidValue):
        return plan
    return there


def make_plan(
    given: str | Policy,
    problem: Problem,
    horizon: int,
    seed: int,
    checkpoints: ArrayLike | None = None,
    engine: str | None = None,
    names: Sequence[str] | None = None,
    device: str = CPU,
) -> Plan:
    """A policy's plan, checked: what can be refused is refused before anything runs. `names` are those of the problem's arms."""
    check_count("horizon", horizon, 2**53)
    check_seed(seed)
    context: dict[str, Any] = {"horizon": int(horizon)}
    if isinstance(given, str):
        said = specs.read(given).options
        if not {"sigma2", "reward_range"} & set(said) and problem.sigma2 is not None:
            context["sigma2"] = problem.sigma2
        if "horizon" in said:
            del context["horizon"]
    elif not isinstance(given, Policy):
        raise InvalidValue("policies", given, "policies and their specs")
    elif given.needs_horizon is False or _has_horizon(given):
        context = {}
    made = policy(given, **context).bind(names or [str(arm) for arm in range(problem.arms)])
    plan = Plan(made, problem, _check_checkpoints(checkpoints, int(horizon)), int(seed), engine, device)
    check_plan(plan)
    return plan


def _has_horizon(given: Policy) -> bool:
    inner = getattr(given, "policy", given)
    return getattr(inner, "horizon", None) is not None


def _label(given: str | Policy) -> str:
    return given if isinstance(given, str) else str(given)


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


def workers_for(threads: int | None) -> int:
    """How many threads to use: as told, or one for each core that this process may use."""
    if threads is not None:
        check_count("threads", threads, 1024)
        return int(threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_count(name: str, value: object, most: int) -> None:
    """Refuse what is not a whole number from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise InvalidValue(name, value, f"a whole number >= 1 (and <= {most})")


def check_folder(name: str, path: str | Path) -> None:
    """Refuse a file in a folder that is not there, before anything runs."""
    if not Path(path).absolute().parent.is_dir():
        raise InvalidValue(name, str(path), "a file in a folder that exists")


def check_seed(seed: object) -> None:
    """Refuse what is not a whole number >= 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidValue("seed", seed, "a whole number >= 0")


def _check_checkpoints(given: ArrayLike | None, horizon: int) -> tuple[int, ...]:
    if given is None:
        spaced = np.rint(np.geomspace(1, horizon, _CHECKPOINTS)).astype(np.int64)
        return tuple(np.unique(spaced).tolist())
    allowed = f"increasing whole numbers from 1 to the horizon, {horizon}, the last"
    try:
        rounds = np.asarray(given)
        whole = rounds.astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue("checkpoints", given, allowed) from None
    if rounds.ndim != 1 or not rounds.size or (whole != rounds).any() or (np.diff(whole) <= 0).any():
        raise InvalidValue("checkpoints", given, allowed)
    if whole[0] < 1 or whole[-1] != horizon:
        raise InvalidValue("checkpoints", given, allowed)
    return tuple(whole.tolist())


def versions() -> dict[str, str]:
    """What a result's bits depend on besides its settings."""
    import numba

    import maillard

    return {
        "maillard": maillard.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
