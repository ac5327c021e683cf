"""The cells of the study, their order, and the constants that define its statistics."""

from __future__ import annotations

from typing import Any

from maillard.problems import problem as problem_of

HORIZON = 20_000  # the paper's
WIDE = 100  # with this many arms, a round costs much more
BOOSTERS = (1, 2, 4, 8, 16, 32, 64, 128)
BOOSTED = tuple(f"ms+:booster={booster}" for booster in BOOSTERS)
OTHERS = ("ms", "ts", "ts-sg", "aoucb", "ucb+", "ocucb", "moss")
PROBLEMS = tuple(
    f"{noise}-{gaps}:arms={arms}{',variance=1' * (noise == 'gaussian')}"
    for noise in ("gaussian", "bernoulli")
    for gaps, counts in (("equal", (2, 10, 100)), ("linear", (10, 100)))
    for arms in counts
)
KL_BOOSTED = tuple(f"kl-ms+:booster={booster}" for booster in BOOSTERS)
# Click rates: few clicks, many clicks, and very few clicks.
CLICKS = (
    "bernoulli:0.05,0.08,0.04,0.06",
    "bernoulli:0.5,0.6,0.4,0.55",
    "bernoulli:0.01,0.013,0.008,0.011",
)
CANDIDATES = (4, 8)  # for the default booster of KL-MS+
QUANTILES = ("0.5", "0.9", "0.95", "0.99", "0.999", "0.9999", "0.99999")
QUOTED = "ms+:booster=16"  # the paper quotes its largest regret
# A trial is linear if its regret exceeds this fraction of the largest possible: the regret of choosing
# the worst arm in this fraction of all rounds.
LINEAR = 0.1
CONFIDENCE = 0.95  # level of every interval
ENOUGH = 10  # linear trials needed to compute a growth rate


def order() -> list[tuple[str, str]]:
    """Return the (problem, policy) pairs: boosted policies before the others, few arms before many."""
    groups = (BOOSTED, PROBLEMS), (KL_BOOSTED, kl_problems()), (OTHERS, PROBLEMS)
    return [
        (problem, spec)
        for policies, problems in groups
        for problem in sorted(problems, key=lambda problem: problem_of(problem).gaps.size)
        for spec in policies
    ]


def trials_of(problem: str, spec: str, settings: dict[str, Any]) -> int:
    """Return the number of trials of a cell."""
    if spec not in (*BOOSTED, *KL_BOOSTED):
        return int(settings["others"])
    return int(settings["wide" if problem_of(problem).arms >= WIDE else "trials"])


def noises() -> list[str]:
    """Return the reward distributions of the problems: gaussian, bernoulli."""
    return list(dict.fromkeys(problem.partition("-")[0] for problem in PROBLEMS))


def with_noise(noise: str) -> list[str]:
    """Return the problems with this reward distribution."""
    return [problem for problem in PROBLEMS if problem.startswith(noise)]


def kl_problems() -> tuple[str, ...]:
    """Return the problems that KL-MS+ is run on: the Bernoulli problems of the paper, and click rates."""
    return (*with_noise("bernoulli"), *CLICKS)
