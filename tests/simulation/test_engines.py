"""Lazy, dense and direct engines sample from the same distribution, that of `policy.probabilities`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

import maillard
from maillard import Policy, problems
from maillard.problems import Problem
from maillard.simulation.compiled_plans import DENSE, DIRECT, LAZY, LEVELED, PLAIN, engines_for
from maillard.simulation.cpu_backend import run_trials
from maillard.simulation.plans import Plan
from maillard.simulation.policy_formulas import without_floor
from tests.conftest import NAMES, VARIANTS, runs_on

TRIALS = 2000
# With a thousand comparisons, one suite in a thousand fails by accident.
SURE = 1e-6
HORIZON = 150
SLOW = 60  # for kl-UCB, whose formula searches for a root

PROBLEMS = {
    "gaussian": "gaussian-equal:arms=5",
    "many": "gaussian-linear:arms=20,variance=0.25",
    "ties": "bernoulli:0.5,0.4,0.4,0.3",
    "rare": "bernoulli-equal:arms=12",
    "uniform": "uniform-noise:0.5,0.6,0.55,width=0.4",
    "levels": "bounded:0.5/0.3/0.2,0.2/0.3/0.5,0.3/0.4/0.3,values=0/0.5/1",
    "counts": "poisson:2,1.5,1.5",
    "waits": "exponential:2,1.5,1",
}
EXTRA = [
    "ms+:booster=16,c=1,d=1",
    "ms:floor=0.1",
    "ts:floor=0.2/0.1/0/0/0",
    "ucb1:floor=0.1",
    "boltzmann:schedule=log,eta=3",
]
SPECS = [*NAMES, *[spec for spec in VARIANTS if spec not in EXTRA], *EXTRA]


def plan_of(spec: str, problem: str, horizon: int, seed: int, engine: str | None = None) -> Plan:
    instance = problems.problem(problem)
    policy = maillard.policy(spec, sigma2=0.25, horizon=horizon)
    return Plan(policy, instance, (horizon,), seed, engine)


def has_lazy(spec: str) -> bool:
    return LAZY in engines_for(plan_of(spec, PROBLEMS["ties"], 10, 0))


def problems_for(spec: str) -> list[str]:
    able = [name for name, text in PROBLEMS.items() if runs_on(plan_of(spec, text, HORIZON, 0))]
    wanted = ["gaussian", "ties", "many", "rare", "levels", "uniform", "counts", "waits"]
    if "poisson" in spec or "exponential" in spec:
        wanted.reverse()
    return [name for name in wanted if name in able][:4]


def with_vectors(spec: str, text: str) -> list[str]:
    return [engine for engine in engines_for(plan_of(spec, text, 10, 0)) if engine in (DENSE, LEVELED)]


CASES = [
    (spec, name, LAZY)
    for spec in SPECS
    if has_lazy(spec)
    for name in problems_for(spec)[: 2 if spec in NAMES else 1]
]
CASES += [(spec, name, engine) for spec, name, _ in CASES for engine in with_vectors(spec, PROBLEMS[name])]
MORE = [
    (spec, name, engine)
    for spec in SPECS
    if has_lazy(spec)
    for name in problems_for(spec)
    for engine in (LAZY, *with_vectors(spec, PROBLEMS[name]))
    if (spec, name, engine) not in CASES
]


def compare(one: Plan, other: Plan, trials: int = TRIALS) -> list[float]:
    """Return p-values for equal distributions and means of regret, and for equal pulls of every arm."""
    a, b = run_trials(one, 0, trials), run_trials(other, 0, trials)
    samples = [(a.regret[:, -1], b.regret[:, -1]), *zip(a.pulls.T, b.pulls.T, strict=True)]
    values = [float(stats.ks_2samp(x, y, method="asymp").pvalue) for x, y in samples if np.ptp([*x, *y]) > 0]
    means = [float(stats.ttest_ind(x, y, equal_var=False).pvalue) for x, y in samples if np.ptp([*x, *y]) > 0]
    return [*values, *(value for value in means if np.isfinite(value))]


def test_every_policy_is_compared_on_two_problems_and_in_torture_tests_on_four() -> None:
    for name in NAMES:
        vectors = with_vectors(name, PROBLEMS["ties"])
        for engine, runs in (
            (LAZY, has_lazy(name)),
            (DENSE, DENSE in vectors),
            (LEVELED, LEVELED in vectors),
        ):
            few, all_cases = (
                sum((spec, used) == (name, engine) for spec, _, used in cases)
                for cases in (CASES, [*CASES, *MORE])
            )
            assert few == (2 if runs else 0)
            assert all_cases >= (4 if runs else 0)
    assert not any(has_lazy(name) for name in ("adaucb", "dmed", "giro", "ocucb-n", "phe"))


@pytest.mark.parametrize(("spec", "name", "engine"), CASES)
def test_the_engine_and_the_direct_one_agree_in_distribution(spec, name, engine) -> None:
    horizon = SLOW if spec.startswith("kl-ucb") else HORIZON
    fast, direct = (plan_of(spec, PROBLEMS[name], horizon, *how) for how in ((1, engine), (2, DIRECT)))
    assert min(compare(fast, direct, 1200)) > SURE


@pytest.mark.torture
@pytest.mark.parametrize(("spec", "name", "engine"), [*CASES, *MORE])
def test_the_engine_and_the_direct_one_agree_for_longer(spec, name, engine) -> None:
    fast, direct = (plan_of(spec, PROBLEMS[name], 1000, *how) for how in ((3, engine), (4, DIRECT)))
    assert min(compare(fast, direct, 4000)) > SURE


@pytest.mark.parametrize(
    ("spec", "other", "engine"),
    [
        ("ms", "ms:sigma2=0.22", LAZY),
        ("ts", "ts:scale=1.2", LAZY),
        ("ts", "ts:scale=1.2", DENSE),
        ("ucb1", "ucb1:scale=1.05", LAZY),
    ],
)
def test_the_comparison_detects_a_small_error(spec, other, engine) -> None:
    text = PROBLEMS["gaussian"]
    wrong = maillard.policy(other, **({} if "sigma2" in other else {"sigma2": 0.25}))
    fast = plan_of(spec, text, HORIZON, 1, engine)
    direct = dataclasses.replace(plan_of(spec, text, HORIZON, 2, DIRECT), policy=wrong)
    assert min(compare(fast, direct)) < SURE


@pytest.mark.parametrize("horizon", [1000, pytest.param(2000, marks=pytest.mark.torture)])
@pytest.mark.parametrize(
    ("spec", "engine"),
    [
        *[(spec, LAZY) for spec in ("ms+", "kl-ms", "ts", "ts-bernoulli")],
        *[(spec, LAZY) for spec in ("ucb1", "imed:family=bernoulli", "moss")],
        ("ts", DENSE),
        ("ts-bernoulli", LEVELED),
    ],
)  # fmt: skip
def test_the_engine_and_the_direct_one_agree_with_many_arms(spec, engine, horizon) -> None:
    """Covers trees with several levels, frequent updates of bounds, and many ties."""
    text = "bernoulli-equal:arms=150" if engine != LEVELED else "bernoulli-equal:arms=120"
    fast, direct = plan_of(spec, text, horizon, 1, engine), plan_of(spec, text, horizon, 2, DIRECT)
    a, b = run_trials(fast, 0, 120), run_trials(direct, 0, 120)
    assert stats.ks_2samp(a.regret[:, -1], b.regret[:, -1]).pvalue > SURE
    assert stats.ks_2samp(a.pulls.max(axis=1), b.pulls.max(axis=1)).pvalue > SURE
    assert stats.ks_2samp(np.sort(a.pulls)[:, 70], np.sort(b.pulls)[:, 70]).pvalue > SURE


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the p-value of counts of choices under a distribution; rare arms are pooled."""
    assert (counts[probabilities == 0] == 0).all()
    expected = counts.sum() * probabilities
    rare = expected < 10
    cells = [*zip(counts[~rare], expected[~rare], strict=True), (counts[rare].sum(), expected[rare].sum())]
    cells = [(seen, due) for seen, due in cells if due >= 1]
    if len(cells) < 2:
        return 1.0
    statistic = sum((seen - due) ** 2 / due for seen, due in cells)
    return float(stats.chi2.sf(statistic, len(cells) - 1))


