"""Plans for problems with contexts, compiled: the loop, its arguments, and the state of a trial."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from maillard.errors import InvalidValue
from maillard.policies import LinearIndexed
from maillard.policies.numerics.linear_models import singular_model
from maillard.policies.numerics.linear_scores import TIE
from maillard.policies.segmented_policy import SegmentedPolicy
from maillard.simulation import compiled_plans, policy_formulas
from maillard.simulation.compiling import compile_function
from maillard.simulation.engines import context_loops, direct_engines, linear_designs, ridge_models
from maillard.simulation.linear_shapes import compiled_shape, segment_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from maillard.problems import ContextBlock, ContextualProblem
    from maillard.simulation.compiled_plans import CompiledPlan
    from maillard.simulation.plans import Plan


@dataclass(frozen=True)
class ContextEngine:
    """A compiled plan, and how its loop reads problems with contexts."""

    plan: CompiledPlan
    new_state: Callable[[], tuple[Any, ...]]  # the arrays of a new trial
    contexts: Callable[[ContextBlock], tuple[Any, ...]]  # what the loop reads of a block's contexts


def compile_context_plan(plan: Plan, problem: ContextualProblem) -> ContextEngine | None:
    """Return the compiled engine of a plan; None if it runs plain."""
    shape = None if plan.engine == compiled_plans.PLAIN else compiled_shape(plan.policy, problem)
    if shape is None:
        return None
    if plan.policy.uses_context and not isinstance(
        policy_formulas.without_floor(plan.policy), SegmentedPolicy
    ):
        return _linear_engine(plan, problem, shape)
    return _segment_engine(plan, problem)


def _linear_engine(plan: Plan, problem: ContextualProblem, shape: str) -> ContextEngine:
    loop, functions = context_loops.LINEAR, (linear_designs.CHOICES[shape],)
    run = compile_function(loop.build, functions, loop.SIGNATURE)
    mixed = compiled_plans.cumulative_mixed_in(plan.policy, problem.arms)
    compiled = compiled_plans.formula_plan(plan, run, mixed)
    arms, d = problem.arms, problem.dim
    models = 1 if problem.shared else arms
    g = _numbers(policy_formulas.without_floor(plan.policy), problem)

    def new_state() -> tuple[Any, ...]:
        inverse = np.broadcast_to(np.eye(d) / g[ridge_models.RIDGE], (models, d, d)).copy()
        flat_inverse, gram = inverse.reshape(models, d * d), np.zeros((models, d * d))
        theta, sums = np.zeros((models, d)), np.zeros((models, d))
        left = np.full(models, int(g[ridge_models.INTERVAL]))
        scores, growth, products, u = np.zeros((5, arms)), np.zeros(1), np.zeros(d * d), np.zeros(d)
        return g, scores, inverse, flat_inverse, gram, theta, sums, left, growth, products, u

    def contexts(block: ContextBlock) -> tuple[Any, ...]:
        rows = block.rows if problem.shared else block.rows[:, np.newaxis]
        return np.ascontiguousarray(rows), block.row

    return ContextEngine(compiled, new_state, contexts)


def _numbers(policy: Any, problem: ContextualProblem) -> Any:
    """Return the numbers that the engines of linear policies read."""
    tolerance = TIE * policy.range_width
    g = np.zeros(9)
    g[ridge_models.CENTRE], g[ridge_models.RIDGE] = policy.centre, policy.ridge
    g[ridge_models.TOLERANCE] = tolerance
    g[ridge_models.INDEX_TOLERANCE] = policy.tie_tolerance if isinstance(policy, LinearIndexed) else tolerance
    g[ridge_models.INTERVAL] = ridge_models.refactor_interval(policy.ridge)
    g[ridge_models.USES_S2] = policy.uses_uncertainty
    g[ridge_models.USES_GROWTH] = policy.engine_shape == "linear-divergence"
    g[ridge_models.IS_SHARED] = problem.shared
    g[ridge_models.COST_UNIT] = 0.0 if getattr(policy, "fast", False) else 1.0
    return g


def _segment_engine(plan: Plan, problem: ContextualProblem) -> ContextEngine:
    """Return the engine of a policy for each segment, or of one that ignores the context."""
    each = segment_policy(plan.policy)
    functions = direct_engines.ENGINES[
        policy_formulas.engine_shape(compiled_plans.formula_policy(each)) or ""
    ]
    loop = context_loops.SEGMENTS
    run = compile_function(loop.build, functions[1:], loop.SIGNATURE)
    # A floor around the segments is mixed in like one of the policy itself.
    outer = plan.policy if policy_formulas.without_floor(plan.policy) is not plan.policy else each
    mixed = compiled_plans.cumulative_mixed_in(outer, problem.arms)
    if policy_formulas.engine_shape(policy_formulas.without_floor(each)) == "constant":
        mixed.constant[-1] = 1.0
    compiled = compiled_plans.formula_plan(dataclasses.replace(plan, policy=each), run, mixed)
    forced = policy_formulas.forced_rounds(plan.policy, problem.arms)
    compiled = compiled._replace(arguments=(*compiled.arguments[:-1], forced))
    segments = len(problem.segments) if plan.policy.uses_context else 1

    def new_state() -> tuple[Any, ...]:
        tables = [direct_engines.begin(problem.arms) for _ in range(segments)]
        return np.stack(tables), np.zeros(segments, np.int64)

    def contexts(block: ContextBlock) -> tuple[Any, ...]:
        return (block.segment if segments > 1 else np.zeros_like(block.segment),)

    return ContextEngine(compiled, new_state, contexts)


def raise_context_failure(plan: Plan, engine: ContextEngine, status: int, progress: Any) -> NoReturn:
    """Raise the error that explains why a loop could not go on."""
    if status == context_loops.SINGULAR:
        raise singular_model(getattr(policy_formulas.without_floor(plan.policy), "ridge", math.nan))
    t, arm = progress[context_loops.ROUND], progress[context_loops.ARM]
    where = f"{plan.policy.name}: arm {arm} in round {t}"
    compiled_plans.raise_formula_error(where, engine.plan)
    raise InvalidValue(where, math.nan, "a formula that returns a number")
