"""The CUDA backend: its random numbers, memory layout, distribution of trials, and rejected input.

Without a GPU, everything runs in numba's CUDA simulator (see conftest.py) at about a thousand rounds per
second, so samples are small here and larger in `make torture`. Sampling distributions are compared with those
of the CPU. Choices are also compared with their exact probabilities round by round, which detects much
smaller errors.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import maillard
from maillard import InvalidValue, problems
from maillard.policies.numerics import score_distributions
from maillard.policies.numerics.elementwise import where
from maillard.simulation import Result
from maillard.simulation.backends import CPU, NoDevice, Stopped, TrialBatch
from maillard.simulation.compiled_plans import DIRECT, LAZY
from maillard.simulation.cpu_backend import run_trials
from maillard.simulation.cuda import cuda_backend as device
from maillard.simulation.cuda import (
    cuda_toolkit,
    device_random_numbers,
    index_tables,
    lockstep_kernel,
    trial_kernel,
)
from maillard.simulation.cuda.engines import lazy_indexed, lazy_sampled, trial_memory
from maillard.simulation.cuda.engines.lazy_sampled import LEADER_HIGH, POSITION
from maillard.simulation.cuda.engines.trial_memory import LEADER, find_arm
from maillard.simulation.policy_formulas import is_separable, without_floor
from tests.every_policy import NAMES, runs_on
from tests.simulation.cuda import (
    ObservedChoices,
    compile_output,
    deviation_bounds,
    finish,
    freedman,
    observe_choices,
    plan_of,
)

# There are about 500 comparisons with the CPU and 200 with exact probabilities, and twice as many in `make
# torture`. With this level, fewer than one suite in a thousand fails by accident.
SURE = 1e-6
GAUSSIAN, BERNOULLI = "gaussian:0.6,0.4,0.4,0", "bernoulli:0.6,0.4,0.4,0.2"
EXTRA = [
    "ms:floor=0.1",
    "ucb1:floor=0.2",
    "ts:floor=1,floor_decay=0.7",
    "boltzmann:eta=3,schedule=log",
    "ms+:booster=16,c=1,d=1",
]
SUPPORTED = [
    name for name in NAMES if device._engines(without_floor(maillard.policy(name, sigma2=0.25, horizon=100)))
]
real = pytest.mark.skipif(cuda_toolkit.simulated(), reason="there is no GPU here, only its simulator")


# Random numbers


@pytest.fixture
def wrapping() -> Any:
    """Let sums of unsigned numbers overflow silently, as on a GPU."""
    with np.errstate(over="ignore"):
        yield


def stream(key: tuple[int, int], trial: int) -> Any:
    rng = np.zeros(2, np.uint64)
    device_random_numbers.seed_stream(rng, np.array(key, np.uint64), np.uint64(trial))
    return rng


# Counter, key and result from Random123's kat_vectors.
KNOWN_VALUES = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_VALUES)
@pytest.mark.usefixtures("wrapping")
def test_streams_start_with_philox(counter, key, expected) -> None:
    low, high = (a | b << 32 for a, b in (counter[:2], counter[2:]))
    rng = stream((key[0] | key[1] << 32, high), low)
    assert " ".join(f"{int(each) >> shift & 0xFFFFFFFF:08x}" for each in rng for shift in (0, 32)) == expected


def xoroshiro(a: int, b: int) -> Any:
    """xoroshiro128++ with Python integers."""
    whole = 2**64 - 1

    def rotate(x: int, by: int) -> int:
        return (x << by | x >> (64 - by)) & whole

    while True:
        yield (rotate((a + b) & whole, 17) + a) & whole
        b ^= a
        a, b = rotate(a, 49) ^ b ^ (b << 21 & whole), rotate(b, 28)


@pytest.mark.parametrize("state", [(1, 0), (2**64 - 1, 2**63), (0x0123456789ABCDEF, 0xFEDCBA9876543210)])
@pytest.mark.usefixtures("wrapping")
def test_streams_continue_with_xoroshiro(state) -> None:
    rng, expected = np.array(state, np.uint64), xoroshiro(*state)
    for _ in range(500):
        assert int(device_random_numbers.bits(rng)) == next(expected)


@pytest.mark.usefixtures("wrapping")
def test_random_numbers_have_their_distributions() -> None:
    rng = stream((1, 2), 3)
    uniform, exponential = (
        np.array([draw(rng) for _ in range(20_000)])
        for draw in (device_random_numbers.uniform, device_random_numbers.exponential)
    )
    pairs = np.array([device_random_numbers.normals(rng) for _ in range(20_000)])
    single = np.array([device_random_numbers.normal(rng) for _ in range(20_000)])
    assert 0 <= uniform.min() <= uniform.max() < 1
    assert exponential.min() >= 0
    assert np.isfinite(pairs).all()
    assert stats.kstest(uniform, "uniform").pvalue > SURE
    assert stats.kstest(exponential, "expon").pvalue > SURE
    for normals in (single, pairs[:, 0], pairs[:, 1]):
        assert stats.kstest(normals, "norm").pvalue > SURE
        assert stats.kstest(normals + 0.1, "norm").pvalue < SURE
    # The two numbers of the Box-Muller method are independent: they, their squares and their signs do not
    # correlate.
    for a, b in (pairs.T, (pairs**2).T, np.sign(pairs).T):
        assert stats.pearsonr(a, b).pvalue > SURE
    assert stats.kstest(np.degrees(np.arctan2(*pairs.T)), "uniform", (-180, 360)).pvalue > SURE
    assert stats.kstest(uniform**1.05, "uniform").pvalue < SURE
    assert stats.kstest(1.05 * exponential, "expon").pvalue < SURE


class Fixed:
    """A generator's state whose next bits are known: all 0 or all 1."""

    def __init__(self, ones: bool) -> None:
        self.state = [np.uint64(0), np.uint64(0)]
        if ones:  # then total = -1 rotates into itself, to which a = 0 is added
            self.state = [np.uint64(0), np.uint64(2**64 - 1)]

    def __getitem__(self, place: int) -> Any:
        return self.state[place]

    def __setitem__(self, place: int, value: Any) -> None:
        pass


