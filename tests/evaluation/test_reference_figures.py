"""Results of Open Bandit Pipeline on a public data set, reproduced from each format of the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from maillard import FixedDistribution
from maillard.decisions import read_log
from maillard.evaluation import evaluate

DATA = Path(__file__).parent / "reference_data"
LOG = DATA / "obd_random_all.csv"
COLUMNS = {"arm": "item_id", "reward": "click", "probability": "propensity_score", "time": "timestamp"}
EXPECTED = json.loads((DATA / "obp_all.json").read_text())
TARGET = np.loadtxt(DATA / "bts_action_dist_all.csv", delimiter=",")
# obp's names of figures, and ours.
NAMES = {
    "ipw": "ips",
    "ipw_clip5": "clipped-ips:5",
    "snipw": "snips",
    "dm": "dm",
    "dr": "dr",
    "dr_clip5": "clipped-dr:5",
    "sndr": "sndr",
    "switch-dr_5": "switch-dr:5",
    "dr-os_10": "dr-os:10",
    "sgipw_.005": "sg-ips:0.005",
    "sgdr_.005": "sg-dr:0.005",
}


def feedback(first: int = 0) -> dict[str, Any]:
    """The log as bandit feedback of obp, with positions counted from `first`."""
    table = pyarrow.csv.read_csv(LOG).to_pydict()
    return {
        "n_rounds": len(table["item_id"]),
        "n_actions": 80,
        "action": np.array(table["item_id"]),
        "reward": np.array(table["click"], np.float64),
        "pscore": np.array(table["propensity_score"]),
        "position": np.array(table["position"]) - 1 + first,
    }


def parquet(folder: Path) -> Any:
    path = folder / "log.parquet"
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(LOG), path)
    return read_log(path, columns=COLUMNS)


SOURCES = {
    "dict, positions from 0": lambda _folder: feedback(),
    "dict, positions from 1": lambda _folder: feedback(first=1),
    "CSV": lambda _folder: read_log(LOG, columns=COLUMNS),
    "Parquet": parquet,
}


def figures(source: Any, target: Any, **options: Any) -> dict[str, float | None]:
    """The values in obp_all.json, except the value of the other policy on its own data (not included)."""
    report = evaluate(source, FixedDistribution(target), list(NAMES.values()), **options)
    assert report.refusals == {}
    d = report.diagnostics
    made: dict[str, float | None] = {name: report[ours].value for name, ours in NAMES.items()}
    uniform = evaluate(source, "uniform", ["ips", "dm"])
    return made | {
        "mean_w": d.mean_weight,
        "max_w": d.max_weight,
        "ess": d.effective_sample_size,
        "q_const": uniform["dm"].value,
        "on_policy_random": uniform["ips"].value,
    }


def expected() -> dict[str, float]:
    left = {name: value for name, value in EXPECTED.items() if name not in ("estimates", "on_policy_bts")}
    return {**left, **EXPECTED["estimates"]}


@pytest.mark.parametrize("source", SOURCES)
def test_all_values_agree(source, tmp_path):
    made = figures(SOURCES[source](tmp_path), TARGET)
    assert made == pytest.approx(expected(), rel=1e-12, abs=0)


def test_all_values_agree_with_a_given_reward_model():
    made = figures(feedback(), TARGET, reward_model=np.full(80, EXPECTED["q_const"]))
    assert made == pytest.approx(expected(), rel=1e-12, abs=0)


def test_the_position_is_part_of_the_target():
    """If the columns of the target are permuted, no value that depends on them agrees."""
    made = figures(feedback(), TARGET[:, ::-1])
    depends = set(expected()) - {"dm", "max_w", "q_const", "on_policy_random"}
    assert {name for name in depends if made[name] == pytest.approx(expected()[name], rel=1e-12)} == set()
