"""A policy of every name. Needs no package that only the tests need."""

from __future__ import annotations

from typing import Any

import maillard
from maillard import Policy

# Policies that need a context are tested in tests/policies/test_linear_policies.py.
NAMES = [name for name in maillard.policies.names() if not maillard.uses_context(name)]
VARIANTS = [
    "boltzmann:schedule=log,eta=3",
    "kl-ms:jeffreys=true",
    "kl-ms+:jeffreys=true",
    "kl-ucb++:anytime=true",
    "kl-ucb:c=3",
    "ts:scale=0.25",
    "ucb1:scale=0.5",
    "giro:a=0.3",
    "phe:a=1.1",
    *(
        f"{name}:family={family}"
        for name in ("ms-exponential-family", "med", "imed", "dmed", "kl-ucb", "kl-ucb++")
        for family in ("gaussian", "bernoulli", "poisson", "exponential")
    ),
]


def make(spec: str) -> Policy:
    """The policy of a spec, with a sigma2 and a horizon."""
    return maillard.policy(spec, sigma2=0.25, horizon=10**6)


def runs_on(plan: Any) -> bool:
    """Whether a policy can run on a problem."""
    from maillard.simulation.plans import check_plan

    try:
        check_plan(plan)
    except maillard.InvalidValue:
        return False
    return True
