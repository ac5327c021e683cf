"""Bandits that report the exact probability of every choice, with simulation, logging and evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maillard import errors
from maillard.errors import *  # noqa: F403  # every exception

if TYPE_CHECKING:
    # `as` marks a name as exported: type checkers cannot see what `__getattr__` finds.
    from maillard import client as client
    from maillard import decisions as decisions
    from maillard import evaluation as evaluation
    from maillard import features as features
    from maillard import policies as policies
    from maillard import problems as problems
    from maillard import service as service
    from maillard import simulation as simulation
    from maillard.client import AsyncClient as AsyncClient
    from maillard.client import Client as Client
    from maillard.decisions import Bandit as Bandit
    from maillard.decisions import Decision as Decision
    from maillard.decisions import Reward as Reward
    from maillard.decisions import prune as prune
    from maillard.decisions import read_log as read_log
    from maillard.decisions import verify as verify
    from maillard.evaluation import advise as advise
    from maillard.evaluation import compare as compare
    from maillard.evaluation import evaluate as evaluate
    from maillard.evaluation import evaluate_each as evaluate_each
    from maillard.evaluation import learn_rule as learn_rule
    from maillard.evaluation import plan as plan
    from maillard.evaluation import replay as replay
    from maillard.exploration import explore as explore
    from maillard.features import Features as Features
    from maillard.features import hashed as hashed
    from maillard.linear_tally import LinearTally as LinearTally
    from maillard.policies import *  # noqa: F403  # every policy class
    from maillard.segment_tally import SegmentTally as SegmentTally
    from maillard.simulation import Result as Result
    from maillard.simulation import Summary as Summary
    from maillard.simulation import simulate as simulate
    from maillard.simulation import simulate_log as simulate_log
    from maillard.tally import Tally as Tally

__version__ = "0.1.0"

# Public names, by the module that defines them. `__getattr__` imports them at first use: the client does not
# need NumPy, and few programs need all of the others.
_LAZY_MODULES = {
    "maillard.client": ("AsyncClient", "Client"),
    "maillard.decisions": ("Bandit", "Decision", "Reward", "prune", "read_log", "verify"),
    "maillard.evaluation": (
        "advise",
        "compare",
        "evaluate",
        "evaluate_each",
        "learn_rule",
        "plan",
        "replay",
    ),
    "maillard.exploration": ("explore",),
    "maillard.features": ("Features", "hashed"),
    "maillard.linear_tally": ("LinearTally",),
    "maillard.policies": (
        "choice",
        "flag",
        "names",
        "policy",
        "policy_class",
        "real",
        "uses_context",
        "whole",
    ),
    "maillard.segment_tally": ("SegmentTally",),
    "maillard.simulation": ("Result", "Summary", "simulate", "simulate_log"),
    "maillard.tally": ("Tally",),
}
_LAZY = {name: module for module, names in _LAZY_MODULES.items() for name in names}
_PACKAGES = (
    "client",
    "decisions",
    "evaluation",
    "features",
    "policies",
    "problems",
    "service",
    "simulation",
)


def __getattr__(name: str) -> object:
    if name == "__all__":
        return _public_names()
    try:
        return _find(name)
    except ModuleNotFoundError as error:
        if error.name != "numpy" and not str(error.name).startswith("maillard."):
            raise
        advice = "only its client is installed: pip install maillard"
        raise ImportError(f"maillard.{name} needs {error.name}; {advice}", name=error.name) from None


def _find(name: str) -> object:
    import importlib

    if name in _PACKAGES:
        return importlib.import_module(f"maillard.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name[:1].isupper():  # the registry finds the policy classes
        policies = importlib.import_module("maillard.policies")
        if name in policies.__all__:
            return getattr(policies, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _public_names() -> list[str]:
    from maillard import policies

    return [*dict.fromkeys([*errors.__all__, *dir(policies), *_PACKAGES, *_LAZY])]


def __dir__() -> list[str]:
    return sorted([*_public_names(), "__version__"])
