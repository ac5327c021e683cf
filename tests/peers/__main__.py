"""Run the documentation's code of other libraries, and compare files and estimates with them: `make peers`.

Every difference is an error; nothing is skipped.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from maillard.decisions import Bandit, Decision, Reward
from maillard.decisions.log import DecisionLog
from maillard.decisions.opening import read_log, write_log
from tests.peers.comparing import DOUBLE, PYTHON, SINGLE, Comparison, run_script
from tests.peers.contexts import compare_contexts
from tests.peers.estimates import compare_estimators
from tests.peers.features import compare_features
from tests.peers.pages import compare_pages

ARMS = {"red": 0.2, 'bl"ue, b': 0.5, "grün": 0.7, "=1+1": 0.4}


def make_log(path: Path, decisions: int = 600) -> None:
    """Write a log of MS+ in which arms are added and retired and some rewards never arrive."""
    rng = random.Random(0)
    names = list(ARMS)
    with Bandit(names[:3], "ms+:booster=8", reward=Reward(low=0, high=1), log=path) as bandit:
        for step in range(decisions):
            if step == decisions // 3:
                bandit.add_arm(names[3])
            if step == decisions // 2:
                bandit.retire_arm(names[0])
            eligible = bandit.arms[:2] if step % 7 == 0 else None
            decision = bandit.choose(unit=f"user {step}", eligible=eligible)
            if rng.random() < 0.9:
                reward = min(max(rng.gauss(ARMS[decision.arm], 0.2), 0.0), 1.0)
                bandit.reward(decision.id, reward)


def compare(rows: list[tuple[Decision, float]], arms: tuple[str, ...], read: dict[str, Any]) -> Comparison:
    """Compare each row, and the value of always choosing each arm."""
    found = Comparison()
    found.equal("lines that Vowpal Wabbit read", len(rows), len(read["vowpal_wabbit"]))
    found.equal("lines that its estimators read", len(rows), len(read["estimators_rows"]))
    for (d, reward), vw, estimators in zip(
        rows, read["vowpal_wabbit"], read["estimators_rows"], strict=False
    ):
        place = d.eligible.index(d.arm)
        found.equal(f"{d.id}: arms", len(d.eligible), vw["arms"])
        found.equal(f"{d.id}: place, by Vowpal Wabbit", place, vw["place"])
        found.equal(f"{d.id}: cost, by Vowpal Wabbit", float(np.float32(0.0 - reward)), vw["cost"])
        found.near(f"{d.id}: p, by Vowpal Wabbit", d.probability, vw["probability"], SINGLE)
        found.equal(f"{d.id}: place, by its estimators", place, estimators["place"])
        found.equal(f"{d.id}: arms, by its estimators", len(d.eligible), len(estimators["order"]))
        found.equal(f"{d.id}: cost, by its estimators", 0.0 - reward, estimators["cost"])
        found.equal(f"{d.id}: p, by its estimators", d.probability, estimators["probability"])
    for arm in arms:
        value = math.fsum(reward / d.probability for d, reward in rows if d.arm == arm) / len(rows)
        found.near(f"IPS of {arm!r}, by OBP", value, read["obp"][arm], DOUBLE)
        found.near(f"IPS of {arm!r}, by Vowpal Wabbit's estimators", value, read["estimators"][arm], DOUBLE)
    return found


def rewarded_decisions(log: DecisionLog) -> list[tuple[Decision, float]]:
    pairs = [(row.decision, log.final_reward_of(row)) for row in log.rows()]
    return [(decision, reward) for decision, reward in pairs if reward is not None]


def compare_back(rows: list[tuple[Decision, float]], folder: Path, found: Comparison) -> None:
    """Compare the exported files, read back by maillard, with the log."""
    found.equal("log.dsjson, read back", rows, rewarded_decisions(read_log(folder / "log.dsjson")))
    for (d, reward), (back, again) in zip(
        rows, rewarded_decisions(read_log(folder / "log.npz")), strict=True
    ):
        found.equal("log.npz, read back", (d.id, d.arm, reward), (back.id, back.arm, again))
        for arm, probability in d.probabilities.items():
            found.near(f"log.npz, p of {arm!r}", probability, back.probabilities.get(arm, 0.0), DOUBLE)


def compare_formats(folder: Path) -> tuple[str, Comparison]:
    """Export a log, read it with all libraries and compare; return a description and the comparison."""
    make_log(folder / "log.db")
    log = read_log(folder / "log.db")
    for file in ("log.dsjson", "log.npz"):
        write_log(log, folder / file)
    rows = rewarded_decisions(log)
    found = compare(rows, log.arms, run_script("check_formats.py", folder))
    compare_back(rows, folder, found)
    return f"{len(rows)} decisions", found


def main() -> None:
    """Compare pages of the documentation, formats, features, estimators and estimates with contexts."""
    if not PYTHON.exists():
        raise SystemExit("the environment .peers does not exist; run `make peers`")
    differ = False
    checks = {
        "pages": compare_pages,
        "formats": compare_formats,
        "features": compare_features,
        "estimators": compare_estimators,
        "contexts": compare_contexts,
    }
    for name, check in checks.items():
        with tempfile.TemporaryDirectory() as folder:
            description, found = check(Path(folder))
        for difference in found.differences[:20]:
            print(difference[:300], file=sys.stderr)
        print(
            f"{name}: {description}, {found.count:,} comparisons, {len(found.differences)} differences",
            flush=True,
        )
        differ |= bool(found.differences)
    raise SystemExit(differ)


if __name__ == "__main__":
    main()