FROZEN = [
    *[
        (spec, "gaussian-equal:arms=6", t)
        for spec in ("ms", "ms+", "ms+:booster=16,c=1,d=1", "boltzmann:eta=5", "ts", "ts-sg")
        for t in (50, 1000)
    ],
    *[
        (spec, "gaussian-equal:arms=6", 300)
        for spec in ("boltzmann-gumbel", "ms-printed", "boltzmann:schedule=log,eta=3")
    ],
    *[
        (spec, "bernoulli:0.5,0.45,0.45,0.4", t)
        for spec in (
            "ms+", "kl-ms", "kl-ms:jeffreys=true", "kl-ms+", "ts", "ts-bernoulli", "imed:family=bernoulli",
            "epsilon-greedy", "ms:floor=0.2",
        )
        for t in (12, 60, 700)
    ],
    *[
        (spec, "bernoulli-equal:arms=40", 400)
        for spec in ("ms", "ms+", "kl-ms", "ts-bernoulli", "ts", "moss", "ucb1")
    ],
    *[
        (spec, "bernoulli-equal:arms=100", t)
        for spec in ("ts-bernoulli", "ts-sg", "boltzmann-gumbel")
        for t in (110, 1500)
    ],
    *[
        (spec, "bernoulli:" + ",".join(["0.5"] * 20), t)
        for spec in ("ms", "ms+", "kl-ms", "kl-ms:jeffreys=true", "kl-ms+", "boltzmann:schedule=log,eta=3")
        for t in (60, 900)
    ],
]  # fmt: skip


