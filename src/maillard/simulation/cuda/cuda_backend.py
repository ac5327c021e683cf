"""The CUDA backend: one kernel per policy, launched for batches of trials that fit into device memory."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core.errors import NumbaError

from maillard.errors import InvalidValue
from maillard.policies import Indexed, Perturbed, Policy
from maillard.policies.numerics import score_distributions
from maillard.problems import Problem, codes
from maillard.simulation import compiling, numba_errors
from maillard.simulation import policy_formulas as formulas
from maillard.simulation.backends import CUDA, Stopped, TrialBatch
from maillard.simulation.compiled_plans import DIRECT, LAZY
from maillard.simulation.compiling import call
from maillard.simulation.cuda import lockstep_kernel, reductions, simulated_warp, trial_kernel, warps
from maillard.simulation.cuda.cuda_toolkit import cuda, jit, require_device, simulated
from maillard.simulation.cuda.device_functions import DEVICE_CODE, DeviceFunctions
from maillard.simulation.cuda.engines import direct_engines, lazy_indexed, lazy_perturbed, lazy_sampled
from maillard.simulation.cuda.engines.trial_memory import N, S, block_shift, memory_size, record_at
from maillard.simulation.cuda.index_tables import IndexTables, tabulate
from maillard.simulation.cuda.kernel_cache import cache_on_disk
from maillard.simulation.random_streams import policy_key
from maillard.simulation.summary import BINS, PartialSummary
from maillard.tally import Tally

if TYPE_CHECKING:
    from maillard.simulation.plans import Plan

SERIAL = True

# A warp does rare work when this many of its threads wait for it: choosing an arm, and rebuilding all bounds.
# In between, its threads run this many pairs of rounds; 0 makes every launch stop exactly at its last round.
# Measured on an H200: from 6 to 12 threads and from 1 to 4 pairs, the cost of a round varies by less than
# 10%.
MIN_WAITING_THREADS, MIN_REBUILDING_THREADS, ROUND_PAIRS = 8, 8, 2
THREADS_PER_BLOCK = 128
# In a batch: eight times as many as run at once, because the GPU is idle in part when the last trials end.
THREADS_PER_PROCESSOR = 6144
MAX_REGISTERS = 80  # per thread: with more, too few threads run at once to hide latency
MAX_ARMS = 100_000
LAUNCH_SECONDS = 0.2  # target duration of a launch; `stop` is checked between launches


def check(plan: Plan) -> None:
    """Raise `NoDevice` without a GPU, and `InvalidValue` for a plan without an engine on it."""
    require_device()
    policy, problem = formulas.without_floor(plan.policy), plan.problem
    engines = _engines(policy)
    if plan.engine is not None and plan.engine not in engines:
        where = f"engine of {policy.name} on device 'cuda'"
        raise InvalidValue(where, plan.engine, " or ".join(engines) or "device='cpu'")
    if not engines:
        allowed = "sampled, indexed and Gaussian-perturbed policies; others run with device='cpu'"
        raise InvalidValue("policy on device 'cuda'", str(plan.policy), allowed)
    sampled = problem.reward_distribution().code in (codes.GAUSSIAN, codes.BERNOULLI)
    if not sampled or problem.is_delayed or problem.churn or problem.threshold is not None:
        allowed = "Gaussian and Bernoulli rewards, observed at once, and regret; others run with device='cpu'"
        raise InvalidValue("problem on device 'cuda'", str(problem)[:60], allowed)
    if problem.arms > MAX_ARMS:
        raise InvalidValue("arms on device 'cuda'", problem.arms, f"at most {MAX_ARMS}")


def _engines(policy: Policy) -> list[str]:
    """Return the engines of a policy on a GPU, fastest first."""
    shape = formulas.engine_shape(policy)
    if shape == "perturbed" and isinstance(policy, Perturbed):
        return [LAZY] if policy.noise is score_distributions.GAUSSIAN else []
    if shape == "sampled":
        return [LAZY] * policy.monotone + [DIRECT]
    if shape == "indexed" and isinstance(policy, Indexed):
        return [LAZY] * (policy.monotone and not policy.uses_best) + [DIRECT]
    return []


_ENGINES: dict[tuple[str, str], Any] = {
    ("sampled", LAZY): lazy_sampled.ENGINE,
    ("indexed", LAZY): lazy_indexed.ENGINE,
    ("perturbed", LAZY): lazy_perturbed.ENGINE,
    ("sampled", DIRECT): direct_engines.SAMPLED,
    ("indexed", DIRECT): direct_engines.INDEXED,
}


def _dispatch_by_number(first: Any, second: Any, third: Any) -> Any:
    """Return the function by which engines call formulas: by number instead of by address."""

    def called(place, parameters, a, b, c, d, e):  # type: ignore[no-untyped-def]
        if place == 1:
            return first(parameters, a, b, c, d, e)
        if place == 2:
            return second(parameters, a, b, c, d, e)
        return third(parameters, a, b, c, d, e)

    return called


# Replacements in the CUDA simulator. There, one thread of the first kernel is a whole warp.
_SIMULATOR_FUNCTIONS: dict[Any, Any] = {
    trial_kernel.count_in_warp: lambda yes: warps.WARP_SIZE if yes else 0,
    **{
        getattr(warps, name): getattr(simulated_warp, name)
        for name in ("sync_warp", "lowest_place", "exchange", "read_thread", "any_thread", "threads_with")
    },
}


def source(policy: Policy, engine: str, has_constant: bool, has_decaying: bool, runs: Any = None) -> Any:
    """Return the kernel of a policy, not yet compiled. `runs`: see `runs_of`."""
    shape = formulas.engine_shape(policy)
    assert shape is not None
    twins = _device_functions(policy)
    mixed = has_constant, has_decaying
    return twins.copy(
        trial_kernel.build(_ENGINES[shape, engine], runs, _flags(policy), shape == "perturbed", *mixed)
    )


def lockstep_source(policy: Policy, lanes: int, slots: int, block: int) -> Any:
    """Return the kernel of a policy with a separable index, not yet compiled. See `lockstep_kernel.build`."""
    made = _device_functions(policy).copy(lockstep_kernel.build(lanes, slots, block, _flags(policy)))
    made.__qualname__ = "lockstep"
    return made


def _device_functions(policy: Policy) -> DeviceFunctions:
    """Return the copies of functions for a kernel that calls the policy's formulas."""
    shape = formulas.engine_shape(policy)
    assert shape is not None
    places = [compiling.adapt_formula(policy, *formula, 1) for formula in formulas.FORMULAS[shape]]
    places += places[-1:] * (3 - len(places))
    stands_for = _SIMULATOR_FUNCTIONS if simulated() else {}
    return DeviceFunctions({**stands_for, call: _dispatch_by_number(*places)})


