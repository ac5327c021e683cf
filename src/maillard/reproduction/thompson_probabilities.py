"""Probabilities of Thompson sampling: compared with MS on two arms, and estimated by simulation."""

from __future__ import annotations

import functools
import timeit
from typing import NamedTuple

import numpy as np

from maillard.array_types import Floats
from maillard.policies import policy
from maillard.problems import problem
from maillard.simulation.cpu_backend import run_trials
from maillard.simulation.plans import make_plan
from maillard.tally import Tally

ARMS = (10, 100)
DRAWS = (100, 1000, 10_000)
# The columns of `by_simulation`.
COLUMNS = (
    "arms",
    "draws of every score",
    "largest error of a probability",
    "relative error, median",
    "arms above 1e-6 never drawn",
    "draws that 10% would take",
)
_PRECISION = 0.1  # relative error of an estimated probability
_RARE = 1e-6  # smaller probabilities are ignored
_NORMAL = 1.959964  # 95%, two-sided


class TwoArms(NamedTuple):
    """Log probabilities of the worse of two arms, by x = N d² / 2, for a variance of 1.

    The better arm has 10⁶ times as many pulls.
    """

    x: Floats
    thompson: Floats
    maillard: Floats
    bound: Floats  # the paper's, from erfc


@functools.cache
def two_arms() -> TwoArms:
    """The exact probabilities over a range of x, as compared in the appendix of the paper."""
    x = np.concatenate([[0.01, 0.03, 0.1, 0.3], np.geomspace(1, 100, 21)])
    pulls = 100
    ts, ms = policy("ts", sigma2=1.0), policy("ms", sigma2=1.0)
    gaps = np.sqrt(2 * x / pulls)
    tallies = [Tally([10**6 * pulls, pulls], [0.0, -gap * pulls]) for gap in gaps]
    thompson, maillard = (
        np.array([each.log_probabilities(tally)[1] for tally in tallies]) for each in (ts, ms)
    )
    # ½ exp(-z²) / (z √π), z = d / (√2 ω) and ω² = 1/T₁ + 1/T₂.
    z = gaps / np.sqrt(2 * (1 / pulls + 1 / (10**6 * pulls)))
    return TwoArms(x, thompson, maillard, np.log(0.5) - z**2 - np.log(z * np.sqrt(np.pi)))


def _state(arms: int, seed: int) -> Tally:
    """The tally of Thompson sampling after 50 rounds per arm on a linear Gaussian problem."""
    plan = make_plan("ts", problem(f"gaussian-linear:arms={arms}"), 50 * arms, seed)
    return run_trials(plan, 0, 1).tally


@functools.cache
def by_simulation(seed: int) -> tuple[tuple[int, int, float, float, int, float], ...]:
    """Errors of simulated probabilities, for each number of arms and of samples, in the order of `COLUMNS`.

    Relative errors, and the number of samples that gives a relative error of 10% with a confidence of 95%,
    are for arms with a probability above one in a million.
    """
    rows = []
    for arms in ARMS:
        tally = _state(arms, seed)
        exact = policy("ts", sigma2=0.25).probabilities(tally)
        asked = exact > _RARE
        # The relative error of a fraction of n samples is sqrt((1 - p) / (n p)).
        needed = float((_NORMAL / _PRECISION) ** 2 * ((1 - exact) / exact)[asked].max())
        rng = np.random.default_rng(seed)
        for draws in DRAWS:
            drawn = _draw(tally, draws, rng)
            error = np.abs(drawn - exact)
            relative = float(np.median((error / exact)[asked]))
            never = int((drawn[asked] == 0).sum())
            rows.append((arms, draws, float(error.max()), relative, never, needed))
    return tuple(rows)


def _draw(tally: Tally, draws: int, rng: np.random.Generator) -> Floats:
    """The fraction of samples in which each arm has the largest Gaussian score."""
    deviation = np.sqrt(0.25 / tally.pulls)
    winners = np.argmax(tally.means + deviation * rng.standard_normal((draws, tally.pulls.size)), axis=1)
    return np.bincount(winners, minlength=tally.pulls.size) / draws


@functools.cache
def seconds(seed: int) -> tuple[tuple[int, str, float], ...]:
    """Arms, method, and time in seconds for one vector of probabilities, the best of several measurements."""
    rows = []
    rng = np.random.default_rng(seed)
    ms, ts = policy("ms", sigma2=0.25), policy("ts", sigma2=0.25)
    for arms in ARMS:
        tally = _state(arms, seed)
        methods: dict[str, functools.partial[Floats]] = {
            "MS, closed form": functools.partial(ms.probabilities, tally),
            "TS, quadrature": functools.partial(ts.probabilities, tally),
        }
        methods |= {f"TS, {draws:,} draws": functools.partial(_draw, tally, draws, rng) for draws in DRAWS}
        rows += [(arms, how, min(timeit.repeat(run, number=1, repeat=7))) for how, run in methods.items()]
    return tuple(rows)
