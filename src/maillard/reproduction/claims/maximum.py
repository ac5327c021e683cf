"""The largest regret that the paper quotes, and what it says of the noise that the paper does not state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from maillard.reproduction.claims.findings import Finding, tests
from maillard.reproduction.report import Table
from maillard.reproduction.results import Results
from maillard.reproduction.statistics import CONFIDENCE, Verdict, share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

QUOTED = 450.5
MS16 = "ms+:booster=16"


def readings(results: Results) -> dict[str, Floats]:
    """Final regrets of MS+16 on two arms under each reading of noise and sigma2, the likelier first."""
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


@tests("far-from-linear")
def far_from_linear(results: Results, _reading: str) -> Finding:
    """How likely the largest of 200 regrets is half of the possible."""
    half = results.result("maximum-1").rounds[-1] * 0.5 / 2
    rows = []
    for name, regret in list(readings(results).items())[:2]:
        events = int((regret >= half).sum())
        low, high = (_of_200(each) for each in share(events, regret.size))
        rows.append((name, events, regret.size, float(regret.max()), low, high))
    if any(low > 0.5 for *_, low, _high in rows):
        word = "fails"
    else:
        word = "holds" if all(high < 0.5 for *_, high in rows) else "open"
    said = "; ".join(
        f"{row[0]}: {row[1]} of {row[2]:,} trials reach {half:,.0f}, the largest is {row[3]:,.1f}"
        for row in rows
    )
    bounds = (f"of 200, at least ({CONFIDENCE:.0%})", f"of 200, at most ({CONFIDENCE:.0%})")
    columns = ("noise and sigma2", f"regrets ≥ {half:,.0f}", "trials", "largest", *bounds)
    needed = math.ceil(math.log(1 - CONFIDENCE) / math.log(0.5) * 200) if word == "open" else None
    return Finding(said, verdict=Verdict(word, needed), evidence=Table(columns, tuple(rows)))


def _of_200(probability: float) -> float:
    return float(-np.expm1(200 * np.log1p(-probability))) if probability < 1 else 1.0


@tests("maximum")
def maximum(results: Results, _reading: str) -> Finding:
    """Under which reading the quoted maximum is less of a surprise."""
    found = readings(results)
    first, second, *_ = found
    # Two are compared, so each has half of the error that is allowed.
    confidence = 1 - (1 - CONFIDENCE) / 2
    bounds = {name: _surprise(found[name], confidence) for name in (first, second)}
    (_, low, high), (_, low_other, high_other) = bounds[first], bounds[second]
    word = "holds" if low > high_other else "fails" if high < low_other else "open"
    said = "; ".join(
        f"under {name} the two-sided tail probability of {QUOTED} is {value:.3f} (from {least:.3f} to {most:.3f})"
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
                _of_200(events / regret.size),
                *_surprise(regret, confidence),
                *middle,
            )
        )
    columns = (
        "noise and sigma2", f"regrets ≥ {QUOTED}", "trials", f"P(maximum of 200 ≥ {QUOTED})", "two-sided tail probability", "at least (97.5%)",
        "at most (97.5%)", "2.5% of maxima", "median maximum", "97.5%",
    )  # fmt: skip
    needed = 4 * found[second].size if word == "open" else None
    return Finding(said, verdict=Verdict(word, needed), evidence=Table(columns, tuple(rows)))


def _surprise(regret: Floats, confidence: float) -> tuple[float, float, float]:
    """Twice the probability that the largest of 200 lies as far out as the quoted one, to the nearer side; and its bounds."""
    events = int((regret >= QUOTED).sum())
    above = [_of_200(each) for each in (events / regret.size, *share(events, regret.size, confidence))]
    value, low, high = above
    return 2 * min(value, 1 - value), 2 * min(low, 1 - high), min(2 * min(high, 1 - low), 1.0)
