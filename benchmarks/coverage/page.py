"""docs/explanation/coverage.md, its appendix and its figure, generated from the results of the study."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage import floorless
from benchmarks.coverage.cell_simulation import Outcome
from benchmarks.coverage.cells import CELLS, CONFIDENCE, FLOORS, HORIZONS, MEANS, RANGE, SIGMA2, Cell
from benchmarks.coverage.methods import FIRST, METHODS, NAIVE, WEIGHTED
from benchmarks.coverage.picture import draw
from benchmarks.coverage.tables import (
    BAND,
    ENOUGH,
    LEVEL,
    anytime,
    distant,
    enough,
    fixed,
    p_value,
    percent,
    sides,
    stabilised,
    table,
    tests,
    widths,
)

__all__ = ["write"]

PICTURE = "coverage.png"
_COLUMNS = 110
_VERBATIM = ("#", "|", "!")  # the first characters of Markdown lines that are not wrapped


def write(found: dict[str, Any], path: Path) -> None:
    """Write the page, its appendix beside it, and the picture into `../pictures`."""
    outcomes = {cell: Outcome.from_lists(found[cell.name]) for cell in CELLS}
    pictures = path.parents[1] / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    draw(outcomes, pictures / PICTURE)
    _write(
        path, [_opening(found, outcomes), _which_interval(), _floorless_findings(found), _reproduce(found)]
    )
    parts = [
        _design(found),
        *(fixed(outcomes, horizon, floor) for horizon in HORIZONS for floor in FLOORS),
        enough(outcomes),
        distant(found),
        sides(outcomes),
        anytime(outcomes),
        widths(outcomes),
        _floorless(found),
    ]
    _write(path.with_name(f"{path.stem}-appendix.md"), parts)


def _write(path: Path, parts: list[str]) -> None:
    path.write_text("\n\n".join(_wrap(part.strip()) for part in parts) + "\n", encoding="utf8")


def _wrap(markdown: str) -> str:
    """The text with paragraphs and list items wrapped; headings, pictures and tables stay as they are."""
    blocks: list[str] = []
    for line in markdown.split("\n"):
        continues = blocks and blocks[-1] and not blocks[-1].startswith(_VERBATIM)
        if continues and line and not line.startswith((*_VERBATIM, "- ")):
            blocks[-1] += " " + line.strip()
        else:
            blocks.append(line)
    return "\n".join(block if block.startswith(_VERBATIM) else _fill(block) for block in blocks)


def _fill(block: str) -> str:
    indent = "  " if block.startswith("- ") else ""
    joined = block.replace(" - ", "\0-\0")  # a minus sign at the start of a line would begin a list
    filled = textwrap.fill(
        joined, _COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return filled.replace("\0", " ")


def _opening(found: dict[str, Any], outcomes: dict[Cell, Outcome]) -> str:
    every = stabilised(outcomes)
    far, near = [row for row in every if row[5] >= ENOUGH], [row for row in every if row[5] < ENOUGH]
    valid = sum(BAND[0] <= row[4] <= BAND[1] for row in far)
    low, high = min(row[4] for row in far), max(row[4] for row in far)
    judged = tests(outcomes)
    worst, least = max(row[1] for row in judged), min(row[2] for row in judged)
    checked = max(float(out.ever[-1].max()) for out in outcomes.values())
    naive = [
        min(float(out.covered[:, :, METHODS.index(method)].min()) for out in outcomes.values())
        for method in NAIVE
    ]
    bad, good = found["by floor"][0], found["by floor"][-1]
    verdict = "none is rejected" if least > LEVEL / len(judged) else "**some are rejected**"
    return f"""
# Coverage of the intervals

A 90% interval should contain the true value in 90 of 100 logs, even if the policy that wrote the log
learned from it. This page says how often it does, from {found["runs"]:,} simulated logs for each of
{len(CELLS)} combinations of logging policy and problem. Every arm of each log was evaluated with the code of
`maillard.evaluate`. [The appendix](coverage-appendix.md) has the design and all tables.

![How often intervals miss, by method](../pictures/{PICTURE})

