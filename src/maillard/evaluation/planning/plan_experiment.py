"""`plan`: regret against the width of intervals, simulated for a grid of floors and boosters before an experiment."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation.planning.plan_result import ExplorationPlan
from maillard.policies import Policy, Uniform, WithFloor
from maillard.policies import policy as policy_of
from maillard.policies.targets import FixedArm, FixedDistribution
from maillard.problems import Problem
from maillard.problems import problem as problem_of
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["plan"]

_BOOSTERS = (1.0, 4.0, 16.0)


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
    estimator: str = "aipw-two-point",
    confidence: float = 0.95,
    runs: int = 200,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExplorationPlan:
    """Simulate regret and the width of intervals for a grid of floors and boosters.

    `problem` is a guess of the arms. Each of `floors` is a constant share ε of the rounds; each of `decays` adds the floor t^-decay / K.
    `boosters` are 1, 4 and 16 where the policy has a booster. `target` is what the log will be asked for: one target that does not
    learn (`arm:1`, `dist:0.5,0.5`, `uniform`), several, or by default each arm but the best; with `against`, its difference from that
    one. `progress(done, total)` hears of runs as they end.

    >>> found = plan("bernoulli:0.5,0.3", 500, floors=(0.05, 0.4), decays=(), boosters=(4,), runs=20)
    >>> [row.floor for row in found.frontier]
    [0.05, 0.4]
    >>> found.choose(width=0.2).policy
    'ms+:floor=0.05,sigma2=0.25'
    """
    from maillard.evaluation.planning.plan_runs import WEIGHTINGS, option_of, run_all
    from maillard.simulation.plans import make_plan, workers_for

    world = _check_problem(problem)
    _check_sizes(world.arms, horizon, runs)
    if estimator not in WEIGHTINGS:
        raise UnknownName("estimator", estimator, WEIGHTINGS)
    if not 0 < _number("confidence", confidence) < 1:
        raise InvalidValue("confidence", confidence, "a number between 0 and 1")
    if progress is not None and not callable(progress):
        raise InvalidValue("progress", progress, "a function of the runs done and of all runs, or None")
    base = make_plan(policy, world, horizon, seed).policy
    if isinstance(base, WithFloor):
        raise InvalidValue("policy", str(base), "a policy without a floor (floors= are put under it)")
    names, laws = _targets(target, against, world)
    grid = list(_grid(base, _check_floors(floors, decays), _check_boosters(boosters, base)))
    found = run_all(
        [make_plan(each, world, horizon, seed) for each in grid],
        laws,
        weighting=WEIGHTINGS.index(estimator),
        runs=int(runs),
        workers=workers_for(threads),
        progress=progress or _silent,
    )
    truth = laws @ world.true_means
    return ExplorationPlan(
        problem=str(world),
        horizon=int(horizon),
        policy=base.name,
        targets=names,
        against=None if against is None else str(against),
        estimator=estimator,
        confidence=float(confidence),
        runs=int(runs),
        seed=int(seed),
        rows=tuple(
            option_of(each, logs, truth, int(horizon), float(confidence))
            for each, logs in zip(grid, found, strict=True)
        ),
    )


def _check_sizes(arms: int, horizon: int, runs: int) -> None:
    from maillard.simulation.plans import check_count

    check_count("horizon", horizon, 10**9)
    check_count("runs", runs, 10**6)
    if horizon < arms + 3:
        raise InvalidValue(
            "horizon", horizon, f"a whole number >= {arms + 3}: each arm once, and rows to weigh"
        )
    if runs < 2:
        raise InvalidValue("runs", runs, "a whole number >= 2")


def _check_problem(given: str | Problem) -> Problem:
    world = problem_of(given)
    if world.arms < 2:
        raise InvalidValue("problem", given, "at least two arms")
    if world.threshold is not None or world.churn:
        raise InvalidValue("problem", given, "one with regret, and arms whose means stay as they are")
    return world


def _number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidValue(field, value, "a number")
    return float(value)


def _sequence(field: str, given: object) -> list[float]:
    """Numbers, each once, in their order."""
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise InvalidValue(field, given, "a sequence of numbers")
    return list(dict.fromkeys(_number(f"{field}[{place}]", value) for place, value in enumerate(given)))


def _check_floors(floors: Sequence[float], decays: Sequence[float]) -> list[tuple[float, float]]:
    """Pairs of ε and decay: the constant floors, and the whole ones that decay."""
    constant, falling = _sequence("floors", floors), _sequence("decays", decays)
    for place, value in enumerate(constant):
        if not 0 <= value <= 1:
            raise InvalidValue(f"floors[{place}]", value, "a number from 0 to 1")
    for place, value in enumerate(falling):
        if not 0 < value < 1:
            raise InvalidValue(f"decays[{place}]", value, "a number between 0 and 1")
    if not constant and not falling:
        raise InvalidValue("floors", floors, "at least one floor, or one of decays")
    return [*((each, 0.0) for each in constant), *((1.0, each) for each in falling)]


def _check_boosters(boosters: Sequence[float] | None, base: Policy) -> list[float | None]:
    known = "booster" in (name for name, _, _ in base.parameters())
    if boosters is None:
        return list(_BOOSTERS) if known else [None]
    if not known:
        raise InvalidValue("boosters", boosters, f"none: {base.name} has no booster")
    checked = _sequence("boosters", boosters)
    if not checked:
        raise InvalidValue("boosters", boosters, "at least one number >= 1")
    return [*checked]


def _grid(
    base: Policy, floors: Sequence[tuple[float, float]], boosters: Sequence[float | None]
) -> Iterator[Policy]:
    """Every policy of the plan: each booster with each floor, a pair of ε and decay."""
    for booster, (epsilon, decay) in itertools.product(boosters, floors):
        # Every subclass is a dataclass by Policy.__init_subclass__, which mypy cannot see here.
        made: Policy = base if booster is None else dataclasses.replace(base, booster=booster)  # type: ignore[type-var]
        yield WithFloor(made, epsilon, decay=decay) if epsilon else made


def _targets(
    target: str | Policy | Sequence[str | Policy] | None, against: str | Policy | None, world: Problem
) -> tuple[tuple[str, ...], Floats]:
    """The names of the targets, and a law for each (with `against`, a difference of laws)."""
    given: Sequence[str | Policy]
    if target is None:
        worse = np.flatnonzero(world.gaps > 0)
        given = [FixedArm(arm) for arm in (worse.tolist() if worse.size else range(world.arms))]
    else:
        given = [target] if isinstance(target, str | Policy) or not isinstance(target, Sequence) else target
    if not given:
        raise InvalidValue("target", target, "at least one target")
    laws = np.array([_law("target", each, world.arms) for each in given])
    if against is None:
        return tuple(map(str, given)), laws
    laws -= _law("against", against, world.arms)
    differs = np.any(laws != 0, axis=1)
    if not differs.any() or not (differs.all() or target is None):
        raise InvalidValue("against", str(against), "another policy than the target")
    return tuple(str(each) for each, kept in zip(given, differs.tolist(), strict=True) if kept), laws[differs]


def _law(field: str, given: str | Policy, arms: int) -> Floats:
    if not isinstance(given, str | Policy):
        raise InvalidValue(field, given, "a target, as in arm:1, dist:0.5,0.5 or uniform")
    made = policy_of(given).bind([str(arm) for arm in range(arms)])
    if not isinstance(made, FixedArm | FixedDistribution | Uniform):
        raise InvalidValue(
            field, str(given), "a target that does not learn, as in arm:1, dist:0.5,0.5 or uniform"
        )
    return made.probabilities(Tally.empty(arms))


def _silent(_done: int, _total: int) -> None:
    """Nobody is told."""
