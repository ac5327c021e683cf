"""Evaluation of logs whose arms differ at every decision, compared with a row-by-row reference."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maillard import (
    Bandit,
    CannotAnswer,
    Features,
    InvalidValue,
    Reward,
    compare,
    evaluate,
    learn_rule,
    read_log,
    replay,
)
from maillard.decisions import export_changes, write_log
from maillard.decisions.raw_contexts import read_context
from maillard.errors import UnknownName
from maillard.evaluation.action_targets import ActionTarget, bind_to_actions
from maillard.evaluation.evaluation_log import open_log
from maillard.evaluation.sequential import bernstein
from maillard.evaluation.sequential.bernstein import EmpiricalBernstein
from maillard.evaluation.settings import Settings
from maillard.policies.targets import FixedArm

FEATURES = Features(
    {"topic": ["news", "sport", "art"], "price": (0, 9), "device": ["phone", "desktop"]},
    crosses=[("device", "topic")],
)
ROWS, FROZEN = 240, 120
RULE = "rule:device=phone->a3,else->uniform"
Distribution = Callable[[Any, dict[str, Any], dict[str, Any]], dict[str, float] | None]


def cheapest(context: dict[str, Any], actions: dict[str, dict[str, Any]]) -> Any:
    """A function as a caller writes it: an arm on phones, a mapping elsewhere."""
    name = min(actions, key=lambda each: (actions[each]["price"], each))
    if context["device"] == "phone":
        return name
    return {each: 0.5 * (each == name) + 0.5 / len(actions) for each in actions}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("actions") / "log.db"
    rng = np.random.default_rng(5)
    features: dict[str, Any] = {"features": FEATURES, "model": "shared"}
    with Bandit([], "lin-ms:floor=0.5", **features, reward=Reward(low=0, high=1), log=path, seed=3) as bandit:
        for number in range(ROWS):
            names = [f"a{each}" for each in rng.choice(8, int(rng.integers(1, 7)), replace=False)]
            actions = {
                each: {"topic": str(rng.choice(["news", "sport", "art"])), "price": float(rng.integers(10))}
                for each in names
            }
            context = {"device": "phone" if rng.random() < 0.5 else "desktop"}
            chosen = bandit.choose(unit=f"u{number}", context=context, actions=actions)
            bandit.reward(chosen, float(rng.random() < 0.1 + 0.08 * actions[chosen.arm]["price"]))
    return path


# The reference: one row after the other, with dictionaries.


def rows_of(path: Path) -> Iterator[tuple[Any, Any, Any, Any]]:
    """The decision, the reward, the context and the actions of each row."""
    log = read_log(path)
    for row in log.rows():
        raw = read_context(row.decision.context, row.decision.actions)
        yield row.decision, log.reward_of(row), raw.values, raw.actions


def encoded(context: dict[str, Any], attributes: dict[str, Any]) -> Any:
    return np.concatenate([[1.0], FEATURES.encode({**context, **attributes})])


def predictions(path: Path) -> list[dict[str, float]]:
    """The ridge model, fitted again after 1, 2, 4, ..., 64, 80, ... rows; all actions share it."""
    seen_x: list[Any] = []
    seen_r: list[float] = []
    theta, constant, following, found = np.zeros(FEATURES.dimension + 1), 0.5, 1, []
    for decision, reward, context, actions in rows_of(path):
        rows = {name: encoded(context, each) for name, each in actions.items()}
        found.append({name: min(max(constant + float(x @ theta), 0.0), 1.0) for name, x in rows.items()})
        seen_x.append(rows[decision.arm])
        seen_r.append(reward)
        if len(seen_r) >= following:
            x, constant = np.array(seen_x), sum(seen_r) / len(seen_r)
            theta = np.linalg.solve(np.eye(x.shape[1]) + x.T @ x, x.T @ (np.array(seen_r) - constant))
            following = 2 * len(seen_r) if len(seen_r) < 64 else math.ceil(1.25 * len(seen_r))
    return found


def reference(path: Path, distribution: Distribution) -> dict[str, Any]:
    """The estimates and standard errors of a target that has a distribution in each row, or None."""
    w, r, gamma, direct, precision, k = [], [], [], [], [], 10.0
    low: list[float] = []
    high: list[float] = []
    for (decision, reward, context, actions), q in zip(rows_of(path), predictions(path), strict=True):
        pi, p = distribution(decision, context, actions), decision.probabilities
        if pi is None or any(each and name not in p for name, each in pi.items()):
            continue
        weight, arm = pi.get(decision.arm, 0.0) / p[decision.arm], decision.arm
        w.append(weight)
        r.append(reward)
        direct.append(sum(each * q[name] for name, each in pi.items()))
        gamma.append(direct[-1] + weight * (reward - q[arm]))
        precision.append(1.0 / sum(each**2 / p[name] for name, each in pi.items() if each))
        for terms, model, own in (
            (low, q, reward),
            (high, {a: 1 - each for a, each in q.items()}, 1 - reward),
        ):
            term = sum(each * min(model[a], k * p[a] / each) for a, each in pi.items() if each)
            terms.append(term + (weight * (own - min(model[arm], k / weight)) if weight else 0.0))
    weight, reward, score = np.array(w), np.array(r), np.array(gamma)
    n = len(w)
    weighted = {"aipw": np.ones(n), "aipw-sqrt": np.sqrt(lagged(precision))}
    found: dict[str, Any] = {
        "ips": ((weight * reward).mean(), (weight * reward).std() / math.sqrt(n)),
        "clipped-ips:2": (
            (np.minimum(weight, 2) * reward).mean(),
            (np.minimum(weight, 2) * reward).std() / math.sqrt(n),
        ),
        "dr": (score.mean(), score.std() / math.sqrt(n)),
        "dm": (float(np.mean(direct)), None),
    }
    snips = (weight * reward).sum() / weight.sum()
    found["snips"] = snips, math.sqrt((weight**2 * (reward - snips) ** 2).sum()) / weight.sum()
    for name, every in weighted.items():
        h, late = every[1:], score[1:]  # the first row only initialises the model
        value = (h * late).sum() / h.sum()
        found[name] = value, math.sqrt((h**2 * (late - value) ** 2).sum()) / h.sum()
    found["rows"], found["effective"] = n, weight.sum() ** 2 / (weight**2).sum()
    plain = EmpiricalBernstein.start(alpha=0.05)
    plain.advance(weight=weight, reward=reward)
    found["cs-bernstein"] = plain.interval()
    run = bernstein.start()
    bernstein.advance(run, np.array(low), np.array(high), math.log(2 / 0.05), k, 0.0, np.empty((0, 2)))
    found["cs-dr"] = float(run[0, -1]), 1.0 - float(run[1, -1])
    return found


def lagged(precision: list[float]) -> Any:
    """1 over the mean of 1 / e over earlier rows, of which row s has a weight proportional to s."""
    found = [precision[0]]
    for t in range(1, len(precision)):
        s = np.arange(1, t + 1)
        found.append(float(s.sum() / (s / np.array(precision[:t])).sum()))
    return np.array(found)


def uniform(_decision: Any, _context: Any, actions: dict[str, Any]) -> dict[str, float]:
    return dict.fromkeys(actions, 1 / len(actions))


def logged(decision: Any, _context: Any, _actions: Any) -> dict[str, float]:
    return dict(decision.probabilities)


def at_rank(rank: int) -> Distribution:
    def distribution(_decision: Any, _context: Any, actions: dict[str, Any]) -> dict[str, float] | None:
        return {list(actions)[rank - 1]: 1.0} if len(actions) >= rank else None

    return distribution


def named(_decision: Any, _context: Any, _actions: Any) -> dict[str, float]:
    return {"a3": 1.0}


def by_rule(decision: Any, context: dict[str, Any], actions: dict[str, Any]) -> dict[str, float]:
    return {"a3": 1.0} if context["device"] == "phone" else uniform(decision, context, actions)


def by_another_rule(decision: Any, context: dict[str, Any], actions: dict[str, Any]) -> dict[str, float]:
    return uniform(decision, context, actions) if context["device"] == "phone" else {"a3": 1.0}


def by_function(_decision: Any, context: dict[str, Any], actions: dict[str, Any]) -> dict[str, float]:
    found = cheapest(context, actions)
    return {found: 1.0} if isinstance(found, str) else found


def frozen_in(path: Path) -> Distribution:
    state = read_log(path).state_at(FROZEN)

    def distribution(
        decision: Any, context: dict[str, Any], actions: dict[str, Any]
    ) -> dict[str, float] | None:
        if decision.state < FROZEN:
            return None
        raw = read_context(decision.context, decision.actions)  # encoded anew, not as the log has it
        found = state.choice_distribution(None, raw)
        return dict(zip(found.arms, found.probabilities.tolist(), strict=True))

    return distribution


TARGETS: dict[str, tuple[Any, Distribution | None]] = {
    "uniform": ("uniform", uniform),
    "logged": ("logged", logged),
    "first": ("rank:1", at_rank(1)),
    "third": ("rank:3", at_rank(3)),
    "name": ("arm:a3", named),
    "policy": (FixedArm("a3"), named),
    "rule": (RULE, by_rule),
    "another rule": ("rule:device=phone->uniform,else->a3", by_another_rule),
    "function": (cheapest, by_function),
    "frozen": (f"frozen:{FROZEN}", None),
}
OPTIONS: dict[str, Any] = {"active": False, "min_effective_size": 0, "adaptive": False}


@pytest.mark.parametrize("name", TARGETS)
def test_estimates_agree_with_the_reference(name: str, log: Path) -> None:
    target, distribution = TARGETS[name]
    expected = reference(log, distribution or frozen_in(log))
    additive = ["ips", "clipped-ips:2", "snips", "dr", "aipw", "aipw-sqrt"]
    found = evaluate(log, target, [*additive, "dm", "cs-bernstein", "cs-dr", "cs-betting"], **OPTIONS)
    for each in additive:
        assert found[each].value == pytest.approx(expected[each][0], abs=1e-12), each
        assert found[each].standard_error == pytest.approx(expected[each][1], abs=1e-12), each
    assert found["dm"].value == pytest.approx(expected["dm"][0], abs=1e-12)
    for each in ("cs-bernstein", "cs-dr"):
        assert [found[each].lower, found[each].upper] == pytest.approx(expected[each], abs=1e-9), each
    assert found["cs-betting"].lower <= found["snips"].value <= found["cs-betting"].upper
    d = found.diagnostics
    assert (d.rows, d.audit) == (expected["rows"], "consistent")
    assert d.effective_sample_size == pytest.approx(expected["effective"], rel=1e-12)
    assert sum(d.left_out.values()) == ROWS - expected["rows"]


def test_the_logged_policy_earned_the_mean_reward(log: Path) -> None:
    rewards = [reward for _, reward, _, _ in rows_of(log)]
    found = evaluate(log, "logged", ["ips", "snips"], **OPTIONS)
    assert found["ips"].value == pytest.approx(np.mean(rewards), abs=1e-12)
    assert found.diagnostics.max_weight == pytest.approx(1.0, abs=1e-12)


def test_rows_without_the_action_are_excluded_and_counted(log: Path) -> None:
    having = sum("a3" in decision.eligible for decision, *_ in rows_of(log))
    found = evaluate(log, "arm:a3", ["ips"], **OPTIONS)
    assert 0 < having < ROWS
    assert found.diagnostics.left_out == {"not eligible": ROWS - having}
    assert f"the {having} of {ROWS} decisions in which the target could have chosen" in found.population
    frozen = evaluate(log, f"frozen:{FROZEN}", ["ips"], **OPTIONS)
    assert list(frozen.diagnostics.left_out) == [f"before state {FROZEN}"]


def test_the_overlap_is_by_rank(log: Path) -> None:
    table = evaluate(log, "uniform", ["ips"], **OPTIONS).diagnostics.overlap
    sizes = [len(decision.eligible) for decision, *_ in rows_of(log)]
    assert [each["arm"] for each in table] == [f"rank {rank}" for rank in range(1, max(sizes) + 1)]
    assert [each["rows"] for each in table] == [
        sum(size >= rank for size in sizes) for rank in range(1, max(sizes) + 1)
    ]
    assert sum(each["chosen"] for each in table) == ROWS


def test_files_give_the_same_estimates(log: Path, tmp_path: Path) -> None:
    names = ["ips", "dr", "cs-dr"]
    expected = evaluate(log, cheapest, names, **OPTIONS)
    for name in ("log.parquet", "log.csv"):
        write_log(read_log(log), tmp_path / name)
    export_changes(str(log), str(tmp_path / "folder"))
    for source in (
        tmp_path / "log.parquet",
        tmp_path / "log.csv",
        tmp_path / "folder",
        read_log(log).to_arrow(),
    ):
        found = evaluate(source, cheapest, names, **OPTIONS)
        for each in names:
            assert (found[each].value, found[each].lower) == (expected[each].value, expected[each].lower)


def test_tables_of_other_programs(log: Path, tmp_path: Path) -> None:
    names = ["arm", "eligible", "probability", "log_probabilities", "actions", "context", "reward"]
    table = read_log(log).to_arrow().select(names).replace_schema_metadata(None)
    options = {**OPTIONS, "reward_range": (0, 1)}
    known = evaluate(log, RULE, ["ips", "snips", "dr"], features=FEATURES, **options)
    found = evaluate(table, RULE, ["ips", "snips", "dr"], features=FEATURES, **options)
    for each in ("ips", "snips", "dr"):
        assert found[each].value == pytest.approx(known[each].value, abs=1e-9)
    # Without encoded rows or declared features, attributes and context are categories.
    as_categories = evaluate(table, RULE, ["dr"], **options)["dr"]
    chosen = evaluate(table, RULE, ["dr"], features=["topic", "price", "device"], **options)["dr"]
    assert as_categories.value == chosen.value
    assert as_categories.value != found["dr"].value
    # With the probability of the chosen action only.
    without = table.drop_columns(["log_probabilities"])
    assert evaluate(without, RULE, ["ips"], **options)["ips"].value == pytest.approx(
        found["ips"].value, abs=1e-9
    )
    with pytest.raises(CannotAnswer, match="needs the probability of every arm"):
        evaluate(without, "logged", **options)


def test_a_comparison_uses_the_rows_of_both(log: Path) -> None:
    found = compare(log, f"frozen:{FROZEN}", "rank:2", ["ips", "snips", "aipw"], **OPTIONS)
    frozen, second = frozen_in(log), at_rank(2)

    def both(decision: Any, context: Any, actions: Any) -> dict[str, float] | None:
        one, other = (each(decision, context, actions) for each in (frozen, second))
        if one is None or other is None:
            return None
        return {name: one[name] - other.get(name, 0.0) for name in one}

    terms = []
    for decision, reward, context, actions in rows_of(log):
        pi = both(decision, context, actions)
        if pi is not None:
            terms.append(pi[decision.arm] / decision.probability * reward)
    assert found["ips"].value == pytest.approx(np.mean(terms), abs=1e-12)
    assert found["ips"].standard_error == pytest.approx(np.std(terms) / math.sqrt(len(terms)), abs=1e-12)
    assert found.first.diagnostics.rows == len(terms)
    # Two named actions are one of many pairs.
    names = {name for decision, *_ in rows_of(log) for name in decision.eligible}
    assert compare(log, "arm:a1", "arm:a2", ["ips"], **OPTIONS).comparisons == math.comb(len(names), 2)


def test_a_segment_is_the_log_of_its_rows(log: Path) -> None:
    found = evaluate(log, cheapest, ["ips"], by="device", **OPTIONS)
    for device in ("phone", "desktop"):
        terms = [
            by_function(None, context, actions).get(decision.arm, 0.0) / decision.probability * reward
            for decision, reward, context, actions in rows_of(log)
            if context["device"] == device
        ]
        assert found[device]["ips"].value == pytest.approx(np.mean(terms), abs=1e-12)


def offers(path: Path, rewarded: Callable[[int], bool] = lambda _: True) -> Bandit:
    """A bandit that chooses from two actions with equal probabilities."""
    bandit = Bandit(
        [],
        "lin-epsilon-greedy:epsilon=1",
        features=Features({"price": (0, 9)}),
        model="shared",
        reward=Reward(low=0, high=1),
        log=path,
        seed=4,
    )
    for number in range(30):
        actions = {"a": {"price": 1}, "b": {"price": number % 10}}
        chosen = bandit.choose(unit=f"u{number}", actions=actions)
        if rewarded(number):
            bandit.reward(chosen, float(number % 2))
    return bandit


def test_missing_rewards_are_bounded(tmp_path: Path) -> None:
    offers(tmp_path / "log.db", lambda number: number % 10 != 0).close()
    found = evaluate(tmp_path / "log.db", "rank:1", ["ips"], **OPTIONS)["ips"]
    for bound, missing, sign in ((found.lower, 0.0, -1), (found.upper, 1.0, 1)):
        log = read_log(tmp_path / "log.db")
        pairs = [(row.decision, log.reward_of(row)) for row in log.rows()]
        terms = [2.0 * (d.arm == "a") * (missing if r is None else r) for d, r in pairs]
        end = np.mean(terms) + sign * 1.959963984540054 * np.std(terms) / math.sqrt(30)
        assert bound == pytest.approx(min(max(end, 0.0), 1.0), abs=1e-12)


def test_erased_actions_are_left_out_of_a_function(tmp_path: Path) -> None:
    with offers(tmp_path / "log.db") as bandit:
        bandit.erase_unit("u7")
    path = tmp_path / "log.db"
    assert evaluate(path, "rank:2", ["ips"], **OPTIONS).diagnostics.rows == 30  # the order is still known
    frozen = evaluate(path, "frozen:5", ["ips"], **OPTIONS).diagnostics
    assert frozen.left_out.keys() == {"before state 5"}
    found = evaluate(
        path, lambda _, actions: max(actions, key=lambda name: actions[name]["price"]), ["ips"], **OPTIONS
    )
    assert (found.diagnostics.rows, dict(found.diagnostics.left_out)) == (29, {"with unknown actions": 1})


def test_a_repeated_choice_has_the_actions_of_the_choice(tmp_path: Path) -> None:
    """A sticky unit keeps its arm and distribution, although the list of its second visit is another one."""
    features: dict[str, Any] = {"features": Features({"price": (0, 9)}), "model": "shared", "sticky": True}
    reward = Reward(low=0, high=1)
    with Bandit([], "lin-ms:floor=1", **features, reward=reward, log=tmp_path / "log.db", seed=1) as bandit:
        for number in range(40):
            others = {} if number < 20 else {f"b{number % 2}": {"price": 3}}
            actions = {"a": {"price": 1}, "c": {"price": 2}, **others}
            bandit.reward(bandit.choose(unit=f"u{number % 20}", actions=actions), float(number % 2))
        write_log(read_log(bandit), tmp_path / "log.parquet")
    for source in (tmp_path / "log.db", tmp_path / "log.parquet"):
        first = evaluate(source, "rank:1", ["ips"], **OPTIONS)
        assert (first.diagnostics.rows, first.diagnostics.max_weight) == (40, pytest.approx(2.0))
        found = evaluate(source, lambda _, actions: next(iter(actions)), ["ips"], **OPTIONS)
        assert found.diagnostics.left_out == {"with unknown actions": 20}
        assert any("which rows repeat a choice depends on the choice" in each for each in first.warnings)


REFUSED: dict[str, tuple[Any, str]] = {
    "a distribution over names": ("dist:a1=1", "uniform, logged, rank:1"),
    "a rank that no decision has": ("rank:99", "rank:1 for the action that was listed first, up to rank:6"),
    "a rank of thousands of digits": (f"rank:{'9' * 5000}", "up to rank:6"),
    "no rank": ("rank:first", "up to rank:6"),
    "a policy that learns": ("ms+", "because the arms differ at every decision"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_targets_are_refused_with_the_reason(case: str, log: Path) -> None:
    target, reason = REFUSED[case]
    with pytest.raises(InvalidValue, match=reason):
        evaluate(log, target)


def test_what_needs_fixed_arms_is_refused_with_the_reason(log: Path) -> None:
    found = evaluate(log, "arm:a3", ["cs-arm", "cs-catoni", "mrdr"], second_moment=1.0, **OPTIONS)
    assert all("arms differ at every decision" in why for why in found.refusals.values())
    assert len(found.refusals) == 3
    difference = compare(log, "arm:a1", "arm:a2", ["bols", "w-decorrelation"], penalty=1.0, **OPTIONS)
    assert all("arms differ at every decision" in why for why in difference.refusals.values())
    with pytest.raises(UnknownName, match="a3"):
        evaluate(log, "arm:a33")
    with pytest.raises(InvalidValue, match="reward_model"):
        evaluate(log, "uniform", reward_model={"a1": 0.5})
    with pytest.raises(UnknownName, match="price"):
        evaluate(log, RULE.replace("device", "price"))
    with pytest.raises(UnknownName, match="somewhere"):
        evaluate(log, lambda context, actions: "somewhere")
    for call in (lambda: learn_rule(log), lambda: replay(log, "uniform")):
        with pytest.raises(CannotAnswer, match="the arms differ at every decision"):
            call()


def test_a_decision_with_many_actions_is_read_in_small_parts(tmp_path: Path) -> None:
    """One decision has 1,000 actions and others have two: no part of the matrix exceeds its limit."""
    rng = np.random.default_rng(2)
    sizes = np.where(np.arange(1200) == 700, 1000, 2)
    eligible = [[f"x{each}" for each in range(size)] for size in sizes]
    chosen = [int(rng.integers(size)) for size in sizes]
    table: dict[str, Any] = {
        "arm": [names[place] for names, place in zip(eligible, chosen, strict=True)],
        "eligible": eligible,
        "probability": 1.0 / sizes,
        "log_probabilities": [[-math.log(size)] * size for size in sizes],
        "actions": [
            json.dumps({name: {"odd": place % 2} for place, name in enumerate(names)}) for names in eligible
        ],
        "reward": rng.random(1200),
    }
    import pyarrow as pa

    found = evaluate(pa.table(table), "rank:2", ["ips", "dr"], reward_range=(0, 1), **OPTIONS)
    terms = (np.array(chosen) == 1) * sizes * table["reward"]
    assert found["ips"].value == pytest.approx(terms.mean(), abs=1e-12)


def test_a_rule_of_many_clauses_needs_no_more_distributions(log: Path) -> None:
    """There are those of uniform, and one for each rank, however many clauses and names there are."""
    names = ["a1", "a2", "a3", "uniform"]
    clauses = [f"device=d{number}->{names[number % 4]}" for number in range(200)]
    rule = ",".join(["rule:device=phone->a2", *clauses, "device=desktop->a1", "else->uniform"])
    with open_log(read_log(log), Settings()) as opened:
        width = len(opened.arms)
        target = bind_to_actions(rule, opened)
        assert len(target.probabilities) == 1 + width
        assert isinstance(target, ActionTarget)
        for columns in opened.columns():
            table, places = target.rows_of(columns, "log")
            assert len(table) <= 2 * width
            assert places.max() < len(table)
    found = evaluate(log, "rule:device=phone->a2,device=desktop->a1,else->uniform", ["ips"], **OPTIONS)
    assert evaluate(log, rule, ["ips"], **OPTIONS)["ips"].value == found["ips"].value