def _flags(policy: Policy) -> tuple[int, ...]:
    """Return what an engine reads after the parameters: the numbers of its formulas, and what they use."""
    calls = [1, 2, 3][: len(formulas.FORMULAS[formulas.engine_shape(policy) or ""])]
    if formulas.uses_empirical_mean(policy):
        calls[2] = 0
    return (*calls, *formulas.engine_flags(policy))


def runs_of(plan: Plan, engine: str) -> Any:
    """Return the functions with which an engine simulates many rounds at once, or None if it cannot here."""
    policy = formulas.without_floor(plan.policy)
    code, _, deviations, *_ = plan.problem.reward_distribution()
    normal_rewards = code == codes.GAUSSIAN and (deviations > 0).all()
    sampled = formulas.engine_shape(policy) == "sampled" and formulas.uses_empirical_mean(policy)
    decaying = formulas.mixed_in(plan.policy, plan.problem.arms).decaying.size
    return lazy_sampled.RUNS if engine == LAZY and normal_rewards and sampled and not decaying else None


def tables_of(plan: Plan, horizon: int) -> IndexTables | None:
    """Return the tables with which all trials run in lockstep, or None if they cannot."""
    policy, arms = plan.policy, plan.problem.arms
    mixed = formulas.mixed_in(policy, arms)
    if not isinstance(policy, Indexed) or not formulas.is_separable(policy) or mixed.constant.size:
        return None
    if plan.engine == DIRECT or not arms <= lockstep_kernel.MAX_ARMS or policy.has_prior:
        return None
    return tabulate(policy, arms, horizon)


