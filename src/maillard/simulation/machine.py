"""From a policy and a problem to something that runs trials."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import InvalidValue, MaillardError
from maillard.policies import Indexed, Perturbed, Policy, Sampled, Uniform, WithFloor
from maillard.policies.base.indexed_policy import Pooled
from maillard.policies.base.perturbed_policy import DiscretelyPerturbed
from maillard.policies.epsilon_greedy import EpsilonGreedy
from maillard.policies.targets import FixedArm, FixedDistribution
from maillard.problems import Custom, Problem, kinds
from maillard.simulation import compiling
from maillard.simulation.engines import direct, loop, recording
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DEVICES",
    "FORMULAS",
    "Plan",
    "Stopped",
    "check_plan",
    "forced_rounds",
    "generator",
    "inner_of",
    "number_of",
    "prepare",
    "record",
    "run_trials",
    "shape_of",
    "shares_of",
]

LAZY, DIRECT, PLAIN = "lazy", "direct", "plain"
CPU, CUDA = DEVICES = ("cpu", "cuda")


class Stopped(MaillardError):
    """Somebody asked a run to stop."""


@dataclass(frozen=True)
class Plan:
    """What a trial depends on, besides its number."""

    policy: Policy
    problem: Problem
    checkpoints: tuple[int, ...]
    seed: int
    engine: str | None = None  # the fastest that is exact for the policy, unless told
    device: str = CPU

    @property
    def horizon(self) -> int:
        """The last round."""
        return self.checkpoints[-1]


def generator(seed: int, policy: Policy, trial: int) -> np.random.Generator:
    """The random numbers of one trial."""
    return np.random.Generator(_bits(seed, number_of(policy), trial))


def _bits(seed: int, number: int, trial: int) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number, trial)))


def number_of(policy: Policy) -> int:
    """By which number a policy's random numbers differ from others'."""
    return zlib.crc32(str(policy).encode())


def check_plan(plan: Plan) -> None:
    """Refuse a policy that cannot run on the problem, before anything runs."""
    policy, problem = plan.policy, plan.problem
    low, high = policy.support
    if problem.support[0] < low or problem.support[1] > high:
        allowed = f"rewards from {low:g} to {high:g}" if high < math.inf else f"rewards >= {low:g}"
        have = f"{problem.support[0]:g} to {problem.support[1]:g}"
        raise InvalidValue(
            f"{policy.name} on the problem {str(problem)[:60]!r}", f"rewards from {have}", allowed
        )
    inner = inner_of(policy)
    if getattr(inner, "family", "") == "exponential" and not problem.positive:
        raise InvalidValue(f"{policy.name}: family", "exponential", "another, where rewards may be 0 or less")
    if inner.name == "giro" and not problem.binary:
        raise InvalidValue(f"giro on the problem {str(problem)[:60]!r}", "other rewards", "rewards 0 and 1")
    if (
        isinstance(policy, WithFloor)
        and isinstance(policy.epsilon, tuple)
        and len(policy.epsilon) != problem.arms
    ):
        raise InvalidValue(
            "WithFloor: epsilon", policy.epsilon, f"one number, or one for each of {problem.arms} arms"
        )
    if plan.device == CUDA:
        from maillard.simulation.cuda import machine as device

        device.check(plan)
    elif plan.engine is not None and plan.engine not in (engines := _engines(plan)):
        raise InvalidValue(f"engine of {policy.name} on this problem", plan.engine, " or ".join(engines))
    if isinstance(inner, FixedArm | FixedDistribution):
        inner.constant_probabilities(problem.arms)
        return
    # A formula that gives no number mostly does so at once.
    arms = min(problem.arms, 4)
    sums = (
        np.ones(arms)
        if problem.binary
        else 2.0 * np.clip(problem.true_means[:arms], 1e-3 if low == 0 else low, high)
    )
    inner.log_probabilities(Tally(np.full(arms, 2), sums))


def prepare(plan: Plan) -> None:
    """Compile what the plan needs, or find it compiled: seconds once on a machine, milliseconds afterwards."""
    if plan.device == CUDA:
        from maillard.simulation.cuda import machine as device

        device.prepare(plan)
    else:
        _machine(plan)


def inner_of(policy: Policy) -> Policy:
    """A policy without its floor."""
    return policy.policy if isinstance(policy, WithFloor) else policy


def shape_of(policy: Policy) -> str | None:  # noqa: PLR0911  # a case a line
    """Which engine's formulas a policy has; None if it goes its own way."""
    cls = type(policy)
    if cls._solve not in (Sampled._solve, Indexed._solve, Perturbed._solve, EpsilonGreedy._solve):
        return None
    base = next(
        base for base in (Sampled, Indexed, DiscretelyPerturbed, Perturbed) if isinstance(policy, base)
    )
    for name in ("choose", "probabilities", "log_probabilities", "distribution", "_weights", "_ties", "_win"):
        if getattr(cls, name, None) is not getattr(base, name, None):
            return None
    match policy:
        case DiscretelyPerturbed():
            return "binomial"
        case Perturbed():
            return "perturbed" if policy.noise.code >= 0 else None
        case Indexed() if policy.has_memory:
            return "remembering"
        case Pooled():
            return "pooled"
        case Indexed():
            return "indexed" if type(policy).indices is Indexed.indices else None
        case Sampled():
            return "sampled"
    return None


