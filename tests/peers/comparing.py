"""Counting what was compared with other libraries, and running them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["DOUBLE", "PYTHON", "SINGLE", "Comparison", "said_by"]

PYTHON = Path(__file__).parents[2] / ".peers" / "bin" / "python"
SINGLE = 1e-6  # Vowpal Wabbit has costs and probabilities in single precision
DOUBLE = 1e-12


class Comparison:
    """Counts what was compared, and keeps what differed."""

    def __init__(self) -> None:
        self.count, self.differences = 0, list[str]()

    def equal(self, what: str, ours: object, theirs: object) -> None:
        self.count += 1
        if ours != theirs:
            self.differences.append(f"{what}: {ours!r} here, {theirs!r} there")

    def near(self, what: str, ours: float | None, theirs: float, tolerance: float) -> None:
        """None, which is no answer, is a difference."""
        self.count += 1
        if ours is None or not abs(ours - theirs) <= tolerance * max(1.0, abs(ours)):
            self.differences.append(f"{what}: {ours!r} here, {theirs!r} there")


def said_by(script: str, folder: Path) -> dict[str, Any]:
    """What a script of this folder prints last, run in the peers' environment."""
    path = Path(__file__).with_name(script)
    done = subprocess.run([PYTHON, path, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stdout}{done.stderr}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said