_KERNELS: dict[Any, Any] = {}


def _lockstep_kernel_of(plan: Plan) -> Any:
    shape = lockstep_kernel.shape_of(plan.problem.arms)
    block = shape[0] if simulated() else lockstep_kernel.THREADS_PER_BLOCK
    key = type(plan.policy), tuple(compiling.others_of(plan.policy).items()), (*shape, block)
    if key not in _KERNELS:
        made = lockstep_source(plan.policy, *shape, block)
        options = {"max_registers": lockstep_kernel.MAX_REGISTERS}
        _KERNELS[key] = _compile_later(plan.policy, made, (lockstep_kernel.build,), (shape, block), options)
    return _KERNELS[key]


def _compile_later(policy: Policy, made: Any, parts: tuple[Any, ...], choices: Any, options: Any) -> Any:
    """Return a kernel that is compiled at its first launch; those of built-in policies are kept on disk."""
    kernel, shape = jit(made, **options), formulas.engine_shape(policy) or ""
    methods = tuple(getattr(type(policy), name) for name, _, _ in formulas.FORMULAS[shape])
    if compiling.is_built_in(methods) and not simulated():
        made.__qualname__ = f"{type(policy).__qualname__}-{made.__qualname__}"  # the name of the file
        which = tuple(compiling.others_of(policy).items()), _flags(policy), choices, options
        cache_on_disk(kernel, f"{compiling.fingerprint_of(*parts, methods, *DEVICE_CODE)} {which}")
    return kernel


def _kernel_of(plan: Plan) -> Any:
    policy = formulas.without_floor(plan.policy)
    constant, decaying, _ = formulas.mixed_in(plan.policy, plan.problem.arms)
    engine = plan.engine or _engines(policy)[0]
    runs = runs_of(plan, engine)
    how = (engine, bool(constant.size), bool(decaying.size), runs)
    key = (type(policy), tuple(compiling.others_of(policy).items()), how)
    if key not in _KERNELS:
        made, shape = source(policy, *how), formulas.engine_shape(policy) or ""
        made.__qualname__ = engine
        parts = trial_kernel.build, _ENGINES[shape, engine], runs
        choices = *how[:-1], runs is not None
        _KERNELS[key] = _compile_later(policy, made, parts, choices, {"max_registers": MAX_REGISTERS})
    return _KERNELS[key]


def kernel_of(plan: Plan) -> Any:
    """Return the kernel that runs a plan, compiled at its first launch."""
    return (_lockstep_kernel_of if tables_of(plan, plan.horizon) else _kernel_of)(plan)


@functools.cache
def _reducer(function: Any) -> Any:
    return jit(DeviceFunctions().copy(function))


def gpu_name() -> str:
    """Return the name of the GPU."""
    name = "numba's simulator of a GPU" if simulated() else cuda().get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


def device_name() -> str:
    """Return the name of the device for provenance."""
    return f"{CUDA} ({gpu_name()})"


