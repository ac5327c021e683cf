"""Exact win probabilities of discrete scores, compared with enumeration in fractions and other methods."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from maillard.errors import InvalidValue
from maillard.policies.numerics import support_cells
from maillard.policies.numerics.binomial import log_binomial
from maillard.policies.numerics.lattice import BinomialScores, win_log_probabilities

Component = tuple[float, float, int, float, int]  # weight, S, m, p, n


def pack(arms: list[list[Component]]) -> BinomialScores:
    rows = [(number, *component) for number, arm in enumerate(arms) for component in arm]
    arm, weight, offset, trials, probability, size = zip(*rows, strict=True)
    return BinomialScores(
        np.array(arm, dtype=np.int64),
        np.array(weight, dtype=float),
        np.array(offset, dtype=float),
        np.array(trials, dtype=np.int64),
        np.array(probability, dtype=float),
        np.array(size, dtype=np.int64),
    )


def solve(arms: list[list[Component]]) -> tuple[np.ndarray, np.ndarray]:
    return win_log_probabilities(pack(arms), len(arms))


def phe(sums: np.ndarray, pulls: np.ndarray) -> BinomialScores:
    """PHE's scores for a = 1: (S + Bin(s, 1/2)) / 2s."""
    one = np.ones(len(pulls))
    return BinomialScores(np.arange(len(pulls)), one, sums * 1.0, pulls, one / 2, 2 * pulls)


def giro(sums: np.ndarray, pulls: np.ndarray, a: float) -> BinomialScores:
    """GIRO's scores: k is rounded up or down at random, so an arm has two components."""
    down = np.floor(a * pulls).astype(np.int64)
    k = np.stack([down, down + 1], axis=1).ravel()
    weight = np.stack([1 - (a * pulls - down), a * pulls - down], axis=1).ravel()
    size = np.repeat(pulls, 2) + 2 * k
    probability = (np.repeat(sums, 2) + k) / size
    arm = np.repeat(np.arange(len(pulls)), 2)
    return BinomialScores(arm, weight, np.zeros(len(k)), size, probability, size)


def masses(arm: list[Component]) -> dict[Fraction, Fraction]:
    mass_function: dict[Fraction, Fraction] = {}
    for weight, offset, trials, probability, size in arm:
        p = Fraction(probability)
        for j in range(trials + 1):
            mass = Fraction(weight) * math.comb(trials, j) * p**j * (1 - p) ** (trials - j)
            if mass:
                point = (Fraction(offset) + j) / size
                mass_function[point] = mass_function.get(point, Fraction(0)) + mass
    return mass_function


def enumerate_wins(arms: list[list[Component]]) -> list[float]:
    """Log win probabilities from every joint outcome, in fractions."""
    wins = [Fraction(0)] * len(arms)
    for outcome in itertools.product(*(masses(arm).items() for arm in arms)):
        best = max(point for point, _ in outcome)
        tied = [number for number, (point, _) in enumerate(outcome) if point == best]
        for number in tied:
            wins[number] += math.prod((mass for _, mass in outcome), start=Fraction(1)) / len(tied)
    return [log(p) for p in wins]


def log(p: Fraction) -> float:
    with mpmath.workdps(40):
        return float(mpmath.log(mpmath.mpf(p.numerator) / p.denominator)) if p else -math.inf


def check(arms: list[list[Component]]) -> None:
    log_p, error = solve(arms)
    for got, bound, exact in zip(log_p, error, enumerate_wins(arms), strict=True):
        if exact == -math.inf:
            assert (got, bound) == (-math.inf, 0)
        else:
            assert got <= 0
            assert abs(got - exact) <= min(bound, 1e-12)
    assert abs(np.exp(log_p).sum() - 1) < 1e-12


offsets = st.sampled_from([0.0, 1.0, 2.0, 0.5, 0.1, 0.3, 1 / 3, 2.7])
probabilities = st.sampled_from([0.0, 1.0, 0.5, 0.3, 0.01, 0.999])
score = st.tuples(offsets, st.integers(0, 4), probabilities, st.integers(1, 6))
single = score.map(lambda c: [(1.0, *c)])
mixture = st.tuples(score, score).map(lambda c: [(0.25, *c[0]), (0.75, *c[1])])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(single | mixture, min_size=1, max_size=4))
def test_enumeration_of_every_joint_outcome(arms: list[list[Component]]) -> None:
    check(arms)


