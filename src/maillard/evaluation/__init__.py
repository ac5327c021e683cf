"""Off-policy evaluation: estimate from a log what other policies would have earned."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maillard.evaluation.advising import Advice, advise
    from maillard.evaluation.comparing import Comparison, compare
    from maillard.evaluation.evaluating import evaluate, evaluate_each, names
    from maillard.evaluation.evaluation_report import Estimate, Report
    from maillard.evaluation.planning import ExplorationPlan, plan
    from maillard.evaluation.replays import Replay, replay
    from maillard.evaluation.rule_learning import LearnedRule, learn_rule
    from maillard.evaluation.segments import Segments

__all__ = [
    "Advice",
    "Comparison",
    "Estimate",
    "ExplorationPlan",
    "LearnedRule",
    "Replay",
    "Report",
    "Segments",
    "advise",
    "compare",
    "evaluate",
    "evaluate_each",
    "learn_rule",
    "names",
    "plan",
    "replay",
]

# Modules are imported on first use: importing numba takes long, and few callers need all of this package.
_MODULES = {
    "advising": ("Advice", "advise"),
    "comparing": ("Comparison", "compare"),
    "evaluating": ("evaluate", "evaluate_each", "names"),
    "evaluation_report": ("Estimate", "Report"),
    "planning": ("ExplorationPlan", "plan"),
    "replays": ("Replay", "replay"),
    "rule_learning": ("LearnedRule", "learn_rule"),
    "segments": ("Segments",),
}


def __getattr__(name: str) -> object:
    """Import the module that defines a public name of this package."""
    for module, defined in _MODULES.items():
        if name in defined:
            import importlib

            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
