"""`plan`: simulate regret and interval width for a grid of floors and boosters, before an experiment."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from maillard.array_types import Floats
from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation.planning.plan_result import ExplorationPlan
from maillard.policies import Policy, Uniform, WithFloor
from maillard.policies import policy as policy_of
from maillard.policies.targets import FixedArm, FixedDistribution
from maillard.problems import Problem
from maillard.problems import problem as problem_of
from maillard.tally import Tally

_DEFAULT_BOOSTERS = (1.0, 4.0, 16.0)


def plan(
    problem: str | Problem,
    horizon: int,
    *,
    floors: Sequence[float] = (0, 0.01, 0.02, 0.05, 0.1, 0.2),
    decays: Sequence[float] = (0.7,),
    boosters: Sequence[float] | None = None,
    policy: str | Policy = "ms+",
    target: str | Policy | Sequence[str | Policy] | None = None,
    against: str | Policy | None = None,
    estimator: str | None = None,
    active: bool = False,
    confidence: float = 0.95,
    runs: int = 200,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExplorationPlan:
    """Simulate regret and interval width for a grid of floors and boosters.

    `problem` is a guess of the reward distributions of the arms, `horizon` the number of decisions, and
    `policy` the policy to which floors are added. Each of `floors` is a constant ε: every arm
    has a probability of at least ε / K. Each of `decays` adds a floor of t^-decay / K. `boosters` defaults to
    1, 4 and 16 if the policy has a booster.

    `target` is the policy, or the sequence of policies, for which the log will be evaluated. It must not
    learn, as in `arm:1`, `dist:0.5,0.5` or `uniform`. The default is every arm except the best. With
    `against`, the intervals are for the difference from that target. Each simulated log is evaluated with the
    estimator that `evaluate` recommends for it; `active=True` does this as if the experiment were still
    running. An `estimator`, such as `aipw-two-point`, is faster. `confidence` is that of the intervals.

    Each policy of the grid has `runs` simulated logs, with random numbers from the `seed`. `threads` is the
    number of threads, by default all cores. `progress(done, total)` is called as runs finish.

    >>> found = plan("bernoulli:0.5,0.3", 500, floors=(0.05, 0.4), decays=(), boosters=(4,), runs=20)
    >>> [row.floor for row in found.frontier]
    [0.05, 0.4]
    >>> found.choose(width=0.3).policy
    'ms+:floor=0.05,sigma2=0.25'
    """
    from maillard.evaluation.planning.plan_runs import Question, run_all, summarise_runs
    from maillard.evaluation.sequential.aipw import WEIGHTINGS
    from maillard.simulation.plans import make_plan, workers_for

    checked = _check_problem(problem, horizon, runs)
    if not isinstance(active, bool) or (active and estimator is not None):
        raise InvalidValue("active", active, "true or false; true needs estimator=None")
    if estimator is not None and estimator not in WEIGHTINGS:
        raise UnknownName("estimator", estimator, WEIGHTINGS)
    if not 0 < _number("confidence", confidence) < 1:
        raise InvalidValue("confidence", confidence, "a number between 0 and 1")
    if progress is not None and not callable(progress):
        allowed = "a function of two numbers, the runs done and all runs, or None"
        raise InvalidValue("progress", progress, allowed)
    base = make_plan(policy, checked, horizon, seed).policy
    if isinstance(base, WithFloor):
        raise InvalidValue("policy", str(base), "a policy without a floor (plan adds the floors)")
    targets, target_probabilities = _targets(target, against, checked)
    asked = Question(targets, against, target_probabilities, estimator, float(confidence), active)
    grid = _grid(base, _check_floors(floors, decays), _check_boosters(boosters, base))
    plans = [make_plan(each, checked, horizon, seed) for each in grid]
    found = run_all(plans, asked, int(runs), workers_for(threads), progress)
    truth = target_probabilities @ checked.true_means
    return ExplorationPlan(
        problem=str(checked),
        horizon=int(horizon),
        policy=base.name,
        targets=tuple(map(str, targets)),
        against=None if against is None else str(against),
        estimator=estimator,
        active=active,
        confidence=float(confidence),
        runs=int(runs),
        seed=int(seed),
        rows=tuple(
            summarise_runs(each, logs, truth, float(confidence))
            for each, logs in zip(plans, found, strict=True)
        ),
    )


def _check_problem(given: str | Problem, horizon: int, runs: int) -> Problem:
    from maillard.simulation.plans import check_count

    checked = problem_of(given)
    if checked.arms < 2:
        raise InvalidValue("problem", given, "at least two arms")
    if checked.threshold is not None or checked.churn:
        raise InvalidValue("problem", given, "one with regret, and with arms whose means do not change")
    check_count("horizon", horizon, 10**9)
    check_count("runs", runs, 10**6)
    least = checked.arms + 3
    if horizon < least:
        allowed = f"a whole number >= {least}: each arm once, and three more rows"
        raise InvalidValue("horizon", horizon, allowed)
    if runs < 2:
        raise InvalidValue("runs", runs, "a whole number >= 2")
    return checked


def _number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidValue(field, value, "a number")
    return float(value)


def _sequence(field: str, given: object) -> list[float]:
    """The distinct numbers, in order."""
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise InvalidValue(field, given, "a sequence of numbers")
    return list(dict.fromkeys(_number(f"{field}[{place}]", value) for place, value in enumerate(given)))


def _check_floors(floors: Sequence[float], decays: Sequence[float]) -> list[tuple[float, float]]:
    """Pairs of ε and decay: the constant floors, and the decaying floors with ε = 1."""
    constant, falling = _sequence("floors", floors), _sequence("decays", decays)
    for place, value in enumerate(constant):
        if not 0 <= value <= 1:
            raise InvalidValue(f"floors[{place}]", value, "a number from 0 to 1")
    for place, value in enumerate(falling):
        if not 0 < value < 1:
            raise InvalidValue(f"decays[{place}]", value, "a number between 0 and 1")
    if not constant and not falling:
        raise InvalidValue("floors", floors, "at least one number in floors or decays")
    return [*((each, 0.0) for each in constant), *((1.0, each) for each in falling)]


def _check_boosters(boosters: Sequence[float] | None, base: Policy) -> list[float | None]:
    known = "booster" in (name for name, _, _ in base.parameters())
    if boosters is None:
        return list(_DEFAULT_BOOSTERS) if known else [None]
    if not known:
        raise InvalidValue("boosters", boosters, f"None, because {base.name} has no booster")
    if not (checked := _sequence("boosters", boosters)):
        raise InvalidValue("boosters", boosters, "at least one number >= 1")
    return [*checked]


def _grid(base: Policy, floors: list[tuple[float, float]], boosters: list[float | None]) -> Iterator[Policy]:
    """The policies of the plan: every booster with every floor."""
    for booster, (epsilon, decay) in itertools.product(boosters, floors):
        # Policy.__init_subclass__ makes every subclass a dataclass, which mypy does not know.
        made: Policy = base if booster is None else dataclasses.replace(base, booster=booster)  # type: ignore[type-var]
        yield WithFloor(made, epsilon, decay=decay) if epsilon else made


def _targets(
    target: str | Policy | Sequence[str | Policy] | None, against: str | Policy | None, checked: Problem
) -> tuple[tuple[str | Policy, ...], Floats]:
    """The targets, and their arm probabilities (minus those of `against`, if given)."""
    targets: Sequence[str | Policy]
    if target is None:
        worse = np.flatnonzero(checked.gaps > 0)
        targets = [FixedArm(arm) for arm in (worse.tolist() if worse.size else range(checked.arms))]
    else:
        targets = [target] if isinstance(target, str | Policy) or not isinstance(target, Sequence) else target
    if not targets:
        raise InvalidValue("target", target, "at least one target")
    target_probabilities = np.array([_target_probabilities("target", each, checked.arms) for each in targets])
    if against is None:
        return tuple(targets), target_probabilities
    target_probabilities -= _target_probabilities("against", against, checked.arms)
    differs = np.any(target_probabilities != 0, axis=1)
    if not differs.any() or not (differs.all() or target is None):
        raise InvalidValue("against", str(against), "a policy other than the target")
    return tuple(itertools.compress(targets, differs)), target_probabilities[differs]


def _target_probabilities(field: str, given: str | Policy, arms: int) -> Floats:
    if not isinstance(given, str | Policy):
        raise InvalidValue(field, given, "a target, as in arm:1, dist:0.5,0.5 or uniform")
    made = policy_of(given).bind([str(arm) for arm in range(arms)])
    if not isinstance(made, FixedArm | FixedDistribution | Uniform):
        allowed = "a target that does not learn, as in arm:1, dist:0.5,0.5 or uniform"
        raise InvalidValue(field, str(given), allowed)
    return made.probabilities(Tally.empty(arms))
