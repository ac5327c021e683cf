"""Contexts and features in the dsjson files of Vowpal Wabbit, of our logs and of other programs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maillard import Bandit, Features, Reward, evaluate
from maillard.decisions import read_log, write_log
from maillard.decisions.contexts import Contexts
from maillard.decisions.flat_contexts import flatten
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores.memory import MemoryStore
from maillard.errors import InvalidValue, MaillardError
from tests.decisions.test_log_files import garbled

UNIT_RANGE = Reward(low=0, high=1)
VISITOR = Features({"device": ["phone", "desktop"], "age": (18, 90)})
OFFER = Features(
    {"device": ["phone", "desktop"], "price": (0, 100), "new": bool}, crosses=[("device", "price")]
)


def stored(rng: random.Random) -> Bandit:
    bandit = Bandit(["red", 'bl"ue, {b}'], "kl-ms+", reward=UNIT_RANGE, log=MemoryStore(), seed=1)
    given: list[Any] = [
        {"device": "phone", "_id": 7, "age": 3.5, "new": True},
        {"grün": None, "a:b|c d": "x: y|z"},
        None,
    ]
    reward(bandit, rng, lambda: {"context": rng.choice(given)})
    return bandit


def disjoint(rng: random.Random) -> Bandit:
    options: dict[str, Any] = {"features": VISITOR, "reward": UNIT_RANGE, "log": MemoryStore(), "seed": 1}
    bandit = Bandit(["red", "blue", "green"], "lin-ms:floor=0.1", **options)
    reward(
        bandit,
        rng,
        lambda: {"context": {"device": rng.choice(["phone", "watch"]), "age": rng.uniform(10, 99)}},
    )
    return bandit


def shared(rng: random.Random) -> Bandit:
    arms = {"basic": {"price": 10, "new": True}, "large": {"price": 80.5, "new": False}}
    options: dict[str, Any] = {"features": OFFER, "model": "shared", "reward": UNIT_RANGE, "seed": 1}
    bandit = Bandit(arms, "lin-ts:floor=0.1", log=MemoryStore(), **options)
    reward(bandit, rng, lambda: {"context": {"device": rng.choice(["phone", "desktop"])}})
    bandit.add_arm("medium", features={"price": 40, "new": False})
    reward(bandit, rng, lambda: {"context": {"device": "phone"}})
    return bandit


def dynamic(rng: random.Random) -> Bandit:
    options: dict[str, Any] = {"features": OFFER, "model": "shared", "reward": UNIT_RANGE, "seed": 1}
    bandit = Bandit([], "lin-ms:floor=0.1", log=MemoryStore(), **options)

    def call() -> dict[str, Any]:
        names = rng.sample(range(50), rng.randrange(1, 5))
        actions = {f"article-{name}": {"price": name, "new": name < 9} for name in names}
        return {"context": {"device": "phone"}, "actions": actions}

    reward(bandit, rng, call)
    return bandit


def reward(bandit: Bandit, rng: random.Random, call: Callable[[], dict[str, Any]]) -> None:
    for step in range(20):
        decision = bandit.choose(unit=f"user-{step % 7}", **call())
        if step % 5:
            bandit.reward(decision, float(rng.random() < 0.5))
    bandit.erase_unit("user-3")


def rewarded(log: DecisionLog) -> list[tuple[Any, float]]:
    pairs = [(row.decision, log.final_reward_of(row)) for row in log.rows()]
    return [(decision, value) for decision, value in pairs if value is not None]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf8").split("\n") if line]


# Our own logs.


@pytest.mark.parametrize("make", [stored, disjoint, shared, dynamic])
def test_our_files_are_read_back_with_contexts(make, tmp_path) -> None:
    log = read_log(make(random.Random(3)))
    expected = rewarded(log)
    assert write_log(log, tmp_path / "log.dsjson").rows == len(expected)
    back = read_log(tmp_path / "log.dsjson")
    assert rewarded(back) == expected
    assert any(decision.context is None for decision, _ in expected)  # erased
    assert any(decision.context is not None for decision, _ in expected)
    # A file that was written from a file is the same.
    write_log(back, tmp_path / "again.dsjson")
    policies = [line["maillard"].pop("policy") for line in lines_of(tmp_path / "log.dsjson")]
    assert all(policies)
    without = [
        line | {"maillard": {**line["maillard"], "policy": None}}
        for line in lines_of(tmp_path / "log.dsjson")
    ]
    again = lines_of(tmp_path / "again.dsjson")
    assert [line["maillard"] for line in again] == [line["maillard"] for line in without]
    if make is not shared:  # the attributes of fixed arms are in the events, which the file does not have
        assert again == without


def test_features_are_written_as_vowpal_wabbit_reads_them(tmp_path) -> None:
    write_log(read_log(stored(random.Random(3))), tmp_path / "stored.dsjson")
    arms = [{"Arm": {"name": "red"}}, {"Arm": {"name": 'bl"ue, {b}'}}]
    known = [
        # Vowpal Wabbit ignores keys that begin with an underscore.
        {"Context": {"device": "phone", "._id": 7, "age": 3.5, "new": True}, "_multi": arms},
        {"Context": {"a:b|c d": "x: y|z"}, "_multi": arms},
        {"_multi": arms},
    ]
    found = [line["c"] for line in lines_of(tmp_path / "stored.dsjson")]
    assert all(each in known for each in found)
    assert all(each in found for each in known)

    log = read_log(shared(random.Random(3)))
    write_log(log, tmp_path / "shared.dsjson")
    first, *_, last = lines_of(tmp_path / "shared.dsjson")
    basic, large = first["c"]["_multi"]
    assert basic == {"Arm": {"name": "basic"}, "Features": {"price": 10, "new": True}}
    assert large == {"Arm": {"name": "large"}, "Features": {"price": 80.5, "new": False}}
    assert last["c"]["_multi"][2] == {"Arm": {"name": "medium"}, "Features": {"price": 40, "new": False}}

    log = read_log(dynamic(random.Random(3)))
    write_log(log, tmp_path / "dynamic.dsjson")
    for line, (decision, _) in zip(lines_of(tmp_path / "dynamic.dsjson"), rewarded(log), strict=True):
        actions = json.loads(decision.actions or "{}")
        assert [each["Arm"]["name"] for each in line["c"]["_multi"]] == list(decision.eligible)
        assert [each.get("Features") for each in line["c"]["_multi"]] == [
            actions.get(arm) for arm in decision.eligible
        ]


def test_numbers_beyond_single_precision_are_written_as_text(tmp_path) -> None:
    bandit = Bandit(["red", "blue"], "uniform", reward=UNIT_RANGE)
    bandit.reward(bandit.choose(context={"a": 10**400, "b": -1e300, "c": 1e38}), 1.0)
    write_log(read_log(bandit), tmp_path / "log.dsjson")
    (line,) = lines_of(tmp_path / "log.dsjson")
    assert line["c"]["Context"] == {"a": "1" + "0" * 400, "b": "-1e+300", "c": 1e38}
    assert rewarded(read_log(tmp_path / "log.dsjson")) == rewarded(read_log(bandit))


# Any context, in every format.

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_name = _text.filter(bool)
_value = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text
_values = st.dictionaries(_name, _value, max_size=4)
_arms = st.lists(_name.filter(lambda name: "\0" not in name), min_size=1, max_size=4, unique=True)


@settings(max_examples=25)
@given(
    calls=st.lists(st.tuples(_values, st.none() | _arms), min_size=1, max_size=5),
    erased=st.sets(st.integers(0, 4)),
    actions=st.booleans(),
    data=st.data(),
)
def test_any_context_is_read_back_from_every_format(tmp_path_factory, calls, erased, actions, data) -> None:
    """Unicode, long numbers, missing values, quotes, line breaks, arms that differ, erased units."""
    store = MemoryStore()
    if actions:
        features = Features({"x": (0, 1)}, rest=None)
        bandit = Bandit([], "lin-ms", features=features, model="shared", reward=UNIT_RANGE, log=store)
    else:
        bandit = Bandit(["red", "blue"], "kl-ms+", reward=UNIT_RANGE, log=store)
    for place, (context, names) in enumerate(calls):
        arms = names or ["red"]
        given = {arm: {"x": data.draw(st.floats(0, 1))} for arm in arms} if actions else None
        decision = bandit.choose(unit=f"{place}", context=None if actions else context, actions=given)
        bandit.reward(decision, 1.0)
    for place in sorted(erased):
        bandit.erase_unit(str(place))
    log, folder = read_log(bandit), tmp_path_factory.mktemp("formats")
    rows = list(log.rows())
    for name in ("log.parquet", "log.csv"):
        write_log(log, folder / name)
        assert list(read_log(folder / name).rows()) == rows
    assert list(read_log(log.to_pandas()).rows()) == rows
    write_log(log, folder / "log.dsjson")
    assert rewarded(read_log(folder / "log.dsjson")) == rewarded(log)
    # Without our own fields, what Vowpal Wabbit reads is left.
    lines = [{**line, "maillard": None} for line in lines_of(folder / "log.dsjson")]
    (folder / "bare.dsjson").write_text("\n".join(map(json.dumps, lines)), encoding="utf8")
    bare = read_log(folder / "bare.dsjson")
    for row, original in zip(bare.rows(), rows, strict=True):
        before, after = original.decision, row.decision
        assert (after.arm, after.eligible) == (before.arm, before.eligible)
        assert after.log_probabilities == pytest.approx(before.log_probabilities)
        contexts = [{} if d.context is None else json.loads(d.context) for d in (before, after)]
        assert contexts[1] == {
            f"Context.{'.' * key.startswith('_')}{key}": _as_feature(value)
            for key, value in contexts[0].items()
            if value is not None
        }


def _as_feature(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and abs(value) > 3.4e38 else value


# Logs of other programs.


def line(
    chosen: int, cost: float, p: list[float], context: dict[str, Any], arms: list[Any], **more: Any
) -> str:
    """A line as the services of Microsoft write it: the chosen action first."""
    order = [chosen, *(each for each in range(1, len(p) + 1) if each != chosen)]
    content = {
        "_label_cost": cost,
        "_label_probability": p[chosen - 1],
        "_label_Action": chosen,
        "_labelIndex": chosen - 1,
        "Timestamp": "2026-02-04T16:31:29.2460000Z",
        "Version": "1",
        "a": order,
        "c": {**context, "_multi": arms},
        "p": [p[each - 1] for each in order],
    }
    return json.dumps(content | more) + "\n"


def read_lines(path: Path, *lines: str) -> DecisionLog:
    path.write_text("".join(lines), encoding="utf8")
    return read_log(path)


COFFEE = [
    {"_tag": "latte", "i": {"constant": 1, "id": "latte"}, "j": [{"type": "hot", "_price": 3}]},
    {"_tag": "mocha", "i": {"constant": 1, "id": "mocha"}, "j": [{"type": "iced"}, {"Tags": {"sweet": 0.9}}]},
]


def test_a_log_of_azure_personalizer_is_read_with_its_contexts(tmp_path) -> None:
    request = {
        "_synthetic": False,
        "FromUrl": [{"time": "Morning", "_id": 3}, {"user": {"age": 36}}],
        "new": True,
    }
    other = [{"_tag": "tea", "j": []}, COFFEE[1], {"_tag": "water"}]
    log = read_lines(
        tmp_path / "azure.json",
        line(2, -1, [0.2, 0.8], request, COFFEE, EventId="one"),
        "[CHECKPOINT INFO LINE]\n",
        json.dumps({"RewardValue": 1.0, "EventId": "late", "Observations": []}) + "\n",
        line(1, 0, [1.0, 0.0], request, COFFEE, EventId="not shown", _skipLearn=True),
        line(1, 0, [1.0, 0.0], request, COFFEE, EventId="not activated", _deferred=True, DeferredAction=True),
        line(3, -0.5, [0.25, 0.25, 0.5], {}, other, o=[{"v": 0.5, "EventId": "two"}], pdrop=0.0),
    )
    first, second = log.rows()
    d = first.decision
    assert (d.id, d.arm, d.eligible, log.reward_of(first)) == ("one", "mocha", ("latte", "mocha"), 1.0)
    assert d.probabilities == pytest.approx({"latte": 0.2, "mocha": 0.8}, rel=1e-15)
    assert json.loads(d.context or "") == {"FromUrl.time": "Morning", "FromUrl.user.age": 36, "new": True}
    assert json.loads(d.actions or "") == {
        "latte": {"i.constant": 1, "i.id": "latte", "j.type": "hot"},
        "mocha": {"i.constant": 1, "i.id": "mocha", "j.type": "iced", "j.Tags.sweet": 0.9},
    }
    d = second.decision
    assert (d.arm, d.eligible, log.reward_of(second), d.context) == (
        "water",
        ("tea", "mocha", "water"),
        0.5,
        None,
    )
    assert log.arms == ("latte", "mocha", "tea", "water")
    for name in ("copy.dsjson", "copy.parquet", "copy.csv"):
        write_log(log, tmp_path / name)
        assert list(read_log(tmp_path / name).rows())[:1] == [first] or name != "copy.dsjson"
        assert [row.decision.arm for row in read_log(tmp_path / name).rows()] == ["mocha", "water"]


def test_each_slot_is_a_decision(tmp_path) -> None:
    """Conditional contextual bandits: an action is chosen for one slot after the other."""
    arms = [{"_tag": name, "price": price} for price, name in enumerate(["tea", "latte", "mocha"], 1)]
    slots = [{"size": "wide", "_inc": [0, 1, 2]}, {"size": "small"}]
    outcomes = [
        {"_label_cost": -1.0, "_a": [2, 0, 1], "_p": [0.5, 0.2, 0.3], "_o": [-1.0]},
        {"_id": "other", "_label_cost": 0.0, "_a": [1, 0], "_p": [0.25, 0.75]},
    ]
    data = {
        "Timestamp": "2026-02-04T16:31:29.2460000Z",
        "EventId": "page-7",
        "c": {"user": {"age": 36}, "_multi": arms, "_slots": slots},
        "_outcomes": outcomes,
    }
    log = read_lines(tmp_path / "ccb.json", json.dumps(data) + "\n", line(1, 0, [1.0], {}, [{"_tag": "tea"}]))
    first, second, third = log.rows()
    one, two = first.decision, second.decision
    assert (one.id, one.unit, one.position, two.id, two.unit, two.position) == (
        "page-7/0", "page-7", 0, "other", "page-7", 1
    )  # fmt: skip
    assert (one.arm, two.arm, third.decision.arm) == ("mocha", "latte", "tea")
    assert one.probabilities == pytest.approx({"tea": 0.2, "latte": 0.3, "mocha": 0.5}, rel=1e-15)
    assert two.probabilities == pytest.approx({"tea": 0.75, "latte": 0.25}, rel=1e-15)
    assert [log.reward_of(row) for row in log.rows()] == [1.0, 0.0, 0.0]
    assert json.loads(one.context or "") == {"user.age": 36, "slot.size": "wide"}
    assert json.loads(two.context or "") == {"user.age": 36, "slot.size": "small"}
    assert json.loads(two.actions or "") == {"tea": {"price": 1}, "latte": {"price": 2}}
    assert [row.decision.state for row in log.rows()] == [0, 1, 2]
    write_log(log, tmp_path / "copy.dsjson")
    assert list(read_log(tmp_path / "copy.dsjson").rows()) == [first, second, third]


def test_a_rule_is_evaluated_on_a_log_of_another_program(tmp_path) -> None:
    rng, lines = random.Random(5), []
    for step in range(2000):
        phone = rng.random() < 0.5
        p = [0.7, 0.3] if phone else [0.4, 0.6]
        chosen = 1 if rng.random() < p[0] else 2
        good = (chosen == 1) == phone
        cost = -float(rng.random() < (0.7 if good else 0.2))
        context = {"user": {"device": "phone" if phone else "desktop", "age": rng.randrange(18, 80)}}
        lines.append(line(chosen, cost, p, context, COFFEE, EventId=str(step)))
    log = read_lines(tmp_path / "azure.json", *lines)
    options: dict[str, Any] = {"reward_range": (0, 1), "adaptive": False}
    report = evaluate(log, "rule:user.device=phone->latte,else->mocha", ["snips", "dr"], **options)
    for name in ("snips", "dr"):
        assert report[name].lower < 0.7 < report[name].upper
    by = evaluate(log, "arm:latte", ["snips"], by="user.device", **options)
    assert by["phone"]["snips"].lower < 0.7 < by["phone"]["snips"].upper
    assert by["desktop"]["snips"].lower < 0.2 < by["desktop"]["snips"].upper


def test_lists_that_differ_are_evaluated_by_rank(tmp_path) -> None:
    """Azure Personalizer's baseline is the action that the application listed first."""
    rng, lines, first = random.Random(6), [], []
    for step in range(1500):
        names = rng.sample(["tea", "latte", "mocha", "water"], rng.choice([2, 3]))
        p = [1 / len(names)] * len(names)
        chosen = rng.randrange(len(names))
        reward = float(rng.random() < (0.8 if names[chosen] == "tea" else 0.3))
        first.append(0.8 if names[0] == "tea" else 0.3)
        actions = [{"_tag": name, "j": [{"size": len(name)}]} for name in names]
        lines.append(line(chosen + 1, -reward, p, {}, actions, EventId=str(step)))
    log = read_lines(tmp_path / "azure.json", *lines)
    assert log.has_actions
    options: dict[str, Any] = {"reward_range": (0, 1), "adaptive": False}
    found = evaluate(log, "rank:1", ["snips", "dr"], **options)
    for name in ("snips", "dr"):
        assert found[name].lower < sum(first) / len(first) < found[name].upper
    assert not read_lines(tmp_path / "same.json", *[line(1, -1, [0.5, 0.5], {}, COFFEE)] * 2).has_actions


