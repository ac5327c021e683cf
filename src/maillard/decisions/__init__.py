"""Decisions: choices whose probabilities can be audited, and the durable log of them."""

from __future__ import annotations

from maillard.decisions.bandit import Bandit
from maillard.decisions.records import Decision
from maillard.decisions.rules import Reward

__all__ = ["Bandit", "Decision", "Reward"]