@pytest.mark.usefixtures("wrapping")
def test_extreme_random_numbers() -> None:
    none, all_ones = Fixed(ones=False), Fixed(ones=True)
    assert device_random_numbers.uniform(none) == 0
    assert device_random_numbers.uniform(all_ones) == 1 - 2**-53
    assert device_random_numbers.exponential(all_ones) == 0
    assert device_random_numbers.exponential(none) == pytest.approx(53 * np.log(2))
    assert np.isfinite([*device_random_numbers.normals(none), *device_random_numbers.normals(all_ones)]).all()


@pytest.mark.usefixtures("wrapping")
def test_neighbouring_streams_are_independent() -> None:
    plans = [plan_of("ms", BERNOULLI, 10, seed) for seed in range(20)]
    plans += [plan_of(spec, BERNOULLI, 10, 0) for spec in ("ts", "ucb1", "ms:floor=0.1", "ts:scale=1.01")]
    keys = [tuple(int(each) for each in device._key(plan)) for plan in plans]
    begun = {tuple(stream(key, trial).tolist()) for key in keys for trial in (*range(100), 2**32, 2**32 + 1)}
    assert len(begun) == len(keys) * 102
    # Each row is a stream: adjacent trials, then adjacent seeds.
    rngs = [stream(keys[0], trial) for trial in range(100)] + [stream(key, 0) for key in keys[1:]]
    rows = np.array([[device_random_numbers.uniform(rng) for _ in range(500)] for rng in rngs]) - 0.5
    size = 12 * np.sqrt(rows.size - rows.shape[1])
    for lag in range(3):
        later, earlier = rows[1:, lag:], rows[:-1, : rows.shape[1] - lag]
        z = 12 * (later * earlier).sum() / np.sqrt(later.size)
        assert abs(z) < stats.norm.isf(SURE / 2)
    assert 12 * (rows**2).sum() / np.sqrt(rows.size) > size / 12  # a stream with itself
    bits = np.sign(rows)
    assert abs(bits.sum()) / np.sqrt(bits.size) < stats.norm.isf(SURE / 2)


# Memory

ARMS = [1, 2, 3, 5, 16, 17, 64, 65, 100]


@pytest.mark.parametrize("arms", [*ARMS, 1000, 4097])
def test_nothing_in_memory_overlaps(arms) -> None:
    shift = trial_memory.block_shift(arms)
    blocks = ((arms - 1) >> shift) + 1
    assert 1 <= blocks <= arms
    assert blocks <= 2**shift
    for after, length in ((trial_memory.block_sums_at, blocks), (trial_memory.second_lengths_at, arms)):
        ends = [
            (0, trial_memory.HEADER),
            (trial_memory.record_at(0), trial_memory.record_at(arms - 1) + trial_memory.RECORD),
            (trial_memory.lengths_at(arms), trial_memory.lengths_at(arms) + arms),
            (after(arms), after(arms) + length),
            (trial_memory.memory_size(arms), trial_memory.memory_size(arms)),
        ]
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(ends))
    assert trial_memory.memory_size(arms) % 4 == 0


@pytest.mark.parametrize("arms", ARMS)
def test_places_on_a_line(arms) -> None:
    rng, shift = np.random.default_rng(arms), trial_memory.block_shift(arms)
    w, line = np.full(trial_memory.memory_size(arms), np.nan), trial_memory.lengths_at(arms)
    for _ in range(5):
        # Multiples of 1/64, whose sums are exact in any order; a third of them are 0.
        lengths = rng.integers(0, 200, arms) / 64 * (rng.random(arms) < 2 / 3)
        w[line : line + arms] = lengths
        for block in range(((arms - 1) >> shift) + 1):
            trial_memory.update_block_sum(w, arms, shift, block)
        for _ in range(10):
            arm = int(rng.integers(arms))
            lengths[arm] = rng.integers(0, 200) / 64
            trial_memory.set_length(w, arms, shift, arm, lengths[arm])
        assert np.array_equal(w[line : line + arms], lengths)
        ends = np.cumsum(lengths)
        assert trial_memory.total_length(w, arms, shift) == ends[-1]
        inside = np.unique([*(rng.random(30) * ends[-1]), *ends, *(ends - 1 / 128), 0.0])
        for position in inside[(inside >= 0) & (inside < ends[-1])]:
            arm = int(np.searchsorted(ends, position, side="right"))
            assert trial_memory.find_arm(w, arms, shift, position) == (
                arm,
                position - (ends[arm] - lengths[arm]),
            )
        for past in (ends[-1], ends[-1] + 1):
            assert trial_memory.find_arm(w, arms, shift, past) == (arms - 1, past - (ends[-1] - lengths[-1]))


# The distribution of trials


def engines_of(spec: str) -> list[str]:
    return device._engines(without_floor(maillard.policy(spec, sigma2=0.25, horizon=100)))


CASES = [
    (spec, text, engine)
    for spec in (*SUPPORTED, *EXTRA)
    for text in (BERNOULLI, GAUSSIAN)
    for engine in engines_of(spec)
    if runs_on(plan_of(spec, text, 30, 0, engine))
]
# The direct engines, on one problem each by default.
FEWER = [(*case, engine) for *case, engine in CASES if engine == LAZY or case[1] == BERNOULLI]


def differ(one: Any, other: Any) -> list[float]:
    """Return the p-values of Kolmogorov-Smirnov tests of the final regret and of every arm's pulls."""
    pairs = [(one.regret[:, -1], other.regret[:, -1]), *zip(one.pulls.T, other.pulls.T, strict=True)]
    return [float(stats.ks_2samp(a, b, method="asymp").pvalue) for a, b in pairs]


@functools.cache
def on_cpu(spec: str, text: str, horizon: int, trials: int) -> Any:
    return run_trials(plan_of(spec, text, horizon, 2, None, CPU), 0, trials)


