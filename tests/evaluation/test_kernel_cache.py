"""Kernels that numba caches on disk must not keep old values of constants that other modules define."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# Weights are 2 and 20, so that their powers of two are 1 and 4; the rarer arm has a probability of 0.05.
_SCRIPT = """
import json, sys
from maillard.evaluation import diagnostics, evaluate, weighted_rows
changed = json.loads(sys.argv[1])
for name, value in changed.items():
    module = diagnostics if hasattr(diagnostics, name) else weighted_rows
    assert hasattr(module, name), name
    setattr(module, name, value)
feedback = {"action": [0, 1] * 500, "reward": [0.0, 1.0] * 500, "pscore": [0.5, 0.05] * 500}
try:
    report = evaluate(feedback, "uniform", ["ips"], min_effective_size=0, adaptive=False)
    print(json.dumps(sorted(report.diagnostics.histogram)))
except Exception as error:
    print(json.dumps(type(error).__name__))
"""


def evaluate_with(cache: Path, **constants: float) -> object:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", _SCRIPT, json.dumps(constants)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_changed_constant_is_used_although_the_kernel_is_cached(tmp_path) -> None:
    assert evaluate_with(tmp_path) == [0, 3]
    assert list(tmp_path.rglob("*.nbi")), "the kernels are cached"
    assert evaluate_with(tmp_path, MIN_POWER=1, MAX_POWER=2) == [1, 2]  # either alone: [1, 3] or [0, 2]
    assert evaluate_with(tmp_path, MIN_PROBABILITY=0.1) == "InvalidLog"
