"""The price of a floor: before an experiment, what each floor costs in regret and what it buys in certainty."""

from __future__ import annotations

from maillard.evaluation.planning.experiment import plan
from maillard.evaluation.planning.options import Option, Plan

__all__ = ["Option", "Plan", "plan"]