def compare(
    spec: str, text: str, engine: str | None, trials: int, horizon: int, other: str = ""
) -> list[float]:
    """Compare trials on the device with many more on the CPU, optionally of another policy."""
    here = device.run(plan_of(spec, text, horizon, 1, engine), 0, trials, summarize=False)
    assert isinstance(here, TrialBatch)
    there = on_cpu(other or spec, text, horizon, max(1000, 4 * trials))
    assert (here.pulls.sum(axis=1) == horizon).all()
    assert here.regret[:, -1] == pytest.approx(here.pulls @ problems.problem(text).gaps, abs=1e-9)
    return differ(here, there)


def test_every_policy_with_an_engine_is_compared() -> None:
    assert len(SUPPORTED) > 20
    for cases in (CASES, FEWER):
        assert {spec for spec, _, _ in cases} == {*SUPPORTED, *EXTRA}
        assert all({e for spec, _, e in cases if spec == each} == {*engines_of(each)} for each in SUPPORTED)
    assert 5 * len(CASES) < 600  # comparisons: see SURE


@pytest.mark.parametrize(("spec", "text", "engine"), FEWER)
def test_trials_are_distributed_as_on_the_cpu(spec, text, engine) -> None:
    trials = 12 if spec.startswith("kl-ucb") else 24  # their formulas search for a root
    assert min(compare(spec, text, engine, trials, 20)) > SURE


INDICES = ["ucb1", "ucb1:floor=0.2", "aoucb", "moss", "moss-anytime", "ocucb", "ucb+", "apt"]
SLOW_INDICES = [pytest.param(spec, marks=pytest.mark.torture) for spec in ("kl-ucb", "kl-ucb++")]


@pytest.mark.parametrize("spec", [*INDICES, *SLOW_INDICES])
def test_indices_of_many_arms_have_the_same_distribution(spec, monkeypatch) -> None:
    """Sweeps store few arms at a time, as they do with very many arms."""
    monkeypatch.setattr(lazy_indexed, "ARMS_PER_SWEEP", 4)
    monkeypatch.setattr(device, "_KERNELS", {})
    assert min(compare(spec, BERNOULLI, LAZY, 24, 20)) > SURE


@pytest.mark.torture
@pytest.mark.parametrize(("spec", "text", "engine"), CASES)
def test_trials_are_distributed_as_on_the_cpu_for_longer(spec, text, engine) -> None:
    assert min(compare(spec, text, engine, 200, 48)) > SURE


def test_the_comparison_detects_another_booster() -> None:
    assert min(compare("ms+:booster=4", GAUSSIAN, LAZY, 120, 40, other="ms+:booster=32")) < SURE


CHOICE_CASES = [
    ("ms", BERNOULLI, LAZY, 14, 40),
    ("ms+", GAUSSIAN, LAZY, 14, 40),
    ("ms+:booster=16,c=1,d=1", BERNOULLI, LAZY, 14, 40),
    ("kl-ms", BERNOULLI, LAZY, 14, 40),
    ("kl-ms+:booster=8,jeffreys=true", BERNOULLI, LAZY, 14, 40),
    ("boltzmann:eta=3,schedule=log", "gaussian-linear:arms=9", LAZY, 14, 40),
    ("ms", BERNOULLI, DIRECT, 14, 40),
    ("ts", GAUSSIAN, LAZY, 14, 40),
    ("ts-sg", BERNOULLI, LAZY, 10, 40),
    ("ucb1", BERNOULLI, LAZY, 15, 40),
    ("moss-anytime", "bernoulli:0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5", LAZY, 5, 60),
    ("kl-ucb", "bernoulli-equal:arms=20", LAZY, 3, 50),
    ("moss-anytime", "bernoulli-equal:arms=70", LAZY, 2, 130),  # more than one chunk
    ("moss", BERNOULLI, LAZY, 12, 40),
    ("ucb1", "bernoulli-equal:arms=20", LAZY, 2, 50),  # two threads per trial
    ("aoucb", "gaussian-linear:arms=20", LAZY, 2, 50),
    ("imed", BERNOULLI, DIRECT, 15, 40),
]


@pytest.mark.parametrize(("spec", "text", "engine", "trials", "horizon"), CHOICE_CASES)
def test_choices_follow_the_probabilities_of_their_tallies(
    spec, text, engine, trials, horizon, monkeypatch
) -> None:
    observed = observe_choices(plan_of(spec, text, horizon, 3, engine), trials, monkeypatch)
    assert (observed.probabilities[np.arange(observed.chosen.size), observed.chosen] > 0).all()
    assert min(deviation_bounds(observed)) > SURE


@pytest.mark.torture
@pytest.mark.parametrize(("spec", "text", "engine"), CASES)
def test_choices_follow_the_probabilities_for_longer(spec, text, engine, monkeypatch) -> None:
    observed = observe_choices(plan_of(spec, text, 60, 3, engine), 60, monkeypatch)
    assert (observed.probabilities[np.arange(observed.chosen.size), observed.chosen] > 0).all()
    assert min(deviation_bounds(observed)) > SURE


def floor_deviation_bound(observed: ObservedChoices, epsilon: float) -> float:
    """Return an upper bound of the probability that floors are applied this much more or less often than
    with probability epsilon.
    """
    p = observed.probabilities
    even = 1 / p.shape[1]
    # The derivative of log p with respect to epsilon.
    steps = (even - (p - epsilon * even) / (1 - epsilon)) / p
    taken = steps[np.arange(observed.chosen.size), observed.chosen]
    return freedman(float(taken.sum()), float((p * steps**2).sum()), max(1 / epsilon, 1 / (1 - epsilon)))


@pytest.mark.torture
@pytest.mark.parametrize("spec", ["ms:floor=0.3", "ms+:floor=0.3", "epsilon-greedy:epsilon=0.3"])
def test_floors_have_their_probability(spec, monkeypatch) -> None:
    observed = observe_choices(plan_of(spec, "gaussian-equal:arms=10", 60, 3, LAZY), 120, monkeypatch)
    assert min(*deviation_bounds(observed), floor_deviation_bound(observed, 0.3)) > SURE


