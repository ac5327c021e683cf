"""Simulations with contexts: compiled engines sample from the policy's probabilities, like the plain loop."""

from __future__ import annotations

import concurrent.futures
import functools
from multiprocessing import get_context

import numpy as np
import pytest
from scipy import stats

import maillard
from maillard import InvalidValue, LinearTally, SegmentTally, Tally, problems, simulate
from maillard.policies.segmented_policy import SegmentedPolicy
from maillard.problems import Classification, ContextualProblem, Linear, Segmented
from maillard.simulation import SlowFormula
from maillard.simulation.backends import Stopped
from maillard.simulation.c_samplers import reward_arguments
from maillard.simulation.compiled_plans import DIRECT, PLAIN, engines_for
from maillard.simulation.context_plans import compile_context_plan
from maillard.simulation.context_trials import run_context_trials
from maillard.simulation.engines import ridge_models
from maillard.simulation.plans import Plan, make_plan
from tests.conftest import NAMES as K_ARMED
from tests.policies.linear_states import NAMES, VARIANTS
from tests.policies.linear_states import make as make_linear
from tests.simulation.test_engines import SURE, chi_square

MODELS = ("disjoint", "shared")
SEGMENTS = Segmented({"phone": "bernoulli:0.2,0.7,0.4", "desktop": "bernoulli:0.6,0.3,0.5"}, weights=[2, 1])
JOINT = "lin-ts:draws=joint"
FLOORS = ["lin-ms:floor=0.1", "lin-ucb:floor=0.6/0.2/0.1/0", "lin-rand-ucb:floor=1,floor_decay=0.5"]
SPECS = [*NAMES, *VARIANTS, JOINT, *FLOORS]


def problem_of(model: str, dim: int = 3) -> Linear:
    return Linear(arms=4, dim=dim, model=model, noise="bernoulli")


def plan_of(
    spec: str, problem: ContextualProblem, horizon: int, seed: int, engine: str | None = None
) -> Plan:
    return Plan(make_linear(spec), problem, (horizon,), seed, engine)


def frozen_choices(plan: Plan, problem: Linear, tally: LinearTally, x: np.ndarray, count: int) -> np.ndarray:
    """Return how often the compiled engine chooses each arm, from the state that a tally describes."""
    engine = compile_context_plan(plan, problem)
    assert engine is not None
    policy = maillard.simulation.policy_formulas.without_floor(plan.policy)
    g, scores, inverse, _, gram, theta, sums, left, growth, products, u = engine.new_state()
    matrices = policy.ridge * np.eye(problem.dim) + tally.gram
    inverse[:] = np.linalg.inv(matrices)
    gram[:] = tally.gram.reshape(gram.shape)
    sums[:] = tally.products - policy.centre * tally.feature_sums
    theta[:] = np.einsum("mij,mj->mi", inverse, sums)
    growth[0] = np.linalg.slogdet(matrices)[1].sum() - problem.dim * len(matrices) * np.log(policy.ridge)
    block = next(problem.contexts(np.random.default_rng(0), 1))._replace(rows=x[np.newaxis])
    means, rng = block.means, np.random.default_rng(1)
    pulls, observed = np.zeros(problem.arms, np.int64), tally.round - 1
    for _ in range(count):
        state = [each.copy() for each in (inverse, gram, theta, sums, left, growth)]
        flat = state[0].reshape(gram.shape)
        status = engine.plan.run(
            *engine.plan.arguments, g, scores, state[0], flat, *state[1:], products, u,
            *engine.contexts(block), block.mean, means, means.max(axis=1), *reward_arguments(block.rewards),
            np.array([observed, 0, 0]), np.zeros(1), np.array([observed + 1]), np.zeros(1), pulls, rng,
        )  # fmt: skip
        assert status == 0
    return pulls


def random_tally(rng: np.random.Generator, problem: Linear, events: int) -> LinearTally:
    tally = LinearTally.empty(problem.dim, None if problem.shared else problem.arms)
    for _ in range(events):
        row, arm = LinearTally.to_grid(rng.uniform(-1, 1, problem.dim)), int(rng.integers(problem.arms))
        reward = float(rng.random() < 0.5 + 0.4 * row[0])
        tally.add(row, reward, **({} if problem.shared else {"arm": arm}))
    return tally


def frozen_p_value(spec: str, model: str, events: int, wrong: str = "", count: int = 4000) -> float:
    """Return the p-value of frozen choices under the probabilities of a policy (or of a wrong one)."""
    problem = problem_of(model, dim=2 if spec == JOINT else 3)
    plan, rng = plan_of(spec, problem, 10**6, 0), np.random.default_rng(events)
    tally = random_tally(rng, problem, events)
    x = LinearTally.to_grid(rng.uniform(-1, 1, (4, problem.dim) if problem.shared else problem.dim))
    counts = frozen_choices(plan, problem, tally, x, count)
    return chi_square(counts, make_linear(wrong or spec).probabilities(tally, x))