def test_probabilities_with_few_digits(tmp_path) -> None:
    log = read_lines(tmp_path / "few.json", line(2, 0, [0.3333, 0.3333, 0.3333], {}, [{}, {}, {}]))
    (row,) = log.rows()
    assert row.decision.probabilities == pytest.approx({"1": 1 / 3, "2": 1 / 3, "3": 1 / 3}, rel=1e-12)
    assert next(log.columns()).has_all_probabilities


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pdrop": 0.5}, "line 2: pdrop: expected 0: decisions were dropped at random. If all lines have the "
         "same pdrop, remove it from them, got 0.5"),
        ({"_outcomes": [{"_a": [0], "_p": [1]}]}, "line 2: _outcomes: expected an outcome for each"),
        ({"c": {"_slots": [{}], "_multi": [{}, {}]}}, "line 2: _outcomes: expected an outcome for each"),
        ({"c": {"_slots": [{}], "_multi": [{"_slot_id": 0}, {}]}, "_outcomes": [{}]},
         "line 2: _slot_id: expected no slates: all slots of a slate share one reward"),
        ({"c": {"_slots": [{}], "_multi": [{}, {}]}, "_outcomes": [{"_a": [0, 2], "_p": [0.5, 0.5]}]},
         "line 2: _a: expected indices of actions, from 0 to 1, got [0, 2]"),
        ({"c": {"_slots": [{}], "_multi": [{}, {}]}, "_outcomes": [{"_a": [1, 1], "_p": [0.5, 0.5]}]},
         "line 2: a: expected each of 1 arms once, and one p for each, got [1, 1]"),
        ({"c": {"user": {"a": 1}, "user.a": 2, "_multi": [{}, {}]}},
         "line 2: c: user.a: expected one value for each key, got [1, 2]"),
        ({"c": {"_multi": [{"f": 1e999}, {}]}}, "line 2: _multi: 1: f: expected a finite number"),
        ({"c": {"_multi": 3}}, "line 2: content: expected a decision in the dsjson format of Vowpal Wabbit"),
        ({"c": {"x": json.loads("[" * 40 + "]" * 40), "_multi": [{}, {}]}}, "line 2: c: x"),
        ({"p": [0.5, 0.4]}, "line 2: p: expected probabilities with sum 1, got [0.5, 0.4]"),
        ({"p": [1.5, -0.5]}, "line 2: p: expected probabilities with sum 1, got [1.5, -0.5]"),
        ({"p": [0.5]}, "line 2: a: expected each of 2 arms once, and one p for each, got [1, 2]"),
        ({"_label_probability": 0.9}, "line 2: _label_probability: expected 0.5, as in p, got 0.9"),
        ({"_label_Action": 3}, "line 2: _label_Action: expected numbers of arms, from 1 to 2, got 3"),
        ({"_labelIndex": 1}, "line 2: _labelIndex: expected 0, the index of the chosen arm, got 1"),
        ({"a": [0, 1]}, "line 2: a: expected numbers of arms, from 1 to 2, got 0"),
        ({"Timestamp": "today"}, "line 2: Timestamp: expected a time such as"),
        ({"maillard": {"encoded": "?"}}, "line 2: encoded: expected encoded feature rows, or"),
        ({"maillard": {"context": 3}}, "line 2: context: expected text, got 3"),
    ],
)  # fmt: skip
def test_errors_name_the_line_and_the_value(change, message, tmp_path) -> None:
    good = line(1, -1, [0.5, 0.5], {"user": {"age": 3}}, [{}, {}])
    with pytest.raises(InvalidValue) as caught:
        read_lines(tmp_path / "wrong.json", good, json.dumps(json.loads(good) | change))
    assert message in str(caught.value)


