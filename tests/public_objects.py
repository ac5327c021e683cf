"""Instances of every public class: large ones, and small ones whose names are markup."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

import maillard
from maillard import (
    Bandit,
    Features,
    LinearTally,
    Reward,
    SegmentTally,
    Tally,
    advise,
    compare,
    decisions,
    errors,
    evaluate,
    learn_rule,
    plan,
    policies,
    policy,
    problems,
    read_log,
    replay,
    simulate,
    simulate_log,
    simulation,
    verify,
)
from maillard.client import AsyncClient, Client
from maillard.policies import Policy

PACKAGES = ("decisions", "evaluation", "features", "policies", "problems", "simulation", "client", "errors")
ARMS, ROWS = 1000, 5_000_000
EVIL = "<script>alert('x')</script>"
LONG = "a very long name " * 20
URL = f"http://127.0.0.1:8000/{'x' * 300}"
MANY = [f"{LONG} {number}" for number in range(ARMS)]


@cache
def fresh() -> Any:
    """Objects with few arms, whose names are markup."""
    rng = np.random.default_rng(1)
    arm, segment = rng.choice([EVIL, "blue"], 2000), rng.choice([EVIL, "desktop"], 2000)
    reward = np.where(segment == EVIL, arm == "blue", arm == EVIL).astype(float)
    table = {"arm": arm, "probability": np.full(2000, 0.5), "reward": reward, "segment": segment}
    options: dict[str, Any] = {"context": "segment", "reward_range": (0, 1)}
    bandit = Bandit([EVIL, "blue"], "ms+:floor=0.2", reward=Reward(low=0, high=1), seed=1)
    chosen = bandit.choose(unit=EVIL, size=300, context={"page": EVIL})
    bandit.rewards([{"decision": each.id, "value": float(each.arm == EVIL)} for each in chosen])
    run = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=1000, seed=1)
    linear = LinearTally.empty(features=2, arms=3)
    linear.add([1, 0.5], 1.0, arm=2)
    segmented = SegmentTally.empty(2)
    segmented.add((EVIL, "de"), arm=1, reward=1.0)
    return SimpleNamespace(
        Result=simulate(["ms+", "ts"], "bernoulli:0.6,0.4", horizon=200, trials=20),
        Summary=simulate(["ms+", "ts"], "bernoulli:0.6,0.4", horizon=200, trials=20, keep="summary"),
        Report=evaluate(table, policies.FixedArm(EVIL), **options),
        Comparison=compare(table, policies.FixedArm(EVIL), "arm:blue", **options),
        Segments=evaluate(table, policies.FixedArm(EVIL), by="segment", **options),
        LearnedRule=learn_rule(table, "segment", depth=1, **options),
        Replay=replay(run, "ms+", horizon=100),
        ExplorationPlan=plan("bernoulli:0.5,0.3", 500, floors=(0.05, 0.4), decays=(), boosters=(4,), runs=20),
        Advice=advise([EVIL, "blue"], rate=0.3, lift=0.2, horizon=1000, quick=True),
        Verification=verify(bandit),
        Decision=chosen[0],
        Tally=Tally([4, 1, 0], [3, 0, 0]),
        LinearTally=linear,
        SegmentTally=segmented,
        Policy=policy("ms+:booster=8,floor=0.1", sigma2=0.25),
    )


@cache
def large() -> Any:
    """Objects with many arms, segments, trials or rows, and long names."""
    rng = np.random.default_rng(1)
    arm, segment = rng.choice(MANY[:50], 6000), rng.choice(MANY[:60], 6000)
    table = {"arm": arm, "probability": np.full(6000, 0.02), "reward": arm == MANY[0], "segment": segment}
    options: dict[str, Any] = {"context": "segment", "reward_range": (0, 1)}
    bandit = Bandit(MANY, "ms+:floor=0.2", reward=Reward(low=0, high=1), seed=1, experiment="e" * 60)
    chosen = bandit.choose(unit=LONG[:200], size=300)
    names = [f"ms+:booster={number}" for number in range(1, 31)]
    run = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=1000, seed=1)
    first = policies.FixedArm(MANY[0])
    return SimpleNamespace(
        table=table,
        options=options,
        bandit=bandit,
        decision=chosen[0],
        result=simulate(names, "gaussian-equal:arms=10", horizon=200, trials=100),
        summary=simulate(names, "gaussian-equal:arms=10", horizon=200, trials=100, keep="summary"),
        report=evaluate(table, first, **options),
        comparison=compare(table, first, policies.FixedArm(MANY[1]), **options),
        segments=evaluate(table, first, by="segment", min_segment_rows=10, max_segments=50, **options),
        rule=learn_rule(table, "segment", **options),
        replay=replay(run, "ms+", horizon=100),
        plan=plan("bernoulli:0.5,0.3", 100, runs=3, decays=(0.7,)),
        bernoulli=problems.Bernoulli(np.linspace(0, 1, ARMS)),
    )


def tally() -> Tally:
    return Tally(np.full(ARMS, 7), np.full(ARMS, 0.1 + 0.2))


def linear_tally() -> LinearTally:
    made = LinearTally.empty(features=2, arms=ARMS)
    made.add([1, 0.5], 1 / 3, arm=2)
    return made


def segment_tally() -> SegmentTally:
    return SegmentTally(ARMS, {name: Tally.empty(ARMS) for name in MANY[:50]})


def classification() -> problems.Classification:
    return problems.Classification(np.zeros((500, 20)), np.arange(500) % 7)


def long_log() -> simulation.Log:
    """A log of five million rounds, in little memory."""
    zeros = np.broadcast_to(np.float64(0), ROWS)
    arms, every = np.broadcast_to(0, ROWS), np.broadcast_to(np.float64(0), (ROWS, 10))
    return simulation.Log(arms, zeros, zeros, every, 10, {"policy": LONG})


def sampler(rng: np.random.Generator, arm: int) -> float:
    return float(rng.random() + arm)


# How to make a large instance of each public class; of a base class, an instance of a subclass.
INSTANCES: dict[str, Callable[[], Any]] = {
    "Advice": lambda: fresh().Advice,
    "AsyncClient": lambda: AsyncClient(URL, "mk_secret", experiment="home"),
    "Bandit": lambda: large().bandit,
    "Batched": lambda: problems.Batched(10),
    "Bernoulli": lambda: large().bernoulli,
    "Bounded": lambda: problems.Bounded(np.full((ARMS, 3), 1 / 3), [0.0, 0.5, 1.0]),
    "Classification": classification,
    "Client": lambda: Client(URL, "mk_secret"),
    "Comparison": lambda: large().comparison,
    "ContextBlock": lambda: next(classification().contexts(np.random.default_rng(1), 100)),
    "ContextualProblem": lambda: problems.Linear(arms=3, dim=2),
    "Custom": lambda: problems.Custom(sampler, np.zeros(ARMS)),
    "Decision": lambda: large().decision,
    "DecisionLog": lambda: read_log(large().table),
    "Delay": lambda: problems.Fixed(3),
    "Distribution": lambda: policy("uniform").distribution(tally()),
    "DynamicBernoulli": lambda: problems.DynamicBernoulli(ARMS),
    "Estimate": lambda: large().report["snips"],
    "ExplorationPlan": lambda: large().plan,
    "Exponential": lambda: problems.Exponential(np.full(ARMS, 1 / 3)),
    "Features": lambda: Features(dict.fromkeys(MANY[:200], bool)),
    "Fixed": lambda: problems.Fixed(3),
    "Gaussian": lambda: problems.Gaussian(np.full(ARMS, 1 / 3)),
    "Geometric": lambda: problems.Geometric(1 / 3),
    "Guarantees": lambda: policies.MOSS.guarantees,
    "LearnedRule": lambda: large().rule,
    "Linear": lambda: problems.Linear(arms=ARMS, dim=50, coefficients=np.zeros((ARMS, 50))),
    "LinearTally": linear_tally,
    "Log": long_log,
    "Poisson": lambda: problems.Poisson(np.full(ARMS, 1 / 3)),
    "Problem": lambda: large().bernoulli,
    "Pruned": lambda: decisions.Pruned(
        experiment=LONG, source=LONG, decisions=ROWS, commit=3, hash="0" * 64, dry_run=True
    ),
    "Replay": lambda: large().replay,
    "Report": lambda: large().report,
    "Result": lambda: large().result,
    "Reward": lambda: Reward(low=-1e9 / 3, high=1e9 / 7, window="30d", default=1 / 3),
    "RewardDistribution": lambda: make("Bernoulli").reward_distribution(),
    "SegmentTally": segment_tally,
    "Segmented": lambda: problems.Segmented(dict.fromkeys(MANY[:100], large().bernoulli)),
    "Segments": lambda: large().segments,
    "Summary": lambda: large().summary,
    "Tally": tally,
    "UniformNoise": lambda: problems.UniformNoise(np.full(ARMS, 1 / 3)),
    "Verification": lambda: verify(large().bandit),
    # Exceptions and warnings.
    "InvalidLog": lambda: errors.InvalidLog(LONG, MANY, LONG),
    "InvalidValue": lambda: errors.InvalidValue(LONG, MANY, LONG),
    "UnknownName": lambda: errors.UnknownName(LONG, LONG, MANY),
    # Policies that need more than a reward range and a horizon.
    "FixedArm": lambda: policies.FixedArm(LONG),
    "FixedDistribution": lambda: policies.FixedDistribution(dict.fromkeys(MANY, 1 / ARMS)),
    "LinearBoltzmann": lambda: policy("lin-boltzmann", reward_range=(0, 1), eta=1 / 3),
    "SegmentedPolicy": lambda: policies.SegmentedPolicy(policy=policy("kl-ms+")),
    "WithFloor": lambda: policies.WithFloor(policy("kl-ms+"), np.full(ARMS, 1e-4 / 3)),
}


def public_classes() -> dict[str, type]:
    """Every public class by its name."""
    found: dict[str, type] = {}
    for package in PACKAGES:
        module = importlib.import_module(f"maillard.{package}")
        found |= {
            name: getattr(module, name) for name in module.__all__ if inspect.isclass(getattr(module, name))
        }
    top = {name: getattr(maillard, name) for name in dir(maillard)}
    return found | {name: thing for name, thing in top.items() if inspect.isclass(thing)}


def make(name: str) -> Any:
    """An instance of a public class; fails for a class that is in neither table."""
    cls = public_classes()[name]
    if name in INSTANCES:
        return INSTANCES[name]()
    if issubclass(cls, BaseException):
        return cls(LONG[:60])
    if issubclass(cls, Policy) and cls in Policy.registry.values():
        return policy(cls.name, reward_range=(0, 1), horizon=1000)
    subclass = {
        "Policy": "ms", "Sampled": "ms", "Indexed": "ucb1", "Perturbed": "ts", "LinearPolicy": "lin-ms",
        "LinearSampled": "lin-ms", "LinearIndexed": "lin-ucb", "LinearNoise": "lin-ts",
    }  # fmt: skip
    return policy(subclass[name], reward_range=(0, 1))
