"""Confidence sequences for the value of a target: formulas, chunks, coverage at all rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest

from maillard.errors import InvalidValue, MaillardError
from maillard.evaluation.sequential import bernstein, betting, doubly_robust
from maillard.evaluation.sequential.bernstein import EmpiricalBernstein
from maillard.evaluation.sequential.betting import Betting
from maillard.evaluation.sequential.confidence_sequence import ConfidenceSequence, level_of
from maillard.evaluation.sequential.doubly_robust import DoublyRobustState
from tests.evaluation.adaptive_logs import Logs, simulate_logs

LOGS = simulate_logs([0.6, 0.5, 0.4], runs=2, rows=600, seed=5, floor=0.1)
TARGET = np.array([0.2, 0.3, 0.5])
FLOOR_WEIGHT = 0.5 / (0.1 / 3)
MAKE: dict[str, Callable[[], ConfidenceSequence]] = {
    "bernstein": lambda: EmpiricalBernstein.start(0.1),
    "bernstein-horizon": lambda: EmpiricalBernstein.start(0.1, horizon=600),
    "doubly-robust": lambda: DoublyRobustState.start(3, 0.1),
    "doubly-robust-3": lambda: DoublyRobustState.start(3, 0.1, k=3, horizon=600),
    "betting": lambda: Betting.start(0.1),
    "betting-floor": lambda: Betting.start(0.1, highest=FLOOR_WEIGHT),
    "betting-horizon": lambda: Betting.start(0.1, highest=FLOOR_WEIGHT, horizon=600),
}


def rows_of(logs: Logs, run: int, target: np.ndarray) -> dict[str, Any]:
    one = Logs(*(each[[run]] for each in logs))
    rows = {
        "arm": one.arm[0],
        "reward": one.reward[0],
        "weight": one.weight(target)[0],
        "probabilities": one.probabilities[0],
    }
    return rows | {"target_row": np.zeros(len(one.arm[0]), np.int64)}


def feed(
    sequence: ConfidenceSequence, rows: dict[str, Any], target: np.ndarray, chunks: tuple[int, ...] = ()
) -> np.ndarray:
    """The bounds after every row, if the rows are processed in chunks."""
    paths = []
    for begin, end in zip((0, *chunks), (*chunks, len(rows["reward"])), strict=True):
        part = {name: each[begin:end] for name, each in rows.items()}
        if not isinstance(sequence, DoublyRobustState):
            part = {name: part[name] for name in ("weight", "reward")}
        else:
            part["target_probabilities"] = target[None]
        paths.append(sequence.advance(**part, path=True))
    return np.concatenate(paths)


# Direct implementations of the formulas for one bound, row by row.


def reference_bernstein(
    terms: np.ndarray, level: float, k: float = 0, horizon: int | None = None, truncate: bool = True
) -> np.ndarray:
    xs = np.asarray(terms) / (k + 1)
    hats, squares, lower = [0.5], [0.25], []
    bets: list[float] = []
    cap = 1 / (k + 1) if truncate else math.inf
    for t, x in enumerate(xs, start=1):
        variance = sum(squares) / t
        time = t * math.log(1 + t) if horizon is None else max(t, horizon)
        bets.append(min(0.5, math.sqrt(2 * level / (variance * time))))
        hats.append(min(cap, (0.5 + xs[:t].sum()) / (t + 1)))
        squares.append((x - hats[t]) ** 2)
        before = np.minimum(np.array(hats[:t]), cap)
        bet = np.array(bets)
        penalty = (-np.log(1 - bet) - bet) * (xs[:t] - before) ** 2
        lower.append((k + 1) * ((bet * xs[:t]).sum() - level - penalty.sum()) / bet.sum())
    return np.maximum(np.maximum.accumulate(lower), 0)


def reference_terms(rows: dict[str, Any], target: np.ndarray, k: float) -> tuple[np.ndarray, np.ndarray]:
    arm, reward = rows["arm"], rows["reward"]
    phis: tuple[list[float], list[float]] = ([], [])
    for t in range(len(arm)):
        overall = reward[:t].mean() if t else 0.5
        seen = [reward[:t][arm[:t] == a] for a in range(len(target))]
        model = np.array([each.mean() if len(each) else overall for each in seen])
        for phi, r, m in zip(phis, (reward[t], 1 - reward[t]), (model, 1 - model), strict=True):
            cut = np.minimum(m, k * rows["probabilities"][t] / target)
            phi.append(rows["weight"][t] * (r - cut[arm[t]]) + target @ cut)
    return np.array(phis[0]), np.array(phis[1])


def reference_bets(gap: float, s: np.ndarray, highest: float) -> np.ndarray:
    """The best of the unconstrained maximum, if admissible, and the maxima on the sides of the triangle."""
    if highest == math.inf:
        return np.array([0, min(gap / s[1, 1], 0.5)])
    corners = [np.array(corner) for corner in ((0.5, 0.0), (0.0, 0.5), (-0.5 / (highest - 1), 0.0))]
    free = np.linalg.solve(s, np.array([0, gap]))
    inside = free[1] >= 0 and free.sum() <= 0.5 and free[1] - (highest - 1) * free[0] <= 0.5
    candidates = [free] if inside else []
    for begin, end in zip(corners, corners[1:] + corners[:1], strict=True):
        along = end - begin
        step = (np.array([0, gap]) - s @ begin) @ along / (along @ s @ along)
        candidates.append(begin + min(max(step, 0), 1) * along)
    return max(candidates, key=lambda bet: gap * bet[1] - bet @ s @ bet / 2)


def reference_wealth(
    weight: np.ndarray, reward: np.ndarray, level: float, highest: float, horizon: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """a and b such that the factor of row i is 1 + a_i - b_i v."""
    z = np.stack([weight - 1, weight * reward], axis=1)
    a, b = [], []
    for t in range(len(z)):
        rows = t + 1
        mean = (0.5 + z[:t, 1].sum()) / rows
        square = np.array([[1.0, 0.5], [0.5, 1.0]]) + z[:t].T @ z[:t]
        s = square / rows
        s[0, 1] = s[1, 0] = (square[0, 1] - mean * z[:t, 0].sum()) / rows
        s[1, 1] -= mean**2
        residual = s[1, 1] - (0 if highest == math.inf else s[0, 1] ** 2 / s[0, 0])
        bet = reference_bets(math.sqrt(2 * level * residual / max(rows, horizon)), s, highest)
        a.append(bet @ z[t])
        b.append(bet[1])
    return np.array(a), np.array(b)


def reference_betting(a: np.ndarray, b: np.ndarray, level: float) -> np.ndarray:
    grid = (1 - np.cos(np.pi * np.arange(33) / 32)) / 2
    logs = np.cumsum(np.log1p(a[:, None] - b[:, None] * grid), axis=0)
    lower = []
    for line in logs:
        out = np.flatnonzero(line >= level)
        if len(out) == 0 or out[-1] == 32:
            lower.append(0.0 if len(out) == 0 else 1.0)
        else:
            j = out[-1]
            lower.append(grid[j] + (grid[j + 1] - grid[j]) * (line[j] - level) / (line[j] - line[j + 1]))
    return np.maximum.accumulate(lower)


@pytest.mark.parametrize("horizon", [None, 600])
def test_bernstein_equals_the_formula(horizon: int | None) -> None:
    rows, level = rows_of(LOGS, 0, TARGET), level_of(0.1)
    path = feed(EmpiricalBernstein.start(0.1, horizon), rows, TARGET)
    weight, reward = rows["weight"], rows["reward"]
    assert path[:, 0] == pytest.approx(
        reference_bernstein(weight * reward, level, horizon=horizon), abs=1e-12
    )
    assert path[:, 1] == pytest.approx(
        1 - reference_bernstein(weight * (1 - reward), level, horizon=horizon), abs=1e-12
    )
    assert 0 < path[-1, 0] < path[-1, 1] < 1


@pytest.mark.parametrize("k", [0, 1, 10])
def test_doubly_robust_equals_the_formula(k: float) -> None:
    rows, level = rows_of(LOGS, 1, TARGET), level_of(0.1)
    path = feed(DoublyRobustState.start(3, 0.1, k=k), rows, TARGET)
    lower, upper = reference_terms(rows, TARGET, k)
    assert path[:, 0] == pytest.approx(reference_bernstein(lower, level, k), abs=1e-12)
    assert path[:, 1] == pytest.approx(1 - reference_bernstein(upper, level, k), abs=1e-12)
    assert min(lower.min(), upper.min()) >= -k
    if k == 0:
        assert path == pytest.approx(feed(EmpiricalBernstein.start(0.1), rows, TARGET), abs=1e-12)


@pytest.mark.parametrize(("highest", "horizon"), [(math.inf, 0), (FLOOR_WEIGHT, 0), (FLOOR_WEIGHT, 600)])
def test_betting_equals_the_formula(highest: float, horizon: int) -> None:
    rows, level = rows_of(LOGS, 0, TARGET), level_of(0.1)
    sequence = Betting.start(0.1, None if highest == math.inf else highest, horizon or None)
    path = feed(sequence, rows, TARGET)
    for side, reward in enumerate((rows["reward"], 1 - rows["reward"])):
        a, b = reference_wealth(rows["weight"], reward, level, highest, horizon)
        lower = reference_betting(a, b, level)
        assert (path[:, side] if side == 0 else 1 - path[:, side]) == pytest.approx(lower, abs=1e-12)


@pytest.mark.parametrize("means", [[0.6, 0.5, 0.4], [0.02, 0.01, 0.01]])
def test_the_chord_widens_the_interval_by_less_than_two_per_mille(means: list[float]) -> None:
    size = 1000
    rows, level = (
        rows_of(simulate_logs(means, runs=1, rows=size, seed=2, floor=0.1), 0, TARGET),
        level_of(0.1),
    )
    a, b = reference_wealth(rows["weight"], rows["reward"], level, FLOOR_WEIGHT)

    def log_wealth(v: float, row: int) -> float:
        return float(np.log1p(a[:row] - b[:row] * v).sum()) - level

    roots = [
        brentq(log_wealth, 0, 1, args=(row,)) if log_wealth(0, row) > 0 else 0.0 for row in range(1, size + 1)
    ]
    exact = np.maximum.accumulate(roots)
    path = feed(Betting.start(0.1, FLOOR_WEIGHT), rows, TARGET)
    assert (path[:, 0] <= exact + 1e-9).all()
    assert (path[:, 0] >= exact - 0.002 * (path[:, 1] - exact)).all()
    assert exact[-1] > 0


def test_bets_are_admissible_and_optimal() -> None:
    rng = np.random.default_rng(0)
    barycentric = rng.dirichlet([1, 1, 1], 2000)
    for _ in range(300):
        root = rng.normal(size=(2, 2)) * rng.choice([0.1, 1, 5], size=(2, 1))
        s, gap, highest = root @ root.T + 1e-3 * np.eye(2), rng.exponential(), 1 + rng.exponential(20)
        l1, l2 = betting.bets(gap, s[0, 0], s[0, 1], s[1, 1], highest)
        for weight in (0, 1, highest):
            for reward in (0, 1):
                for v in (0, 1):
                    assert 1 + l1 * (weight - 1) + l2 * (weight * reward - v) >= 0.5 - 1e-12
        others = barycentric @ np.array([(0.5, 0.0), (0.0, 0.5), (-0.5 / (highest - 1), 0.0)])
        growth = gap * others[:, 1] - np.einsum("ij,jk,ik->i", others, s, others) / 2
        bet = np.array([l1, l2])
        assert gap * l2 - bet @ s @ bet / 2 >= growth.max() - 1e-12


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("chunks", [(1,), (7, 7, 50), tuple(range(1, 600, 2))])
def test_results_do_not_depend_on_the_chunks(name: str, chunks: tuple[int, ...]) -> None:
    rows = rows_of(LOGS, 0, TARGET)
    whole, parts = MAKE[name](), MAKE[name]()
    assert (feed(whole, rows, TARGET) == feed(parts, rows, TARGET, chunks)).all()
    assert whole.interval() == parts.interval()
    assert whole.value() == parts.value()
    assert (whole.run == parts.run).all()


@pytest.mark.parametrize("name", MAKE)
def test_the_interval_is_the_last_of_the_path_and_only_narrows(name: str) -> None:
    sequence = MAKE[name]()
    assert math.isnan(sequence.value())
    assert sequence.interval() == (0, 1)
    path = feed(sequence, rows_of(LOGS, 0, TARGET), TARGET)
    assert sequence.interval() == tuple(path[-1])
    assert (np.diff(path[:, 0]) >= 0).all()
    assert (np.diff(path[:, 1]) <= 0).all()
    assert path[-1, 0] <= sequence.value() <= path[-1, 1]
    with pytest.raises(MaillardError, match="order"):
        sequence + sequence


def test_betting_excludes_every_value_if_the_weights_cannot_be_right() -> None:
    """The mean weight must be 1. If it is not, no value is left; an interval of one point would be wrong."""
    sequence = Betting.start(0.05, 2.0)
    sequence.advance(weight=np.full(500, 2.0), reward=np.full(500, 0.0))
    assert math.isnan(sequence.value())
    lower, upper = sequence.interval()
    assert lower > upper


@pytest.mark.parametrize("highest", [None, 1.0, 50.0])
def test_extreme_rows_leave_finite_bounds(highest: float | None) -> None:
    weight = np.full(20_000, 1.0 if highest == 1 else 0.5)
    reward = np.ones(20_000)
    if highest is None:
        weight[100] = 1e100
    sequence = Betting.start(0.05, highest)
    path = feed(sequence, {"weight": weight, "reward": reward}, TARGET)
    assert np.isfinite(path).all()
    left = path[:, 0] <= path[:, 1]
    assert ((path >= 0) & (path <= 1))[left].all()
    assert left.all() == (highest is not None)  # a weight of 1e100 contradicts a mean of 1


def test_wealth_beyond_the_range_of_floats() -> None:
    # 0.52 is between two values of the grid. The wealth is exp(995) at one, exp(-1460) at the other.
    sequence = Betting.start(0.05)
    sequence.advance(weight=np.ones(100_000), reward=np.full(100_000, 0.52))
    assert sequence.interval() == pytest.approx((0.52, 0.52), abs=5e-4)


def test_invalid_arguments() -> None:
    sequence = Betting.start(0.05, highest=4)
    with pytest.raises(InvalidValue, match=r"weight\[1\]: expected a number from 0 to 4"):
        sequence.advance(weight=[1, 5], reward=[0, 0])
    sequence.advance(weight=[4 * (1 + 1e-12)], reward=[0])  # a rounding error is accepted
    for rows in (
        {"weight": [1.0], "reward": [1.5]},
        {"weight": [-1.0], "reward": [1]},
        {"weight": [1.0], "reward": [math.nan]},
    ):
        for each in (Betting.start(0.05), EmpiricalBernstein.start(0.05)):
            with pytest.raises(InvalidValue):
                each.advance(**rows)
    with pytest.raises(InvalidValue, match="as many"):
        sequence.advance(weight=[1, 1], reward=[1])
    rows = {
        "arm": [0],
        "reward": [1],
        "weight": [2],
        "probabilities": [[0.5, 0.5]],
        "target_row": [0],
        "target_probabilities": [[1, 0]],
    }
    wrongs = [
        ("arm", [2]),
        ("target_row", [1]),
        ("target_probabilities", [[1, 1]]),
        ("target_probabilities", [[2, -1]]),
        ("target_probabilities", [[1]]),
        ("probabilities", [[1]]),
    ]
    for name, wrong in wrongs:
        with pytest.raises(InvalidValue, match=name):
            DoublyRobustState.start(2, 0.05).advance(**(rows | {name: wrong}))
    for start in (
        lambda: EmpiricalBernstein.start(0),
        lambda: EmpiricalBernstein.start(0.1, 0),
        lambda: Betting.start(0.1, 0.5),
        lambda: DoublyRobustState.start(2, 0.1, k=-1),
        lambda: DoublyRobustState.start(0, 0.1),
    ):
        with pytest.raises(InvalidValue):
            start()


# Coverage at all rows simultaneously.

RUNS, ROWS, ALPHA = 1000, 400, 0.1


def misses(logs: Logs, target: np.ndarray, value: float, floor: float) -> dict[str, int]:
    """In how many runs each sequence excluded the value at some row."""
    level, weight = level_of(ALPHA), logs.weight(target)
    highest = (target / (floor / len(target))).max()
    target_row, target_probabilities = np.zeros(ROWS, np.int64), target[None]
    count = dict.fromkeys(("bernstein", "doubly-robust", "betting", "betting-floor", "betting-horizon"), 0)
    for run in range(RUNS):
        w, r = weight[run], logs.reward[run]
        count["bernstein"] += bernstein.excluded_at(w * r, w * (1 - r), value, level, 0.0, 0.0) > 0
        rows = (logs.arm[run], r, w, logs.probabilities[run], target_row, target_probabilities)
        count["doubly-robust"] += doubly_robust.excluded_at(rows, value=value, level=level) > 0
        count["betting"] += betting.excluded_at(w, r, value, level, math.inf, 0.0) > 0
        count["betting-floor"] += betting.excluded_at(w, r, value, level, highest, 0.0) > 0
        count["betting-horizon"] += betting.excluded_at(w, r, value, level, highest, float(ROWS)) > 0
    return count


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("target", [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])
def test_they_cover_the_value_at_all_rows_simultaneously(target: list[float], learns: bool) -> None:
    means = [0.6, 0.5, 0.4]
    logs = simulate_logs(means, RUNS, ROWS, seed=7, floor=0.2, learns=learns)
    for name, missed in misses(
        logs, np.array(target), float(np.dot(target, means)), 0.2 if learns else 1.0
    ).items():
        assert binomtest(missed, RUNS, ALPHA, alternative="greater").pvalue > 1e-3, name


def test_a_normal_interval_checked_after_every_row_does_not_cover() -> None:
    logs = simulate_logs([0.5, 0.5], RUNS, ROWS, seed=7, floor=0.2, learns=False)
    terms = logs.weight(np.array([1.0, 0.0])) * logs.reward
    rows = np.arange(1, ROWS + 1)
    mean = terms.cumsum(axis=1) / rows
    error = np.sqrt(((terms**2).cumsum(axis=1) / rows - mean**2) / rows)
    missed = int((abs(mean - 0.5) > 1.6449 * error)[:, 30:].any(axis=1).sum())
    assert binomtest(missed, RUNS, ALPHA, alternative="greater").pvalue < 1e-9


def test_bets_that_depend_on_their_own_row_do_not_cover() -> None:
    logs = simulate_logs([0.5, 0.5], RUNS, ROWS, seed=7, floor=0.2, learns=False)
    terms = logs.weight(np.array([1.0, 0.0])) * logs.reward
    bets = np.where(terms > 0.5, 0.05, 0.0)
    wealth = np.log1p(bets * (terms - 0.5)).cumsum(axis=1).max(axis=1)
    assert binomtest(int((wealth > level_of(ALPHA)).sum()), RUNS, ALPHA, alternative="greater").pvalue < 1e-9
    predictable = np.concatenate([np.zeros((RUNS, 1)), bets[:, :-1]], axis=1)  # the same bets, a row later
    wealth = np.log1p(predictable * (terms - 0.5)).cumsum(axis=1).max(axis=1)
    assert (
        binomtest(int((wealth > level_of(ALPHA)).sum()), RUNS, ALPHA / 2, alternative="greater").pvalue > 1e-3
    )


def test_without_the_truncation_bernstein_does_not_cover() -> None:
    """An arm is chosen with p = 1/8 and its reward is always 1, so its value is 1.

    The probability that it is chosen fifteen times in a row, 8^-15, is 28 times alpha. In this case the lower
    bound of the sequence without truncation exceeds 1.
    """
    alpha, rows = 1e-15, 15
    terms = np.full(rows, 8.0)
    assert 8.0**-rows > 28 * alpha
    assert reference_bernstein(terms, level_of(alpha), truncate=False)[-1] > 1
    assert reference_bernstein(terms, level_of(alpha))[-1] < 1
    assert bernstein.excluded_at(terms, 0 * terms, 1.0, level_of(alpha), 0.0, 0.0) == 0


def test_the_factor_of_a_row_has_an_expectation_of_at_most_one_only_with_truncation() -> None:
    """The expectation of exp(λ (X - v) - ψ(λ) (X - X̂)²), where X is x with probability v / x, else 0."""
    bet = np.array([0.01, 0.1, 0.3, 0.5])[:, None, None]
    psi = -np.log1p(-bet) - bet
    value = np.linspace(0.01, 1, 40)[:, None]
    x = np.geomspace(1.0, 1000, 400)

    def expectation(hat: float) -> float:
        hit = np.exp(bet * (x - value) - psi * (x - hat) ** 2)
        miss = np.exp(-bet * value - psi * hat**2)
        return float((value / x * hit + (1 - value / x) * miss).max())

    assert max(expectation(hat) for hat in (-1, 0, 0.3, 0.7, 1)) <= 1
    assert expectation(5.0) > 1.5
