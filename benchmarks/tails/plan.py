"""What is run, in which order, and what counts as what."""

from __future__ import annotations

from typing import Any

from maillard.problems import problem as problem_of

HORIZON = 20_000  # as the paper has
WIDE = 100  # arms from which on a round costs much more
BOOSTERS = (1, 2, 4, 8, 16, 32, 64, 128)
BOOSTED = tuple(f"ms+:booster={booster}" for booster in BOOSTERS)
OTHERS = ("ms", "ts", "ts-sg", "aoucb", "ucb+", "ocucb", "moss")
PROBLEMS = tuple(
    f"{noise}-{gaps}:arms={arms}{',variance=1' * (noise == 'gaussian')}"
    for noise in ("gaussian", "bernoulli")
    for gaps, counts in (("equal", (2, 10, 100)), ("linear", (10, 100)))
    for arms in counts
)
QUANTILES = ("0.5", "0.9", "0.95", "0.99", "0.999", "0.9999", "0.99999")
QUOTED = "ms+:booster=16"  # of which the paper quotes the largest regret
# Of the worst possible regret: what is above is as if a share of all rounds had gone to the worst arm.
LINEAR = 0.1
CONFIDENCE = 0.95  # of every interval
ENOUGH = 10  # trials above the line from which on a growth rate is computed


def order() -> list[tuple[str, str]]:
    """Problems and policies: all of MS+ first, and what is quick, which are few arms, before what is slow."""
    problems = sorted(PROBLEMS, key=lambda problem: problem_of(problem).gaps.size)
    return [(problem, spec) for group in (BOOSTED, OTHERS) for problem in problems for spec in group]


def trials_of(problem: str, spec: str, settings: dict[str, Any]) -> int:
    """How many trials a cell gets."""
    if spec not in BOOSTED:
        return int(settings["others"])
    return int(settings["wide" if problem_of(problem).arms >= WIDE else "trials"])


def noises() -> list[str]:
    """The noises of the problems."""
    return list(dict.fromkeys(problem.partition("-")[0] for problem in PROBLEMS))


def with_noise(noise: str) -> list[str]:
    """The problems with a noise."""
    return [problem for problem in PROBLEMS if problem.startswith(noise)]
