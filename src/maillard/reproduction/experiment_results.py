"""The results of a run, as the claims and pictures ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from maillard.reproduction.paper_experiments import ExperimentPart, Settings
from maillard.simulation import Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["ExperimentResults"]


@dataclass(frozen=True, eq=False)
class ExperimentResults:
    """What every part of a run gave."""

    settings: Settings
    parts: Mapping[ExperimentPart, Result]

    def experiments(self) -> set[str]:
        """Which experiments were run."""
        return {part.experiment for part in self.parts}

    def problems(self, experiment: str) -> list[str]:
        """An experiment's problems, in order."""
        return [part.problem for part in self.parts if part.experiment == experiment]

    def result(self, experiment: str, problem: str | None = None) -> Result:
        """An experiment's result on a problem; on its only one, if none is named."""
        (found,) = [
            result
            for part, result in self.parts.items()
            if part.experiment == experiment and problem in (None, part.problem)
        ]
        return found

    def regret(self, experiment: str, problem: str | None, policy: str, share: float = 1.0) -> Floats:
        """Each trial's regret at the horizon, or at a share of it that is a checkpoint."""
        result = self.result(experiment, problem)
        place = int(np.searchsorted(result.rounds, np.ceil(result.rounds[-1] * share - 1e-6)))
        return result.values[result.policies.index(policy), :, place]
