"""Summaries agree with their trials, on CPU and GPU, for any division into chunks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import maillard
from maillard import InvalidValue, MaillardError
from maillard.simulation import Result, cpu_backend
from maillard.simulation.cuda import cuda_backend as device
from maillard.simulation.result_files import write
from maillard.simulation.summary import (
    BINS,
    LEAST,
    PartialSummary,
    Summary,
    _middles,
    bin_of,
    merge,
    summarize_trials,
)

PROBLEM = "bernoulli:0.5,0.45,0.4"
POLICIES = ["ms+", "ts"]
LEVELS = [0.0, 0.05, 0.3, 0.5, 0.95, 1.0]


def run(where: str, keep: str, trials: int = 300, horizon: int = 200, **options) -> Any:
    return maillard.simulate(POLICIES, PROBLEM, horizon, trials, seed=4, device=where, keep=keep, **options)


def check(summary: Summary, result: Result) -> None:
    """Check that a summary agrees with its trials."""
    assert summary.policies == result.policies
    assert summary.measure == result.measure
    assert summary.trials == result.trials
    assert summary.rounds.tolist() == result.rounds.tolist()
    # The same numbers, added in another order.
    assert summary.mean == pytest.approx(result.mean, rel=1e-12)
    assert summary.sd == pytest.approx(result.sd, rel=1e-9, abs=1e-12)
    assert summary.standard_error == pytest.approx(result.standard_error, rel=1e-9, abs=1e-12)
    assert np.array_equal(summary.max, result.max)
    assert np.array_equal(summary.final, result.final)
    assert np.array_equal(summary.mean_pulls, result.pulls.mean(axis=1))
    for above in (-1.0, 0.0, *np.quantile(result.final, [0.1, 0.5, 0.9]), result.final.max()):
        assert summary.tail(above).tolist() == (result.final > above).sum(axis=1).tolist()
        assert result.tail(above).tolist() == summary.tail(above).tolist()
    assert summary.quantile(LEVELS)[:, :, -1] == pytest.approx(result.quantile(LEVELS)[:, :, -1], rel=1e-15)
    assert np.array_equal(summary.quantile(0.3), summary.quantile(LEVELS)[2])
    # At earlier checkpoints, quantiles are accurate to half a bin.
    ranks = np.maximum(np.ceil(np.array(LEVELS) * result.trials), 1).astype(int) - 1
    exact = np.sort(result.values, axis=1)[:, ranks].transpose(1, 0, 2)[:, :, :-1]
    assert (abs(summary.quantile(LEVELS)[:, :, :-1] - exact) <= exact / 256 + LEAST).all()
    rows, others = summary.summary(), result.summary()
    for row, other in zip(rows, others, strict=True):
        assert row.pop("policy") == other.pop("policy")
        assert row == pytest.approx(other, rel=1e-9)


@pytest.fixture(scope="module")
def whole() -> Any:
    return run("cpu", "trials")


@pytest.fixture(scope="module")
def short() -> Any:
    return run("cpu", "summary")


def test_a_summary_agrees_with_its_trials(whole, short) -> None:
    check(short, whole)
    assert short.provenance["trials"] == 300
    assert short.provenance["device"] == "cpu"
    assert np.array_equal(short.final_regret, whole.final_regret)
    assert short.mean_regret == pytest.approx(whole.mean_regret)
    with pytest.raises(MaillardError, match="no loss"):
        _ = short.final_loss


def test_other_trials_have_another_summary(whole) -> None:
    other = maillard.simulate(POLICIES, PROBLEM, 200, 300, seed=5, keep="summary")
    with pytest.raises(AssertionError):
        check(other, whole)


def test_a_summary_from_the_gpu_agrees_with_its_trials(monkeypatch) -> None:
    monkeypatch.setattr(device, "batch_size", lambda _plan, *_: 16)  # three batches, the last one of 8 trials
    options = {"trials": 40, "horizon": 16, "checkpoints": [3, 8, 16]}
    check(run("cuda", "summary", **options), run("cuda", "trials", **options))


def test_a_single_trial() -> None:
    for where in ("cpu", "cuda"):
        one = {"trials": 1, "horizon": 12, "checkpoints": [2, 12]}
        summary = run(where, "summary", **one)
        check(summary, run(where, "trials", **one))
        assert (summary.sd == 0).all()


def test_a_summary_does_not_depend_on_the_chunks(monkeypatch) -> None:
    options = {"trials": 100, "checkpoints": [7, 60, 200]}
    once = run("cpu", "summary", **options)
    for rounds, threads in (
        (1, 2),
        (1400, 1),
        (10**9, 3),
    ):  # chunks of one trial, of seven, and as many as threads need
        monkeypatch.setattr(cpu_backend, "_MAX_BATCH_ROUNDS", rounds)
        other = run("cpu", "summary", threads=threads, **options)
        assert np.array_equal(other.final, once.final)
        assert other.mean == pytest.approx(once.mean, rel=1e-12)
        assert other.sd == pytest.approx(once.sd, rel=1e-9, abs=1e-12)
        assert np.array_equal(other.max, once.max)
        assert np.array_equal(other.quantile(LEVELS), once.quantile(LEVELS))
        assert np.array_equal(other.mean_pulls, once.mean_pulls)


def same(a: PartialSummary, b: PartialSummary) -> bool:
    exact = all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("most", "histogram", "final"))
    close = all(
        np.allclose(getattr(a, name), getattr(b, name), rtol=1e-11, atol=1e-12)
        for name in ("mean", "square", "pulls")
    )
    return exact and close


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_parts_merge_into_the_whole(scale) -> None:
    rng = np.random.default_rng(3)
    values = np.cumsum(rng.gamma(0.3, scale, (500, 6)), axis=1) + 1e3 * scale
    pulls = rng.integers(0, 100, (500, 4))
    everything = summarize_trials(values, pulls)
    assert everything.square == pytest.approx(values.var(axis=0) * 500)
    for cuts in ([250], [1, 2, 3, 499], sorted(rng.choice(np.arange(1, 500), 40, replace=False).tolist())):
        pieces = zip(np.split(values, cuts), np.split(pulls, cuts), strict=True)
        parts = [summarize_trials(*piece) for piece in pieces]
        assert same(merge(parts), everything)
        nested = [merge(parts[:2]), *parts[2:]]
        assert same(merge(nested), everything)
        assert not same(merge(parts[1:]), everything)
    assert same(merge([everything]), everything)


def test_bins_are_the_same_for_one_value_and_for_many() -> None:
    rng = np.random.default_rng(4)
    powers = 2.0 ** np.arange(-30, 60)
    values = [0.0, -1.0, -1e-9, LEAST, np.nextafter(LEAST, 1), np.nextafter(LEAST, 0), 1e300, 5e-324]
    values += [*powers, *np.nextafter(powers, 0), *np.nextafter(powers, np.inf), *_middles()]
    values += [*np.exp(rng.uniform(-20, 40, 2000)), *rng.uniform(0, 1000, 2000)]
    for value in values:
        counts = summarize_trials(np.array([[value]]), np.ones((1, 1), np.int64)).histogram
        assert counts.shape == (1, BINS)
        assert counts[0, bin_of(value)] == counts.sum() == 1
    numbers = np.sort(values)
    bins = [bin_of(value) for value in numbers]
    assert (np.diff(bins) >= 0).all()
    assert bins[0] == 0
    assert bins[-1] == BINS - 1


def test_the_middle_of_a_bin_is_close_to_its_values() -> None:
    middles = _middles()
    assert [bin_of(value) for value in middles] == list(range(BINS))
    values = np.exp(np.random.default_rng(5).uniform(np.log(2 * LEAST), np.log(1e12), 5000))
    found = middles[[bin_of(value) for value in values]]
    assert (abs(found - values) <= values / 256).all()
    assert (abs(found - values) > values / 1000).any()  # the bound is not too loose


@pytest.mark.parametrize("q", [-0.1, 1.5, [0.5, 2.0], np.nan, [[0.5]]])
def test_quantiles_are_from_0_to_1(short, q) -> None:
    with pytest.raises(InvalidValue, match="q: expected numbers from 0 to 1"):
        short.quantile(q)


def test_the_loss_of_a_threshold_problem() -> None:
    text = "bernoulli:0.3,0.45,0.7,threshold=0.5"
    whole, short = (
        maillard.simulate(["apt:threshold=0.5", "uniform"], text, 60, 200, seed=1, keep=keep)
        for keep in ("trials", "summary")
    )
    check(short, whole)
    assert short.measure == "loss"
    assert set(np.unique(short.final_loss)) == {0.0, 1.0}
    assert np.array_equal(short.final_loss, whole.final_loss)
    assert short.mean_loss == pytest.approx(whole.mean_loss)
    assert short.tail(0.5).tolist() == whole.final_loss.sum(axis=1).tolist()


def test_pictures_and_files(whole, short, tmp_path) -> None:
    for kind in ("curves", "distributions"):
        assert short.plot(kind).axes
    with pytest.raises(InvalidValue, match="curves or distributions"):
        short.plot("pie")
    for name in ("a.json", "a.png", "a-distributions.svg"):
        write(short, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["rounds"] == whole.rounds.tolist()
    assert content["summary"][1]["mean"] == pytest.approx(whole.mean_regret[1, -1])
    assert content["curves"]["ts"]["max"] == whole.max[1].tolist()
    assert content["provenance"]["trials"] == 300


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_files_of_trials_cannot_be_written(short, tmp_path, ending) -> None:
    with pytest.raises(InvalidValue) as caught:
        write(short, tmp_path / f"a.{ending}")
    message = "output of a summary: expected a file name that ends in .json, .png, .svg"
    assert str(caught.value).startswith(message)
    assert not list(tmp_path.iterdir())
