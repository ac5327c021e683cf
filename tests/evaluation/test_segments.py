"""Reports by segment, and their agreement with reports of filtered logs."""

from __future__ import annotations

import json
from statistics import NormalDist

import numpy as np
import pytest

from maillard import compare, evaluate, evaluate_each
from maillard.errors import CannotAnswer, InvalidValue, UnknownName
from tests.evaluation.context_tables import device_log, with_context, with_distributions

OPTIONS = {"reward_range": (0, 1), "floor": 0.2}


def same(found, expected) -> None:
    assert list(found) == list(expected)
    assert sum(each.value is not None for each in found.values()) > 3
    for name, each in found.items():
        assert (each.value is None) == (expected[name].value is None)
        for field in ("value", "lower", "upper") if each.value is not None else ():
            assert getattr(each, field) == pytest.approx(getattr(expected[name], field), rel=1e-10), name


@pytest.mark.parametrize("target", ["arm:blue", "rule:age<50->blue,else->red"])
def test_segments_equal_filtered_logs_at_the_adjusted_level(target) -> None:
    frame = with_distributions(device_log(1500))
    by = evaluate(with_context(frame), target, by="device", **OPTIONS)
    assert list(by) == ["phone", "desktop", "tablet"]  # the largest first
    for segment, report in by.items():
        part = with_context(frame[frame.device == segment].reset_index(drop=True))
        least = report.evidence.query.settings.min_effective_size
        same(report, evaluate(part, target, comparisons=3, min_effective_size=least, **OPTIONS))
        assert report.comparisons == 3
        assert report.confidence == pytest.approx(1 - 0.05 / 3)
        assert by.sizes[segment] == len(part)
    same(by.whole, evaluate(with_context(frame), target, **OPTIONS))
    assert by.confidence == pytest.approx(0.95)
    assert by["tablet"].evidence.log.segment == "tablet"


def test_segments_of_comparisons() -> None:
    frame = with_distributions(device_log(1500))
    rule = "rule:age<50->blue,else->red"
    by = compare(with_context(frame), rule, "arm:red", by="device", **OPTIONS)
    part = with_context(frame[frame.device == "phone"].reset_index(drop=True))
    least = by["phone"].first.evidence.query.settings.min_effective_size
    same(by["phone"], compare(part, rule, "arm:red", comparisons=3, min_effective_size=least, **OPTIONS))


def test_small_segments_need_more_rows_than_a_whole_log() -> None:
    """The relative error of a normal approximation at the quantile z grows like z^3 / sqrt(n)."""
    frame = with_context(device_log(1500))
    by = evaluate(frame, "arm:blue", ["snips"], by="device", **OPTIONS)
    z = [NormalDist().inv_cdf(1 - 0.025 / each) for each in (1, 3)]
    least = 30 * (z[1] / z[0]) ** 6
    sizes = {name: report.diagnostics.effective_sample_size for name, report in by.items()}
    assert 30 < sizes["tablet"] < least < sizes["phone"]
    assert f"below {least:.4g}" in by["tablet"].refusals["snips"]
    assert "the intervals of all segments must be valid together" in by["tablet"].refusals["snips"]
    assert by["phone"]["snips"].value is not None
    assert evaluate(frame, "arm:blue", ["snips"], by="device", comparisons=1, **OPTIONS)["tablet"].answered
    assert evaluate(frame, "arm:blue", ["snips"], by="device", min_effective_size=9, **OPTIONS)[
        "tablet"
    ].answered


def test_segments_by_several_keys_and_several_targets() -> None:
    frame = device_log(1500)
    frame["old"] = frame.age >= 50
    more = OPTIONS | {"min_effective_size": 0}
    found = evaluate_each(frame, ["arm:blue", "arm:red"], ["snips"], by=["device", "old"], **more)
    assert {"phone", "tablet"} <= {device for device, _ in found[0]}
    assert found[0]["phone", "true"].comparisons == 2 * len(found[0])
    chosen = frame[(frame.device == "phone") & frame.old & (frame.arm == "blue")]
    value = np.average(chosen.reward, weights=1 / chosen.probability)
    assert found[0]["phone", "true"]["snips"].value == pytest.approx(value)
    text, plain = str(found[0]), json.loads(json.dumps(found[0].to_dict()))
    assert "phone, true" in text
    assert "valid together with 95%" in text
    assert plain["segments"][0]["segment"].keys() == {"device", "old"}
    assert plain["whole"]["target"] == "arm:blue"


