"""Statistics by segment and of observed features: increments, bounds, erasure and changes."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest

from maillard import Bandit, Features, Reward, hashed, wire_schema
from maillard.decisions.decision import LoggedContext
from maillard.decisions.stores import Store
from maillard.features import category, flag
from maillard.features.feature_types import Number
from maillard.service.context_monitor import ContextMonitor
from maillard.service.context_statistics import (
    MAX_ARMS,
    MAX_KEYS,
    MAX_VALUES,
    ContextStatistics,
    Declaration,
)
from tests.stores import EXPERIMENT, Log

FEATURES = Features(
    {
        "device": category(["phone", "desktop"]),
        "age": (20, 40),
        "member": flag(default=False),
        "shop": hashed(4),
    }
)


def read(store: Store, monitor: ContextMonitor | None = None, by: str | None = None) -> dict[str, Any]:
    """The statistics after the whole log was read; they fit the wire schema."""
    found = (monitor or ContextMonitor(store, lag=0)).read(EXPERIMENT, by, limit_s=60)
    assert found["complete"]
    msgspec.convert(found | {"notes": []}, wire_schema.ContextActivity)
    return found


def visit(bandit: Bandit, rounds: int, seed: int, unit: str | None = None) -> None:
    """Decisions with contexts, of which most get a reward and some get a second one."""
    rng = random.Random(seed)
    for _ in range(rounds):
        context: dict[str, Any] = {
            "device": rng.choice(["phone", "desktop", "watch"]),
            "age": rng.randrange(10, 50),
            "shop": f"s{rng.randrange(9)}",
        }
        if rng.random() < 0.5:
            context["member"] = rng.random() < 0.5
        decision = bandit.choose(unit, context=context)
        for event in range(rng.choice((0, 1, 1, 2))):
            bandit.reward(decision, rng.random(), event=str(event))


def recomputed(bandit: Bandit, label: Any) -> dict[Any, tuple[int, int, Any]]:
    """Decisions, rewards and their mean for each label of a context, from all rows of the log."""
    decisions: Counter[Any] = Counter()
    rewards: Counter[Any] = Counter()
    totals: defaultdict[Any, float] = defaultdict(float)
    for row in bandit.session.store.rows(EXPERIMENT):
        if row.decision.context is not None:
            place = label(json.loads(row.decision.context))
            decisions[place] += 1
            if row.applied:
                rewards[place] += 1
                totals[place] += row.applied[-1].value
    return {
        place: (n, rewards[place], pytest.approx(totals[place] / rewards[place]) if rewards[place] else None)
        for place, n in decisions.items()
    }


def by_value(found: dict[str, Any]) -> dict[Any, tuple[int, int, Any]]:
    return {each["value"]: (each["decisions"], each["rewards"], each["mean"]) for each in found["segments"]}


def part_of_age(context: dict[str, Any]) -> str:
    age: int = context["age"]
    names = ["20 to 24", "24 to 28", "28 to 32", "32 to 36", "36 to 40"]
    if not 20 <= age <= 40:
        return "below 20" if age < 20 else "above 40"
    return names[min((age - 20) // 4, 4)]


def test_increments_equal_a_recomputation(log: Log) -> None:
    """Also with the rewards of earlier decisions, and with several short reads."""
    rule = Reward(low=0, high=1, combine="sum")
    bandit = log.bandit(policy="lin-ms:floor=0.2", reward=rule, features=FEATURES)
    store = log.open()
    monitor = ContextMonitor(store, lag=0)
    for seed in range(3):
        visit(bandit, 40, seed)
        read(store, monitor)
    waiting = bandit.choose(context={"device": "phone", "age": 30, "shop": "s1"})
    read(store, monitor)
    bandit.reward(waiting, 0.25)
    for key, label in (
        ("device", lambda context: context["device"]),
        ("age", part_of_age),
        ("member", lambda context: str(context["member"]).lower() if "member" in context else None),
        ("shop", lambda context: context["shop"]),
    ):
        found = read(store, monitor, key)
        assert by_value(found) == recomputed(bandit, label), key
        anew = read(store, by=key)
        assert {**found, "as_of": None} == {**anew, "as_of": None}
        assert found["keys"] == ["device", "age", "member", "shop"]
        assert (found["decisions"], found["without_context"], found["other"]) == (121, 0, None)
        assert sum(each["fraction"] for each in found["segments"]) == pytest.approx(1)
        for each in found["segments"]:
            assert sum(arm["decisions"] for arm in each["arms"]) == each["decisions"]
            assert sum(arm["rewards"] for arm in each["arms"]) == each["rewards"]


def test_observed_features(log: Log) -> None:
    bandit = log.bandit(policy="lin-ms:floor=0.2", features=FEATURES)
    shops = ["a", "b", "c"]
    for age, device in ((10, "phone"), (30, "watch"), (41, "tv"), (20, "desktop"), (40, "phone")):
        bandit.choose(context={"device": device, "age": age, "shop": shops[age % 3], "member": age > 30})
    bandit.choose(context={"device": "phone", "age": 30.5, "shop": "a"})
    found = {each["name"]: each for each in read(log.open())["features"]}
    assert found["age"] == {
        "name": "age", "type": "number", "decisions": 6, "missing": 0, "low": 20, "high": 40,
        "observed_low": 10, "observed_high": 41, "clipped": 2,
    }  # fmt: skip
    assert found["device"] == {
        "name": "device", "type": "category", "decisions": 6, "missing": 0, "levels": 2, "other": 2,
        "values": 4,
    }  # fmt: skip
    assert found["member"] == {"name": "member", "type": "flag", "decisions": 5, "missing": 1, "true": 2}
    counts = Counter([shops[age % 3] for age in (10, 30, 41, 20, 40)] + ["a"])
    by_bucket: Counter[int] = Counter()
    for shop, count in counts.items():
        by_bucket[FEATURES.types["shop"].encode("shop", shop)[0]] += count
    assert found["shop"] == {
        "name": "shop", "type": "hashed", "decisions": 6, "missing": 0, "buckets": 4,
        "buckets_used": len(by_bucket), "largest_bucket": max(by_bucket.values()), "values": 3,
    }  # fmt: skip


def test_an_erased_unit_is_forgotten(log: Log) -> None:
    """Its values are not shown any more, and its rewards do not count in a segment."""
    bandit = log.bandit(policy="uniform", segments=["device"])
    visit(bandit, 10, 1)
    bandit.reward(bandit.choose("me@example.org", context={"device": "secret-device", "mail": "me"}), 1.0)
    store = log.open()
    monitor = ContextMonitor(store, lag=0)
    assert "secret-device" in by_value(read(store, monitor))
    assert "mail" in read(store, monitor)["keys"]
    bandit.erase_unit("me@example.org")
    found = read(store, monitor)
    assert "secret-device" not in repr(found)
    assert "mail" not in found["keys"]
    assert (found["decisions"], found["without_context"]) == (11, 1)
    assert by_value(found) == recomputed(bandit, lambda context: context["device"])
    visit(bandit, 5, 2)
    assert read(store, monitor)["decisions"] == 16  # and counting goes on


def test_changed_features_are_compared_with_their_declaration(log: Log) -> None:
    bandit = log.bandit(policy="lin-ms:floor=0.2", features=Features({"age": (20, 40)}))
    bandit.choose(context={"age": 50})
    store = log.open()
    monitor = ContextMonitor(store, lag=0)
    assert read(store, monitor)["features"][0]["clipped"] == 1
    bandit.change_features(Features({"age": (20, 60)}))
    bandit.choose(context={"age": 55})
    found = read(store, monitor)
    assert (found["features"][0]["high"], found["features"][0]["clipped"]) == (60, 0)
    assert found["features"][0]["decisions"] == 1  # those that were encoded in this way
    assert by_value(found) == {"52 to 60": (1, 0, None), "44 to 52": (1, 0, None)}


def test_contexts_that_are_only_stored(log: Log) -> None:
    """They have keys without a declaration. Another experiment of the store does not count."""
    bandit = log.bandit(policy="uniform")
    other = log.bandit(policy="uniform", experiment="other")
    for number in range(6):
        bandit.choose(context={"page": number % 2, "flag": True} if number < 4 else None)
        other.choose(context={"page": 7})
    found = read(log.open(), by="page")
    assert by_value(found) == {"0": (2, 0, None), "1": (2, 0, None)}
    assert (found["decisions"], found["without_context"], found["features"]) == (6, 2, [])
    assert by_value(read(log.open(), by="flag")) == {"true": (4, 0, None)}
    assert read(log.open())["by"] == "page"


def test_features_of_arms_are_no_part_of_the_context(log: Log) -> None:
    features = Features({"device": ["phone"], "price": (0, 10)})
    arms = {"small": {"price": 1}, "large": {"price": 9}}
    bandit = log.bandit(arms, "lin-ms:floor=0.2", features=features, model="shared")
    bandit.choose(context={"device": "phone"})
    found = read(log.open())
    assert found["keys"] == ["device"]
    assert [each["name"] for each in found["features"]] == ["device"]


def test_hostile_contexts_do_not_fill_the_memory() -> None:
    """Only the first keys, values and arms are kept; the totals stay right."""
    statistics = ContextStatistics(Declaration(("device",)))
    for number in range(3 * MAX_VALUES):
        context = {"device": f"d{number}", f"key{number}": "x" * 1000, "y" * 9999: 1, "long": "z" * 1000}
        row = LoggedContext(str(number), f"arm{number}", json.dumps(context), 0)
        statistics.count(row)
        statistics.reward(row, 1.0)
    for text in ("", "[]", "null", "\ud800", "[" * 5000, '{"a": ' * 5000):
        statistics.count(LoggedContext("1", "a", text, 0))
    assert len(statistics.keys) == MAX_KEYS
    segments, other = statistics.segments("device")
    assert other is not None
    assert sum(each["decisions"] for each in [*segments, other]) == 3 * MAX_VALUES
    assert sum(each["rewards"] for each in [*segments, other]) == 3 * MAX_VALUES
    assert max(len(each["arms"]) for each in [*segments, other]) <= MAX_ARMS + 1
    pooled = statistics.segments("long")
    assert (pooled[0], pooled[1] and pooled[1]["decisions"]) == ([], 3 * MAX_VALUES)
    assert len(pickle.dumps(statistics._keys)) < 300_000
    assert statistics.without_context == 6


def test_numbers_beyond_all_floats_are_counted() -> None:
    """A decision that was appended may have a context that the experiment would have refused."""
    statistics = ContextStatistics(Declaration(("age",), {"age": Number(0, 10)}, 1))
    for sign in "", "-":
        context = f'{{"age": {sign}1{"0" * 400}}}'
        statistics.count(LoggedContext("1", "a", context, 1))
    assert [each["value"] for each in statistics.segments("age")[0]] == ["below 0", "above 10"]
    assert statistics.features()[0]["missing"] == 2


def test_one_request_reads_a_part_of_a_long_log(log: Log, monkeypatch) -> None:
    """The next ones go on, and no row is counted twice."""
    monkeypatch.setattr("maillard.service.context_monitor._BATCH", 7)
    bandit = log.bandit(policy="uniform", segments=["device"])
    visit(bandit, 30, 1)
    monitor = ContextMonitor(log.open(), lag=0)
    found = monitor.read(EXPERIMENT, None, limit_s=0)
    assert (found["complete"], found["decisions"]) == (False, 7)
    monitor.advance(limit_s=0)
    assert monitor.read(EXPERIMENT, None, limit_s=0)["decisions"] == 21
    assert by_value(read(log.open(), monitor)) == recomputed(bandit, lambda context: context["device"])


def test_only_some_experiments_are_kept(log: Log) -> None:
    """A caller cannot fill the memory with many experiments."""
    bandits = [log.bandit(policy="uniform", experiment=f"e{number}") for number in range(12)]
    bandits[0].choose(context={"page": 1})
    monitor = ContextMonitor(log.open(), lag=0)
    for each in bandits:
        monitor.read(each.experiment, None, limit_s=60)
    assert len(monitor._readers) == 8
    assert monitor.read("e0", "page", limit_s=60)["segments"][0]["value"] == "1"
