"""A problem made from logged rewards, for the policies that are replayed on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.errors import InvalidValue
from maillard.evaluation.replays.logged_rows import LoggedRows
from maillard.problems import Problem


@dataclass(frozen=True)
class LoggedProblem(Problem):
    """A log in place of a problem: the properties of its rewards that a policy needs."""

    means: tuple[float, ...]
    limits: tuple[float, float]
    known_sigma2: float | None
    two_valued: bool
    name: ClassVar[str] = "logged"

    @property
    def support(self) -> tuple[float, float]:
        return self.limits

    @property
    def binary(self) -> bool:  # type: ignore[override]  # a class variable elsewhere
        return self.two_valued

    @property
    def positive(self) -> bool:
        return self.limits[0] > 0.0

    @property
    def sigma2(self) -> float | None:
        return self.known_sigma2


def reward_variances(logs: Sequence[LoggedRows]) -> Floats:
    """The variance of the rewards of each arm over all logs.

    An arm with fewer than two rewards gets the variance of all rewards.
    """
    arm = np.concatenate([each.arm for each in logs])
    reward = np.concatenate([each.reward for each in logs])[arm >= 0]
    arm, k = arm[arm >= 0], len(logs[0].arms)
    n = np.bincount(arm, minlength=k)
    means = np.bincount(arm, reward, minlength=k) / np.maximum(n, 1)
    squares = np.bincount(arm, (reward - means[arm]) ** 2, minlength=k)
    pooled = float(np.var(reward)) if reward.size else 0.0
    return np.where(n > 1, squares / np.maximum(n - 1, 1), pooled)


def problem_of_logs(logs: Sequence[LoggedRows]) -> LoggedProblem:
    """The rewards of the logs as a problem; all logs must have the same arms and reward range."""
    reward = np.concatenate([each.reward for each in logs])
    first = logs[0]
    for each in logs[1:]:
        for name in ("arms", "logged_arms", "reward_range"):
            value, expected = getattr(each, name), getattr(first, name)
            if value != expected:
                raise InvalidValue(f"{each.source}: {name}", value, f"{expected}, as in the first log")
    return LoggedProblem(
        (float(reward.mean()),) * len(first.arms),
        (float(reward.min()), float(reward.max())),
        first.sigma2,
        bool(((reward == 0) | (reward == 1)).all()),
        label=first.source,
    )
