"""The tail study: its statistics are correct, a stopped run continues, and the page matches the results."""

from __future__ import annotations

import dataclasses
import doctest
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import maillard
from benchmarks.tails import __main__ as command
from benchmarks.tails import cells, comparisons, kl_boosters, page, plan, running, text_formatting
from maillard.problems import problem as problem_of
from tests.test_docs import ROOT

FEW = ("gaussian-equal:arms=2,variance=1", "bernoulli-equal:arms=2")


@pytest.fixture
def few(monkeypatch):
    """Restrict the study to two problems, without KL-MS+."""
    monkeypatch.setattr(plan, "PROBLEMS", FEW)
    monkeypatch.setattr(plan, "KL_BOOSTED", ())


def test_examples_run() -> None:
    for module in (cells, text_formatting):
        found = doctest.testmod(module)
        assert found.attempted > 0
        assert not found.failed


def test_statistics_of_a_known_array() -> None:
    regret = np.random.default_rng(1).permutation(np.arange(1.0, 1001.0))
    found = cells.summary(regret, worst=5000.0)
    assert found["mean"] == 500.5
    assert found["deviation"] == pytest.approx(np.std(regret, ddof=1), rel=1e-12)
    assert found["error"] == pytest.approx(stats.sem(regret), rel=1e-12)
    assert {q: found["quantiles"][q][0] for q in plan.QUANTILES} == {
        "0.5": 500, "0.9": 900, "0.95": 950, "0.99": 990, "0.999": 999, "0.9999": 1000, "0.99999": 1000,
    }  # fmt: skip
    assert (found["largest"], found["worst"]) == (1000, 5000)
    assert found["linear"] == 500  # above 500, not at it
    assert cells.rank("0.99999", 10**6) == 11  # of a million, ten are larger


def test_quantiles_are_observed_regrets_at_the_reported_rank() -> None:
    rng = np.random.default_rng(2)
    for count in (7, 40, 999, 12_345):
        regret = rng.lognormal(size=count)
        found = cells.summary(regret, worst=1e9)["quantiles"]
        largest = np.sort(regret)[::-1]
        assert all(found[q][0] == largest[cells.rank(q, count) - 1] for q in plan.QUANTILES)
        assert all(low <= value <= high for value, low, high in found.values())


def test_rounding_does_not_move_a_regret_above_the_linear_threshold() -> None:
    gap = float(problem_of("bernoulli-equal:arms=2").gaps.max())
    line = 2000 * gap
    regret = np.array([line - gap, line, np.nextafter(line, np.inf), line + gap])
    assert cells.summary(regret, worst=20_000 * gap)["linear"] == 1


@pytest.mark.parametrize(("events", "trials"), [(0, 1000), (1, 1000), (37, 1000), (1000, 1000), (10, 10**6)])
def test_counts_have_clopper_pearson_intervals(events, trials) -> None:
    regret = np.zeros(trials)
    regret[:events] = 11.0
    found = cells.summary(regret, worst=100.0)
    exact = stats.binomtest(events, trials).proportion_ci(plan.CONFIDENCE, method="exact")
    assert found["linear"] == events
    # SciPy finds the exact interval by bisection, hence the tolerance.
    assert found["linear_interval"] == pytest.approx([exact.low, exact.high], abs=1e-11)


def test_quantile_intervals_have_their_nominal_coverage() -> None:
    """The intervals miss in at most 5% of runs, and at least once.

    Each check fails by accident with probability 1e-4.
    """
    rng, runs, false_alarm = np.random.default_rng(3), 500, 1e-4
    truths = {"0.5": np.log(2), "0.99": np.log(100)}
    missed = dict.fromkeys(truths, 0)
    for _ in range(runs):
        found = cells.summary(rng.exponential(size=400), worst=1e9)["quantiles"]
        for q, truth in truths.items():
            missed[q] += not found[q][1] <= truth <= found[q][2]
    assert max(missed.values()) <= stats.binom.isf(false_alarm, runs, 1 - plan.CONFIDENCE)
    assert missed["0.5"] > 0  # no miss in 500 runs would mean that the interval is too wide


