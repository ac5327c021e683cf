"""`python -m benchmarks.coverage`: run the study and write docs/explanation/coverage.md."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.coverage import cell_simulation, floorless, page
from benchmarks.coverage.cells import CELLS, HORIZONS
from benchmarks.coverage.parallel import Work
from maillard.evaluation.sequential import aipw, bernstein, betting, doubly_robust
from maillard.reproduction.progress import progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results.json"


def main() -> int:
    """Run the parts that have no results yet, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=10_000, help="number of logs for each cell (default 10,000)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="file of the results, updated after every part"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "explanation" / "coverage.md")
    parser.add_argument("--again", action="store_true", help="run all parts again")
    given = parser.parse_args()
    if given.runs < 2 or given.threads < 1 or given.seed < 0:
        parser.error("--runs must be at least 2, --threads at least 1, --seed at least 0")
    key = {"runs": given.runs, "seed": given.seed, "sources": _sources()}
    stored = {} if given.again else _load(given.results)
    found: dict[str, Any] = stored if all(stored.get(name) == value for name, value in key.items()) else key
    found.setdefault("seconds", 0.0)
    try:
        _run(found, given)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"stopped; finished parts are in {given.results}, and the same command continues from there\n"
        )
        return 130
    page.write(found, given.page)
    sys.stderr.write(f"wrote {given.page}\n")
    return 0


def _run(found: dict[str, Any], given: argparse.Namespace) -> None:
    runs, seed = given.runs, given.seed
    fewer, fewest = max(2, runs * 2 // 5), max(2, runs // 5)
    parts: dict[str, tuple[float, Any]] = {
        "errors": (fewer * 1e4, lambda work: summary(floorless.errors(fewer, seed, work))),
        "unbiased": (
            fewest * 100,
            lambda work: deviation(floorless.ips_deviation(fewest, seed, work)),
        ),
        "late": (
            fewest * 100,
            lambda work: deviation(floorless.ips_deviation(fewest, seed, work, late=True)),
        ),
        "by floor": (
            runs * 5000 / 3 * len(floorless.FLOORS),
            lambda work: floorless.coverage_by_floor(runs, seed, work).tolist(),
        ),
        "distant": (
            fewest * cell_simulation.DISTANT[-1] / 3,
            lambda work: cell_simulation.distant(fewest, seed, work).tolist(),
        ),
    }
    for cell in CELLS:
        parts[cell.name] = (
            runs * HORIZONS[-1],
            lambda work, cell=cell: cell_simulation.run(cell, runs, seed, work).as_lists(),
        )
    left = {name: part for name, part in parts.items() if name not in found}
    with progress(sum(units for units, _ in left.values()) or 1.0, None) as shown:
        work = Work(given.threads, shown.advance, shown.say)
        for name, (_, make) in left.items():
            started = time.perf_counter()
            found[name] = _rounded(make(work))
            found["seconds"] = round(found["seconds"] + time.perf_counter() - started, 1)
            _save(found, given.results)


def summary(errors: floorless.Errors) -> dict[str, Any]:
    """The statistics of the errors that the page shows, each of horizon x estimator."""
    return {
        "runs": errors.values.shape[2],
        "root mean square": errors.root_mean_square.tolist(),
        "median": errors.quantile(0.5).tolist(),
        "95%": errors.quantile(0.95).tolist(),
        "mean": errors.values.mean(axis=2).tolist(),
    }


def deviation(values: NDArray[np.float64]) -> dict[str, Any]:
    """The result of a test of unbiasedness that the page shows."""
    return {"runs": values.size, "mean": float(values.mean()), "z": floorless.z_score(values)}


def _save(found: dict[str, Any], path: Path) -> None:
    """Write one line for each part, and replace the file atomically."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()]
    new = path.with_suffix(".new")
    new.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf8")
    new.replace(path)


def _rounded(value: Any) -> Any:
    """The same with every number rounded to six decimals, enough for a fraction of a million runs."""
    match value:
        case float():
            return round(value, 6)
        case list():
            return [_rounded(each) for each in value]
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
    return value


def _load(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _sources() -> str:
    """A hash of the kernels and of this study, so that results of other code are not reused."""
    digest = hashlib.sha256()
    for path in sorted(HERE.glob("*.py")):
        other = path.name in ("page.py", "tables.py", "picture.py", "__main__.py")
        if not other and not path.name.startswith("real_life"):
            digest.update(path.read_bytes())
    for module in (aipw, bernstein, betting, doubly_robust):
        for name, value in sorted(vars(module).items()):
            if hasattr(value, "py_func"):
                code = value.py_func.__code__
                digest.update(repr((name, code.co_code, code.co_consts, code.co_names)).encode())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
