"""Compare the regret distributions of GPU and CPU for the paper's policies on its ten problems.

The GPU runs 10^5 trials, the CPU 10^4. The two runs may take place on two machines:

- `python -m benchmarks.gpu --grid --save gpu/` writes the GPU's final regrets and mean pulls.
- `python -m benchmarks.agreement --cpu cpu/` writes those of the CPU (about twenty minutes on two cores).
- `python -m benchmarks.agreement --cpu cpu/ --gpu gpu/` compares them.

The comparison tests the final regret with the two-sample Kolmogorov-Smirnov test and with a test of the
means, and the mean pulls with the largest |z| of all arms. Holm's correction covers all tests. As a control,
it compares two different boosters.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import maillard
from maillard.problems import problem

HORIZON, TRIALS = 20_000, 10_000
LEVEL = 1e-3  # probability that any test rejects if the distributions are equal
Floats = NDArray[np.float64]


def grid() -> tuple[list[str], list[str]]:
    """Return the paper's problems, ordered by the number of arms, and its policies."""
    # Not by importing the package, which needs packages that a machine with a GPU may not have.
    file = Path(maillard.__file__).parent / "reproduction" / "paper_experiments.toml"
    groups = tomllib.loads(file.read_text(encoding="utf8"))["groups"]
    problems = sorted([*groups["gaussian-1"], *groups["bernoulli"]], key=lambda spec: problem(spec).arms)
    return problems, groups["paper"]


def file_of(folder: Path, where: str) -> Path:
    """Return the path of a problem's results."""
    return folder / f"{where.translate(str.maketrans(':,=', '___'))}.npz"


def run(folder: Path) -> None:
    """Run the problems on the CPU, except those whose results exist."""
    folder.mkdir(exist_ok=True)
    problems, policies = grid()
    for where in problems:
        if not file_of(folder, where).exists():
            result = maillard.simulate(policies, where, HORIZON, TRIALS, seed=1, checkpoints=[HORIZON])
            final, pulls = result.final_regret.astype(np.float32), result.pulls
            np.savez_compressed(
                file_of(folder, where),
                final=final,
                pulls=pulls.mean(axis=1),
                deviation=pulls.std(axis=1, ddof=1),
            )
            print(where, flush=True)


def two_samples(one: Floats, other: Floats) -> tuple[float, float]:
    """Return the p-values of the Kolmogorov-Smirnov test and of the comparison of means."""
    error = np.sqrt(one.var(ddof=1) / one.size + other.var(ddof=1) / other.size)
    z = (one.mean() - other.mean()) / error if error > 0 else 0.0
    return float(stats.ks_2samp(one, other, method="asymp").pvalue), float(2 * stats.norm.sf(abs(z)))


def compare_pulls(mean: Floats, other: Floats, deviation: Floats, trials: int, others: int) -> float:
    """Return the p-value of the largest difference in mean pulls, corrected for the number of arms."""
    error = deviation * np.sqrt(1 / trials + 1 / others)
    z = np.divide(mean - other, error, out=np.zeros_like(error), where=error > 0)
    return float(min(1.0, 2 * stats.norm.sf(np.abs(z).max()) * z.size))


def compare(cpu: Path, gpu: Path) -> int:
    """Run all tests and return how many reject after Holm's correction."""
    problems, policies = grid()
    found, controls = [], []
    for where in problems:
        with np.load(file_of(cpu, where)) as one, np.load(file_of(gpu, where)) as two:
            final, other = one["final"].astype(np.float64), two["final"].astype(np.float64)
            for i, policy in enumerate(policies):
                distribution, mean = two_samples(final[i], other[i])
                pulls = compare_pulls(
                    one["pulls"][i], two["pulls"][i], one["deviation"][i], final[i].size, other[i].size
                )
                found += [
                    (distribution, "distribution", policy, where),
                    (mean, "mean", policy, where),
                    (pulls, "pulls", policy, where),
                ]
            controls.append(two_samples(final[0], other[1])[0])  # boosters 4 and 8
    rejected = 0
    for index, (p, test, policy, where) in enumerate(sorted(found)):
        limit = LEVEL / (len(found) - index)
        if p >= limit:
            break
        rejected += 1
        print(f"differs: {test} of {policy} on {where}, p = {p:.2g}")
    smallest = min(found)
    print(
        f"{len(found)} tests of {len(found) // 3} cells: {rejected} reject at {LEVEL:g} (Holm); "
        f"the smallest p is {smallest[0]:.2g}, {smallest[1]} of {smallest[2]} on {smallest[3]}"
    )
    counts = []
    for name in ("distribution", "mean", "pulls"):
        p_values = np.array([p for p, test, *_ in found if test == name])
        counts.append(f"{name} {(p_values < 0.05).sum()} of {p_values.size}")
    print("p < 0.05: " + ", ".join(counts))
    detected = sum(p < LEVEL / len(found) for p in controls)
    print(f"control, booster 4 against 8: {detected} of {len(controls)} differences are detected")
    return rejected


def main() -> int:
    """Run the CPU's trials, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", type=Path, required=True, help="folder of the CPU's results")
    parser.add_argument("--gpu", type=Path, help="folder of the GPU's results; compare them with the CPU's")
    args = parser.parse_args()
    if args.gpu is None:
        run(args.cpu)
        return 0
    return 1 if compare(args.cpu, args.gpu) else 0


if __name__ == "__main__":
    sys.exit(main())
