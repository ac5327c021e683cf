"""Rate limits: a token bucket for each caller."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maillard.errors import InvalidValue
from maillard.service.rate_limits import RateLimiter


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_full_bucket_has_the_tokens_of_two_seconds() -> None:
    clock = Clock()
    limiter = RateLimiter(100, clock=clock)
    assert [limiter.acquire("a") for _ in range(200)] == [0.0] * 200
    assert limiter.acquire("a") == pytest.approx(0.01)
    assert limiter.acquire("b") == 0.0
    clock.now += 0.0101
    assert limiter.acquire("a") == 0.0
    clock.now += 3600
    assert sum(limiter.acquire("a") == 0.0 for _ in range(300)) == 200


def test_a_caller_that_waits_as_told_is_admitted() -> None:
    clock = Clock()
    limiter = RateLimiter(3, clock=clock)
    for _ in range(500):
        clock.now += limiter.acquire("a")
        assert limiter.acquire("a") == 0.0


def test_refused_calls_cost_nothing() -> None:
    clock = Clock()
    limiter = RateLimiter(1, clock=clock)
    assert [limiter.acquire("a"), limiter.acquire("a")] == [0.0, 0.0]
    for _ in range(1000):
        assert limiter.acquire("a") == pytest.approx(1.0)


def test_a_slow_rate_admits_a_request_in_the_end() -> None:
    clock = Clock()
    limiter = RateLimiter(0.1, clock=clock)
    assert limiter.acquire("a") == 0.0
    assert limiter.acquire("a") == pytest.approx(10)
    clock.now += 10
    assert limiter.acquire("a") == 0.0


def test_a_cost_above_the_capacity_is_paid_off_afterwards() -> None:
    clock = Clock()
    limiter = RateLimiter(10, clock=clock)
    assert limiter.acquire("a", cost=1000) == 0.0
    assert limiter.acquire("a") == pytest.approx(98.1)
    assert limiter.acquire("a", cost=1000) == pytest.approx(100)
    clock.now += 100
    assert limiter.acquire("a", cost=1000) == 0.0


def test_a_caller_with_its_own_rate() -> None:
    limiter = RateLimiter(1, clock=Clock())
    assert sum(limiter.acquire("fast", rate=50) == 0.0 for _ in range(200)) == 100
    assert sum(limiter.acquire("slow") == 0.0 for _ in range(200)) == 2


def test_without_a_rate_only_callers_with_their_own_rate_are_limited() -> None:
    limiter = RateLimiter(None, clock=Clock())
    assert sum(limiter.acquire("a") == 0.0 for _ in range(10_000)) == 10_000
    assert sum(limiter.acquire("b", rate=1) == 0.0 for _ in range(200)) == 2


def test_a_cost_that_is_known_late_is_paid_off_afterwards() -> None:
    """A batch is admitted as one request, and charged when its size is known."""
    clock = Clock()
    limiter = RateLimiter(0.5, clock=clock)
    assert limiter.acquire("a") == 0.0
    limiter.charge("a", 99)
    assert limiter.acquire("a") == pytest.approx(200)
    clock.now += 200
    assert limiter.acquire("a") == 0.0


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 5)), max_size=200))
def test_no_caller_gets_more_than_its_rate(calls: list[tuple[float, int]]) -> None:
    clock = Clock()
    limiter = RateLimiter(4, clock=clock)
    begin, allowed = clock.now, 0
    for pause, cost in calls:
        clock.now += pause
        allowed += cost * (limiter.acquire("a", cost) == 0.0)
        assert allowed <= 8 + 4 * (clock.now - begin) + 1e-6


def test_memory_is_bounded_and_active_callers_are_not_forgotten() -> None:
    limiter = RateLimiter(1, clock=Clock(), callers=100)
    limiter.acquire("indebted", cost=1000)
    for n in range(10_000):
        limiter.acquire(f"caller {n}")
        if n % 40 == 0:
            assert limiter.acquire("indebted") > 900
    assert len(limiter._recent) + len(limiter._older) <= 100


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_invalid_rates(rate) -> None:
    with pytest.raises(InvalidValue, match="rate: expected requests per second"):
        RateLimiter(rate)
