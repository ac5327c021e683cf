"""Measure the speed of evaluation, and that of comparable tools in the same run.

A separate process reads the large file, so that its memory can be measured. DuckDB computes the same sums
from the same file with two threads. Open Bandit Pipeline runs in its own environment on the same rounds, and
computes its bootstrap intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from maillard import simulate_log
from maillard.evaluation import evaluate, names
from maillard.policies.targets import FixedDistribution

PEERS = Path(__file__).parent.parent / ".peers" / "bin" / "python"
ARMS = [f"arm {i}" for i in range(10)]
MAX_SECONDS, MAX_BYTES, MAX_SECONDS_ALL, MIN_SPEEDUP = 10.0, 1e9, 5.0, 20.0

_SCAN = """
import json, resource, sys, time
from maillard.evaluation import evaluate
started = time.perf_counter()
report = evaluate(sys.argv[1], "arm:arm 3", ["ips", "snips"], adaptive=False)
taken = time.perf_counter() - started
d = report.diagnostics
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": taken, "bytes": memory, "ips": report["ips"].value,
  "error": report["ips"].standard_error, "snips": report["snips"].value,
  "size": d.effective_sample_size, "rows": d.rows}))
"""
_SUMS = """
SELECT count(*), sum(w), sum(w * w), sum(w * reward), sum(w * w * reward), sum(w * w * reward * reward),
  max(w)
FROM (SELECT CASE WHEN arm = 'arm 3' THEN 1 / probability ELSE 0 END AS w, reward FROM read_parquet('{}'))
"""


def large_file(path: Path, rows: int) -> None:
    """Ten arms, probabilities that vary, rewards of 0 and 1."""
    rng, done = np.random.default_rng(0), 0
    schema = pa.schema([("arm", pa.string()), ("probability", pa.float64()), ("reward", pa.float64())])
    with pq.ParquetWriter(path, schema) as writer:
        while done < rows:
            n = min(1 << 20, rows - done)
            arm = pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 10, n, dtype=np.int32)), ARMS).cast(
                pa.string()
            )
            probability = rng.choice([0.05, 0.1, 0.15], n)
            writer.write_table(
                pa.table([arm, probability, (rng.random(n) < 0.3).astype(float)], schema=schema)
            )
            done += n


def scan(folder: Path, rows: int) -> dict[str, Any]:
    """Time IPS, SNIPS, effective size and variances of a large file, and DuckDB's sums."""
    import duckdb

    path = folder / "large.parquet"
    large_file(path, rows)
    ours, theirs = [], []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", _SCAN, str(path)], check=True, capture_output=True, text=True
        )
        ours.append(json.loads(done.stdout))
        with duckdb.connect(config={"threads": 2, "memory_limit": "1GB"}) as connection:
            started = time.perf_counter()
            found = connection.execute(_SUMS.format(path)).fetchone()
            theirs.append(time.perf_counter() - started)
    assert found is not None
    count, w, ww, wr = found[:4]
    for each in ours:
        np.testing.assert_allclose(
            [each["rows"], each["ips"], each["snips"], each["size"]],
            [count, wr / count, wr / w, w * w / ww],
            rtol=1e-9,
        )
    seconds = statistics.median(each["seconds"] for each in ours)
    memory = max(each["bytes"] for each in ours)
    return {
        "what": f"{rows:,} Parquet rows: ips, snips, effective size, variance",
        "seconds": seconds,
        "peer": "DuckDB, the same sums",
        "ratio": statistics.median(theirs) / seconds,
        "limit": f"at most {MAX_SECONDS:g} s and 1 GB",
        "met": seconds <= MAX_SECONDS and memory <= MAX_BYTES,
        "megabytes": memory / 1e6,
    }


