"""Planning an experiment: the regret and the interval width that a probability floor gives."""

from __future__ import annotations

from maillard.evaluation.planning.plan_experiment import plan
from maillard.evaluation.planning.plan_result import ExplorationPlan, PlanOption

__all__ = ["ExplorationPlan", "PlanOption", "plan"]
