"""Rewards that arrive late: when a decision counts, which rewards are final, and what may be concluded."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from maillard import Bandit, Reward, Tally, evaluate, read_log, verify
from maillard.decisions import import_log
from maillard.decisions.reward_rule import Learn
from maillard.errors import InvalidValue, MaillardError, PolicyHint
from maillard.evaluation.means import mean_intervals
from tests import late_clicks
from tests.stores import EXPERIMENT, Log, events

LEARN: tuple[Learn, ...] = ("on_close", "provisional", "on_arrival")
START = datetime(2026, 3, 1, tzinfo=UTC)


class SimulatedClock:
    """A clock that the test sets."""

    def __init__(self, time: datetime = START) -> None:
        self.time = time

    def read(self) -> datetime:
        return self.time


def rule(learn: Learn | None = None, **fields: Any) -> Reward:
    return Reward(**{"low": 0, "high": 1, "window": 60, "default": 0} | fields, learn=learn)


def test_the_default_depends_on_window_and_default() -> None:
    assert Reward(low=0, high=1, window="1m", default=0).learn == "on_close"
    assert Reward(low=0, high=1, window="1m").learn == "on_arrival"
    assert Reward(low=0, high=1).learn == "on_arrival"
    assert Reward.clicks("1h") == Reward(low=0, high=1, window=3600, default=0, learn="on_close", binary=True)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(90, 90), (1.5, 1.5), ("90s", 90), ("15m", 900), ("15 min", 900), ("1h", 3600), ("1.5h", 5400),
     ("2d", 172_800), ("1w", 604_800), (timedelta(days=2), 172_800)],
)  # fmt: skip
def test_durations(given, seconds) -> None:
    assert Reward(window=given).window == seconds


@pytest.mark.parametrize("bad", ["1", "h", "1 hour", "-1h", "1h30m", "", "1y", b"1h", True, [1], "1e3s"])
def test_invalid_durations_are_refused(bad) -> None:
    with pytest.raises(InvalidValue, match="reward: window: expected seconds, or a number with a unit"):
        Reward(window=bad)


@pytest.mark.parametrize(("mature_only", "learn"), [(True, "on_close"), (False, "on_arrival")])
def test_rules_of_earlier_versions(mature_only, learn) -> None:
    fields = {"low": 0.0, "high": 1.0, "window": 60.0, "default": 0.0, "combine": "first"}
    assert Reward.from_fields(fields | {"mature_only": mature_only}) == Reward(**fields, learn=learn)


# When a decision counts.


def test_provisional_rewards_count_at_once_and_are_revised(log: Log) -> None:
    bandit = log.bandit(reward=rule("provisional", default=0.25, combine="sum"))
    made = [bandit.choose() for _ in range(3)]
    assert bandit.tally.pulls.sum() == 3
    assert bandit.tally.sums.sum() == 0.75
    assert [each.state for each in made] == [1, 2, 3]  # each default is an event
    assert bandit.reward(made[0], 0.5, event="a") == "revised"
    assert bandit.reward(made[0], 0.25, event="b") == "revised"
    assert bandit.reward(made[1], 0.25) == "unchanged"
    assert bandit.tally.sums.sum() == 1.25
    log.clock.forward(60)
    bandit.settle()
    assert bandit.reward(made[2], 1) == "late"
    log.clock.forward(-30)  # a closed window stays closed if the clock is set back
    assert bandit.reward(made[1], 1, event="more") == "late"
    kinds = [event.kind for event in events(bandit._store)]
    assert kinds == ["start", "default", "default", "default", "revision", "revision"]
    assert verify(bandit).problem_count == 0


def test_batches_appended_decisions_and_epochs_under_provisional(log: Log) -> None:
    bandit = log.bandit(reward=rule("provisional"))
    batch = bandit.choose(size=4)
    assert {each.state for each in batch} == {1}
    assert bandit.tally.pulls.sum() == 4
    bandit.reset()
    assert bandit.reward(batch[0], 1) == "old epoch"
    assert bandit.tally.pulls.sum() == 0
    # Another process made these decisions but could not log them; a reward is already here.
    other = Bandit(["red", "blue"], "ms", reward=rule("provisional"), experiment=EXPERIMENT)
    elsewhere = [row._replace(epoch=2, state=6, time=log.clock.now) for row in other.choose(size=2)]
    assert bandit.reward(elsewhere[0].id, 1) == "parked"
    assert bandit.append(elsewhere) == 2
    assert bandit.tally.sums.sum() == 1
    assert bandit.tally.pulls.sum() == 2


@pytest.mark.parametrize("learn", LEARN)
def test_the_order_of_rewards_does_not_matter(learn) -> None:
    """Any order of the same rewards gives the same tally, to the last bit, before and after the close."""
    seen = set()
    for order in itertools.islice(itertools.permutations(range(5)), 0, None, 7):
        now = SimulatedClock()
        bandit = Bandit(["a", "b"], "ms", reward=rule(learn, combine="sum"), clock=now.read, seed=3)
        made = bandit.choose(size=3)
        offered = [(made[0], 0.1, "x"), (made[0], 0.2, "y"), (made[1], 0.3, "x"), (made[0], 0.15, "z"),
                   (made[1], 0.6, "y")]  # fmt: skip
        for index in order:
            now.time += timedelta(seconds=1)
            decision, value, event = offered[index]
            bandit.reward(decision, value, event=event, at=START)
        before = bandit.tally.to_json()
        now.time = START + timedelta(seconds=100)
        bandit.settle()
        assert verify(bandit).problem_count == 0
        seen.add((before, bandit.tally.to_json(), bandit.summary()["arms"]["a"]["mean"]))
    assert len(seen) == 1


def test_after_the_windows_have_closed_all_methods_agree() -> None:
    tallies = []
    for learn in LEARN:
        now = SimulatedClock()
        bandit = Bandit(["a", "b"], "uniform", reward=rule(learn), clock=now.read, seed=1)
        for n in range(200):
            now.time += timedelta(seconds=1)
            decision = bandit.choose()
            if n % 3 == 0:
                bandit.reward(decision, 1)
        now.time += timedelta(seconds=60)
        bandit.settle()
        tallies.append(bandit.tally)
        assert bandit.summary()["pending"] == 0
    assert tallies[0] == tallies[1] == tallies[2]


# Final rewards.


@pytest.mark.parametrize("learn", LEARN)
def test_means_use_closed_windows_only(log: Log, learn) -> None:
    bandit = log.bandit(policy="uniform", reward=rule(learn))
    early = bandit.choose(size=40)
    for decision in early[:10]:
        bandit.reward(decision, 1)
    summary = bandit.summary()
    assert summary["pending"] == 40
    assert {each["mean"] for each in summary["arms"].values()} == {None}
    assert "No window has closed yet: 40 decisions are open. The first window closes at" in summary["refusal"]
    log.clock.forward(40)
    recent = bandit.choose(size=30)
    for decision in recent:
        bandit.reward(decision, 1)  # fast clicks, which would bias the means
    log.clock.forward(30)
    summary = bandit.summary()
    assert summary["refusal"] is None
    assert summary["pending"] == 30
    assert summary["next_close"] == recent[0].at + timedelta(seconds=60)
    for arm, found in summary["arms"].items():
        mine = [n for n, each in enumerate(early) if each.arm == arm]
        assert found["final"] == len(mine)
        assert found["mean"] == sum(n < 10 for n in mine) / len(mine)
        assert found["pending"] == sum(each.arm == arm for each in recent)
    assert sum(each["pulls"] for each in summary["arms"].values()) == {"on_close": 40}.get(learn, 70)
    bandit.reset()
    assert bandit.summary()["pending"] == 0  # of this epoch


def test_the_values_of_open_windows_are_removed_exactly() -> None:
    tally = Tally.empty(1)
    for value in (0.1, 0.2, 0.3, 1e-20):
        tally.add(0, value)
    for value in (0.3, 0.1, 0.2):
        tally.remove(0, value)
    assert (tally.pulls[0], tally.sums[0], tally.round) == (1, 1e-20, 2)
    with pytest.raises(InvalidValue, match="at least 2 observed rewards"):
        tally.remove(0, 1e-20, 2)


def test_only_reported_clicks_are_a_biased_subset() -> None:
    """Without a default, a decision without a click never counts: the means are 1, so they are refused."""
    for options in ({}, {"window": 60}):
        now = SimulatedClock()
        bandit = Bandit(
            ["a", "b"],
            "uniform",
            reward=Reward(low=0, high=1, **options),
            clock=now.read,
            seed=1,
        )
        for decision in bandit.choose(size=100)[:8]:
            bandit.reward(decision, 1)
        now.time += timedelta(seconds=61)
        summary = bandit.summary()
        assert sum(each["missing"] for each in summary["arms"].values()) == 92
        assert (
            "92 of 100 decisions have no reward, so the others may be a biased subset" in summary["refusal"]
        )


def test_rewards_that_can_be_revised_are_labelled() -> None:
    bandit = Bandit(["a", "b"], "ms", reward=Reward(low=0, high=9, combine="sum"))
    bandit.reward(bandit.choose(), 2)
    assert "Without a window no reward is final" in bandit.summary()["note"]
    assert "(combine is sum)" in bandit.summary()["refusal"]


# Logs.


@pytest.mark.parametrize("learn", LEARN)
def test_a_random_log_verifies_and_survives_export_and_import(log: Log, learn, tmp_path) -> None:
    rng = random.Random(7)
    bandit = log.bandit(reward=rule(learn, combine="last", default=0.125))
    made = []
    for _ in range(150):
        log.clock.forward(rng.random() * 3)
        made.append(bandit.choose(unit=f"u{rng.randrange(9)}"))
        if rng.random() < 0.5:
            bandit.reward(rng.choice(made[-40:]), rng.random(), event=f"e{rng.randrange(10**6)}")
        if rng.random() < 0.02:
            bandit.reset()
    found = verify(bandit)
    assert (found.problem_count, found.recomputed) == (0, 150), found.problems
    import_log(bandit, tmp_path / "copy.db")
    with read_log(tmp_path / "copy.db") as copy, read_log(bandit) as original:
        assert copy.final_state().tally == original.final_state().tally
        assert verify(copy).problem_count == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE events SET value = 0.5 WHERE kind = 'revision'", "its reward was applied as 0.5"),
        ("UPDATE events SET value = 0.5 WHERE kind = 'default'", "applied the default 0.5"),
        ("UPDATE events SET kind = 'reward' WHERE kind = 'default'", "without revising the default"),
        ("UPDATE rewards SET value = 0.75", "its reward events give 0.75"),
    ],
)
def test_a_changed_log_with_provisional_rewards_is_broken(tmp_path, change, message) -> None:
    import sqlite3
    from contextlib import closing

    path = tmp_path / "log.db"
    with Bandit(["a", "b"], "ms", reward=rule("provisional"), log=path, seed=1) as bandit:
        made = bandit.choose(size=2)
        bandit.reward(made[0], 1)
    assert verify(path).problem_count == 0
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(change)
    assert any(message in each.what for each in verify(path).problems), verify(path).problems


# The clock and the seed.


def test_a_seed_makes_choices_and_ids_reproducible(tmp_path) -> None:
    def rows(name: str, seed: int) -> list[Any]:
        now = itertools.count()
        with Bandit(
            ["a", "b", "c"], "uniform", log=tmp_path / name, seed=seed,
            clock=lambda: START + timedelta(seconds=next(now)),
        ) as bandit:  # fmt: skip
            return [*bandit.choose(size=5), *(bandit.choose() for _ in range(20))]

    first = rows("1.db", seed=4)
    assert first == rows("2.db", seed=4)
    assert [each.arm for each in first] != [each.arm for each in rows("3.db", seed=5)]
    again = rows("1.db", seed=4)  # continues the log, so with other random numbers
    assert [each.arm for each in first] != [each.arm for each in again]
    assert first[0].at.year == 2026
    assert [each.id for each in first[5:]] == sorted(each.id for each in first[5:])


def test_a_log_says_that_it_was_seeded(tmp_path) -> None:
    with Bandit(["a", "b"], "uniform", log=tmp_path / "log.db") as bandit:
        assert not bandit.summary()["seeded"]
    with Bandit(log=tmp_path / "log.db", seed=1) as bandit:
        bandit.choose(size=5)
    with Bandit(log=tmp_path / "log.db") as bandit:
        assert bandit.summary()["seeded"]
        assert not bandit.summary()["simulated_clock"]
        assert verify(bandit).recomputed == 5
    with pytest.raises(MaillardError, match="cannot pickle a bandit with a clock or a seed"):
        Bandit(["a"], "uniform", log=tmp_path / "other.db", seed=1).__reduce__()


@pytest.mark.parametrize("bad", [-1, 1.5, "1", True, 2**63])
def test_invalid_seeds_are_refused(bad, tmp_path) -> None:
    with pytest.raises(InvalidValue, match="seed"):
        Bandit(["a"], "uniform", log=tmp_path / "log.db", seed=bad)
    assert not (tmp_path / "log.db").exists()


@pytest.mark.parametrize("bad", [5, "now", lambda: datetime(2026, 1, 1), lambda: "now"])  # naive
def test_invalid_clocks_are_refused(bad, tmp_path) -> None:
    with pytest.raises(InvalidValue, match="clock"):
        Bandit(["a"], "uniform", log=tmp_path / "log.db", clock=bad)
    assert not (tmp_path / "log.db").exists()


def test_a_log_with_a_simulated_clock_is_read_as_of_its_last_event(tmp_path) -> None:
    """A reader has the real clock, by which the windows of a future would be open, of a past closed."""
    for year in (2001, 2201):
        now, path = SimulatedClock(datetime(year, 1, 1, tzinfo=UTC)), tmp_path / f"{year}.db"
        with Bandit(["a", "b"], "uniform", reward=rule(), log=path, clock=now.read, seed=1) as bandit:
            bandit.choose(size=100)
            now.time += timedelta(seconds=50)
            bandit.choose(size=7)
            now.time += timedelta(seconds=50)
            bandit.settle()
        assert evaluate(path, "arm:a").diagnostics.open == 7


# The default policy, and hints.


def test_the_default_policy_depends_on_the_range() -> None:
    assert str(Bandit(["a", "b"], reward=Reward.clicks("1h")).policy) == "kl-ms+:floor=0.1"
    assert str(Bandit(["a", "b"], reward=Reward(low=0, high=5)).policy) == "ms+:floor=0.1,sigma2=6.25"
    with pytest.raises(InvalidValue, match="low and high of the rewards"):
        Bandit(["a", "b"])


@pytest.mark.parametrize("policy", ["ts", "ms+", "ucb1", "ms:floor=0.1", "moss-anytime", "ucb"])
def test_gaussian_policies_for_clicks_get_a_hint(policy, tmp_path) -> None:
    with pytest.warns(PolicyHint, match=r"kl-ms\+ or thompson .* learn faster") as caught:
        bandit = Bandit(["a", "b"], policy, reward=Reward(low=0, high=1), log=tmp_path / "log.db")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    bandit.reward(bandit.choose(), 0.5)
    assert bandit.hints == []  # the rewards are not 0 and 1
    bandit.close()


@pytest.mark.parametrize(
    "policy", ["kl-ms+", "ts-bernoulli", "thompson", "kl-ucb:family=bernoulli", "uniform"]
)
def test_other_policies_get_no_hint(policy, recwarn) -> None:
    assert Bandit(["a", "b"], policy, reward=Reward(low=0, high=1)).hints == []
    assert Bandit(["a", "b"], "ms+", reward=Reward(low=0, high=2)).hints == []
    assert not [each for each in recwarn if each.category is PolicyHint]


# The most common job.


def test_late_clicks_with_the_documented_settings() -> None:
    """Four headlines, clicks up to an hour late, Thompson sampling, `Reward(low, high, window, default)`."""
    now, clicks = SimulatedClock(), late_clicks.Clicks(seed=1)
    bandit = Bandit(
        list(late_clicks.RATES), "thompson", reward=Reward(**late_clicks.RULE),
        clock=now.read, seed=2,
    )  # fmt: skip

    def choose() -> list[tuple[str, str]]:
        made = bandit.choose(size=late_clicks.BATCH)
        probabilities.update(tuple(decision.probabilities.values()) for decision in made)
        return [(decision.id, decision.arm) for decision in made]

    def set_clock(seconds: float) -> None:
        now.time = START + timedelta(seconds=seconds)

    def visitors(begin: float, end: float) -> None:
        late_clicks.run(
            choose, lambda each: bandit.reward(each, 1), set_clock, seconds=(begin, end), clicks=clicks
        )

    probabilities = set[tuple[float, ...]]()
    visitors(0, 3600)
    assert probabilities == {(0.25,) * 4}
    summary = bandit.summary()
    assert {each["mean"] for each in summary["arms"].values()} == {None}
    report = evaluate(bandit, "arm:B")
    assert not report.answered
    assert "no reward window has closed yet: 600 decisions are open; the first window closes at" in str(
        report
    )

    total = late_clicks.VISITORS / late_clicks.BATCH * late_clicks.INTERVAL
    visitors(3600, total)
    set_clock(total + 3600)
    summary = bandit.summary()
    arms, tally = summary["arms"], bandit.tally
    intervals = mean_intervals(tally.pulls, tally.sums, 0, 1, 0.95)
    for (arm, rate), (lower, upper) in zip(late_clicks.RATES.items(), intervals, strict=True):
        assert lower < rate < upper, (arm, lower, upper)
        best = evaluate(bandit, f"arm:{arm}").best
        assert best is None or best.lower < rate < best.upper
    assert max(arms, key=lambda arm: arms[arm]["decisions"]) == "B"
    assert sum(each["decisions"] for each in arms.values()) == late_clicks.VISITORS
    assert verify(bandit).problem_count == 0
    bandit.close()