FROZEN_ENGINES = [(*case, LAZY) for case in FROZEN]
FROZEN_ENGINES += [(*case, engine) for case in FROZEN for engine in with_vectors(*case[:2])]


@pytest.mark.parametrize(("spec", "text", "t", "engine"), FROZEN_ENGINES)
def test_choices_of_the_frozen_engine_match_the_probabilities_of_its_tally(spec, text, t, engine) -> None:
    plan = plan_of(spec, text, t, 5, engine)
    made = run_trials(plan, 3, 1, choices=10**6)
    p = plan.policy.probabilities(made.tally)
    assert made.choices.sum() == 10**6
    assert chi_square(made.choices, p) > SURE


def tied_leaders(plan: Plan, want: int) -> int:
    """Return a trial whose final tally has this many leaders."""
    for trial in range(3000):
        means = run_trials(plan, trial, 1).tally.means
        if np.count_nonzero(means == means.max()) >= want:
            return trial
    raise AssertionError("no such trial")


@pytest.mark.parametrize(
    "spec", ["ms", "ms+", "ms+:booster=16,c=1,d=1", "kl-ms", "boltzmann:eta=5", "epsilon-greedy", "uniform"]
)
@pytest.mark.parametrize("want", [2, 3])
def test_choices_match_with_several_tied_leaders(spec, want) -> None:
    plan = plan_of(spec, "bernoulli:0.5,0.5,0.5,0.4,0.3", 60, 9, LAZY)
    trial = tied_leaders(plan, want)
    made = run_trials(plan, trial, 1, choices=10**6)
    assert chi_square(made.choices, plan.policy.probabilities(made.tally)) > SURE


