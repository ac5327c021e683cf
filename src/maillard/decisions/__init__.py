"""Live decisions with auditable probabilities, and their durable log."""

from __future__ import annotations

from maillard.decisions.bandit import Bandit
from maillard.decisions.decision import Decision
from maillard.decisions.log import DecisionLog
from maillard.decisions.opening import import_log, read_log, write_log
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
    "import_log",
    "prune",
    "read_log",
    "verify",
    "write_log",
]