@pytest.mark.skipif(not cuda_toolkit.simulated(), reason="compiled code cannot count in a list")
@pytest.mark.parametrize(
    "spec", ["ms:floor=0.3", "ts:floor=0.3", "ucb1:floor=0.3", "ms:floor=1,floor_decay=0.5"]
)
@pytest.mark.usefixtures("own_kernels")
def test_floors_are_applied_once_per_round(spec, monkeypatch) -> None:
    """A rejected proposal is not a new round, in which the floor could be applied again."""
    calls = []

    def never(probabilities: Any, total: float, rng: Any) -> int:
        calls.append(total)
        return -1

    monkeypatch.setattr(trial_kernel, "sample_mixed_in", never)
    for engine in engines_of(spec):
        calls.clear()
        device.run(plan_of(spec, "bernoulli-equal:arms=10", 40, 3, engine), 0, 3, summarize=False)
        assert len(calls) == 3 * 30


def test_the_floor_bound_detects_a_larger_floor() -> None:
    """Sample from a policy with floor 0.4 instead of 0.3."""
    rng = np.random.default_rng(1)
    inner = rng.dirichlet(np.full(10, 0.3), 2000)
    for epsilon, found in ((0.3, False), (0.4, True)):
        claimed = 0.3 / 10 + 0.7 * inner
        actual = epsilon / 10 + (1 - epsilon) * inner
        chosen = np.array([rng.choice(10, p=row) for row in actual])
        assert (floor_deviation_bound(ObservedChoices(chosen, claimed), 0.3) < SURE) == found


# Single precision cannot tell the indices of these arms apart.
CLOSE = f"gaussian:{','.join(['1e6'] * 12)},variance=0.1"


@pytest.mark.usefixtures("own_kernels")
def test_the_formula_decides_between_close_indices(monkeypatch) -> None:
    """Without a margin for rounding, single precision decides, sometimes for an arm of probability 0."""

    def all_possible() -> bool:
        observed = observe_choices(plan_of("ucb1", CLOSE, 60, 3, LAZY), 3, monkeypatch)
        return bool((observed.probabilities[np.arange(observed.chosen.size), observed.chosen] > 0).all())

    assert all_possible()
    device._KERNELS.clear()
    monkeypatch.setattr(lockstep_kernel, "ROUNDING", 0.0)
    monkeypatch.setattr(lockstep_kernel, "center_and_slack", lambda problem: (0.0, np.float32(0.0)))
    assert not all_possible()


def test_wrong_tables_are_detected(monkeypatch) -> None:
    plan = plan_of("ucb1", GAUSSIAN, 40, 3, LAZY)
    exact = device.tables_of

    def smaller(plan: Any, horizon: int) -> Any:
        widths, levels = exact(plan, horizon) or pytest.fail("no tables")
        return index_tables.IndexTables(widths, levels * np.float32(0.7))

    monkeypatch.setattr(device, "tables_of", smaller)
    observed = observe_choices(plan, 4, monkeypatch)
    assert (observed.probabilities[np.arange(observed.chosen.size), observed.chosen] == 0).any()


class NotSeparable(maillard.Indexed):
    """Makes a false declaration."""

    monotone, index_form = True, "separable"
    uses_best = False

    def index(self, n, mean, best, t, k):
        return mean + np.sqrt(np.log(1.0 + t / n) / n)


def test_a_false_declaration_of_a_separable_index_is_detected() -> None:
    with pytest.raises(InvalidValue, match="what `index_form` declares"):
        maillard.simulate(NotSeparable(), BERNOULLI, 300, 2, device="cuda")
    assert type("More", (NotSeparable,), {"index": NotSeparable.index}).index_form is None


POLICIES = {spec: maillard.policy(spec, sigma2=0.25, horizon=100) for spec in SUPPORTED}
SEPARABLE = [
    spec for spec, made in POLICIES.items() if isinstance(made, maillard.Indexed) and is_separable(made)
]


def test_tables_of_separable_indices() -> None:
    assert {"ucb1", "aoucb", "moss", "ucb+", "ocucb"} == {*SEPARABLE}
    for spec in SEPARABLE:
        for arms in (2, 100, 300):  # with more arms than a third of the horizon, some widths of MOSS are 0
            policy = maillard.policy(spec, sigma2=0.25, horizon=300)
            widths, levels = index_tables.tabulate(policy, arms, 300) or pytest.fail("no tables")
            n, t = np.arange(1.0, 301.0), np.arange(300.0, 0.0, -1.0)
            index = policy.index(n, 0.0, np.nan, t, float(arms))
            assert widths[1:301] * levels[300:0:-1] == pytest.approx(index, rel=1e-6, abs=1e-30)
    assert index_tables.tabulate(policy, 2, index_tables.MAX_ROUNDS + 1) is None
    wide = maillard.policy("ucb1:scale=1e40", sigma2=0.25)
    assert index_tables.tabulate(wide, 2, 300) is None  # not a number of single precision


@pytest.mark.parametrize("arms", [1, 2, 13, 14, 100, 104, 105, lockstep_kernel.MAX_ARMS])
def test_threads_of_a_trial_hold_all_arms(arms) -> None:
    lanes, slots = lockstep_kernel.shape_of(arms)
    assert lanes in {1, 2, 4, 8, 16, 32}
    assert (lanes * slots) >= arms > lanes * (slots - 1)
    assert slots <= lockstep_kernel.MAX_ARMS_PER_THREAD


