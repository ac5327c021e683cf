"""`simulate`: known results, the same bits on every executor, and errors before any trial runs."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any, ClassVar

import numpy as np
import pytest

import maillard
from maillard import InvalidValue, problems
from maillard.policies import Indexed
from maillard.simulation import Interrupted, Result
from maillard.simulation.result_files import write

POLICIES = ["ms+", "ts", "ucb1", "dmed", "phe"]
PROBLEM = "bernoulli:0.5,0.45,0.4"


def run(**options) -> Any:
    return maillard.simulate(POLICIES, PROBLEM, 300, 60, seed=7, **options)


@pytest.fixture(scope="module")
def single() -> Any:
    return run(threads=1)


def same(a: Result, b: Result) -> bool:
    return np.array_equal(a.values, b.values) and np.array_equal(a.pulls, b.pulls)


def test_results_of_a_run(single) -> None:
    assert single.final_regret.shape == (5, 60)
    assert single.pulls.shape == (5, 60, 3)
    assert (single.pulls.sum(axis=2) == 300).all()
    assert single.mean_regret.shape == (5, single.rounds.size)
    assert single.rounds[0] == 1
    assert single.rounds[-1] == 300
    gaps = problems.problem(PROBLEM).gaps
    assert single.final_regret == pytest.approx(single.pulls @ gaps, abs=1e-9)
    assert (np.diff(single.values, axis=2) >= 0).all()
    assert (single.quantile(0.05) <= single.quantile([0.5, 0.95])[1]).all()
    assert (single.max >= single.mean - 1e-9).all()
    assert single.sd == pytest.approx(single.regret.std(axis=1, ddof=1))
    assert single.provenance["seed"] == 7
    assert single.provenance["policies"][0] == "ms+:sigma2=0.25"


@pytest.mark.parametrize("threads", [2, 8])
def test_the_same_bits_on_any_number_of_threads(single, threads) -> None:
    assert same(single, run(threads=threads))


def test_a_trial_depends_on_seed_policy_and_number_alone(single) -> None:
    alone = maillard.simulate("ts", PROBLEM, 300, 10, seed=7)
    assert np.array_equal(alone.values[0], single.values[1, :10])
    assert not np.array_equal(alone.values[0], maillard.simulate("ts", PROBLEM, 300, 10, seed=8).values[0])
    other = maillard.simulate("ts:scale=1.01", PROBLEM, 300, 10, seed=7)
    assert not np.array_equal(alone.pulls, other.pulls)


def test_the_same_bits_for_any_chunks(single, monkeypatch) -> None:
    from maillard.simulation import cpu_backend

    for rounds in (300, 2100):
        monkeypatch.setattr(cpu_backend, "_MAX_BATCH_ROUNDS", rounds)
        assert same(single, run(threads=2))


def test_the_same_bits_in_a_process_pool(single) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert same(single, run(executor=pool))


def test_trials_are_divided_among_the_workers_of_an_executor() -> None:
    tasks = []

    class Counting(concurrent.futures.ThreadPoolExecutor):
        def submit(self, function, /, *arguments, **options):
            tasks.append(arguments)
            return super().submit(function, *arguments, **options)

    with Counting(2) as pool:
        for workers, expected in ((1, 4), (10, 40)):
            tasks.clear()
            maillard.simulate("ms", PROBLEM, 100, 80, executor=pool, threads=workers)
            assert len(tasks) == expected


def test_the_same_bits_on_a_dask_cluster(single) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        assert same(single, run(executor=client.get_executor()))
        command = [
            sys.executable,
            "-m",
            "maillard",
            "simulate",
            *POLICIES,
            "--problem",
            PROBLEM,
            "--horizon",
            "300",
        ]
        command += [
            "--trials",
            "60",
            "--seed",
            "7",
            "--scheduler",
            cluster.scheduler_address,
            "--format",
            "json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["summary"]
    assert [row["mean"] for row in rows] == pytest.approx(single.mean_regret[:, -1].tolist(), rel=1e-15)


def test_uniform_choice_loses_the_mean_gap_in_every_round() -> None:
    for problem, horizon in (("gaussian-linear:arms=10", 500), ("bernoulli-equal:arms=7", 203)):
        result = maillard.simulate("uniform", problem, horizon, 4000, seed=3)
        expected = horizon * problems.problem(problem).gaps.mean()
        z = (result.mean_regret[0, -1] - expected) / result.standard_error[0, -1]
        assert abs(z) < 4.5
    arm = maillard.simulate(["arm:1", "dist:0.25,0.75"], "bernoulli:0.9,0.5", 100, 2000, seed=3)
    assert arm.final_regret[0] == pytest.approx(np.full(2000, 40.0))
    assert abs(arm.mean_regret[1, -1] - 30.0) < 4.5 * arm.standard_error[1, -1]


ANCHORS = {2: (8.25, 0.02), 10: (72.69, 0.04), 100: (788.2, 0.2)}


@pytest.mark.parametrize(("arms", "trials"), [(2, 3000), (10, 1500), (100, 400)])
def test_anchors_on_gaussian_equal(arms, trials) -> None:
    """Mean regret of MS+ with B = 4 after 20,000 rounds, compared with independent runs."""
    result = maillard.simulate("ms+:booster=4", f"gaussian-equal:arms={arms}", 20_000, trials, seed=arms)
    mean, error = ANCHORS[arms]
    z = (result.mean_regret[0, -1] - mean) / np.hypot(error, result.standard_error[0, -1])
    assert abs(z) < 4.5
    wrong = maillard.simulate("ms+:booster=2", f"gaussian-equal:arms={arms}", 20_000, trials, seed=arms)
    assert abs(wrong.mean_regret[0, -1] - mean) > 4.5 * np.hypot(error, wrong.standard_error[0, -1])


@pytest.mark.parametrize("delay", ["fixed:50", "batched:50", "geometric:50"])
def test_delay_costs_regret(delay) -> None:
    spec = "bernoulli:0.6,0.4"
    late = maillard.simulate(["ms+", "ucb1", "ts"], f"{spec},delay={delay}", 500, 400, seed=1)
    prompt = maillard.simulate(["ms+", "ucb1", "ts"], spec, 500, 400, seed=1)
    assert (late.mean_regret[:, -1] > prompt.mean_regret[:, -1] + 2 * prompt.standard_error[:, -1]).all()
    assert (late.pulls.sum(axis=2) == 500).all()


def test_sigma2_and_horizon_come_from_the_simulation() -> None:
    result = maillard.simulate(["ms", "moss", "ucb+:horizon=50"], "gaussian-equal:arms=3,variance=2", 100, 5)
    assert result.provenance["policies"] == [
        "ms:sigma2=2",
        "moss:horizon=100,sigma2=2",
        "ucb+:horizon=50,sigma2=2",
    ]
    given = maillard.simulate([maillard.MOSS(sigma2=1), maillard.policy("ms", sigma2=1)], PROBLEM, 100, 5)
    assert given.provenance["policies"] == ["moss:horizon=100,sigma2=1", "ms:sigma2=1"]
    assert given.policies == ("moss:sigma2=1", "ms:sigma2=1")


def broken_policy(kind):
    shape: Any = maillard.Indexed if kind == "index" else maillard.Sampled

    class Broken(shape):  # type: ignore[misc]
        def index(self, n, mean, best, t, k):
            return np.where(t > 20, np.nan, mean)

        def rival(self, n, mean, best, t):
            return np.where(t > 20, np.nan, 0.0 * n)

    return Broken()


class Raises(maillard.Sampled):
    def rival(self, n, mean, best, t):
        if np.any(np.asarray(t) > 30):
            raise RuntimeError("no more")
        return 0.0 * n


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, "horizon: expected a whole number >= 1"),
        ({"horizon": 2.5}, "horizon"),
        ({"trials": 0}, "trials: expected a whole number >= 1"),
        ({"policies": []}, "policies: expected at least one policy"),
        ({"policies": [3]}, "policies: expected policies and their specs"),
        ({"policies": 5}, "policies: expected policies and their specs"),
        ({"policies": "arm:0", "engine": "nonsense"}, "expected direct"),
        ({"problem": None}, "problem: expected a Problem or its spec"),
        ({"seed": -1}, "seed"),
        ({"seed": None}, "seed"),
        ({"threads": 0}, "threads"),
        ({"executor": "pool"}, "executor: expected a concurrent.futures.Executor"),
        (
            {"policies": "kl-ms", "problem": "gaussian-equal"},
            "kl-ms on the problem 'gaussian-equal': expected rewards from 0 to 1",
        ),
        ({"policies": "imed:family=poisson", "problem": "gaussian-equal"}, "expected rewards >= 0"),
        ({"policies": "imed:family=exponential"}, "expected rewards > 0"),
        ({"policies": "giro", "problem": "uniform-noise:0.5,width=0.1"}, "giro on the problem"),
        ({"policies": "ms", "problem": "poisson:2,1"}, "sigma2"),
        ({"policies": "arm:5"}, "a position from 0 to 2"),
        ({"policies": "ms:floor=0.1/0.2"}, "3 numbers, one per arm"),
        ({"problem": "gaussian:1,inf"}, "means[1]"),
        ({"checkpoints": [1, 5]}, "checkpoints"),
        ({"checkpoints": [5, 1, 100]}, "checkpoints"),
        ({"policies": "dmed", "engine": "lazy"}, "expected direct or plain, got 'lazy'"),
        ({"policies": broken_policy("weight")}, "Broken: log weight of arm"),
        ({"policies": broken_policy("index")}, "Broken: index of arm"),
        ({"policies": Raises()}, "no more"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::maillard.simulation.SlowFormula")
def test_bad_input_is_rejected(arguments, message) -> None:
    given = {"policies": "ms", "problem": PROBLEM, "horizon": 100, "trials": 2} | arguments
    with pytest.raises(InvalidValue) as caught:
        maillard.simulate(**given)
    assert message in str(caught.value)


def test_a_user_defined_policy_runs_compiled() -> None:
    class Careful(maillard.Sampled):
        """Maillard sampling with half the evidence."""

        sigma2: float = maillard.real("variance", default=0.25, above=0)

        def rival(self, n, mean, best, t):
            return -0.5 * n * (best - mean) ** 2 / (2 * self.sigma2)

    theirs = maillard.simulate(Careful(), PROBLEM, 400, 2000, seed=1)
    ours = maillard.simulate("ms:sigma2=0.5", PROBLEM, 400, 2000, seed=2)  # the same distribution
    z = (theirs.mean - ours.mean)[0, -1] / np.hypot(theirs.standard_error, ours.standard_error)[0, -1]
    assert abs(z) < 4.5


class Contrarian(maillard.Policy):
    """Computes all probabilities without formulas."""

    probability_kind = "closed form"

    def _solve(self, n, s, t):
        p = np.ones(n.size) + (np.arange(n.size) == t % n.size)
        return np.log(p / p.sum()), None


def test_a_policy_without_formulas_runs() -> None:
    result = maillard.simulate(Contrarian(), PROBLEM, 60, 40, seed=1)
    assert (result.pulls.sum(axis=2) == 60).all()
    log = maillard.simulate_log(Contrarian(), PROBLEM, 12, seed=1)
    assert np.exp(log.log_probabilities[3:]).sum(axis=1) == pytest.approx(1)
    assert np.exp(log.log_probabilities[5]) == pytest.approx([0.5, 0.25, 0.25])


@pytest.mark.parametrize("where", ["threads", "processes"])
def test_ctrl_c_stops_at_once_and_reports_the_finished_trials(where) -> None:
    """The direct engine with a thousand arms needs minutes for this."""
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    options = {"engine": "direct", "seed": 1}
    maillard.simulate("ms", "gaussian-equal:arms=3", 100, 2, **options)  # compile before the measurement
    timer.start()
    if where == "threads":
        with pytest.raises(Interrupted, match=r"stopped; trials done: ms \d+ of 500"):
            maillard.simulate("ms", "gaussian-equal:arms=1000", 10**6, 500, **options)
    else:
        code = textwrap.dedent("""
            import concurrent.futures, multiprocessing, maillard
            if __name__ == "__main__":
                class Pool(concurrent.futures.ProcessPoolExecutor):
                    def submit(self, *task):
                        future = super().submit(*task)
                        future.add_done_callback(lambda _: print("done", flush=True))
                        return future

                with Pool(2, mp_context=multiprocessing.get_context("spawn")) as pool:
                    try:
                        problem, options = "gaussian-equal:arms=10", {"executor": pool, "engine": "direct"}
                        maillard.simulate("ms", problem, 10**3, 10**6, **options)
                    except KeyboardInterrupt as stopped:
                        print(stopped, flush=True)
        """)
        timer.cancel()
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"  # the first of many tasks
        os.killpg(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=300)
        assert "stopped; trials done: ms" in out


def test_saved_results_are_loaded_unchanged(single, tmp_path) -> None:
    path = tmp_path / "result.npz"
    single.save(path)
    again = Result.load(path)
    assert same(single, again)
    assert again.policies == single.policies
    assert again.provenance == single.provenance
    assert again.provenance["versions"]["maillard"] == maillard.__version__
    with pytest.raises(InvalidValue, match=r"ends in \.npz"):
        single.save(tmp_path / "result.txt")
    for content in (b"nothing", b"", path.read_bytes()[:500]):
        (tmp_path / "other.npz").write_bytes(content)
        with pytest.raises(InvalidValue, match=r"a file written by Result\.save"):
            Result.load(tmp_path / "other.npz")
    with pytest.raises(InvalidValue, match="an existing file"):
        Result.load(tmp_path / "none.npz")


def test_files_for_other_programs(single, tmp_path) -> None:
    for name in ("a.json", "a.csv", "a.parquet", "a.png", "a.svg", "a-distributions.svg"):
        write(single, tmp_path / name)
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["summary"][0]["mean"] == single.mean_regret[0, -1]
    assert content["curves"]["ts"]["max"][-1] == single.max[1, -1]
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "policy,trial,regret,pulls_0,pulls_1,pulls_2"
    assert len(lines) == 1 + 5 * 60
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "a.parquet")
    assert table["regret"].to_numpy() == pytest.approx(single.final_regret.ravel())
    assert table["pulls"][61].as_py() == single.pulls[1, 1].tolist()
    assert json.loads(table.schema.metadata[b"maillard"])["seed"] == 7
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert "uniform" not in (tmp_path / "a.svg").read_text()
    with pytest.raises(InvalidValue, match="ends in"):
        write(single, tmp_path / "a.xls")
    first = (tmp_path / "a.svg").read_bytes()
    write(single, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_bytes() == first  # the same figure, the same bytes
    with pytest.raises(InvalidValue, match="curves or distributions"):
        single.plot("pie")


def test_memory_does_not_grow_with_the_horizon() -> None:
    # VmHWM and not ru_maxrss, which a process inherits from its parent.
    code = (
        "import maillard; maillard.simulate('ms+', 'gaussian-equal:arms=10', {}, 1, threads=1);"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    maillard.simulate("ms+", "gaussian-equal:arms=10", 100, 1, threads=1)  # compile, unless it is cached
    commands = [[sys.executable, "-c", code.format(t)] for t in (10**3, 10**7)]
    sizes = [
        int(subprocess.run(each, capture_output=True, text=True, check=True).stdout) for each in commands
    ]
    assert sizes[1] < 300 * 1024
    assert sizes[1] - sizes[0] < 5 * 1024


@pytest.mark.torture  # recompiles, which takes most of a minute
def test_one_engine_serves_every_policy_of_its_base_class(tmp_path) -> None:
    policies = ["ms", "ms+", "boltzmann", "uniform"]
    code = f"import maillard; maillard.simulate({policies}, 'bernoulli:0.5,0.4', 50, 2)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    engines = [path.name for path in tmp_path.rglob("*.nbi") if path.name.startswith("trial_loop.")]
    versions = [path.name for path in tmp_path.rglob("*.nbc") if path.name.startswith("trial_loop.")]
    assert len(engines) == len(versions) == 1


def test_import_stays_light() -> None:
    heavy = ("numba", "matplotlib", "pyarrow", "distributed")
    code = f"import sys, maillard; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'simulated'"):
        _ = maillard.simulated


class CoinFlips(Indexed):
    """A user-defined policy for rewards 0 and 1 only."""

    requires_binary_rewards: ClassVar[bool] = True

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        return mean + 1 / np.sqrt(n)


class PositivePayments(CoinFlips):
    """A user-defined policy for positive rewards only."""

    requires_binary_rewards: ClassVar[bool] = False
    requires_positive_rewards: ClassVar[bool] = True


@pytest.mark.parametrize("wrap", [lambda policy: policy, lambda policy: maillard.WithFloor(policy, 0.1)])
def test_policies_declare_which_problems_they_accept(wrap) -> None:
    with pytest.raises(InvalidValue, match="expected rewards 0 and 1"):
        maillard.simulate(wrap(CoinFlips()), "gaussian-equal:arms=2", 20, 2)
    with pytest.raises(InvalidValue, match="expected rewards > 0"):
        maillard.simulate(wrap(PositivePayments()), "bernoulli:0.5,0.4", 20, 2)
    assert maillard.simulate(wrap(CoinFlips()), "bernoulli:0.5,0.4", 20, 2).trials == 2
    assert maillard.simulate(wrap(PositivePayments()), "exponential:0.5,0.4", 20, 2).trials == 2


class Mixin:
    """A mixin, not a policy, that overrides how a policy chooses."""

    def probabilities(self, tally: Any, **_: Any) -> Any:
        return np.eye(len(tally))[1]


class Overriding(Mixin, Indexed):  # type: ignore[misc]  # its method takes no context
    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        return mean


def test_a_policy_that_overrides_its_probabilities_is_simulated_with_them() -> None:
    result = maillard.simulate(Overriding(), "bernoulli:0.9,0.1", 20, 2)
    assert result.pulls[0].tolist() == [[1, 19], [1, 19]]
