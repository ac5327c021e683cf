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


def test_winners_are_those_of_the_formula_with_short_lists(monkeypatch) -> None:
    monkeypatch.setattr(shortlist, "LIST_ALL", 1)
    assert sum(wrong_rounds(spec, text, 300, 0.1) for spec in SPECS for text in (FEW, EVEN)) == 0


def no_bound(w: Any, length: int, winners: int) -> None:
    w[shortlist.STATE, shortlist.RIVALS] = -np.inf


@pytest.mark.parametrize(
    ("spec", "name", "broken"),
    [
        ("ucb1", "drift", lambda w: 0.0),
        ("ucb1", "are_identical", lambda w, winners: True),
        ("moss", "remove_winner", lambda w, arm: None),
        ("imed", "bound_rivals", no_bound),
    ],
)
def test_a_broken_engine_is_detected(spec, name, broken, monkeypatch) -> None:
    monkeypatch.setattr(shortlist, name, broken)
    assert sum(wrong_rounds(spec, text, 500, 0.2) for text in (GAUSSIAN, TIES)) > 0


@pytest.mark.parametrize("text", ["gaussian-linear:arms=20,variance=0.25", "bernoulli:0.5,0.4,0.4,0.3"])
@pytest.mark.parametrize("spec", SPECS)
def test_shortlist_and_direct_agree_in_distribution(spec, text) -> None:
    fast, direct = plan_of(spec, text, 200, 1, SHORTLIST), plan_of(spec, text, 200, 2, DIRECT)
    assert min(compare(fast, direct, 1000)) > SURE


@pytest.mark.parametrize("spec", ["ucb1", "moss", "imed", "ucb1:floor=0.3"])
def test_choices_of_the_frozen_engine_match_the_probabilities_of_its_tally(spec) -> None:
    for text, t in (("bernoulli-equal:arms=40", 400), ("bernoulli:0.5,0.5,0.5,0.4", 12)):
        plan = plan_of(spec, text, t, 5, SHORTLIST)
        made = run_trials(plan, 3, 1, choices=200_000)
        assert chi_square(made.choices, plan.policy.probabilities(made.tally)) > SURE


def form_of_index(policy: maillard.Indexed, n: Any, mean: Any, best: float, t: int, k: int) -> Any:
    """Return the index by the form that the policy declares."""
    if policy.index_form == "root":
        return mean + policy.index(1.0, 0.0, 0.0, t, k) / np.sqrt(n)
    weight = -policy.index(1.0, 0.0, 1.0, t, k)
    return -(np.log(n) + n * weight * (mean - best) ** 2)


def form_errors(policy: maillard.Indexed) -> Any:
    """Return the errors of the declared form on random tallies, relative to what the engine allows for."""
    rng = np.random.default_rng(1)
    n, mean = np.floor(np.exp(rng.uniform(0, 12, 2000))), rng.uniform(-1, 1, 2000)
    t, best = int(n.sum()), mean.max()
    index, form = policy.index(n, mean, best, t, n.size), form_of_index(policy, n, mean, best, t, n.size)
    return abs(index - form) / (shortlist.ROUNDING * (abs(mean) + abs(form)))


@pytest.mark.parametrize("spec", DECLARED)
def test_the_index_has_the_declared_form(spec) -> None:
    policy = plan_of(spec, "bernoulli:0.5,0.4", 10**9, 0).policy
    assert isinstance(policy, maillard.Indexed)
    assert form_errors(policy).max() < 0.25


class Wide(maillard.UCB1):
    """Repeats the declarations of UCB1 for an index of another form."""

    monotone = True
    index_form = "root"

    def index(self, n, mean, best, t, k):
        return mean + np.sqrt(np.log(t) / (n + 1.0))


class Late(maillard.MOSS):
    """Claims that an index does not depend on t."""

    monotone = True

    def index(self, n, mean, best, t, k):
        return mean + np.log(t) / n


@pytest.mark.parametrize("made", [Wide(sigma2=0.25), Late(sigma2=0.25, horizon=100)])
def test_a_false_form_is_detected(made) -> None:
    plan = Plan(made, problems.problem("bernoulli:0.5,0.4,0.4"), (100,), 0)
    assert engines_for(plan)[0] == SHORTLIST
    with pytest.raises(maillard.InvalidValue, match="form of the index"):
        run_trials(plan, 0, 1)
    if made.index_form:
        assert form_errors(made).max() > 1


class Inherited(maillard.UCB1):
    monotone = True

    def index(self, n, mean, best, t, k):
        return mean + np.sqrt(np.log(t) / (n + 1.0))


class NoNumber(maillard.Indexed):
    monotone = True
    uses_best = uses_round = False

    def index(self, n, mean, best, t, k):
        return mean + np.sqrt(3.0 - n)


def test_which_plans_have_a_form() -> None:
    def engines(policy: maillard.Policy, text: str = "bernoulli:0.5,0.4") -> list[str]:
        return engines_for(Plan(policy, problems.problem(text), (100,), 0))

    assert len(DECLARED) >= 4
    assert engines(maillard.UCB1(sigma2=0.25))[:2] == [SHORTLIST, LAZY]
    assert engines(maillard.UCB1(sigma2=0.25), "bernoulli:0.5,0.4,delay=3") == [DIRECT, PLAIN]
    assert engines(Inherited(sigma2=0.25))[0] == LAZY  # the form of an inherited formula is not inherited
    assert engines(maillard.policy("imed:family=bernoulli"))[0] == LAZY
    assert engines(maillard.policy("kl-ucb++", horizon=9))[0] == SHORTLIST
    assert engines(maillard.policy("kl-ucb++:anytime=true"))[0] == LAZY
    assert engines(maillard.policy("adaucb", sigma2=0.25, horizon=9))[0] == DIRECT


def test_an_index_that_is_no_number_is_reported() -> None:
    with pytest.raises(maillard.InvalidValue, match="index of arm"):
        run_trials(Plan(NoNumber(), problems.problem("bernoulli:0.5,0.4"), (100,), 0, SHORTLIST), 0, 1)


class Unbounded(maillard.Indexed):
    """Returns minus infinity for every arm without a reward of 1."""

    monotone = True
    uses_best = uses_round = False

    def index(self, n, mean, best, t, k):
        return np.log(mean)


def test_infinite_indices_tie() -> None:
    for arms in (3, 30):
        text = "bernoulli:" + ",".join(["0"] * arms)
        made = run_trials(Plan(Unbounded(), problems.problem(text), (100 * arms,), 0, SHORTLIST), 0, 20)
        assert abs(made.pulls.mean(axis=0) - 100).max() < 6 * np.sqrt(100 / 20)
