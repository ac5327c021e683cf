"""Situations of real life, each with the questions that a user would ask and their true answers.

A scenario is a function of a random generator. It returns a `Case`: a log that `maillard.evaluate` accepts,
and questions about it. `SCENARIOS` lists them by name. Unless a scenario says otherwise, two arms a and b
have click rates of 0.20 and 0.25, and KL-MS+ with a floor of 0.1 chooses between them 2,000 times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal
from zlib import crc32

import numpy as np
from scipy import special

from benchmarks.coverage.real_life_logs import (
    FLOORED,
    Bools,
    Floats,
    Ints,
    Recorded,
    Setup,
    foreign_log,
    own_log,
    simulate,
    until,
)
from maillard import Tally

__all__ = ["SCENARIOS", "Case", "Question", "Scenario", "case_of"]

Generator = np.random.Generator
Kind = Literal["value", "difference", "separate", "winner", "extremes"]

ROWS = 2000
RATES = (0.20, 0.25)
FREE = "kl-ms+"  # without a floor


@dataclass(frozen=True)
class Question:
    """A question about a log.

    - value: the mean reward of an arm;
    - difference: that of the first arm minus that of the second, by `compare`;
    - separate: the same, by two evaluations;
    - winner: the mean reward of the arm with the largest estimate;
    - extremes: the difference of the arms with the largest and the smallest estimate.
    """

    name: str
    kind: Kind
    arms: tuple[str, ...]
    truth: float
    "The true answer; of all arms alike for a winner, and of all pairs for extremes."
    options: Mapping[str, Any] = field(default_factory=dict)
    "More options of `evaluate` and `compare`."


@dataclass(frozen=True, eq=False)
class Case:
    """A log, and questions about it. Several logs are looks at a growing one."""

    logs: tuple[Any, ...]
    questions: tuple[Question, ...]
    recorded: Recorded
    "What was simulated, before anything was lost or sorted."


@dataclass(frozen=True)
class Scenario:
    """A function that makes cases, and what it is about."""

    make: Callable[[Generator], Case]
    item: str
    "The number of the situation, or `control`."
    expected: str
    "What is wrong in it, or must keep working."


def _constant(*rates: float, rows: int = ROWS) -> Floats:
    return np.tile(np.array(rates), (rows, 1))


def value(
    recorded: Recorded, arm: str, part: Bools | None = None, name: str = "", **options: Any
) -> Question:
    """The mean reward of an arm over the rows in which it was eligible, or a part of them."""
    place = recorded.setup.arms.index(arm)
    rows = recorded.eligible[:, place] if part is None else part
    return Question(name or arm, "value", (arm,), float(recorded.means[rows, place].mean()), options)


def difference(
    recorded: Recorded, first: str, second: str, part: Bools | None = None, kind: Kind = "difference",
    **options: Any,
) -> Question:  # fmt: skip
    """The difference of two arms over the rows in which both were eligible, or a part of them."""
    places = [recorded.setup.arms.index(arm) for arm in (first, second)]
    rows = recorded.eligible[:, places].all(axis=1) if part is None else part
    apart = recorded.means[rows][:, places] @ [1.0, -1.0]
    more = ", separately" if kind == "separate" else ", by unit" if "cluster" in options else ""
    return Question(f"{first} - {second}{more}", kind, (first, second), float(apart.mean()), options)


def _both(recorded: Recorded, **options: Any) -> tuple[Question, ...]:
    """The values of a and b, and their difference."""
    values = [value(recorded, arm, **options) for arm in ("a", "b")]
    return *values, difference(recorded, "b", "a", **options)


def _own(rng: Generator, means: Floats, setup: Setup) -> Case:
    recorded = simulate(rng, means, setup)
    return Case((own_log(recorded),), _both(recorded), recorded)


# 1 to 3: arms and rates that change.


def added_arm(rng: Generator) -> Case:
    """Arm c is added midway; then a season multiplies all rates by 1.75. It is 5% worse than a."""
    means = _constant(0.30, 0.25, 0.285, rows=2 * ROWS)
    means[ROWS:] *= 1.75
    setup = Setup(arms=("a", "b", "c"), changes={ROWS: ("add_arm", "c")}, batch=50)
    recorded = simulate(rng, means, setup)
    compared = [difference(recorded, "c", "a", kind=kind) for kind in ("difference", "separate")]
    return Case((own_log(recorded),), (*compared, value(recorded, "a"), value(recorded, "c")), recorded)


def ramp(rng: Generator) -> Case:
    """Two equal arms: 95% and 5% on weekdays, 50% each at the weekend, when all rates are doubled."""
    means, weekend = _constant(0.1, 0.1, rows=2 * ROWS), 2800
    means[weekend:] *= 2.0
    setup = Setup(policy="dist:a=0.95,b=0.05", changes={weekend: ("policy", "dist:a=0.5,b=0.5")}, batch=100)
    recorded = simulate(rng, means, setup)
    apart = difference(recorded, "b", "a", kind="separate")
    return Case((own_log(recorded),), (*_both(recorded), apart), recorded)


def eligibility(rng: Generator) -> Case:
    """40% of visitors are premium: they convert at 0.50 and may not see b. For others b is better than a."""
    premium = rng.random(ROWS) < 0.4
    means = _constant(0.10, 0.13)
    means[premium] = 0.5
    recorded = simulate(rng, means, Setup(eligible=np.stack([np.ones_like(premium), ~premium], axis=1)))
    apart = difference(recorded, "b", "a", kind="separate")
    return Case((own_log(recorded),), (*_both(recorded), apart), recorded)


def _fractions() -> Floats:
    return np.arange(ROWS) / ROWS


TRENDS: dict[str, Callable[[], Floats]] = {
    "stationary": lambda: np.ones(ROWS),
    "rise": lambda: np.linspace(0.4, 1.6, ROWS),
    "fall": lambda: np.linspace(1.6, 0.4, ROWS),
    "step": lambda: np.where(_fractions() < 0.5, 0.6, 1.4),
    "day and night": lambda: 1.0 + 0.6 * np.sin(2 * np.pi * 7 * _fractions()),
}


def trend(rng: Generator, *, factor: str, policy: str) -> Case:
    """A factor that multiplies the rates of both arms."""
    return _own(rng, _constant(*RATES) * TRENDS[factor]()[:, None], Setup(policy=policy))


def novelty(rng: Generator, *, policy: str) -> Case:
    """The new arm b is as good as a, and better at first: an extra that decays."""
    means = _constant(0.20, 0.20)
    means[:, 1] += 0.2 * np.exp(-8 * _fractions())
    return _own(rng, means, Setup(policy=policy))


# 4: files of other programs.


def foreign(rng: Generator, *, order: str, time: bool, every: bool = True) -> Case:
    """A file that was sorted, or has every row twice."""
    recorded = simulate(rng, _constant(*RATES), Setup())
    rows: Ints = np.arange(ROWS)
    if order == "by arm":
        rows = np.argsort(recorded.arm, kind="stable")
    elif order == "by reward":
        rows = np.argsort(recorded.reward, kind="stable")
    elif order == "duplicated":
        rows = np.repeat(rows, 2)
    return _foreign_case(recorded, foreign_log(recorded, rows, time=time, every=every), every=every)


def _foreign_case(recorded: Recorded, log: Any, *, every: bool = True) -> Case:
    known: dict[str, Any] = {"reward_range": (0.0, 1.0)} | ({"floor": 0.1} if every else {})
    return Case((log,), _both(recorded, **known), recorded)


# 5 to 8: rewards.

BUYERS = (0.02, 0.024)
SIGMA, MAX_REVENUE = 1.5, 2000.0
MEAN_SQUARE = 600.0  # what the analyst states: about 1.6 times the mean squared revenue of arm b
MU = math.log(50.0) - SIGMA**2 / 2


def mean_purchase() -> float:
    """The mean of a lognormal purchase that is cut off at the largest revenue."""
    cut = (math.log(MAX_REVENUE) - MU) / SIGMA
    below = math.exp(MU + SIGMA**2 / 2) * float(special.ndtr(cut - SIGMA))
    return below + MAX_REVENUE * float(special.ndtr(-cut))


def purchases(rng: Generator, means: Floats) -> Floats:
    """Revenues: most visitors buy nothing."""
    buys = rng.random(means.size) < means / mean_purchase()
    spent = np.minimum(np.exp(MU + SIGMA * rng.standard_normal(means.size)), MAX_REVENUE)
    return np.where(buys, spent, 0.0)


def revenue(rng: Generator) -> Case:
    """About 2% buy, for a lognormal amount; the mean revenue of a visitor is about 1."""
    means = _constant(*BUYERS) * mean_purchase()
    spec = f"ms+:floor=0.1,sigma2={int((MAX_REVENUE / 2) ** 2)}"
    case = _own(rng, means, Setup(policy=spec, sampler=purchases, reward_range=(0.0, MAX_REVENUE)))
    stated = {"second_moment": MEAN_SQUARE}
    more = tuple(
        replace(each, name=f"{each.name}, stated mean square", options={**each.options, **stated})
        for each in case.questions
    )
    return replace(case, questions=case.questions + more)


def late_conversions(rng: Generator) -> Case:
    """Half of b's conversions arrive after the window. It has 0.16 of them, a has 0.12 and all in time."""
    final, in_time = _constant(0.12, 0.16), _constant(0.12, 0.08)
    late = (final - in_time) / (1.0 - in_time)
    recorded = replace(simulate(rng, in_time, Setup(window=600, late=late)), means=final)
    return Case((own_log(recorded),), _both(recorded), recorded)