@pytest.mark.parametrize("arms", [6, 40])
def test_the_chi_square_detects_a_small_error(arms) -> None:
    plan = plan_of("ms", f"gaussian-equal:arms={arms}", 300, 5, LAZY)
    made = run_trials(plan, 3, 1, choices=10**6)
    wrong = made.tally.copy()
    wrong.add(int(np.argsort(made.choices)[arms // 2]), float(made.tally.means.max()))
    assert chi_square(made.choices, plan.policy.probabilities(wrong)) < SURE


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.partition(":")[0] != "dmed"])
def test_choices_of_the_frozen_direct_engine_match(spec) -> None:
    name = problems_for(spec)[0]
    plan = plan_of(spec, PROBLEMS[name], 40, 5, DIRECT)
    made = run_trials(plan, 1, 1, choices=200_000)
    assert chi_square(made.choices, plan.policy.probabilities(made.tally)) > SURE


@pytest.mark.parametrize("text", ["bernoulli:0.5,0.4,0.3,delay=30", "bernoulli-dynamic:arms=5,rate=0.3"])
@pytest.mark.parametrize("spec", ["ms+", "kl-ms", "ts", "ts-bernoulli", "ucb1", "ocucb-n", "phe"])
def test_cold_arms_are_treated_as_probabilities_treat_them(spec, text) -> None:
    """Late rewards and new arms leave arms without any.

    The direct engine and the live policy agree on those.
    """
    cold = 0
    for trial in range(6):
        plan = plan_of(spec, text, 20, 5 + trial, DIRECT)
        made = run_trials(plan, 1, 1, choices=100_000)
        cold += int(np.count_nonzero(made.tally.pulls == 0))
        # Without delay all 20 rewards were observed, including those of replaced arms.
        t = made.tally.round if plan.problem.delay else 21
        assert chi_square(made.choices, plan.policy.probabilities(made.tally, round=t)) > SURE
    assert cold > 0


def dmed(rng: np.random.Generator, means: np.ndarray, horizon: int, sigma2: float) -> np.ndarray:
    """DMED as published: choose each arm of a list, and build the next list meanwhile."""
    arms = means.size
    n, s = np.zeros(arms, np.int64), np.zeros(arms)
    current, following = list(range(arms)), set()
    for t in range(1, horizon + 1):
        arm = current.pop(0)
        n[arm] += 1
        s[arm] += rng.normal(means[arm], np.sqrt(sigma2))
        for other in range(arms):
            if other not in current and n[other]:
                best = max(s[b] / n[b] for b in range(arms) if n[b])
                if n[other] * (s[other] / n[other] - best) ** 2 / (2 * sigma2) <= np.log((t + 1) / n[other]):
                    following.add(other)
        if not current:
            current, following = sorted(following), set()
    return n


def test_dmed_remembers_its_list() -> None:
    text = "gaussian-equal:arms=4"
    made = run_trials(plan_of("dmed", text, 150, 3), 0, 700).pulls
    rng = np.random.default_rng(4)
    means = problems.problem(text).true_means
    plain = np.array([dmed(rng, means, 150, 0.25) for _ in range(700)])
    for arm in range(4):
        assert stats.ks_2samp(made[:, arm], plain[:, arm]).pvalue > SURE
    easy = np.array([dmed(rng, means, 150, 0.5) for _ in range(500)])  # with a weaker condition for the list
    assert stats.ks_2samp(made[:, 0], easy[:, 0]).pvalue < SURE


@pytest.mark.parametrize("spec", ["ocucb-n", "adaucb", "phe", "giro", "ms+", "ts"])
def test_the_plain_engine_agrees(spec) -> None:
    direct = plan_of(spec, PROBLEMS["ties"], 15, 1, DIRECT)
    plain = plan_of(spec, PROBLEMS["ties"], 15, 2, PLAIN)
    assert min(compare(direct, plain, 120)) > SURE


@pytest.mark.parametrize(
    "text",
    ["bernoulli:0.6,0.4,0.3,delay=batched:6", "bernoulli-dynamic:arms=3,rate=0.5,a=2,b=3,delay=batched:15"],
)
@pytest.mark.parametrize("spec", ["ms+", "ucb1", "ocucb-n"])
def test_cached_probabilities_are_those_of_the_state(spec, text) -> None:
    """While rewards are delayed, the direct engine uses cached probabilities. The plain one does not."""
    direct, plain = plan_of(spec, text, 30, 1, DIRECT), plan_of(spec, text, 30, 2, PLAIN)
    assert min(compare(direct, plain, 300)) > SURE


@pytest.mark.parametrize("delay", ["fixed:0", "batched:1", "geometric:0"])
def test_a_delay_of_zero_equals_no_delay(delay) -> None:
    late, still = (plan_of("ms+", f"bernoulli:0.5,0.4{end}", 200, 1) for end in (f",delay={delay}", ""))
    assert engines_for(late) == engines_for(still)
    assert np.array_equal(run_trials(late, 0, 20).pulls, run_trials(still, 0, 20).pulls)


@pytest.mark.parametrize("spec", ["ms", "ts", "ucb1"])
def test_the_memory_of_thousands_of_arms_is_used_until_the_end_of_a_trial(spec) -> None:
    """So large a table is returned to the system when it is freed, and later uses crash."""
    made = run_trials(plan_of(spec, "bernoulli-equal:arms=20000", 50, 0, LAZY), 0, 2)
    assert (made.pulls.sum(axis=1) == 50).all()


class Wild(maillard.Sampled):
    """Makes a false declaration."""

    monotone = True

    def rival(self, n, mean, best, t):
        return np.minimum(0.0, -1.0 + 0.01 * t)


class Rising(maillard.Sampled):
    """Makes a false declaration: the weight of a rival rises with its pulls."""

    monotone = concentrates = True

    def rival(self, n, mean, best, t):
        return -50.0 * (best - mean) / n


class Mistaken(maillard.Sampled):
    """Makes a false declaration: the exponent is twice as large."""

    monotone = concentrates = True
    squared_gap = (1.0, 0.0)

    def rival(self, n, mean, best, t):
        return -2.0 * n * (best - mean) ** 2


class Curved(maillard.Sampled):
    """Makes a false declaration: the weight has another potential."""

    monotone = concentrates = has_potential = True

    def potential(self, mean):
        return mean * mean

    def slope(self, best):
        return 2.0 * best

    def rival(self, n, mean, best, t):
        return -2.0 * n * (best - mean) ** 2


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        (Wild(), "monotone"),
        (Rising(), "monotone or concentrates"),
        (Mistaken(), "monotone or concentrates or squared_gap"),
        (Curved(), "monotone or concentrates or has_potential"),
    ],
)
def test_a_false_declaration_is_detected(policy, names) -> None:
    problem = problems.problem("bernoulli:0.5,0.5,0.5")
    with pytest.raises(maillard.InvalidValue, match=f"the formula violates what {names} declares"):
        run_trials(Plan(policy, problem, (2000,), 0), 0, 20)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        # An upper bound may be newer than the rounds for which the lower bounds hold.
        ("boltzmann:schedule=log", "bernoulli:0.5,0.45"),
        # A lower bound is computed for a best mean above 1, where the divergence is negative.
        ("kl-ms+", "bernoulli:0.95,0.9,0.9,0.9,0.9"),
        ("kl-ms+:booster=2", "bernoulli:0.95,0.9,0.9,0.9,0.9"),
    ],
)
def test_bounds_are_no_false_declaration(spec, text) -> None:
    plan = plan_of(spec, text, 50, 0, LAZY)
    assert (run_trials(plan, 0, 3000).pulls.sum(axis=1) == 50).all()
    assert min(compare(plan, dataclasses.replace(plan, seed=2, engine=DIRECT), 2000)) > SURE


