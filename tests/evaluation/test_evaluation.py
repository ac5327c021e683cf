"""Tests of `evaluate`: estimators against their formulas, parts against the whole, log formats, refusals."""

from __future__ import annotations

import json
import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maillard import FixedArm, FixedDistribution, Uniform, simulate_log
from maillard.decisions import Bandit, Reward, read_log, write_log
from maillard.decisions.files.obp import to_obp
from maillard.errors import CannotAnswer, InvalidValue, MaillardError, UnknownName
from maillard.evaluation import evaluate, evaluate_each, names
from maillard.evaluation.estimators import all_estimators
from maillard.evaluation.evaluation_log import open_log
from maillard.evaluation.level_selection import choose, independent_widths
from maillard.evaluation.log_sums import sums_of, sums_of_part, total_of
from maillard.evaluation.query import Query
from maillard.evaluation.sequential.bernstein import EmpiricalBernstein
from maillard.evaluation.settings import Settings
from maillard.policies import WithFloor

ARMS = ["red", "green", "blue"]


def additive_names() -> list[str]:
    return [name for name, cls in all_estimators().items() if not cls.sequential]


def random_log(n=400, k=3, seed=0, positions=1, offset=0.0, constant=False):
    """A table of rows with random (or constant) probabilities, and its columns as arrays."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(k, 3.0), n) * 0.9 + 0.1 / k
    if constant:
        probabilities = np.tile(probabilities[0], (n, 1))
    arm = np.array([rng.choice(k, p=row) for row in probabilities])
    reward = offset + rng.normal(arm, 1.0)
    position = rng.integers(0, positions, n)
    table = pa.table(
        {
            "arm": [ARMS[i] if k == 3 else str(i) for i in arm],
            "probability": probabilities[np.arange(n), arm],
            "reward": reward,
            "position": position,
            "eligible": [ARMS if k == 3 else [str(i) for i in range(k)]] * n,
            "log_probabilities": list(np.log(probabilities)),
            "unit": [f"u{i}" for i in rng.integers(0, 40, n)],
        }
    )
    return table, arm, probabilities, reward, position


def terms(name, level, w, r, q, base):
    """The contribution of each row to an estimator, by its formula."""
    if name in ("ips", "clipped-ips", "sg-ips"):
        q = np.zeros_like(q)
        base = 0 * q
    if name.startswith("clipped"):
        w = np.array([min(each, level) for each in w])
    if name.startswith("sg"):
        w = np.array([each / (1 - level + level * each) if each else 0.0 for each in w])
    if name == "switch-dr":
        w = np.array([each if each <= level else 0.0 for each in w])
    if name == "dr-os":
        w = level * w / (w**2 + level)
    if name == "dm":
        w = 0 * w
    return base + w * (r - q)


LEVELS = {"clipped-ips": 2.5, "clipped-dr": 2.5, "sg-ips": 0.3, "sg-dr": 0.3, "switch-dr": 2.5, "dr-os": 4.0}


@pytest.mark.parametrize("positions", [1, 3])
@pytest.mark.parametrize("modelled", [False, True])
@pytest.mark.parametrize("name", [name for name in additive_names() if name not in ("snips", "sndr", "mrdr")])
def test_means_of_terms(name, modelled, positions) -> None:
    table, arm, probabilities, reward, position = random_log(positions=positions, seed=len(name))
    rng = np.random.default_rng(1)
    target_probabilities = rng.dirichlet(np.ones(3), positions)
    target = FixedDistribution(target_probabilities.T if positions > 1 else target_probabilities[0])
    model = rng.normal(size=(3, positions)) if modelled else None
    level = LEVELS.get(name)
    spec = name if level is None else f"{name}:{level}"
    given = None if model is None else model if positions > 1 else model[:, 0]
    options: Any = {"adaptive": False, "min_effective_size": 0, "cluster": "row"}
    report = evaluate(table, target, [spec], reward_model=given, **options)
    rows = np.arange(len(arm))
    w = target_probabilities[position, arm] / probabilities[rows, arm]
    q = np.full((positions, 3), reward.mean()) if model is None else model.T
    base = (target_probabilities[position] * q[position]).sum(axis=1)
    found = terms(name, level, w, reward, q[position, arm], base)
    assert report[spec].value == pytest.approx(found.mean(), rel=1e-12, abs=1e-13)
    assert report[spec].level == level
    if name == "dm" and modelled:
        assert report[spec].lower is None
        return
    error = np.std(found) / math.sqrt(len(found))
    if ("dr" in name or name == "dm") and not modelled:  # the model is the mean reward, which varies
        counted = (terms(name, level, w, reward + 1.0, q[position, arm] + 1.0, base + 1.0) - found).mean()
        moved = (terms(name, level, w, reward, q[position, arm] + 1.0, base + 1.0) - found).mean()
        assert counted == pytest.approx(1.0)
        error = np.std(found + moved * reward) / math.sqrt(len(found))
    assert report[spec].standard_error == pytest.approx(error, rel=1e-10)
    assert report[spec].upper - report[spec].value == pytest.approx(1.959964 * error, rel=1e-6)


@pytest.mark.parametrize("name", ["snips", "sndr"])
def test_ratios(name) -> None:
    """The value by its formula, and the error by numerical differentiation."""
    table, arm, probabilities, reward, _ = random_log(seed=5)
    target_probabilities, model = np.array([0.2, 0.3, 0.5]), np.array([0.1, 1.2, 1.9])
    report = evaluate(
        table, FixedDistribution(target_probabilities), [name], adaptive=False, reward_model=model
    )
    w = target_probabilities[arm] / probabilities[np.arange(len(arm)), arm]
    if name == "snips":
        value = (w * reward).sum() / w.sum()
        influence = w * (reward - value) / w.mean()
    else:
        ratio = (w * (reward - model[arm])).sum() / w.sum()
        value = (target_probabilities * model).sum() + ratio
        influence = w * (reward - model[arm] - ratio) / w.mean()
    assert report[name].value == pytest.approx(value, rel=1e-12)
    assert report[name].standard_error == pytest.approx(np.sqrt((influence**2).sum()) / len(w), rel=1e-10)


@pytest.mark.parametrize("positions", [1, 2])
def test_the_more_robust_fit(positions) -> None:
    table, arm, probabilities, reward, position = random_log(seed=6, positions=positions)
    target_probabilities = np.random.default_rng(2).dirichlet(np.ones(3), positions)
    target = FixedDistribution(target_probabilities.T if positions > 1 else target_probabilities[0])
    report = evaluate(table, target, ["mrdr"], adaptive=False, cluster="row")
    rows = np.arange(len(arm))
    p, pi = probabilities[rows, arm], target_probabilities[position, arm]
    fit = pi * (1 - p) / p**2
    q = np.array(
        [
            [
                np.average(reward[mine], weights=fit[mine])
                for a in range(3)
                if (mine := (position == s) & (arm == a)).any()
            ]
            for s in range(positions)
        ]
    )
    found = (target_probabilities * q).sum(axis=1)[position] + pi / p * (reward - q[position, arm])
    assert report["mrdr"].value == pytest.approx(found.mean(), rel=1e-12)
    assert report["mrdr"].standard_error == pytest.approx(found.std() / math.sqrt(len(arm)), rel=1e-8)


def test_copies_of_rows_add_no_information_by_unit() -> None:
    table = random_log(seed=7)[0].drop_columns(["eligible", "log_probabilities"])  # the audit would object
    many = pa.concat_tables([table] * 50)
    once, again = (evaluate(each, "uniform", ["ips"], cluster="unit")["ips"] for each in (table, many))
    assert again.standard_error == pytest.approx(once.standard_error, rel=1e-9)
    assert evaluate(many, "uniform", ["ips"], cluster="row")["ips"].standard_error < once.standard_error / 5
    assert "by unit" in evaluate(table, "uniform", ["aipw"], cluster="unit").refusals["aipw"]


def test_large_rewards_keep_their_digits() -> None:
    """Sums of squares would lose a variance of 1 around a mean of 10^7."""
    near, far = (random_log(seed=8, offset=offset)[0] for offset in (0.0, 1e7))
    for name in ("snips", "dr", "aipw", "aipw-two-point"):
        one, other = (evaluate(table, "uniform", [name], adaptive=False)[name] for table in (near, far))
        assert other.value - 1e7 == pytest.approx(one.value, abs=1e-6)
        if name != "dr":
            assert other.standard_error == pytest.approx(one.standard_error, rel=1e-5)


ADDITIVE = [*additive_names(), "clipped-ips:3", "dr-os:20"]


def additive_sums(table, parts, target="dist:red=0.2,blue=0.8", **options):
    """The sums of a table that is split into parts, and the estimates from them."""
    settings = Settings.of(0.95, {"adaptive": False, **options})
    with open_log(table, settings) as log:
        query = Query.of(log, [target], ADDITIVE, settings)
        every = [each for group in query.estimators.values() for each in group]
        [whole] = log.columns()
        edges = np.array_split(np.arange(len(whole)), parts)
        sums = [sums_of(whole.filter(np.isin(np.arange(len(whole)), edge)), log, query) for edge in edges]
    return sums, every


@pytest.mark.parametrize("parts", [2, 7, 200])
def test_sums_of_parts_equal_those_of_the_whole_log(parts) -> None:
    table, *_ = random_log(n=1000, seed=9)
    [whole], every = additive_sums(table, 1, cluster="unit")
    several, _ = additive_sums(table, parts, cluster="unit")
    backwards = list(reversed(several))
    shuffled = random.Random(1).sample(several, len(several))
    for some in (several, backwards, shuffled):
        total = total_of(some)
        assert total is not None
        for each in every:
            for model in (True, False):
                one, other = (each.estimate(s.targets[0].sums[each.key], model=model) for s in (whole, total))
                assert other[:2] == pytest.approx(one[:2], rel=1e-10, abs=1e-13)
                assert (one.by_unit is None) == (not each.clusters)
                if one.by_unit is not None:
                    assert astuple(other.by_unit) == pytest.approx(
                        astuple(one.by_unit), rel=1e-8, nan_ok=True
                    )
        spread, expected = total.targets[0].spread[0], whole.targets[0].spread[0]
        assert (spread.histogram == expected.histogram).all()
        assert spread.effective_size == pytest.approx(expected.effective_size, rel=1e-12)
        one, other = (each.targets[0].test for each in (whole, total))
        assert (other.observed, other.expected, other.variance) == pytest.approx(
            (one.observed, one.expected, one.variance)
        )
        assert total.audit.weights().observed == pytest.approx(whole.audit.weights().observed, rel=1e-12)
        assert [each.z for each in total.audit.scores()] == pytest.approx(
            [each.z for each in whole.audit.scores()]
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Nine Parquet files of one log."""
    path = tmp_path_factory.mktemp("folder")
    table, *_ = random_log(n=900, seed=10)
    for part in range(9):
        pq.write_table(table.slice(part * 100, 100), path / f"part-{part}.parquet", row_group_size=30)
    return path, table