def repeat_visitors(rng: Generator, *, sticky: bool, units: int = 300) -> Case:
    """Visitors with a Pareto number of visits. Their own rates have an intraclass correlation of 0.19."""
    recorded, population = _visits(rng, units, sticky=sticky)
    questions = _both(population)
    if not sticky:
        questions += tuple(replace(each, name=each.name + ", by unit", options={"cluster": "unit"})
                           for each in questions)  # fmt: skip
    return Case((own_log(recorded),), questions, population)


def repeat_visitors_running(rng: Generator, *, sticky: bool) -> Case:
    """20 looks at the growing log of such visitors, while the experiment is running."""
    recorded, population = _visits(rng, 300, sticky=sticky)
    batches = math.ceil(recorded.rows / recorded.setup.batch)
    ends = [
        min(math.ceil(look * batches / 20) * recorded.setup.batch, recorded.rows) for look in range(1, 21)
    ]
    looks = tuple(until(recorded, rows) for rows in ends)
    return Case(
        looks,
        (value(population, "b", active=True), difference(population, "b", "a", active=True)),
        population,
    )


def _visits(rng: Generator, units: int, *, sticky: bool) -> tuple[Recorded, Recorded]:
    """What was recorded, with the rates of the visitors, and with the rates in their population."""
    mean, total = 0.3, 1 / 0.19 - 1
    visits = np.minimum(np.floor(3 * (1 + rng.pareto(1.5, units))), 150).astype(np.int64)
    own = rng.beta(total * mean, total * (1 - mean), units)
    who = rng.permutation(np.repeat(np.arange(units), visits))
    setup = Setup(units=[f"u{each}" for each in who.tolist()], sticky=sticky)
    recorded = simulate(rng, np.tile(own[who, None], (1, 2)), setup)
    return recorded, replace(recorded, means=np.full((who.size, 2), mean))


