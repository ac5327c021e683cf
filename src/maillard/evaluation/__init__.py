"""What other policies would have earned, from the log of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maillard.evaluation.comparing import Comparison, compare
    from maillard.evaluation.evaluating import evaluate, evaluate_each, names
    from maillard.evaluation.evaluation_report import Estimate, Report
    from maillard.evaluation.planning import ExplorationPlan, plan
    from maillard.evaluation.replays import Replay, replay

__all__ = [
    "Comparison",
    "Estimate",
    "ExplorationPlan",
    "Replay",
    "Report",
    "compare",
    "evaluate",
    "evaluate_each",
    "names",
    "plan",
    "replay",
]

# Imported when they are asked for: numba is, and who wants a part of this room need not wait for all of it.
_LATER = {
    name: module
    for module, them in {
        "comparing": ("Comparison", "compare"),
        "evaluating": ("evaluate", "evaluate_each", "names"),
        "planning": ("ExplorationPlan", "plan"),
        "replays": ("Replay", "replay"),
        "evaluation_report": ("Estimate", "Report"),
    }.items()
    for name in them
}


def __getattr__(name: str) -> object:
    """A name of this room."""
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