def test_standard_error_of_the_standard_deviation() -> None:
    count = 10**5
    regret = np.random.default_rng(4).normal(50.0, 2.0, count)
    # For normal data it is sd / sqrt(2 n). The tolerance is six of its own standard errors, from the
    # relative error sqrt(96 / n) of the fourth central moment.
    tolerance = 6 * (96 / count) ** 0.5 / 4
    found = cells.summary(regret, worst=1e9)["deviation_error"]
    assert found == pytest.approx(2 / (2 * count) ** 0.5, rel=tolerance)
    assert cells.summary(np.full(9, 3.0), worst=1e9)["deviation_error"] == 0


def study_of(sample, others=2000):
    """Return a study whose trials are sampled by a function of the policy's index and the worst regret.

    The other policies use the first `others` of these trials.
    """
    settings = {
        "horizon": 20_000,
        "trials": 2000,
        "others": others,
        "seed": 0,
        "versions": {"maillard": "1"},
        "devices": ["a GPU"],
    }
    every = {}
    for problem in FEW:
        worst = 20_000 * float(problem_of(problem).gaps.max())
        for index, spec in enumerate((*plan.BOOSTED, *plan.OTHERS)):
            values = np.minimum(sample(index, worst), worst)[: 2000 if spec in plan.BOOSTED else others]
            every[problem, spec] = cells.Cell(problem, spec, **cells.summary(values, worst), seconds=2.0)
    return cells.Study(settings, every)


def rising(index, worst):
    """The mean falls with the booster, and the standard deviation rises.

    With the largest booster, one trial in a thousand is linear.
    """
    scores = np.linspace(-1, 1, 2000)
    values = worst / 100 * (1 + (20 - index) / 20 + (index + 1) / 20 * scores)
    if index == len(plan.BOOSTED) - 1:
        values[:2] = worst / 2
    return values


def one_line(text):
    """Return the text without line breaks."""
    return " ".join(text.split())


def both(study):
    """Return the text of the page and of its appendix."""
    return page.page(study) + page.appendix(study)


def test_sentences_follow_the_numbers(few) -> None:
    text = one_line(both(study_of(rising)))
    assert (
        "**The standard deviation rises** with every doubling of B, from the B where it is smallest to "
        "B = 128, on all 2 problems" in text
    )
    assert "**There is a tradeoff between mean and standard deviation** on all 2 problems" in text
    assert "its **standard deviation** at B = 1, and" in text
    assert "No problem has enough linear trials" in text
    assert "were computed on a GPU: 30 cells of 40,000,000 rounds each" in text

    falling = one_line(page.page(study_of(lambda index, worst: rising(6 - min(index, 6), worst))))
    assert (
        "rises** with every doubling of B, from the B where it is smallest to B = 128, on none of 2 problems"
        in falling
    )
    assert "**There is a tradeoff between mean and standard deviation** on none of 2 problems" in falling

    slow = one_line(page.page(study_of(lambda _, worst: np.linspace(0.2, 0.3, 2000) * worst)))
    assert "indicate slow learning and not bad luck: Gaussian (1), Equal, K = 2 (every policy)" in slow


def cells_with(**columns):
    """Return a cell for every booster with these values of the fields."""
    regret = np.arange(100.0)
    template = cells.Cell(FEW[0], "ms", **cells.summary(regret, 1e4), seconds=1.0)
    rows = zip(*columns.values(), strict=True)
    changed = [dataclasses.replace(template, **dict(zip(columns, row, strict=True))) for row in rows]
    return [dataclasses.replace(cell, policy=spec) for cell, spec in zip(changed, plan.BOOSTED, strict=True)]