@real
@pytest.mark.parametrize("spec", ["ucb1", "moss"])
@pytest.mark.parametrize(
    "text", ["gaussian-equal:arms=100", "bernoulli-equal:arms=30", "gaussian-linear:arms=7"]
)
def test_many_trials_with_threads_that_cooperate(spec, text) -> None:
    """Threads of a real warp share a trial."""
    here = maillard.simulate(spec, text, 2000, 20_000, seed=1, device="cuda", checkpoints=[500, 2000])
    there = maillard.simulate(spec, text, 2000, 4_000, seed=2, checkpoints=[500, 2000])
    assert (here.pulls.sum(axis=2) == 2000).all()
    assert here.final == pytest.approx(here.pulls @ problems.problem(text).gaps, abs=1e-9)
    # The sums of lanes are rounded differently, and equal regrets must stay equal.
    pairs = [(here.values[0, :, i].round(9), there.values[0, :, i].round(9)) for i in range(2)]
    for a, b in (*pairs, *zip(here.pulls[0].T, there.pulls[0].T, strict=True)):
        assert stats.ks_2samp(a, b, method="asymp").pvalue > 1e-7
    again = maillard.simulate(spec, text, 2000, 300, seed=1, device="cuda", checkpoints=[500, 2000])
    assert np.array_equal(again.values[0], here.values[0, :300])  # whatever runs in the same warp
    assert np.array_equal(again.pulls[0], here.pulls[0, :300])


