"""The formulas are pure and elementwise: numba compiles them for scalars, to the same numbers."""

from __future__ import annotations

import collections
import inspect
import types
from typing import Any

import numba
import numpy as np
import pytest

import maillard
from maillard import Policy
from maillard.policies.numerics import families
from tests.conftest import NAMES, make

SPECS = [
    name
    for name in [
        *NAMES,
        "kl-ms:jeffreys=true",
        "boltzmann:schedule=log",
        "med:family=poisson",
        "imed:family=exponential",
        "kl-ucb:family=exponential",
        "kl-ucb:family=poisson",
        "kl-ucb++:anytime=true",
    ]
    if isinstance(make(name), maillard.Sampled | maillard.Indexed) and name not in ("ocucb-n", "adaucb")
]

for _function in (
    families.residual,
    families.evidence,
    *(f for family in families.FAMILIES.values() for f in family[:2]),
):
    numba.extending.register_jitable(_function)


def parameters(policy: Policy) -> Any:
    """The policy as numba sees it: its numbers, and the functions of its family."""
    values = {name: getattr(policy, name) for name, _, _ in policy.parameters()}
    values = {name: 0.0 if value is None else value for name, value in values.items() if name != "family"}
    for name in ("divergence", "upper"):
        if hasattr(policy, name):
            values[name] = numba.njit(getattr(policy, name))
    return collections.namedtuple("Parameters", values)(**values)


def formulas(policy: Policy) -> list[types.FunctionType]:
    names = ("leader", "rival", "estimate") if isinstance(policy, maillard.Sampled) else ("index",)
    return [getattr(type(policy), name) for name in names]


@pytest.mark.parametrize("spec", SPECS)
def test_formulas_compile_to_the_same_numbers(spec) -> None:
    policy = make(spec)
    mean = np.array([0.25, 0.5, 0.625])
    given = {
        "n": np.array([8.0, 4.0, 16.0]),
        "t": 29,
        "mean": mean,
        "best": 0.75,
        "k": 3,
        "s": np.array([2.0, 2.0, 10.0]),
    }
    for formula in formulas(policy):
        names = list(inspect.signature(formula).parameters)[1:]
        with np.errstate(all="ignore"):
            vector = np.broadcast_to(formula(policy, *(given[name] for name in names)), 3)
        compiled = numba.njit(formula)
        for arm in range(3):
            scalars = [float(np.broadcast_to(given[name], 3)[arm]) for name in names]
            assert compiled(parameters(policy), *scalars) == pytest.approx(vector[arm], rel=1e-14, abs=1e-300)