def same_report(one, other, names_, rel=1e-10) -> None:
    for name in names_:
        for field in ("value", "lower", "upper", "refusal", "level"):
            a, b = getattr(one[name], field), getattr(other[name], field)
            assert a == b if not isinstance(a, float) else b == pytest.approx(a, rel=rel, abs=1e-12), (
                name,
                field,
            )


def test_workers_give_the_same_report(folder) -> None:
    path, table = folder
    options = {"adaptive": False, "reward_range": (-6, 8)}
    expected = evaluate(table, "arm:blue", names(), **options)
    same_report(expected, evaluate(path, "arm:blue", names(), **options), names())
    with ThreadPoolExecutor(2) as executor:
        for source in (path, table):
            found = evaluate(source, "arm:blue", names(), executor=executor, **options)
            same_report(expected, found, names())


def test_dask_gives_the_same_report(folder) -> None:
    distributed = pytest.importorskip("distributed")
    path, table = folder
    expected = evaluate(table, "arm:blue", ADDITIVE, adaptive=False)
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    )
    with cluster, distributed.Client(cluster) as client:
        found = evaluate(path, "arm:blue", ADDITIVE, adaptive=False, executor=client.get_executor())
    same_report(expected, found, ADDITIVE)


def test_sequential_estimators_depend_on_the_order_but_not_on_chunks(folder, tmp_path) -> None:
    path, table = folder
    followed = [name for name in names() if name not in additive_names()]
    one = tmp_path / "one.parquet"
    pq.write_table(table, one)
    options: Any = {"reward_range": (-6, 8), "cluster": "row"}
    whole, chunked = (evaluate(source, "arm:blue", followed, **options) for source in (one, path))
    for name in followed:
        assert (whole[name].value, whole[name].lower) == (chunked[name].value, chunked[name].lower)
    turned = table.take(np.arange(len(table))[::-1])
    other = evaluate(turned, "arm:blue", followed, **options)
    assert other["aipw-two-point"].value != whole["aipw-two-point"].value


