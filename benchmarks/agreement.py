"""Compares the regret distributions of GPU and CPU: the paper's policies on its ten problems.

The GPU runs 10^5 trials, the CPU 10^4.

Two halves, which may run on two machines: `python -m benchmarks.gpu --grid --save gpu/` writes the GPU's
final regrets and mean pulls, `python -m benchmarks.agreement --cpu cpu/` the CPU's (some twenty minutes on
two cores); `python -m benchmarks.agreement --cpu cpu/ --gpu gpu/` compares what both have: final regret by
the two-sample Kolmogorov-Smirnov test and by the means, the mean pulls of every arm by the largest |z| of all
arms, each with Holm's correction over all cells. Its control compares neighbouring boosters.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import maillard
from maillard.problems import problem
from maillard.reproduction.paper_experiments import read_toml

HORIZON, TRIALS = 20_000, 10_000
LEVEL = 1e-3  # that one of all tests rejects by chance
Floats = NDArray[np.float64]


def grid() -> tuple[list[str], list[str]]:
    """The paper's problems, few arms first, and its policies."""
    groups = read_toml("paper_experiments.toml")["groups"]
    problems = sorted([*groups["gaussian-1"], *groups["bernoulli"]], key=lambda spec: problem(spec).arms)
    return problems, groups["paper"]


def file_of(folder: Path, where: str) -> Path:
    """A problem's file."""
    return folder / f"{where.translate(str.maketrans(':,=', '___'))}.npz"


def run(folder: Path) -> None:
    """The CPU's half, problem by problem; what is there is not run again."""
    folder.mkdir(exist_ok=True)
    problems, policies = grid()
    for where in problems:
        if not file_of(folder, where).exists():
            done = maillard.simulate(policies, where, HORIZON, TRIALS, seed=1, checkpoints=[HORIZON])
            final, pulls = done.final_regret.astype(np.float32), done.pulls
            np.savez_compressed(
                file_of(folder, where),
                final=final,
                pulls=pulls.mean(axis=1),
                deviation=pulls.std(axis=1, ddof=1),
            )
            print(where, flush=True)


def two_samples(one: Floats, other: Floats) -> tuple[float, float]:
    """P-values: of all that a law can differ in, and of the means."""
    error = np.sqrt(one.var(ddof=1) / one.size + other.var(ddof=1) / other.size)
    z = (one.mean() - other.mean()) / error if error > 0 else 0.0
    return float(stats.ks_2samp(one, other, method="asymp").pvalue), float(2 * stats.norm.sf(abs(z)))


def pulls_agree(mean: Floats, other: Floats, deviation: Floats, trials: int, others: int) -> float:
    """The p-value of the arm whose mean pulls differ most, for all arms."""
    error = deviation * np.sqrt(1 / trials + 1 / others)
    z = np.divide(mean - other, error, out=np.zeros_like(error), where=error > 0)
    return float(min(1.0, 2 * stats.norm.sf(np.abs(z).max()) * z.size))


def compare(cpu: Path, gpu: Path) -> int:
    """Every test of every cell; how many reject at the level, after Holm."""
    problems, policies = grid()
    found, controls = [], []
    for where in problems:
        with np.load(file_of(cpu, where)) as one, np.load(file_of(gpu, where)) as two:
            final, other = one["final"].astype(np.float64), two["final"].astype(np.float64)
            for i, policy in enumerate(policies):
                law, mean = two_samples(final[i], other[i])
                pulls = pulls_agree(
                    one["pulls"][i], two["pulls"][i], one["deviation"][i], final[i].size, other[i].size
                )
                found += [
                    (law, "law", policy, where),
                    (mean, "mean", policy, where),
                    (pulls, "pulls", policy, where),
                ]
            controls.append(two_samples(final[0], other[1])[0])  # boosters 4 and 8
    rejected = 0
    for place, (p, what, policy, where) in enumerate(sorted(found)):
        limit = LEVEL / (len(found) - place)
        if p >= limit:
            break
        rejected += 1
        print(f"differs: {what} of {policy} on {where}, p = {p:.2g}")
    least = min(found)
    print(
        f"{len(found)} tests of {len(found) // 3} cells: {rejected} reject at {LEVEL:g} (Holm); the least p is {least[0]:.2g}, {least[1]} of {least[2]} on {least[3]}"
    )
    kinds = {
        what: np.array([p for p, kind, *_ in found if kind == what]) for what in ("law", "mean", "pulls")
    }
    print("p < 0.05: " + ", ".join(f"{what} {(p < 0.05).sum()} of {p.size}" for what, p in kinds.items()))
    print(
        f"control, booster 4 against 8: {sum(p < LEVEL / len(found) for p in controls)} of {len(controls)} are found out"
    )
    return rejected


def main() -> int:
    """One half, or the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", type=Path, required=True, help="the folder of the CPU's half")
    parser.add_argument("--gpu", type=Path, help="the folder of the GPU's half: compare")
    given = parser.parse_args()
    if given.gpu is None:
        run(given.cpu)
        return 0
    return 1 if compare(given.cpu, given.gpu) else 0


if __name__ == "__main__":
    sys.exit(main())
