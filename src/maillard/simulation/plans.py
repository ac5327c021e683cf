"""Plans and experiments: what to simulate, checked before anything runs."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue
from maillard.policies import LinearPolicy, Policy, policy, policy_class, uses_context
from maillard.policies.base.policy import resolve_alias
from maillard.policies.segmented_policy import SegmentedPolicy
from maillard.problems import ContextualProblem, Problem
from maillard.problems import problem as problem_of
from maillard.simulation.backends import AUTO, CPU, CUDA, NoDevice, backend_for
from maillard.simulation.policy_formulas import engine_shape, mixed_in, without_floor
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

KEEP = _, SUMMARY = ("trials", "summary")
_CHECKPOINTS = 64


@dataclass(frozen=True)
class Plan:
    """Everything that a trial depends on, except for its number."""

    policy: Policy
    problem: Problem
    checkpoints: tuple[int, ...]
    seed: int
    engine: str | None = None  # None: the fastest engine that is exact for the policy
    device: str = CPU

    @property
    def horizon(self) -> int:
        """The last round."""
        return self.checkpoints[-1]


@dataclass(frozen=True)
class Experiment:
    """Policies on one problem, checked and ready to run."""

    plans: tuple[Plan, ...]
    names: tuple[str, ...]
    trials: int
    keep: str = "trials"  # or "summary"


def make_experiment(
    policies: str | Policy | Sequence[str | Policy],
    problem: str | Problem,
    horizon: int,
    trials: int,
    seed: int,
    checkpoints: ArrayLike | None = None,
    engine: str | None = None,
    device: str = "cpu",
    keep: str = "trials",
) -> Experiment:
    """Check all arguments of `simulate` before anything runs."""
    made = problem_of(problem)
    if not isinstance(policies, str | Policy | Iterable):
        raise InvalidValue("policies", policies, "policies and their specs")
    given = [policies] if isinstance(policies, str | Policy) else list(policies)
    if not given:
        raise InvalidValue("policies", policies, "at least one policy")
    check_count("trials", trials, 10**8)
    where = CPU if device == AUTO else device
    plans = [make_plan(each, made, horizon, seed, checkpoints, engine, device=where) for each in given]
    if device == AUTO:
        plans = [_on_gpu_if_possible(plan) for plan in plans]
    return Experiment(tuple(plans), tuple(str(each) for each in given), trials, keep)


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
    """Return the checked plan of one policy; `names` are the names of the problem's arms."""
    check_count("horizon", horizon, 2**53)
    check_seed(seed)
    if not isinstance(given, str | Policy):
        raise InvalidValue("policies", given, "policies and their specs")
    check_context(given, problem)
    if isinstance(given, str):
        made = _from_spec(given, problem, int(horizon))
    else:
        inside = without_floor(given)
        inside = inside.policy if isinstance(inside, SegmentedPolicy) else inside
        missing = given.needs_horizon and getattr(inside, "horizon", None) is None
        made = policy(given, horizon=int(horizon)) if missing else given
    made = made.bind(names or [str(arm) for arm in range(problem.arms)])
    plan = Plan(made, problem, _check_checkpoints(checkpoints, int(horizon)), int(seed), engine, device)
    check_plan(plan)
    return plan


def _from_spec(given: str, problem: Problem, horizon: int) -> Policy:
    """Return the policy of a spec, with the parameters that it leaves to the problem."""
    name, values, said = specs.read(given)
    name = resolve_alias(name, problem.support)
    if name == SegmentedPolicy.name and isinstance(inner := said.get("policy"), str):
        options = {key: value for key, value in said.items() if key != "policy"}
        return policy(
            specs.write(specs.Spec(name, values, options)), policy=_from_spec(inner, problem, horizon)
        )
    context: dict[str, Any] = {} if "horizon" in said else {"horizon": horizon}
    if not {"sigma2", "reward_range"} & set(said) and problem.sigma2 is not None:
        context["sigma2"] = problem.sigma2
    if isinstance(problem, ContextualProblem) and issubclass(policy_class(name), LinearPolicy):
        context |= _linear_parameters(problem, said)
    return policy(specs.write(specs.Spec(name, values, said)), **context)