def batch_size(plan: Plan, _trials: int = 0, _workers: int = 1) -> int:
    """Return how many trials run at once: enough to keep the GPU busy, in half of its free memory."""
    if simulated():
        return 64
    device, (free, _) = cuda().get_current_device(), cuda().current_context().get_memory_info()
    arms = plan.problem.arms
    numbers = memory_size(arms) + arms + len(plan.checkpoints) + trial_kernel.SAVED_NUMBERS + 4  # of a trial
    fits = int(free / 2) // (8 * numbers) // THREADS_PER_BLOCK * THREADS_PER_BLOCK
    if fits < THREADS_PER_BLOCK:
        allowed = f"fewer: {free >> 20} MiB of its memory are free"
        raise InvalidValue("arms on device 'cuda'", arms, allowed)
    return min(fits, device.MULTIPROCESSOR_COUNT * THREADS_PER_PROCESSOR)


def prepare(plan: Plan) -> None:
    """Compile the plan's kernel: seconds, once per process."""
    if simulated():
        return
    try:
        run(plan, 0, 1, summarize=True, horizon=1)
    except (NumbaError, AttributeError, NotImplementedError, TypeError) as error:
        allowed = "formulas that numba-cuda compiles; others run with device='cpu'"
        where = f"{plan.policy.name} on device 'cuda'"
        raise InvalidValue(where, numba_errors.reason_of(error), allowed) from error