def one_missing(rng: Generator) -> Case:
    """One reward of 2,000 was never reported."""
    return _own(rng, _constant(*RATES), Setup(missing=[int(rng.integers(ROWS))]))


# 9 and 10: choosing after seeing the data.


def selection(rng: Generator) -> Case:
    """Ten equal arms: the interval of the winner, and the best against the worst."""
    arms = tuple("abcdefghij")
    recorded = simulate(rng, _constant(*[0.2] * 10, rows=2 * ROWS), Setup(arms=arms, batch=100))
    winner = Question("winner", "winner", arms, 0.2)
    return Case((own_log(recorded),), (winner, Question("best - worst", "extremes", arms, 0.0)), recorded)


def peeking(rng: Generator) -> Case:
    """20 looks at the growing log of two equal arms, while the experiment is running."""
    recorded = simulate(rng, _constant(0.2, 0.2), Setup(batch=50))
    looks = tuple(until(recorded, rows) for rows in range(ROWS // 20, ROWS + 1, ROWS // 20))
    questions = value(recorded, "b", active=True), difference(recorded, "b", "a", active=True)
    return Case(looks, questions, recorded)


# 12 to 15.


def rare_clicks(rng: Generator) -> Case:
    """Click rates of 0.5% and 0.7%, and no floor."""
    return _own(rng, _constant(0.005, 0.007, rows=2 * ROWS), Setup(policy=FREE, batch=100))


def reset(rng: Generator) -> Case:
    """A redesign changes the rates, and the experiment is reset. The question is about the new epoch."""
    means = _constant(0.30, 0.20)
    means[ROWS // 2 :] = 0.15, 0.20
    recorded = simulate(rng, means, Setup(changes={ROWS // 2: ("reset", "")}))
    last = recorded.epoch == 2
    values = [value(recorded, arm, last) for arm in ("a", "b")]
    return Case((own_log(recorded),), (*values, difference(recorded, "b", "a", last)), recorded)


def lost_rows(rng: Generator, *, own: bool, numbered: bool = False) -> Case:
    """20% of the rows with reward 0 are lost. `numbered`: a foreign file with a column of row numbers."""
    recorded = simulate(rng, _constant(*RATES), Setup())
    kept = (recorded.reward > 0) | (rng.random(ROWS) >= 0.2)
    if own:
        log = own_log(recorded)
        return Case((log.filter(kept),), _both(recorded), recorded)
    log = foreign_log(recorded, np.flatnonzero(kept), time=True, numbered=numbered)
    return _foreign_case(recorded, log)


def duplicated_clicks(rng: Generator) -> Case:
    """A foreign file in which every row with a click occurs twice."""
    recorded = simulate(rng, _constant(*RATES), Setup())
    rows = np.repeat(np.arange(ROWS), np.where(recorded.reward > 0, 2, 1))
    return _foreign_case(recorded, foreign_log(recorded, rows, time=True))


def late_probabilities(rng: Generator) -> Case:
    """A foreign file with the probabilities after the update with the row's own reward."""
    # Almost greedy, so that one reward often changes which arm is preferred.
    recorded = simulate(rng, _constant(*RATES, rows=400), Setup(policy="ms+:floor=0.1,sigma2=0.002", batch=1))
    logs = np.concatenate([recorded.logs[1:], recorded.logs[-1:]])
    return _foreign_case(recorded, foreign_log(recorded, time=True, logs=logs))


# Controls.


def short(rng: Generator) -> Case:
    """80 rows."""
    return _own(rng, _constant(*RATES, rows=80), Setup(batch=8))


def policy_changed(rng: Generator) -> Case:
    """The policy is changed midway, to one that depends on the rewards so far."""

    def chosen(tally: Tally) -> str:
        worse = tally.means[1] < tally.means[0]
        return "kl-ms+:floor=0.4" if worse else "ms+:floor=0.1,sigma2=0.25"

    return _own(rng, _constant(*RATES), Setup(changes={ROWS // 2: ("policy", chosen)}))


def _scenarios() -> dict[str, Scenario]:
    made = {
        "added arm": Scenario(added_arm, "1", "c appears to be better than a"),
        "ramp at the weekend": Scenario(ramp, "1b", "equal arms appear to differ"),
        "eligibility": Scenario(eligibility, "2", "b appears to be worse than a"),
    }
    for policy, name in ((FLOORED, "floor"), (FREE, "no floor")):
        for factor in TRENDS:
            control = factor == "stationary" or (factor == "day and night" and policy == FLOORED)
            expected = "must cover" if control else "intervals miss the average over the period"
            make = partial(trend, factor=factor, policy=policy)
            made[f"{factor}, {name}"] = Scenario(make, "control" if control else "3", expected)
        missed = "intervals miss the average over the period"
        made[f"novelty, {name}"] = Scenario(partial(novelty, policy=policy), "3", missed)
    for order in ("in order", "by arm", "by reward", "duplicated"):
        for time in (True, False):
            item = "control" if order == "in order" else "4"
            expected = "must cover" if item == "control" else "order or number of rows is wrong"
            name = f"file {order}, {'time' if time else 'no time'}"
            made[name] = Scenario(partial(foreign, order=order, time=time), item, expected)
    for order in ("in order", "by arm", "by reward"):
        item = "control" if order == "in order" else "4"
        make = partial(foreign, order=order, time=False, every=False)
        expected = "must cover" if item == "control" else "order of rows is wrong"
        made[f"file {order}, chosen probability only"] = Scenario(make, item, expected)
    return made | {
        "revenue": Scenario(revenue, "5", "a few buyers dominate the mean"),
        "late conversions": Scenario(late_conversions, "6", "b appears to be worse than a"),
        "repeat visitors": Scenario(partial(repeat_visitors, sticky=False), "7", "intervals too narrow"),
        "repeat visitors, sticky": Scenario(
            partial(repeat_visitors, sticky=True), "7", "intervals too narrow"
        ),
        "repeat visitors, 1,000 units": Scenario(
            partial(repeat_visitors, sticky=False, units=1000), "7", "intervals too narrow"
        ),
        "repeat visitors, running": Scenario(
            partial(repeat_visitors_running, sticky=False), "7", "intervals too narrow at some look"
        ),
        "repeat visitors, sticky, running": Scenario(
            partial(repeat_visitors_running, sticky=True), "7", "intervals too narrow at some look"
        ),
        "one missing reward": Scenario(one_missing, "8", "no answer"),
        "selection of ten": Scenario(selection, "9", "the winner's interval is too high"),
        "peeking": Scenario(peeking, "10", "equal arms appear to differ at some look"),
        "rare clicks, no floor": Scenario(rare_clicks, "12", "wide intervals"),
        "reset": Scenario(reset, "14", "epochs are mixed"),
        "lost zeros, export": Scenario(partial(lost_rows, own=True), "15", "values too high"),
        "lost zeros, file": Scenario(partial(lost_rows, own=False), "15", "values too high"),
        "lost zeros, file with row numbers": Scenario(
            partial(lost_rows, own=False, numbered=True), "15", "values too high"
        ),
        "duplicated clicks": Scenario(duplicated_clicks, "15", "values too high"),
        "probabilities after the update": Scenario(late_probabilities, "15", "values too low"),
        "80 rows": Scenario(short, "control", "must cover"),
        "policy changed after a look": Scenario(policy_changed, "control", "must cover"),
    }


SCENARIOS = _scenarios()


def case_of(name: str, seed: int, run: int) -> Case:
    """The case of one run of a scenario."""
    sequence = np.random.SeedSequence([seed, crc32(name.encode()), run])
    return SCENARIOS[name].make(np.random.default_rng(sequence))
