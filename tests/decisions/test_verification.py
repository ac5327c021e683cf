"""`verify` on correct logs, on logs with common logging errors, and on logs that were tampered with."""

from __future__ import annotations

import itertools
import math
import random
import sqlite3
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maillard import Bandit, Reward, Tally, policies, policy, verify
from maillard.decisions import Decision, DecisionLog, Verification, read_log
from maillard.decisions.audit import Audit
from maillard.decisions.identifiers import new_ids
from maillard.decisions.stores.contract import Row
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import InvalidLog, InvalidValue
from tests.conftest import NAMES

ARMS = ("red", "blue", "green")
MEANS = {"red": 0.3, "blue": 0.5, "green": 0.4}


def bandit_after(spec: str = "ms+:booster=8", rounds: int = 300, seed: int = 0, log: object = None) -> Bandit:
    """A bandit with a reward for most of its decisions, some revised."""
    rng = random.Random(seed)
    bandit = Bandit(ARMS, spec, reward=Reward(low=0, high=1, combine="max", binary=True), log=log)
    bandit.session._rng = np.random.default_rng(seed)
    for _ in range(rounds):
        decision = bandit.choose()
        for event in range(rng.choice((0, 1, 1, 2))):
            bandit.reward(decision.id, float(rng.random() < MEANS[decision.arm]), event=str(event))
    return bandit


def changed(log: DecisionLog, change: Callable[[Decision], Decision]) -> DecisionLog:
    """The same log as another logger would have written it."""
    rows = [row._replace(decision=change(row.decision)) for row in log.rows()]
    return DecisionLog(
        lambda: iter(rows), experiment=log.experiment, source="changed", events=log.events, number=log.number
    )


