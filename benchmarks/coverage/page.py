"""docs/coverage.md and its picture, from the study's numbers: nothing on the page is written by hand but its sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage import floorless
from benchmarks.coverage.cells import CELLS, CONFIDENCE, FLOORS, HORIZONS, MEANS, RANGE, SIGMA2, Cell
from benchmarks.coverage.methods import FIRST, METHODS, NAIVE, WEIGHTED
from benchmarks.coverage.picture import draw
from benchmarks.coverage.study import Outcome
from benchmarks.coverage.tables import (
    BAND,
    ENOUGH,
    LEVEL,
    anytime,
    chance,
    distant,
    enough,
    fixed,
    percent,
    sides,
    stabilised,
    table,
    tests,
    widths,
)

__all__ = ["write"]

PICTURE = "coverage.png"


def write(found: dict[str, Any], path: Path) -> None:
    """Write the page, and the picture into `pictures` beside it."""
    outcomes = {cell: Outcome.from_lists(found[cell.name]) for cell in CELLS}
    pictures = path.parent / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    draw(outcomes, pictures / PICTURE)
    parts = [
        _opening(found, outcomes),
        _design(found),
        *(fixed(outcomes, horizon, floor) for horizon in HORIZONS for floor in FLOORS),
        enough(outcomes),
        distant(found),
        sides(outcomes),
        anytime(outcomes),
        widths(outcomes),
        _floorless(found),
    ]
    path.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf8")


def _opening(found: dict[str, Any], outcomes: dict[Cell, Outcome]) -> str:
    every = stabilised(outcomes)
    far, near = [row for row in every if row[5] >= ENOUGH], [row for row in every if row[5] < ENOUGH]
    held = sum(BAND[0] <= row[4] <= BAND[1] for row in far)
    low, high = min(row[4] for row in far), max(row[4] for row in far)
    judged = tests(outcomes)
    worst, least = max(row[1] for row in judged), min(row[2] for row in judged)
    peeked = max(float(out.ever[-1].max()) for out in outcomes.values())
    naive = [
        min(float(out.covered[:, :, METHODS.index(method)].min()) for out in outcomes.values())
        for method in NAIVE
    ]
    bad, good = found["by floor"][0], found["by floor"][-1]
    verdict = "none is rejected" if least > LEVEL / len(judged) else "**some are rejected**"
    return f"""
# Coverage: do the intervals hold?

An interval that says 90% should hold the truth in 90 of 100 logs, also where the log was written by a policy that learned from
it. This page counts. `make coverage` simulates {found["runs"]:,} logs for each of {len(CELLS)} loggers and problems, evaluates every arm of each log with
the code that `maillard.evaluate` runs, and writes this page; every number here is its output.

![How often intervals miss, by method](pictures/{PICTURE})

