"""Contexts of a log, targets that depend on them, and the model of the rewards."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from maillard import Bandit, Features, LinearTally, Reward, compare, evaluate, policy, read_log
from maillard.decisions.contexts import Contexts
from maillard.errors import CannotAnswer, InvalidValue, UnknownName
from maillard.evaluation.context_encoding import encode_contexts
from maillard.evaluation.contextual_targets import FrozenTarget
from maillard.evaluation.reward_models import RidgeModel
from maillard.evaluation.rules import Rule
from maillard.evaluation.sequential.aipw import Weighted
from tests.evaluation.context_tables import ARMS, device_log, with_context, with_distributions

RULE = "rule:device=phone&age<50->blue,device=tablet->uniform,else->red"
OPTIONS = {"reward_range": (0, 1), "floor": 0.2}


def by_function(context):
    if context.get("device") == "phone" and context["age"] < 50:
        return "blue"
    return {"blue": 0.5, "red": 0.5} if context.get("device") == "tablet" else "red"


def values_of(report):
    return {name: (each.value, each.lower, each.upper) for name, each in report.items()}


def test_rules_are_read_and_written() -> None:
    rule = Rule.read("rule: 'key, 1'='it''s' & age>=30.5 -> x y, else -> 'uniform'")
    assert str(rule) == "rule:'key, 1'='it''s'&age>=30.5->x y,else->'uniform'"
    assert Rule.read(str(rule)) == rule
    assert rule.clause_of({"key, 1": "it's", "age": 31}).arm == "x y"
    assert rule.clause_of({"age": 31}).arm == "uniform"
    numbers = Rule.read("rule:age=30->a,returning=true->b,else->uniform")
    for context, arm in [({"age": 30.0}, "a"), ({"age": "30"}, "a"), ({"returning": True}, "b"), ({}, None)]:
        assert numbers.clause_of(context).arm == arm


def test_the_first_clause_that_holds_decides() -> None:
    rule = Rule.read("rule:a<2->x,a<3&b=1->y,b=1->x,else->z")
    contexts = [{"a": a, "b": b} for a in range(4) for b in range(2)]
    places = rule.places(Contexts.of_texts([json.dumps(each) for each in contexts]))
    assert [rule.clauses[place] for place in places] == [rule.clause_of(each) for each in contexts]
    assert set(places.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rule:device=phone->blue", "else->ARM"),
        ("rule:else->blue,device=phone->red", "else as the last"),
        ("rule:age<old->blue,else->red", "a number"),
        ("rule:age>3->blue,else->red", "no single >"),
        ("rule:device->blue,else->red", "conditions"),
        ("rule:device='phone->blue,else->red", "closed quotes"),
        ("rule:device=phone->blue,", "after the last comma"),
        ("rule:device=phone->blue=3,else->red", "comma between"),
    ],
)
def test_malformed_rules_are_refused(spec, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        evaluate(device_log(), spec)


def test_rules_name_unknown_keys_and_arms() -> None:
    log = with_context(device_log())
    with pytest.raises(UnknownName, match="device"):
        evaluate(log, "rule:devise=phone->blue,else->red")
    with pytest.raises(UnknownName, match="blue"):
        evaluate(log, "rule:device=phone->blau,else->red")
    with pytest.raises(UnknownName, match="device"):
        evaluate(device_log(), "rule:devise=phone->blue,else->red")
    with pytest.raises(InvalidValue, match="numbers as values"):
        evaluate(log, "rule:device<3->blue,else->red")
    with pytest.raises(CannotAnswer, match="no contexts"):
        evaluate(device_log(), by_function)


def test_a_rule_equals_the_same_function() -> None:
    log, calls = with_context(with_distributions(device_log())), []

    def counted(context):
        calls.append((context["device"], context["age"]))
        return by_function(context)

    rule, function = evaluate(log, RULE, **OPTIONS), evaluate(log, counted, **OPTIONS)
    assert values_of(rule) == values_of(function)
    assert len(rule) > 8
    assert len(calls) == len(set(calls)) == len(set(zip(device_log().device, device_log().age, strict=True)))


@pytest.mark.parametrize("returned", ["green", {"blue": 0.5}, {"blue": 1.5, "red": -0.5}, 3, {"blue": "x"}])
def test_a_function_must_return_a_distribution(returned) -> None:
    with pytest.raises((InvalidValue, UnknownName), match="target"):
        evaluate(with_context(device_log()), lambda _context: returned)


def test_all_formats_of_contexts_give_the_same_estimates(tmp_path) -> None:
    plain = device_log()
    json_texts = with_context(plain)
    plain.to_parquet(tmp_path / "columns.parquet")
    json_texts.to_parquet(tmp_path / "json.parquet")
    plain.to_csv(tmp_path / "columns.csv", index=False)
    json_texts.to_csv(tmp_path / "json.csv", index=False)
    sources = {
        "pandas": json_texts,
        "struct": with_context(plain, "struct"),
        "polars": pl.from_arrow(with_context(plain, "struct")),
        "columns": plain,
        "arrays": {name: plain[name].to_numpy() for name in plain},
        **{name: tmp_path / name for name in ("columns.parquet", "json.parquet", "columns.csv", "json.csv")},
    }
    found = {
        name: evaluate(each, RULE, context=["device", "age"], **OPTIONS) for name, each in sources.items()
    }
    first = values_of(found["pandas"])
    for name, report in found.items():
        for estimator, expected in values_of(report).items():
            assert expected == pytest.approx(first[estimator], rel=1e-12), (name, estimator)
    renamed = json_texts.rename(columns={"context": "visitor"})
    assert values_of(evaluate(renamed, RULE, columns={"context": "visitor"}, **OPTIONS)) == first


def test_contexts_that_are_missing_or_malformed() -> None:
    log = with_context(device_log())
    log.loc[::7, "context"] = None
    weights = np.where(log.context.isna(), log.arm == "red", [
        by_function({"device": d, "age": a}) == arm if d != "tablet" else 0.5
        for d, a, arm in zip(device_log().device, device_log().age, log.arm, strict=True)
    ]) / log.probability  # fmt: skip
    assert evaluate(log, RULE, ["ips"])["ips"].value == pytest.approx(
        (weights * log.reward).mean(), rel=1e-12
    )
    log.loc[3, "context"] = "[1]"
    with pytest.raises(InvalidValue, match="JSON object"):
        evaluate(log, RULE)
    assert evaluate(log, "arm:blue", ["ips"])["ips"].value is not None  # the contexts are not needed


def test_contexts_are_columns_by_key() -> None:
    contexts = Contexts.of_texts(['{"a": 1, "b": true}', None, '{"a": 1.5}', '{"a": [1, 2]}'])
    assert contexts.column("a").values == (1, None, 1.5, "[1,2]")
    assert contexts.column("a").numbers() is None
    assert contexts.column("b").values == (True, None)
    assert contexts.known.tolist() == [True, False, True, True]
    part = contexts.filter(np.array([True, False, True, False]))
    assert np.array_equal(part.column("a").numbers(), [1.0, 1.5])
    assert part.distinct()[0][part.distinct()[1][1]] == {"a": 1.5}


def test_contexts_are_encoded_like_mappings() -> None:
    features = Features(
        {"device": ["phone"], "age": (18, 90), "returning": bool}, crosses=[("device", "age")]
    )
    texts = ['{"device":"phone","age":36,"returning":true}', '{"device":"x","age":20.5,"returning":false}']
    contexts = Contexts.of_texts(texts * 2)
    rows = [features.encode({"device": "phone", "age": 36, "returning": True}),
            features.encode({"device": "x", "age": 20.5, "returning": False})] * 2  # fmt: skip
    assert encode_contexts(features, contexts).tolist() == np.array(rows).tolist()


def plain_predictions(x, arm, reward, arms):
    """Ridge regression on the rows up to the last refit, for each row anew."""
    refits = [0, 1]
    while refits[-1] < len(arm):
        last = refits[-1]
        refits.append(2 * last if last < 64 else math.ceil(1.25 * last))
    found = np.empty((len(arm), arms))
    for row in range(len(arm)):
        used = max(each for each in refits if each <= row)
        c = reward[:used].mean() if used else 0.5
        for a in range(arms):
            mine = np.flatnonzero(arm[:used] == a)
            gram = np.eye(x.shape[1]) + x[mine].T @ x[mine]
            theta = np.linalg.solve(gram, x[mine].T @ (reward[mine] - c))
            found[row, a] = min(max(c + x[row] @ theta, 0.0), 1.0)
    return found


def test_the_ridge_model_predicts_from_earlier_rows_only() -> None:
    rng = np.random.default_rng(1)
    x, arm, reward = rng.random((300, 3)), rng.integers(0, 2, 300), rng.random(300)
    expected = plain_predictions(x, arm, reward, 2)
    for sizes in ([300], [1, 2, 97, 200], [150, 150]):
        model, ends = RidgeModel(2, 3, (0.0, 1.0)), np.cumsum([0, *sizes])
        parts = [slice(a, b) for a, b in pairwise(ends.tolist())]
        found = np.vstack([model.advance(x[part], arm[part], reward[part]) for part in parts])
        assert found == pytest.approx(expected, abs=1e-10)


def test_doubly_robust_estimators_use_the_ridge_model() -> None:
    frame = with_distributions(device_log(400))
    keys = dict.fromkeys(frame.device)
    x = np.zeros((400, 12))
    x[:, 0] = 1.0
    x[np.arange(400), [1 + list(keys).index(each) for each in frame.device]] = 1.0
    arm, reward = np.array([ARMS.index(each) for each in frame.arm]), frame.reward.to_numpy()
    q = plain_predictions(x, arm, reward, 2)
    pi = np.array([[1.0, 0.0] if device == "phone" else [0.0, 1.0] for device in frame.device])
    p, every = np.exp(np.array(frame.log_probabilities.tolist())), np.arange(400)
    w = pi[every, arm] / p[every, arm]
    gamma = (pi * q).sum(axis=1) + w * (reward - q[every, arm])
    rule = "rule:device=phone->blue,else->red"
    report = evaluate(frame, rule, ["dr", "aipw", "aipw-sqrt"], **OPTIONS)
    assert report["dr"].value == pytest.approx(gamma.mean(), rel=1e-12)
    assert report["aipw"].value == pytest.approx(gamma[1:].mean(), rel=1e-12)
    # The weight of a row is known before its context: from the earlier rows, the later ones count more.
    inverse = (pi**2 / p).sum(axis=1)
    h = np.array([1 / math.sqrt(np.average(inverse[:t], weights=np.arange(1, t + 1))) for t in range(1, 400)])
    # The first mean is that of the first row.
    assert report["aipw-sqrt"].value == pytest.approx(np.average(gamma[1:], weights=h), rel=1e-12)
    declared = Features({"device": ["phone"]})
    named = evaluate(frame, rule, ["dr"], features="device", **OPTIONS)["dr"].value
    assert named == report["dr"].value
    assert evaluate(frame, rule, ["dr"], features=declared, **OPTIONS)["dr"].value != named


def test_row_weights_that_depend_on_the_context_would_be_biased() -> None:
    rng = np.random.default_rng(3)
    n = 20_000
    phone = rng.random(n) < 0.5
    p = np.where(phone, 0.95, 0.05)
    blue = rng.random(n) < p
    reward = (rng.random(n) < np.where(phone, 0.8, 0.2)).astype(float)
    columns = {
        "arm": blue.astype(int), "reward": reward, "weight": blue / p, "propensity": p,
        "target_row": np.zeros(n, int), "target_probabilities": [[0.0, 1.0]],
    }  # fmt: skip
    found = {}
    for contexts in (True, False):
        weighted = Weighted.start(arms=2, horizon=n, contexts=contexts)
        weighted.advance(**columns)
        found[contexts] = weighted.estimates()["aipw-sqrt"]
    value, error = found[True]
    assert abs(value - 0.5) < 4 * error
    assert found[False][0] > 0.6  # phones would count more


def test_contexts_change_what_can_be_tested_and_estimated() -> None:
    """Rewards, probabilities and arms are all related to the context in a correct log."""
    frame = with_distributions(device_log(6000, seed=2, strength=0.4))
    without = evaluate(frame, "arm:blue", **OPTIONS)
    report = evaluate(with_context(frame), "arm:blue", second_moment=1.0, **OPTIONS)
    assert without["cs-arm"].value is not None
    assert "cs-arm" not in report
    refused = evaluate(with_context(frame), "arm:blue", ["cs-arm", "cs-catoni"], second_moment=1.0, **OPTIONS)
    assert all("contexts" in why for why in refused.refusals.values())
    assert len(refused.refusals) == 2
    assert report.diagnostics.faults == []
    difference = compare(with_context(frame), "arm:blue", "arm:red", ["bols", "aipw"], **OPTIONS)
    assert "contexts" in difference.refusals["bols"]


def test_compare_of_rules_uses_the_same_rows() -> None:
    frame = with_distributions(device_log(800))
    rule = "rule:device=phone->blue,else->red"
    found = compare(frame, rule, "arm:red", ["ips", "snips", "aipw"], **OPTIONS)
    one, two = (
        evaluate(frame, each, ["ips", "snips"], context="device", **OPTIONS) for each in (rule, "arm:red")
    )
    for name in ("ips", "snips"):
        assert found[name].value == pytest.approx(one[name].value - two[name].value, rel=1e-12)
    # Where both choose red, their noise cancels.
    sign = np.where(frame.device == "phone", np.where(frame.arm == "blue", 1.0, -1.0), 0.0)
    terms = sign / frame.probability * frame.reward
    assert found["ips"].standard_error == pytest.approx(terms.std(ddof=0) / math.sqrt(800), rel=1e-12)


def test_a_context_without_support_is_named() -> None:
    frame = device_log(600)
    tablet = frame.device == "tablet"
    frame.loc[tablet, ["arm", "probability"]] = "red", 1.0
    rule = "rule:device=tablet->blue,else->red"
    kept = evaluate(frame, rule, ["snips"], **OPTIONS | {"floor": None})["snips"]
    assert "rows of device=tablet the log never shows 'blue'" in kept.caveat
    refused = evaluate(frame, rule, ["snips"], max_unsupported=0.05, reward_range=(0, 1))
    assert "rows of device=tablet the log never shows 'blue'" in refused.refusals["snips"]


def frozen_bandit() -> Bandit:
    rng = random.Random(1)
    bandit = Bandit(["a", "b", "c"], "kl-ms+:floor=0.3", reward=Reward(low=0, high=1), seed=1)
    for visitor in range(300):
        eligible = ["a", "b"] if visitor % 3 == 0 else None
        decision = bandit.choose(eligible=eligible)
        bandit.reward(decision, float(rng.random() < {"a": 0.2, "b": 0.5, "c": 0.4}[decision.arm]))
    return bandit


def test_a_frozen_policy_is_that_of_its_state() -> None:
    bandit = frozen_bandit()
    log = read_log(bandit)
    state, terms = log.state_at(120), []
    for row in log.rows():
        d = row.decision
        if d.state >= 120:
            distribution = state.choice_distribution(frozenset(d.eligible))
            target = dict(zip(distribution.arms, distribution.probabilities, strict=True))
            terms.append(target[d.arm] / d.probability * log.reward_of(row))
    report = evaluate(bandit, "frozen:120", ["ips", "aipw", "cs-dr"])
    assert report["ips"].value == pytest.approx(np.mean(terms), rel=1e-12)
    assert report.diagnostics.rows == len(terms) < 300
    assert report.diagnostics.left_out["before state 120"] == 300 - len(terms)
    assert report["cs-dr"].value is not None
    for wrong in ("frozen:0", "frozen:x", "frozen:999", f"frozen:{'9' * 5000}"):
        with pytest.raises(InvalidValue):
            evaluate(bandit, wrong)
    with pytest.raises(CannotAnswer, match="no events"):
        evaluate(device_log(), "frozen:12")


def test_a_frozen_policy_does_not_know_later_arms() -> None:
    bandit = frozen_bandit()
    bandit.add_arm("d")
    for visitor in range(100):
        decision = bandit.choose(eligible=["d"] if visitor % 2 else ["c", "d"])
        bandit.reward(decision, float(visitor % 3 == 0))
    report = evaluate(bandit, "frozen:250", ["ips", "aipw", "snips"])
    assert report.diagnostics.left_out["not eligible"] == 50
    assert report["aipw"].value is not None
    assert "could have chosen" in report.population


def test_a_frozen_linear_policy_sees_the_features_of_each_row() -> None:
    frame = with_context(with_distributions(device_log(300)))
    features = Features({"device": ["phone", "desktop"], "age": (18, 80)})
    tally, lin_ms = LinearTally.empty(features.dimension, 2), policy("lin-ms", reward_range=(0, 1))
    contexts = [
        {"device": d, "age": int(a)} for d, a in zip(device_log(300).device, device_log(300).age, strict=True)
    ]
    for context, arm, reward in zip(contexts[:50], frame.arm[:50], frame.reward[:50], strict=True):
        tally.add(features.encode(context), reward, arm=ARMS.index(arm))
    target = FrozenTarget.of(lin_ms, tally, ARMS, ARMS, after=50, features=features)
    rows = [features.encode(each) for each in contexts]
    pi = np.array([lin_ms.probabilities(tally, row) for row in rows])
    chosen = pi[np.arange(300), [ARMS.index(arm) for arm in frame.arm]] / frame.probability
    frame["state"] = np.arange(300)
    expected = (chosen * frame.reward)[50:].mean()
    assert evaluate(frame, target, ["ips"])["ips"].value == pytest.approx(expected, rel=1e-12)
    # The same with encoded rows in the log.
    encoded = pa.Table.from_pandas(frame.drop(columns="context"), preserve_index=False)
    encoded = encoded.append_column("context", pa.array([row.tolist() for row in rows]))
    same = FrozenTarget.of(lin_ms, tally, ARMS, ARMS, after=50)
    assert evaluate(encoded, same, ["ips"])["ips"].value == pytest.approx(expected, rel=1e-12)
    with pytest.raises(CannotAnswer, match="encoded features"):
        evaluate(frame, same, ["ips"])


def test_a_model_without_rewards_predicts_its_start() -> None:
    model = RidgeModel(arms=2, features=1, reward_range=(0.0, 1.0))
    used = np.zeros(3, np.bool_)
    found = model.advance(np.ones((3, 1)), np.zeros(3, np.int64), np.full(3, np.nan), used)
    assert found.tolist() == [[0.5, 0.5]] * 3
