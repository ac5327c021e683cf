"""Deferred decisions: they count only after their activation, and nothing is lost between the two."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from maillard import Bandit, Features, Reward, evaluate, hashed, verify
from maillard.decisions import deferred_events
from maillard.decisions.call_arguments import Request, check_request
from maillard.decisions.choosing import Repeated
from maillard.decisions.configuration import check_reward_event
from maillard.decisions.decision import Decision, Outcome
from maillard.errors import Conflict, InvalidLog, Paused
from tests.stores import EXPERIMENT, Log, new_id

FEATURES = Features({}, rest=hashed(4), rest_crosses=hashed(4))
RULE = Reward(low=-1, high=1, window=60, default=0)


@pytest.fixture
def bandit(log: Log) -> Bandit:
    return log.bandit([], "lin-ms:floor=0.1", reward=RULE, features=FEATURES, model="shared")


def request(key: str | None = "e1", device: str = "phone", **more: Any) -> Request:
    actions = {"news": {"topic": "news"}, "film": {"topic": "film"}}
    return check_request(None, None, key, context={"device": device}, actions=actions, **more)


def add_reward(bandit: Bandit, key: str, value: float, event: str | None = None) -> Outcome:
    row = check_reward_event(bandit.state.reward, new_id(), value, None, event)
    outcome: Outcome = bandit.session.write(
        lambda transaction, state: deferred_events.add_reward(transaction, state, key, row)
    )
    return outcome


def sweep(bandit: Bandit) -> int:
    count: int = bandit.session.write(deferred_events.sweep)
    return count


def activate(bandit: Bandit, key: str = "e1") -> Decision:
    found = bandit.session.activate(key)
    assert found is not None
    return found[0]


def check(bandit: Bandit, decisions: int) -> None:
    """Whether the log has this many decisions, all of which can be recomputed."""
    found = verify(bandit)
    assert (found.problems, found.decisions, found.recomputed) == ([], decisions, decisions)


def test_a_deferred_decision_counts_only_after_its_activation(bandit: Bandit, log: Log) -> None:
    (shown,), (hidden,) = bandit.session.defer(request("shown")), bandit.session.defer(request("hidden"))
    check(bandit, 0)
    for _ in range(3):  # what is learned in between does not change the deferred decision
        bandit.reward(bandit.choose(context={"device": "phone"}, actions=json.loads(shown.actions)), 1.0)
    log.clock.forward(30)
    row = activate(bandit, "shown")
    assert row == shown._replace(id=row.id)
    assert bandit.decision(row.id) == row
    assert row.id > shown.id  # readers of new decisions go by the id
    assert bandit.session.activate("shown") == (row, False)
    check(bandit, 4)
    log.clock.forward(31)
    bandit.settle()  # the window begins with the choice: now the default counts, for the activated one alone
    assert bandit.tally.pulls.sum() == 4
    assert bandit.tally.sums.sum() == 3.0
    assert bandit.session.activate("hidden") is None  # too late
    assert hidden.arm in ("news", "film")
    check(bandit, 4)


def test_it_gets_its_reward_even_if_that_came_first(bandit: Bandit, log: Log) -> None:
    assert add_reward(bandit, "e1", 0.5, "r1") == "parked"  # before the Rank call
    assert add_reward(bandit, "e1", 0.5, "r1") == "duplicate"
    with pytest.raises(Conflict, match=r"event 'r1': the reward is already 0\.5, not 1\.0"):
        add_reward(bandit, "e1", 1.0, "r1")
    bandit.session.defer(request())
    assert add_reward(bandit, "e1", 1.0, "r2") == "parked"  # before the activation
    log.clock.forward(10)
    row = activate(bandit)
    with bandit._store.reading(EXPERIMENT) as transaction:
        rewards = transaction.reward_events([row.id])[row.id]
        assert deferred_events.read_waiting(transaction, "e1") is None
    assert [(each.event, each.value, each.late) for each in rewards] == [("r1", 0.5, False), ("r2", 1, False)]
    assert add_reward(bandit, "e1", 0.25, "r3") == "waiting"  # until the window closes
    log.clock.forward(60)
    bandit.settle()
    check(bandit, 1)
    assert add_reward(bandit, "e1", 1.0, "r4") == "late"


def test_a_repeated_key_returns_the_same_decision(bandit: Bandit) -> None:
    first = bandit.session.defer(request())
    again = bandit.session.defer(request())
    assert (again, isinstance(again, Repeated)) == (first, True)
    with pytest.raises(Conflict, match="'e1' was used by a call with another context"):
        bandit.session.defer(request(device="desktop"))
    row = activate(bandit)
    assert bandit.session.defer(request()) == [row]
    choice = bandit.choose(
        idempotency_key="e1", context={"device": "phone"}, actions=json.loads(row.actions or "")
    )
    assert choice == row
    (logged,) = bandit.session.decide(request("logged"))
    assert bandit.session.defer(request("logged")) == [logged]
    assert bandit.session.activate("logged") == (logged, False)
    check(bandit, 2)


def test_it_survives_a_restart_and_changes_of_the_experiment(bandit: Bandit, log: Log) -> None:
    (before,), (reset,) = bandit.session.defer(request("e1")), bandit.session.defer(request("e2"))
    assert add_reward(bandit, "e1", 1.0) == "parked"
    if log.kind != "memory":
        bandit.close()
    bandit = Bandit(log=log.open(), experiment=EXPERIMENT)
    bandit.pause()
    with pytest.raises(Paused):
        bandit.session.defer(request("e3"))
    assert activate(bandit)._replace(id=before.id) == before  # it was chosen before the pause
    bandit.resume()
    bandit.change_policy("lin-ts:floor=0.2")
    bandit.reset()
    assert activate(bandit, "e2") == reset._replace(id=activate(bandit, "e2").id)
    log.clock.forward(60)
    bandit.settle()
    assert bandit.tally.pulls.sum() == 0  # they belong to the epoch before the reset
    check(bandit, 2)


def test_what_waits_expires(bandit: Bandit, log: Log) -> None:
    bandit.session.defer(request("e1"))
    add_reward(bandit, "early", 1.0)
    log.clock.forward(30)
    add_reward(bandit, "later", 1.0)
    assert sweep(bandit) == 3
    log.clock.forward(30)
    assert bandit.session.activate("e1") is None
    assert sweep(bandit) == 1
    (new,) = bandit.session.defer(request("e1", device="desktop"))  # nothing is known of the old one
    assert activate(bandit).context == new.context == '{"device":"desktop"}'
    check(bandit, 1)


def test_without_a_window_it_expires_after_a_day(log: Log) -> None:
    rule = Reward(low=0, high=1)
    bandit = log.bandit([], "lin-ms:floor=0.1", reward=rule, features=FEATURES, model="shared")
    bandit.session.defer(request("e1"))
    bandit.session.defer(request("e2"))
    log.clock.forward(86_399)
    assert activate(bandit, "e1").idempotency_key == "e1"
    log.clock.forward(2)
    assert bandit.session.activate("e2") is None


def test_rewards_that_came_before_a_logged_decision_are_released(bandit: Bandit) -> None:
    add_reward(bandit, "e1", 1.0, "r1")
    (row,) = bandit.session.decide(request("e1"))
    assert sweep(bandit) == 0
    with bandit._store.reading(EXPERIMENT) as transaction:
        assert [each.event for each in transaction.reward_events([row.id])[row.id]] == ["r1"]
    check(bandit, 1)


def test_a_reward_is_not_lost_if_the_process_ends_before_its_release(bandit: Bandit, log: Log) -> None:
    """Its window has closed when a service sweeps again, but it came in time."""
    add_reward(bandit, "e1", 1.0)
    (row,) = bandit.session.decide(request("e1"))
    add_reward(bandit, "late", 1.0)
    log.clock.forward(60)
    (after,) = bandit.session.decide(request("late"))  # its reward had expired before
    assert sweep(bandit) == 0
    with bandit._store.reading(EXPERIMENT) as transaction:
        found = transaction.reward_events([row.id, after.id])
    assert [(key, each.value) for key, rewards in found.items() for each in rewards] == [(row.id, 1.0)]
    check(bandit, 2)


def test_a_damaged_record_is_reported(bandit: Bandit) -> None:
    with bandit._store.transaction(EXPERIMENT, lock=True) as transaction:
        transaction.put_document(f"waiting:{EXPERIMENT}", "e1", '{"expires": 1}')
    with pytest.raises(InvalidLog, match="a decision or rewards that wait"):
        bandit.session.activate("e1")


def test_a_deferred_decision_that_was_changed_is_found_by_verify(bandit: Bandit) -> None:
    bandit.session.defer(request())
    with bandit._store.transaction(EXPERIMENT, lock=True) as transaction:
        kind = f"waiting:{EXPERIMENT}"
        data = json.loads(transaction.documents(kind)["e1"])
        logs = data["decision"]["log_probabilities"]
        data["decision"] |= {"log_probabilities": [-0.1] * len(logs), "log_probability": -0.1}
        transaction.put_document(kind, "e1", json.dumps(data))
    activate(bandit)
    assert verify(bandit).problem_count > 0


MEANS = {"news": 0.7, "film": 0.3}


def table_of(arms_that_are_shown: set[str]) -> tuple[dict[str, list[Any]], Bandit]:
    """A log of deferred decisions, also as a table. Half of those of these arms are activated."""
    rng, rule = random.Random(3), Reward(low=0, high=1)
    bandit = Bandit([], "lin-ms:floor=0.4", reward=rule, features=FEATURES, model="shared", seed=3)
    table: dict[str, list[Any]] = {"arm": [], "probability": [], "reward": []}
    for number in range(1200):
        (row,) = bandit.session.defer(request(f"e{number}"))
        if rng.random() < 0.5 and row.arm in arms_that_are_shown:
            reward = float(rng.random() < MEANS[row.arm])
            bandit.reward(activate(bandit, f"e{number}"), reward)
            for name, value in (("arm", row.arm), ("probability", row.probability), ("reward", reward)):
                table[name].append(value)
    return table, bandit


def test_activated_decisions_can_be_evaluated() -> None:
    table, bandit = table_of({"news", "film"})
    assert len(table["arm"]) > 500
    check(bandit, len(table["arm"]))
    assert verify(bandit).audit_verdict == "consistent"
    for arm, mean in MEANS.items():
        report = evaluate(table, f"arm:{arm}", reward_range=(0, 1), confidence=0.999)
        estimate = report["snips"]
        assert estimate.lower < mean < estimate.upper


def test_the_audit_notices_that_activation_depends_on_the_choice() -> None:
    _, bandit = table_of({"news"})
    assert verify(bandit).audit_verdict == "broken"