def test_equal_fractions_tie_and_unequal_ones_do_not() -> None:
    check([[(1.0, 1.0, 0, 0.5, 3)], [(1.0, 2.0, 0, 0.5, 6)], [(1.0, 0.5, 3, 0.5, 6)]])
    # As floats these two quotients are equal; as fractions they differ by 2**-62.
    k = 2**30
    assert k / (2 * k + 1) == (k + 1) / (2 * k + 3)
    log_p, _ = solve([[(1.0, k + 0.0, 0, 0.5, 2 * k + 1)], [(1.0, k + 1.0, 0, 0.5, 2 * k + 3)]])
    assert log_p.tolist() == [-math.inf, 0]
    # 0.1 + 0.2 is 0.3 plus one unit in the last place, also after the same number is added to both.
    for j in (0, 1, 7):
        log_p, _ = solve([[(1.0, 0.1 + 0.2, j, 1.0, 9)], [(1.0, 0.3, j, 1.0, 9)]])
        assert log_p.tolist() == [0, -math.inf]


def test_identical_arms_are_equally_likely() -> None:
    for arm in ([(1.0, 2.5, 9, 0.3, 14)], [(0.5, 0.0, 4, 0.5, 4), (0.5, 1.0, 5, 0.5, 6)]):
        log_p, error = solve([arm] * 7)
        assert np.all(np.abs(log_p + math.log(7)) <= error)
        assert error.max() < 1e-13
    log_p, error = solve([[(1.0, 0.5, 10**9, 0.5, 2 * 10**9)]] * 3)
    assert np.all(np.abs(log_p + math.log(3)) < 1e-12)
    assert error.max() < 1e-2


def test_an_arm_below_every_score_of_another_cannot_win() -> None:
    below, above = [(1.0, 0.0, 3, 0.5, 4)], [(1.0, 4.0, 5, 0.5, 5)]
    log_p, error = solve([below, above, [(1.0, 1.0, 3, 0.5, 4)]])
    assert log_p[0] == -math.inf
    assert error[0] == 0
    assert np.all(log_p[1:] > -math.inf)


def test_tail_arm_against_fractions() -> None:
    # The arms cross only where both are far from their means.
    low: list[Component] = [(1.0, 0.0, 600, 0.125, 600)]
    high: list[Component] = [(1.0, 0.0, 599, 0.875, 601)]
    log_p, error = solve([low, high])
    first, second = masses(low), masses(high)
    below, wins, rest = Fraction(0), Fraction(0), sorted(second)
    for x in sorted(first):
        while rest and rest[0] < x:
            below += second[rest.pop(0)]
        wins += first[x] * (below + second.get(x, Fraction(0)) / 2)
    exact = log(wins)
    assert -600 < exact < -400
    assert abs(log_p[0] - exact) <= error[0] < 1e-11


def test_a_thousand_tied_arms_against_polynomials() -> None:
    # prod_b (F_b(x-) + u p_b(x)) as a polynomial in u: positive terms, so nothing cancels.
    probability = np.linspace(0.2, 0.8, 1000)
    arms = [[(1.0, 0.0, 3, p, 3)] for p in probability.tolist()]
    log_p, error = solve(arms)
    mass_function = stats.binom.pmf(np.arange(4)[:, None], 3, probability)
    before = np.cumsum(mass_function, axis=0) - mass_function
    for a in (0, 1, 500, 999):
        exact = 0.0
        for x in range(4):
            polynomial = np.ones(1)
            for b in np.delete(np.arange(1000), a):
                pair = np.array([before[x, b], mass_function[x, b]])
                polynomial = np.convolve(polynomial, pair)
            exact += mass_function[x, a] * (polynomial / np.arange(1, 1001)).sum()
        assert abs(log_p[a] - math.log(exact)) < 1e-12
        assert error[a] < 1e-11


