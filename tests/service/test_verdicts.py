"""The verdict in words: every case has a sensible sentence, and a best arm is hardly ever ruled out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from maillard import Bandit, Reward
from maillard import wire_schema as wire
from maillard.evaluation.means import mean_intervals
from maillard.service.verdicts import CONFIDENCE, find_leaders, judge, ruled_out


def arm(
    name: str, final: int = 0, wins: float = 0, probability: float | None = None, **more: Any
) -> wire.ArmState:
    given = {"active": True, "pending": 0, "missing": 0} | more
    return wire.ArmState(
        arm=name, pulls=final, sum=wins, final=final, mean=wins / final if final else None,
        lower=None, upper=None, probability=probability, log_probability=None, **given,
    )  # fmt: skip


def verdict(arms: list[wire.ArmState], refusal: str | None = None, **more: Any) -> wire.Verdict:
    """The verdict with the intervals that the service computes."""
    if refusal is None and arms:
        level = 1 - (1 - CONFIDENCE) / len(arms)
        found = mean_intervals([a.final for a in arms], [a.sum for a in arms], 0, 1, level)
        for each, (lower, upper) in zip(arms, found, strict=True):
            each.lower, each.upper = lower, upper
            if each.probability is None:
                each.probability = 1 / len(arms)
    given = {"status": "running", "by_context": False} | more
    return judge(arms, refusal=refusal, **given)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
MANY = [arm(f"arm {n}", 2, 1) for n in range(1000)]
BAD = [arm(f"bad {n}", 900, 90) for n in range(5)]
CASES: dict[str, tuple[wire.Verdict, str]] = {
    "the example": (
        verdict([arm("green", 1500, 600), arm("blue", 600, 120), arm("orange", 700, 210)]),
        "green leads; blue is ruled out; orange is undecided, about 1,000 more decisions needed.",
    ),
    "all others are ruled out": (
        verdict([arm("green", 900, 600), arm("blue", 600, 120)]), "green is best: blue is ruled out."
    ),
    "many arms are ruled out": (
        verdict([arm("green", 900, 600), *BAD]), "green is best: all 5 other arms are ruled out."
    ),
    "an arm with few rewards does not lead": (
        verdict([arm("green", 3000, 900), arm("blue", 600, 60), arm("orange", 2, 2)]),
        "green leads; blue is ruled out; orange is undecided, not enough data.",
    ),
    "an arm without rewards": (
        verdict([arm("green", 900, 300), arm("new", 0, 0)]),
        "green leads; new is undecided, not enough data.",
    ),
    "means that are nearly equal": (
        verdict([arm("green", 900, 301), arm("blue", 900, 300)]),
        "green leads; blue is undecided, too close to tell.",
    ),
    "all arms equal": (
        verdict([arm("green", 900, 300), arm("blue", 900, 300)]),
        "No arm leads yet; green and blue are undecided, too close to tell.",
    ),
    "an arm that is hardly ever chosen": (
        verdict([arm("green", 900, 400, 1.0), arm("blue", 200, 75, 1e-12)]),
        "green leads; blue is undecided, more than 10 million more decisions needed.",
    ),
    "pending rewards may decide": (
        verdict([arm("green", 900, 400, pending=4000), arm("blue", 600, 230, pending=4000)]),
        "green leads; blue is undecided, which the rewards that are still pending may decide.",
    ),
    "a retired arm does not count": (
        verdict([arm("green", 900, 600), arm("blue", 600, 120), arm("old", 900, 890, active=False)]),
        "green is best: blue is ruled out.",
    ),
    "paused": (
        verdict([arm("green", 900, 600), arm("blue", 600, 120)], status="paused"),
        "green is best: blue is ruled out. The experiment is paused.",
    ),
    "archived: no more decisions": (
        verdict([arm("green", 900, 400), arm("blue", 600, 230)], status="archived"),
        "green leads; blue is undecided. The experiment is archived.",
    ),
    "no rewards": (verdict([arm("green"), arm("blue")]), "No verdict yet: there are no rewards."),
    "no final rewards": (
        verdict([arm("green", pending=5), arm("blue", pending=2)], refusal="No window has closed yet."),
        "No verdict yet: 7 decisions wait for a reward.",
    ),
    "few rewards": (
        verdict([arm("green", 3, 2), arm("blue", 2, 0)]),
        "No verdict yet: not enough data (5 rewards for 2 arms).",
    ),
    "no intervals": (
        verdict([arm("green", 300, 600), arm("blue", 200, 100)], refusal="the range is unknown"),
        "green has the highest mean so far, but there is no verdict, because some or all arms have no valid "
        "confidence interval.",
    ),
    "one arm": (verdict([arm("green", 3, 2)]), "green is the only arm, so there is nothing to compare."),
    "one active arm": (
        verdict([arm("green", 3, 2), arm("old", 9, 8, active=False)]),
        "green is the only arm, so there is nothing to compare.",
    ),
    "contexts": (
        verdict([arm("green", 900, 600), arm("blue", 600, 120)], refusal="contexts", by_context=True),
        "No verdict on single arms, because the policy chooses by the context. Compare arms and rules with "
        "an evaluation (What if?).",
    ),
    "arms of each decision": (
        verdict([], refusal="actions", by_context=True),
        "No verdict, because every decision has its own arms. Compare rules with an evaluation (What if?).",
    ),
    "a thousand arms": (verdict(MANY), "No verdict yet: not enough data (2,000 rewards for 1,000 arms)."),
    "a thousand arms, one of them good": (
        verdict([arm("good", 9000, 8000), *(arm(f"{n}", 100, 20 + 65 * (n < 9)) for n in range(999))]),
        "good leads; 990 arms are ruled out; 9 arms are undecided, about 3,000,000 more decisions needed.",
    ),
    "names with punctuation and long names": (
        verdict([arm("Buy now; blue is best", 900, 600), arm("x" * 100, 600, 120)]),
        f"“Buy now; blue is best” is best: “{'x' * 39}…” is ruled out.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_case_has_a_sentence(name) -> None:
    found, expected = CASES[name]
    assert found.text == expected
    assert found.explanation
    assert "".join(part.text for part in found.parts) == expected


def test_the_parts_of_a_text_name_their_arms() -> None:
    """Also if a name looks like a part of the sentence, or like a place in it."""
    found = verdict([arm("{1}", 900, 600), arm("is best", 600, 120), arm("x" * 100, 600, 120)])
    assert [(part.text, part.arm) for part in found.parts] == [
        ("“{1}”", "{1}"), (" is best: ", None), ("is best", "is best"), (" and ", None),
        (f"“{'x' * 39}…”", "x" * 100), (" are ruled out.", None),
    ]  # fmt: skip


def test_the_standing_of_each_arm() -> None:
    arms = [
        arm("green", 1500, 600),
        arm("blue", 600, 120),
        arm("orange", 700, 210),
        arm("old", 5, 5, active=False),
    ]
    found = verdict(arms)
    assert (found.leader, found.best) == ("green", False)
    assert [each.standing for each in arms] == ["leads", "ruled out", "undecided", None]
    assert "95%" in found.explanation


def test_the_extrapolation_is_about_right() -> None:
    """After so many more decisions with the same means, the arm is ruled out; after half as many, not."""
    for wins in (210, 230):
        arms = [arm("green", 1500, 600, 0.7), arm("orange", 700, wins, 0.3)]
        verdict(arms)
        more = arms[1].more_decisions
        assert more is not None
        for factor, expected in ((0.5, False), (1.3, True)):
            sizes = np.array([1500 + 0.7 * factor * more, 700 + 0.3 * factor * more])
            bounds = mean_intervals(sizes, sizes * [600 / 1500, wins / 700], 0, 1, 1 - 0.05 / 2)
            lower, upper = np.array(bounds, float).T
            assert ruled_out(lower, upper).tolist() == [False, expected]


def test_a_best_arm_is_ruled_out_in_at_most_alpha_of_the_experiments_even_if_watched_at_every_step() -> None:
    """All arms are equal, so every arm that is ruled out is a false one. The policy is adaptive (greedy)."""
    alpha, runs, steps, arms, rate = 0.2, 1000, 400, 3, 0.5
    rng = np.random.default_rng(7)
    counts, wins = np.zeros((runs, arms), int), np.zeros((runs, arms), int)
    n, s = np.indices((steps + 1, steps + 1))
    s = np.minimum(n, s)
    bounds = np.array(mean_intervals(n.ravel(), s.ravel(), 0, 1, 1 - alpha / arms)).reshape(*n.shape, 2)
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # the negative control: normal intervals at one level
        half = 1.282 * np.sqrt(s / n * (1 - s / n) / n)
        naive = np.stack([s / n - half, s / n + half], axis=-1)
    false, missed, false_naive = np.zeros((3, runs), bool)
    every = np.arange(runs)
    for step in range(steps):
        greedy = np.argmax((wins + 1) / (counts + 2), axis=1)
        chosen = np.where(rng.random(runs) < 0.5, greedy, rng.integers(arms, size=runs))
        counts[every, chosen] += 1
        wins[every, chosen] += rng.random(runs) < rate
        found = bounds[counts, wins]
        false |= ruled_out(found[..., 0], found[..., 1]).any(axis=1)
        missed |= ((found[..., 0] > rate) | (found[..., 1] < rate)).any(axis=1)
        if step >= 100:
            found = naive[counts, wins]
            false_naive |= ruled_out(found[..., 0], found[..., 1]).any(axis=1)
    tolerance = 3 * np.sqrt(alpha * (1 - alpha) / runs)
    assert 0 < false.mean() <= missed.mean() <= alpha + tolerance
    assert false_naive.mean() > alpha + tolerance


def test_the_leaders_of_a_list_are_those_of_the_verdicts() -> None:
    rules = [Reward(low=0, high=1), Reward(low=-2, high=6), Reward(), Reward.clicks(window=60)]
    rng, states, expected = np.random.default_rng(3), [], []
    for number in range(40):
        rule, count = rules[number % len(rules)], 2 + number % 3
        bandit = Bandit([f"arm {n}" for n in range(count)], "uniform", reward=rule, clock=lambda: NOW)
        decisions = bandit.choose(size=int(rng.integers(1, 300)))
        if rule.window is None:
            means = {f"arm {n}": 0.3 + 0.25 * n for n in range(count)}
            bandit.rewards(
                [{"decision": d.id, "value": float(rng.random() < means[d.arm])} for d in decisions]
            )
        state = bandit.state
        arms = [
            arm(name, int(pulls), total)
            for name, pulls, total in zip(state.arms, state.tally.pulls, state.tally.sums, strict=True)
        ]
        for each, bounds in zip(
            arms,
            mean_intervals(
                state.tally.pulls,
                state.tally.sums,
                low=rule.range[0] if rule.range else 0,
                high=rule.range[1] if rule.range else 1,
                confidence=1 - (1 - CONFIDENCE) / count,
            ),
            strict=True,
        ):
            if rule.range is not None:
                each.lower, each.upper = bounds
        refusal = None if rule.range is not None else "no range"
        states.append(state)
        expected.append(judge(arms, status="running", refusal=refusal, by_context=False).leader)
    assert find_leaders(states) == expected
    assert None in expected
    assert {"arm 1", "arm 2", "arm 3"} <= set(expected)
    assert find_leaders([]) == []
