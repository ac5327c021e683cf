"""The dashboard of experiments with contexts: segments, observed features, and rules under What if?"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from maillard import Bandit, Features, Reward
from tests.browser import browser  # noqa: F401  # a fixture
from tests.service.api import wait_until
from tests.service.test_dashboard import HOSTILE, Api, check_looks, monitored_page, tab  # noqa: F401  # fixtures
from tests.serving import serving

FEATURES = Features({"device": ["phone", "desktop"], "age": (20, 40)})
ROWS = 300


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    log = tmp_path_factory.mktemp("log") / "decisions.db"
    with serving(log) as service:
        yield Api(service, log)


@pytest.fixture(scope="module")
def page(api: Api) -> str:
    """An experiment in which blue is better on phones. One device has a hostile name."""
    rng = random.Random(1)
    with Bandit(
        ["red", "blue"], "lin-ms:floor=0.4", reward=Reward(low=0, high=1), log=api.log, experiment="offers",
        features=FEATURES,
    ) as bandit:  # fmt: skip
        contexts = [
            {"device": ["phone", "desktop"][n % 2] if n % 10 else HOSTILE[0], "age": rng.randrange(10, 40)}
            for n in range(ROWS)
        ]
        for context, decision in zip(contexts, bandit.choose(context=contexts), strict=True):
            better = (decision.arm == "blue") == (context["device"] == "phone")
            bandit.reward(decision, float(rng.random() < (0.8 if better else 0.2)))
    wait_until(lambda: api.request("GET", "/v1/experiments/offers/contexts")[1]["decisions"] == ROWS)
    return f"{api.service.url}/#/experiments/offers"


def test_traffic_by_segment_and_observed_features(api: Api, page: str, tab: Page) -> None:  # noqa: F811
    tab.goto(page)
    _, found = api.request("GET", "/v1/experiments/offers/contexts?by=device")
    rows = tab.locator("#segments-rows tr")
    expect(rows).to_have_count(3)
    for place, each in enumerate(found["segments"]):
        cells = rows.nth(place).locator("th, td").all_inner_texts()
        assert cells[0] == each["value"]  # markup is shown as text
        assert cells[2:] == [str(each["decisions"]), str(each["rewards"]), f"{each['mean']:.3f}"]
        assert cells[1].strip() == f"{each['fraction']:.1%}"
    expect(tab.locator("#segments-notes")).to_contain_text("do not compare arms or segments")
    tab.click("#segments-arms summary")
    arms = {each["arm"]: each for each in found["segments"][0]["arms"]}
    row = tab.locator("#segments-arm-rows tr").first
    expect(row).to_contain_text(f"{arms['red']['mean']:.3f} {arms['red']['decisions']} decisions")
    age = next(each for each in found["features"] if each["name"] == "age")
    row = tab.locator("#features-rows tr").nth(1)
    expect(row).to_contain_text("20 to 40")
    expect(row).to_contain_text(f"{age['clipped']} of {ROWS} ({age['clipped'] / ROWS:.1%}) clipped")
    expect(tab.locator("#features-note")).to_contain_text("are outside of the declared range")
    # The means of arms are not those of all visitors, so they have no intervals.
    expect(tab.locator("#arms-refusal")).to_contain_text("the policy chooses arms by the context")
    assert tab.locator("#arms [data-label='Probability now']").all_inner_texts() == ["–", "–"]

    tab.select_option("#segments-by", "age")
    expect(rows.first).to_contain_text("below 20")
    expect(rows.nth(1)).to_contain_text("20 to 24")


def test_a_rule_is_assembled_and_evaluated_by_segment(api: Api, page: str, tab: Page) -> None:  # noqa: F811
    tab.goto(page)
    expect(tab.locator("#rule-clauses li")).to_have_count(1)
    tab.fill("#rule-clauses .rule-value", "phone")
    tab.click("#rule-add")
    second = tab.locator("#rule-clauses li").nth(1)
    second.locator(".rule-key").select_option("age")
    second.locator(".rule-operator").select_option("<")
    second.locator(".rule-value").fill("-3.5")
    rule = "rule:device=phone->blue,age<-3.5->blue,else->red"
    expect(tab.locator("#target-rule")).to_have_value(rule)
    second.get_by_role("button").click()
    second.wait_for(state="detached")
    rule = "rule:device=phone->blue,else->red"
    expect(tab.locator("#target-rule")).to_have_value(rule)
    expect(tab.locator("#target-type-rule")).to_be_checked()
    tab.select_option("#target-by", "device")
    tab.click("#evaluate")
    result = tab.locator(".result")
    expect(result).to_contain_text("if visitors had been shown 'blue' where device=phone, else 'red'")
    _, found = api.request("POST", "/v1/experiments/offers/evaluations", {"target": rule, "by": ["device"]})
    for place, each in enumerate(found["segments"]):
        row = result.locator(".by-segment tbody tr").nth(place)
        expect(row).to_contain_text(each["segment"]["device"])
        shown = [float(each) for each in re.findall(r"\d\.\d+", row.locator(".range").inner_text())]
        assert shown == pytest.approx([each["lower"], each["upper"]], abs=0.006)
    expect(result).to_contain_text("valid together with 95% confidence")

    tab.click("#segments-arms summary")
    check_looks(tab, (360, 1280))
    fields = "[...document.querySelectorAll('#form-evaluate input, #form-evaluate select')]"
    assert tab.evaluate(f"{fields}.filter(each => !each.labels.length && !each.ariaLabel).length") == 0


def test_an_old_answer_disappears_while_a_new_one_is_computed(page: str, tab: Page) -> None:  # noqa: F811
    tab.goto(page)
    expect(tab.locator("#rule-clauses li")).to_have_count(1)  # the arms are known
    tab.click("#evaluate")
    expect(tab.locator(".result")).to_have_count(1)
    held: list[Route] = []
    tab.route("**/evaluations", lambda route: held.append(route))  # noqa: PLW0108  # playwright inspects it
    tab.fill("#target-rule", "device=phone->blue,else->red")  # the prefix is added
    tab.click("#evaluate")
    expect(tab.locator("#evaluate")).to_have_text("Estimating…")
    expect(tab.locator("#results")).to_be_empty()
    assert held[0].request.post_data_json == {"target": "rule:device=phone->blue,else->red"}
    held[0].continue_()
    tab.unroute_all()
    expect(tab.locator(".result")).to_contain_text("else 'red'")
    tab.fill("#target-rule", "rule:device=phone->blue")
    tab.click("#evaluate")
    expect(tab.locator("#evaluate-error")).to_contain_text("else->ARM as the last clause")
    expect(tab.locator("#target-rule")).to_have_attribute("aria-invalid", "true")
    expect(tab.locator("#results")).to_be_empty()


def test_experiments_without_contexts_have_no_segments(api: Api, page: str, tab: Page) -> None:  # noqa: F811
    tab.goto(page)
    expect(tab.locator("#target-type-rule")).to_be_visible()
    tab.goto(api.create("plain", ["red", "blue"]))
    expect(tab.locator("#title-experiment")).to_have_text("plain")
    expect(tab.locator("#first-decision")).to_be_visible()
    expect(tab.locator("#segments")).to_be_hidden()
    expect(tab.locator("#target-type-rule")).to_be_hidden()


def test_what_if_offers_ranks_if_every_decision_has_its_own_arms(api: Api, tab: Page) -> None:  # noqa: F811
    features = Features({"device": ["phone", "desktop"], "topic": ["news", "sport"]})
    with Bandit(
        [], "lin-ms:floor=0.5", reward=Reward(low=0, high=1), log=api.log, experiment="articles",
        features=features, model="shared", seed=1,
    ) as bandit:  # fmt: skip
        articles = {"article-17": {"topic": "news"}, "article-18": {"topic": "sport"}}
        for row in range(200):
            decision = bandit.choose(context={"device": "phone"}, actions=articles)
            bandit.reward(decision, float(row % 2))
    tab.goto(f"{api.service.url}/#/experiments/articles")
    expect(tab.locator("#form-evaluate .for-actions")).to_be_visible()
    expect(tab.locator("#target-arm")).to_be_hidden()
    expect(tab.locator("#arms-refusal")).to_contain_text("Every decision brings its own arms")
    expect(tab.locator("#arms")).to_be_hidden()
    expect(tab.locator("#add-arm")).to_be_hidden()
    tab.fill("#target-other", "logged")
    tab.select_option("#target-against", "rank:1")
    tab.click("#evaluate")
    expect(tab.locator("#results")).to_contain_text("the action at rank 1 of the list")
