"""Fixtures and helpers for several tests: hypothesis profiles and seeds."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

# Without a GPU, CUDA kernels run in numba's simulator. numba reads this variable once, when it is imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")

import hypothesis
import numpy as np
import pytest

from tests.every_policy import NAMES, VARIANTS, make, runs_on  # noqa: F401  # for other tests
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