def everything(folder: Path, rows: int) -> dict[str, Any]:
    """Time all estimators with their intervals on a log with all probabilities.

    The baseline only reads the same columns with Arrow.
    """
    log = simulate_log("ms+:floor=0.1", "bernoulli:0.6,0.5,0.4", horizon=rows + 3, seed=0)
    assert log.log_probabilities is not None
    part, arms = slice(log.forced, None), np.array(ARMS[:3])
    offsets = pa.array(np.arange(0, 3 * rows + 1, 3, dtype=np.int32))
    table = pa.table(
        {
            "arm": arms[log.arms[part]],
            "log_probability": log.log_probability[part],
            "reward": log.rewards[part],
            "eligible": pa.ListArray.from_arrays(offsets, pa.array(np.tile(arms, rows))),
            "log_probabilities": pa.ListArray.from_arrays(
                offsets, pa.array(log.log_probabilities[part].ravel())
            ),
        }
    )
    path = folder / "all.parquet"
    pq.write_table(table, path)
    taken, floors = [], []
    how: dict[str, Any] = {"reward_range": (0, 1), "second_moment": 1.0, "floor": 0.1, "adaptive": False}
    for _ in range(4):
        started = time.perf_counter()
        report = evaluate(path, "arm:arm 2", names(), **how)
        taken.append(time.perf_counter() - started)
        started = time.perf_counter()
        pq.read_table(path)
        floors.append(time.perf_counter() - started)
    assert not report.refusals
    seconds = statistics.median(taken[1:])
    return {
        "what": f"{rows:,} rows, all {len(names())} estimators and their intervals",
        "seconds": seconds,
        "peer": "Arrow, reading the file",
        "ratio": statistics.median(floors[1:]) / seconds,
        "limit": f"at most {MAX_SECONDS_ALL:g} s",
        "met": seconds <= MAX_SECONDS_ALL,
    }


def against_obp(folder: Path, rounds: int) -> dict[str, Any]:
    """Time IPS, SNIPS and DR with intervals, and those of OBP with 100 bootstraps."""
    rng = np.random.default_rng(1)
    arms = 10
    logged, target = rng.dirichlet(np.full(arms, 5.0)), rng.dirichlet(np.ones(arms))
    action = rng.choice(arms, rounds, p=logged)
    reward = (rng.random(rounds) < 0.1 + 0.05 * action).astype(float)
    feedback = {"action": action, "reward": reward, "pscore": logged[action]}
    source, out = folder / "feedback.npz", folder / "obp.json"
    model = np.full((arms, 1), reward.mean())
    np.savez(source, allow_pickle=False, target=target[:, np.newaxis], model=model, **feedback)
    given: dict[str, Any] = {**feedback, "n_actions": arms}
    ratios: list[float] = []
    taken: list[float] = []
    for _ in range(3):
        subprocess.run([str(PEERS), "-m", "benchmarks.peers_evaluation", str(source), str(out)], check=True)
        theirs = json.loads(out.read_text(encoding="utf8"))
        for _ in range(2):  # the first call compiles, or loads the compiled code
            started = time.perf_counter()
            report = evaluate(given, FixedDistribution(target), ["ips", "snips", "dr"])
            seconds = time.perf_counter() - started
        for name, value in theirs["values"].items():
            np.testing.assert_allclose(np.float64(report[name].value or np.nan), value, rtol=1e-9)
        taken.append(seconds)
        ratios.append(statistics.median(theirs["seconds"]) / seconds)
    ratio = statistics.median(ratios)
    return {
        "what": f"{rounds:,} rounds: ips, snips, dr with intervals",
        "seconds": statistics.median(taken),
        "peer": "OBP with 100 bootstraps",
        "ratio": ratio,
        "limit": f"at least {MIN_SPEEDUP:g} times as fast",
        "met": ratio >= MIN_SPEEDUP,
    }


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e8, help="of the large file")
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    console, rows = Console(width=140), []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        large = int(arguments.rows)
        for make, size in ((against_obp, 100_000), (everything, 1_000_000), (scan, large)):
            rows.append(make(place, size))
            console.print(f"{rows[-1]['what']}: {rows[-1]['seconds']:.3g} s", highlight=False)
    table = Table("evaluation", "seconds", "peer", "peer / ours", "limit", "", box=None, header_style="bold")
    for row in rows:
        memory = f", {row['megabytes']:,.0f} MB" if "megabytes" in row else ""
        table.add_row(
            row["what"],
            f"{row['seconds']:.3g}{memory}",
            row["peer"],
            f"{row['ratio']:.3g}",
            row["limit"],
            "met" if row["met"] else "MISSED",
        )
    console.print(table)
    Path(__file__).with_name("evaluation.json").write_text(json.dumps(rows, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
