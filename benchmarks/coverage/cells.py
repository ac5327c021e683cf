"""The cells of the study: three logging policies, three problems, two floors, two horizons."""

from __future__ import annotations

from dataclasses import dataclass

from maillard.policies import Policy, WithFloor, policy
from maillard.problems import UniformNoise

__all__ = ["CELLS", "CONFIDENCE", "FLOORS", "HORIZONS", "LOGGERS", "MEANS", "RANGE", "SIGMA2", "Cell"]

CONFIDENCE = 0.9
HORIZONS = (1000, 10_000)
MEANS = ((1.0, 1.0, 1.0), (0.9, 1.0, 1.1), (0.5, 1.0, 1.5))
WIDTH = 1.0  # rewards are uniform within this distance of their mean
SIGMA2 = WIDTH**2  # Hoeffding's sub-Gaussian parameter of such rewards, (2 width)² / 4; the loggers use it
RANGE = (-0.5, 2.5)  # of all rewards on all three problems; the confidence sequences use it
LOGGERS = {"ms": "MS", "ms+:booster=4,c=0.01,d=0.01": "MS+", "ts": "TS"}
FLOORS = {"t^-0.7": (1.0, 0.7), "5%": (0.05, 0.0)}  # uniform weight in round 1, and its decay


@dataclass(frozen=True)
class Cell:
    """A logging policy with its floor, on a problem."""

    logger: str
    means: tuple[float, ...]
    floor: str

    @property
    def policy(self) -> Policy:
        """p = (1 - s_t) p_logger + s_t / K."""
        weight, decay = FLOORS[self.floor]
        return WithFloor(policy(self.logger, sigma2=SIGMA2), weight, decay=decay)

    @property
    def problem(self) -> UniformNoise:
        """Uniform noise about the means."""
        return UniformNoise(self.means, width=WIDTH)

    def least(self, horizon: int) -> float:
        """The smallest probability of an arm up to the horizon that the floor guarantees."""
        weight, decay = FLOORS[self.floor]
        return weight * float(float(horizon) ** -decay) / len(self.means)

    @property
    def name(self) -> str:
        """The name of the cell in the results file."""
        return f"{LOGGERS[self.logger]}, {', '.join(f'{mean:g}' for mean in self.means)}, {self.floor}"


CELLS = tuple(Cell(logger, means, floor) for floor in FLOORS for logger in LOGGERS for means in MEANS)
