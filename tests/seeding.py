"""Fixed seeds for every generator that would otherwise be seeded by the operating system.

A `Bandit` seeds its generator from the operating system, so an assertion about its choices could fail by
chance. In the tests, `numpy.random.default_rng()` without a seed takes the next number of a sequence. Each
test starts this sequence at a number derived from its own name, and each fixture that several tests share at
one derived from the fixture's name. So the choices depend neither on the order of the tests nor on how they
are distributed.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from_operating_system = np.random.default_rng

_seeds: Iterator[int] = itertools.count()

# The same for the process of a service; SEED is replaced by a number.
PRELUDE = """
import itertools, numpy
_unseeded, _seeds = numpy.random.default_rng, itertools.count(SEED)
numpy.random.default_rng = lambda seed=None: _unseeded(next(_seeds) if seed is None else seed)
"""


def default_rng(seed: Any = None) -> np.random.Generator:
    """As `numpy.random.default_rng`, but never seeded by the operating system."""
    return from_operating_system(next(_seeds) if seed is None else seed)


@contextmanager
def seeds_of(name: str) -> Iterator[None]:
    """Start the sequence of seeds at a number derived from a name.

    Afterwards continue the previous sequence.
    """
    global _seeds  # noqa: PLW0603  # the generator factory is global, too
    before, _seeds = _seeds, itertools.count(zlib.crc32(name.encode()))
    try:
        yield
    finally:
        _seeds = before


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Seed what a test and its own fixtures do."""
    with seeds_of(item.nodeid):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
    """Seed a fixture that several tests share, whichever of them is first."""
    name = f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param', '')}]"
    if fixturedef.scope == "function":
        yield
        return
    with seeds_of(name):
        yield
