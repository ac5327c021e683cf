"""Intervals by unit: the jackknife, the effective number of units, and sequences for visitors who return."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, stats

from maillard import Bandit, Reward, compare, evaluate
from maillard.evaluation.estimators import parse
from maillard.evaluation.moments import Moments
from maillard.evaluation.unit_intervals import UnitVariance, mixture_boundary
from maillard.evaluation.unit_sums import UnitSums

FALSE_ALARM = 1e-4  # probability that a statistical test fails by accident
CLICKS = Reward(low=0, high=1)
ESTIMATORS = ["ips", "snips", "dm", "dr", "sndr", "clipped-ips:3", "dr-os:20"]


def best_of(report: Any) -> Any:
    """The recommended estimate, which must exist."""
    assert report.best is not None
    return report.best


def small_log(units: int = 12, seed: int = 1, every: bool = True) -> tuple[Any, list[str]]:
    """A log of units with 1 to 20 rows and their own means, and the names of the units."""
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(units), rng.integers(1, 21, units)))
    p = rng.dirichlet([4.0, 4.0], who.size) * 0.8 + 0.1
    arm = (rng.random(who.size) > p[:, 0]).astype(int)
    names = [f"u{each}" for each in who]
    columns: dict[str, Any] = {
        "arm": [("a", "b")[each] for each in arm],
        "probability": p[np.arange(who.size), arm],
        "reward": 3.0 + arm + rng.normal(0, 1, units)[who] + rng.normal(0, 1, who.size),
        "unit": names,
    }
    if every:
        columns |= {"eligible": [["a", "b"]] * who.size, "log_probabilities": list(np.log(p))}
    return pa.table(columns), sorted(set(names))


def without(table: Any, unit: str) -> Any:
    return table.filter([each != unit for each in table["unit"].to_pylist()])


OPTIONS: dict[str, Any] = {"adaptive": False, "min_effective_size": 0}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_variance_is_that_of_deleting_one_unit_at_a_time(name) -> None:
    table, units = small_log()
    target = "dist:a=0.3,b=0.7"
    found = evaluate(table, target, [name], cluster="unit", **OPTIONS)[name]
    left = [evaluate(without(table, each), target, [name], cluster="row", **OPTIONS)[name] for each in units]
    apart = np.array([each.value for each in left]) - found.value
    expected = math.sqrt((len(units) - 1) / len(units) * (apart**2).sum())
    assert found.standard_error == pytest.approx(expected, rel=1e-9)
    assert found.interval == "normal, by unit"
    by_row = evaluate(table, target, [name], cluster="row", **OPTIONS)[name]
    assert found.standard_error > 1.05 * by_row.standard_error  # the rows of a unit are alike


@pytest.mark.parametrize("name", ["ips", "snips"])
def test_the_variance_of_a_difference_is_that_of_deleting_one_unit_at_a_time(name) -> None:
    table, units = small_log(seed=2)
    arms = ("arm:b", "arm:a")
    found = compare(table, *arms, [name], cluster="unit", **OPTIONS)[name]
    left = [compare(without(table, each), *arms, [name], cluster="row", **OPTIONS)[name] for each in units]
    apart = np.array([each.value for each in left]) - found.value
    expected = math.sqrt((len(units) - 1) / len(units) * (apart**2).sum())
    assert found.standard_error == pytest.approx(expected, rel=1e-9)
    half = (found.upper - found.lower) / 2
    assert half > stats.norm.ppf(0.975) * found.standard_error  # Student's t


def moments_of(weight, reward, unit) -> Moments:
    zeros = np.zeros_like(weight)
    return Moments.of(np.stack([weight, weight * reward, zeros, zeros, reward]), np.array(unit, object))


def by_unit(moments: Moments, name: str = "snips") -> tuple[float, UnitVariance]:
    cls, level = parse(name)
    made = cls(level).estimate(moments)
    assert made.by_unit is not None
    return made.value, made.by_unit


def test_the_effective_number_of_units() -> None:
    rng = np.random.default_rng(3)
    # Equal units: as many as there are, and one degree of freedom less.
    unit, reward = np.repeat(np.arange(40), 5), rng.normal(size=200)
    _, equal = by_unit(moments_of(np.ones(200), reward, unit))
    assert equal.effective_units == pytest.approx(40)
    assert equal.freedom == pytest.approx(39)
    assert equal.quantile(0.95) == pytest.approx(stats.t.ppf(0.975, 39))
    # By hand, from the definition.
    rows = np.minimum(rng.zipf(1.6, 60), 80)
    unit, own = np.repeat(np.arange(60), rows), rng.normal(size=60)
    weight = rng.choice([1.0, 2.0, 5.0], unit.size)
    reward = own[unit] + rng.normal(size=unit.size)
    value, found = by_unit(moments_of(weight, reward, unit))
    residual = weight * (reward - value)
    sums, size = (np.bincount(unit, weights=each) for each in (residual, weight))
    effect = (sums**2).sum() / (residual**2).sum()
    squares = (weight**2).sum()
    rho = (effect - 1) / ((size**2).sum() / squares - 1)
    assert 0 < rho < 1
    share = rho * size**2 + (1 - rho) * size * squares / size.sum()
    assert found.effective_units == pytest.approx(share.sum() ** 2 / (share**2).sum())
    assert found.information == pytest.approx(
        found.variance / ((residual**2).sum() / weight.sum() ** 2) * unit.size, rel=1e-9
    )
    assert 2 < found.effective_units < 20


def test_one_unit_that_dominates_is_refused() -> None:
    rng = np.random.default_rng(4)
    unit = ["bot"] * 2000 + [f"u{each}" for each in range(30)]
    reward = np.concatenate([np.full(1000, 2.0), np.full(1000, 2.5), rng.normal(size=30)])
    table = pa.table({"arm": ["a", "b"] * 1015, "probability": [0.5] * 2030, "reward": reward, "unit": unit})
    report = evaluate(table, "arm:a", ["ips", "snips"], cluster="unit")
    assert report.best is None
    assert "one unit dominates: 31 units are worth 1." in report.refusals["snips"]


def visits(rng, units: int, *, probability: float = 0.2) -> tuple[Any, ...]:
    """Weights, rewards and units of an arm to which a fixed part of the visitors is assigned.

    The number of visits is Pareto, and the rates have an intraclass correlation of 0.19. Their mean is 0.3.
    """
    rows = np.minimum(np.floor(1 + rng.pareto(1.1, units)), 300).astype(int)
    rate = rng.beta(0.3 * 4.26, 0.7 * 4.26, units)
    weight = (rng.random(units) < probability) / probability
    unit = rng.permutation(np.repeat(np.arange(units), rows))
    return weight[unit], (rng.random(unit.size) < rate[unit]).astype(float), unit


def test_coverage_if_few_visitors_make_most_visits() -> None:
    """The residuals of the units without the jackknife, and the normal quantile, would cover far less."""
    rng, trials, covered, plain = np.random.default_rng(5), 600, 0, 0
    for _ in range(trials):
        weight, reward, unit = visits(rng, 400)
        value, found = by_unit(moments_of(weight, reward, unit))
        covered += abs(value - 0.3) <= found.quantile(0.95) * math.sqrt(found.variance)
        sums = np.bincount(unit, weights=weight * (reward - value))
        plain += abs(value - 0.3) <= 1.96 * math.sqrt((sums**2).sum()) / weight.sum()
    least = stats.binom.ppf(FALSE_ALARM, trials, 0.95)
    assert covered >= least
    assert plain < least


def test_the_mixture_at_the_boundary() -> None:
    """The boundary is where the mixture, integrated numerically, reaches 2 / α or a little more."""
    for confidence in (0.9, 0.95, 0.999):
        for information in (3.0, 100.0, 1e3, 1e6):
            b = mixture_boundary(information, confidence)
            level = 2 * math.log(
                1 / (1 - confidence) / stats.norm.cdf(math.sqrt(-2 * math.log(1 - confidence)))
            )
            eta = math.sqrt((level + math.log1p(level)) / 1000)
            v, m = information, b * math.sqrt(information)
            center = m / (v + eta**-2)

            def term(x, m=m, v=v, eta=eta):
                return 2 * stats.norm.pdf(x, scale=eta) * math.exp(x * m - x * x * v / 2)

            ends = 0.0, center + 40 / math.sqrt(v + eta**-2)
            mixture = integrate.quad(term, *ends, points=[center], limit=200)[0]
            assert 1.0 <= mixture * (1 - confidence) / 2 < 1.02


def test_the_boundary_is_narrowest_where_it_is_tuned() -> None:
    at = {each: mixture_boundary(each, 0.95) for each in (10.0, 100.0, 1e3, 1e4, 1e5)}
    assert at[1e3] < at[100.0] < at[10.0]
    assert at[1e3] < at[1e4] < at[1e5] < 1.25 * at[1e3]
    few = UnitVariance(1.0, units=300, effective_units=12.0, information=1e3)
    many = UnitVariance(1.0, units=300, effective_units=300.0, information=1e3)
    assert at[1e3] < many.anytime_quantile(0.95) < few.anytime_quantile(0.95)
    assert few.anytime_quantile(0.95) == pytest.approx(-stats.t.ppf(stats.norm.cdf(-at[1e3]), few.freedom))


def test_the_sequence_by_unit_covers_at_all_looks() -> None:
    """20 looks at logs of returning visitors; the interval for a fixed number of rows misses at some look."""
    rng, trials = np.random.default_rng(6), 200
    misses, fixed = 0, 0
    for _ in range(trials):
        weight, reward, unit = visits(rng, 300, probability=0.5)
        missed = [False, False]
        for rows in np.linspace(unit.size / 20, unit.size, 20).astype(int):
            value, found = by_unit(moments_of(weight[:rows], reward[:rows], unit[:rows]))
            error = abs(value - 0.3) / math.sqrt(found.variance) if found.variance > 0 else 0.0
            missed[0] |= error > found.anytime_quantile(0.95)
            missed[1] |= error > found.quantile(0.95)
        misses, fixed = misses + missed[0], fixed + missed[1]
    most = stats.binom.ppf(1 - FALSE_ALARM, trials, 0.05)
    assert misses <= most
    assert fixed > most


def returning(*, sticky: bool, units: int = 200, seed: int = 1) -> Bandit:
    rng = np.random.default_rng(seed)
    rate = rng.beta(0.6, 1.4, units)
    bandit = Bandit(["a", "b"], "kl-ms+:floor=0.4", reward=CLICKS, seed=seed, sticky=sticky)
    for _ in range(10):
        for unit in rng.permutation(units).tolist():
            decision = bandit.choose(unit=f"user-{unit}")
            bandit.reward(decision, float(rng.random() < rate[unit]))
    return bandit


@pytest.mark.parametrize("sticky", [False, True])
def test_a_running_experiment_with_returning_visitors_is_answered(sticky) -> None:
    bandit = returning(sticky=sticky)
    for ask in (
        lambda **more: evaluate(bandit, "arm:a", **more),
        lambda **more: compare(bandit, "arm:a", "arm:b", **more),
    ):
        running, finished = ask(), ask(active=False)
        assert best_of(running).name == best_of(finished).name == "snips"  # narrower than ips
        assert best_of(running).anytime_valid
        assert best_of(running).interval == "asymptotic confidence sequence, by unit"
        assert "not negatively correlated" in best_of(running).assumes
        assert "fixed in advance" not in best_of(running).assumes
        assert not best_of(finished).anytime_valid
        assert "a number of rows that was fixed in advance" in best_of(finished).assumes
        assert running["snips"].value == finished["snips"].value
        assert finished["snips"].width < running["snips"].width < 2.5 * finished["snips"].width
        assert "200, worth" in best_of(finished).assumes
        assert "the experiment is still running" in running.why_best
        assert running["ips"].anytime_valid
        assert any("the design effect is" in each for each in running.warnings)
    report = evaluate(bandit, "arm:a")
    assert report["ips"].width > (1.1 if sticky else 1.0) * report["snips"].width


def test_the_design_effect_uses_the_rewards_of_all_arms() -> None:
    """An arm with few rows, whose own rewards do not show that the visitors are alike."""

    class Rows:
        center = 0.0

        def __init__(self, weight, reward) -> None:
            self.weight, self.reward = weight, reward

    rng = np.random.default_rng(7)
    found, blind = [], []
    for _ in range(100):
        rate = rng.beta(0.6, 1.4, 150)
        unit = np.repeat(np.arange(150), 20)
        reward = (rng.random(3000) < rate[unit]).astype(float)
        weight = np.where(rng.random(3000) < 0.1, 10.0, 0.0)
        names = np.array([f"u{each}" for each in unit], object)
        alike: Any = Rows(weight, reward)
        shuffled: Any = Rows(weight, rng.permutation(reward))
        found.append(UnitSums.of(alike, names).design_effect())
        blind.append(UnitSums.of(shuffled, names).design_effect())
    assert np.mean(np.array(found) > 1.2) == 1
    # At most 5% by either of the two tests, if rows are independent.
    assert (np.array(blind) > 1.2).sum() <= stats.binom.ppf(1 - FALSE_ALARM, 100, 0.1)


def test_foreign_logs_with_only_the_chosen_probability_are_clustered(tmp_path) -> None:
    import pyarrow.parquet as pq

    table, _ = small_log(units=100, every=False)
    pq.write_table(table, tmp_path / "log.parquet")
    for log in (table, tmp_path / "log.parquet"):
        report = evaluate(log, "arm:a", adaptive=False)
        assert report["snips"].interval == "normal, by unit"
        rows = evaluate(log, "arm:a", adaptive=False, cluster="row")
        assert rows["snips"].interval == "normal"
        assert rows["snips"].width < report["snips"].width


def test_dependent_rows_that_are_treated_as_independent_are_reported() -> None:
    warnings = evaluate(returning(sticky=False), "arm:a", cluster="row", active=False).warnings
    assert any("intervals are too narrow, because cluster='row' ignores it" in each for each in warnings)
