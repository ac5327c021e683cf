"""Plans compiled for the CPU: the loop of an engine, and the addresses of the policy's compiled formulas.

There are six engines. *Lazy* is exact and evaluates only the arms that matter in a round. *Shortlist* does
so, too, and is faster, for an index of a declared form. *Dense* and *leveled* compare the scores of all
arms in vectors while many of them may win: Gaussian scores, or the levels of Beta scores. *Direct*
evaluates every arm in every round. *Plain* runs the same loop in Python around `policy.choose`, for
policies that are more than formulas. The simulation, the recorder of logs and the replay of logs each
compile their own loop around the engines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies import Uniform
from maillard.policies.numerics.score_distributions import BETA, GAUSSIAN
from maillard.problems import ContextualProblem
from maillard.simulation import compiling
from maillard.simulation import policy_formulas as formulas
from maillard.simulation.engines import (
    dense_perturbed,
    direct_engines,
    lazy_indexed,
    lazy_perturbed,
    lazy_sampled,
    leveled_perturbed,
    shortlist,
    trial_loop,
)
from maillard.simulation.linear_shapes import compiled_shape
from maillard.tally import Tally

if TYPE_CHECKING:
    from maillard.policies import Policy
    from maillard.simulation.plans import Plan

SHORTLIST, DENSE, LEVELED = "shortlist", "dense", "leveled"
LAZY, DIRECT, PLAIN = "lazy", "direct", "plain"
# With more arms, these engines are hardly faster than the lazy one.
MOST_ARMS = {DENSE: 256, LEVELED: 512}
# The functions `begin`, `choose` and `update` of each engine, by shape.
_ENGINES: dict[str, dict[str, tuple[Any, Any, Any]]] = {
    SHORTLIST: {"indexed": shortlist.ENGINE},
    DENSE: {"perturbed": dense_perturbed.ENGINE},
    LEVELED: {"perturbed": leveled_perturbed.ENGINE},
    LAZY: {
        "sampled": lazy_sampled.ENGINE,
        "indexed": lazy_indexed.ENGINE,
        "perturbed": lazy_perturbed.ENGINE,
    },
    DIRECT: direct_engines.ENGINES,
}


class CompiledPlan(NamedTuple):
    """A loop and the arguments that it takes from the policy."""

    run: Any
    arguments: tuple[Any, ...]
    "The addresses of the parameters and formulas, the probabilities mixed in, and the forced rounds."
    keep_alive: tuple[Any, ...]
    "What must live as long as the addresses are used."
    in_python: bool = False
    "Whether the loop runs in Python."
    has_runs: bool = False
    "Whether the loop simulates many rounds at once."


def engines_for(plan: Plan) -> list[str]:
    """Return the engines that can run a plan, fastest first."""
    policy, problem = formulas.without_floor(plan.policy), plan.problem
    if isinstance(problem, ContextualProblem):
        return [DIRECT] * (compiled_shape(plan.policy, problem) is not None) + [PLAIN]
    shape = formulas.engine_shape(policy)
    if shape is None:
        return [PLAIN]
    if shape == "constant":
        return [DIRECT]
    stationary = not problem.is_delayed and not problem.churn
    has_bounds = shape == "perturbed" or (shape in _ENGINES[LAZY] and policy.monotone)
    has_form = formulas.index_form(policy) is not None
    engines = [SHORTLIST] * (stationary and has_form)
    for engine, code in ((DENSE, GAUSSIAN.code), (LEVELED, BETA.code)):
        fits = formulas.score_code(policy) == code and problem.arms <= MOST_ARMS[engine]
        engines += [engine] * (stationary and fits)
    engines += [LAZY] * (stationary and has_bounds)
    if LEVELED in engines and not problem.binary:  # slower than the lazy one: no recurrence for the levels
        engines.remove(LEVELED)
        engines.append(LEVELED)
    return [*engines, DIRECT, PLAIN]


def compile_plan(plan: Plan, loop: Any) -> CompiledPlan:
    """Return the plan with a loop: a module with the loop's SIGNATURE and its `build`."""
    engine = plan.engine or engines_for(plan)[0]
    if engine == PLAIN:

        def choose(_f: Any, w: Any, _arms: int, t: int, rng: np.random.Generator) -> int:
            return plan.policy.choose(tally_of(w), rng, round=t)

        plain = (direct_engines.begin, choose, direct_engines.update)
        return plain_plan(plan, loop.build(*plain, *(trial_loop.NO_RUNS * (loop is trial_loop)), 1))
    cumulative = cumulative_mixed_in(plan.policy, plan.problem.arms)
    shape = formulas.engine_shape(formula_policy(plan.policy)) or ""
    functions: tuple[Any, ...] = _ENGINES[engine][shape]
    has_runs = loop is trial_loop and (engine, shape) == (LAZY, "sampled")
    if loop is trial_loop:
        functions += lazy_sampled.RUNS if has_runs else trial_loop.NO_RUNS
    run = compiling.compile_function(loop.build, functions, loop.SIGNATURE)
    return formula_plan(plan, run, cumulative)._replace(has_runs=has_runs)


