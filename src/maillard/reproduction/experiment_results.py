"""The simulation results of a run, by experiment and problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from maillard.array_types import Floats
from maillard.reproduction.paper_experiments import ExperimentPart, ReproductionSettings
from maillard.simulation import Result


@dataclass(frozen=True, eq=False)
class ExperimentResults:
    """The results of all parts of a run."""

    settings: ReproductionSettings
    parts: Mapping[ExperimentPart, Result]

    def experiments(self) -> set[str]:
        """The names of the experiments that were run."""
        return {part.experiment for part in self.parts}

    def parts_of(self, *experiments: str) -> list[ExperimentPart]:
        """The parts of these experiments, in the order of the run."""
        return [part for part in self.parts if part.experiment in experiments]

    def problems(self, experiment: str) -> list[str]:
        """The problems of an experiment, in order."""
        return [part.problem for part in self.parts_of(experiment)]

    def result(self, experiment: str, problem: str | None = None) -> Result:
        """The result of an experiment on a problem; by default on its only one."""
        (part,) = [part for part in self.parts_of(experiment) if problem in (None, part.problem)]
        return self.parts[part]

    def regret(self, experiment: str, problem: str | None, policy: str, fraction: float = 1.0) -> Floats:
        """The regret of each trial at a fraction of the horizon that is a checkpoint."""
        result = self.result(experiment, problem)
        place = int(np.searchsorted(result.rounds, np.ceil(result.rounds[-1] * fraction - 1e-6)))
        return result.values[result.policies.index(policy), :, place]