def test_the_policies_that_run_lazily() -> None:
    assert isinstance(without_floor(plan_of("ms:floor=0.1", PROBLEMS["ties"], 10, 0).policy), Policy)
    late = plan_of("ms", "bernoulli:0.5,0.4,delay=3", 10, 0)
    assert engines_for(late) == [DIRECT, PLAIN]
    assert isinstance(late.problem, Problem)


TAILS = [
    *[("GAUSSIAN", 0.3, 0.5, threshold) for threshold in (-1.0, 0.3, 0.7, 3.0, 12.0)],
    *[("GUMBEL", 0.3, 0.5, threshold) for threshold in (-0.5, 0.3, 2.0, 9.0)],
    *[
        ("BETA", a, b, threshold)
        for a, b in ((1, 1), (1, 50), (50, 1), (3, 7), (200, 300))
        for threshold in (0.05, 0.4, 0.6, 0.9, 0.99)
    ],
]  # fmt: skip


@pytest.mark.parametrize(("name", "a", "b", "threshold"), TAILS)
def test_tails_of_scores_have_their_distribution(name, a, b, threshold) -> None:
    """Compare the hazard of a threshold and samples above it with SciPy's distributions."""
    from maillard.policies.numerics import score_distributions as families
    from maillard.simulation.engines import score_sampling

    exact = {"GAUSSIAN": stats.norm(a, b), "GUMBEL": stats.gumbel_r(a, b), "BETA": stats.beta(a, b)}[name]
    code = getattr(families, name).code
    above = float(score_sampling.hazard(code, a, b, threshold))
    upper = float(exact.sf(threshold))
    assert -np.expm1(-above) == pytest.approx(upper, rel=1e-9, abs=1e-300)
    if upper < 1e-200:
        return
    rng = np.random.default_rng(5)
    samples = np.array([score_sampling.sample_above(code, a, b, threshold, above, rng) for _ in range(2000)])
    assert (samples >= threshold).all()
    assert stats.kstest(exact.sf(samples) / upper, "uniform").pvalue > SURE
    assert stats.kstest(exact.sf(samples + 0.1 * np.ptp(samples)) / upper, "uniform").pvalue < SURE


FLOORED = [
    ("ucb1", "bernoulli:" + ",".join(["0.5"] * 40)),
    ("moss-anytime", "bernoulli:1,1,1,1,1,1,1,1,1"),
    ("aoucb", "bernoulli:0,0,0,0,0,0,0,0,0"),
    ("epsilon-greedy:epsilon=0.3", "bernoulli:1,1,1,0.5,0.5,0"),
]