def test_garbled_lines_raise_only_maillard_errors(tmp_path) -> None:
    rng, path, refused = random.Random(8), tmp_path / "log.dsjson", 0
    write_log(read_log(dynamic(rng)), path)
    slots = {
        "c": {"x": {"y": [1, {"z": 2}]}, "_multi": COFFEE, "_slots": [{"s": 1}]},
        "_outcomes": [{"_a": [1, 0], "_p": [0.5, 0.5]}],
    }
    ours = path.read_bytes().split(b"\n")[:3]
    data = b"\n".join(
        [*ours, line(2, -1, [0.2, 0.8], {"user": {"age": 36}}, COFFEE).encode(), json.dumps(slots).encode()]
    )
    for _ in range(150):
        path.write_bytes(garbled(data, rng))
        try:
            for row in read_log(path).rows():
                Contexts.of_texts([row.decision.context]).column("user.age")
        except MaillardError:
            refused += 1
    assert refused > 60


# Nested contexts.


def test_flat_contexts() -> None:
    flat = {"device": "phone", "age": 36, "a.b": None, "_x": True}
    assert flatten(flat, "context") == flat
    assert flatten([], "context") == {}
    assert flatten({"a": {}, "b": [], "c": [None, [1, {"d": 2}]]}, "context") == {
        "c.0": None,
        "c.1.0": 1,
        "c.1.d": 2,
    }
    # The same value twice is one value. 1, 1.0 and True are three.
    assert flatten([{"a": 1}, {"a": 1}], "context") == {"a": 1}
    for other in (1.0, True, None):
        with pytest.raises(InvalidValue, match="context: a: expected one value for each key"):
            flatten([{"a": 1}, {"a": other}], "context")


@pytest.mark.parametrize("wrong", [3, "text", None, {"": 1}, {"a": {"": 1}}, {3: 1}, {"a": {1, 2}}])
def test_wrong_nested_contexts(wrong) -> None:
    with pytest.raises(InvalidValue, match=r"^context"):
        flatten(wrong, "context")


def test_long_keys_are_not_repeated_for_every_value_in_them() -> None:
    """Half a megabyte of JSON would become gigabytes of keys."""
    names = [f"k{number}" for number in range(8_000)]
    for length, values in ((400_000, 1), (400_000, {}), (16_000, 1)):
        with pytest.raises(InvalidValue, match=r"^context: expected .* characters"):
            flatten({"a" * length: dict.fromkeys(names, values)}, "context")
    assert len(flatten({"a" * 300: dict.fromkeys(names[:100], 1)}, "context")) == 100


def test_an_integer_of_thousands_of_digits_is_refused() -> None:
    bandit = Bandit(["red", "blue"], "uniform")
    with pytest.raises(InvalidValue, match="context: expected at most 16384 bytes"):
        bandit.choose(context={"x": 10**5000})
