"""What-if evaluations with contexts: rules, frozen policies, and estimates by segment."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from maillard import Bandit, InvalidValue, Reward, UnknownName, compare, evaluate
from maillard.client import AsyncClient, Client
from maillard.service import running
from maillard.service.jobs import what_if
from tests.client.faulty_server import call_client

RULE = "rule:device=phone->blue,else->red"
DEVICES = ["phone", "desktop", "watch"]
MEANS = {
    "phone": {"red": 0.2, "blue": 0.8},
    "desktop": {"red": 0.6, "blue": 0.3},
    "watch": {"red": 0.5, "blue": 0.5},
}


def fill(where: Path | str, experiment: str = "home", decisions: int = 600, **options: Any) -> None:
    """A log whose better arm depends on the device. Some devices are rare."""
    rng = random.Random(1)
    bandit = Bandit(
        ["red", "blue"], "uniform", reward=Reward(low=0, high=1), log=where, experiment=experiment,
        segments=["device"], seed=1, **options,
    )  # fmt: skip
    with bandit:
        for _ in range(decisions // 20):
            contexts = [
                {"device": rng.choices(DEVICES, [60, 38, 2])[0], "age": rng.randrange(18, 90)}
                for _ in range(20)
            ]
            made = bandit.choose(context=contexts)
            bandit.rewards(
                {"decision": each.id, "value": float(rng.random() < MEANS[context["device"]][each.arm])}
                for each, context in zip(made, contexts, strict=True)
            )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("logs") / "log.db"
    fill(path)
    fill(path, "plain", 40)
    return str(path)


def run(log: str, target: Any, *more: Any, experiment: str = "home", **options: Any) -> dict[str, Any]:
    found = what_if(log, experiment, target, *more, **options)
    json.dumps(found, allow_nan=False)
    return found


def fields(estimate: Any, *names: str) -> Any:
    read = estimate.get if isinstance(estimate, dict) else lambda name: getattr(estimate, name)
    return [read(name) for name in names]


NUMBERS = ("value", "lower", "upper")


@pytest.mark.parametrize(
    ("target", "estimand"),
    [
        (RULE, "the mean reward if visitors had been shown 'blue' where device=phone, else 'red'"),
        (" rule: else -> red", "the mean reward if visitors had been shown 'red'"),
        (
            "rule:device=phone&age<30->uniform,else->red",
            "the mean reward if visitors had been shown any arm with equal probability "
            "where device=phone&age<30, else 'red'",
        ),
        ("frozen:300", "the mean reward if the policy had stayed as it was after event 300"),
    ],
)
def test_targets_that_depend_on_the_context(log, target, estimand) -> None:
    report = evaluate(log, target.strip(), experiment="home")
    found = run(log, target)
    assert report.best is not None
    assert (found["estimand"], found["kind"], found["target"]) == (estimand, "evaluation", target)
    assert fields(found, *NUMBERS) == fields(report.best, *NUMBERS)
    assert (found["by"], found["segments"], found["notes"]) == (None, [], [])


def test_a_report_for_each_segment(log) -> None:
    """They equal those of `evaluate`, and their intervals are valid together."""
    expected = evaluate(log, RULE, by="device", experiment="home")
    found = run(log, RULE, by=["device", "device"])
    assert found["by"] == ["device"]
    assert [each["segment"] for each in found["segments"]] == [{"device": name} for name in expected]
    assert found["notes"] == []
    assert fields(found, *NUMBERS) == fields(expected.whole.best, *NUMBERS)
    for each, report in zip(found["segments"], expected.values(), strict=True):
        assert each["decisions"] == report.diagnostics.rows == each["rows"]
        assert each["confidence"] == report.confidence > 0.98
        assert 0 < each["logged_mean"] < 1
        if report.best is not None:
            assert fields(each, "estimator", *NUMBERS) == fields(report.best, "name", *NUMBERS)
            assert each["has_estimate"]
    assert found["segments"][0]["lower"] > 0.4  # blue on phones
    both = run(log, "uniform", by=["device", "age"])
    assert both["segments"][0]["segment"] == {"device": "(other)", "age": "(other)"}
    assert "are pooled" in both["notes"][0]


def test_a_comparison_for_each_segment(log) -> None:
    expected = compare(log, RULE, "arm:red", by="device", experiment="home")
    found = run(log, RULE, None, 0.95, "arm:red", by=["device"])
    assert found["kind"] == "comparison"
    assert "visitors had been shown" in found["estimand"]
    for each, (name, comparison) in zip(found["segments"], expected.items(), strict=True):
        assert each["segment"] == {"device": name}
        assert each["has_estimate"] == (comparison.best is not None)
        if comparison.best is not None:
            assert fields(each, *NUMBERS) == fields(comparison.best, *NUMBERS)


def test_a_segment_that_cannot_be_answered(tmp_path: Path) -> None:
    """The other segments and the whole log still have an estimate."""
    path = str(tmp_path / "log.db")
    fill(path, decisions=200)
    with Bandit(log=path, experiment="home") as bandit:
        for decision in bandit.choose(eligible=["red"], context=[{"device": "tv"}] * 120):
            bandit.reward(decision, 1.0)
    found = run(path, "arm:blue", by=["device"])
    by_name = {each["segment"]["device"]: each for each in found["segments"]}
    assert (
        "in the segment 'tv', in no row could all arms of the target have been chosen"
        in by_name["tv"]["refusal"]
    )
    assert (by_name["tv"]["has_estimate"], by_name["tv"]["value"]) == (False, None)
    assert by_name["phone"]["has_estimate"]


@pytest.fixture(scope="module")
def url(log) -> Iterator[str]:
    with running(log, no_keys=True) as address:
        yield address


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ({"target": "rule:"}, "$.target", "clauses such as rule:"),
        ({"target": "rule:device=phone->blue"}, "$.target", "else->ARM as the last clause"),
        ({"target": "rule:device=phone->blue else->red"}, "$.target", "a comma between clauses"),
        ({"target": "rule:device='phone->blue,else->red"}, "$.target", "closed quotes"),
        ({"target": "rule:age<old->blue,else->red"}, "$.target", "a number after age<, instead of 'old'"),
        ({"target": "rule:device=phone->green,else->red"}, "$.target", "unknown name 'green'"),
        ({"target": "rule:devise=phone->blue,else->red"}, "$.target", "Did you mean 'device'"),
        ({"target": "rule:device<3->blue,else->red"}, "$.target", "device<3 needs numbers as values"),
        ({"target": "uniform", "against": "rule:x->red"}, "$.against", "conditions key=value"),
        ({"target": "uniform", "against": "rule:else->green"}, "$.against", "unknown name 'green'"),
        ({"target": "uniform", "against": "rule:devise=1->blue,else->red"}, "$.against", "'device'"),
        ({"target": "uniform", "against": "rule:device>=3->blue,else->red"}, "$.against", "needs numbers"),
        ({"target": "uniform", "against": "dist:red=2"}, "$.against", "probabilities >= 0"),
        ({"target": "frozen:0"}, "$.target", "the number of an event of the log, from 1 to"),
        ({"target": "frozen:999999"}, "$.target", "the number of an event"),
        ({"target": "frozen:x"}, "$.target", "the number of an event"),
        ({"target": "uniform", "by": ["devise"]}, "$.by", "Did you mean 'device'"),
        ({"target": "uniform", "by": []}, "$.by", "length"),
        ({"target": "uniform", "by": "device"}, "$.by", "array"),
        ({"target": "ms+", "by": ["device"]}, "$.by", "a policy that learns is replayed"),
    ],
)  # fmt: skip
def test_errors_name_the_field(url, body, path, message) -> None:
    response = httpx2.post(f"{url}/v1/experiments/home/evaluations", json=body, timeout=120)
    error = response.json()["error"]
    assert (response.status_code, error["path"]) == (422, path), error
    assert message in error["message"]


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_the_client_evaluates_rules_by_segment(url, log, client_class) -> None:
    def ask(*arguments: Any, **options: Any) -> Any:
        return call_client(
            client_class, url, lambda each: each.evaluate(*arguments, **options), experiment="home"
        )

    found = ask(RULE, by="device")
    assert found == run(log, RULE, by=["device"])
    assert ask(RULE, by=["device"], against="arm:red")["kind"] == "comparison"
    with pytest.raises(UnknownName, match="'device'"):
        ask(RULE, by="devise")
    with pytest.raises(InvalidValue, match="comma between"):
        ask("rule:device=phone->blue else->red")
    with pytest.raises(InvalidValue, match="a key of the context"):
        ask(RULE, by=[])
