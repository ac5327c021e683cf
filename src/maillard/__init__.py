"""Bandits that report the exact probability of every choice, with simulation, logging and evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maillard import errors, policies, problems
from maillard.errors import *  # noqa: F403  # every exception
from maillard.exploration import explore
from maillard.linear_tally import LinearTally
from maillard.policies import *  # noqa: F403  # every policy class; the registry finds them
from maillard.segment_tally import SegmentTally
from maillard.tally import Tally

if TYPE_CHECKING:
    # `as` marks a name as exported: type checkers cannot see the list that is assembled below.
    from maillard.client import AsyncClient as AsyncClient
    from maillard.client import Client as Client
    from maillard.decisions import Bandit as Bandit
    from maillard.decisions import Decision as Decision
    from maillard.decisions import Reward as Reward
    from maillard.decisions import read_log as read_log
    from maillard.decisions import verify as verify
    from maillard.evaluation import compare as compare
    from maillard.evaluation import evaluate as evaluate
    from maillard.evaluation import evaluate_each as evaluate_each
    from maillard.evaluation import plan as plan
    from maillard.evaluation import replay as replay
    from maillard.policies.exports import *  # noqa: F403  # the policy classes, for type checkers
    from maillard.simulation import Result as Result
    from maillard.simulation import Summary as Summary
    from maillard.simulation import simulate as simulate
    from maillard.simulation import simulate_log as simulate_log

__version__ = "0.1.0"

# Names that need heavy packages, by the module that defines them. `__getattr__` imports them at first use.
_LAZY_MODULES = {
    "maillard.client": ("AsyncClient", "Client"),
    "maillard.decisions": ("Bandit", "Decision", "Reward", "read_log", "verify"),
    "maillard.evaluation": ("compare", "evaluate", "evaluate_each", "plan", "replay"),
    "maillard.simulation": ("Result", "Summary", "simulate", "simulate_log"),
}
_LAZY = {name: module for module, names in _LAZY_MODULES.items() for name in names}

__all__ = [  # noqa: PLE0604  # assembled from the modules above
    "LinearTally",
    "SegmentTally",
    "Tally",
    "explore",
    "policies",
    "problems",
    *errors.__all__,
    *policies.__all__,
    *_LAZY,
]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
