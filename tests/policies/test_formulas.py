"""Compare every formula with the independent high-precision evaluation in reference.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

import maillard
from maillard import Policy, Tally
from maillard.errors import InvalidValue
from maillard.policies.numerics.families import FAMILIES
from maillard.policies.numerics.score_distributions import GAUSSIAN
from tests.conftest import NAMES, VARIANTS, make
from tests.policies import reference

EVERY = [*NAMES, *VARIANTS]
EXACT = [spec for spec in EVERY if make(spec).probability_kind != "quadrature"]
INTEGRALS = [spec for spec in EVERY if make(spec).probability_kind == "quadrature"]


def tally_for(policy: Policy, rng: np.random.Generator, most_arms: int, most_pulls: float) -> Tally:
    """Return random pulls and means of many scales; a third of the cases have ties."""
    k = int(rng.integers(1, most_arms + 1))
    n = np.exp(rng.uniform(0, math.log(most_pulls), k)).astype(np.int64)
    unit = policy.support == (0.0, 1.0)
    gap = 1.0 if unit else 10 ** rng.uniform(-4, 3)
    s = (
        np.rint(n * rng.random(k))
        if unit
        else gap * rng.random(k) * n + (1e-3 if policy.support[0] == 0 else 0)
    )
    if rng.random() < 1 / 3 and k > 1:
        same = rng.random(k) < 0.5
        n[same], s[same] = n[0], s[0]
    return Tally(n, s)


def parameters_of(policy: Policy) -> dict[str, object]:
    parameters = {name: getattr(policy, name) for name, _, _ in policy.parameters()}
    if parameters.get("family", "gaussian") != "gaussian":
        parameters.pop("sigma2")
    if parameters.get("anytime"):
        parameters.pop("horizon")
    return parameters


def ambiguous(policy: Policy, tally: Tally, exact: list[float]) -> bool:
    """Whether rounding decides which index is largest; then either result is correct."""
    if policy.name == "dmed":
        return False
    view = (tally.pulls.tolist(), tally.sums.tolist())
    index = reference.indices(policy.name, *view, t=tally.round, **parameters_of(policy))
    top = max(index)
    near = [abs(value - top) <= 1e-12 * max(1, abs(top)) for value in index]
    return any(close and math.isinf(log) for close, log in zip(near, exact, strict=True))


@pytest.mark.parametrize("spec", EXACT)
def test_log_probabilities_agree_with_the_reference(spec) -> None:
    policy, rng = make(spec), np.random.default_rng(7)
    checked, cases = 0, 10 if policy.name.startswith("kl-ucb") else 100  # its reference is slow
    while checked < cases:
        tally = tally_for(policy, rng, 6, 1e9 if policy.probability_kind == "closed form" else 1e6)
        view = (tally.pulls.tolist(), tally.sums.tolist())
        exact = [
            float(log)
            for log in reference.log_probabilities(policy.name, *view, t=tally.round, **parameters_of(policy))
        ]
        if policy.name in reference.INDICES and ambiguous(policy, tally, exact):
            continue
        for log, true in zip(policy.log_probabilities(tally), exact, strict=True):
            assert log == true or abs(log - true) <= 1e-12 * max(1.0, abs(true))
        checked += 1


@pytest.mark.parametrize("spec", [spec for spec in EXACT if make(spec).name in reference.INDICES])
def test_indices_agree_with_the_reference(spec) -> None:
    """Compare the indices themselves: a wrong constant often does not change which arm wins."""
    policy, rng = make(spec), np.random.default_rng(17)
    large = 1 if policy.name.startswith("kl-ucb") else 3  # its reference is slow
    for case in range(20):
        tally = tally_for(policy, rng, 40 if case < large else 6, 1e6)
        n, mean = tally.pulls.astype(float), tally.means
        with np.errstate(all="ignore"):
            index = policy.indices(n, mean, tally.round, len(tally))
        view = (tally.pulls.tolist(), tally.sums.tolist())
        exact = reference.indices(policy.name, *view, t=tally.round, **parameters_of(policy))
        assert index == pytest.approx([float(x) for x in exact], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    "spec", ["kl-ms", "med:family=bernoulli", "med:family=poisson", "med:family=exponential", "ms+"]
)
def test_the_error_of_a_closed_form_covers_it(spec) -> None:
    """Use means near the point where a divergence changes its formula and is least accurate."""
    policy, rng = make(spec), np.random.default_rng(18)
    worst = 0.0
    for _ in range(150):
        n = rng.integers(10**5, 10**6, 2)
        low = rng.uniform(0.2, 0.8)
        tally = Tally(n, np.rint(n * np.array([low, low * rng.uniform(1.02, 1.2)])))
        view = (tally.pulls.tolist(), tally.sums.tolist())
        exact = reference.log_probabilities(policy.name, *view, t=tally.round, **parameters_of(policy))
        distribution = policy.distribution(tally)
        off = np.abs(distribution.log_probabilities - [float(x) for x in exact])
        worst = max(worst, (off / distribution.error).max())
    assert worst <= 1
    assert worst > 1e-3, "the bound is more than a thousand times too wide"


@pytest.mark.parametrize(
    ("spec", "cases"),
    [(spec, 3) for spec in INTEGRALS]
    + [pytest.param(spec, 200, marks=pytest.mark.torture) for spec in INTEGRALS],
)
def test_integrals_agree_with_the_reference(spec, cases) -> None:
    policy, rng = make(spec), np.random.default_rng(8)
    discrete = policy.name in ("phe", "giro")
    for _ in range(cases):
        tally = tally_for(policy, rng, 3, 12 if discrete else 1e3)
        view = (tally.pulls.tolist(), tally.sums.tolist())
        exact = reference.log_probabilities(policy.name, *view, t=tally.round, **parameters_of(policy))
        distribution = policy.distribution(tally)
        for log, error, true in zip(
            distribution.log_probabilities, distribution.error, map(float, exact), strict=True
        ):
            if math.isinf(true):
                assert log == true
                continue
            assert abs(log - true) <= error + 1e-15 * abs(true), "the reported bound covers the true error"
            if true > math.log(1e-8):
                assert abs(log - true) <= 1e-10


def test_a_wrong_formula_is_detected() -> None:
    """The negative control: MS+ without N in its inflation, as in a public implementation."""

    class Dropped(maillard.MaillardSamplingPlus):
        def rival(self, n, mean, best, t):
            gap = (best - mean) ** 2 / (2 * self.sigma2)
            return -n * gap + np.log1p(self.d * gap)

    tally = Tally([9, 5, 7], [5, 2, 3])
    exact = reference.log_probabilities("ms+", tally.pulls, tally.sums, t=tally.round, sigma2=0.25)
    wrong = Dropped(sigma2=0.25).log_probabilities(tally)
    assert max(abs(wrong - np.array([float(x) for x in exact]))) > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_divergence_does_not_cancel_and_upper_inverts_it(family) -> None:
    divergence, upper, (_, high) = FAMILIES[family][:3]
    rng = np.random.default_rng(3)
    a = rng.uniform(0.01, 0.99, 400) * (1 if high == 1 else 10)
    b = a + (min(high, 1e9) - a) * 10 ** rng.uniform(-12, -0.1, 400) * (1 if high == 1 else 1e-9)
    kl = divergence(a, b, 0.25)
    for x, y, got in zip(a, b, kl, strict=True):
        with reference.mp.workdps(60):
            true = reference.divergence(family, reference.mpf(float(x)), reference.mpf(float(y)), 0.25)
            assert abs(got - true) <= 1e-13 * true
    assert upper(a, kl, 0.25) - a == pytest.approx(b - a, rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_edges_of_a_family(family) -> None:
    divergence, upper, (_, high) = FAMILIES[family][:3]
    with np.errstate(all="ignore"):
        assert divergence(np.array([0.5]), np.array([0.5]), 1.0) == 0
        assert upper(np.array([0.5]), np.array([0.0]), 1.0) == pytest.approx(0.5)
        if high == 1:
            assert divergence(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 1.0).tolist() == [0, 0]
            assert divergence(np.array([0.3]), np.array([1.0]), 1.0) == np.inf
            assert divergence(np.array([0.0]), np.array([0.5]), 1.0) == pytest.approx(np.log(2))
            assert upper(np.array([1.0, 0.0]), np.array([2.0, 2.0]), 1.0) == pytest.approx(
                [1, 1 - np.exp(-2)]
            )
            # The result is a valid mean for any level.
            assert (upper(rng_means := np.linspace(0, 1, 11), np.full(11, 1e6), 1.0) <= 1).all()
            assert (upper(rng_means, np.full(11, 1e6), 1.0) >= rng_means).all()
        elif family == "poisson":
            assert divergence(np.array([0.0]), np.array([3.0]), 1.0) == 3
            assert upper(np.array([0.0]), np.array([3.0]), 1.0) == 3


def test_kl_ms_loses_positivity_at_mean_one_and_jeffreys_keeps_it() -> None:
    tally = Tally([5, 5], [5, 3])
    assert np.isneginf(make("kl-ms").log_probabilities(tally)).tolist() == [False, True]
    assert np.isfinite(make("kl-ms:jeffreys=true").log_probabilities(tally)).all()


def test_a_formula_that_branches_on_arrays_is_named(monkeypatch) -> None:
    monkeypatch.setattr(Policy, "registry", dict(Policy.registry))

    class Branching(maillard.Sampled):
        name = "branching"
        formula = "rivals with more than 5 pulls: p ∝ exp(-n d); others: p ∝ 1"

        def rival(self, n, mean, best, t):
            return -n * (best - mean) if n > 5 else 0.0

    class BranchingIndex(maillard.Indexed):
        name = "branching-index"
        formula = "the mean, at most 1/2"

        def index(self, n, mean, best, t, k):
            return min(mean, 0.5 * n)

    class BranchingScore(maillard.Perturbed):
        name = "branching-score"
        formula = "N(mean, 1 / N), or N(0, 1)"
        noise = GAUSSIAN

        def score(self, n, s):
            return (s / n, n**-0.5) if n > 5 else (0.0, 1.0)

    class BranchingLinear(maillard.LinearSampled):
        name = "branching-linear"
        formula = "p ∝ exp(-gap), at least exp(-1)"

        def rival(self, gap, s2, t):
            return max(-gap, -1.0 + 0 * gap)

    tally = Tally([9, 8, 0], [6, 1, 0])
    with pytest.raises(InvalidValue, match=r"branching: rival: .* np.where in place of `if`") as raised:
        maillard.policy("branching").probabilities(tally)
    assert "truth value" in str(raised.value.__cause__)
    with pytest.raises(InvalidValue, match="branching-index: index: "):
        maillard.policy("branching-index").probabilities(tally)
    with pytest.raises(InvalidValue, match="branching-score: score: "):
        maillard.policy("branching-score").probabilities(tally)
    many = maillard.LinearTally.empty(features=1, arms=40)  # with few arms, a formula gets numbers
    for arm in range(40):
        many.add([1.0], arm / 40, arm=arm)
    with pytest.raises(InvalidValue, match="branching-linear: rival: "):
        maillard.policy("branching-linear", reward_range=(0, 1)).probabilities(many, [1.0])
    with pytest.raises(InvalidValue, match="branching: rival: "):
        maillard.simulate("branching", "bernoulli:0.6,0.4,0.3", 20, 2)


def test_a_formula_with_too_few_arguments_is_named(monkeypatch) -> None:
    monkeypatch.setattr(Policy, "registry", dict(Policy.registry))

    class Short(maillard.Sampled):
        name = "short"

        def rival(self, n, mean, best):  # type: ignore[override]
            return -n

    tally = maillard.Tally([2, 1], [1.0, 0.0])
    expected = r"short: rival: arguments: expected 4 arguments after self.*, got '\(n, mean, best\)'"
    with pytest.raises(InvalidValue, match=expected):
        Short().probabilities(tally)

    class Broken(maillard.Sampled):
        name = "broken"

        def rival(self, n, mean, best, t):
            return -n + None

    with pytest.raises(TypeError, match="unsupported operand"):  # the control
        Broken().probabilities(tally)
