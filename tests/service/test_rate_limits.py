"""How often a caller may call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maillard.errors import InvalidValue
from maillard.service.rate_limits import Limiter


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_rested_caller_has_two_seconds_worth() -> None:
    clock = Clock()
    limiter = Limiter(100, clock=clock)
    assert [limiter.wait("a") for _ in range(200)] == [0.0] * 200
    assert limiter.wait("a") == pytest.approx(0.01)
    assert limiter.wait("b") == 0.0
    clock.now += 0.0101
    assert limiter.wait("a") == 0.0
    clock.now += 3600
    assert sum(limiter.wait("a") == 0.0 for _ in range(300)) == 200


def test_who_waits_as_told_is_allowed() -> None:
    clock = Clock()
    limiter = Limiter(3, clock=clock)
    for _ in range(500):
        clock.now += limiter.wait("a")
        assert limiter.wait("a") == 0.0


def test_refused_calls_cost_nothing() -> None:
    clock = Clock()
    limiter = Limiter(1, clock=clock)
    assert [limiter.wait("a"), limiter.wait("a")] == [0.0, 0.0]
    for _ in range(1000):
        assert limiter.wait("a") == pytest.approx(1.0)


def test_a_slow_rate_allows_a_call_at_last() -> None:
    clock = Clock()
    limiter = Limiter(0.1, clock=clock)
    assert limiter.wait("a") == 0.0
    assert limiter.wait("a") == pytest.approx(10)
    clock.now += 10
    assert limiter.wait("a") == 0.0


def test_a_call_that_no_bucket_holds_is_paid_off_afterwards() -> None:
    clock = Clock()
    limiter = Limiter(10, clock=clock)
    assert limiter.wait("a", cost=1000) == 0.0
    assert limiter.wait("a") == pytest.approx(98.1)
    assert limiter.wait("a", cost=1000) == pytest.approx(100)
    clock.now += 100
    assert limiter.wait("a", cost=1000) == 0.0


def test_a_rate_of_ones_own() -> None:
    limiter = Limiter(1, clock=Clock())
    assert sum(limiter.wait("fast", rate=50) == 0.0 for _ in range(200)) == 100
    assert sum(limiter.wait("slow") == 0.0 for _ in range(200)) == 2


def test_without_a_rate_only_those_who_have_one_are_limited() -> None:
    limiter = Limiter(None, clock=Clock())
    assert sum(limiter.wait("a") == 0.0 for _ in range(10_000)) == 10_000
    assert sum(limiter.wait("b", rate=1) == 0.0 for _ in range(200)) == 2


def test_what_was_not_known_at_the_door_is_paid_off_afterwards() -> None:
    """A batch is let in as one call, and paid for when its size is known: otherwise the second payment might never be possible."""
    clock = Clock()
    limiter = Limiter(0.5, clock=clock)
    assert limiter.wait("a") == 0.0
    limiter.spend("a", 99)
    assert limiter.wait("a") == pytest.approx(200)
    clock.now += 200
    assert limiter.wait("a") == 0.0


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 5)), max_size=200))
def test_no_caller_gets_more_than_its_rate(calls: list[tuple[float, int]]) -> None:
    clock = Clock()
    limiter = Limiter(4, clock=clock)
    begin, allowed = clock.now, 0
    for pause, cost in calls:
        clock.now += pause
        allowed += cost * (limiter.wait("a", cost) == 0.0)
        assert allowed <= 8 + 4 * (clock.now - begin) + 1e-6


def test_memory_is_bounded_and_those_who_go_on_calling_are_not_forgotten() -> None:
    limiter = Limiter(1, clock=Clock(), callers=100)
    limiter.wait("debtor", cost=1000)
    for n in range(10_000):
        limiter.wait(f"caller {n}")
        if n % 40 == 0:
            assert limiter.wait("debtor") > 900
    assert len(limiter._young) + len(limiter._old) <= 100


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_rates_that_are_none(rate) -> None:
    with pytest.raises(InvalidValue, match="rate: expected requests a second"):
        Limiter(rate)