def run(
    plan: Plan, first: int, count: int, *, summarize: bool, stop: Any = None, horizon: int | None = None
) -> TrialBatch | PartialSummary:
    """Run the trials `first`, ..., `first + count - 1`, with another horizon than the plan's if given."""
    device, problem, policy = cuda(), plan.problem, formulas.without_floor(plan.policy)
    checkpoints = np.array(plan.checkpoints if horizon is None else [horizon], np.int64)
    tables = tables_of(plan, int(checkpoints[-1]))
    lanes = lockstep_kernel.shape_of(problem.arms)[0] if tables else 1
    block = lanes if simulated() else THREADS_PER_BLOCK
    rows = -(-count * lanes // block) * block // lanes
    # Threads sweep over indices in step: what they read at once is adjacent in memory.
    order = "F" if formulas.engine_shape(policy) == "indexed" else "C"
    memory = device.device_array((rows, memory_size(problem.arms)), order=order)
    regret = device.device_array((checkpoints.size, rows))
    failures = device.to_device(np.zeros(rows, np.int64))
    code, *means = _problem_arrays(problem)
    if tables:
        compiled, saved = _lockstep_kernel_of(plan), lockstep_kernel.SAVED_NUMBERS
        rest = *map(device.to_device, tables), *lockstep_kernel.center_and_slack(problem)
        work = 1.0
    else:
        compiled, saved = _kernel_of(plan), trial_kernel.SAVED_NUMBERS
        waiting = MIN_WAITING_THREADS, MIN_REBUILDING_THREADS, ROUND_PAIRS
        rest = *_mixed_in_arrays(plan), block_shift(problem.arms), *waiting
        # Evaluations of a round, per arm.
        work = 1.0 + (8.0 if (plan.engine or _engines(policy)[0]) == DIRECT else 0.1) * problem.arms
    arguments = (
        memory,
        device.device_array((rows * lanes, saved)),
        device.device_array((2, rows * lanes), np.uint64),
        device.to_device(_key(plan)),
        first,
        device.to_device(compiling.parameters_of(policy)),
        code,
        *means,
        formulas.forced_rounds(policy, problem.arms),
    )
    rest = (device.to_device(checkpoints), regret, failures, *rest)
    since, last = 1, int(checkpoints[-1])
    ahead = _first_launch_rounds(int(rows * lanes * work), last)
    while since <= last:
        if stop is not None and stop[0]:
            raise Stopped("stopped")
        started, until = time.perf_counter(), min(since + ahead - 1, last)
        _launch(compiled, rows * lanes // block, block, *arguments, since, until, *rest)
        device.synchronize()
        took = time.perf_counter() - started
        ahead = int(ahead * min(max(LAUNCH_SECONDS / max(took, 1e-3), 0.25), 4.0)) + 1
        since = until + 1
    _raise_failure(plan, first, count, memory, failures)
    collect = _summarize if summarize else _collect
    return collect(memory, regret, count, problem.arms)


_LAUNCH_LOCK = threading.Lock()


def _launch(compiled: Any, blocks: int, threads: int, *arguments: Any) -> None:
    """Launch a kernel without numba's warnings about small grids and the simulator's about overflow."""
    # Warning filters are global: concurrent changes would leave the wrong ones behind.
    with _LAUNCH_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        configured = compiled[blocks, threads]
        if simulated():
            configured(*arguments)
            return
    configured(*arguments)


def _first_launch_rounds(work: int, last: int) -> int:
    """Return the rounds of the first launch: few enough for any device; all in the simulator.

    `work`: the evaluations of all threads in one round.
    """
    return last if simulated() else max(1, 8_000_000_000 // work)


def _key(plan: Plan) -> Any:
    """Return the 128-bit key of the plan's random streams."""
    seeds = np.random.SeedSequence(plan.seed, spawn_key=(policy_key(plan.policy),))
    return seeds.generate_state(2, np.uint64)


def _problem_arrays(problem: Problem) -> tuple[Any, ...]:
    code, first, second, *_ = problem.reward_distribution()
    return int(code), *(cuda().to_device(each) for each in (first, second, problem.gaps))


def _mixed_in_arrays(plan: Plan) -> tuple[Any, Any, float]:
    """Return the cumulative mixed-in probabilities; an unused number in place of an empty array."""
    *probabilities, decay = formulas.mixed_in(plan.policy, plan.problem.arms)
    ends = (np.cumsum(each) if each.size else np.zeros(1) for each in probabilities)
    constant, decaying = (cuda().to_device(each) for each in ends)
    return constant, decaying, float(decay)


def _collect(memory: Any, regret: Any, count: int, arms: int) -> TrialBatch:
    pulls = cuda().device_array((count, arms), np.int64)
    block = 1 if simulated() else THREADS_PER_BLOCK
    _launch(_reducer(reductions.list_pulls), -(-count // block), block, memory, count, pulls)
    return TrialBatch(np.ascontiguousarray(regret.copy_to_host()[:, :count].T), pulls.copy_to_host())


def _summarize(memory: Any, regret: Any, count: int, arms: int) -> PartialSummary:
    places, threads = regret.shape[0], 2 if simulated() else reductions.THREADS
    mean, square, most = (cuda().device_array(places) for _ in range(3))
    histogram = cuda().to_device(np.zeros((places, BINS), np.int64))
    pulls = cuda().device_array(arms)
    curves = mean, square, most, histogram
    _launch(_reducer(reductions.reduce_curves), places, threads, regret, count, *curves)
    _launch(_reducer(reductions.count_pulls), arms, threads, memory, count, pulls)
    found = [each.copy_to_host() for each in (*curves, pulls)]
    found.append(regret[places - 1].copy_to_host()[:count])  # the rest stays on the device
    return PartialSummary(count, *found)


def _raise_failure(plan: Plan, first: int, count: int, memory: Any, failures: Any) -> None:
    """Raise the error that explains why a trial could not continue."""
    rounds = failures.copy_to_host()[:count]
    if not rounds.any():
        return
    trial = int(np.argmax(rounds > 0))
    w = memory.copy_to_host()[trial]
    places = np.array([record_at(arm) for arm in range(plan.problem.arms)])
    tally = Tally(w[places + N].astype(np.int64), w[places + S])
    formulas.without_floor(plan.policy).log_probabilities(tally)  # says which number is bad
    where = f"{plan.policy.name}: trial {first + trial}, round {rounds[trial]}"
    allowed = "a formula that gives a number, and keeps what `monotone` declares"
    raise InvalidValue(where, "no number, or a weight above its bound", allowed)
