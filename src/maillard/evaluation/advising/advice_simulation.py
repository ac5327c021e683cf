"""The simulations behind advice: the regret and the intervals of each option, for the user's own numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from maillard import specs
from maillard.array_types import Floats
from maillard.evaluation.advising.advice_requirements import ACTIONS, CONFIDENCE, Requirements
from maillard.evaluation.advising.advice_result import AdviceOption
from maillard.evaluation.advising.advice_rules import DEFAULT_FLOOR, choose_option, undecided
from maillard.evaluation.advising.floor_logs import FloorLogs, Intervals
from maillard.evaluation.advising.reward_answers import UNBOUNDED
from maillard.problems import Bernoulli, Bounded, Fixed, Gaussian, Linear, Problem
from maillard.simulation import simulate

Progress = Callable[[str, float], None]
_AMOUNTS = 10  # different amounts of a purchase
_STEEPEST = 1000.0  # exponent, at which nearly all amounts are equal
_CONTEXTS = 256  # different visitors of a simulation with contexts


class Budget(NamedTuple):
    """The most that is simulated."""

    evaluated: int
    "Decisions of all logs that are evaluated for one question."
    simulated: int
    "Decisions of all trials that only measure regret."
    with_contexts: int
    "The same, for linear policies."
    horizon: int
    "Decisions of one experiment."
    cells: int
    "Decisions of one experiment times arms."
    runs: int
    trials: int
    checked: int
    "Decisions of the logs that are added until the suggestion is clear."
    logs: int
    "Logs of one option."


FULL = Budget(5_000_000, 12_000_000, 4_000_000, 200_000, 2_000_000, 200, 1000, 25_000_000, 400)
QUICK = Budget(500_000, 1_200_000, 400_000, 50_000, 500_000, 20, 200, 1_000_000, 40)
_FEWEST_RUNS = 10
_BATCH = 20  # logs that are added at a time


class Simulated(NamedTuple):
    """All options that were simulated, ordered by floor, with an equal split last."""

    options: tuple[AdviceOption, ...]
    horizon: int
    "The decisions that were simulated, per segment."
    runs: int
    "The fewest evaluated logs of an option; 0 if no logs were evaluated."
    trials: int
    problem: str


def floors_for(requirements: Requirements, *, quick: bool) -> tuple[float, ...]:
    """The floors to try."""
    if not requirements.evaluate:
        return (0.0, 0.1)
    return (0.0, 0.1, 0.2, 0.5) if quick else (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)


def problem_for(requirements: Requirements) -> tuple[Problem, float]:
    """A guess of the arms: the last is better than the others by `lift`. And the unit of its rewards.

    Rewards in a range are simulated as rewards from 0 to 1, so that every policy can be tried.
    """
    r, one = requirements, requirements.limited
    low, unit = (r.low, r.high - r.low) if one else (0.0, 1.0)
    ordinary, best = (r.rate - low) / unit, min((r.rate + r.lift - low) / unit, 1.0 if one else math.inf)
    means = (*[ordinary] * (len(r.arms) - 1), best)
    delay = Fixed(r.part_delay) if r.part_delay else None
    spread = r.deviation / unit
    if r.mostly_nothing and (orders := _purchases(means, spread, 1.0 if one else math.inf, unit)):
        return dataclasses.replace(orders, delay=delay), unit
    if r.reward == UNBOUNDED:  # the deviation is too small for purchases
        return Gaussian(means, variance=r.deviation**2, delay=delay), 1.0
    largest = math.sqrt(ordinary * (1 - ordinary))
    extreme = min(1.0, (spread / largest) ** 2)  # fraction of rewards that are lowest or highest
    if not one or extreme > 1 - 1e-9:
        return Bernoulli(means, delay=delay), unit
    step = math.sqrt(1.5) * spread
    if step <= ordinary and best + step <= 1:  # three values around the mean, and the ends of the range
        row = (0.0, 1 / 3, 1 / 3, 1 / 3, 0.0)
        around = tuple((0.0, mean - step, mean, mean + step, 1.0) for mean in means)
        return Bounded((row,) * len(means), values=around, delay=delay), unit
    rows = tuple((extreme * (1 - mean), 1 - extreme, extreme * mean) for mean in means)
    return Bounded(rows, values=tuple((0.0, mean, 1.0) for mean in means), delay=delay), unit


def _purchases(means: Sequence[float], deviation: float, highest: float, unit: float) -> Bounded | None:
    """Rewards that are mostly 0, otherwise amounts of different size; None if the deviation is too small.

    The amounts are a tenth, two tenths, ... of the highest, or of four times the typical one if that is less.
    Their probabilities are proportional to exp(t amount), with the t that gives the mean and the deviation of
    the first arm. A better arm has more purchases of the same amounts.
    """
    ordinary, best = min(means), max(means)
    typical = (deviation**2 + ordinary**2) / ordinary  # E[X²] / E[X], with or without the rewards of 0
    top = min(highest, 4 * typical)
    amounts = np.arange(1, _AMOUNTS + 1) / _AMOUNTS

    def chances(tilt: float) -> Floats:
        weights = np.exp(tilt * (amounts - (tilt > 0)))
        return np.asarray(weights / weights.sum())

    low, high = -_STEEPEST, _STEEPEST
    for _ in range(60):
        tilt = (low + high) / 2
        shares = chances(tilt)
        if shares @ amounts**2 / (shares @ amounts) < typical / top:
            low = tilt
        else:
            high = tilt
    shares = chances(high)
    average = top * float(shares @ amounts)
    reached = float(shares @ amounts**2 / (shares @ amounts))
    if best > average or not math.isclose(reached, typical / top, rel_tol=1e-3):
        return None
    never = [highest] if top < highest < math.inf else []  # so that the range is known
    rows = tuple((1 - mean / average, *(mean / average * shares), *(0.0 for _ in never)) for mean in means)
    name = (
        f"purchases of {unit * average:.3g} on average, up to {unit * top:.4g}, by {ordinary / average:.3g}"
    )
    name += f" of the visitors of an ordinary arm, {best / average:.3g} of those of the best"
    return Bounded(rows, values=(0.0, *(top * amounts), *never), label=name)


def context_problem_for(requirements: Requirements) -> Problem:
    """A guess with contexts: flags that half of the visitors (or arms) have.

    An arm is better by `lift` for visitors with its flag; arms beyond the number of flags are better for
    those without. With a shared model, arms that have the first flag are better.
    """
    r, rng = requirements, np.random.default_rng(0)
    arms, flags = len(r.arms), r.context_size
    shape = (_CONTEXTS, arms, flags + 1) if r.contexts == ACTIONS else (_CONTEXTS, flags + 1)
    rows = rng.choice([-1.0, 1.0], size=shape)
    rows[..., 0] = 1.0  # the intercept
    if r.contexts == ACTIONS:
        theta = np.zeros(flags + 1)
        theta[1] = r.lift / 2
    else:
        theta = np.zeros((arms, flags + 1))
        for arm in range(arms):
            theta[arm, 1 + arm % flags] = r.lift / 2 * (-1) ** (arm // flags)
    options = {"noise": "bernoulli"} if r.zero_or_one else {"variance": r.deviation**2}
    model = "shared" if r.contexts == ACTIONS else "disjoint"
    centre = r.rate + r.lift / 2
    return Linear(model=model, rows=rows, coefficients=theta, arms=arms, centre=centre, **options)


def spec_with_floor(spec: str, floor: float) -> str:
    """The spec of the policy with this floor; 1 is an equal split."""
    if floor == 1.0:
        return "uniform"
    name, values, options = specs.read(spec)
    return specs.write(specs.Spec(name, values, options | ({"floor": floor} if floor else {})))


def simulate_options(
    requirements: Requirements, spec: str, *, quick: bool, seed: int, threads: int | None, progress: Progress
) -> Simulated:
    """Simulate the policy `spec` with each floor, and an equal split."""
    budget = QUICK if quick else FULL
    if requirements.linear:
        return _simulate_linear(requirements, spec, budget, seed=seed, threads=threads, progress=progress)
    problem, unit = problem_for(requirements)
    horizon = min(requirements.part_horizon, budget.horizon, budget.cells // len(requirements.arms))
    floors = [*floors_for(requirements, quick=quick), 1.0]
    runs = max(_FEWEST_RUNS, min(budget.runs, budget.evaluated // (len(floors) * horizon)))
    policies = [spec_with_floor(spec, floor) for floor in floors]
    settings: dict[str, Any] = {"seed": seed, "threads": threads}
    means = FloorLogs(policies, problem, horizon, difference=False, confidence=CONFIDENCE, **settings)
    differences = FloorLogs(
        policies, problem, horizon, difference=True, confidence=requirements.confidence, **settings
    )
    differences.add_to_all(runs, partial(progress, "comparing arms"))
    means.add_to_all(runs, partial(progress, "evaluating an arm"))
    differences.add(len(floors) - 1, 2 * runs)  # an equal split is in every table
    trials = max(_FEWEST_RUNS, min(budget.trials, budget.simulated // (len(floors) * horizon)))
    regrets = _regrets(policies, problem, horizon, trials, progress, **settings)
    costs = [
        _option(requirements, spec, floor, unit * lost, horizon)
        for floor, lost in zip(floors, regrets, strict=True)
    ]
    shrink = math.sqrt(horizon / requirements.part_horizon)

    def options() -> list[AdviceOption]:
        return [
            _with_intervals(cost, unit, differences.intervals(place, shrink), means.intervals(place))
            for place, cost in enumerate(costs)
        ]

    if requirements.evaluate:
        _add_logs(requirements, differences, options, budget, partial(progress, "checking the suggestion"))
    return Simulated(tuple(options()), horizon, runs, trials, str(problem))


def _add_logs(
    requirements: Requirements,
    logs: FloorLogs,
    options: Callable[[], list[AdviceOption]],
    budget: Budget,
    progress: Callable[[float], None],
) -> None:
    """Add logs until it is clear which floor is suggested, or the budget is used up."""
    needed = requirements.needed_width * math.sqrt(requirements.part_horizon / logs.horizon)
    most = left = budget.checked // logs.horizon
    while left > 0:
        found = options()
        chosen, _ = choose_option(found, needed, requirements.max_regret, evaluate=True)
        unclear = [each for each in undecided(found, chosen) if each.logs < budget.logs]
        if not unclear:
            return
        place = found.index(min(unclear, key=lambda each: abs(each.power_evidence)))
        count = min(_BATCH, left, budget.logs - found[place].logs)
        logs.add(place, count)
        left -= count
        progress(1 - left / most)


def _regrets(
    policies: list[str],
    problem: Problem,
    horizon: int,
    trials: int,
    progress: Progress,
    **settings: Any,
) -> Iterator[Floats]:
    """Yield the regret of each policy in each trial."""
    for place, policy in enumerate(policies):
        progress("measuring what is lost", place / len(policies))
        options = settings | {"checkpoints": [horizon], "progress": False}
        yield simulate(policy, problem, horizon, trials, **options).final_regret[0]


def _option(requirements: Requirements, spec: str, floor: float, lost: Floats, horizon: int) -> AdviceOption:
    """An option without intervals, from its regret in each trial, in the unit of the rewards."""
    regret, all_parts = float(lost.mean()), requirements.parts
    possible = (requirements.rate + requirements.lift) * horizon
    return AdviceOption(
        policy=spec_with_floor(spec, floor),
        floor=floor,
        regret=all_parts * regret,
        regret_error=all_parts * float(lost.std(ddof=1)) / math.sqrt(lost.size),
        loss=regret / possible if possible > 0 else math.nan,
    )


def _with_intervals(
    option: AdviceOption, unit: float, difference: Intervals, mean: Intervals
) -> AdviceOption:
    """The option with its intervals, in the unit of the rewards."""
    return dataclasses.replace(
        option,
        width=unit * difference.width,
        width_error=unit * difference.width_error,
        found=difference.found,
        valid=difference.valid,
        logs=difference.logs,
        mean_width=unit * mean.width,
        mean_width_error=unit * mean.width_error,
    )


def _simulate_linear(
    requirements: Requirements,
    spec: str,
    budget: Budget,
    *,
    seed: int,
    threads: int | None,
    progress: Progress,
) -> Simulated:
    """Simulate a linear policy, a policy that ignores the context, and an equal split."""
    problem = context_problem_for(requirements)
    floor = DEFAULT_FLOOR if requirements.evaluate else 0.0
    without = "kl-ms+" if requirements.zero_or_one else f"ms+:sigma2={requirements.deviation**2:.4g}"
    horizon = min(requirements.horizon, budget.horizon)
    trials = max(_FEWEST_RUNS, min(budget.trials, budget.with_contexts // (3 * horizon)))
    policies = [spec_with_floor(spec, floor), spec_with_floor(without, floor), "uniform"]
    regrets = _regrets(policies, problem, horizon, trials, progress, seed=seed, threads=threads)
    made = [
        _option(requirements, name, each, lost, horizon)
        for name, each, lost in zip((spec, without, spec), (floor, floor, 1.0), regrets, strict=True)
    ]
    return Simulated(tuple(made), horizon, 0, trials, str(problem))
