"""Plans compiled for the CPU: the loop of an engine, and the addresses of the policy's compiled formulas.

There are three engines. *Lazy* is exact and evaluates only the arms that matter in a round. *Direct*
evaluates every arm in every round. *Plain* runs the same loop in Python around `policy.choose`, for policies
that are more than formulas. The simulation, the recorder of logs and the replay of logs each compile their
own loop around the engines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies import Uniform
from maillard.simulation import compiling
from maillard.simulation.engines import direct_engines, lazy_indexed, lazy_perturbed, lazy_sampled
from maillard.simulation.policy_formulas import (
    FORMULAS,
    engine_flags,
    engine_shape,
    forced_rounds,
    mixed_in,
    uses_empirical_mean,
    without_floor,
)
from maillard.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from maillard.policies import Policy
    from maillard.simulation.plans import Plan

LAZY, DIRECT, PLAIN = "lazy", "direct", "plain"
_LAZY_ENGINES = {
    "sampled": lazy_sampled.ENGINE,
    "indexed": lazy_indexed.ENGINE,
    "perturbed": lazy_perturbed.ENGINE,
}


@dataclass(frozen=True, eq=False)
class CompiledPlan:
    """A loop and the arguments that it takes from the policy."""

    run: Any
    addresses: NDArray[np.int64]  # of the parameters and the formulas; valid while `keep_alive` lives
    constant: NDArray[np.float64]  # probabilities mixed into the formulas' distribution
    decaying: NDArray[np.float64]  # probabilities mixed in over those, times t^-decay
    decay: float
    forced: int  # initial rounds that pull the arms in order
    keep_alive: tuple[Any, ...]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The policy's arguments of every loop, after the addresses."""
        return self.constant, self.decaying, self.decay, self.forced


def engines_for(plan: Plan) -> list[str]:
    """Return the engines that can run a plan, fastest first."""
    policy, problem = without_floor(plan.policy), plan.problem
    shape = engine_shape(policy)
    if shape is None:
        return [PLAIN]
    if shape == "constant":
        return [DIRECT]
    stationary = not problem.is_delayed and not problem.churn
    has_bounds = shape == "perturbed" or (shape in _LAZY_ENGINES and policy.monotone)
    return [LAZY] * (stationary and has_bounds) + [DIRECT, PLAIN]


def compile_plan(plan: Plan, make_loop: Callable[[str, str], Any], build: Callable[..., Any]) -> CompiledPlan:
    """Return the plan with its loop.

    `make_loop(engine, shape)` returns a compiled loop. `build(begin, choose, update)` returns the same loop
    in Python, for the plain engine.
    """
    engine = plan.engine or engines_for(plan)[0]
    if engine == PLAIN:

        def choose(_f: Any, w: Any, _arms: int, t: int, rng: np.random.Generator) -> int:
            return plan.policy.choose(_tally(w), rng, round=t)

        return plain_plan(plan, build(direct_engines.begin, choose, direct_engines.update))
    shape, fields = compile_formulas(plan.policy, plan.problem.arms)
    cumulative = {name: np.cumsum(fields[name]) for name in ("constant", "decaying")}
    if shape == "constant":
        cumulative["constant"][-1] = 1.0
    return CompiledPlan(run=make_loop(engine, shape), **{**fields, **cumulative})


def plain_plan(plan: Plan, run: Any) -> CompiledPlan:
    """Return a plan whose loop calls the policy, which mixes in all probabilities itself."""
    nothing, forced = np.zeros(0), forced_rounds(without_floor(plan.policy), plan.problem.arms)
    return CompiledPlan(run, np.zeros(1, np.int64), nothing, nothing, 0.0, forced, ())


def compile_formulas(policy: Policy, arms: int) -> tuple[str, dict[str, Any]]:
    """Return the engine shape of a policy, and the fields of `CompiledPlan` except for the loop."""
    inner = without_floor(policy)
    shape = engine_shape(inner)
    assert shape is not None
    mixed, forced = mixed_in(policy, arms), forced_rounds(inner, arms)
    if shape == "constant":
        inner = Uniform()  # it is never asked: the constant probabilities add up to 1
    formulas = FORMULAS[engine_shape(inner) or ""]
    parameters = compiling.parameters_of(inner)
    pairs = [compiling.address_of(inner, *formula) for formula in formulas]
    addresses = [address for address, _ in pairs]
    if uses_empirical_mean(inner):
        addresses[2] = 0
    table = np.array([parameters.ctypes.data, *addresses, *engine_flags(inner)], np.int64)
    fields = {"addresses": table, "forced": forced, "keep_alive": (parameters, *(each for _, each in pairs))}
    return shape, fields | mixed._asdict()


def engine_functions(engine: str, shape: str) -> tuple[Any, Any, Any]:
    """Return the functions `begin`, `choose` and `update` of an engine."""
    if engine == LAZY:
        return _LAZY_ENGINES[shape]
    return direct_engines.ENGINES["sampled" if shape == "constant" else shape]


def _tally(w: Any) -> Tally:
    return Tally(w[direct_engines.N].astype(np.int64), w[direct_engines.S])


def raise_failure(plan: Plan, compiled: CompiledPlan, t: int, arm: int, n: Any, s: Any) -> NoReturn:
    """Raise the error that explains why an engine could not go on in round t."""
    where = f"{plan.policy.name}: arm {arm} in round {t}, after {n[arm]:g} pulls with sum {s[arm]:g}"
    for each in compiled.keep_alive:
        error = getattr(each, "error", None)
        if isinstance(error, Exception):
            raise InvalidValue(where, repr(error), "a formula that returns a number") from error
        if error is not None:
            raise error
    without_floor(plan.policy).log_probabilities(Tally(n.astype(np.int64), s))  # raises for an invalid number
    if (plan.engine or engines_for(plan)[0]) == LAZY:
        raise InvalidValue(f"{where}: monotone", True, "False: the formula violates what monotone declares")
    raise InvalidValue(where, math.nan, "a formula that returns a number")
