"""Coverage in situations of real life: `python -m benchmarks.coverage.real_life --runs 1000`.

Simulates logs of each scenario, asks its questions with `maillard.evaluate` and `maillard.compare`, and
counts how often the best estimate contains the true value. The script uses only the public API, so it runs
with older and newer versions of the package, and their results can be compared.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import maillard
from benchmarks.coverage.real_life_scenarios import SCENARIOS, Case, Question, case_of
from maillard.errors import MaillardError
from maillard.evaluation.settings import Options

__all__ = ["Answer", "Outcome", "Row", "answer", "main", "outcome", "run_scenario", "summary"]

SEQUENCE = "cs-betting"
BLOCK = 10  # runs at a time


class Row(NamedTuple):
    """An estimate with its interval."""

    name: str
    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Answer:
    """What the package says to one question about one log."""

    best: Row | None
    "The best estimate; None if the package gives none."
    sequence: Row | None
    "The confidence sequence `cs-betting`."
    warned: bool
    "Whether it refuses, raises an error, or states a caveat or a warning."
    error: str = ""
    "The type of the error that it raised."


@dataclass(frozen=True)
class Outcome:
    """One question about one run. With several looks: whether it was right at all of them."""

    estimator: str
    "Of the last look; empty if it has no answer."
    covered: bool | None
    "Whether the interval contains the true value; None without an answer."
    wrong: bool
    "Whether a difference is claimed with the wrong sign, or although there is none."
    claimed: bool
    "Whether the interval of a difference excludes 0."
    width: float
    warned: bool
    error: str
    sequence_covered: bool | None
    sequence_width: float


def _row(estimate: Any) -> Row | None:
    if estimate is None or estimate.value is None or estimate.lower is None or estimate.upper is None:
        return None
    return Row(estimate.name, estimate.value, estimate.lower, estimate.upper)


def _warned(report: Any) -> bool:
    """Whether a report has no best estimate, a caveat about it, or a warning."""
    parts = [report, getattr(report, "first", None), getattr(report, "second", None)]
    return (
        report.best is None
        or bool(report.best.caveat)
        or any(bool(getattr(part, "warnings", ())) for part in parts)
    )


def _answer(ask: Callable[[], Any]) -> Answer:
    """The answer in a report or a comparison."""
    try:
        report = ask()
    except MaillardError as error:
        return Answer(None, None, warned=True, error=type(error).__name__)
    return _from_report(report)


def _from_report(report: Any) -> Answer:
    return Answer(_row(report.best), _row(report.get(SEQUENCE)), _warned(report))


def _minus(first: Row | None, second: Row | None) -> Row | None:
    """The difference of two intervals."""
    if first is None or second is None:
        return None
    value, lower, upper = first.value - second.value, first.lower - second.upper, first.upper - second.lower
    return Row(first.name, value, lower, upper)


def answer(log: Any, question: Question) -> Answer:
    """Ask the package."""
    targets = [f"arm:{arm}" for arm in question.arms]
    # An older version is asked without the options that it does not know.
    options = {name: value for name, value in question.options.items() if name in Options.__annotations__}
    if question.kind == "difference":
        return _answer(lambda: maillard.compare(log, targets[0], targets[1], **options))
    if question.kind in ("winner", "extremes"):  # all arms are evaluated together
        found = [_from_report(each) for each in maillard.evaluate_each(log, targets, **options)]
    else:
        found = [_answer(partial(maillard.evaluate, log, target, **options)) for target in targets]
    if question.kind == "value":
        return found[0]
    warned, error = any(each.warned for each in found), next((each.error for each in found if each.error), "")
    if question.kind == "separate":
        best = _minus(found[0].best, found[1].best)
        return Answer(best, _minus(found[0].sequence, found[1].sequence), warned, error)
    known = [(each.best.value, place) for place, each in enumerate(found) if each.best is not None]
    if not known:
        return Answer(None, None, warned=True, error=error)
    if question.kind == "winner":
        return found[max(known)[1]]
    return _answer(lambda: maillard.compare(log, targets[max(known)[1]], targets[min(known)[1]], **options))


def outcome(case: Case, question: Question) -> Outcome:
    """Compare the answers with the truth."""
    found = [answer(log, question) for log in case.logs]
    best, last = [each.best for each in found if each.best is not None], found[-1]
    sequences = [each.sequence for each in found if each.sequence is not None]
    differs = question.kind in ("difference", "separate", "extremes")
    claims = [row for row in best if differs and (row.lower > 0 or row.upper < 0)]
    return Outcome(
        estimator=best[-1].name if best else "",
        covered=_covers(best, question.truth),
        wrong=any(math.copysign(1.0, row.lower) * question.truth <= 0 for row in claims),
        claimed=bool(claims),
        width=best[-1].upper - best[-1].lower if best else math.nan,
        warned=any(each.warned for each in found) if len(found) == 1 else last.warned,
        error=last.error,
        sequence_covered=_covers(sequences, question.truth),
        sequence_width=sequences[-1].upper - sequences[-1].lower if sequences else math.nan,
    )


def _covers(rows: Sequence[Row], truth: float) -> bool | None:
    # Rounding: the truth is an average of thousands of floats.
    slack = 1e-12
    return all(row.lower - slack <= truth <= row.upper + slack for row in rows) if rows else None


def run_block(name: str, seed: int, runs: Iterable[int]) -> tuple[dict[str, list[Outcome]], float]:
    """The outcomes of some runs of a scenario, by question, and the CPU seconds they took."""
    found: dict[str, list[Outcome]] = {}
    started = time.process_time()
    for run in runs:
        case = case_of(name, seed, run)
        for question in case.questions:
            found.setdefault(question.name, []).append(outcome(case, question))
    return found, time.process_time() - started


Map = Callable[..., Iterable[tuple[dict[str, list[Outcome]], float]]]


def run_scenario(name: str, runs: int, seed: int, mapped: Map = map) -> dict[str, Any]:
    """The results of a scenario, by question."""
    blocks = [range(first, min(first + BLOCK, runs)) for first in range(0, runs, BLOCK)]
    found: dict[str, list[Outcome]] = {}
    seconds = 0.0
    for outcomes, took in mapped(partial(run_block, name, seed), blocks):
        seconds += took
        for question, each in outcomes.items():
            found.setdefault(question, []).extend(each)
    scenario = SCENARIOS[name]
    return {
        "item": scenario.item,
        "expected": scenario.expected,
        "seconds_per_log": round(seconds / runs, 4),
        "questions": {question: summary(each) for question, each in found.items()},
    }


def _fraction(values: Iterable[bool]) -> float | None:
    listed = list(values)
    return round(sum(listed) / len(listed), 5) if listed else None


def _mean(values: Iterable[float]) -> float | None:
    listed = [each for each in values if not math.isnan(each)]
    return float(f"{sum(listed) / len(listed):.6g}") if listed else None


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The fractions that are reported for one question.

    `coverage` is a fraction of the answers; `misses`, `silent_misses` (without any warning) and the others
    are fractions of all logs.
    """
    answered = [each for each in outcomes if each.covered is not None]
    sequences = [each for each in outcomes if each.sequence_covered is not None]
    return {
        "logs": len(outcomes),
        "coverage": _fraction(bool(each.covered) for each in answered),
        "misses": _fraction(each.covered is False for each in outcomes),
        "silent_misses": _fraction(each.covered is False and not each.warned for each in outcomes),
        "no_answer": _fraction(each.covered is None for each in outcomes),
        "warned": _fraction(each.warned for each in outcomes),
        "claimed": _fraction(each.claimed for each in outcomes),
        "wrong_direction": _fraction(each.wrong for each in outcomes),
        "width": _mean(each.width for each in outcomes),
        "estimators": dict(Counter(each.estimator for each in answered)),
        "errors": dict(Counter(each.error for each in outcomes if each.error)),
        SEQUENCE: {
            "coverage": _fraction(bool(each.sequence_covered) for each in sequences),
            "no_answer": _fraction(each.sequence_covered is None for each in outcomes),
            "width": _mean(each.sequence_width for each in outcomes),
        },
    }


