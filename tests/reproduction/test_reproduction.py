"""`maillard reproduce`: reproducible bytes, atomic reports, interruption, and the page in a browser."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser

from maillard import InvalidValue
from maillard.cli import main
from maillard.errors import MaillardError
from maillard.reproduction import ReproductionSettings, _interruptible, reproduce
from maillard.reproduction.claims import claims
from maillard.reproduction.output_folder import open_working_folder
from maillard.reproduction.progress import Progress
from maillard.reproduction.report_content import ReproductionReport
from tests.browser import browser, serious_violations  # noqa: F401 - a fixture

FEW = ReproductionSettings(quick=True, only=("booster", "closing"))
TIMED = {"index.html", "timings.json"}  # the files that contain times


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("few") / "report"
    reproduce(folder, FEW, threads=1, show=False)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, ReproductionReport]:
    folder = tmp_path_factory.mktemp("whole") / "report"
    return folder, reproduce(folder, ReproductionSettings(quick=True), show=False)


def test_the_same_seed_gives_the_same_bytes(few, tmp_path):
    run = command("--quick", "--only", "booster", "--only", "closing", "--output", str(tmp_path / "again"))
    _, errors = run.communicate(timeout=300)  # on all cores, and drawn by several processes
    assert run.returncode == 0, errors
    one, two = files(few), files(tmp_path / "again")
    assert one.keys() == two.keys()
    assert {name for name in one if one[name] != two[name]} <= TIMED
    reproduce(tmp_path / "other", ReproductionSettings(quick=True, only=FEW.only, seed=1), show=False)
    assert files(tmp_path / "other")["trials.parquet"] != one["trials.parquet"]


def test_results_are_complete_and_agree(whole):
    folder, report = whole
    results = json.loads((folder / "results.json").read_text())
    trials = pq.read_table(folder / "trials.parquet")
    curves = pq.read_table(folder / "curves.parquet")
    assert sum(part["trials"] * len(part["policies"]) for part in results["parts"]) == trials.num_rows
    rows = trials.filter(
        [experiment == "booster" for experiment in trials["experiment"].to_pylist()]
    ).to_pylist()
    (booster,) = [part for part in results["parts"] if part["experiment"] == "booster"]
    for summary in booster["summary"]:
        own = [row["regret"] for row in rows if row["policy"] == summary["policy"]]
        assert summary["mean"] == pytest.approx(sum(own) / len(own))
        assert all(sum(row["pulls"]) == booster["horizon"] for row in rows)
        last = [
            row["mean"]
            for row in curves.to_pylist()
            if (row["experiment"], row["policy"], row["round"])
            == ("booster", summary["policy"], booster["horizon"])
        ]
        assert last == [pytest.approx(summary["mean"])]
    written = json.loads((folder / "claims.json").read_text())
    assert (
        [row["id"] for row in written]
        == [row.id for row in report.claims]
        == [claim["id"] for claim in claims()]
    )


def test_every_figure_exists_as_svg_and_png(whole):
    folder, report = whole
    names = [panel.name for section in report.sections for panel in section.panels]
    assert len(set(names)) == len(names) > 50
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{name}.{end}" for name in names for end in ("svg", "png")
    }
    shown = {section.id for section in report.sections}
    assert {row.section for row in report.claims} <= shown
    for section in report.sections:
        assert all(panel.alt and panel.table.rows for panel in section.panels)


def test_the_browser_reports_no_error_for_the_page(whole, browser: Browser):  # noqa: F811
    folder, report = whole
    context = browser.new_context(viewport={"width": 360, "height": 800})
    tab, messages, requests = context.new_page(), [], []
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto((folder / "index.html").as_uri())
    assert messages == []
    assert requests == [(folder / "index.html").as_uri()]
    assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert serious_violations(tab) == []
    assert tab.locator("figure").count() == sum(len(section.panels) for section in report.sections)
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(set(ids)) == len(ids)
    broken = (
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => "
        "!document.getElementById(decodeURIComponent(a.hash.slice(1))))"
    )
    assert tab.evaluate(f"{broken}.map(a => a.hash)") == []
    assert "do not apply" in tab.locator("body").inner_text()  # the warning of a quick run
    context.close()


def test_the_page_shows_the_verdicts_of_the_run(whole):
    folder, report = whole
    text = (folder / "index.html").read_text()
    for row in report.claims:
        assert row.verdict in text
    counts = {word: sum(row.verdict == word for row in report.claims) for word in ("holds", "fails", "open")}
    assert f"{counts['holds']} hold, {counts['fails']} fail and {counts['open']} are open" in text


def command(*arguments: str, **options) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "maillard", "reproduce", *arguments]
    return subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def test_an_interrupted_run_leaves_no_report_and_resumes(few, tmp_path):
    arguments = ["--quick", "--only", "booster", "--only", "closing", "--output", str(tmp_path / "report")]
    # The last experiment has many trials, so that the signal arrives during the run.
    slow = command(*arguments[:-2], "--only", "slopes", "--trials", "20000", *arguments[-2:])
    parts = tmp_path / "report.partial" / "parts"
    until = time.monotonic() + 120
    while time.monotonic() < until and all(".new" in path.name for path in parts.glob("*.npz")):
        time.sleep(0.02)
    slow.send_signal(signal.SIGINT)
    _, errors = slow.communicate(timeout=60)
    assert slow.returncode == 130, errors
    assert "resume" in errors
    assert not (tmp_path / "report").exists()
    finished = {path.name: path.stat().st_mtime_ns for path in parts.glob("*.npz")}
    assert finished

    # A run with other settings does not use or change these parts.
    reproduce(tmp_path / "report", FEW, show=False)
    one, two = files(few), files(tmp_path / "report")
    assert {name for name in one if one[name] != two[name]} <= TIMED
    assert {path.name for path in parts.glob("*.npz")} == finished.keys()


def test_finished_parts_are_not_run_again(tmp_path, monkeypatch):
    from maillard.reproduction import experiment_runner

    counts = []
    real = experiment_runner.run_experiments

    def recorded(experiments, *arguments, **options):
        experiments = list(experiments)
        counts.append(len(experiments))
        if len(counts) == 1:  # the first run is interrupted after its first part
            yield from list(real(experiments[:1], *arguments, **options))
            raise KeyboardInterrupt
        yield from real(experiments, *arguments, **options)

    monkeypatch.setattr(experiment_runner, "run_experiments", recorded)
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path / "report", FEW, show=False)
    stored = list((tmp_path / "report.partial" / "parts").glob("*.npz"))
    assert len(stored) == 1
    reproduce(tmp_path / "report", FEW, show=False)
    assert counts == [2, 1]


def test_a_damaged_part_is_run_again(few, tmp_path, monkeypatch):
    from maillard.reproduction import experiment_runner

    monkeypatch.setattr(
        experiment_runner, "run_experiments", interrupt_after(experiment_runner.run_experiments)
    )
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path / "report", FEW, show=False)
    monkeypatch.undo()
    (stored,) = (tmp_path / "report.partial" / "parts").glob("*.npz")
    stored.write_bytes(stored.read_bytes()[:100])
    reproduce(tmp_path / "report", FEW, show=False)
    assert files(tmp_path / "report")["trials.parquet"] == files(few)["trials.parquet"]


def interrupt_after(real):
    """Run the first experiment, then raise KeyboardInterrupt."""

    def interrupted(experiments, *arguments, **options):
        yield from list(real(list(experiments)[:1], *arguments, **options))
        raise KeyboardInterrupt

    return interrupted


def test_an_earlier_report_is_replaced_whole(few, tmp_path):
    shutil.copytree(few, tmp_path / "report")
    (tmp_path / "report" / "figures" / "old.svg").write_text("of an earlier run")
    reproduce(tmp_path / "report", FEW, show=False)
    assert not (tmp_path / "report" / "figures" / "old.svg").exists()
    assert files(tmp_path / "report").keys() == files(few).keys()


def test_a_run_that_ended_while_publishing_leaves_the_old_report(few, tmp_path):
    before = tmp_path / "report.partial" / "before"
    shutil.copytree(few, before)
    with open_working_folder(tmp_path / "report"):
        assert files(tmp_path / "report") == files(few)


@pytest.mark.parametrize("there", ["file", "other", "none"])
def test_a_folder_that_is_not_a_report_is_not_changed(tmp_path, there):
    output = tmp_path / "mine"
    if there == "file":
        output.write_text("a file")
    elif there == "other":
        output.mkdir()
        (output / "thesis.tex").write_text("years of work")
    else:
        output = tmp_path / "not there" / "report"
    with pytest.raises(InvalidValue, match="output"):
        reproduce(output, FEW, show=False)
    assert there != "other" or (output / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("where", ["partial", "beside the pictures", "meanwhile"])
def test_files_of_the_user_are_not_deleted(few, tmp_path, where, monkeypatch):
    output = tmp_path / "report"
    shutil.copytree(few, output)
    note = {
        "partial": tmp_path / "report.partial",
        "beside the pictures": output / "figures",
        "meanwhile": output,
    }[where] / "note.txt"
    if where == "meanwhile":
        import maillard.reproduction as module

        real = module.judge_claims
        monkeypatch.setattr(
            module, "judge_claims", lambda results: (note.write_text("mine"), real(results))[1]
        )
    else:
        note.parent.mkdir(exist_ok=True)
        note.write_text("mine")
    with pytest.raises(InvalidValue, match="output"):
        reproduce(output, FEW, show=False)
    assert note.read_text() == "mine"
    assert (output / "index.html").exists()


def test_a_link_stays_a_link(few, tmp_path):
    shutil.copytree(few, tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    reproduce(tmp_path / "link", ReproductionSettings(quick=True, only=("closing",)), show=False)
    assert (tmp_path / "link").is_symlink()
    assert not (tmp_path / "real" / "figures" / "booster.svg").exists()


def test_invalid_folder_names_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("", "/", ".", "..", "a\0b"):
        with pytest.raises(InvalidValue, match="output"):
            reproduce(name, FEW, show=False)
    with pytest.raises(MaillardError, match="cannot write"):
        reproduce("x" * 300, FEW, show=False)


def test_a_program_without_stderr_shows_no_progress(tmp_path):
    run = command(
        "--quick", "--only", "closing", "--output", str(tmp_path / "report"), preexec_fn=lambda: os.close(2)
    )
    out, _ = run.communicate(timeout=300)
    assert run.returncode == 0
    assert "closing-printed" in out


def test_two_runs_do_not_share_a_folder(tmp_path):
    with open_working_folder(tmp_path / "report"), pytest.raises(MaillardError, match="another run"):
        reproduce(tmp_path / "report", FEW, show=False)


def test_a_folder_that_cannot_be_written_is_a_clear_error():
    result = CliRunner().invoke(main, ["reproduce", "--quick", "--output", "/proc/report"])
    assert result.exit_code == 2
    assert "cannot write" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_disk_that_fills_is_a_clear_error_and_leaves_no_report(tmp_path):
    """A limit on the size of files makes the system refuse a write, as a full disk does."""
    limited = command(
        "--quick",
        "--only",
        "booster",
        "--output",
        str(tmp_path / "report"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)),
    )
    _, errors = limited.communicate(timeout=300)
    assert limited.returncode == 2, errors
    assert "cannot write" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "report").exists()


def test_the_command_prints_the_verdicts(tmp_path):
    run = command("--quick", "--only", "closing", "--no-progress", "--output", str(tmp_path / "report"))
    out, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    assert "closing-printed" in out
    assert "not run" in out
    assert str(tmp_path / "report" / "index.html") in out.replace("\n", "")
    unknown = CliRunner().invoke(main, ["reproduce", "--only", "bosster"])
    assert unknown.exit_code == 2
    assert "booster" in unknown.stderr


def test_progress_is_shown_without_a_terminal(tmp_path):
    run = command("--quick", "--only", "closing", "--output", str(tmp_path / "report"))
    _, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    assert "closing" in errors
    assert "%" in errors


def test_an_interrupt_that_python_drops_is_raised_at_the_next_step():
    before = signal.getsignal(signal.SIGINT)
    with _interruptible(Progress(lambda _units: None, lambda _text: None)) as shown:
        shown.advance(1)
        with contextlib.suppress(KeyboardInterrupt):  # as a finaliser does
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            shown.advance(1)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_causes_another_error_is_raised_as_interrupt():
    quiet = Progress(lambda _units: None, lambda _text: None)

    def failed(*, interrupted: bool) -> None:
        with _interruptible(quiet):
            if interrupted:
                with contextlib.suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
            raise ValueError("the archive is half written")

    with pytest.raises(KeyboardInterrupt):
        failed(interrupted=True)
    with pytest.raises(ValueError, match="half written"):
        failed(interrupted=False)
