"""The price of a floor: before an experiment, what each floor costs in regret and what it buys in certainty."""

from __future__ import annotations

from maillard.evaluation.planning.plan_experiment import plan
from maillard.evaluation.planning.plan_result import ExplorationPlan, PlanOption

__all__ = ["ExplorationPlan", "PlanOption", "plan"]
