"""Exploration you can audit: bandit policies whose every choice comes with its exact probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maillard import policies, problems
from maillard.errors import (
    Archived,
    CannotAnswer,
    Conflict,
    InvalidLog,
    InvalidValue,
    MaillardError,
    OpenWindows,
    Paused,
    Stale,
    Unavailable,
    UnknownName,
)
from maillard.exploration import explore
from maillard.policies import *  # noqa: F403  # every policy's class; found, not listed
from maillard.policies import policy
from maillard.tally import Tally

if TYPE_CHECKING:
    from maillard.client import AsyncClient, Client
    from maillard.decisions import Bandit, Decision, Reward, read_log, verify
    from maillard.evaluation import compare, evaluate, evaluate_each, plan, replay
    from maillard.policies.exports import *  # noqa: F403  # the same, for type checkers
    from maillard.simulation import Result, Summary, simulate, simulate_log

__all__ = [  # noqa: PLE0604  # the policies' classes are found, not listed
    "Archived",
    "AsyncClient",
    "Bandit",
    "CannotAnswer",
    "Client",
    "Conflict",
    "Decision",
    "InvalidLog",
    "InvalidValue",
    "MaillardError",
    "OpenWindows",
    "Paused",
    "Result",
    "Reward",
    "Stale",
    "Summary",
    "Tally",
    "Unavailable",
    "UnknownName",
    "compare",
    "evaluate",
    "evaluate_each",
    "explore",
    "plan",
    "policies",
    "policy",
    "problems",
    "read_log",
    "replay",
    "simulate",
    "simulate_log",
    "verify",
    *policies.__all__,
]
__version__ = "0.1.0"

_LATER = {
    name: room
    for room, names in {
        "maillard.simulation": ("Result", "Summary", "simulate", "simulate_log"),
        "maillard.decisions": ("Bandit", "Decision", "Reward", "read_log", "verify"),
        "maillard.client": ("AsyncClient", "Client"),
        "maillard.evaluation": ("compare", "evaluate", "evaluate_each", "plan", "replay"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    """What needs heavy packages is imported when it is first asked for."""
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
