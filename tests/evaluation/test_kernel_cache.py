"""Kernels that numba caches on disk must not keep old values of constants that other modules define."""

from __future__ import annotations

import json
import subprocess
import sys

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
    answer = sorted(report.diagnostics.histogram)
except Exception as error:
    answer = type(error).__name__
from maillard.evaluation import compiled_sums
print(json.dumps([answer, sum(compiled_sums._add.stats.cache_hits.values())]))
"""


def evaluate_with(**constants: float) -> tuple[object, int]:
    """The answer of a new process, and how often it loaded the kernel from the cache."""
    command = [sys.executable, "-c", _SCRIPT, json.dumps(constants)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    answer, hits = json.loads(done.stdout)
    return answer, hits


def test_a_changed_constant_is_used_although_the_kernel_is_cached() -> None:
    """The cache is that of the other tests, because to compile the kernels again takes seconds."""
    assert evaluate_with()[0] == [0, 3]
    # Either constant alone would give [1, 3] or [0, 2].
    assert evaluate_with(MIN_POWER=1, MAX_POWER=2) == ([1, 2], 1)
    assert evaluate_with(MIN_PROBABILITY=0.1) == ("InvalidLog", 1)
