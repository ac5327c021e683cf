"""Planning: what a probability floor costs in regret, and how narrow it makes the intervals, before an experiment."""

from __future__ import annotations

from maillard.evaluation.planning.plan_experiment import plan
from maillard.evaluation.planning.plan_result import ExplorationPlan, PlanOption

__all__ = ["ExplorationPlan", "PlanOption", "plan"]