- **Stabilised intervals** (AIPW with constant-allocation weights √e, and with two-point weights) are valid
  at a number of rows that is fixed in advance. If an arm has at least {ENOUGH} effective pulls, {valid} of
  {len(far)} coverages are between {percent(BAND[0])} and {percent(BAND[1])}% (from {percent(low)} to
  {percent(high)}%). With fewer effective pulls, down to {min(row[5] for row in near):.0f}, {_below(near)}
  of {len(near)} coverages are lower, down to {percent(min(row[4] for row in near))}%. The theory is for
  many pulls; with so few, an experiment that does not adapt also falls short
  ([table](coverage-appendix.md#how-many-pulls-are-enough)).
- **Confidence sequences** are valid at any time: at every row at once. In the worst of {len(judged)}
  combinations of sequence, policy, problem and arm, the sequence excluded the true value at some row in
  {percent(worst)}% of the logs; 10% are allowed. One-sided binomial tests of each combination against 10%,
  at a joint level of {LEVEL:g}: {verdict} (smallest p-value {p_value(least)}).
- **Naive intervals** treat rows as independent. At a fixed number of rows the coverage of the sample mean
  falls to {percent(naive[0])}%, which is close, but the interval is more often below the true value than
  above it ([table](coverage-appendix.md#on-which-side-they-miss)). The coverage of IPS falls to
  {percent(naive[1])}%. If you check after every row from row {FIRST} on, the interval excludes the true value
  at least once in up to {percent(checked)}% of logs.
- **Without a floor** the intervals of an arm that the policy gave up have too low a coverage:
  {percent(bad[0])}% with AIPW, {percent(bad[3])}% with two-point weights. With a uniform mix of
  {floorless.FLOORS[-1]:.0%} they cover {percent(good[0])} and {percent(good[3])}%
  ([why](#without-a-floor))."""


def _which_interval() -> str:
    return f"""
## Which interval to use

| your situation | interval | what the study says |
| --- | --- | --- |
| the number of rows was fixed in advance, and the policy had a floor | `aipw-two-point` or `aipw-sqrt` | \
valid from {ENOUGH} effective pulls of the arm on |
| you look at the results while the experiment runs, or stop when they are clear | a confidence sequence: \
`cs-arm`, `cs-betting`, `cs-dr` | valid at every row at once |
| few pulls, or fewer than about ten successes | a confidence sequence | normal intervals are too short |
| no floor | `cs-arm` for one arm, else `cs-dr` | IPS, SNIPS and plain AIPW hardly improve with more rows |

`maillard evaluate` follows these rules: it marks the estimate to read first and says why
([evaluation](../how-to/evaluation.md#which-estimator-to-use)). In this study rewards are symmetric about
their means, targets are single arms, and intervals have a confidence of {CONFIDENCE:.0%}. If rewards are rare
(clicks, purchases), count successes instead of pulls: with fewer than about ten successes of an arm, the
coverage of normal intervals is much lower than here. `maillard plan` shows how much, and `evaluate` warns."""


def _reproduce(found: dict[str, Any]) -> str:
    return f"""
## How to reproduce it

`make coverage` runs the study (about an hour) and writes this page and its appendix: {found["runs"]:,} logs
for each combination, seed {found["seed"]}."""


def _below(rows: list[tuple[Cell, int, int, str, float, float]]) -> int:
    return sum(row[4] < BAND[0] for row in rows)


def _design(found: dict[str, Any]) -> str:
    return f"""
# Appendix: coverage of the intervals

These tables belong to [coverage of the intervals](coverage.md), which states the findings. `make coverage`
writes both pages; every number is its output.

## Design

Three arms with means {"; ".join("(" + ", ".join(f"{m:g}" for m in means) + ")" for means in MEANS)}; a
reward is the mean of its arm plus noise that is uniform on (-1, 1). The logging policies are MS, MS+ (B =
4, C = D = 0.01) and Gaussian Thompson sampling, each with σ² = {SIGMA2:g}, the sub-Gaussian parameter of
this noise (its variance is 1/3). The probabilities of Thompson sampling are exact: for three arms they are
probabilities of two correlated normal variables. There are no forced pulls: as in a live bandit, an arm
without rewards has a probability by formula, so every row has support.

Each distribution is mixed with the uniform one, and the mixed probability is used and logged. The weight of
the uniform distribution is either t^-0.7 in round t (every arm has at least t^-0.7 / 3), or 5% in all
rounds (at least 1/60). Logs have {HORIZONS[-1]:,} rows; logs of {HORIZONS[0]:,} rows are their beginnings.
Nominal coverage is {CONFIDENCE:.0%}. Each coverage below has a standard error of about
{100 * np.sqrt(0.09 / found["runs"]):.1f} points ({found["runs"]:,} logs, seed {found["seed"]}).

{_methods()}

Why the two stabilised intervals work (Hadad et al. 2021): with h_t = √e_t every row of Σ h_t (Γ_t - μ) has
the same variance for every policy, so the sum is asymptotically normal if (Σ √e_t)² / T grows, which a
floor of c t^-α guarantees for α < 1. Two-point weights assign the fraction v_t of the variance to row t; v
is chosen to suit both an arm that is always pulled and an arm that is pulled only because of its floor.
Both floors here qualify (α = 0.7 and α = 0), so the theory applies to every combination as T grows. The
study shows how large T must be."""


def _methods() -> str:
    rows = (
        (
            "sample mean",
            "",
            "the arm's mean reward",
            "independent rewards: false here, because the number of pulls of an arm depends on its rewards",
        ),
        ("IPS", "", "mean of w r, w = 1 / p", "independent rows: false here"),
        (
            "AIPW",
            "`aipw`",
            "mean of Γ_t, the doubly robust score with a lagged model",
            "propensities that converge to the same limit in every log",
        ),
        (
            "AIPW √e",
            "`aipw-sqrt`",
            "Γ weighted by √e_t: constant allocation",
            "a floor that decays slower than 1/t, and many pulls",
        ),
        ("AIPW e", "`aipw-propensity`", "Γ weighted by e_t", "as AIPW; close to the sample mean"),
        (
            "AIPW two-point",
            "`aipw-two-point`",
            "Γ weighted by √(v_t e_t), v by two-point allocation, α = 0.7",
            "a floor of c t^-α with α < 1, and many pulls",
        ),
        (
            "Bernstein",
            "`cs-bernstein`",
            "predictable-mixture empirical Bernstein sequence",
            f"rewards within a known range (here {RANGE[0]:g} to {RANGE[1]:g})",
        ),
        ("doubly robust", "`cs-dr`", "the same about a lagged model", "the same"),
        (
            "betting",
            "`cs-betting`",
            "a betting sequence that hedges with the weights",
            "the same, and the floor's largest weight",
        ),
    )
    return table(["method", "in `evaluate`", "definition", "assumptions of the interval"], rows)


def _floorless_findings(found: dict[str, Any]) -> str:
    right, late, errors = found["unbiased"], found["late"], found["errors"]["root mean square"]
    first, last = floorless.HORIZONS[0], floorless.HORIZONS[-1]
    ips, weighted = (floorless.ESTIMATORS.index(name) for name in ("IPS", "AIPW, √e"))
    return f"""
## Without a floor

MS chooses a bad arm with a probability of about c / t. Inverse propensity scoring on its log is unbiased,
but its variance does not shrink: the root mean square error of IPS for the worse of two arms is
{errors[0][ips]:.3f} with {first:,} rows and {errors[-1][ips]:.3f} with {last:,}. That of AIPW weighted by √e
falls from {errors[0][weighted]:.3f} to {errors[-1][weighted]:.3f}. Better still, set a floor before logging.

The logged probability must be that of the choice itself. With the probability after the update instead, a
common mistake, the mean of w r - μ is {late["mean"]:+.4f} (z = {late["z"]:+.1f}) instead of
{right["mean"]:+.4f} (z = {right["z"]:+.1f}). [The appendix](coverage-appendix.md#without-a-floor) has the
tables."""


def _floorless(found: dict[str, Any]) -> str:
    errors, right, late = found["errors"], found["unbiased"], found["late"]

    def by_horizon(
        values: list[list[float]], show: Callable[[float], str] = lambda value: f"{value:.3f}"
    ) -> str:
        rows = [
            [f"{horizon:,}", *(show(float(each)) for each in line)]
            for horizon, line in zip(floorless.HORIZONS, values, strict=True)
        ]
        return table(["T", *floorless.ESTIMATORS], rows)

    floors = [
        [f"{floor:.0%}" if floor else "none", *(percent(each) for each in line)]
        for floor, line in zip(floorless.FLOORS, found["by floor"], strict=True)
    ]
    return f"""
## Without a floor

MS chooses a bad arm with a probability of about c / t. Inverse propensity scoring on its log is unbiased,
but the variance of the mean, (1/T²) Σ 1/p_t, does not shrink with T. Example: MS on two Bernoulli arms with
means 0.6 and 0.4, σ² = 1/4, {errors["runs"]:,} logs without the two forced first rounds. The mean of the
**worse** arm is estimated. Root mean square error:

{by_horizon(errors["root mean square"])}

Ten or a hundred times as many rows hardly help IPS, SNIPS or plain AIPW. Their errors are heavy-tailed, so
the root mean square depends on a few logs. The median of the absolute error and its 95% quantile confirm
it:

{by_horizon(errors["median"])}

{by_horizon(errors["95%"])}

The mean error, which is 0 for an unbiased estimator:

{by_horizon(errors["mean"], lambda value: f"{value:+.3f}")}

Use AIPW weighted by √e or e instead. Its error shrinks (with e it is nearly the sample mean, and shares its
bias). Better still, set a floor before logging.

**A test of unbiasedness.** A z-score of IPS itself would mean little, because a few rows dominate its
variance. So rows with p_t below {floorless.LEAST:g} are left out, which is allowed because p_t is known
before the choice. Over {right["runs"]:,} logs of 200 rows the mean of w r - μ is {right["mean"]:+.4f} (z =
{right["z"]:+.1f}). With the probability after the update instead, a common mistake, it is
{late["mean"]:+.4f} (z = {late["z"]:+.1f}).

**The effect of a floor.** Coverage of the 90% interval of the worst arm: MS on Gaussian arms (0.5, 1, 1.5)
with σ = 1, {found["runs"]:,} logs of 5,000 rows, by the weight of the uniform mix:

{table(["uniform mix", *WEIGHTED], floors)}
"""