- **Stabilised intervals** (AIPW with constant-allocation weights √e, and with two-point weights): where an arm has at least {ENOUGH} effective
  pulls, {held} of {len(far)} coverages lie within {percent(BAND[0])} to {percent(BAND[1])}% (from {percent(low)} to {percent(high)}%). With fewer, down to
  {min(row[5] for row in near):.0f}, {_below(near)} of {len(near)} are below that, down to {percent(min(row[4] for row in near))}%: their theory is about many pulls, and an
  experiment that does not adapt falls short with so few as well ([below](#how-many-pulls-are-enough)).
- **Confidence sequences** hold at every row at once. In the worst of {len(judged)} combinations of sequence, logger, problem and arm, {percent(worst)}% of
  the logs had one that excluded the truth at any time, where 10% are allowed. A one-sided binomial test of each against 10%, at a
  level of {LEVEL:g} for all together: {verdict} (smallest p-value {chance(least)}).
- **Naive intervals** are made as if rows were independent. At a fixed number of rows the sample mean's fall to {percent(naive[0])}%, which is not far off, but
  more often below the truth than above ([below](#on-which-side-they-miss)); those of IPS fall to {percent(naive[1])}%. And who looks at them after every row
  from the {FIRST}th on sees the truth excluded at some time in up to {percent(peeked)}% of the logs.
- **Without a floor** intervals of an arm that the policy gave up fall short: {percent(bad[0])}% with AIPW, {percent(bad[3])}% with two-point weights; with a
  uniform mix of {floorless.FLOORS[-1]:.0%} it is {percent(good[0])} and {percent(good[3])}% ([below](#without-a-floor))."""


def _below(rows: list[tuple[Cell, int, int, str, float, float]]) -> int:
    return sum(row[4] < BAND[0] for row in rows)


def _design(found: dict[str, Any]) -> str:
    return f"""
Rewards here are symmetric about their means, targets are single arms, and intervals are of 90%. Where rewards are rare (clicks, purchases) count successes and
not pulls: with fewer than some ten of an arm, normal intervals fall far shorter than here (`maillard plan` shows how far), `evaluate` says so, and a
confidence sequence is the one to read.

## What was run

Three arms with means {"; ".join("(" + ", ".join(f"{m:g}" for m in means) + ")" for means in MEANS)}; a reward is its arm's mean plus noise that is uniform on
(-1, 1). Loggers: MS, MS+ (B = 4, C = D = 0.01) and Gaussian Thompson sampling, each told σ² = {SIGMA2:g}, which is the sub-Gaussian parameter of
that noise (its variance is 1/3). Thompson's probabilities are exact: for three arms they are probabilities of two correlated normal
variables. No pull is forced: an arm without rewards is drawn by formula, as live, so that every row has support.

Into each law a share of the uniform one is mixed, and the mixed probability is what is drawn from and logged:
either t^-0.7 of it in round t (every arm has at least t^-0.7 / 3), or 5% throughout (at least 1/60). Logs have {HORIZONS[-1]:,} rows; those of
{HORIZONS[0]:,} are their beginnings. Nominal coverage is {CONFIDENCE:.0%}, and each share below has a standard error of about
{100 * np.sqrt(0.09 / found["runs"]):.1f} points ({found["runs"]:,} logs, seed {found["seed"]}).

| method | in `evaluate` | what it is | what its interval assumes |
| --- | --- | --- | --- |
| sample mean | | the arm's mean reward | independent rewards: false here, since how often an arm is pulled depends on its rewards |
| IPS | | mean of w r, w = 1 / p | independent rows: false here |
| AIPW | `aipw` | mean of Γ_t, the doubly robust score with a lagged model | that the propensities settle down to the same in every log |
| AIPW √e | `aipw-sqrt` | Γ weighted by √e_t: constant allocation | a floor that decays slower than 1/t, and many pulls |
| AIPW e | `aipw-propensity` | Γ weighted by e_t | as AIPW; close to the sample mean |
| AIPW two-point | `aipw-two-point` | Γ weighted by √(v_t e_t), v by two-point allocation, α = 0.7 | a floor of c t^-α with α < 1, and many pulls |
| Bernstein | `cs-bernstein` | predictable-mixture empirical Bernstein sequence | rewards within a known range (here {RANGE[0]:g} to {RANGE[1]:g}) |
| doubly robust | `cs-dr` | the same about a lagged model | the same |
| betting | `cs-betting` | a betting sequence that hedges with the weights | the same, and the floor's largest weight |

Why the two stabilised ones (Hadad et al. 2021), in a line each: with h_t = √e_t every row of Σ h_t (Γ_t - μ) has the same variance, whatever the policy did,
so the sum is normal in the limit; it has one if (Σ √e_t)² / T grows, which a floor of c t^-α grants for α < 1. Two-point weights do
the same with a share v_t of the variance for row t that is chosen to suit both an arm that will be pulled always and one
that is left to its floor. Both floors here qualify (α = 0.7 and α = 0), so the theory covers every cell as T grows; what is left to see is
how large T must be."""


def _floorless(found: dict[str, Any]) -> str:
    errors, right, late = found["errors"], found["unbiased"], found["late"]

    def by_horizon(
        values: list[list[float]], show: Callable[[float], str] = lambda value: f"{value:.3f}"
    ) -> str:
        rows = [[f"{horizon:,}", *(show(float(each)) for each in line)] for horizon, line in zip(floorless.HORIZONS, values, strict=True)]  # fmt: skip
        return table(["T", *floorless.ESTIMATORS], rows)

    floors = [
        [f"{floor:.0%}" if floor else "none", *(percent(each) for each in line)]
        for floor, line in zip(floorless.FLOORS, found["by floor"], strict=True)
    ]
    return f"""
## Without a floor

MS draws a bad arm with a probability of about c / t. Inverse propensity scoring on its log is unbiased; but the variance of its mean,
(1/T²) Σ 1/p_t, does not shrink with T. MS on two Bernoulli arms with means 0.6 and 0.4, σ² = 1/4, {errors["runs"]:,} logs, the two forced
first rounds dropped: the mean of the **worse** arm is estimated. Root mean square error:

{by_horizon(errors["root mean square"])}

Ten or a hundred times the rows hardly help IPS, SNIPS or plain AIPW. Their errors are heavy-tailed, so that a root mean square depends on a few logs:
the median of the absolute error and its 95% quantile tell the same.

{by_horizon(errors["median"])}

{by_horizon(errors["95%"])}

The mean error, which is what "unbiased" is about:

{by_horizon(errors["mean"], lambda value: f"{value:+.3f}")}

What to use instead: AIPW weighted by √e or e, whose error shrinks (with e it is nearly the sample mean, whose bias it shares); and, before logging,
a floor.

**Unbiased, tested.** A z-score of IPS itself would mean little, as a few rows make its variance; so rows with p_t below
{floorless.LEAST:g} are left out, which the log's reader may do since p_t is known before the draw. Over {right["runs"]:,} logs of 200 rows the mean of w r - μ
is {right["mean"]:+.4f} (z = {right["z"]:+.1f}). With the probability taken after the row's update instead, a common slip, it is {late["mean"]:+.4f}
(z = {late["z"]:+.1f}).

**What a floor buys.** MS on Gaussian arms (0.5, 1, 1.5) with σ = 1, {found["runs"]:,} logs of 5,000 rows, the worst arm's 90% interval, with a uniform mix of
so much:

{table(["uniform mix", *WEIGHTED], floors)}
"""
