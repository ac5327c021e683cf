"""Fixtures and helpers for several tests: hypothesis profiles, seeds, and a policy of every name."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Without a GPU, CUDA kernels run in numba's simulator. numba reads this variable once, when it is imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")

import hypothesis
import numpy as np
import pytest

import maillard
from maillard import Policy
from tests.postgres import postgres, postgres_server, private_postgres  # noqa: F401  # fixtures
from tests.seeding import default_rng, pytest_fixture_setup, pytest_runtest_protocol  # noqa: F401  # hooks
from tests.stores import log, store  # noqa: F401  # fixtures
from tests.temporary_files import keep_in_memory

np.random.default_rng = default_rng

# A shell starts background jobs with SIGINT ignored, and children inherit that. Some tests interrupt
# themselves or a child, so the suite always starts from Python's own handler.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# Policies that need a context are tested in tests/policies/test_linear_policies.py.
NAMES = [name for name in maillard.policies.names() if not maillard.uses_context(name)]
VARIANTS = [
    "boltzmann:schedule=log,eta=3",
    "kl-ms:jeffreys=true",
    "kl-ms+:jeffreys=true",
    "kl-ucb++:anytime=true",
    "kl-ucb:c=3",
    "ts:scale=0.25",
    "ucb1:scale=0.5",
    "giro:a=0.3",
    "phe:a=1.1",
    *(
        f"{name}:family={family}"
        for name in ("ms-exponential-family", "med", "imed", "dmed", "kl-ucb", "kl-ucb++")
        for family in ("gaussian", "bernoulli", "poisson", "exponential")
    ),
]


def pytest_configure(config: pytest.Config) -> None:
    if "not torture" in config.option.markexpr:  # the long tests write large logs
        keep_in_memory()


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector away from modules and tests, which all stay until the end."""
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores, because a third of the time is spent waiting for servers."""
    return (os.cpu_count() or 1) + 1


def make(spec: str) -> Policy:
    """The policy of a spec, with a sigma2 and a horizon."""
    return maillard.policy(spec, sigma2=0.25, horizon=10**6)


def runs_on(plan: Any) -> bool:
    """Whether a policy can run on a problem."""
    from maillard.simulation.plans import check_plan

    try:
        check_plan(plan)
    except maillard.InvalidValue:
        return False
    return True