def accepting(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """Accept every proposed arm, even if its weight is below its bound."""
    if x[POSITION] < w[LEADER_HIGH]:
        return int(x[LEADER])
    return find_arm(w, arms, shift, x[POSITION] - w[LEADER_HIGH])[0]


@pytest.fixture
def own_kernels(monkeypatch) -> None:
    """Discard kernels that are built in a test."""
    monkeypatch.setattr(device, "_KERNELS", {})


@pytest.mark.usefixtures("own_kernels")
def test_an_engine_that_always_accepts_is_detected(monkeypatch) -> None:
    plan = plan_of("ms", "gaussian-equal:arms=10", 40, 3, LAZY)
    assert min(deviation_bounds(observe_choices(plan, 20, monkeypatch))) > SURE
    device._KERNELS.clear()
    wrong = (*lazy_sampled.ENGINE[:3], accepting, *lazy_sampled.ENGINE[4:])
    monkeypatch.setattr(device, "_ENGINES", {**device._ENGINES, ("sampled", LAZY): wrong})
    assert min(deviation_bounds(observe_choices(plan, 20, monkeypatch))) < SURE
    here = device.run(plan_of("ms", "gaussian-equal:arms=10", 60, 3, LAZY), 0, 100, summarize=False)
    assert isinstance(here, TrialBatch)
    there = run_trials(plan_of("ms", "gaussian-equal:arms=10", 60, 4, None, CPU), 0, 1500)
    assert min(differ(here, there)) < SURE


def groups() -> dict[str, list[str]]:
    # Not by importing the package, which needs matplotlib: these tests run without it.
    text = (Path(maillard.__file__).parent / "reproduction" / "paper_experiments.toml").read_text("utf8")
    found: dict[str, list[str]] = tomllib.loads(text)["groups"]
    return found


@real
@pytest.mark.parametrize("text", [*groups()["gaussian-1"], *groups()["bernoulli"]])
def test_the_papers_problems_run_as_on_the_cpu(text) -> None:
    """Nine policies on ten problems, 2 to 100 arms.

    4086 comparisons of distributions, and as many of means.
    """
    policies = groups()["paper"]
    here = maillard.simulate(policies, text, 2000, 100_000, seed=1, device="cuda", checkpoints=[2000])
    there = maillard.simulate(policies, text, 2000, 10_000, seed=2, checkpoints=[2000])
    for i, _ in enumerate(policies):
        # The sums of lanes are rounded differently, and equal regrets must stay equal.
        final = here.final[i].round(9), there.final[i].round(9)
        pairs = [final, *zip(here.pulls[i].T, there.pulls[i].T, strict=True)]
        for a, b in pairs:
            assert stats.ks_2samp(a, b, method="asymp").pvalue > 1e-7
            z = (a.mean() - b.mean()) / np.sqrt(a.var() / a.size + b.var() / b.size + 1e-300)
            assert abs(z) < stats.norm.isf(0.5e-7)


class Believer(maillard.Perturbed):
    """Thompson sampling from a normal prior: no arm is forced."""

    noise = score_distributions.GAUSSIAN
    has_prior = True

    def score(self, n, s):
        return s / (n + 1.0), 0.5 / np.sqrt(n + 1.0)


class Slow(maillard.Sampled):
    """Uses another estimate of means than the empirical one."""

    monotone = True

    def estimate(self, n, s):
        return (s + 1.0) / (n + 2.0)

    def rival(self, n, mean, best, t):
        return -2.0 * n * (best - mean) ** 2


@pytest.mark.parametrize("policy", [Believer(), Slow()])
def test_user_defined_policies_run(policy) -> None:
    here = device.run(plan_of(policy, BERNOULLI, 40, 1), 0, 60, summarize=False)
    assert isinstance(here, TrialBatch)
    there = run_trials(plan_of(policy, BERNOULLI, 40, 2, None, CPU), 0, 1500)
    assert (here.pulls.sum(axis=1) == 40).all()
    assert min(differ(here, there)) > SURE


# The same bits

SAME = [
    ("ms+", LAZY),
    ("ts", LAZY),
    ("ucb1:floor=0.2", LAZY),
    ("ms:floor=0.1", LAZY),
    ("imed", DIRECT),
    ("ms", DIRECT),
]
EASY = "gaussian:1.5,0,0"  # one arm is chosen in almost every round


def run(spec: str | list[str], text: str, trials: int = 6, **options: Any) -> Any:
    return maillard.simulate(spec, text, 30, trials, **{"seed": 5, "device": "cuda", **options})


def same(a: Result, b: Result) -> bool:
    return np.array_equal(a.values, b.values) and np.array_equal(a.pulls, b.pulls)


@pytest.mark.parametrize(("spec", "engine"), SAME)
def test_a_trial_depends_on_seed_policy_and_number_alone(spec, engine, monkeypatch) -> None:
    once = run(spec, GAUSSIAN, engine=engine, checkpoints=[30])
    other = "ms:floor=0.3" if engine == LAZY else "uniform"
    fewer = run([other, spec], GAUSSIAN, 3, engine=engine, checkpoints=[30])
    assert np.array_equal(fewer.values[1], once.values[0, :3])
    assert np.array_equal(fewer.pulls[1], once.pulls[0, :3])
    monkeypatch.setattr(device, "batch_size", lambda _plan, *_: 4)
    assert same(once, run(spec, GAUSSIAN, engine=engine, checkpoints=[30]))


@pytest.mark.parametrize(("spec", "engine"), SAME)
def test_a_trial_does_not_depend_on_when_threads_wait(spec, engine, monkeypatch) -> None:
    """In the simulator each thread is its own warp, so threads do not wait for each other."""
    plan = plan_of(spec, EASY, 30, 5, engine)
    once = finish(plan, 5, monkeypatch)
    for values in ((1, 1, 1), (32, 20, 5)):
        for name, value in zip(
            ("MIN_WAITING_THREADS", "MIN_REBUILDING_THREADS", "ROUND_PAIRS"), values, strict=True
        ):
            monkeypatch.setattr(device, name, value)
        assert np.array_equal(once, finish(plan, 5, monkeypatch))
    assert not np.array_equal(once, finish(plan_of(spec, EASY, 30, 6, engine), 5, monkeypatch))


@pytest.mark.parametrize("text", [EASY, BERNOULLI])
@pytest.mark.parametrize(("spec", "engine"), SAME)
def test_a_trial_does_not_depend_on_where_it_pauses(spec, engine, text, monkeypatch) -> None:
    plan = plan_of(spec, text, 30, 5, engine)
    once = finish(plan, 5, monkeypatch)
    # Each launch is four times as long as the one before; without time left, launches shrink to one round.
    for seconds, rounds in ((1e9, 13), (0.0, 10)):
        monkeypatch.setattr(device, "LAUNCH_SECONDS", seconds)
        monkeypatch.setattr(device, "_first_launch_rounds", lambda _threads, _last, rounds=rounds: rounds)
        assert np.array_equal(once, finish(plan, 5, monkeypatch)), (seconds, rounds)


@pytest.mark.parametrize("text", [GAUSSIAN, BERNOULLI])
@pytest.mark.parametrize("spec", ["ms+", "imed", "ts"])
def test_regret_at_given_checkpoints(spec, text) -> None:
    gaps = problems.problem(text).gaps
    rounds = [2, 4, 5, 17, 29, 30]
    result = run(spec, text, 4, checkpoints=rounds)
    assert result.rounds.tolist() == rounds
    assert result.values[0, :, :2] == pytest.approx(np.tile(np.cumsum(gaps)[[1, 3]], (4, 1)))
    steps = np.diff(result.values[0], axis=1)
    assert (steps > -1e-12).all()
    assert (steps <= np.diff(rounds) * gaps.max() + 1e-12).all()
    assert result.final == pytest.approx(result.pulls @ gaps, abs=1e-12)


@pytest.mark.parametrize("text", [GAUSSIAN, EASY])
@pytest.mark.parametrize("spec", ["ms+", "ms:floor=0.1"])
def test_checkpoints_do_not_end_runs(spec, text) -> None:
    """The regret within a run of rounds that the leader wins is known, so the trial stays the same."""
    gaps = problems.problem(text).gaps
    once, often = (run(spec, text, 8, checkpoints=each) for each in ([30], list(range(1, 31))))
    assert np.array_equal(once.pulls, often.pulls)
    steps = np.diff(often.values[0], axis=1, prepend=0.0)
    nearest = np.abs(steps[:, :, None] - gaps).min(axis=2)
    assert nearest.max() < 1e-12  # every round adds the gap of one arm
    assert np.array_equal(once.final, often.final)


# Rejected input


def refused(policies: Any, problem: str = BERNOULLI, **options: Any) -> str:
    with pytest.raises(InvalidValue) as caught:
        maillard.simulate(policies, problem, 20, 2, **{"device": "cuda", **options})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("spec", ["adaucb", "phe", "ts-bernoulli", "dmed", "arm:0", "dist:0.1,0.2,0.3,0.4"])
def test_policies_without_an_engine_are_rejected(spec) -> None:
    message = refused(["ms", spec])
    assert message.startswith(
        "policy on device 'cuda': expected sampled, indexed and Gaussian-perturbed policies"
    )
    assert "device='cpu'" in message
    assert spec.partition(":")[0] in message


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("uniform", "poisson:2,1"),
        ("ms", "bernoulli:0.5,0.4,delay=3"),
        ("ms", "bernoulli-dynamic:arms=3,rate=0.1"),
        ("ms", "bernoulli:0.6,0.4,threshold=0.5"),
        ("ms", "uniform-noise:0.5,0.6,width=0.4"),
    ],
)
def test_problems_without_an_engine_are_rejected(spec, problem) -> None:
    message = refused(spec, problem)
    assert message.startswith(
        "problem on device 'cuda': expected Gaussian and Bernoulli rewards, observed at once"
    )
    assert "device='cpu'" in message
    assert problem[:8] in message


def test_a_delay_of_zero_equals_no_delay() -> None:
    late, still = (run("ms+", f"bernoulli:0.5,0.4{end}", 3) for end in (",delay=fixed:0", ""))
    assert same(late, still)


def test_other_bad_input_is_rejected() -> None:
    assert refused("ms", device="gpu") == "device: expected cpu or cuda or auto, got 'gpu'"
    assert refused("ms", keep="all") == "keep: expected trials or summary, got 'all'"
    assert "engine of ms on device 'cuda': expected lazy or direct" in refused("ms", engine="plain")
    assert "engine of ts on device 'cuda': expected lazy" in refused("ts", engine="direct")
    assert "engine of phe on device 'cuda': expected device='cpu'" in refused("phe", engine="plain")
    with ThreadPoolExecutor(1) as pool:
        assert refused("ms", executor=pool).startswith("executor with device 'cuda': expected None")
    assert "arms on device 'cuda': expected at most 100000" in refused("ms", "bernoulli-equal:arms=100001")
    assert "kl-ms on the problem" in refused("kl-ms", GAUSSIAN)


