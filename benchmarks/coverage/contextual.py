"""How often the intervals of rules, frozen policies and segments contain the true value, on contextual logs.

    python -m benchmarks.coverage.contextual --runs 1000 --seed 1
    python -m benchmarks.coverage.contextual --logs actions --runs 1000 --seed 1

Each log is one of `contextual_logs`: four linear policies with a floor of 0.1; with `--logs actions`, it is
one of `action_logs`, whose arms differ at every decision. The confidence is 90%. For the confidence sequences
whose bounds are intersected over all rows, the last interval misses the value if and only if the interval of
some row does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.coverage import action_logs
from benchmarks.coverage.action_logs import ActionLog, simulate_action_log
from benchmarks.coverage.contextual_logs import (
    CONTEXTS,
    FLOOR,
    POLICIES,
    RULE,
    ContextualLog,
    frozen_distribution,
    rule_distribution,
    simulate_contextual_log,
    true_value,
)
from maillard import evaluate, evaluate_each
from maillard.evaluation.bound_targets import AnyTarget
from maillard.evaluation.evaluation_report import Report

CONFIDENCE = 0.9
SIZES = (2_000, 10_000)
_SAVE_EVERY = 5
ESTIMATORS = [
    "ips",
    "snips",
    "dr",
    "aipw",
    "aipw-sqrt",
    "aipw-two-point",
    "cs-bernstein",
    "cs-dr",
    "cs-betting",
]
SEGMENT_ESTIMATORS = ["snips", "aipw", "aipw-two-point", "cs-dr", "cs-betting"]

Counts = Counter[tuple[str, str, str]]  # by question, estimator, and logs, answered or covered


def count_log(log: ContextualLog, counts: Counts) -> None:
    """Evaluate the targets on one log, and count the intervals that contain the true values."""
    options: dict[str, Any] = {
        "confidence": CONFIDENCE,
        "reward_range": (0, 1),
        "floor": FLOOR,
        "comparisons": 1,
    }
    values = {
        "rule": true_value(rule_distribution(RULE)),
        "frozen": true_value(frozen_distribution(log.frozen)),
    }
    targets: list[AnyTarget] = [RULE, log.frozen]
    reports = evaluate_each(log.table, targets, ESTIMATORS, **options)
    for (question, value), report in zip(values.items(), reports, strict=True):
        for name in ESTIMATORS:
            _count(counts, question, name, [(report, value)])
    del options["comparisons"]
    by = evaluate(log.table, RULE, SEGMENT_ESTIMATORS, by="device", **options)
    devices = dict.fromkeys(each["device"] for each in CONTEXTS)
    truths = {device: true_value(rule_distribution(RULE), device) for device in devices}
    for name in SEGMENT_ESTIMATORS:
        _count(counts, "segments", name, [(by[device], truths[device]) for device in devices])


def count_action_log(log: ActionLog, counts: Counts) -> None:
    """The same for a log whose arms differ at every decision."""
    options: dict[str, Any] = {"confidence": CONFIDENCE, "reward_range": (0, 1), "floor": action_logs.FLOOR}
    targets: list[AnyTarget] = [target for target, _ in action_logs.TARGETS.values()]
    reports = evaluate_each(log.table, targets, ESTIMATORS, comparisons=1, **options)
    for (question, (_, distribution)), report in zip(action_logs.TARGETS.items(), reports, strict=True):
        value = action_logs.true_value(distribution)
        for name in ESTIMATORS:
            _count(counts, question, name, [(report, value)])
    target, distribution = action_logs.TARGETS["first"]
    by = evaluate(log.table, target, SEGMENT_ESTIMATORS, by="device", **options)
    truths = {device: action_logs.true_value(distribution, device) for device in action_logs.DEVICES}
    for name in SEGMENT_ESTIMATORS:
        _count(counts, "segments", name, [(by[device], truths[device]) for device in truths])


def _count(counts: Counts, question: str, name: str, answers: list[tuple[Report, float]]) -> None:
    """Count a log as covered if all of its intervals contain their values; segments may be refused."""
    counts[question, name, "logs"] += 1
    # A confidence sequence is refused only if it excludes every value, which is a miss.
    found = [
        (report[name], value)
        for report, value in answers
        if report[name].lower is not None or name.startswith("cs-")
    ]
    if not found:
        return
    counts[question, name, "answered"] += 1
    counts[question, name, "intervals"] += len(found)
    counts[question, name, "covered"] += all(
        each.lower is not None and each.upper is not None and each.lower <= value <= each.upper
        for each, value in found
    )


def count_contextual_logs(number: int) -> dict[tuple[int, str], Counts]:
    """Simulate and count one log of each policy and size."""
    counts: dict[tuple[int, str], Counts] = {(size, name): Counter() for size in SIZES for name in POLICIES}
    for (size, name), each in counts.items():
        count_log(simulate_contextual_log(name, size, number), each)
    return counts


def count_action_logs(number: int) -> dict[tuple[int, str], Counts]:
    """The same for logs whose arms differ at every decision."""
    counts: dict[tuple[int, str], Counts] = {(size, name): Counter() for size in SIZES for name in POLICIES}
    for (size, name), each in counts.items():
        count_action_log(simulate_action_log(name, size, number), each)
    return counts


COUNTS: dict[str, Callable[[int], dict[tuple[int, str], Counts]]] = {
    "contextual": count_contextual_logs,
    "actions": count_action_logs,
}


def run(
    logs: str, runs: int, seed: int, seconds: float | None = None, processes: int | None = None
) -> Iterator[list[dict[str, object]]]:
    """Simulate and count; yields what was found so far from time to time. `seconds` limits the time."""
    counts: dict[tuple[int, str], Counts] = {(size, name): Counter() for size in SIZES for name in POLICIES}
    started = time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        found = pool.map(COUNTS[logs], range(seed * 1_000_000, seed * 1_000_000 + runs))
        for number, some in enumerate(found):
            for key, each in some.items():
                counts[key].update(each)
            if number % _SAVE_EVERY == 0:
                yield _rows(counts)
            if seconds is not None and time.monotonic() - started > seconds:
                pool.shutdown(wait=True, cancel_futures=True)
                break
    yield _rows(counts)


def _rows(counts: Mapping[tuple[int, str], Counts]) -> list[dict[str, object]]:
    return [
        {
            **{"rows": size, "policy": name, "question": question, "estimator": estimator},
            **{
                field: each[question, estimator, field]
                for field in ("logs", "answered", "intervals", "covered")
            },
        }
        for (size, name), each in counts.items()
        for question, estimator in dict.fromkeys(key[:2] for key in each)
    ]


def print_table(found: list[dict[str, object]]) -> None:
    """Print the fraction of the answered logs that are covered, by policy and pooled."""
    cells = {(each["rows"], each["question"], each["estimator"], each["policy"]): each for each in found}
    print(
        f"{'rows':>6} {'question':9} {'estimator':15}" + "".join(f"{name:>14}" for name in (*POLICIES, "all"))
    )
    for rows, question, estimator in dict.fromkeys(key[:3] for key in cells):
        line, total = f"{rows:>6} {question:9} {estimator:15}", [0, 0]
        for name in POLICIES:
            cell = cells.get((rows, question, estimator, name), {"answered": 0, "covered": 0})
            answered, covered = int(str(cell["answered"])), int(str(cell["covered"]))
            total = [total[0] + answered, total[1] + covered]
            line += f"{covered / max(answered, 1):>13.1%} "
        print(f"{line}{total[1] / max(total[0], 1):>13.1%} of {total[0]}")


def main() -> None:
    """Run, print the table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", choices=list(COUNTS), default="contextual")
    parser.add_argument("--runs", type=int, default=1000, help="logs of each policy and size")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--processes", type=int, help="by default one per core")
    parser.add_argument("--output", type=Path, help="by default a file with the results of all runs")
    options = parser.parse_args()
    output = options.output or Path(__file__).with_name(f"{options.logs}_results.json")
    found: list[dict[str, object]] = []
    arguments = options.logs, options.runs, options.seed, options.seconds, options.processes
    for found in run(*arguments):  # used after the loop
        # An interrupted run leaves what it has found so far.
        output.write_text(json.dumps({"confidence": CONFIDENCE, "results": found}, indent=1) + "\n")
    print_table(found)


if __name__ == "__main__":
    main()
