"""Compares the cost of a request to the service with that of a bare Starlette endpoint in the same run.

There are two bare endpoints, in the same uvicorn with the same settings: one sends a constant as long as a
decision, and one decodes the JSON of the request and encodes JSON of that length.

Each server runs in its own process, and so does the load (see `benchmarks.load`). The cost is the CPU time of
all processes and threads of the server. Runs of the bare endpoint and of the service alternate. A ratio is
the median over the runs, so other activity on the machine affects both alike. Latencies are those of an open
load of 1,000 requests per second at random times, measured from when a request was due. They include the
time in which the disk makes a commit durable, which is shown, too.

`--parts` runs only some parts: see `PARTS`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.bare_starlette import ARMS, EXPERIMENT
from benchmarks.load import Plan, Report, decision, numbered, own_cost, request, run
from tests.postgres import Server
from tests.serving import Service, running, serving

PATH = f"/v1/experiments/{EXPERIMENT}/decisions"
JSON, CONSTANT = PATH, f"/v1/experiments/{EXPERIMENT}/constant"  # of the bare server
CONNECTIONS = 64
FEW_REQUESTS = 5  # a run with one connection has a fifth of the requests
RATE = 1_000
MANY, LEAST_SHARE = 64, 0.8  # experiments, and their throughput relative to that of one
MOST_RATIO, MOST_P99, MOST_GROWTH = 2.0, 0.006, 0.02
PARTS = ("cpu", "latency", "experiments", "postgresql", "memory")
_BATCH = 1_000
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


# Without this the benchmark would measure the rate limit.
_UNLIMITED = ("--rate-limit", "1e9")


# CPU time and memory of a server.


def _processes(service: Service) -> list[list[str]]:
    """The fields of /proc/<pid>/stat from the third on, for each process of a service."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):  # the process has ended
            continue
        if int(fields[2]) == service.pid:
            found.append(fields)
    return found


def cpu_time(service: Service) -> float:
    """CPU seconds of all threads of a service, in user and in system mode."""
    return sum(int(time) for fields in _processes(service) for time in fields[11:15]) / _TICK


def memory(service: Service) -> int:
    """The resident memory of a service in bytes."""
    return sum(int(fields[21]) for fields in _processes(service)) * _PAGE


# Requests.

_run_number = iter(range(10**9))


def decisions(path: str = PATH) -> Callable[[int], bytes]:
    """Requests for decisions, with different keys in each run."""
    return partial(decision, path, f"run-{next(_run_number)}")


def _spread(prefix: str, number: int) -> bytes:
    return decision(f"/v1/experiments/many-{number % MANY}/decisions", prefix, number)


def spread() -> Callable[[int], bytes]:
    """Requests for decisions of many experiments in turn."""
    return partial(_spread, f"run-{next(_run_number)}")