class NoWeight(maillard.Sampled):
    monotone = True

    def rival(self, n, mean, best, t):
        return where(t > 12, np.nan, 0.0 * n)


class NoIndex(maillard.Indexed):
    monotone = True
    uses_best = False

    def index(self, n, mean, best, t, k):
        return where(t > 12, np.nan, mean + 1.0 / n)


class OneNoIndex(maillard.Indexed):
    """Not a number for one arm; the other arms have the largest possible index."""

    monotone = True
    uses_best = False

    def index(self, n, mean, best, t, k):
        return where(n == 3.0, np.nan, np.inf)


class Strays(maillard.Perturbed):
    """Not a number for an arm that was pulled often."""

    noise = score_distributions.GAUSSIAN

    def score(self, n, s):
        return s / n, where(n > 6.0, np.nan, 1.0)


BROKEN = [
    (NoWeight(), LAZY, "NoWeight: log weight of arm"),
    (NoWeight(), DIRECT, "NoWeight: log weight of arm"),
    (NoIndex(), LAZY, "NoIndex: index of arm"),
    (NoIndex(), DIRECT, "NoIndex: index of arm"),
    (OneNoIndex(), LAZY, "OneNoIndex: index of arm"),
    (OneNoIndex(), DIRECT, "OneNoIndex: index of arm"),
    (Strays(), LAZY, "Strays: score of arm"),
]


@pytest.mark.parametrize(("policy", "engine", "message"), BROKEN)
@pytest.mark.parametrize("text", [GAUSSIAN, BERNOULLI])
def test_a_formula_that_returns_nan_is_named(policy, engine, message, text) -> None:
    with pytest.raises(InvalidValue) as caught:
        device.run(plan_of(policy, text, 60, 1, engine), 0, 4, summarize=False)
    assert message in str(caught.value)


class Wild(maillard.Sampled):
    """Makes a false declaration."""

    monotone = True

    def rival(self, n, mean, best, t):
        return np.minimum(0.0, -1.0 + 0.01 * t)


def test_a_false_declaration_is_detected() -> None:
    with pytest.raises(InvalidValue, match="keeps what `monotone` declares") as caught:
        maillard.simulate(Wild(), "bernoulli:0.5,0.5,0.5", 300, 6, device="cuda")
    assert "trial" in str(caught.value)
    assert "round" in str(caught.value)


def test_a_batch_stops_on_request() -> None:
    plan, stop = plan_of("ms", BERNOULLI, 40, 1), np.zeros(1, np.int64)
    assert device.run(plan, 0, 2, summarize=False, stop=stop).pulls.sum() == 80
    stop[0] = 1
    with pytest.raises(Stopped):
        device.run(plan, 0, 2, summarize=False, stop=stop)


def test_a_batch_stops_between_two_launches(monkeypatch) -> None:
    plan, stop = plan_of("ms", BERNOULLI, 40, 1), np.zeros(1, np.int64)
    kernel, launches = device._kernel_of(plan), []

    class Counted:
        def __getitem__(self, shape: Any) -> Any:
            def launch(*arguments: Any) -> None:
                launches.append(arguments)
                stop[0] = 1
                kernel[shape](*arguments)

            return launch

    monkeypatch.setattr(device, "_kernel_of", lambda _plan: Counted())
    monkeypatch.setattr(device, "_first_launch_rounds", lambda _threads, _last: 5)
    with pytest.raises(Stopped):
        device.run(plan, 0, 2, summarize=False, stop=stop)
    assert len(launches) == 1


# Missing devices


@pytest.fixture
def not_installed(monkeypatch) -> Any:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "numba_cuda" else found(name, *rest)
    )
    cuda_toolkit.cuda.cache_clear()
    yield
    cuda_toolkit.cuda.cache_clear()


@pytest.mark.usefixtures("not_installed")
def test_missing_packages_are_named() -> None:
    with pytest.raises(NoDevice) as caught:
        maillard.simulate("ms", BERNOULLI, 20, 2, device="cuda")
    assert str(caught.value) == "device 'cuda' needs the package numba-cuda: pip install 'maillard[cuda]'"
    assert isinstance(caught.value, maillard.MaillardError)
    there, here = (maillard.simulate("ms", BERNOULLI, 20, 5, seed=3, device=each) for each in ("auto", "cpu"))
    assert same(there, here)
    assert there.provenance["device"] == "cpu"


def test_auto_runs_each_policy_on_the_gpu_if_it_has_an_engine() -> None:
    both = maillard.simulate(["ms", "phe"], BERNOULLI, 20, 5, seed=3, device="auto")
    here = maillard.simulate(["ms", "phe"], BERNOULLI, 20, 5, seed=3)
    there = maillard.simulate("ms", BERNOULLI, 20, 5, seed=3, device="cuda")
    assert np.array_equal(both.values[0], there.values[0])
    assert np.array_equal(both.values[1], here.values[1])
    assert not np.array_equal(both.pulls[0], here.pulls[0])  # the GPU uses other random numbers
    assert both.provenance["device"] == f"cpu and {device.device_name()}"
    assert there.provenance["device"] == device.device_name()
    alone = maillard.simulate("phe", BERNOULLI, 20, 5, seed=3, device="auto")
    assert np.array_equal(alone.values[0], here.values[1])
    assert alone.provenance["device"] == "cpu"
    late = "bernoulli:0.5,0.4,delay=3"
    delayed, plain = (
        maillard.simulate("ms", late, 20, 5, device="auto"),
        maillard.simulate("ms", late, 20, 5),
    )
    assert same(delayed, plain)
    direct_here = maillard.simulate("ts", BERNOULLI, 20, 5, engine="direct", device="auto")
    assert direct_here.provenance["device"] == "cpu"


# The compiler