def test_ties_of_few_and_many_copies_against_one_another() -> None:
    # Few and many copies: 1 to 32 Gauss nodes, with and without the cut at 45/R.
    for c, d in ((1, 2), (30, 40), (3, 2000), (10**5, 10**5)):
        arms = [[(1.0, 0.0, 1, 0.3, 1)]] * c + [[(1.0, 0.0, 1, 0.001, 1)]] * d
        log_p, error = solve(arms)
        assert abs(np.exp(log_p).sum() - 1) < 1e-12
        assert error.max() < 1e-12
    # One sure head against d coins: E 1/(1 + heads) = (1 - q^(d+1)) / ((d + 1) p).
    for d, p in ((5, 0.3), (100, 0.01), (3000, 0.5), (10**5, 1e-8)):
        log_p, error = solve([[(1.0, 1.0, 0, 0.5, 1)]] + [[(1.0, 0.0, 1, p, 1)]] * d)
        exact = math.log(-math.expm1((d + 1) * math.log1p(-p)) / ((d + 1) * p))
        assert abs(log_p[0] - exact) <= error[0] + 1e-14
        assert error[0] < 1e-12


def test_log_mass_to_twelve_digits_at_ten_million_trials() -> None:
    m = 10**7
    for p in (0.5, 0.3, 1e-6):
        spread = math.sqrt(m * p * (1 - p))
        j = np.array([max(0, round(m * p + z * spread)) for z in (-8, -3, -0.1, 0, 2, 6)])
        got = log_binomial(j, m - j, np.full(6, p), np.full(6, 1 - p))
        with mpmath.workdps(40):
            exact = [
                float(
                    mpmath.log(mpmath.binomial(m, k))
                    + k * mpmath.log(p)
                    + (m - k) * mpmath.log1p(-mpmath.mpf(p))
                )
                for k in j.tolist()
            ]
        assert np.abs(got - exact).max() < 4e-12


def test_a_million_arms_of_few_types() -> None:
    """Work quadratic in the number of arms would not end before the timeout of a test."""
    rng = np.random.default_rng(7)
    pulls = rng.integers(1, 20, 10**6)
    scores = phe(rng.binomial(pulls, 0.5), pulls)
    log_p, error = win_log_probabilities(scores, 10**6)
    assert abs(np.exp(log_p).sum() - 1) < 1e-12
    possible = log_p > -math.inf
    assert np.all(error[possible] < 1e-14 * (10 - log_p[possible]))


def test_a_billion_trials_against_the_difference_of_two_arms() -> None:
    # With p = 1/2 and one n, J1 - J2 + m ~ Binomial(2m, 1/2): no enumeration, no normal curve.
    m = 10**9
    for d in (0, 7, 20_000, 100_000):
        log_p, error = solve([[(1.0, d + 0.0, m, 0.5, 2 * m)], [(1.0, 0.0, m, 0.5, 2 * m)]])
        both = stats.binom(2 * m, 0.5)
        exact = both.sf(m + d) + both.pmf(m + d) / 2
        assert abs(log_p[1] - math.log(exact)) <= error[1] < 1e-2
        assert abs(log_p[1] - math.log(exact)) < 1e-4
        assert abs(np.exp(log_p).sum() - 1) < 1e-12


@pytest.mark.parametrize("gap", [3e-5, 0.1])
def test_ten_arms_of_a_billion_pulls(gap: float) -> None:
    """Work linear in the number of pulls would not end before the timeout of a test."""
    rng = np.random.default_rng(3)
    pulls = rng.integers(10**8, 10**9, 10)
    scores = phe(rng.binomial(pulls, 0.5 + gap * rng.uniform(-1, 1, 10)), pulls)
    log_p, error = win_log_probabilities(scores, 10)
    assert abs(np.exp(log_p).sum() - 1) < 1e-12
    assert np.all(np.isfinite(log_p) & np.isfinite(error))
    assert np.all(error[log_p > -30] < 1e-2)


