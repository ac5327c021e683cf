"""Runs scripts in the environment of the other libraries, and counts comparisons and differences."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["DOUBLE", "PYTHON", "SINGLE", "Comparison", "run_script"]

PYTHON = Path(__file__).parents[2] / ".peers" / "bin" / "python"
SINGLE = 1e-6  # Vowpal Wabbit stores costs and probabilities in single precision
DOUBLE = 1e-12


class Comparison:
    """The number of comparisons, and the differences found."""

    def __init__(self) -> None:
        self.count, self.differences = 0, list[str]()

    def equal(self, label: str, ours: object, theirs: object) -> None:
        self.count += 1
        if ours != theirs:
            self.differences.append(f"{label}: {ours!r} in maillard, {theirs!r} in the other library")

    def near(self, label: str, ours: float | None, theirs: float, tolerance: float) -> None:
        """Compare two numbers; None, a refused estimate, is a difference."""
        self.count += 1
        if ours is None or not abs(ours - theirs) <= tolerance * max(1.0, abs(ours)):
            self.differences.append(f"{label}: {ours!r} in maillard, {theirs!r} in the other library")


def run_script(script: str, folder: Path) -> dict[str, Any]:
    """Run a script of this folder in the peers' environment; return the last line it prints, as JSON."""
    path = Path(__file__).with_name(script)
    done = subprocess.run([PYTHON, path, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stdout}{done.stderr}")
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return output