@pytest.mark.parametrize("events", [0, 40])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("spec", SPECS)
def test_choices_of_the_compiled_engine_match_the_probabilities_of_its_tally(spec, model, events) -> None:
    assert engines_for(plan_of(spec, problem_of(model), 10, 0))[0] != PLAIN
    assert frozen_p_value(spec, model, events, count=1000) > SURE


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [("lin-ms", "lin-ms:booster=6"), ("lin-ts", "lin-ts:scale=4"), ("igw", "igw:scale=14")],
)
def test_the_comparison_of_choices_detects_a_small_error(spec, wrong) -> None:
    assert (
        frozen_p_value(spec, "disjoint", 40, wrong, count=8000)
        < SURE
        < frozen_p_value(spec, "disjoint", 40, count=8000)
    )


@pytest.mark.parametrize("interval", [1, 7, 512])
@pytest.mark.parametrize("model", MODELS)
def test_updated_inverses_stay_those_of_the_gram_matrix(model, interval, monkeypatch) -> None:
    monkeypatch.setattr(ridge_models, "_INTERVAL", interval)
    problem = problem_of(model, dim=5)
    plan = plan_of("lin-ms:ridge=0.01", problem, 2000, 0)
    engine = compile_context_plan(plan, problem)
    assert engine is not None
    state, progress, pulls = engine.new_state(), np.zeros(3, np.int64), np.zeros(4, np.int64)
    assert state[7][0] == interval
    rng, lost, regret = np.random.default_rng(5), np.zeros(1), np.zeros(1)
    for block in problem.contexts(rng, 2000):
        assert not engine.plan.run(
            *engine.plan.arguments, *state, *engine.contexts(block), block.mean, block.means,
            block.means.max(axis=1), *reward_arguments(block.rewards), progress, lost, np.array([2000]),
            regret, pulls, rng,
        )  # fmt: skip
    _, _, inverse, flat, gram, theta, sums, _, _, _, _ = state
    assert pulls.sum() == 2000
    assert regret[0] == lost[0] > 0
    matrices = 0.01 * np.eye(5) + gram.reshape(inverse.shape)
    # A rounding error of each of 2000 updates, times the condition number of V.
    tolerance = 2000 * np.finfo(float).eps * np.linalg.cond(matrices).max()
    assert np.abs(inverse @ matrices - np.eye(5)).max() < tolerance < 1e-6
    assert np.abs(theta - np.linalg.solve(matrices, sums[:, :, None])[:, :, 0]).max() < 100 * tolerance
    assert np.shares_memory(inverse, flat)


def samples(plan: Plan, trials: int) -> list[np.ndarray]:
    assert isinstance(plan.problem, ContextualProblem)
    made = run_context_trials(plan, plan.problem, 0, trials)
    return [made.regret[:, -1], *np.sort(made.pulls, axis=1).T]