def _engines(plan: Plan) -> list[str]:
    """Which engines can run a plan, fastest first."""
    policy, problem = inner_of(plan.policy), plan.problem
    if isinstance(policy, FixedArm | FixedDistribution):
        return [DIRECT]
    shape = shape_of(policy)
    if shape is None:
        return [PLAIN]
    still = (problem.delay is None or problem.delay.at_once) and not problem.churn
    bounded = shape == "perturbed" or (shape in ("sampled", "indexed") and policy.monotone)
    return [LAZY] * (still and bounded) + [DIRECT, PLAIN]


# Per shape: the formulas whose addresses an engine gets, as (method, arguments, part of what it returns).
FORMULAS: dict[str, list[tuple[str, int, int]]] = {
    "sampled": [("leader", 2, -1), ("rival", 4, -1), ("estimate", 2, -1)],
    "indexed": [("index", 5, -1)],
    "pooled": [("pooled_index", 5, -1), ("pooling", 0, -1)],
    "remembering": [("index", 5, -1)],
    "perturbed": [("score", 2, 0), ("score", 2, 1)],
    "binomial": [*(("binomial", 3, part) for part in range(4)), ("rounds_up", 1, -1)],
}


def functions(kind: str, shape: str) -> tuple[Any, Any, Any]:
    """What an engine is made of: how it begins, chooses and learns."""
    if kind == DIRECT:
        return direct.ENGINES[shape]
    from maillard.simulation.engines import indexed, perturbed, sampled

    lazy = {"sampled": sampled.ENGINE, "indexed": indexed.ENGINE, "perturbed": perturbed.ENGINE}
    return lazy[shape]


@functools.cache
def _engine(kind: str, shape: str) -> Any:
    return loop.engine(*functions(kind, shape), moving=kind == DIRECT)


@dataclass(frozen=True, eq=False)
class _Machine:
    """What a plan needs at run time; the addresses are valid as long as `alive` is."""

    run: Any
    addresses: NDArray[np.int64]
    shares: NDArray[np.float64]
    fading: NDArray[np.float64]
    decay: float
    forced: int
    alive: tuple[Any, ...]


@functools.lru_cache(maxsize=4096)
def _machine(plan: Plan) -> _Machine:
    policy, arms = inner_of(plan.policy), plan.problem.arms
    kind = plan.engine or _engines(plan)[0]
    if kind == PLAIN:  # whose choice has the shares in it
        run, nothing = _plain(plan.policy), np.zeros(0)
        return _Machine(run, np.zeros(1, np.int64), nothing, nothing, 0.0, forced_rounds(policy, arms), ())
    shape, made = formulas(plan.policy, arms)
    return dataclasses.replace(made, run=_engine(kind, shape))


def formulas(policy: Policy, arms: int) -> tuple[str, _Machine]:
    """A policy's shape, and what a loop around the functions of an engine for that shape needs: all but the loop."""
    inner = inner_of(policy)
    shares, fading, decay = shares_of(policy, arms)
    ends, forced = np.cumsum(shares), forced_rounds(inner, arms)
    if isinstance(inner, FixedArm | FixedDistribution):
        inner, ends[-1] = Uniform(), 1.0
    shape = shape_of(inner)
    assert shape is not None
    parameters = compiling.parameters_of(inner)
    pairs = [compiling.address_of(inner, *formula) for formula in FORMULAS[shape]]
    addresses = [address for address, _ in pairs]
    if isinstance(inner, Sampled) and inner.compares_means:
        addresses[2] = 0  # the empirical mean, which an engine computes by itself
    if isinstance(inner, Perturbed) and shape == "perturbed":
        addresses += [inner.noise.code, int(inner.has_prior)]
    if isinstance(inner, Indexed):
        addresses += [int(inner.uses_best), int(inner.uses_round)]
    table = np.array([parameters.ctypes.data, *addresses], np.int64)
    alive = (parameters, *(each for _, each in pairs))
    return shape, _Machine(None, table, ends, np.cumsum(fading), decay, forced, alive)