def test_the_compiled_loop_gives_the_same_sums(tmp_path) -> None:
    from maillard.evaluation.compiled_sums import accepts_part

    rng = np.random.default_rng(11)
    n = 50_000
    arm, p = rng.integers(0, 5, n), rng.uniform(0.01, 0.9, n)
    for offset in (0.0, 1e6):
        plain = {"arm": [f"a{i}" for i in arm], "probability": p, "reward": rng.normal(offset, 1.0, n)}
        pq.write_table(pa.table(plain), tmp_path / "quick.parquet", row_group_size=9000)
        pq.write_table(pa.table(plain | {"position": np.zeros(n, int)}), tmp_path / "careful.parquet")
        wanted = ["ips", "snips", "dr", "sndr", "dm"]
        targets = ["arm:a3", "uniform", "dist:a0=0.5,a4=0.5"]
        with open_log(tmp_path / "quick.parquet", Settings()) as log:
            query = Query.of(log, ["uniform"], ["ips"], Settings())
            assert all(accepts_part(part, log, query) for part in log.parts)
            assert sums_of_part(log.parts[0], log, query) is not None
        quick, careful = (
            evaluate_each(tmp_path / f"{name}.parquet", targets, wanted, adaptive=False)
            for name in ("quick", "careful")
        )
        for one, other in zip(careful, quick, strict=True):
            same_report(one, other, wanted, rel=1e-9)
            assert one.diagnostics.histogram == other.diagnostics.histogram
            for field in ("effective_sample_size", "mean_weight", "max_weight", "positive", "rows"):
                assert getattr(other.diagnostics, field) == pytest.approx(
                    getattr(one.diagnostics, field), rel=1e-9
                )
            for a, b in zip(one.diagnostics.overlap, other.diagnostics.overlap, strict=True):
                assert b.pop("smallest_probability") == pytest.approx(
                    a.pop("smallest_probability"), rel=1e-12
                )
                assert a == b
    bad = plain | {"probability": np.where(np.arange(n) == 40_123, 0.0, p)}
    pq.write_table(pa.table(bad), tmp_path / "bad.parquet", row_group_size=9000)
    with pytest.raises(InvalidValue, match=r"row 40124: probability"):
        evaluate(tmp_path / "bad.parquet", "arm:a3", ["ips"])
    bad = plain | {"reward": np.where(np.arange(n) == 7, np.nan, plain["reward"])}
    pq.write_table(pa.table(bad), tmp_path / "bad.parquet")
    with pytest.raises(InvalidValue, match=r"row 8: reward"):
        evaluate(tmp_path / "bad.parquet", "arm:a3", ["ips"])


