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
NEAR = 1.25  # the factor within which a maximum counts as the quoted one
MS16 = "ms+:booster=16"


def readings(results: Results) -> dict[str, Floats]:
    """Final regrets of MS+16 on two arms under each reading of noise and sigma2, the likelier first."""
    quarter, one = "gaussian-equal:arms=2", "gaussian-equal:arms=2,variance=1"
    found = {
        "variance 1, sigma2 1": results.regret("maximum", one, MS16),
        "variance 1/4, sigma2 1/4": results.regret("maximum", quarter, MS16),
    }
    if "mismatch" in results.experiments():
        found["variance 1, sigma2 1/4"] = results.regret("mismatch", one, f"{MS16},sigma2=0.25")
    return found


@tests("far-from-linear")
def far_from_linear(results: Results, _reading: str) -> Finding:
    """How likely the largest of 200 regrets is half of the possible."""
    half = results.result("maximum", "gaussian-equal:arms=2").rounds[-1] * 0.5 / 2
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
    """Under which reading the quoted maximum is likelier."""
    found = readings(results)
    first, second, *_ = found
    rng = np.random.default_rng(results.settings.seed)
    (low, high), (low_other, high_other) = (_limits(found[name], rng) for name in (first, second))
    at_least, at_most = low / high_other, high / max(low_other, 1e-12)
    word = "holds" if at_least > 1 else "fails" if at_most < 1 else "open"
    said = (
        f"a maximum of 200 within a factor of {NEAR} of {QUOTED} has probability {_near(found[first]):.3f} under {first}, and {_near(found[second]):.3f} "
        f"(at most {high_other:.3f}) under {second}: at least ×{at_least:.2g}"
    )
    rows: list[tuple[str | int | float, ...]] = []
    for name, regret in found.items():
        events = int((regret >= QUOTED).sum())
        chances = (events / regret.size, *share(events, regret.size))
        middle = tuple(
            float(np.quantile(regret, q ** (1 / 200), method="higher")) for q in (0.025, 0.5, 0.975)
        )
        rows.append((name, events, regret.size, *(_of_200(each) for each in chances), _near(regret), *middle))
    columns = (
        "noise and sigma2", f"regrets ≥ {QUOTED}", "trials", f"P(maximum of 200 ≥ {QUOTED})", "at least (95%)", "at most (95%)",
        "P(maximum near it)", "2.5% of maxima", "median maximum", "97.5%",
    )  # fmt: skip
    needed = 4 * found[second].size if word == "open" else None
    return Finding(said, verdict=Verdict(word, needed), evidence=Table(columns, tuple(rows)))


def _near(regret: Floats) -> float:
    """The probability that the largest of 200 lies within the factor of the quoted one."""
    below = [float((regret < bound).mean()) ** 200 for bound in (QUOTED / NEAR, QUOTED * NEAR)]
    return below[1] - below[0]


def _limits(regret: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Bounds on that probability. Two are compared, so each has half of the error that is allowed.

    The lower is a quantile of resampled trials; the upper, which must not be 0 where none came near, bounds the
    probability that the largest is near or beyond.
    """
    error = (1 - CONFIDENCE) / 2
    resampled = [_near(rng.choice(regret, regret.size)) for _ in range(400)]
    beyond = int((regret >= QUOTED / NEAR).sum())
    return float(np.quantile(resampled, error)), _of_200(share(beyond, regret.size, 1 - error)[1])