@pytest.mark.parametrize("seed", range(12))
def test_cells_stay_within_their_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    arms = int(rng.integers(2, 25))
    pulls = 1 + (rng.integers(100, 4000) * rng.random(arms) ** (1 + 2 * (seed % 2))).astype(int)
    sums = rng.binomial(pulls, 0.5 + (0.01, 0.1, 0.3)[seed % 3] * rng.uniform(-1, 1, arms))
    scores = giro(sums, pulls, 0.3) if seed % 4 == 3 else phe(sums * (0.9, 1.0)[seed % 2], pulls)
    exact, tight = win_log_probabilities(scores, arms, everywhere=True)
    possible = exact > -math.inf
    assert tight.max() < 1e-9
    for budget in (1, 300, 2000, 6000):
        monkeypatch.setattr(support_cells, "BUDGET", budget)
        log_p, error = win_log_probabilities(scores, arms)
        assert np.array_equal(log_p > -math.inf, possible)
        assert np.all(np.abs(log_p - exact)[possible] <= error[possible])
        assert abs(np.exp(log_p).sum() - 1) < 1e-12
    assert error[np.argmax(exact)] < 0.5


def test_small_arms_among_huge_ones_are_exact() -> None:
    # The scores of the huge arms are far below those of the small arms, so only the small arms can win.
    small: list[list[Component]] = [[(1.0, 2.0, 3, 0.5, 10)], [(1.0, 1.0, 4, 0.25, 10)]]
    huge: list[list[Component]] = [[(1.0, 0.0, 10**9, 0.1, 10**9)]] * 2
    log_p, error = solve(small + huge)
    check(small)
    assert np.all(np.abs(log_p[:2] - enumerate_wins(small)) < 1e-12)
    assert error[:2].max() < 1e-9
    assert np.all(np.isfinite(log_p[2:]))
    assert np.all(log_p[2:] < -1000)


def test_an_arm_that_almost_never_wins_has_a_finite_log_probability() -> None:
    # A certain score of 3/n against J/n, J ~ Binomial(n, 1/2), n = 10^9: it wins only if J <= 3.
    n = 10**9
    log_p, error = solve([[(1.0, 3.0, 0, 0.5, n)], [(1.0, 0.0, n, 0.5, n)]])
    outcomes = 1 + n + math.comb(n, 2) + math.comb(n, 3) / 2
    assert abs(log_p[0] - (math.log(outcomes) - n * math.log(2))) <= error[0] < n
    assert abs(log_p[1]) < 1e-15


def test_sizes_beyond_exact_comparison_are_refused() -> None:
    with pytest.raises(InvalidValue, match="size"):
        solve([[(1.0, 0.0, 5, 0.5, 2**32)]])


def wide_tally(arms: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    pulls = np.append(150_000, np.exp(rng.uniform(0, math.log(2e5), arms - 1)).astype(int))
    return np.floor(pulls * rng.random(arms)), pulls


@pytest.mark.parametrize("seed", range(6))
def test_single_points_where_they_decide_a_probability(seed: int) -> None:
    """Compared with all points of every support, of which most are left out."""
    sums, pulls = wide_tally(6, seed)
    scores = giro(sums, pulls, 0.3) if seed % 2 else phe(sums, pulls)
    exact, tight = win_log_probabilities(scores, 6, everywhere=True)
    log_p, error = win_log_probabilities(scores, 6)
    assert scores.trials.sum() > 4 * support_cells.BUDGET
    assert np.array_equal(log_p > -math.inf, exact > -math.inf)
    assert np.all(np.abs(log_p - exact) <= error + tight)
    likely = exact > -300
    assert np.all(np.abs(log_p - exact)[likely] < 1e-10)
    assert error[likely].max() < 1e-9


def test_arms_that_are_rarely_the_largest_need_points_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: without windows, their bounds are a thousand times larger."""
    sums, pulls = wide_tally(6, 4)
    scores = phe(sums, pulls)
    exact, _ = win_log_probabilities(scores, 6, everywhere=True)
    rare = (exact < -50) & (exact > -1000)
    assert rare.any()
    _, with_windows = win_log_probabilities(scores, 6)
    monkeypatch.setattr(support_cells, "MOST_WINDOW_POINTS", -1)
    log_p, without = win_log_probabilities(scores, 6)
    assert np.all(np.abs(log_p - exact) <= without + 1e-9)
    assert without[rare].max() > 1e3 * with_windows[rare].max()
