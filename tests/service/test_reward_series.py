"""The reward series: rewards over time in buckets of equal width."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from maillard.service.reward_series import RewardSeries

START = 1_700_000_000


def series_of(times: list[float], values: list[float] | None = None, arms: list[str] | None = None) -> Any:
    """The width and the points of rewards that were applied at these seconds."""
    series = RewardSeries()
    for place, at in enumerate(times):
        arm, value = arms[place] if arms else "red", values[place] if values else 1.0
        series.add(START * 1_000_000 + round(at * 1_000_000), arm, value)
    points = list(series.points())
    assert len(times) == sum(point["rewards"] for point in points)
    return {"bucket_s": series.width / 1_000_000, "points": points}


def test_buckets_start_with_one_second_and_include_empty_ones() -> None:
    series = series_of([0.2, 0.7, 3.5], [1.0, 0.5, 0.25], ["red", "blue", "red"])
    assert series["bucket_s"] == 1
    points = series["points"]
    assert [each["rewards"] for each in points] == [2, 0, 0, 1]
    assert [each["mean"] for each in points] == [0.75, None, None, 0.25]
    assert points[0]["arms"] == {"red": {"rewards": 1, "mean": 1.0}, "blue": {"rewards": 1, "mean": 0.5}}
    assert points[1]["arms"] == {}
    assert points[0]["at"] == datetime.fromtimestamp(1_700_000_000, UTC)
    assert points[3]["at"] == datetime.fromtimestamp(1_700_000_003, UTC)


@pytest.mark.parametrize("span", [100, 239, 240, 1000, 86_400, 10_000_000])
def test_buckets_double_when_there_are_too_many(span: int) -> None:
    rng = random.Random(span)
    times = [0.0, *(rng.uniform(0, span) for _ in range(500)), span]
    values = [rng.random() for _ in times]
    series = series_of(times, values)
    points, width = series["points"], series["bucket_s"]
    assert len(points) <= 240
    assert width == 1 or len(points) > 110  # not wider than necessary
    assert math.log2(width).is_integer()
    ends = [each["at"].timestamp() for each in points]
    assert [end % width for end in ends] == [0] * len(ends)
    assert ends == [ends[0] + n * width for n in range(len(ends))]
    for end, point in zip(ends, points, strict=True):
        inside = [v for t, v in zip(times, values, strict=True) if end <= round(START + t, 6) < end + width]
        assert point["rewards"] == len(inside)
        assert point["mean"] == (pytest.approx(sum(inside) / len(inside)) if inside else None)


def test_many_arms_have_fewer_buckets() -> None:
    rng = random.Random(1)
    arms = [f"arm-{n}" for n in range(300)]
    times = sorted(rng.uniform(0, 239) for _ in range(60_000))
    series = series_of(times, arms=rng.choices(arms, k=len(times)))
    cells = sum(len(point["arms"]) for point in series["points"])
    assert cells <= 24_000
    assert len(series["points"]) > 40


def test_a_clock_that_runs_backwards() -> None:
    series = series_of([100.0, 50.0, 3.0, 101.0])
    assert len(series["points"]) == 99
    assert series["points"][0]["rewards"] == 1


def test_a_revision_of_an_arm_without_rewards_changes_nothing() -> None:
    series = RewardSeries()
    series.revise("red", 1.0)
    assert list(series.points()) == []
