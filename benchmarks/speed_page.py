"""Writes the tables and the picture of docs/explanation/speed.md from the results of the benchmarks.

`make bench` writes benchmarks/*.json and then calls `python -m benchmarks.speed_page`, which copies the
results into docs/data/speed.json. Benchmarks that were not run keep their earlier results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.simulation import BERNOULLI, CELLS, GAUSSIAN, LONG, PAPER, SHORT

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
DATA, PAGE = DOCS / "data" / "speed.json", DOCS / "explanation" / "speed.md"
SOURCES = ("simulation", "custom_problems", "policies", "decisions", "service", "verification", "evaluation")
DRAWN = ("ms+", "kl-ms", "ts", "ts-bernoulli", "ucb1", "moss", "imed")

Row = Sequence[object]


def collect(folder: Path, earlier: dict[str, Any]) -> dict[str, Any]:
    """Return the results of all benchmarks: of those in the folder, and earlier ones of the others."""
    found = dict(earlier)
    for name in SOURCES:
        path = folder / f"{name}.json"
        if path.exists():
            found[name] = json.loads(path.read_text(encoding="utf8"))
    return found


def markdown(columns: Row, rows: Iterable[Row]) -> str:
    """Return a table whose columns, except for the first, are aligned right."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def ratios(found: dict[str, Any], family: str, horizon: int) -> dict[str, dict[int, float]]:
    """Return the ratio to the floor of each policy and number of arms."""
    table: dict[str, dict[int, float]] = {}
    for cell in found["simulation"]["cells"]:
        if (cell["problem"], cell["horizon"]) == (family, horizon):
            table.setdefault(cell["policy"], {})[cell["arms"]] = cell["ratio"]
    return table


def simulation_table(found: dict[str, Any]) -> str:
    """Return the cost of a round: each policy, on both problems, with several numbers of arms."""
    arms = [k for horizon, k in CELLS if horizon == SHORT]
    both = [ratios(found, family, SHORT) for family in (GAUSSIAN, BERNOULLI)]
    columns = ["policy", *[f"normal, K = {k:,}" for k in arms], *[f"0/1, K = {k:,}" for k in arms]]
    rows = [
        [f"`{name}`", *[f"{table[name][k]:.1f}" if name in table else "" for table in both for k in arms]]
        for name in PAPER
        if any(name in table for table in both)
    ]
    return markdown(columns, rows)


def growth_table(found: dict[str, Any]) -> str:
    """Return the cost of a round with 1,000 arms, next to that with 10, at the long horizon."""
    both = [ratios(found, family, LONG) for family in (GAUSSIAN, BERNOULLI)]
    columns = ["policy", "normal, K = 10", "normal, K = 1,000", "0/1, K = 10", "0/1, K = 1,000"]
    rows = [
        [
            f"`{name}`",
            *[f"{table[name][k]:.1f}" if name in table else "" for table in both for k in (10, 1000)],
        ]
        for name in PAPER
        if any(name in table for table in both)
    ]
    return markdown(columns, rows)


def start_table(found: dict[str, Any]) -> str:
    """Return the time to a first result, the speedup by threads, and the memory."""
    simulation = found["simulation"]
    start, threads = simulation["start"], simulation["threads"]
    return markdown(
        ["", "measured"],
        [
            ["first `simulate` in a new process, compiled before", f"{start['warm']:.2f} s"],
            ["of this, `import numba`", f"{start['import numba']:.2f} s"],
            ["first `simulate` on a new machine, compiled now", f"{start['cold']:.1f} s"],
            [
                "speedup by two threads (floor: the random numbers alone)",
                f"{threads['simulate']:.2f} ({threads['floor']:.2f})",
            ],
            ["peak memory of 10 million rounds", f"{simulation['memory']:.0f} MB"],
        ],
    )


def custom_table(found: dict[str, Any]) -> str:
    """Return the cost of rewards from a function of the user."""
    rows = found["custom_problems"]["rows"]
    kinds = list(rows[0]["nanoseconds"])
    return markdown(
        ["policy", "rewards", "arms", *kinds],
        [
            [
                f"`{row['policy']}`",
                row["rewards"],
                row["arms"],
                *[f"{row['nanoseconds'][kind]:,.0f} ({row['ratios'][kind]:.1f})" for kind in kinds],
            ]
            for row in rows
        ],
    )


