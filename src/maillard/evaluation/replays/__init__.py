"""Replay: the learning curve that another policy would have had on a log."""

from __future__ import annotations

from maillard.evaluation.replays.replay_result import Replay
from maillard.evaluation.replays.replay_runner import replay

__all__ = ["Replay", "replay"]