def rewards(service: Service, count: int) -> list[bytes]:
    """Reward requests for `count` new decisions."""
    body = json.dumps({"decisions": [{}] * _BATCH}).encode()
    found: list[bytes] = []
    made = run(
        Plan(
            port=service.port,
            make=partial(numbered, [request("POST", f"{PATH}:batch", body)] * -(-count // _BATCH)),
            requests=-(-count // _BATCH),
            connections=2,
            keep=True,
        )
    )
    for response in made.bodies:
        for each in json.loads(response)["results"]:
            identifier = each["decision"]["id"]
            value = b'{"value":%.2f}' % (hash(identifier) % 100 / 100)
            found.append(request("PUT", f"/v1/decisions/{identifier}/reward", value))
    return found[:count]


def mixed(service: Service, count: int) -> Callable[[int], bytes]:
    """Decisions and rewards in turn."""
    make = decisions()
    every = rewards(service, count // 2)
    return partial(numbered, [each for n, reward in enumerate(every) for each in (make(n), reward)])


# Measurements.


class Table:
    """The rows of the result, which are also printed."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        print(
            f"{'what':46s} {'CPU':>8s} {'ratio':>6s} {'a second':>9s} "
            f"{'p50':>8s} {'p99':>8s} {'p99.9':>8s}  limit"
        )

    def add(self, what: str, report: Report, limit: str = "", met: bool | None = None, **more: Any) -> None:
        """Add a row. `more` may contain `cpu` (seconds per request) and its `ratio` to the bare endpoint."""
        row = {
            "what": what,
            "a_second": report.a_second,
            "p50": report.p50,
            "p99": report.p99,
            "p999": report.p999,
            **more,
        }
        if met is not None:
            row |= {"limit": limit, "met": met}
        self.rows.append(row)
        cpu = f"{more['cpu'] * 1e6:5.1f} us" if "cpu" in more else ""
        ratio = f"{more['ratio']:6.2f}" if "ratio" in more else ""
        times = " ".join(f"{each * 1e3:5.2f} ms" for each in (report.p50, report.p99, report.p999))
        verdict = "" if met is None else f"{limit}: {'met' if met else 'MISSED'}"
        print(f"{what:46s} {cpu:>8s} {ratio:>6s} {report.a_second:9,.0f} {times}  {verdict}", flush=True)


def measure(
    service: Service, make: Callable[[int], bytes], count: int, connections: int = CONNECTIONS
) -> tuple[float, Report]:
    """The CPU time of the server per request under a closed load, and the report of the load."""
    before = cpu_time(service)
    report = checked(run(Plan(port=service.port, make=make, requests=count, connections=connections)))
    return (cpu_time(service) - before) / count, report


def checked(report: Report) -> Report:
    """The report, if every request succeeded."""
    if report.failed:
        raise RuntimeError(f"not all requests succeeded: {report.statuses}")
    return report


def median_report(reports: list[Report]) -> Report:
    """The report with the median speed."""
    return sorted(reports, key=lambda report: report.a_second)[len(reports) // 2]


class Bench:
    """Measures services against a bare server."""

    def __init__(self, table: Table, bare: Service, count: int, repetitions: int) -> None:
        self.table, self.bare, self.count, self.repetitions = table, bare, count, repetitions
        self.bare_runs: dict[tuple[str, int], list[tuple[float, Report]]] = {}
        measure(self.bare, decisions(), count // 10)

    def _requests(self, connections: int) -> int:
        return self.count if connections > 1 else self.count // FEW_REQUESTS

    def _measure_bare(self, endpoint: str, connections: int) -> float:
        found = measure(self.bare, decisions(endpoint), self._requests(connections), connections)
        self.bare_runs.setdefault((endpoint, connections), []).append(found)
        return found[0]

    def compare(
        self,
        what: str,
        service: Service,
        make: Callable[[int], Callable[[int], bytes]],
        limit: float | None = None,
        *,
        connections: int = CONNECTIONS,
        endpoint: str = JSON,
    ) -> None:
        """Add a row with the cost of requests relative to runs of the bare endpoint before and after."""
        count = self._requests(connections)
        measure(service, make(self.count // 10), self.count // 10)
        costs, ratios, reports = [], [], []
        before = self._measure_bare(endpoint, connections)
        for _ in range(self.repetitions if limit is not None else min(self.repetitions, 3)):
            cost, report = measure(service, make(count), count, connections)
            after = self._measure_bare(endpoint, connections)
            costs.append(cost)
            ratios.append(cost / ((before + after) / 2))
            reports.append(report)
            before = after
        ratio = statistics.median(ratios)
        met = None if limit is None else ratio <= limit
        self.table.add(
            what,
            median_report(reports),
            f"at most {limit} times bare",
            met,
            cpu=statistics.median(costs),
            ratio=ratio,
            ratios=ratios,
        )

    def add_bare(self) -> None:
        """Add the rows of the bare endpoints, over all their runs."""
        for (endpoint, connections), runs in self.bare_runs.items():
            what = "a constant" if endpoint == CONSTANT else "JSON"
            self.table.add(
                f"bare Starlette, {what}, {_plural(connections)} ({len(runs)} runs)",
                median_report([report for _, report in runs]),
                cpu=statistics.median(cost for cost, _ in runs),
            )

    def latency(self, what: str, service: Service, seconds: float, limit: float | None = None) -> None:
        """Add a row with the latencies of decisions at a fixed rate."""
        count = int(RATE * seconds)
        plan = Plan(port=service.port, make=decisions(), requests=count, connections=CONNECTIONS, rate=RATE)
        report = checked(run(plan))
        self.table.add(
            f"{what}, {RATE:,} a second",
            report,
            f"p99 at most {MOST_P99 * 1e3:g} ms",
            None if limit is None else report.p99 <= limit,
            lateness=report.lateness,
        )


def _plural(connections: int) -> str:
    return f"{connections} connection{'s' * (connections > 1)}"


def create_experiment(service: Service) -> None:
    """Create an experiment with ten arms that have rewards."""
    _create(service, EXPERIMENT)
    measure(service, partial(numbered, rewards(service, 1_000)), 1_000)


def _create(service: Service, name: str) -> None:
    body = {"experiment": name, "arms": ARMS, "policy": "ms+:booster=8", "reward": {"low": 0, "high": 1}}
    httpx2.post(f"{service.url}/v1/experiments", json=body).raise_for_status()


def compare_experiments(table: Table, service: Service, count: int, seconds: float, limited: bool) -> None:
    """Compare decisions of one experiment with decisions spread over many, in turn; then their latency."""
    for number in range(MANY):
        _create(service, f"many-{number}")
    found: dict[str, list[tuple[float, Report]]] = {"1 experiment": [], f"{MANY} experiments": []}
    for _ in range(3):
        found["1 experiment"].append(measure(service, decisions(), count))
        found[f"{MANY} experiments"].append(measure(service, spread(), count))
    alone, many = ([report.a_second for _, report in each] for each in found.values())
    share = statistics.median(b / a for a, b in zip(alone, many, strict=True))
    for what, runs in found.items():
        met = share >= LEAST_SHARE if limited and runs is found[f"{MANY} experiments"] else None
        report = median_report([each for _, each in runs])
        limit = f"at least {LEAST_SHARE:.0%} of one (is {share:.0%})"
        table.add(f"SQLite FULL, {what}", report, limit, met, cpu=statistics.median(cpu for cpu, _ in runs))
    requests = int(RATE * seconds)
    plan = Plan(port=service.port, make=spread(), requests=requests, connections=CONNECTIONS, rate=RATE)
    report = checked(run(plan))
    table.add(
        f"SQLite FULL, {MANY} experiments, {RATE:,} a second",
        report,
        f"p99 at most {MOST_P99 * 1e3:g} ms",
        report.p99 <= MOST_P99 if limited else None,
    )


def fitted_growth(samples: list[int]) -> float:
    """The growth of a line through the samples, which vary by more than a percent around it."""
    slope, first = statistics.linear_regression(range(len(samples)), samples)
    return slope * (len(samples) - 1) / first


def measure_memory(table: Table, service: Service, total: int, limit: float | None) -> None:
    """Measure the memory over many decisions.

    Nine in ten are made in batches of 1,000; the others are single decisions with a key and a reward.
    """
    part = total // 10
    body = json.dumps({"decisions": [{"unit": f"user-{n}"} for n in range(_BATCH)]}).encode()
    batches = [request("POST", f"{PATH}:batch", body)] * (part * 9 // 10 // _BATCH)
    found: list[int] = []
    for _ in range(10):
        report = checked(
            run(
                Plan(port=service.port, make=partial(numbered, batches), requests=len(batches), connections=4)
            )
        )
        measure(service, decisions(), part // 10)
        measure(service, partial(numbered, rewards(service, part // 10)), part // 10)
        found.append(memory(service))
    growth = fitted_growth(found[1:])
    megabytes = ", ".join(f"{each / 1e6:.0f}" for each in found)
    print(f"memory after each {part:,} decisions, in MB: {megabytes}")
    table.add(
        f"memory over {total:,} decisions: {growth:+.1%}",
        report,
        f"at most {MOST_GROWTH:+.0%} after the first fifth",
        None if limit is None else growth <= limit,
        memory=found,
        growth=growth,
    )


def measure_disk(folder: str) -> None:
    """Print how long the disk takes to make a small write durable. Every commit waits for that."""
    times = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(300):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    p50, p99 = statistics.median(times), sorted(times)[-3]
    print(f"fdatasync of 4 KiB: p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")


def bench(quick: bool, parts: Collection[str], folder: str | None) -> list[dict[str, Any]]:
    """Run parts of the benchmark, with the SQLite logs in a new folder there, and return their rows."""
    count, repetitions, seconds, total = (5_000, 2, 5.0, 100_000) if quick else (20_000, 5, 20.0, 1_000_000)
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"THIS MACHINE IS BUSY: the load average is {busy:.1f}; other processes affect the latencies")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        measure_disk(folder)
        table = Table()
        bare = stack.enter_context(running(["-m", "benchmarks.bare_starlette", "{port}"]))
        sqlite = stack.enter_context(serving(Path(folder) / "log.db", no_keys=True, options=_UNLIMITED))
        create_experiment(sqlite)
        alone = own_cost(count)
        table.add("the load itself, against a constant", alone, own_cpu=alone.own_cpu)
        both = Bench(table, bare, count, repetitions)
        if "cpu" in parts:
            both.compare("SQLite FULL, decision", sqlite, lambda _: decisions())
            both.compare(
                "SQLite FULL, decision, against a constant",
                sqlite,
                lambda _: decisions(),
                MOST_RATIO,
                endpoint=CONSTANT,
            )
            both.compare("SQLite FULL, decision, 1 connection", sqlite, lambda _: decisions(), connections=1)
            both.compare("SQLite FULL, reward", sqlite, lambda n: partial(numbered, rewards(sqlite, n)))
            both.compare("SQLite FULL, decision and reward in turn", sqlite, lambda n: mixed(sqlite, n))
        if "latency" in parts:
            both.latency("bare Starlette, JSON", bare, seconds)
            both.latency("SQLite FULL, decision", sqlite, seconds, MOST_P99)
        if "experiments" in parts:
            compare_experiments(table, sqlite, count, seconds, limited=not quick)
        if "postgresql" in parts:
            server = Server()
            stack.callback(server.release)
            with serving(server.url(), no_keys=True, options=_UNLIMITED) as postgresql:
                create_experiment(postgresql)
                both.compare("PostgreSQL, decision", postgresql, lambda _: decisions())
                both.latency("PostgreSQL, decision", postgresql, seconds)
        both.add_bare()
        if "memory" in parts:
            with serving(Path(folder) / "large.db", no_keys=True, options=_UNLIMITED) as large:
                create_experiment(large)
                measure_memory(table, large, total, None if quick else MOST_GROWTH)
    return table.rows


def main() -> None:
    """Print the table, and write it as JSON if it is complete."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer requests, and nothing written")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="only these; nothing written"
    )
    parser.add_argument("--folder", help="where the SQLite logs are, for example on another disk")
    arguments = parser.parse_args()
    rows = bench(arguments.quick, arguments.parts, arguments.folder)
    if not arguments.quick and set(arguments.parts) == set(PARTS):
        Path(__file__).with_name("service.json").write_text(json.dumps(rows, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