COMPILE = """
import sys, types, maillard
from maillard.simulation.cuda.cuda_toolkit import cuda
found = cuda()
import numba.cuda.dispatcher
from numba import types as T
from maillard.simulation.cuda import cuda_backend
from maillard.simulation.policy_formulas import is_separable, without_floor
numbers, table, places = (T.Array(T.float64, 1, "C"), T.Array(T.float64, 2, "C"), T.Array(T.int64, 1, "C"))
signature = T.void(
    table, table, T.Array(T.uint64, 2, "C"), T.Array(T.uint64, 1, "C"), T.int64, numbers, T.int64,
    *[numbers] * 3, *[T.int64] * 3, places, table, places, *[numbers] * 2, T.float64, *[T.int64] * 4,
)
singles = T.Array(T.float32, 1, "C")
lockstep = T.void(*signature.args[:16], singles, singles, T.float64, T.float32)
for each in sys.argv[1:]:
    spec, engine, capability = each.split()
    version = tuple(int(digit) for digit in capability)
    numba.cuda.dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=version)
    policy = maillard.policy(spec, sigma2=1.0, horizon=1000)
    floor = "floor" in spec
    decay = "decay" in spec
    runs = cuda_backend.lazy_sampled.RUNS if engine == "lazy-runs" else None
    how = (engine.removesuffix("-runs"), floor and not decay, decay, runs)
    if engine == "lockstep":
        kernel, types_ = cuda_backend.lockstep_source(policy, 8, 13, 128), lockstep
    else:
        kernel, types_ = cuda_backend.source(without_floor(policy), *how), signature
    ptx, _ = found.compile(kernel, types_, device=False, cc=version, output="ptx", abi="numba", opt=True)
    assert ptx.count(".visible .entry") == 1 and ("advance" in ptx or engine in ptx), "no entry"
    assert f".target sm_{capability}" in ptx, "another target"
    assert engine != "lockstep" or ".local" not in ptx, "arms are not in registers"
    words = ptx.replace("(", " ").replace(",", " ").split()
    calls = {word for word in words if word.startswith(("Py", "NRT_", "numba_"))}
    assert not calls, calls
    print(each, len(ptx), flush=True)
"""


def compile_all(*what: str) -> None:
    """Compile kernels in a process without the simulator of CUDA.

    Each is given by a policy, an engine (lazy-runs: with many rounds at once) and a compute capability.
    """
    made = compile_output(f"import sys; sys.argv[1:] = {list(what)!r}\n{COMPILE}")
    assert [line.rpartition(" ")[0] for line in made.splitlines()] == list(what)


def test_kernels_compile() -> None:
    compile_all("ms+ lazy 90", "ms:floor=0.1 lazy-runs 90", "ucb1 lockstep 90")


@pytest.mark.torture
@pytest.mark.parametrize("capability", ["80", "90"])
@pytest.mark.parametrize("spec", [*SUPPORTED, *EXTRA])
def test_every_kernel_compiles(spec, capability) -> None:
    compile_all(*(f"{spec} {engine} {capability}" for engine in engines_of(spec)))


def test_numba_cuda_is_imported_without_row_stack_of_numpy() -> None:
    code = """
import types, numpy
if hasattr(numpy, "row_stack"):
    del numpy.row_stack
    numpy.__all__.remove("row_stack")
from maillard.simulation.cuda.cuda_toolkit import cuda
found = cuda()
assert not hasattr(numpy, "row_stack")
import numba.cuda.dispatcher
numba.cuda.dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=(9, 0))
from numba import types as T
from maillard.simulation.cuda import reductions
from maillard.simulation.cuda.device_functions import DeviceFunctions
signature = T.void(T.Array(T.float64, 2, "C"), T.int64, T.Array(T.int64, 2, "C"))
kernel = DeviceFunctions().copy(reductions.list_pulls)
ptx, _ = found.compile(kernel, signature, device=False, cc=(9, 0), output="ptx", abi="numba")
assert ".visible .entry" in ptx
assert not hasattr(numpy, "row_stack")
print("compiled")
"""
    assert compile_output(code).strip() == "compiled"


# Extreme sizes


@pytest.mark.parametrize(
    ("spec", "engine"), [("ms+", LAZY), ("ts", LAZY), ("ucb1", LAZY), ("ms", DIRECT), ("imed", DIRECT)]
)
def test_a_thousand_arms(spec, engine) -> None:
    text = "bernoulli-equal:arms=1000"
    wave = device.run(plan_of(spec, text, 1003, 1, engine), 0, 2, summarize=False)
    assert isinstance(wave, TrialBatch)
    assert (wave.pulls.sum(axis=1) == 1003).all()
    assert (wave.pulls >= 1).all()
    assert wave.regret[:, -1] == pytest.approx(wave.pulls @ problems.problem(text).gaps)


@pytest.mark.parametrize("horizon", [1, 5])
def test_horizons_near_the_number_of_arms(horizon) -> None:
    specs = ["ts", "imed", "ucb1"]
    there, here = (maillard.simulate(specs, BERNOULLI, horizon, 3, device=each) for each in ("cuda", "cpu"))
    assert there.rounds.tolist() == here.rounds.tolist()
    assert (there.pulls.sum(axis=2) == horizon).all()
    assert (there.pulls[:, :, : min(horizon, 4)] >= 1).all()
    if horizon <= 4:  # every round is forced, so only rewards are random
        assert np.array_equal(there.values, here.values)
    summary = maillard.simulate("ts", BERNOULLI, horizon, 3, device="cuda", keep="summary")
    assert np.array_equal(summary.final[0], there.final[0])


@pytest.mark.parametrize("spec", ["ms+", "ts", "ucb1", "ucb1:floor=0.2", "imed", "uniform"])
def test_one_arm(spec) -> None:
    for text, engine in itertools.product(["bernoulli:0.5", "gaussian:0.3"], engines_of(spec)):
        wave = device.run(plan_of(spec, text, 30, 1, engine), 0, 2, summarize=False)
        assert isinstance(wave, TrialBatch)
        assert (wave.pulls == 30).all()
        assert (wave.regret == 0).all()