def shares_of(policy: Policy, arms: int) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """What is mixed into a policy's formulas: constant shares, those that are mixed in over them and fade, and their decay."""
    fading, decay, rest = np.zeros(0), 0.0, policy
    if isinstance(policy, WithFloor) and policy.decay:
        fading, decay, rest = policy.floor_probabilities(arms), policy.decay, policy.policy
    constant = rest.constant_probabilities(arms)
    return np.zeros(0) if constant is None else constant, fading, decay


def forced_rounds(policy: Policy, arms: int) -> int:
    """How many rounds pull one arm after the other: none for a policy that needs no rewards to begin."""
    ready = isinstance(policy, FixedArm | FixedDistribution) or getattr(policy, "has_prior", False)
    return 0 if ready else arms


def _plain(policy: Policy) -> Any:
    """The same loop, uncompiled, around `policy.choose`: for policies that are more than formulas."""

    def choose(_f: Any, w: Any, _arms: int, t: int, rng: np.random.Generator) -> int:
        return policy.choose(Tally(w[direct.N].astype(np.int64), w[direct.S]), rng, round=t)

    return loop.build(direct.begin, choose, direct.learn, moving=True, fingerprint=1)


class _Sampler:
    """A user's sampler as compiled code calls it, with the random numbers of the trial."""

    def __init__(self, problem: Problem) -> None:
        self.rng: Any = None
        self.error: BaseException | None = None
        if not isinstance(problem, Custom):
            self.address = 0
            return
        low, high = problem.limits

        def sample(_: int, arm: float, *_rest: float) -> float:
            try:
                reward = float(problem.sampler(self.rng, int(arm)))
                if not low <= reward <= high or not math.isfinite(reward):
                    allowed = f"a finite number from {low:g} to {high:g}"
                    raise InvalidValue(  # noqa: TRY301  # caught with what the sampler itself raises
                        f"sampler's reward for arm {int(arm)}", reward, allowed
                    )
            except BaseException as error:  # noqa: BLE001  # it cannot pass through compiled code: raised afterwards
                self.error = self.error or error
                return math.nan
            return reward

        self._callback = compiling.C_FORMULA(sample)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0


@dataclass
class Trials:
    """What a run of several trials gives."""

    regret: NDArray[np.float64]  # trial x checkpoint
    pulls: NDArray[np.int64]  # trial x arm
    tally: Tally  # what the last trial had observed
    drawn: NDArray[np.int64]  # how often each arm was drawn from that state


def run_trials(
    plan: Plan, first: int, count: int, *, stop: NDArray[np.int64] | None = None, draws: int = 0
) -> Trials:
    """Run the trials `first`, ..., `first + count - 1`; then draw from the last one's final state."""
    machine, problem = _machine(plan), plan.problem
    law, arms = problem.law(), problem.arms
    checkpoints = np.array(plan.checkpoints, np.int64)
    regret, pulls = np.zeros((count, checkpoints.size)), np.zeros((count, arms), np.int64)
    observed_pulls, observed_sums = np.zeros(arms), np.zeros(arms)
    drawn = np.zeros(arms, np.int64)
    goal = np.zeros(0) if problem.threshold is None else np.array([problem.threshold, problem.epsilon])
    churn, truth = np.array(problem.churn, np.float64), problem.true_means.copy()
    stop = np.zeros(1, np.int64) if stop is None else stop
    sampler = _Sampler(problem)
    number, bits = number_of(plan.policy), [np.random.PCG64(0) for _ in range(loop.TOGETHER)]
    rngs = tuple(np.random.Generator(each) for each in bits)
    sampler.rng = rngs[0]  # a user's sampler has its trials one by one
    together = 1 if sampler.address else loop.TOGETHER
    for start in range(0, count, together):
        block = slice(start, min(start + together, count))
        for place, trial in enumerate(range(block.start, block.stop)):
            # Generators in other states: new ones would take compiled code as long to read as they take to make.
            bits[place].state = _bits(plan.seed, number, first + trial).state
        status = machine.run(
            machine.addresses, law.kind, sampler.address, law.first, law.second, law.values, law.ends, truth,
            *_delay_of(problem), churn, machine.shares, machine.fading, machine.decay, machine.forced, goal, checkpoints,
            regret[block], pulls[block], observed_pulls, observed_sums, drawn, draws if block.stop == count else 0, stop, block.stop - start, rngs,
        )  # fmt: skip
        if sampler.error:
            raise sampler.error
        if status == loop.STOPPED:
            raise Stopped("stopped")
        if status:
            _explain(plan, machine, status, int(drawn[0]), observed_pulls, observed_sums)
    return Trials(regret, pulls, Tally(observed_pulls.astype(np.int64), observed_sums), drawn)