def with_logs(decision: Decision, logs: Iterable[float]) -> Decision:
    made = tuple(float(log) for log in logs)
    return decision._replace(
        log_probabilities=made, log_probability=made[decision.eligible.index(decision.arm)]
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dmed"])
def test_the_probabilities_of_every_policy_are_recomputed(name) -> None:
    spec = str(policy(name, sigma2=0.25, horizon=1000))
    found = verify(bandit_after(spec, rounds=30))
    assert (found.recomputed, found.problems) == (30, [])
    assert found.largest_error <= 1e-12


def test_a_correct_log_is_consistent() -> None:
    found = verify(bandit_after(rounds=2000))
    assert found.verdict == "consistent"
    assert found.problems == []
    assert found.recomputed == found.decisions == 2000
    assert all(abs(score.z) < 4 for score in found.arms if score.z is not None)


def test_the_verdict_on_too_few_decisions() -> None:
    found = verify(bandit_after(rounds=20))
    assert found.verdict == found.audit_verdict == "not enough data"
    assert all(score.z is None for score in found.arms)


def test_probabilities_logged_after_the_update_are_detected() -> None:
    bandit = bandit_after(rounds=300)
    log = read_log(bandit)
    after: dict[str, tuple[float, ...]] = {}
    rows = list(log.rows())
    for row, following in itertools.pairwise(rows):
        after[row.decision.id] = following.decision.log_probabilities

    def late(decision: Decision) -> Decision:
        return with_logs(decision, after.get(decision.id, decision.log_probabilities))

    found = verify(changed(log, late))
    assert found.verdict == "broken"
    assert "log probability of" in found.problems[0].what
    assert found.problem_count > 100


# Common logging errors, in logs without events: arms are sampled from the policy's probabilities, and other
# probabilities are logged. Only the audit of the choices can detect them.


@cache
def foreign_log(
    rounds: int, spec: str, mistake: Callable[[Any, int, np.random.Generator], Any] | None
) -> DecisionLog:
    """A log without events, with the probabilities of a policy or those that a mistake makes of them."""
    rng = np.random.default_rng(5)
    tally, made = Tally.empty(3), policy(spec, sigma2=0.25)
    rows = []
    for identifier in new_ids(rounds):
        p = made.probabilities(tally)
        arm = int(rng.choice(3, p=p))
        logged = p if mistake is None else mistake(p, arm, rng)
        reward = float(rng.random() < MEANS[ARMS[arm]])
        tally.add(arm, reward)
        with np.errstate(divide="ignore"):
            logs = tuple(np.log(logged).tolist())
        decision = Decision(
            id=identifier, experiment="x", time=0, unit=None, arm=ARMS[arm], eligible=ARMS,
            log_probabilities=logs, log_probability=logs[arm], policy_version=1, formula_version=1, state=0,
            epoch=1, cold=False,
        )  # fmt: skip
        rows.append(Row(decision, (), ()))
    return DecisionLog(lambda: iter(rows), experiment="x", source="elsewhere", arms=ARMS)


def certainty(p: Any, arm: int, rng: np.random.Generator) -> Any:
    """1 for the chosen arm."""
    return np.eye(3)[arm]


def softmax_of_means(p: Any, arm: int, rng: np.random.Generator) -> Any:
    """A softmax of other numbers than the policy uses."""
    weights = np.exp(p)
    return weights / weights.sum()


def monte_carlo(p: Any, arm: int, rng: np.random.Generator) -> Any:
    """Relative frequencies in 64 further samples, at least 1/128."""
    frequencies = np.maximum(rng.multinomial(64, p) / 64, 1 / 128)
    return frequencies / frequencies.sum()


def monte_carlo_with_zeros(p: Any, arm: int, rng: np.random.Generator) -> Any:
    """Relative frequencies in eight further samples, which may be 0."""
    return rng.multinomial(8, p) / 8


def branch(p: Any, arm: int, rng: np.random.Generator) -> Any:
    """The probability of epsilon-greedy's branch (0.9) instead of the arm's total probability."""
    leader = np.eye(3)[np.argmax(p)]
    return np.where(leader > 0, 0.9, 0.05)


def test_a_correct_foreign_log_is_consistent() -> None:
    found = verify(foreign_log(20_000, "ms+:booster=8", None))
    assert found.verdict == "consistent"
    assert found.recomputed == 0
    assert found.not_recomputed


@pytest.mark.parametrize(
    ("spec", "mistake"),
    [
        ("ms+:booster=8", monte_carlo),
        ("ms+:booster=8", monte_carlo_with_zeros),
        ("ms+:booster=8", softmax_of_means),
        ("epsilon-greedy:epsilon=0.1", branch),
    ],
)
def test_the_audit_detects_common_logging_errors(spec, mistake) -> None:
    assert verify(foreign_log(10_000, spec, None)).verdict == "consistent"  # the control
    assert verify(foreign_log(10_000, spec, mistake)).verdict == "broken"


def test_logged_probabilities_of_one_give_no_verdict() -> None:
    assert verify(foreign_log(2_000, "ms+:booster=8", certainty)).verdict == "not enough data"


def test_the_rate_of_false_alarms_is_at_most_the_stated_one() -> None:
    """In 3,000 correct logs, at a rate of at most 1e-4, five or more alarms have a probability below 1e-4."""
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(3000):
        audit = Audit()
        p = rng.dirichlet([1, 1, 1], 500)
        arms = (p.cumsum(axis=1) < rng.random((500, 1))).sum(axis=1)
        audit._buffer[ARMS] = list(zip(arms.tolist(), map(tuple, np.log(p).tolist()), strict=True))
        alarms += audit.verdict == "broken"
    assert alarms < 5


# Logs that were changed afterwards.

LAST_DECISION = "id = (SELECT max(id) FROM decisions)"
LAST_EVENT = "number = (SELECT max(number) FROM events WHERE kind = '{}')"
ONE_REWARD = "FROM rewards GROUP BY decision HAVING count(*) = 1 LIMIT 1"
TAMPERING = {
    "a probability": f"UPDATE decisions SET log_probability = log_probability - 1e-9 WHERE {LAST_DECISION}",
    "a vector": (
        "UPDATE decisions SET log_probabilities = '[-1.0, -1.0, -1.5]', log_probability = -1.0 "
        "WHERE id = (SELECT max(id) FROM decisions WHERE arm = 'red')"
    ),
    "an arm": (
        "UPDATE decisions SET arm = CASE arm WHEN 'red' THEN 'blue' ELSE 'red' END "
        "WHERE id = (SELECT min(id) FROM decisions)"
    ),
    "a state": f"UPDATE decisions SET state = state - 5 WHERE {LAST_DECISION}",
    "an epoch": f"UPDATE decisions SET epoch = 2 WHERE {LAST_DECISION}",
    "a policy": f"UPDATE decisions SET policy_version = 2 WHERE {LAST_DECISION}",
    "an applied reward": "UPDATE events SET value = 0.5 WHERE " + LAST_EVENT.format("reward"),
    "a missing event": "DELETE FROM events WHERE number = 10",
    "a reward": (
        "UPDATE rewards SET value = 1 - value "
        f"WHERE (decision, event) = (SELECT decision, max(event) {ONE_REWARD})"
    ),
    "a missing reward": f"DELETE FROM rewards WHERE decision = (SELECT decision {ONE_REWARD})",
}


@pytest.mark.parametrize("what", [None, *TAMPERING])
def test_tampering_is_detected(what, tmp_path) -> None:
    path = tmp_path / "log.db"
    bandit_after(rounds=100, log=path).close()
    if what is not None:
        connection = sqlite3.connect(path)
        assert connection.execute(TAMPERING[what]).rowcount == 1
        connection.commit()
        connection.close()
    found = verify(path)
    assert (found.verdict == "broken") == (what is not None)
    assert all(problem.what for problem in found.problems)


def tampered(path: Path, *statements: str) -> Verification:
    """The result of `verify` after these statements changed the log."""
    connection = sqlite3.connect(path)
    for statement in statements:
        assert connection.execute(statement).rowcount > 0
    connection.commit()
    connection.close()
    return verify(path)


# Tampering in experiments with windows, defaults, epochs and sticky units.

FINER_TAMPERING = {
    "an unknown origin": ("sticky", f"UPDATE decisions SET origin = 'zzz' WHERE {LAST_DECISION}"),
    "an origin of another unit": (
        "sticky",
        "UPDATE decisions SET unit = 'else' "
        "WHERE id = (SELECT max(id) FROM decisions WHERE origin IS NOT NULL)",
    ),
    "a repeat of a repeat": (
        "sticky",
        "UPDATE decisions SET origin = (SELECT min(id) FROM decisions WHERE origin IS NOT NULL) "
        "WHERE id = (SELECT max(id) FROM decisions WHERE origin IS NOT NULL)",
    ),
    "an origin without sticky assignments": (
        "epochs",
        "UPDATE decisions SET origin = (SELECT min(id) FROM decisions WHERE state = 1) "
        "WHERE id = (SELECT max(id) FROM decisions WHERE state = 1)",
    ),
    "a reward of an old epoch": ("epochs", "UPDATE rewards SET value = 0.125 WHERE event = 'first'"),
    "a lost reward of an old epoch": ("epochs", "DELETE FROM rewards WHERE event IN ('first', 'more')"),
    "a reward applied to an old epoch": (
        "epochs",
        "UPDATE events SET decision = (SELECT min(id) FROM decisions), "
        "arm = (SELECT arm FROM decisions ORDER BY id LIMIT 1) WHERE " + LAST_EVENT.format("reward"),
    ),
    "another default": ("default", "UPDATE events SET value = 0.5 WHERE kind = 'default'"),
    "an early default": ("default", "UPDATE events SET time = time - 11000000 WHERE kind = 'default'"),
    "a default beside a reward": ("default", "UPDATE rewards SET late = 0 WHERE late = 1"),
    "a reward wrongly marked late": ("default", "UPDATE rewards SET late = 1 WHERE event = 'in time'"),
    "a late reward that arrived in time": (
        "window",
        "UPDATE rewards SET arrived = arrived - 20000000 WHERE late = 1",
    ),
    "a reward applied before its window closed": (
        "mature",
        "UPDATE events SET time = time - 11000000 WHERE kind = 'reward'",
    ),
    "a choice during a pause": (
        "pause",
        "UPDATE decisions SET state = (SELECT number FROM events WHERE kind = 'pause') "
        "WHERE id = (SELECT max(id) FROM decisions)",
    ),
    "a revision of an unknown arm": ("epochs", "UPDATE events SET arm = 'zzz' WHERE kind = 'revision'"),
    "a reward without a decision": (
        "epochs",
        "UPDATE events SET decision = NULL WHERE " + LAST_EVENT.format("reward"),
    ),
    "an unknown kind": ("epochs", "UPDATE events SET kind = 'zzz' WHERE kind = 'reset'"),
    "a payload that is not JSON": ("pause", "UPDATE events SET payload = '{' WHERE number = 1"),
    "no reward rule": (
        "pause",
        "UPDATE events SET payload = json_remove(payload, '$.reward') WHERE number = 1",
    ),
    "too many probabilities": (
        "epochs",
        "UPDATE decisions SET log_probabilities = '[-1, -1, -1, -1, -1, -1]'",
    ),
    "a probability above 1": (
        "epochs",
        "UPDATE decisions SET log_probabilities = '[800, 800, 800]', log_probability = 800",
    ),
    "a time out of range": ("epochs", "UPDATE decisions SET time = 9223372036854775807"),
    "text that is not UTF-8": ("epochs", "UPDATE decisions SET arm = CAST(x'ff' AS TEXT)"),
    "arms without their tally": (
        "restore",
        "UPDATE events SET payload = json_set(payload, '$.arms', json('[\"red\"]')) WHERE kind = 'restore'",
    ),
    "a tally of other arms": (
        "restore",
        "UPDATE events SET payload = json_set(payload, '$.tally.pulls', json('[1]')) WHERE kind = 'restore'",
    ),
}  # fmt: skip


def write_small_log(path: Path, what: str) -> None:
    """Write a short log with the feature that is tampered with."""
    now = [1_790_000_000_000_000]
    rules = {
        "default": Reward(low=0, high=1, window=10, default=0.25, combine="sum", learn="on_arrival"),
        "provisional": Reward(low=0, high=1, window=10, default=0.25, combine="sum", learn="provisional"),
        "window": Reward(low=0, high=1, window=10, combine="sum"),
        "mature": Reward(low=0, high=1, window=10, learn="on_close"),
    }
    rule = rules.get(what, Reward(low=0, high=1, combine="sum"))
    bandit = Bandit(
        ARMS, "ms", reward=rule, log=SQLiteStore(path, clock=lambda: now[0]), sticky=what == "sticky"
    )
    some = bandit.choose(size=3)
    for n in range(4):
        bandit.choose(unit=f"user {n % 2}")
    bandit.reward(some[0].id, 0.5, event="first")
    bandit.reward(some[1].id, 0.25, event="in time")
    now[0] += 1_000_000
    if what in ("epochs", "restore"):
        bandit.reward(some[0].id, 0.25, event="more")
        (bandit.reset if what == "epochs" else lambda: bandit.restore(bandit.snapshot()))()
        bandit.reward(some[0].id, 0.125, event="only logged")
        bandit.reward(some[2].id, 0.125, event="only logged too")
        bandit.reward(bandit.choose().id, 0.5)
    if what == "pause":
        bandit.pause()
        bandit.resume()
    now[0] += 15_000_000
    if what in ("default", "window"):
        bandit.reward(some[2].id, 1.0, event="late")
    bandit.settle()
    bandit.choose()
    bandit.close()


@pytest.mark.parametrize("what", ["sticky", "epochs", "default", "window", "mature", "pause", "restore"])
def test_the_small_logs_verify_before_the_tampering(what, tmp_path) -> None:
    write_small_log(tmp_path / "log.db", what)
    assert verify(tmp_path / "log.db").problems == []


@pytest.mark.parametrize("what", FINER_TAMPERING)
def test_tampering_in_small_logs_is_detected(what, tmp_path) -> None:
    kind, statement = FINER_TAMPERING[what]
    write_small_log(tmp_path / "log.db", kind)
    found = tampered(tmp_path / "log.db", statement)
    assert found.verdict == "broken"
    assert all(problem.what for problem in found.problems)


def test_the_problem_of_a_reward_applied_after_its_epoch(tmp_path) -> None:
    write_small_log(tmp_path / "log.db", "epochs")
    found = tampered(tmp_path / "log.db", FINER_TAMPERING["a reward applied to an old epoch"][1])
    assert any("after its epoch" in problem.what for problem in found.problems)


def test_the_problem_names_the_event_that_cannot_be_applied(tmp_path) -> None:
    write_small_log(tmp_path / "log.db", "epochs")
    found = tampered(tmp_path / "log.db", "UPDATE events SET arm = 'zzz' WHERE kind = 'revision'")
    connection = sqlite3.connect(tmp_path / "log.db")
    ((number,),) = connection.execute("SELECT number FROM events WHERE kind = 'revision'")
    connection.close()
    assert f"event {number}: arm: expected an arm of the experiment, got 'zzz'" in found.problems[-1].what
    with pytest.raises(InvalidLog, match=f"event {number}: arm"):
        read_log(tmp_path / "log.db").final_state()


def test_ids_out_of_order_within_a_state_are_accepted() -> None:
    """If the clocks of two processes differ, a repeat may sort before the decision that it repeats."""
    bandit = Bandit(ARMS, "ms", reward=Reward(low=0, high=1), sticky=True)
    bandit.choose(unit="user", size=2)
    log = read_log(bandit)
    first, second = (row.decision for row in log.rows())
    rows = [
        Row(second._replace(id=first.id, origin=second.id), (), ()),
        Row(first._replace(id=second.id), (), ()),
    ]
    swapped = DecisionLog(
        lambda: iter(rows), experiment="default", source="swapped", events=log.events, number=log.number
    )
    found = verify(swapped)
    assert found.problems == []
    assert found.not_audited == 1


@pytest.mark.torture
def test_verifying_a_hundred_thousand_arms() -> None:
    """Takes 2 s; work quadratic in the number of arms would not end before the timeout of a test."""
    bandit = Bandit([f"arm {n}" for n in range(100_000)], "ms", reward=Reward(low=0, high=1))
    bandit.choose(size=20)
    assert verify(bandit).recomputed == 20


def test_the_audit_buffers_a_bounded_number_of_probabilities() -> None:
    audit = Audit()
    arms = tuple(f"arm {n}" for n in range(20_000))
    (row,) = (row.decision for row in foreign_log(1, "ms+:booster=8", None).rows())
    wide = row._replace(eligible=arms, arm=arms[0], log_probabilities=(-math.log(20_000),) * 20_000)
    for _ in range(50):
        audit.add(wide)
        assert sum(len(logs) for rows in audit._buffer.values() for _, logs in rows) <= 400_000
    assert audit.scores()[0].observed == 50


def test_another_formula_version_is_not_recomputed(monkeypatch) -> None:
    bandit = bandit_after(rounds=50)
    monkeypatch.setattr(policies.MaillardSamplingPlus, "formula_version", 2)
    found = verify(bandit)
    assert found.recomputed == 0
    assert dict(found.not_recomputed) == {"formula version 1 of ms+ is not the installed one": 50}
    assert found.problems == []


def test_a_part_of_a_log_is_audited_but_not_recomputed() -> None:
    bandit = bandit_after(rounds=50)
    half = bandit.decision(sorted(row.decision.id for row in read_log(bandit).rows())[25]).time
    found = verify(read_log(bandit, since=half / 1e6))
    assert 0 < found.decisions < 50
    assert found.problems == []
    reason = "a part of a log does not have all events to rebuild states from"
    assert dict(found.not_recomputed) == {reason: found.decisions}


def test_sticky_repeats_are_recomputed_but_not_audited() -> None:
    bandit = Bandit(ARMS, "ms", reward=Reward(low=0, high=1), sticky=True)
    for n in range(300):
        decision = bandit.choose(unit=f"unit-{n % 20}")
        bandit.reward(decision.id, float(n % 3 == 0))
    found = verify(bandit)
    assert found.recomputed == 300
    assert sum(score.observed for score in found.arms) == 20
    assert found.not_audited == 280


def test_differences_are_relative_to_the_log_probability() -> None:
    """A rounding difference of 1e-12 max(1, |log p|) is accepted; ten times that is a problem."""
    bandit = bandit_after(rounds=200)
    log = read_log(bandit)

    def shifted(by: float) -> DecisionLog:
        return changed(log, lambda row: with_logs(row, (x * (1 + by) for x in row.log_probabilities)))

    near, far = verify(shifted(5e-13)), verify(shifted(1e-11))
    assert near.problems == []
    assert 0 < near.largest_error <= 1e-12
    assert far.problem_count > 0
    assert math.isfinite(near.limit)


def test_a_positive_probability_of_an_impossible_arm_is_detected() -> None:
    bandit = Bandit(ARMS, "ucb1", reward=Reward(low=0, high=1))
    bandit.warm_start(Tally([5, 5, 5], [4.0, 2.0, 1.0]))
    bandit.choose(size=3)
    log = read_log(bandit)
    assert verify(log).problems == []
    assert (
        verify(changed(log, lambda row: row._replace(log_probabilities=(0.0, -3.0, -math.inf)))).problem_count
        == 3
    )


def test_an_empty_file_is_called_empty(tmp_path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(InvalidValue, match=r"a log of decisions \(this file is empty\), got .*empty\.db"):
        verify(path)
    assert path.stat().st_size == 0


def test_a_table_with_a_choice_of_probability_0_is_broken(tmp_path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("arm,probability,reward\nred,0.5,1\nblue,0.0,0\n")
    found = verify(path)
    assert found.verdict == "broken"
    assert "row 2: probability: expected a number > 0" in str(found.problems)
    path.write_text("arm,probability,reward\nred,0.5,1\nblue,0.5,0\n")
    assert verify(path).verdict != "broken"  # the control