def test_the_smallest_value_is_reported_with_those_whose_intervals_overlap() -> None:
    close = cells_with(mean=[9, 7, 5.5, 5, 5.1, 6, 8, 9], error=[0.1] * 8)
    assert comparisons.smallest(close, "mean") == (3, [4])
    assert comparisons.smallest(cells_with(deviation=range(8), deviation_error=[0.01] * 8), "sd") == (0, [])


def growth_with(*counts):
    return comparisons.growth_per_doubling(cells_with(linear=counts, trials=[10**6] * 8))


def test_growth_is_estimated_if_there_are_enough_linear_trials() -> None:
    assert growth_with(0, 0, 1, 5, 20, 40, 80, 160) == (16, pytest.approx(2))
    assert growth_with(900, 90, 10, 30, 90, 270, 810, 2430) == (4, pytest.approx(3))
    assert growth_with(0, 0, 0, 0, 0, 0, 0, 50) is None
    assert growth_with(*[10**6] * 8) is None


def test_the_frontier_has_the_undominated_policies(few) -> None:
    study = study_of(rising)
    every = study.of(FEW[0], (*plan.BOOSTED, *plan.OTHERS))
    beaten = {a.policy for a in every for b in every if b.mean < a.mean and b.deviation <= a.deviation}
    assert set(comparisons.undominated(study, FEW[0])) == {cell.policy for cell in every} - beaten


def test_the_file_has_one_line_per_cell_and_six_significant_digits(few, tmp_path) -> None:
    study, path = study_of(rising), tmp_path / "tails.json"
    cells.write(study, path)
    lines = path.read_text(encoding="utf8").splitlines()
    assert sum(line.startswith('{"problem"') for line in lines) == len(study.cells) == 30
    again = cells.read(path)
    for key, cell in study.cells.items():
        assert again.cells[key].mean == float(f"{cell.mean:.6g}")
        assert again.cells[key].linear == cell.linear
    cells.write(again, path)
    assert path.read_text(encoding="utf8").splitlines() == lines


def test_pictures_are_drawn(few, tmp_path) -> None:
    (tmp_path / "explanation").mkdir()
    page.write_page(study_of(rising), tmp_path / "explanation" / "tails.md")
    for name in ("tails-frontier.png", "tails.png", "tails-linear.png"):
        assert f"(../pictures/{name})" in (tmp_path / "explanation" / "tails.md").read_text(encoding="utf8")
        assert (tmp_path / "pictures" / name).stat().st_size > 10_000


def without_times(path):
    found = json.loads(path.read_text(encoding="utf8"))
    return [{key: value for key, value in cell.items() if key != "seconds"} for cell in found["cells"]]