def record(plan: Plan, trial: int, *, every_arm: bool) -> tuple[Any, ...]:
    """Arms, rewards, log probabilities of the chosen and (or None) of every arm, and how many rounds were forced."""
    machine, problem, horizon = _recorder(plan), plan.problem, plan.horizon
    law, arms = problem.law(), problem.arms
    chosen, rewards, logs = np.zeros(horizon, np.int64), np.zeros(horizon), np.zeros(horizon)
    all_logs = np.zeros((horizon, arms) if every_arm else (0, 0))
    n, s = np.zeros(arms), np.zeros(arms)
    sampler = _Sampler(problem)
    sampler.rng = generator(plan.seed, plan.policy, trial)
    status = machine.run(
        machine.addresses, law.kind, sampler.address, law.first, law.second, law.values, law.ends, problem.true_means.copy(),
        *_delay_of(problem), np.array(problem.churn, np.float64), machine.shares, machine.fading, machine.decay, machine.forced,
        chosen, rewards, logs, all_logs, n, s, np.zeros(1, np.int64), sampler.rng,
    )  # fmt: skip
    if sampler.error:
        raise sampler.error
    if status:
        _explain(plan, machine, status, int(chosen[0]), n, s)
    return chosen, rewards, logs, all_logs if every_arm else None, min(machine.forced, horizon)


@functools.cache
def _compiled_recorder(shape: str) -> Any:
    return recording.recorder(direct.LAWS[shape], direct.ENGINES[shape][2])


@functools.lru_cache(maxsize=64)
def _recorder(plan: Plan) -> _Machine:
    """What records a plan: compiled where a policy's law is, else around `policy.log_probabilities`."""
    policy, arms = inner_of(plan.policy), plan.problem.arms
    shares, fading, _ = shares_of(plan.policy, arms)
    if isinstance(policy, FixedArm | FixedDistribution):
        policy = Uniform()
    shape = shape_of(policy)
    if shape in direct.LAWS:
        base = _machine(dataclasses.replace(plan, engine=DIRECT))
        return dataclasses.replace(base, run=_compiled_recorder(shape), shares=shares, fading=fading)

    def law(_f: Any, w: Any, _arms: int, t: int) -> int:
        w[direct.LOG] = plan.policy.log_probabilities(
            Tally(w[direct.N].astype(np.int64), w[direct.S]), round=t
        )
        w[direct.CHANCE] = np.exp(w[direct.LOG])
        return 0

    run = recording.build(law, direct.learn, 1)
    # The law has the shares in it.
    return _Machine(
        run, np.zeros(1, np.int64), np.zeros(0), np.zeros(0), 0.0, forced_rounds(policy, arms), ()
    )


def _delay_of(problem: Problem) -> tuple[int, float]:
    delay = problem.delay
    return (kinds.AT_ONCE, 0.0) if delay is None or delay.at_once else (delay.kind, float(delay.rounds))


def _explain(plan: Plan, machine: _Machine, t: int, arm: int, n: Any, s: Any) -> None:
    """Say what an engine met in a round that it could not go on from."""
    where = f"{plan.policy.name}: arm {arm} in round {t}, after {n[arm]:g} pulls with sum {s[arm]:g}"
    for each in machine.alive:
        error = getattr(each, "error", None)
        if isinstance(error, Exception):
            raise InvalidValue(where, repr(error), "a formula that gives a number") from error
        if error is not None:
            raise error
    inner_of(plan.policy).log_probabilities(Tally(n.astype(np.int64), s))  # says which number is bad
    if (plan.engine or _engines(plan)[0]) == LAZY:
        raise InvalidValue(f"{where}: monotone", True, "False: the formula does not keep what that declares")
    raise InvalidValue(where, math.nan, "a formula that gives a number")