def _linear_parameters(problem: ContextualProblem, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reward range or the centre that a spec leaves to the problem."""
    if "reward_range" in said or "centre" in said:
        return {}
    low, high = problem.support
    return {"reward_range": (low, high)} if math.isfinite(high - low) else {"centre": problem.centre}


def check_context(given: str | Policy, problem: Problem) -> None:
    """Raise `InvalidValue` if the policy needs a context that the problem does not have."""
    if not uses_context(given):
        return
    if not isinstance(problem, ContextualProblem):
        allowed = (
            "a policy without a context, because this problem has none; problems with contexts are "
            "linear:arms=10,dim=5, Classification(X, y) and Segmented({...})"
        )
        raise InvalidValue("policies", str(given), allowed)
    if _is_segmented(given) and not problem.segments:
        allowed = (
            "a policy without segments, because this problem has none; Segmented({...}) and "
            "Classification(X, y, segments=...) have segments"
        )
        raise InvalidValue("policies", str(given), allowed)


def _is_segmented(given: str | Policy) -> bool:
    if isinstance(given, Policy):
        return isinstance(without_floor(given), SegmentedPolicy)
    return specs.read(given).name == SegmentedPolicy.name


def check_plan(plan: Plan) -> None:
    """Raise `InvalidValue` if the policy does not accept the problem, or the backend cannot run the plan."""
    policy, problem, inner = plan.policy, plan.problem, without_floor(plan.policy)
    where = f"{policy.name} on the problem {str(problem)[:60]!r}"
    (low, high), (least, most) = policy.support, problem.support
    if least < low or most > high:
        allowed = f"rewards from {low:g} to {high:g}" if high < math.inf else f"rewards >= {low:g}"
        raise InvalidValue(where, f"rewards from {least:g} to {most:g}", allowed)
    if policy.requires_positive_rewards and not problem.positive:
        raise InvalidValue(where, "rewards <= 0", "rewards > 0")
    if policy.requires_binary_rewards and not problem.binary:
        raise InvalidValue(where, "other rewards", "rewards 0 and 1")
    mixed_in(policy, problem.arms)  # raises for probabilities of another number of arms
    if isinstance(problem, ContextualProblem) and plan.device != CPU:
        raise InvalidValue(f"device for the problem {str(problem)[:60]!r}", plan.device, "cpu")
    backend_for(plan.device).check(plan)
    if engine_shape(inner) == "constant" or problem.contextual:
        return
    # A formula that returns no number mostly does so at once: try it on a few arms with two pulls each.
    arms = min(problem.arms, 4)
    sums = 2.0 * np.clip(problem.true_means[:arms], 1e-3 if low == 0 else low, high)
    if problem.binary:
        sums = np.ones(arms)
    inner.log_probabilities(Tally(np.full(arms, 2), sums))


def _on_gpu_if_possible(plan: Plan) -> Plan:
    """Return the plan for the GPU if there is one that can run it, otherwise the plan itself."""
    on_gpu = dataclasses.replace(plan, device=CUDA)
    try:
        check_plan(on_gpu)
        backend_for(CUDA).prepare(on_gpu)
    except (NoDevice, InvalidValue):
        return plan
    return on_gpu


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
    increasing = rounds.ndim == 1 and rounds.size and (whole == rounds).all() and (np.diff(whole) > 0).all()
    if not increasing or whole[0] < 1 or whole[-1] != horizon:
        raise InvalidValue("checkpoints", given, allowed)
    return tuple(whole.tolist())


def check_count(name: str, value: object, most: int) -> None:
    """Raise `InvalidValue` unless the value is an integer from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise InvalidValue(name, value, f"a whole number >= 1 (and <= {most})")


def check_seed(seed: object) -> None:
    """Raise `InvalidValue` unless the seed is an integer >= 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidValue("seed", seed, "a whole number >= 0")


def check_folder(name: str, path: str | Path) -> None:
    """Raise `InvalidValue` if the folder of a file to write does not exist."""
    if not Path(path).absolute().parent.is_dir():
        raise InvalidValue(name, str(path), "a file in a folder that exists")


def workers_for(threads: int | None) -> int:
    """Return the number of threads: as given, or one for each core that this process may use."""
    if threads is not None:
        check_count("threads", threads, 1024)
        return int(threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Return the versions that a result's bits depend on."""
    import numba

    import maillard

    return {
        "maillard": maillard.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