@pytest.mark.parametrize(("spec", "text"), FLOORED)
def test_floors_keep_equal_arms_equal(spec, text) -> None:
    """Constant probabilities remove arms from chains of arms that share a leaf."""
    full = spec if "epsilon" in spec else f"{spec}:floor=0.3"
    for horizon in (60, 200, 1000):
        plan = plan_of(full, text, horizon, horizon, LAZY)
        for trial in range(12):
            made = run_trials(plan, trial, 1, choices=20_000)
            assert chi_square(made.choices, plan.policy.probabilities(made.tally)) > SURE


class NoIndex(maillard.Indexed):
    """Returns minus infinity for every arm without a reward of 1."""

    monotone = True

    def index(self, n, mean, best, t, k):
        return np.log(mean)


class Growing(maillard.Sampled):
    """The leader gains on its rivals with every round, which is allowed."""

    monotone = True

    def leader(self, n, t):
        return 0.02 * t + 0.0 * n

    def rival(self, n, mean, best, t):
        return 0.0 * n


class Jeffreys(maillard.Perturbed):
    """Thompson sampling from Jeffreys' prior, with parameters below 1."""

    noise = maillard.BernoulliThompson.noise
    has_prior = True

    def score(self, n, s):
        return 0.5 + s, 0.5 + n - s


def test_unusual_formulas_terminate_and_are_correct() -> None:
    never = run_trials(Plan(NoIndex(), problems.problem("bernoulli:0,0,0"), (3000,), 0, LAZY), 0, 20)
    assert abs(never.pulls.mean(axis=0) - 1000).max() < 5 * np.sqrt(3000 * 2 / 9 / 20)
    growing = Plan(Growing(), problems.problem("bernoulli:0.5,0.4"), (3000,), 0)
    assert min(compare(growing, dataclasses.replace(growing, seed=1, engine=DIRECT), 300)) > SURE
    jeffreys = Plan(Jeffreys(), problems.problem("bernoulli:0.5,0.45,0.45"), (300,), 0)
    for engine in (LAZY, DIRECT, PLAIN):
        with pytest.raises(maillard.InvalidValue, match="two finite numbers >= 1"):
            run_trials(dataclasses.replace(jeffreys, engine=engine), 0, 1)


def test_scores_far_from_their_threshold_terminate_and_are_correct() -> None:
    """Rewards vary much more than the policy assumes, so some hazards are very large."""
    gumbel = maillard.policy("boltzmann-gumbel", sigma2=0.25)
    plan = Plan(gumbel, problems.Gaussian([0.0] * 30, variance=1e4), (500,), 3)
    assert min(compare(plan, dataclasses.replace(plan, seed=4, engine=DIRECT), 100)) > SURE


class Own(maillard.Sampled):
    x: float = maillard.real("first", default=1.0)
    y_x: float = maillard.real("second", default=50.0)

    def rival(self, n, mean, best, t):
        return -self.x * n * (best - mean)


class Other(maillard.Sampled):
    x_y: float = maillard.real("first", default=50.0)
    x: float = maillard.real("second", default=1.0)

    def rival(self, n, mean, best, t):
        return -self.x * n * (best - mean)


def test_two_policies_keep_their_own_parameters() -> None:
    problem = problems.problem("bernoulli:0.9,0.1")
    one, other = (
        run_trials(Plan(each, problem, (200,), 1), 0, 300).pulls[:, 1].mean() for each in (Own(), Other())
    )
    assert abs(one - other) < 3


def test_every_engine_applies_floors_once() -> None:
    for spec in ("epsilon-greedy:epsilon=0.5", "ms:floor=0.5"):
        plans = [
            plan_of(spec, PROBLEMS["ties"], 12, seed, engine)
            for seed, engine in enumerate((LAZY, DIRECT, PLAIN))
        ]
        assert min(compare(plans[0], plans[1], 1000) + compare(plans[0], plans[2], 1000)) > SURE


class Stubborn(maillard.MaillardSampling):
    """Overrides more than formulas."""

    def choose(self, tally, rng, **options):  # type: ignore[override]  # without a context
        return 0


def test_a_policy_that_overrides_choose_is_simulated_with_it() -> None:
    made = run_trials(Plan(Stubborn(sigma2=0.25), problems.problem("bernoulli:0.1,0.9"), (50,), 0), 0, 3)
    assert (made.pulls[:, 0] == 49).all()
