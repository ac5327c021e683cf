"""A small log whose probabilities depend on the device of the visitor, in all formats."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

ARMS = ["blue", "red"]


def device_log(rows: int = 600, seed: int = 0, *, strength: float = 0.3) -> pd.DataFrame:
    """A table with device and age as columns, and the probabilities of both arms."""
    rng = np.random.default_rng(seed)
    device = rng.choice(["phone", "desktop", "tablet"], rows, p=[0.5, 0.35, 0.15])
    age = rng.integers(18, 80, rows)
    p = np.where(device == "phone", 0.5 + strength, 0.5 - strength)
    blue = rng.random(rows) < p
    mean = np.where(blue == ((device == "phone") & (age < 50)), 0.6, 0.3)
    return pd.DataFrame(
        {
            "arm": np.where(blue, *ARMS),
            "probability": np.where(blue, p, 1 - p),
            "reward": (rng.random(rows) < mean).astype(float),
            "device": device,
            "age": age,
        }
    )


def with_distributions(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with the probabilities of both arms."""
    p = np.where(frame.arm == "blue", frame.probability, 1 - frame.probability)
    return frame.assign(
        eligible=[ARMS] * len(frame), log_probabilities=[[np.log(each), np.log1p(-each)] for each in p]
    )


def with_context(frame: pd.DataFrame, form: str = "json") -> Any:
    """The table with a column `context` instead of device and age."""
    contexts = [
        {"device": device, "age": int(age)} for device, age in zip(frame.device, frame.age, strict=True)
    ]
    plain = frame.drop(columns=["device", "age"])
    if form == "json":
        return plain.assign(context=list(map(json.dumps, contexts)))
    return pa.Table.from_pandas(plain, preserve_index=False).append_column("context", pa.array(contexts))
