"""Had I used B: the learning curve of another policy on a log."""

from __future__ import annotations

from maillard.evaluation.replays.replaying import replay
from maillard.evaluation.replays.result import Replay

__all__ = ["Replay", "replay"]
