"""The state after a sequence of events: exact sums, no gaps, and the same from a checkpoint."""

from __future__ import annotations

import dataclasses
import random
import time

import numpy as np
import pytest

from maillard import Bandit, InvalidValue, Reward, Tally, UnknownName, policy, read_log
from maillard.decisions import state as state_module
from maillard.decisions import write_log
from maillard.decisions.events import AddArm, ChangePolicy, Pause, RetireArm, Start, TallyUpdate, WarmStart
from maillard.decisions.identifiers import check_id, creation_time, new_ids
from maillard.decisions.state import State, replay
from maillard.decisions.timestamps import to_microseconds
from maillard.policies.base.policy import sample_arms

START = Start(
    number=1,
    arms=("a", "b", "c"),
    policy="ms+:sigma2=0.25",
    formula=1,
    reward=Reward(low=0, high=1),
    sticky=False,
)


def rewards(*values: tuple[str, float]) -> list[TallyUpdate]:
    return [
        TallyUpdate(number=number, kind="reward", time=0, arm=arm, value=value, decision="d")
        for number, (arm, value) in enumerate(values, 2)
    ]


def test_reward_events_are_added_to_the_tally() -> None:
    state = replay([START, *rewards(("a", 0.1), ("b", 1.0), ("a", 0.2))])
    assert state.number == 4
    expected = Tally.empty(3)
    for arm, value in ((0, 0.1), (1, 1.0), (0, 0.2)):
        expected.add(arm, value)
    assert state.tally == expected


def test_a_revision_gives_the_tally_of_the_revised_rewards() -> None:
    rng = random.Random(0)
    for _ in range(200):
        values = [rng.choice([0.1, 0.7, 1e-17, 0.3]) for _ in range(5)]
        first = replay([START, *rewards(*(("a", 0.9) for _ in values))])
        revised = first.after(
            [
                TallyUpdate(7 + i, "revision", 0, decision="d", arm="a", previous=0.9, value=value)
                for i, value in enumerate(values)
            ]
        )
        assert revised.tally == replay([START, *rewards(*(("a", value) for value in values))]).tally


@pytest.mark.parametrize("numbers", [(3,), (1,), (2, 2), (2, 4)])
def test_a_gap_is_an_error(numbers) -> None:
    with pytest.raises(InvalidValue, match="gapless"):
        replay([START]).after(
            [event._replace(number=n) for n, event in zip(numbers, rewards(("a", 1), ("a", 1)), strict=False)]
        )


def test_a_state_is_read_as_it_was_written() -> None:
    state = replay([START, *rewards(("a", 0.1), ("a", 0.2), ("c", 0.3))])
    state = state.after(
        [
            AddArm(number=5, arm="d"),
            RetireArm(number=6, arm="b"),
            ChangePolicy(number=7, policy="ms:sigma2=0.25", formula=1),
            Pause(number=8),
        ]
    )
    back = State.read(state.write())
    for name in (
        "number", "administrative", "epoch", "arms", "active", "tally", "policy", "policy_version", "paused",
        "reward", "sticky",
    ):  # fmt: skip
        assert getattr(back, name) == getattr(state, name), name
    assert back.choice_distribution().log_probabilities == state.choice_distribution().log_probabilities


def test_a_checkpoint_is_used_and_changes_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("maillard.decisions.session._CHECKPOINT_INTERVAL", 10)
    rng = random.Random(0)
    with Bandit(["a", "b"], "ms", reward=Reward(low=0, high=1), log=tmp_path / "log.db") as bandit:
        for _ in range(37):
            bandit.reward(bandit.choose().id, rng.random())
        with bandit._store.reading("default") as transaction:
            saved = transaction.checkpoint()
            assert saved is not None
            assert 30 <= saved[0] < 38
            whole = replay(transaction.events(0))
    with Bandit(log=tmp_path / "log.db") as again:
        assert again.tally == whole.tally == bandit.tally
        assert again.state.number == whole.number


def test_a_choice_distribution_samples_the_same_arms_as_sample_arms() -> None:
    """The same uniform numbers give the same arms, also if the last arm has probability 0."""
    for spec, sums in (("ms", [3.0, 2.0, 1.0]), ("ucb1", [3.0, 2.0, 1.0]), ("ucb1", [1.0, 2.0, 3.0])):
        state = replay([dataclasses.replace(START, policy=str(policy(spec, sigma2=0.25)))])
        state = state.after([WarmStart(number=2, tally=Tally([5, 5, 5], sums))])
        distribution = state.choice_distribution()
        sampled = distribution.sample(np.random.default_rng(7), 5000)
        rng = np.random.default_rng(7)
        assert [place for _ in range(500) for place in distribution.sample(rng, 1)] == sampled[:500]
        assert sampled == sample_arms(distribution.probabilities, np.random.default_rng(7), 5000).tolist()


def test_the_largest_uniform_number_samples_an_arm_with_positive_probability() -> None:
    class Largest:
        @staticmethod
        def random(size: int) -> np.ndarray:
            return np.full(size, np.nextafter(1.0, 0.0))

    state = replay([START]).after([ChangePolicy(number=2, policy="dist:0.5,0.5,0", formula=1)])
    assert state.choice_distribution().sample(Largest(), 3) == [1, 1, 1]


def test_ids_have_version_7_ascend_and_contain_their_time() -> None:
    ids = new_ids(1000)
    assert ids == sorted(set(ids))
    assert all(check_id(each.upper()) == each for each in ids)
    now = to_microseconds("now", time.time())
    assert abs(creation_time(ids[0]) - now) < 60_000_000
    for bad in ("", "x", ids[0][:-1], f"{ids[0][:14]}4{ids[0][15:]}", None, 7):
        with pytest.raises(InvalidValue, match="UUID of version 7"):
            check_id(bad)


@pytest.mark.parametrize("name", ["old.db", "old.parquet", "old.csv", "old.npz", "old.dsjson"])
def test_a_warm_start_from_an_old_log(name, tmp_path) -> None:
    with Bandit(["a", "b"], "ms", reward=Reward(low=0, high=1), log=tmp_path / "old.db") as old:
        for decision in old.choose(size=40):
            old.reward(decision.id, 0.1)
        if name != "old.db":
            write_log(read_log(old), tmp_path / name)
    new = Bandit(["b", "c", "a"], "ms", reward=Reward(low=0, high=1))
    new.warm_start(tmp_path / name)
    pulls = dict(zip("ab", old.tally.pulls.tolist(), strict=True))
    assert new.tally.pulls.tolist() == [pulls["b"], 0, pulls["a"]]
    assert new.tally.sums[0] == old.tally.sums[1]
    with pytest.raises(UnknownName, match="'a'"):
        Bandit(["b", "c"], "ms", reward=Reward(low=0, high=1)).warm_start(tmp_path / name)


def test_few_and_many_arms_are_sampled_alike(monkeypatch) -> None:
    few = replay([START, *rewards(("a", 0.1), ("b", 1.0), ("a", 0.2))]).choice_distribution()
    monkeypatch.setattr(state_module, "FEW_ARMS", 0)
    many = replay([START, *rewards(("a", 0.1), ("b", 1.0), ("a", 0.2))]).choice_distribution()
    assert few._cumulative == pytest.approx(many._cumulative, rel=1e-15)
    assert few._cumulative == pytest.approx(few.probabilities.cumsum(), rel=1e-15)
    samples = [each.sample(np.random.default_rng(3), 1_000) for each in (few, many)]
    assert samples[0] == samples[1]