def test_a_stopped_run_continues(few, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(plan, "OTHERS", ("ms",))
    monkeypatch.setattr(plan, "BOOSTED", plan.BOOSTED[:2])
    simulate, ran = maillard.simulate, []

    def counted(policies, problem, horizon, trials, **options):
        ran.append((*policies, problem, trials))
        if len(ran) == stop:
            raise KeyboardInterrupt
        return simulate(policies, problem, horizon, trials, **options)

    monkeypatch.setattr(maillard, "simulate", counted)

    def ran_with(path, *more):
        arguments = ["tails", "--trials", "30", "--horizon", "60", "--output", str(path), *more]
        monkeypatch.setattr(sys, "argv", arguments)
        ran.clear()
        return command.main()

    stop, whole, part = 0, tmp_path / "whole.json", tmp_path / "part.json"
    assert ran_with(whole) == 0
    assert ran == [(*plan.order()[i][::-1], 30 if i < 4 else 3) for i in range(6)]
    assert [cell["trials"] for cell in without_times(whole)] == [30] * 4 + [3] * 2

    stop = 5
    assert ran_with(part) == 130
    kept = part.read_text(encoding="utf8").splitlines()
    assert without_times(part) == without_times(whole)[:4]

    stop = 0
    assert ran_with(part) == 0
    assert len(ran) == 2
    assert without_times(part) == without_times(whole)
    lines = part.read_text(encoding="utf8").splitlines()
    assert [line.rstrip(",") for line in lines[3:7]] == [line.rstrip(",") for line in kept[3:7]]

    assert ran_with(part) == 0
    assert not ran  # no cell is missing
    assert ran_with(part, "--again") == 0
    assert len(ran) == 6
    capsys.readouterr()
    before = part.read_bytes()
    with pytest.raises(SystemExit):  # results with other settings are not overwritten
        ran_with(part, "--seed", "1")
    assert "other settings (seed 0)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        ran_with(part, "--others", "5")
    assert "other settings (others 3)" in capsys.readouterr().err
    assert part.read_bytes() == before


def test_a_run_does_not_import_the_picture_and_page_libraries(tmp_path) -> None:
    """The machine that runs the study may lack matplotlib, Jinja and PyArrow."""
    code = (
        "import runpy, sys\n"
        # None in sys.modules makes an import fail.
        "sys.modules.update(dict.fromkeys(['matplotlib', 'jinja2', 'pyarrow']))\n"
        "runpy.run_module('benchmarks.tails', run_name='__main__', alter_sys=True)\n"
    )
    path = tmp_path / "tails.json"
    options = ["--trials", "20", "--horizon", "20", "--output", str(path)]
    subprocess.run([sys.executable, "-c", code, *options], check=True, cwd=ROOT, timeout=120)
    assert not cells.read(path).missing()


def test_ms_plus_runs_first_and_few_arms_before_many() -> None:
    found = plan.order()
    first = len(plan.PROBLEMS) * len(plan.BOOSTED)
    second = first + len(plan.kl_problems()) * len(plan.KL_BOOSTED)
    assert len(set(found)) == len(found) == second + len(plan.PROBLEMS) * len(plan.OTHERS)
    parts = found[:first], found[first:second], found[second:]
    for part, group in zip(parts, (plan.BOOSTED, plan.KL_BOOSTED, plan.OTHERS), strict=True):
        assert {spec for _, spec in part} == set(group)
        arms = [problem_of(problem).gaps.size for problem, _ in part]
        assert arms == sorted(arms)
        assert (arms[0], arms[-1]) == (2, 100)


def test_the_default_booster_of_kl_ms_plus_follows_from_the_criterion() -> None:
    study = cells.read(ROOT / "docs" / "data" / "tails.json")
    found = kl_boosters.scores(study)
    best = min(plan.CANDIDATES, key=lambda booster: found[booster])
    assert maillard.policy("kl-ms+").booster == best
    assert f"**The default booster of `kl-ms+` is {best}.**" in page.page(study)
    other = next(booster for booster in plan.CANDIDATES if booster != best)
    specs = [f"kl-ms+:booster={best}", f"kl-ms+:booster={other}"]
    swapped = dict(zip(specs, specs[::-1], strict=True))
    changed = {(problem, swapped.get(spec, spec)): cell for (problem, spec), cell in study.cells.items()}
    assert kl_boosters.scores(cells.Study(study.settings, changed))[other] == found[best]  # it can fail


def test_the_score_is_a_geometric_mean_of_means_and_quantiles() -> None:
    regret = np.concatenate([np.full(98, 4.0), np.full(2, 16.0)])
    cell = cells.Cell("bernoulli-equal:arms=2", "kl-ms+:booster=4", **cells.summary(regret, 1e3), seconds=1.0)
    assert kl_boosters.score([cell]) == pytest.approx((regret.mean() * 16.0) ** 0.5)


def test_a_used_up_budget_stops_the_run_between_two_cells(few, tmp_path, monkeypatch, capsys) -> None:
    path, ticks = tmp_path / "tails.json", iter(range(100))
    clock = SimpleNamespace(monotonic=lambda: next(ticks))  # one second between cells
    for module in (command, running):
        monkeypatch.setattr(module, "time", clock)
    arguments = ["tails", "--trials", "20", "--horizon", "30", "--output", str(path)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--budget", "4"])
    assert command.main() == 0
    assert list(cells.read(path).cells) == plan.order()[:3]
    assert "the budget is used up: 27 cells are missing" in capsys.readouterr().out
    assert command.main() == 0  # the same command continues
    assert list(cells.read(path).cells) == plan.order()[:6]
    monkeypatch.setattr(sys, "argv", [*arguments, "--budget", "-1"])
    with pytest.raises(SystemExit):
        command.main()


def page_of(study, path, monkeypatch):
    cells.write(study, path)
    monkeypatch.setattr(sys, "argv", ["tails", "--page", "--output", str(path)])
    return command.main()


def test_a_page_without_all_of_ms_plus_is_refused(few, tmp_path, monkeypatch, capsys) -> None:
    study = study_of(rising)
    del study.cells[FEW[1], "moss"]
    del study.cells[FEW[1], "ms+:booster=64"]
    with pytest.raises(SystemExit):
        page_of(study, tmp_path / "tails.json", monkeypatch)
    expected = "lacks 1 cells of MS+, the first ms+:booster=64 on bernoulli-equal:arms=2"
    assert expected in capsys.readouterr().err


def test_a_page_omits_policies_that_were_not_run(few, tmp_path, monkeypatch) -> None:
    study, path = study_of(rising, others=200), tmp_path / "tails.json"
    for problem, spec in ((FEW[0], "ts-sg"), (FEW[1], "ts-sg"), (FEW[1], "moss"), (FEW[1], "ts")):
        del study.cells[problem, spec]
    assert page_of(study, path, monkeypatch) == 0
    text, tables = (
        path.with_name(name).read_text(encoding="utf8") for name in ("tails.md", "tails-appendix.md")
    )
    assert "TS-SG" not in text + tables
    assert "Not run: TS and MOSS (Bernoulli, Equal, K = 2)." in text
    gaussian, bernoulli = tables.split("\n### ")[1:]
    assert "| MOSS | 200 |" in gaussian
    assert "| MOSS" not in bernoulli
    assert "16 cells of 40,000,000 rounds each and 10 cells of 4,000,000 rounds each" in tables

    for spec in plan.OTHERS:
        for problem in FEW:
            study.cells.pop((problem, spec), None)
    assert page_of(study, path, monkeypatch) == 0
    text = path.with_suffix(".md").read_text(encoding="utf8")
    assert "In this study, every policy has 2,000 trials on every problem." in text
    assert "Not run" not in text
    assert "the other policies relative" not in text


def test_statistics_use_the_number_of_trials_of_their_cell(few) -> None:
    """Half of the trials are linear, for MS+ and for the other policies."""
    half = study_of(lambda _, worst: np.tile([0.05, 0.2], 1000) * worst, others=100)
    lines = both(half)
    text = one_line(lines)
    assert "In this study, MS+ has 2,000 trials on every problem, and every other policy has 100." in text
    assert "the 99.999% quantile of 2,000 trials is the largest and of 100 trials is the largest" in text
    assert "The largest regret of MS+ relative to its problem, with 2,000 trials per cell, " in text
    assert (
        "The largest regret of the other policies relative to its problem, with 100 trials per cell, " in text
    )
    assert re.search(r"\| MS\+1 \| 2,000 .* \| 1,000 \| 0\.500 \(0\.478 to 0\.522\) \|", lines)
    assert re.search(r"\| MOSS \| 100 .* \| 50 \| 0\.500 \(0\.398 to 0\.602\) \|", lines)


def test_the_page_matches_the_results() -> None:
    study, folder = cells.read(command.DATA), ROOT / "docs" / "explanation"
    for name, made in (("tails.md", page.page(study)), ("tails-appendix.md", page.appendix(study))):
        shown = (folder / name).read_text(encoding="utf8")
        assert made == shown, "run `python -m benchmarks.tails --page`"
