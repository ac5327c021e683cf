"""Compares what Vowpal Wabbit reads, learns and writes with our contextual logs."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from maillard import evaluate
from maillard.decisions import Bandit, Reward
from maillard.decisions.log import DecisionLog
from maillard.decisions.opening import read_log, write_log
from maillard.features import Features
from tests.peers.comparing import DOUBLE, SINGLE, Comparison, run_script

RULE = "rule:user.device=phone->mocha,else->tea"
DEVICES = ["phone", "desktop"]
VISITOR = Features({"device": DEVICES, "age": (18, 90)})
OFFER = Features({"device": DEVICES, "price": (0, 100), "new": bool})
PRICES: dict[str, dict[str, Any]] = {"basic": {"price": 10, "new": True}, "large": {"price": 0, "new": False}}


def make_logs() -> dict[str, DecisionLog]:
    """Return a log with stored contexts, and logs of each type of model."""
    rng, reward = random.Random(4), Reward(low=0, high=1)
    options: dict[str, Any] = {"reward": reward, "seed": 4}
    stored = Bandit(["red", 'bl"ue, {b}'], "uniform", **options)
    disjoint = Bandit(["red", "blue", "green"], "lin-ms:floor=0.3", features=VISITOR, **options)
    shared = Bandit(PRICES, "lin-ts:floor=0.1", features=OFFER, model="shared", **options)
    dynamic = Bandit([], "lin-ms:floor=0.1", features=OFFER, model="shared", **options)
    for step in range(600):
        device, unit = rng.choice(DEVICES), f"user-{step % 20}"
        wanted = "blue" if device == "phone" else "red"
        decision = disjoint.choose(unit, context={"device": device, "age": rng.uniform(18, 90)})
        disjoint.reward(decision, float(rng.random() < (0.9 if decision.arm == wanted else 0.1)))
        if step >= 60:
            continue
        plain = {
            "device": device,
            "_id": step,
            "ag€ |:": step - 30,
            "new": rng.random() < 0.5,
            "no": None,
            "a b:": "x |:y",
        }
        stored.reward(stored.choose(unit, context=plain), 1.0)
        shared.reward(shared.choose(unit, context={"device": device}), 0.5)
        names = rng.sample(range(90), rng.randrange(1, 5))
        actions = {f"article {name}": {"price": name / 3, "new": name < 30} for name in names}
        dynamic.reward(dynamic.choose(unit, context={"device": device}, actions=actions), 0.25)
    for bandit in (stored, disjoint, shared, dynamic):
        bandit.erase_unit("user-3")
    logs = {"stored": stored, "disjoint": disjoint, "shared": shared, "dynamic": dynamic}
    return {name: read_log(bandit) for name, bandit in logs.items()}


def compare_features(folder: Path) -> tuple[str, Comparison]:
    """Compare the features that Vowpal Wabbit read, what it learned, and a log that it wrote."""
    logs, found = make_logs(), Comparison()
    for name, log in logs.items():
        write_log(log, folder / f"{name}.dsjson")
    read = run_script("check_vowpal_wabbit.py", folder)
    features: dict[tuple[str, str], int] = {}
    for name, log in logs.items():
        _compare_lines(name, log, read["features"][name], features, found)
    found.equal("different features, by their hashes", len(features), len(set(features.values())))
    _compare_learned(read["learned"], read["without contexts"], found)
    for name, rows in read["logs"].items():
        _compare_written(name, folder / f"{name}.json", rows, found)
    lines = sum(len(each) for each in read["features"].values())
    written = sum(len(each) for each in read["logs"].values())
    return f"{lines:,} lines of ours with {len(features)} features, {written:,} of Vowpal Wabbit", found


def _compare_lines(
    name: str, log: DecisionLog, read: list[Any], features: dict[tuple[str, str], int], found: Comparison
) -> None:
    """Compare the features of each line. `features` collects the hash of each feature."""
    rows = [row.decision for row in log.rows() if log.final_reward_of(row) is not None]
    found.equal(f"{name}: lines", len(rows), len(read))
    for d, (shared, *arms) in zip(rows, read, strict=False):
        found.equal(f"{name}, {d.id}: arms", len(d.eligible), len(arms))
        context = json.loads(d.context) if d.context else {}
        _compare_namespace(f"{name}, {d.id}: Context", context, shared["Context"], features, found)
        attributes = json.loads(d.actions) if d.actions else PRICES if name == "shared" else {}
        for arm, example in zip(d.eligible, arms, strict=False):
            where = f"{name}, {d.id}: {arm}"
            _compare_namespace(f"{where}: Arm", {"name": arm}, example["Arm"], features, found)
            _compare_namespace(
                f"{where}: Features", attributes.get(arm, {}), example["Features"], features, found
            )


def _compare_namespace(
    where: str,
    values: Mapping[str, Any],
    read: list[tuple[int, float]],
    features: dict[tuple[str, str], int],
    found: Comparison,
) -> None:
    """Compare the features of a namespace: a text is part of its name, and 0 and false are left out."""
    used = {key: value for key, value in values.items() if isinstance(value, str) or value}
    expected = [1.0 if isinstance(value, str | bool) else float(np.float32(value)) for value in used.values()]
    found.equal(where, expected, [value for _, value in read])
    for (key, value), (number, _) in zip(used.items(), read, strict=False):
        feature = where.rpartition(": ")[2], f"{key}={value}" if isinstance(value, str) else key
        found.equal(f"{where}: {feature}", features.setdefault(feature, number), number)


def _compare_learned(
    learned: dict[str, dict[str, float]], without: dict[str, dict[str, float]], found: Comparison
) -> None:
    """The best arm depends on the device, if Vowpal Wabbit was shown the device."""
    for device, arm in (("phone", "blue"), ("desktop", "red")):
        best = max(learned[device], key=lambda each: learned[device][each])
        found.equal(f"the arm that Vowpal Wabbit learned for {device}", arm, best)
    found.equal("what Vowpal Wabbit learned without contexts", without["phone"], without["desktop"])


def _compare_written(name: str, path: Path, rows: list[dict[str, Any]], found: Comparison) -> None:
    """Compare a log of Vowpal Wabbit, and the value of a rule on it."""
    log = read_log(path)
    terms: dict[str, list[float]] = {device: [] for device in DEVICES}  # of the rule
    found.equal(f"{name}: rows", len(rows), sum(1 for _ in log.rows()))
    for row, known in zip(log.rows(), rows, strict=False):
        d, where = row.decision, f"{name}, {row.decision.id}"
        arm = known["items"][known["chosen"]]
        found.equal(f"{where}: arm", (d.arm, list(d.eligible)), (arm, known["items"]))
        found.equal(f"{where}: reward", log.reward_of(row), known["reward"])
        for mine, theirs in zip(d.probabilities.values(), known["p"], strict=True):
            found.near(f"{where}: p", mine, theirs, SINGLE)
        context = {"user.device": known["device"], "user.age": known["age"], "new": known["new"]}
        found.equal(f"{where}: context", json.loads(d.context or "{}"), context)
        attributes = json.loads(d.actions or "{}").get(d.arm, {})
        found.equal(f"{where}: hot", attributes.get("cost.known.hot"), d.arm != "water")
        wanted = "mocha" if known["device"] == "phone" else "tea"
        if wanted in known["items"]:
            terms[known["device"]].append(known["reward"] * (arm == wanted) / d.probability)
    options: dict[str, Any] = {"adaptive": True, "max_unsupported": 1.0, "min_effective_size": 0}
    every = [term for each in terms.values() for term in each]
    value = evaluate(log, RULE, ["ips"], **options)["ips"].value
    found.near(f"{name}: IPS of the rule", value, math.fsum(every) / len(every), DOUBLE)
    by = evaluate(log, RULE, ["ips"], by="user.device", **options)
    for device, own in terms.items():
        value = by[device]["ips"].value
        found.near(f"{name}: IPS of the rule, {device}", value, math.fsum(own) / len(own), DOUBLE)
