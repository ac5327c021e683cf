"""Claims on the largest regret that the paper quotes, and on the noise, which the paper does not state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from maillard.reproduction.claim_statistics import CONFIDENCE, Verdict, binomial_bounds, stricter, trials_for
from maillard.reproduction.claims.comparison_claims import MS16
from maillard.reproduction.claims.findings import Finding, tests
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.report_content import DataTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

QUOTED = 450.5


def readings(results: ExperimentResults) -> dict[str, Floats]:
    """Final regrets of MS+16 on two arms under each reading of noise and sigma2."""
    named = {
        "variance 1, sigma2 1": ("maximum-1", MS16),
        "variance 1/4, sigma2 1/4": ("maximum-quarter", MS16),
        "variance 1, sigma2 1/4": ("maximum-mixed", f"{MS16},sigma2=0.25"),
    }
    return {
        name: results.regret(experiment, None, policy)
        for name, (experiment, policy) in named.items()
        if experiment in results.experiments()
    }


def _probability_in_200(probability: float) -> float:
    """The probability that an event of this probability occurs in at least one of 200 trials."""
    return float(-np.expm1(200 * np.log1p(-probability))) if probability < 1 else 1.0


@tests("far-from-linear")
def far_from_linear(results: ExperimentResults, _where: str) -> Finding:
    """The probability that the largest of 200 regrets is at least a tenth of the possible regret."""
    tenth = results.result("maximum-1").rounds[-1] * 0.5 / 10
    found = dict(list(readings(results).items())[:2])  # without the mixed one
    counts = [(int((regret >= tenth).sum()), regret.size) for regret in found.values()]

    def outcome(more: int) -> str:
        ends = [binomial_bounds(events * more, trials * more) for events, trials in counts]
        strict = [
            binomial_bounds(events * more, trials * more, stricter(CONFIDENCE, 2))
            for events, trials in counts
        ]
        if any(_probability_in_200(low) > 0.5 for low, _ in strict):
            return "fails"
        return "holds" if all(_probability_in_200(high) < 0.5 for _, high in ends) else "open"

    rows: list[tuple[str | int | float, ...]] = [
        (
            name,
            *count,
            float(found[name].max()),
            *(_probability_in_200(end) for end in binomial_bounds(*count)),
        )
        for name, count in zip(found, counts, strict=True)
    ]
    statistic = "; ".join(
        f"{row[0]}: {row[1]} of {row[2]:,} trials reach {tenth:,.0f}, the largest is {row[3]:,.1f}"
        for row in rows
    )
    bounds = (f"of 200, at least ({CONFIDENCE:.0%})", f"of 200, at most ({CONFIDENCE:.0%})")
    table = DataTable(
        ("noise and sigma2", f"regrets ≥ {tenth:,.0f}", "trials", "largest", *bounds), tuple(rows)
    )
    needed = trials_for(outcome, counts[0][1]) if outcome(1) == "open" else None
    return Finding(statistic, verdict=Verdict(outcome(1), needed), evidence=table)


@tests("maximum")
def maximum(results: ExperimentResults, _where: str) -> Finding:
    """Under which interpretation of the noise the quoted maximum is less extreme."""
    found = readings(results)
    first, second, *_ = found

    def outcome(more: int) -> str:
        (_, low, high), (_, low_other, high_other) = (
            _tail_probability(found[name], more) for name in (first, second)
        )
        return "holds" if low > high_other else "fails" if high < low_other else "open"

    bounds = {name: _tail_probability(found[name]) for name in (first, second)}
    statistic = "; ".join(
        f"under {name} the two-sided tail probability of {QUOTED} is {value:.3f} (from {least:.3f} to "
        f"{most:.3f})"
        for name, (value, least, most) in bounds.items()
    )
    rows: list[tuple[str | int | float, ...]] = []
    for name, regret in found.items():
        events = int((regret >= QUOTED).sum())
        middle = tuple(
            float(np.quantile(regret, q ** (1 / 200), method="higher")) for q in (0.025, 0.5, 0.975)
        )
        rows.append(
            (
                name,
                events,
                regret.size,
                _probability_in_200(events / regret.size),
                *_tail_probability(regret),
                *middle,
            )
        )
    columns = (
        "noise and sigma2",
        f"regrets ≥ {QUOTED}",
        "trials",
        f"P(maximum of 200 ≥ {QUOTED})",
        "two-sided tail probability",
        "at least",
        "at most",
        "2.5% of maxima",
        "median maximum",
        "97.5%",
    )
    needed = trials_for(outcome, found[first].size) if outcome(1) == "open" else None
    return Finding(statistic, verdict=Verdict(outcome(1), needed), evidence=DataTable(columns, tuple(rows)))


def _tail_probability(regret: Floats, more: int = 1) -> tuple[float, float, float]:
    """The two-sided tail probability of the quoted maximum among maxima of 200 trials, with bounds.

    Two interpretations are compared by both ends of their intervals, so each end gets a quarter of the error
    level. The bounds are those of `more` times as many trials with the same fractions.
    """
    events = int((regret >= QUOTED).sum())
    ends = binomial_bounds(events * more, regret.size * more, stricter(CONFIDENCE, 4))
    value, low, high = (_probability_in_200(each) for each in (events / regret.size, *ends))
    return 2 * min(value, 1 - value), 2 * min(low, 1 - high), min(2 * min(high, 1 - low), 1.0)
