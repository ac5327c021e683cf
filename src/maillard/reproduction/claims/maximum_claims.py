"""Claims on the largest regret that the paper quotes, and on the noise, which the paper does not state."""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats
from maillard.reproduction.claim_statistics import CONFIDENCE, binomial_bounds, judge_counts, stricter
from maillard.reproduction.claims.comparison_claims import MS16
from maillard.reproduction.claims.findings import Finding, tests
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.report_content import DataTable

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
        def bounds(confidence: float) -> list[tuple[float, float]]:
            return [binomial_bounds(more * events, more * trials, confidence) for events, trials in counts]

        if any(_probability_in_200(low) > 0.5 for low, _ in bounds(stricter(CONFIDENCE, 2))):
            return "fails"
        low_enough = all(_probability_in_200(high) < 0.5 for _, high in bounds(CONFIDENCE))
        return "holds" if low_enough else "open"

    rows, texts = [], []
    for (name, regret), (events, trials) in zip(found.items(), counts, strict=True):
        low, high = (_probability_in_200(end) for end in binomial_bounds(events, trials))
        row = {
            "noise and sigma2": name,
            f"regrets ≥ {tenth:,.0f}": events,
            "trials": trials,
            "largest": float(regret.max()),
            f"of 200, at least ({CONFIDENCE:.0%})": low,
            f"of 200, at most ({CONFIDENCE:.0%})": high,
        }
        rows.append(row)
        reached = f"{events} of {trials:,} trials reach {tenth:,.0f}"
        texts.append(f"{name}: {reached}, the largest is {regret.max():,.1f}")
    verdict = judge_counts(outcome, counts[0][1])
    return Finding("; ".join(texts), verdict=verdict, evidence=DataTable.of(rows))


@tests("maximum")
def maximum(results: ExperimentResults, _where: str) -> Finding:
    """Under which interpretation of the noise the quoted maximum is less extreme."""
    found = readings(results)
    first, second, *_ = found.values()

    def outcome(more: int) -> str:
        _, low, high = _tail_probability(first, more)
        _, low_other, high_other = _tail_probability(second, more)
        return "holds" if low > high_other else "fails" if high < low_other else "open"

    rows, texts = [], []
    for name, regret in found.items():
        events = int((regret >= QUOTED).sum())
        value, least, most = _tail_probability(regret)
        texts.append(
            f"under {name} the two-sided tail probability of {QUOTED} is {value:.3f} (from {least:.3f} to "
            f"{most:.3f})"
        )
        quantiles = [np.quantile(regret, q ** (1 / 200), method="higher") for q in (0.025, 0.5, 0.975)]
        row = {
            "noise and sigma2": name,
            f"regrets ≥ {QUOTED}": events,
            "trials": regret.size,
            f"P(maximum of 200 ≥ {QUOTED})": _probability_in_200(events / regret.size),
            "two-sided tail probability": value,
            "at least": least,
            "at most": most,
            "2.5% of maxima": float(quantiles[0]),
            "median maximum": float(quantiles[1]),
            "97.5%": float(quantiles[2]),
        }
        rows.append(row)
    verdict = judge_counts(outcome, first.size)
    return Finding("; ".join(texts[:2]), verdict=verdict, evidence=DataTable.of(rows))


def _tail_probability(regret: Floats, more: int = 1) -> tuple[float, float, float]:
    """The two-sided tail probability of the quoted maximum among maxima of 200 trials, with bounds.

    Two interpretations are compared by both ends of their intervals, so each end gets a quarter of the error
    level. The bounds are those of `more` times as many trials with the same fractions.
    """
    events = int((regret >= QUOTED).sum())
    ends = binomial_bounds(events * more, regret.size * more, stricter(CONFIDENCE, 4))
    value, low, high = (_probability_in_200(each) for each in (events / regret.size, *ends))
    return 2 * min(value, 1 - value), 2 * min(low, 1 - high), min(2 * min(high, 1 - low), 1.0)