def compare(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    """Return the smallest p-value for equal distributions and means of regret and sorted pulls."""
    values = [1.0]
    for x, y in zip(one, other, strict=True):
        if np.ptp([*x, *y]) > 0:
            values += [
                stats.ks_2samp(x, y, method="asymp").pvalue,
                stats.ttest_ind(x, y, equal_var=False).pvalue,
            ]
    return float(np.nanmin(values))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("spec", NAMES)
def test_trials_agree_in_distribution_with_a_plain_loop(spec, model) -> None:
    problem = problem_of(model)
    if engines_for(plan_of(spec, problem, 10, 0)) == [PLAIN]:
        return
    compiled, plain = plan_of(spec, problem, 30, 1, DIRECT), plan_of(spec, problem, 30, 2, PLAIN)
    # Both samples of the plain loop are small because it is slow; the compiled one is large.
    assert compare(samples(compiled, 2000), samples(plain, 25)) > SURE


@pytest.mark.torture
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("spec", SPECS)
def test_trials_agree_in_distribution_for_longer(spec, model) -> None:
    problem = problem_of(model, dim=2 if spec == JOINT else 3)
    if engines_for(plan_of(spec, problem, 10, 0)) == [PLAIN]:
        return
    compiled, plain = plan_of(spec, problem, 150, 1, DIRECT), plan_of(spec, problem, 150, 2, PLAIN)
    assert compare(samples(compiled, 4000), samples(plain, 300)) > SURE


def test_the_comparison_of_trials_detects_a_small_error() -> None:
    problem = problem_of("disjoint")
    right, wrong = (samples(plan_of(spec, problem, 200, 1), 2000) for spec in ("lin-ms", "lin-ms:booster=3"))
    again = samples(plan_of("lin-ms", problem, 200, 3), 2000)
    assert compare(right, wrong) < SURE < compare(right, again)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("spec", ["lin-med", "lin-med:beta=0.5"])
def test_one_uniform_number_gives_the_same_trial_as_the_plain_loop(spec, model) -> None:
    one, other = (plan_of(spec, problem_of(model), 60, 1, engine) for engine in (DIRECT, PLAIN))
    for a, b in zip(samples(one, 5), samples(other, 5), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@functools.cache
def segmented_plan(name: str, engine: str | None) -> Plan:
    return make_plan(f"segmented:policy={_quoted(name)}", SEGMENTS, 40, 3, [40], engine)


def accepts(name: str, problem: ContextualProblem) -> bool:
    """Whether a policy accepts the rewards of a problem."""
    policy = maillard.policy(name, sigma2=0.25, horizon=10)
    return problem.positive or not policy.requires_positive_rewards


def _quoted(name: str) -> str:
    return "'" + name + "'"


@pytest.mark.parametrize("name", [name for name in K_ARMED if name != "dmed"])
def test_every_policy_runs_in_segments(name) -> None:
    """Policies that use one uniform number per round give the same trials as the plain loop."""
    if not accepts(name, SEGMENTS):
        return
    compiled, plain = segmented_plan(name, None), segmented_plan(name, PLAIN)
    shape = maillard.simulation.policy_formulas.engine_shape(compiled.policy.policy)
    a, b = (run_context_trials(plan, SEGMENTS, 0, 3) for plan in (compiled, plain))
    assert a.pulls.sum() == b.pulls.sum() == 120
    if shape in ("sampled", "indexed", "pooled") and compiled.policy.constant_probabilities(3) is None:
        assert np.array_equal(a.pulls, b.pulls)
        np.testing.assert_allclose(a.regret, b.regret, rtol=1e-12)


@pytest.mark.parametrize(
    "spec",
    ["segmented:policy='kl-ms:floor=0.2'", "segmented:floor=0.3,policy='ts-bernoulli:floor=0.2'",
     "segmented:floor=1,floor_decay=0.5,policy=ms", "segmented:floor=0.1,policy=uniform"],
)  # fmt: skip
def test_floors_of_segments_agree_with_a_plain_loop(spec) -> None:
    compiled, plain = (
        make_plan(spec, SEGMENTS, 30, seed, [30], engine) for seed, engine in ((1, DIRECT), (2, PLAIN))
    )
    assert compare(samples(compiled, 2000), samples(plain, 25)) > SURE


def test_two_floors_of_which_the_inner_decays_run_plain() -> None:
    spec = "segmented:floor=0.1,policy='ms:floor=1,floor_decay=0.5'"
    assert engines_for(make_plan(spec, SEGMENTS, 10, 0)) == [PLAIN]
    assert simulate(spec, SEGMENTS, 10, 2).pulls.sum() == 20


@pytest.mark.parametrize("name", K_ARMED)
def test_policies_without_a_context_ignore_it(name) -> None:
    if not accepts(name, SEGMENTS):
        return
    plan = make_plan(name, SEGMENTS, 30, 0, [30])
    made = run_context_trials(plan, SEGMENTS, 0, 4)
    assert (made.pulls.sum(axis=1) == 30).all()
    if not plan.policy.has_prior:
        assert (made.pulls >= 1).all()  # as in every simulation, each arm is pulled once at first


def test_results_do_not_depend_on_threads_executors_or_other_policies() -> None:
    problem = "linear:arms=3,dim=2"
    alone = simulate("lin-ms", problem, 200, 20, seed=4, threads=1)
    among = simulate(["lin-ucb", "lin-ms"], problem, 200, 20, seed=4, threads=2)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        elsewhere = simulate("lin-ms", problem, 200, 20, seed=4, executor=pool)
    assert np.array_equal(alone.regret[0], among.regret[1])
    assert np.array_equal(alone.regret[0], elsewhere.regret[0])
    assert not np.array_equal(alone.regret[0], simulate("lin-ms", problem, 200, 20, seed=5).regret[0])
    summary = simulate("lin-ms", problem, 200, 20, seed=4, keep="summary")
    assert np.array_equal(summary.final_regret, alone.final_regret)


@pytest.mark.parametrize("engine", [None, "plain"])
def test_a_run_stops_when_asked_to(engine) -> None:
    problem = problem_of("disjoint")
    with pytest.raises(Stopped):
        run_context_trials(plan_of("lin-ms", problem, 100, 0, engine), problem, 0, 1, np.ones(1, np.int64))


def test_regret_is_measured_against_the_best_arm_of_each_context() -> None:
    result = simulate("uniform", SEGMENTS, 4000, 50, seed=2)
    expected = 4000 * (2 / 3 * (0.7 - 1.3 / 3) + 1 / 3 * (0.6 - 1.4 / 3))
    assert abs(result.mean_regret[0, -1] - expected) < 5 * result.standard_error[0, -1]
    oracle = simulate("arm:0", Segmented({"a": "bernoulli:0.9,0.1"}), 100, 3)
    assert (oracle.final_regret == 0).all()


def test_policies_have_the_expected_order_of_regret() -> None:
    """Policies have the expected order on a problem with an intercept, K = 5 and d = 4."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.ones(2000), rng.uniform(-1, 1, (2000, 3))])
    coefficients = rng.standard_normal((5, 4)) * 0.2
    problem = Linear(rows=rows, coefficients=coefficients)
    specs = ["lin-ucb", "lin-ms", "lin-ts", "lin-epsilon-greedy", "uniform"]
    mean = dict(zip(specs, simulate(specs, problem, 1000, 200, seed=1).mean_regret[:, -1], strict=True))
    assert (
        mean["lin-ucb"] < mean["lin-ms"] < mean["lin-ts"] < mean["lin-epsilon-greedy"] < mean["uniform"] / 2
    )


class Own(maillard.LinearSampled):
    """A user's own contextual policy."""

    steep: float = maillard.real("steepness", default=3.0, above=0)

    def rival(self, gap, s2, t):
        return -self.steep * gap / np.sqrt(s2)


class Slow(Own):
    def rival(self, gap, s2, t):
        return np.array([-self.steep * float(str(each)) for each in np.atleast_1d(gap / np.sqrt(s2))])


class Changed(Own):
    def _solve_scores(self, scores, bounds):
        return np.full(scores.mu.size, -np.log(scores.mu.size)), None


def test_own_policies_run_compiled_slowly_or_plain() -> None:
    problem = problem_of("disjoint")
    own = Own(reward_range=(0, 1))
    assert engines_for(Plan(own, problem, (10,), 0)) == [DIRECT, PLAIN]
    assert engines_for(Plan(Changed(reward_range=(0, 1)), problem, (10,), 0)) == [PLAIN]
    fast = samples(Plan(own, problem, (40,), 1), 1000)
    assert compare(fast, samples(Plan(own, problem, (40,), 2, PLAIN), 25)) > SURE
    with pytest.warns(SlowFormula):
        slow = samples(Plan(Slow(reward_range=(0, 1)), problem, (40,), 2), 100)
    assert compare(fast, slow) > SURE
    uniform = samples(Plan(Changed(reward_range=(0, 1)), problem, (40,), 1), 60)
    assert compare(fast, uniform) < SURE


class Broken(maillard.LinearIndexed):
    """A policy whose index is not a number after a while."""

    def index(self, mu, s2, gap, t):
        return np.sqrt(20.0 - t) + mu


def test_a_formula_that_returns_no_number_is_an_error() -> None:
    plan = Plan(Broken(reward_range=(0, 1)), problem_of("disjoint"), (100,), 0)
    with pytest.raises(
        InvalidValue, match=r"Broken: arm 0 in round 21: expected a formula that returns a number"
    ):
        run_context_trials(plan, problem_of("disjoint"), 0, 1)


def test_a_singular_model_is_an_error_that_names_the_ridge() -> None:
    rows = np.tile([[1.0, 1.0], [1.0, 1.0 - 2.0**-16]], (5, 1))
    problem = Linear(rows=rows, coefficients=np.zeros((2, 2)))
    plan = plan_of("lin-ms:ridge=1e-90", problem, 200, 0)
    with pytest.raises(InvalidValue, match="ridge: expected a larger number"):
        run_context_trials(plan, problem, 0, 1)


def test_joint_draws_run_for_any_number_of_features() -> None:
    """Their probabilities are not computed beyond rank 2, but choices can be sampled."""
    problem = problem_of("shared", dim=5)
    result = simulate([JOINT, "uniform"], problem, 300, 40, seed=1)
    assert result.mean_regret[0, -1] < result.mean_regret[1, -1] / 2
    with pytest.raises(InvalidValue, match="rank 3 or more"):
        simulate(JOINT, problem, 10, 1, engine="plain")


@pytest.mark.parametrize(
    ("policy", "problem", "message"),
    [
        ("lin-ms", "bernoulli:0.1,0.2", "problems with contexts are linear:arms=10,dim=5"),
        ("segmented:policy=ms", "gaussian:1,0", "problems with contexts are"),
        ("segmented:policy=kl-ms", "linear", r"Segmented\(\{...\}\) and Classification"),
        ("kl-ms", "linear", "expected rewards from 0 to 1"),
        ("lin-ms:floor=0.1/0.2", "linear:arms=3", "3 numbers, one per arm"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_fix(policy, problem, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        simulate(policy, problem, 10, 1)


def test_a_gpu_is_refused() -> None:
    with pytest.raises(InvalidValue, match="expected cpu, got 'cuda'"):
        simulate("lin-ms", "linear", 10, 1, device="cuda")
    assert simulate("lin-ms", "linear", 10, 1, device="auto").pulls.sum() == 10


def test_policies_by_name_get_range_or_centre_from_the_problem() -> None:
    def made(spec, problem):
        return str(make_plan(spec, problems.problem(problem), 100, 0).policy)

    assert made("lin-ms", "linear:noise=bernoulli") == "lin-ms:reward_range=0..1"
    assert made("lin-ms", "linear:variance=4") == "lin-ms:centre=0.5,sigma2=4"
    assert made("lin-ms:centre=0", "linear") == "lin-ms:centre=0,sigma2=0.25"
    assert made("lin-ms:reward_range=-1..1", "linear") == "lin-ms:reward_range=-1..1"
    assert made("igw", "sphere") == "igw:centre=0"
    own = SegmentedPolicy(policy=maillard.policy("moss", sigma2=1.0))
    assert str(make_plan(own, SEGMENTS, 70, 0).policy) == "segmented:policy='moss:horizon=70,sigma2=1'"
    assert make_plan("segmented:policy=thompson", SEGMENTS, 9, 0).policy.policy.name == "ts-bernoulli"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("lin-ms", Linear(arms=3, dim=2)),
        ("lin-rand-ucb:floor=0.2", Linear(arms=3, dim=2, model="shared", noise="bernoulli")),
        ("segmented:policy=kl-ms", SEGMENTS),
        ("ms", SEGMENTS),
    ],
)
def test_logs_have_contexts_and_exact_probabilities(spec, problem, tmp_path) -> None:
    log = maillard.simulate_log(spec, problem, 60, seed=3)
    policy = maillard.policy(log.provenance["policy"])
    tally: Tally | SegmentTally | LinearTally = Tally.empty(3)
    if spec.startswith("seg"):
        tally = SegmentTally.empty(3)
    elif policy.uses_context:
        tally = LinearTally.empty(problem.dim, None if problem.shared else 3)
    for t, (arm, reward) in enumerate(zip(log.arms.tolist(), log.rewards.tolist(), strict=True)):
        x = log.contexts[t]
        if isinstance(tally, SegmentTally):
            expected, place = (
                policy.log_probabilities(tally, log.segments[t].item()),
                (log.segments[t].item(), arm),
            )
            tally.add(*place, reward)
        elif isinstance(tally, LinearTally):
            expected = policy.log_probabilities(tally, x)
            tally.add(x[arm] if problem.shared else x, reward, **({} if problem.shared else {"arm": arm}))
        else:
            expected = policy.log_probabilities(tally) if t >= log.forced else log.log_probabilities[t]
            tally.add(arm, reward)
        assert np.array_equal(log.log_probabilities[t], expected)
        assert log.log_probability[t] == log.log_probabilities[t, arm]
    log.to_parquet(tmp_path / "log.parquet")
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "log.parquet")
    assert np.array_equal(np.array(table["context"].to_pylist()), log.contexts)
    assert ("segment" in table.column_names) == (log.segments is not None)
    if log.segments is not None:
        assert table["segment"].to_pylist() == log.segments.tolist()


def test_several_logs_go_to_one_file(tmp_path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "logs.parquet"
    maillard.simulate_log("lin-ms", "linear:arms=3,dim=2", 20, runs=3, path=path, probabilities="chosen")
    assert pq.read_table(path).num_rows == 60


def test_classification_learns_the_labels() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    rows = np.eye(3)[y] + 0.2 * rng.uniform(-1, 1, (300, 3))
    problem = Classification(rows, y, bound=1.2, segments=np.where(y == 0, "a", "b"))
    result = simulate(["lin-ucb", "segmented:policy=kl-ms", "uniform"], problem, 1000, 20, seed=1)
    linear, segments, uniform = result.mean_regret[:, -1]
    assert linear < 60
    assert linear < segments < uniform == pytest.approx(667, abs=15)
