"""What a policy and an interval must know of a log's rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from maillard.errors import InvalidValue
from maillard.problems import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.evaluation.replays.logged_rows import LoggedRows

__all__ = ["LoggedProblem", "problem_of_logs", "variances_of"]


@dataclass(frozen=True)
class LoggedProblem(Problem):
    """A log in the place of a problem: what a policy must know of its rewards."""

    means: tuple[float, ...]
    limits: tuple[float, float]
    known_sigma2: float | None
    two_valued: bool
    name: ClassVar[str] = "logged"

    @property
    def support(self) -> tuple[float, float]:
        return self.limits

    @property
    def binary(self) -> bool:  # type: ignore[override]  # of every log its own
        return self.two_valued

    @property
    def positive(self) -> bool:  # type: ignore[override]  # the same
        return self.limits[0] > 0.0

    @property
    def sigma2(self) -> float | None:
        return self.known_sigma2


def variances_of(logs: Sequence[LoggedRows]) -> NDArray[np.float64]:
    """The variance of each arm's rewards in all logs; of all rewards, for an arm that has less than two."""
    arm = np.concatenate([each.arm for each in logs])
    reward = np.concatenate([each.reward for each in logs])[arm >= 0]
    arm, k = arm[arm >= 0], len(logs[0].arms)
    n = np.bincount(arm, minlength=k)
    means = np.bincount(arm, reward, minlength=k) / np.maximum(n, 1)
    squares = np.bincount(arm, (reward - means[arm]) ** 2, minlength=k)
    pooled = float(np.var(reward)) if reward.size else 0.0
    return np.where(n > 1, squares / np.maximum(n - 1, 1), pooled)


def problem_of_logs(logs: Sequence[LoggedRows]) -> LoggedProblem:
    """The logs' rewards, as far as a policy must know of them."""
    reward = np.concatenate([each.reward for each in logs])
    first = logs[0]
    for each in logs[1:]:
        for name in ("arms", "logged_arms", "reward_range"):
            if getattr(each, name) != getattr(first, name):
                raise InvalidValue(
                    f"{each.source}: {name}",
                    getattr(each, name),
                    f"{getattr(first, name)}, as in the first log",
                )
    return LoggedProblem(
        (float(reward.mean()),) * len(first.arms),
        (float(reward.min()), float(reward.max())),
        first.sigma2,
        bool(((reward == 0) | (reward == 1)).all()),
        label=first.source,
    )