HEAD = (
    "item", "scenario", "question", "coverage", "silent", "none", "warned", "wrong sign", "width",
    "cs cover", "cs width", "best",
)  # fmt: skip


def lines(results: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> list[str]:
    """The results as lines of a Markdown table, in percent. `before`: results to compare with."""
    head = [*HEAD, *(["coverage before", "silent before", "none before"] if before is not None else [])]
    made = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for name, scenario in results.items():
        for question, found in scenario["questions"].items():
            sequence = found[SEQUENCE]
            best = max(found["estimators"], key=found["estimators"].get, default="")
            cells = [scenario["item"], name, question]
            cells += [_percent(found[key]) for key in ("coverage", "silent_misses", "no_answer", "warned")]
            cells += [_percent(found["wrong_direction"]), _short(found["width"])]
            cells += [_percent(sequence["coverage"]), _short(sequence["width"]), best]
            if before is not None:
                earlier = before.get(name, {}).get("questions", {}).get(question, {})
                cells += [_percent(earlier.get(key)) for key in ("coverage", "silent_misses", "no_answer")]
            made.append("| " + " | ".join(cells) + " |")
    return made


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.1f}"


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def _commit() -> str:
    """The last commit that changed the imported package, with a + if there are changes since."""
    folder = str(Path(maillard.__file__).parent)

    def git(*arguments: str) -> str:
        command = ["git", "-C", folder, *arguments, "--", "."]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("log", "-1", "--format=%h") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios, print the table and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage.real_life", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="number of logs for each scenario")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), metavar="NAME", help="a scenario")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, help="a JSON file, updated after every scenario")
    parser.add_argument("--before", type=Path, help="a JSON file of an earlier run, to compare with")
    given = parser.parse_args(arguments)
    if given.runs < 1 or given.processes < 1 or given.seed < 0:
        parser.error("--runs and --processes must be at least 1, --seed at least 0")
    before = None
    if given.before is not None:
        before = json.loads(given.before.read_text(encoding="utf8"))["scenarios"]
    results: dict[str, Any] = {}
    key = {"commit": _commit(), "version": maillard.__version__, "runs": given.runs, "seed": given.seed}
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        for name in given.only or SCENARIOS:
            sys.stderr.write(f"{name}\n")
            results[name] = run_scenario(name, given.runs, given.seed, pool.map)
            if given.output is not None:
                content = {**key, "scenarios": results}
                given.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
    print("\n".join(lines(results, before)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