def test_the_compiled_loop_counts_weights_below_a_power_of_two(tmp_path) -> None:
    p = np.full(1000, np.nextafter(0.125, 1.0))
    assert 1.0 / p[0] < 8.0
    table = pa.table({"arm": ["a", "b"] * 500, "probability": p, "reward": np.ones(1000)})
    pq.write_table(table, tmp_path / "log.parquet")
    report = evaluate(tmp_path / "log.parquet", "arm:a", ["ips"], adaptive=False, min_effective_size=0)
    assert report.diagnostics.histogram == {2: 500}


def test_quarters_of_a_log() -> None:
    from maillard.evaluation.term_sums import quarters_of

    rng = np.random.default_rng(3)
    for size in (1, 3, 8, 1001):
        expected = [min(4 * (row - 1) // size, 3) for row in range(1, size + 1)]
        every = np.arange(1, size + 1)
        assert quarters_of(every, size).tolist() == expected
        for _ in range(20):
            first, last = np.sort(rng.integers(0, size + 1, 2)).tolist()
            assert quarters_of(every[first:last], size).tolist() == expected[first:last]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The SQLite log of an experiment."""
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    rng = random.Random(4)
    with Bandit(ARMS, "ms+:floor=0.2", reward=Reward(low=0, high=1), log=path, experiment="home") as bandit:
        for user in range(600):
            for decision in bandit.choose(unit=f"user {user % 50}", size=rng.randrange(1, 3)):
                bandit.reward(decision.id, float(rng.random() < 0.3 + 0.2 * ARMS.index(decision.arm)))
    return path


def test_every_format_gives_the_same_report(shop, tmp_path) -> None:
    log = read_log(shop)
    for name in ("log.parquet", "log.csv", "log.dsjson", "log.npz"):
        write_log(log, tmp_path / name)
    expected = evaluate(shop, "arm:blue", reward_range=(0, 1))
    assert set(expected) >= {"ips", "snips", "aipw-two-point", "cs-betting"}
    assert not expected.refusals
    assert expected.diagnostics.floor == pytest.approx(0.2 / 3)
    own = {
        "with events": [log, tmp_path / "log.parquet", tmp_path / "log.csv", log.to_arrow(), log.to_pandas()]
    }
    for source in own["with events"]:
        found = evaluate(source, "arm:blue")
        same_report(expected, found, expected)
    for source in (tmp_path / "log.dsjson", tmp_path / "log.npz", to_obp(log), log.to_polars()):
        found = evaluate(source, "arm:blue", list(expected), reward_range=(0, 1), floor=0.2)
        same_report(expected, found, expected, rel=1e-9)
    json.dumps(expected.to_dict(), allow_nan=False)


def test_selections_of_a_log(shop) -> None:
    log = read_log(shop)
    rows = list(log.rows())
    middle = sorted(row.decision.time for row in rows)[500]
    whole = evaluate(shop, "arm:blue", ["snips"])
    before, after = (
        evaluate(shop, "arm:blue", ["snips"], min_effective_size=0, **{side: middle / 1e6})
        for side in ("until", "since")
    )
    assert before.diagnostics.rows + after.diagnostics.rows == whole.diagnostics.rows
    mine = evaluate(shop, "arm:blue", ["snips"], unit="user 7", min_effective_size=0)
    assert mine.diagnostics.rows == sum(row.decision.unit == "user 7" for row in rows)
    assert evaluate(shop, "arm:blue", ["snips"], epoch=1).diagnostics.rows == len(rows)
    with pytest.raises(CannotAnswer, match="at least one decision"):
        evaluate(shop, "arm:blue", ["snips"], epoch=9)


def test_targets(shop) -> None:
    targets = ["arm:blue", "uniform", FixedDistribution({"red": 0.7, "blue": 0.3}), Uniform()]
    several = evaluate_each(shop, targets, comparisons=1)
    assert [report.target for report in several] == [
        "arm:blue",
        "uniform",
        "dist:blue=0.3,red=0.7",
        "uniform",
    ]
    assert several[1]["snips"].value == several[3]["snips"].value
    assert evaluate(shop, FixedArm(2))["ips"] == several[0]["ips"]
    mixed = evaluate(shop, WithFloor(FixedArm("blue"), 0.3), ["ips"])["ips"].value
    assert mixed == pytest.approx(0.7 * several[0]["ips"].value + 0.3 * several[1]["ips"].value)
    with pytest.raises(UnknownName, match="Did you mean 'blue'"):
        evaluate(shop, "arm:blu")
    with pytest.raises(InvalidValue, match="arm:blue, if the arm of that name"):
        evaluate(shop, "blue")
    with pytest.raises(MaillardError, match=r"maillard\.replay\(log, 'ms\+:sigma2=1'\)"):
        evaluate(shop, "ms+:sigma2=1")
    with pytest.raises(MaillardError, match=r"maillard\.replay\(log, 'ms\+'\)"):
        evaluate(shop, "ms+")
    with pytest.raises(InvalidValue, match="sum to 1"):
        evaluate(shop, "dist:red=0.7,blue=0.4")
    with pytest.raises(InvalidValue, match="vector of 3 probabilities"):
        evaluate(shop, FixedDistribution([0.5, 0.5]))
    with pytest.raises(InvalidValue, match="position from 0 to 2"):
        evaluate(shop, FixedArm(3))
    with pytest.raises(InvalidValue, match="at least one target"):
        evaluate_each(shop, [])


def first(report) -> object:
    assert report.best is not None
    return report.best.name


def test_the_best_estimate(shop) -> None:
    # While the experiment is active, the answer must be valid at any time; a copy of its log is finished.
    running = evaluate(shop, "arm:blue")
    assert first(running) == "cs-arm"
    assert first(evaluate(shop, "uniform")) == "cs-betting"
    assert "still running" in running.why_best
    finished = simulate_log("ms+:floor=0.2", "bernoulli:0.5,0.45", horizon=3000, seed=1)
    assert first(evaluate(finished, "arm:1")) == "aipw-two-point"
    free = simulate_log("ms", "bernoulli:0.5,0.45", horizon=3000, seed=1)  # no floor
    assert first(evaluate(free, "arm:1")) == "cs-arm"
    assert first(evaluate(free, "uniform")) == "cs-dr"
    table, *_ = random_log(n=600, seed=40)
    assert first(evaluate(table, "arm:blue", adaptive=False)) == "snips"
    assert evaluate(free, "arm:1", ["ips"]).best is None  # only with a caveat
    assert json.loads(json.dumps(evaluate(free, "arm:1").to_dict()))["best"] == "cs-arm"


def test_options_are_checked(shop) -> None:
    for options, message in (
        ({"confidence": 1.0}, "between 0 and 1"),
        ({"interval": "bootstrap"}, "normal or bernstein"),
        ({"reward_range": (1, 0)}, "the lower first"),
        ({"reward_range": 1}, "the lower first"),
        ({"floor": 1.5}, "at most 1"),
        ({"floor": [0.1, 0.1]}, "one number per arm"),
        ({"cluster": "session"}, "unit or row, or None"),
        ({"estimators": ["clipped-ips:x"]}, "a number, as in"),
        ({"estimators": ["clipped-ips:-1"]}, "a number > 0"),
        ({"estimators": ["ips:5"]}, "no level"),
        ({"estimators": ["aipw:5"]}, "no level"),
        ({"estimators": ["sg-ips:2"]}, "from 0 to 1"),
        ({"reward_model": {"red": 1}}, "a number for each of red, green, blue"),
        ({"reward_model": [1, 2]}, "a number for each arm"),
        ({"max_unsupported": 2}, "from 0 to 1"),
        ({"min_effective_size": -1}, ">= 0"),
    ):
        with pytest.raises(InvalidValue, match=message):
            evaluate(shop, "arm:blue", **options)
    with pytest.raises(UnknownName, match="Did you mean 'snips'"):
        evaluate(shop, "arm:blue", ["snip"])
    with pytest.raises(UnknownName, match="Did you mean 'cluster'"):
        evaluate(shop, "arm:blue", **{"clusters": "unit"})
    with pytest.raises(UnknownName, match="in this report"):
        evaluate(shop, "arm:blue", ["ips"])["snips"]
    assert "dr" not in evaluate(shop, "arm:blue", ["ips"])


def test_rewards_outside_the_range_are_an_error() -> None:
    table, *_ = random_log(seed=12)
    with pytest.raises(InvalidValue, match=r"row \d+: reward: expected a number from 0 to 1"):
        evaluate(table, "arm:red", reward_range=(0, 1))


def test_missing_rewards_of_a_foreign_log_are_an_error() -> None:
    table, *_ = random_log(n=50, seed=13)
    rewards = table["reward"].to_pylist()
    rewards[20] = None
    table = table.set_column(table.schema.get_field_index("reward"), "reward", pa.array(rewards))
    with pytest.raises(InvalidValue, match=r"row 21: reward: .*if an empty cell means .* no click, write 0"):
        evaluate(table, "arm:red")
    with pytest.raises(InvalidValue, match="row 21: reward"):
        evaluate(table.to_pandas(), "arm:red")


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_very_few_rows(rows) -> None:
    table = random_log(n=20, seed=14)[0].slice(0, rows)
    if not rows:
        with pytest.raises(CannotAnswer, match="at least one decision"):
            evaluate(table, "arm:red")
        return
    report = evaluate(table, "arm:red", names(), reward_range=(-9, 9), min_effective_size=0)
    for each in report.values():
        assert (each.value is None) == (each.refusal is not None)
    assert str(report)


def test_slope_is_lepskis_rule() -> None:
    table, arm, *_ = random_log(n=600, seed=15)
    for name in ("clipped-ips", "dr-os", "sg-dr"):
        found = evaluate(table, "arm:blue", [name], adaptive=False)[name]
        cls = all_estimators()[name]
        fixed = evaluate(table, "arm:blue", [f"{name}:{level:g}" for level in cls.levels], adaptive=False)
        values, errors = zip(*((each.value, each.standard_error) for each in fixed.values()), strict=True)
        best = choose(values, independent_widths([error**2 for error in errors], len(arm)))
        assert (found.value, found.level) == (values[best], cls.levels[best])
    assert (
        "give a level, as in clipped-ips:10"
        in evaluate(table, "arm:blue", ["clipped-ips"]).refusals["clipped-ips"]
    )


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_slope_uses_confidence_sequences_on_adaptive_logs(low) -> None:
    log = simulate_log("ms+:floor=0.1", "bernoulli:0.6,0.4", horizon=3000, seed=3)
    w = (log.arms == 1) * np.exp(-log.log_probability)
    w, r = w[log.forced :], log.rewards[log.forced :]
    given = {
        "action": log.arms[2:],
        "reward": r * (1 - low) + low,
        "pscore": np.exp(log.log_probability[2:]),
        "n_actions": 2,
    }
    found = evaluate(given, "arm:1", ["clipped-ips"], reward_range=(low, 1))["clipped-ips"]
    levels = all_estimators()["clipped-ips"].levels
    values, widths = [], []
    for level in levels:
        sequence = EmpiricalBernstein.start(0.2)
        shrunken = np.minimum(w, level)
        sequence.advance(weight=shrunken, reward=r)
        values.append((shrunken * r).mean() * (1 - low) + low * shrunken.mean())
        widths.append(sequence.half_width() * (1 - low))
    best = choose(values, widths)
    assert found.level == levels[best]
    assert found.value == pytest.approx(values[best])
    assert found.lower <= found.value <= found.upper


def test_bernstein_intervals_need_bounded_terms() -> None:
    rng = np.random.default_rng(16)
    arm = rng.integers(0, 4, 4000)
    feedback = {
        "action": arm,
        "reward": (rng.random(4000) < 0.3).astype(float),
        "pscore": np.full(4000, 0.25),
    }
    given = {"interval": "bernstein", "reward_range": (0, 1), "adaptive": False}
    report = evaluate(feedback, "arm:1", ["ips", "clipped-ips:2", "snips"], floor=1, **given)
    assert report["ips"].lower < 0.3 < report["ips"].upper
    n, v = 4000, report["ips"].standard_error ** 2 * 4000 * 4000 / 3999
    half = math.sqrt(2 * v * math.log(80) / n) + 7 * 4 * math.log(80) / (3 * 3999)
    assert report["ips"].upper - report["ips"].value == pytest.approx(half)
    assert report["clipped-ips:2"].interval == "empirical Bernstein"
    assert "bounds the weights" in report.refusals["snips"]
    assert "bounds the weights" in evaluate(feedback, "arm:1", ["ips"], **given).refusals["ips"]
    again = evaluate(feedback, "arm:1", ["ips"], floor=1, **(given | {"adaptive": True}))
    assert "independent rows" in again.refusals["ips"]


# Refusals.


def test_a_deterministic_log_cannot_answer() -> None:
    log = simulate_log("ucb1", "bernoulli:0.6,0.4", horizon=2000, seed=1)
    report = evaluate(log, "arm:1")
    assert set(report.refusals) == set(report)
    assert all(each.value is None and each.lower is None for each in report.values())
    assert "could not have been chosen" in report.refusals["snips"]
    assert "floor" in report.refusals["snips"]


def test_the_refusal_of_a_small_effective_size_names_a_sufficient_floor() -> None:
    log = simulate_log("ms", "bernoulli:0.9,0.1", horizon=3000, seed=1)
    report = evaluate(log, "arm:1", min_effective_size=100)
    assert "below 100; a floor of 0.067 (floor=0.067 in the policy)" in report.refusals["ips"]
    with_floor = evaluate(
        simulate_log("ms:floor=0.08", "bernoulli:0.9,0.1", horizon=3000, seed=1),
        "arm:1",
        min_effective_size=100,
    )
    assert with_floor["ips"].value is not None
    assert "cs-betting" not in report.refusals  # it is valid for any number of rows


def test_wrong_probabilities_are_refused() -> None:
    """The log contains the probability of a branch (0.9) instead of that of the arm (0.95)."""
    rng = np.random.default_rng(17)
    n = 4000
    arm = (rng.random(n) >= 0.95).astype(int)
    correct = np.log(np.tile([0.95, 0.05], (n, 1)))
    wrong = np.log(np.tile([0.90, 0.10], (n, 1)))
    for probabilities, refused in ((correct, False), (wrong, True)):
        table = pa.table(
            {
                "arm": [ARMS[i] for i in arm],
                "log_probability": probabilities[np.arange(n), arm],
                "eligible": [ARMS[:2]] * n,
                "log_probabilities": list(probabilities),
                "reward": rng.random(n),
            }
        )
        report = evaluate(table, "arm:green", reward_range=(0, 1))
        assert bool(report.refusals) == refused
        assert report.diagnostics.audit == ("broken" if refused else "consistent")
    why = report.refusals["snips"]
    assert "do not agree with the logged probabilities: 'green' was chosen " in why
    assert ", and 400 are expected (|z| = " in why


def test_a_log_without_the_probabilities_of_all_arms() -> None:
    table, *_ = random_log(n=600, seed=18)
    chosen = table.select(["arm", "probability", "reward"])
    report = evaluate(chosen, "arm:blue", [*names()], reward_range=(-9, 9), adaptive=False)
    refused = {"aipw-sqrt", "aipw-propensity", "aipw-two-point", "cs-dr", "cs-mean", "cs-catoni"}
    assert set(report.refusals) == refused
    assert all("every arm" in report.refusals[name] for name in refused)
    assert report.diagnostics.mean_weight_z is None
    unranged = evaluate(chosen, "arm:blue", ["cs-bernstein", "cs-betting", "ips"])
    assert set(unranged.refusals) == {"cs-bernstein", "cs-betting"}
    assert "reward_range" in unranged.refusals["cs-betting"]


@pytest.mark.parametrize("without", [0, 1])
def test_a_log_with_all_probabilities_in_some_parts(without, tmp_path) -> None:
    """The result does not depend on which part is read first."""
    for part in range(2):
        table, *_ = random_log(n=300, seed=20 + part)
        if part == without:
            unknown = pa.array([[math.nan] * 3] * 300)
            table = table.set_column(
                table.schema.get_field_index("log_probabilities"), "log_probabilities", unknown
            )
        pq.write_table(table, tmp_path / f"{part}.parquet")
    report = evaluate(tmp_path, "arm:blue", names(), reward_range=(-9, 9), adaptive=False)
    assert set(report.refusals) == {
        "aipw-sqrt",
        "aipw-propensity",
        "aipw-two-point",
        "cs-dr",
        "cs-mean",
        "cs-catoni",
    }


def test_models_fitted_to_an_adaptive_log_are_refused() -> None:
    log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.4", horizon=2000, seed=1)
    report = evaluate(log, "arm:1", ["dm", "dr", "mrdr", "clipped-dr:5", "ips"])
    assert set(report.refusals) == {"dm", "dr", "mrdr", "clipped-dr:5"}
    assert "aipw" in report.refusals["dr"]
    known_before = evaluate(log, "arm:1", ["dm", "dr"], reward_model=[0.5, 0.5])
    assert not known_before.refusals
    uniform = simulate_log("uniform", "bernoulli:0.6,0.4", horizon=2000, seed=1)
    assert not evaluate(uniform, "arm:1", ["dm", "dr", "mrdr"]).refusals


def test_a_caveat_if_no_floor_is_known() -> None:
    for policy, caveat in (("ms", True), ("ms:floor=0.1", False), ("ms:floor=1,floor_decay=0.7", False)):
        log = simulate_log(policy, "bernoulli:0.55,0.5", horizon=4000, seed=2)
        report = evaluate(log, "arm:1", ["aipw-two-point", "cs-betting"], min_effective_size=5)
        assert bool(report["aipw-two-point"].caveat) == caveat
        assert not report["cs-betting"].caveat


def test_open_windows_and_missing_rewards_are_left_out(tmp_path) -> None:
    class Clock:
        now = 1_790_000_000_000_000

        def __call__(self) -> int:
            return self.now

    from maillard.decisions.stores.memory import MemoryStore

    clock = Clock()
    store = MemoryStore(clock)
    rng = random.Random(5)
    bandit = Bandit(ARMS[:2], "uniform", reward=Reward(low=0, high=1, window=60), log=store)
    for step in range(300):
        clock.now += 1_000_000
        decision = bandit.choose()
        if step % 3:
            bandit.reward(decision.id, float(rng.random() < 0.5))
    report = evaluate(store, "arm:red", ["ips"])
    assert report.diagnostics.left_out == {"window not closed": 60}
    assert report.diagnostics.rows == 240
    assert report.diagnostics.filled == pytest.approx(80 / 300)
    # A third of the rewards is missing: the interval contains every mean that they allow.
    assert report["ips"].interval == "normal, bounds only"
    assert report["ips"].upper - report["ips"].lower > 1 / 3


def test_arms_that_were_added_later(tmp_path) -> None:
    rng = random.Random(6)
    bandit = Bandit(ARMS[:2], "uniform", reward=Reward(low=0, high=1), log=tmp_path / "log.db")
    for step in range(900):
        if step == 300:
            bandit.add_arm("blue")
        if step == 600:
            bandit.reset()
        bandit.reward(bandit.choose().id, float(rng.random() < 0.5))
    bandit.close()
    last = evaluate(tmp_path / "log.db", "arm:blue", ["snips"])
    assert set(last.diagnostics.epochs) == {2}
    assert not last.diagnostics.left_out
    report = evaluate(tmp_path / "log.db", "arm:blue", ["snips"], epoch="all")
    assert report.diagnostics.left_out == {"not eligible": 300}
    assert report.population == "the 600 of 900 decisions in which 'blue' could have been chosen"
    assert "2 epochs are pooled" in report.warnings[-1]
    assert report.diagnostics.rows == 600
    assert set(report.diagnostics.epochs) == {1, 2}
    assert [row["rows"] for row in report.diagnostics.overlap if row["arm"] == "blue"] == [300, 300]
    assert sum(each.rows for each in report.diagnostics.epochs.values()) == 600
    pooled = sum(
        (each.snips or 0.0) * each.mean_weight * each.rows for each in report.diagnostics.epochs.values()
    )
    total = sum(each.mean_weight * each.rows for each in report.diagnostics.epochs.values())
    assert report["snips"].value == pytest.approx(pooled / total)
    assert not evaluate(tmp_path / "log.db", "arm:red", ["snips"], epoch="all").diagnostics.left_out


def test_sticky_rows_are_clustered(tmp_path) -> None:
    rng = random.Random(7)
    with Bandit(
        ARMS[:2], "uniform", reward=Reward(low=0, high=1), log=tmp_path / "log.db", sticky=True
    ) as bandit:
        for _ in range(800):
            bandit.reward(bandit.choose(unit=f"user {rng.randrange(80)}").id, float(rng.random() < 0.5))
    report = evaluate(tmp_path / "log.db", "arm:red", ["ips", "aipw"], active=False)
    assert report["ips"].interval == "normal, by unit"
    assert "repeat a choice" in report.refusals["aipw"]
    units = evaluate(tmp_path / "log.db", "arm:red", ["ips"]).diagnostics
    assert units.rows == 800
    # If rows were treated as independent, the error would be far too small.
    rows = read_log(tmp_path / "log.db").to_pandas()
    naive = ((rows.arm == "red") * rows.reward * 2).std() / math.sqrt(800)
    assert naive < report["ips"].standard_error / 1.5


@pytest.mark.parametrize("second", [["a", "b"], ["a", "c"]])
def test_sticky_units_that_get_another_arm_are_noted(second) -> None:
    """Whoever had b gets a new arm in the second call: a is repeated in some rows, sampled in others."""
    with Bandit(["a", "b", "c"], "uniform", reward=Reward(low=0, high=1), sticky=True, seed=1) as bandit:
        for eligible in (["a", "b"], second):
            for number in range(50):
                bandit.reward(bandit.choose(f"u{number}", eligible=eligible).id, 0.5)
        found = evaluate(bandit, "arm:a", ["snips"])
    noted = any("which rows repeat a choice depends on the choice" in each for each in found.warnings)
    assert noted == (second == ["a", "c"])


def test_positions_from_one_or_from_zero() -> None:
    table, *_ = random_log(positions=3, seed=19)
    shifted = table.set_column(
        table.schema.get_field_index("position"), "position", pa.compute.add(table["position"], 1)
    )
    target = FixedDistribution(np.array([[0.2, 0.5, 0.1], [0.3, 0.2, 0.8], [0.5, 0.3, 0.1]]))
    one, other = (evaluate(each, target, ["ips"])["ips"].value for each in (table, shifted))
    assert one == other
    far = table.set_column(table.schema.get_field_index("position"), "position", pa.array([7] * len(table)))
    with pytest.raises(InvalidValue, match="begin at 0 or at 1"):
        evaluate(far, target, ["ips"])
    with pytest.raises(InvalidValue, match="row 1: position"):
        evaluate(far, target, ["ips"], first_position=0)
    with pytest.raises(InvalidValue, match="begin at 0 or at 1"):  # there are none
        evaluate(table.drop_columns(["position"]), target, ["ips"])


def test_ips_intervals_cover_the_value_on_independent_rows() -> None:
    """Of 400 intervals of 90%, 360 ± 6 · 3.5 cover the value; intervals of a third of the width do not."""
    hits = np.zeros(2)
    for seed in range(400):
        table, *_ = random_log(n=250, seed=100 + seed)
        found = evaluate(table, "arm:blue", ["snips"], confidence=0.9)["snips"]
        half = found.upper - found.value
        hits += np.abs(found.value - 2.0) <= np.array([half, half / 3])
    deviation = math.sqrt(400 * 0.9 * 0.1)
    assert abs(hits[0] - 360) < 3.5 * deviation
    assert abs(hits[1] - 360) > 3.5 * deviation


def test_the_width_of_normal_intervals_follows_from_their_standard_errors() -> None:
    log = simulate_log("ms+:floor=0.3,sigma2=0.25", "bernoulli:0.6,0.4", horizon=2000, seed=1)
    for confidence in (0.8, 0.95):
        z = NormalDist().inv_cdf(0.5 + confidence / 2)
        report = evaluate(log, "arm:1", confidence=confidence)
        found = [
            each for each in report.estimates.values() if each.interval == "normal" and each.refusal is None
        ]
        assert len(found) >= 4
        for each in found:
            assert each.lower == pytest.approx(each.value - z * each.standard_error, rel=1e-12)
            assert each.upper == pytest.approx(each.value + z * each.standard_error, rel=1e-12)
