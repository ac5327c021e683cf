"""Live decisions with auditable probabilities, and their durable log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maillard.decisions.bandit import Bandit
    from maillard.decisions.decision import Decision
    from maillard.decisions.log import DecisionLog
    from maillard.decisions.opening import export_changes, import_log, read_log, write_log
    from maillard.decisions.pruning import Pruned, prune
    from maillard.decisions.reward_rule import Reward
    from maillard.decisions.verification import Verification, verify

__all__ = [
    "Bandit",
    "Decision",
    "DecisionLog",
    "Pruned",
    "Reward",
    "Verification",
    "export_changes",
    "import_log",
    "prune",
    "read_log",
    "verify",
    "write_log",
]

# Modules are imported on first use: the client needs some modules of this package, but not NumPy.
_MODULES = {
    "bandit": ("Bandit",),
    "decision": ("Decision",),
    "log": ("DecisionLog",),
    "opening": ("export_changes", "import_log", "read_log", "write_log"),
    "pruning": ("Pruned", "prune"),
    "reward_rule": ("Reward",),
    "verification": ("Verification", "verify"),
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
