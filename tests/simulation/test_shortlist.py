"""The shortlist engine chooses among exactly the arms that the policy's formula prefers, in every round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import maillard
from maillard import problems
from maillard.simulation import compiling
from maillard.simulation import policy_formulas as formulas
from maillard.simulation.compiled_plans import DIRECT, LAZY, PLAIN, SHORTLIST, engines_for
from maillard.simulation.cpu_backend import run_trials
from maillard.simulation.engines import shortlist
from maillard.simulation.plans import Plan
from maillard.tally import Tally
from tests.conftest import NAMES, VARIANTS
from tests.simulation.test_engines import SURE, chi_square, compare, plan_of

GAUSSIAN, TIES = "gaussian-linear:arms=40", "bernoulli-equal:arms=40"
FEW, EVEN = "gaussian-equal:arms=6", "bernoulli:0.5,0.5,0.5,0.4"
SPECS = ["ucb1", "aoucb", "ucb+", "ocucb", "moss", "imed", "apt"]
DECLARED = [
    spec
    for spec in [*NAMES, *VARIANTS]
    if formulas.index_form(plan_of(spec, "bernoulli:0.5,0.4", 10, 0).policy) not in (None, "constant")
]


def policy_arguments(policy: maillard.Policy) -> tuple[np.ndarray, Any]:
    """Return what engines get as `f`, and what keeps the addresses in it valid."""
    parameters = compiling.parameters_of(policy)
    address, made = compiling.address_of(policy, "index", 5)
    code = formulas.INDEX_FORMS[formulas.index_form(policy) or ""]
    return np.array([parameters.ctypes.data, address, 0, 0, code]), (parameters, made)


def wrong_rounds(spec: str, text: str, horizon: int, mixed: float) -> int:
    """Run the engine as Python; count the rounds in which its winners are not those of the policy.

    A random arm is pulled with probability `mixed`, as by a policy with a floor.
    """
    plan, rng, wrong = plan_of(spec, text, horizon, 0), np.random.default_rng(7), 0
    f, _alive = policy_arguments(plan.policy)
    arms, binary = plan.problem.arms, plan.problem.binary
    means, w, tally = plan.problem.true_means, shortlist.begin(arms), Tally.empty(arms)
    with np.errstate(all="ignore"):
        for t in range(1, horizon + 1):
            arm = t - 1
            if t > arms:
                arm = shortlist.choose(f, w, arms, t, rng)
                winners = {
                    int(each) for each in w[shortlist.WINNER, : int(w[shortlist.STATE, shortlist.WINNERS])]
                }
                p = plan.policy.probabilities(tally, round=t)
                wrong += winners != set(np.flatnonzero(p).tolist()) or arm not in winners
                if rng.random() < mixed:
                    arm = int(rng.integers(arms))
            reward = float(rng.random() < means[arm]) if binary else float(rng.normal(means[arm], 0.5))
            shortlist.update(f, w, arms, arm, reward, t + 1)
            tally.add(arm, reward)
    return wrong


@pytest.mark.parametrize("mixed", [0.0, 0.2])
@pytest.mark.parametrize("text", [GAUSSIAN, TIES, FEW, EVEN])
@pytest.mark.parametrize("spec", SPECS)
def test_winners_are_those_of_the_formula(spec, text, mixed) -> None:
    assert wrong_rounds(spec, text, 500, mixed) == 0