def test_small_segments_are_pooled() -> None:
    frame = with_context(device_log(1500))
    rng = np.random.default_rng(1)
    city = rng.choice(["a", "b", *map(str, range(30))], 1500, p=[0.4, 0.3, *[0.01] * 30])
    frame["context"] = [json.dumps({"city": None if i % 100 == 0 else each}) for i, each in enumerate(city)]
    by = evaluate(frame, "arm:blue", ["snips"], by="city", **OPTIONS)
    assert list(by) == ["a", "b", "(other)"]
    assert sum(by.sizes.values()) == 1500
    assert "31 segments" in by.notes[0]
    assert "fewer than 100 rows" in by.notes[0]
    few = evaluate(frame, "arm:blue", ["snips"], by="city", max_segments=1, **OPTIONS)
    assert list(few) == ["a", "(other)"]
    assert "not among the 1 largest" in few.notes[0]
    more = {"min_segment_rows": 1, "max_segments": 99, **OPTIONS}
    all_of_them = evaluate(frame, "arm:blue", ["ips"], by="city", **more)
    assert len(all_of_them) == 33
    assert "(missing)" in all_of_them
    with pytest.raises(KeyError, match="segment"):
        by["c"]


def test_a_segment_without_the_arm_is_refused() -> None:
    frame = device_log(1500)
    frame.loc[frame.device == "tablet", ["arm", "probability"]] = "red", 1.0
    by = evaluate(frame, "arm:blue", by="device", reward_range=(0, 1), adaptive=False)
    assert "in the segment 'tablet', the log never shows 'blue'" in by["tablet"].refusals["ips"]
    assert not by["tablet"].answered
    assert by["phone"].answered


def test_invalid_segments_are_refused() -> None:
    frame = device_log(200)
    with pytest.raises(UnknownName, match="device"):
        evaluate(frame, "arm:blue", by="devise")
    with pytest.raises(UnknownName, match="device"):
        evaluate(with_context(frame), "arm:blue", by="devise")
    with pytest.raises(CannotAnswer, match="no contexts"):
        evaluate({"action": [0, 1], "reward": [0, 1], "pscore": [0.5, 0.5]}, "arm:0", by="device")
    for by in (3, [], [""]):
        with pytest.raises(InvalidValue, match="key of the context"):
            evaluate(frame, "arm:blue", by=by)
    with pytest.raises(InvalidValue, match="max_segments"):
        evaluate(frame, "arm:blue", by="device", max_segments=0)


def test_segments_allow_for_units_and_missing_rewards() -> None:
    frame = with_distributions(device_log(2000))
    rng = np.random.default_rng(5)
    frame["unit"] = [f"u{each}" for each in rng.integers(0, 150, 2000)]
    liking = {unit: rng.random() < 0.5 for unit in set(frame.unit)}
    frame["reward"] = [float(rng.random() < (0.85 if liking[unit] else 0.15)) for unit in frame.unit]
    by = evaluate(with_context(frame), "arm:red", ["snips"], by="device", **OPTIONS)
    assert by["phone"]["snips"].interval == "normal, by unit"
    assert any("visitors return" in each for each in by["phone"].warnings)


def test_a_clause_that_decides_for_no_row_is_named_for_the_whole_log_only() -> None:
    frame = device_log(900)
    by = evaluate(frame, "rule:device=fone->blue,device=phone->blue,else->red", by="device", **OPTIONS)
    (warning,) = by.whole.warnings
    assert warning.startswith("the clause 'device=fone' of the rule decides for no row")
    assert not any(report.warnings for report in by.values())  # a segment has one device
    assert not evaluate(frame, "rule:device=phone->blue,else->red", **OPTIONS).warnings
    difference = compare(frame, "rule:device=fone->blue,else->red", "arm:red", **OPTIONS)
    assert len(difference.warnings) == 1