def cumulative_mixed_in(policy: Policy, arms: int) -> formulas.MixedIn:
    """Return the probabilities that are mixed into the policy's formulas, as loops read them."""
    constant, decaying, decay = formulas.mixed_in(policy, arms)
    cumulative = formulas.MixedIn(np.cumsum(constant), np.cumsum(decaying), decay)
    if formulas.engine_shape(formulas.without_floor(policy)) == "constant":
        cumulative.constant[-1] = 1.0
    return cumulative


def plain_plan(plan: Plan, run: Any) -> CompiledPlan:
    """Return a plan whose loop calls the policy, which mixes in all probabilities itself."""
    nothing, forced = np.zeros(0), formulas.forced_rounds(plan.policy, plan.problem.arms)
    return CompiledPlan(run, (np.zeros(1, np.int64), nothing, nothing, 0.0, forced), (), in_python=True)


def formula_policy(policy: Policy) -> Policy:
    """Return the policy whose formulas the engine evaluates: without its floor.

    Constant probabilities add up to 1, so that the engine never evaluates the formulas of `Uniform`.
    """
    inner = formulas.without_floor(policy)
    return Uniform() if formulas.engine_shape(inner) == "constant" else inner


def formula_plan(plan: Plan, run: Any, mixed: formulas.MixedIn) -> CompiledPlan:
    """Return a plan whose loop calls the policy's compiled formulas."""
    policy, forced = formula_policy(plan.policy), formulas.forced_rounds(plan.policy, plan.problem.arms)
    parameters = compiling.parameters_of(policy)
    wanted = formulas.FORMULAS[formulas.engine_shape(policy) or ""]
    if formulas.uses_empirical_mean(policy):
        wanted = wanted[:2]  # without `estimate`
    pairs = [compiling.address_of(policy, *formula) for formula in wanted]
    addresses = [address for address, _ in pairs]
    if formulas.uses_empirical_mean(policy):
        addresses.append(0)
    more = [compiling.address_of(policy, *formula) for formula in formulas.potential_formulas(policy)]
    flags = [*formulas.engine_flags(policy), *formulas.form_codes(policy)]
    if formulas.engine_shape(policy) == "sampled":
        flags += [int(formulas.concentrates(policy)), *formulas.squared_gap_bits(policy)]
    values = [parameters.ctypes.data, *addresses, *flags, *[address for address, _ in more], 0]
    table, pairs = np.array(values, np.int64), pairs + more
    return CompiledPlan(run, (table, *mixed, forced), (parameters, *(each for _, each in pairs)))


def tally_of(w: Any) -> Tally:
    """Return the observed rewards in a table of the direct engines."""
    return Tally(w[direct_engines.N].astype(np.int64), w[direct_engines.S])


def raise_failure(plan: Plan, compiled: CompiledPlan, t: int, arm: int, n: Any, s: Any) -> NoReturn:
    """Raise the error that explains why an engine could not go on in round t."""
    where = f"{plan.policy.name}: arm {arm} in round {t}, after {n[arm]:g} pulls with sum {s[arm]:g}"
    raise_formula_error(where, compiled)
    # Raises for an invalid number.
    formulas.without_floor(plan.policy).log_probabilities(Tally(n.astype(np.int64), s))
    engine = plan.engine or engines_for(plan)[0]
    if engine == SHORTLIST:
        form = formulas.index_form(formulas.without_floor(plan.policy))
        raise InvalidValue(
            f"{where}: form of the index", form, "another: the formula does not have this form"
        )
    if engine == LAZY:
        policy = formulas.without_floor(plan.policy)
        names = ("monotone", "concentrates", "has_potential", "squared_gap")
        declared = " or ".join(name for name in names if getattr(policy, name, None))
        raise InvalidValue(
            f"{where}: {declared}", True, f"False: the formula violates what {declared} declares"
        )
    raise InvalidValue(where, math.nan, "a formula that returns a number")


def raise_formula_error(where: str, compiled: CompiledPlan) -> None:
    """Raise the error of a formula that runs as Python, if there is one."""
    for each in compiled.keep_alive:
        error = getattr(each, "error", None)
        if isinstance(error, Exception):
            raise InvalidValue(where, repr(error), "a formula that returns a number") from error
        if error is not None:
            raise error