def policies_table(found: dict[str, Any]) -> str:
    """Return the time in which a policy computes all probabilities of one decision."""
    rows = [
        [row["name"], f"{row['arms']:,}", duration(row["seconds"]), times(row["ratio"]), row["beside"]]
        for row in found["policies"]
        if 10 <= row["arms"] <= 1000 and "forms" not in row["beside"]
    ]
    return markdown(["policy", "arms", "CPU time", "ratio", "compared with"], rows)


def decisions_table(found: dict[str, Any]) -> str:
    """Return the decisions per second of a `Bandit` in one's own process."""
    rows = [
        [row["name"], f"{row['a_second']:,.0f}", f"{row['ratio']:.2f}", row["beside"], duration(row["p99"])]
        for row in found["decisions"]
        if "a_second" in row
    ]
    return markdown(["", "per second", "ratio", "compared with", "p99"], rows)


def service_table(found: dict[str, Any]) -> str:
    """Return the cost and the latency of requests to the service."""
    return markdown(
        ["request", "CPU", "ratio to bare Starlette", "per second", "p50", "p99"],
        [
            [
                row["what"],
                duration(row["cpu"]) if "cpu" in row else "",
                f"{row['ratio']:.2f}" if "ratio" in row else "",
                f"{row['a_second']:,.0f}",
                duration(row["p50"]),
                duration(row["p99"]),
            ]
            for row in found["service"]
        ],
    )


def logs_table(found: dict[str, Any]) -> str:
    """Return the rows per second of verification and export, and the time of evaluations."""
    verified = [
        [f"{row['what']}, `{row['policy']}`", f"{row['decisions']:,}", duration(row["seconds"])]
        for row in found["verification"]
        if "seconds" in row
    ]
    evaluated = [[row["what"], "", duration(row["seconds"])] for row in found["evaluation"]]
    return markdown(["", "decisions", "time"], [*verified, *evaluated])


TABLES = {
    "simulation": (simulation_table, "simulation"),
    "growth": (growth_table, "simulation"),
    "start": (start_table, "simulation"),
    "custom": (custom_table, "custom_problems"),
    "policies": (policies_table, "policies"),
    "decisions": (decisions_table, "decisions"),
    "service": (service_table, "service"),
    "logs": (logs_table, "verification"),
}


def times(ratio: float) -> str:
    """Format a ratio with two digits."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def duration(seconds: float) -> str:
    """Format a duration in the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def marks(name: str) -> tuple[str, str]:
    """Return the comments around a generated table."""
    return f"<!-- {name}: generated by `make bench` -->", f"<!-- end of {name} -->"


def write_page(found: dict[str, Any], page: Path) -> None:
    """Replace the tables on the page."""
    text = page.read_text(encoding="utf8")
    for name, (table, source) in TABLES.items():
        if source in found:
            start, end = marks(name)
            before, rest = text.split(start)
            text = f"{before}{start}\n\n{table(found)}\n\n{end}{rest.split(end)[1]}"
    page.write_text(text, encoding="utf8")


def draw(found: dict[str, Any], picture: Path) -> None:
    """Draw the ratio to the floor against the number of arms."""
    from maillard import figures

    table = ratios(found, BERNOULLI, SHORT)
    names = [name for name in DRAWN if name in table]
    arms = sorted(table[names[0]])
    values = [[table[name][k] for k in arms] for name in names]
    figure = figures.sweep(
        arms, names, values, values, values, xlabel="arms", label="time of a round / floor", yscale="log",
        title=f"0/1 rewards, {SHORT:,} rounds", size=(8.6, 4.8),
    )  # fmt: skip
    figures.save(figure, picture)


def main() -> None:
    """Copy the results into docs/data/speed.json; write the tables and the picture."""
    earlier = json.loads(DATA.read_text(encoding="utf8")) if DATA.exists() else {}
    found = collect(HERE, earlier)
    DATA.write_text(json.dumps(found, indent=1) + "\n", encoding="utf8")
    write_page(found, PAGE)
    draw(found, DOCS / "pictures" / "speed.png")


if __name__ == "__main__":
    main()
