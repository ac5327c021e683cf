"""What other policies would have earned, from the log of one."""

from __future__ import annotations

from maillard.evaluation.comparing import Comparison, compare
from maillard.evaluation.evaluating import evaluate, evaluate_each, names
from maillard.evaluation.planning import Plan, plan
from maillard.evaluation.replays import Replay, replay
from maillard.evaluation.report import Estimate, Report

__all__ = [
    "Comparison",
    "Estimate",
    "Plan",
    "Replay",
    "Report",
    "compare",
    "evaluate",
    "evaluate_each",
    "names",
    "plan",
    "replay",
]
