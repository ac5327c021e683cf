"""The dashboard in a real browser with a real service: it shows what the API returns, and is accessible."""

from __future__ import annotations

import itertools
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from maillard import Bandit, Reward
from maillard.decisions.stores import open_store
from maillard.evaluation.diagnostics import Diagnostics
from maillard.service import api_keys
from tests.browser import browser, serious_violations  # noqa: F401  # a fixture
from tests.serving import Service, serving

DASHBOARD = Path(__file__).parents[2] / "src" / "maillard" / "service" / "dashboard"
HOSTILE = [
    '<script>document.title = "taken"</script>',
    '"><img src=x onerror="document.title = 1">',
    "\u202egnp.exe\u2066 'quoted' / and ? # %41",
    "שלום עולם",
    "🍞" * 100 + "x" * 400,
]
WIDTHS = (360, 768, 1280)
TIMEOUT_MS = 120_000  # milliseconds; long, for busy machines

expect.set_options(timeout=TIMEOUT_MS)


class Api:
    """Requests to the service, without a browser."""

    def __init__(self, service: Service, log: Path) -> None:
        self.service, self.log = service, log

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Send a request; return the status and body of the response."""
        content = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.service.url + path, content, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def create(self, key: str, arms: list[str], policy: str = "uniform", **reward: float) -> str:
        """Create an experiment; return the URL of its page."""
        reward = reward or {"low": 0, "high": 1}
        status, response = self.request(
            "POST", "/v1/experiments", {"experiment": key, "arms": arms, "policy": policy, "reward": reward}
        )
        assert status == 201, response
        return f"{self.service.url}/#/experiments/{quote(key, safe='')}"

    def decide(self, key: str, count: int) -> list[dict[str, Any]]:
        """Make `count` decisions with rewards, every third of which is 1."""
        made: list[dict[str, Any]] = []
        for size in [1000] * (count // 1000) + [count % 1000]:
            status, response = self.request(
                "POST", f"/v1/experiments/{key}/decisions:batch", {"decisions": [{}] * size}
            )
            assert status == 200, response
            batch = [each["decision"] for each in response["results"]]
            rewards = [
                {"decision": each["id"], "value": float(place % 3 == 0)} for place, each in enumerate(batch)
            ]
            assert self.request("POST", "/v1/rewards:batch", {"rewards": rewards})[0] == 200
            made += batch
        return made


@pytest.fixture(scope="module")
def api(tmp_path_factory) -> Iterator[Api]:
    log = tmp_path_factory.mktemp("log") / "decisions.db"
    with serving(log) as service:
        yield Api(service, log)


@pytest.fixture(scope="module")
def example_page(api) -> str:
    """Create an experiment with a thousand decisions; return the URL of its page."""
    address: str = api.create("example", ["red", "blue", "green"], "ms+:floor=0.3")
    api.decide("example", 1000)
    return address


class MonitoredPage:
    """A page of the browser and the errors it reported."""

    def __init__(self, browser: Browser, **options: Any) -> None:  # noqa: F811
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.tab: Page = self.context.new_page()
        self.errors: list[str] = []
        self.allowed = (
            "status of (401|404|409|412|422|503)"
            "|ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET"
        )
        self.tab.on("console", lambda message: self.errors.append(f"{message.type}: {message.text}"))
        self.tab.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        self.tab.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))

    def close(self) -> None:
        """Close the page and check that it reported no unexpected error."""
        self.context.close()
        # The browser logs every error response, also those that a test provokes.
        assert [each for each in self.errors if not re.search(self.allowed, each)] == []


@pytest.fixture
def monitored_page(browser) -> Iterator[MonitoredPage]:  # noqa: F811
    page = MonitoredPage(browser)
    yield page
    page.close()


@pytest.fixture
def tab(monitored_page) -> Page:
    page: Page = monitored_page.tab
    page.set_default_timeout(TIMEOUT_MS)
    return page


def test_from_an_empty_page_to_a_paused_experiment(api, tab) -> None:
    """Use only the keyboard."""
    tab.goto(api.service.url)
    expect(tab.locator("#list-empty")).to_contain_text("No experiments yet")
    expect(tab.locator("#code-create")).to_contain_text("from maillard import Client")

    tab.keyboard.press("Tab")
    expect(tab.locator(".skip")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.locator("#main")).to_be_focused()
    tab.keyboard.press("Tab")
    expect(tab.locator("#new-link")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.locator("#title-new")).to_be_focused()
    tab.keyboard.press("Tab")
    tab.keyboard.type("home page")
    tab.keyboard.press("Tab")
    tab.keyboard.type("plain\nbold")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Control+A")
    tab.keyboard.type("uniform")
    tab.keyboard.press("Enter")
    # The service refuses the space. Its message is next to the field, which has the focus.
    expect(tab.locator("#new-name-wrong")).to_contain_text("of letters, digits and . _ ~ -")
    expect(tab.locator("#new-name")).to_be_focused()
    assert tab.get_attribute("#new-name", "aria-invalid") == "true"
    tab.keyboard.press("Control+A")
    tab.keyboard.type("home")
    tab.keyboard.press("Enter")

    expect(tab.locator("#title-experiment")).to_have_text("home")
    expect(tab.locator("#title-experiment")).to_be_focused()
    assert tab.url.endswith("#/experiments/home")
    expect(tab.locator("#first-decision")).to_be_visible()
    assert f'Client("{api.service.url}", experiment="home")' in tab.locator("#code-first").inner_text()
    status, shown = api.request("GET", "/v1/experiments/home")
    assert (status, shown["arms"], shown["policy"]) == (200, ["plain", "bold"], "uniform")
    assert (shown["reward"]["low"], shown["reward"]["high"]) == (0, 1)

    made = api.decide("home", 401)  # an odd number: no percentage needs rounding of a tie
    expect(tab.locator("#tile-decisions")).to_have_text("401")
    expect(tab.locator("#first-decision")).to_be_hidden()
    plain = sum(each["arm"] == "plain" for each in made)
    row = tab.locator("#arms tr").first
    expect(row).to_contain_text(f"{plain / 401:.1%}")
    expect(row.locator("[data-label=Decisions]")).to_have_text(str(plain))

    tab.keyboard.press("Tab")
    expect(tab.locator("#pause")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.locator("#experiment-status")).to_have_text("paused")
    expect(tab.locator("#message-text")).to_contain_text("Paused")
    expect(tab.locator("#pause")).to_be_focused()
    assert api.request("POST", "/v1/experiments/home/decisions", {})[1]["error"]["code"] == "paused"
    tab.keyboard.press("Enter")
    expect(tab.locator("#experiment-status")).to_have_text("running")
    assert api.request("POST", "/v1/experiments/home/decisions", {})[0] == 201


def test_the_page_shows_the_numbers_of_the_service(api, example_page, tab) -> None:
    tab.goto(example_page)
    expect(tab.locator("#tile-decisions")).to_have_text("1,000")
    _, state = api.request("GET", "/v1/experiments/example/state")
    for place, arm in enumerate(state["arms"]):
        row = tab.locator("#arms tr").nth(place)
        expect(row.locator("th bdi")).to_have_text(arm["arm"])
        expect(row.locator("[data-label=Rewards]")).to_have_text(f"{arm['pulls']:,}")
        expect(row.locator("[data-label='Probability now']")).to_have_text(f"{arm['probability']:.1%}")
        mean, lower, upper = map(float, re.findall(r"[\d.]+", row.locator(".figures").inner_text()))
        assert (mean, lower, upper) == pytest.approx((arm["mean"], arm["lower"], arm["upper"]), abs=0.006)
        # The interval and the point have the positions of their numbers on the axis.
        line, dot = row.locator(".interval"), row.locator(".point")
        positions = [line.get_attribute("x1"), dot.get_attribute("cx"), line.get_attribute("x2")]
        ends = [float(each.removesuffix("%")) for each in positions]
        assert (ends[1] - ends[0]) / (ends[2] - ends[0]) == pytest.approx(
            (arm["mean"] - arm["lower"]) / (arm["upper"] - arm["lower"]), abs=1e-3
        )
    expect(tab.locator("#legend li")).to_have_count(4)
    tab.get_by_label("All", exact=True).check(force=True)
    expect(tab.locator("#legend li").first).to_contain_text(re.compile(r"All arms\s*0\.33"))
    assert tab.locator("#chart path").count() == 4
    tab.click("#legend button:has-text('blue')")
    expect(tab.locator("#chart path")).to_have_count(3)


def test_the_verdict_of_the_audit(api, example_page, tab) -> None:
    tab.goto(example_page)
    expect(tab.locator("#audit-verdict")).to_contain_text("Consistent")
    expect(tab.locator("#tile-verdict")).to_have_text("consistent")
    assert tab.get_attribute("#audit-light", "data-light") == "good"
    _, activity = api.request("GET", "/v1/experiments/example/activity")
    for place, arm in enumerate(activity["audit"]["arms"]):
        cells = tab.locator("#audit-rows tr").nth(place).locator("th, td").all_inner_texts()
        assert cells[:2] == [arm["arm"], str(arm["chosen"])]
        assert float(cells[3].replace("−", "-")) == pytest.approx(arm["z"], abs=0.051)
    expect(tab.locator("#audit-limit")).to_have_text(f"normal: between ±{activity['audit']['limit']:.1f}")
    expect(tab.locator("#audit-weights")).to_contain_text(f"{activity['audit']['weights']['mean']:.3f}")
    tab.click("#verify")
    expect(tab.locator("#verified")).to_contain_text("all 1,000 probabilities were recomputed")

    tab.goto(api.create("few", ["red", "blue"]))
    expect(tab.locator("#audit-verdict")).to_contain_text("Not enough data")
    assert tab.get_attribute("#audit-light", "data-light") == "unknown"
    expect(tab.locator("#verified")).to_be_empty()


def test_a_broken_log_is_reported(api, tab) -> None:
    """Decisions whose arm was not shown were removed, so the rest no longer match their probabilities."""
    common = {
        "arms": ["red", "blue"],
        "policy": "uniform",
        "reward": Reward(low=0, high=1),
        "experiment": "broken",
    }
    with Bandit(**common) as elsewhere, Bandit(**common, log=api.log) as here:
        here.append([row for row in elsewhere.choose(size=600) if row.arm == "red" or row.id[-1] == "0"])
    tab.goto(f"{api.service.url}/#/experiments/broken")
    expect(tab.locator("#audit-verdict")).to_contain_text("Broken: the choices do not agree")
    expect(tab.locator("#tile-verdict")).to_have_text("broken")
    assert tab.get_attribute("#audit-light", "data-light") == "bad"
    assert tab.locator("#audit-rows .beyond").count() == 2
    tab.click("#verify")
    expect(tab.locator("#verified")).to_contain_text("Broken")


def test_the_verdict_while_the_log_is_still_being_read(example_page, tab) -> None:
    """Reading takes minutes only for very large logs, so this test changes the response of the service."""

    def change(route: Any) -> None:
        original = route.fetch()
        route.fulfill(response=original, json=original.json() | {"complete": False})

    tab.route("**/activity", change)
    tab.goto(example_page)
    expect(tab.locator("#audit-verdict")).to_contain_text("Still reading")
    expect(tab.locator("#tile-verdict")).to_have_text("still reading")
    assert tab.get_attribute("#tile-light", "data-light") == "busy"
    tab.unroute_all(behavior="wait")


def test_what_if_shows_an_estimate_or_a_reason(api, example_page, tab) -> None:
    tab.goto(example_page)
    tab.select_option("#target-arm", "blue")
    tab.get_by_role("button", name="Estimate").click()
    result = tab.locator(".result").first
    expect(result).to_contain_text("The mean reward if everyone had been shown 'blue' would have been")
    expect(result).to_contain_text(re.compile(r"with 95% confidence between 0\.\d+ and 0\.\d+"))
    expect(result).to_contain_text("Assumptions")
    assert result.locator("svg .interval").count() == 1
    tab.fill("#target-other", "dist:red=0.5,green=0.5")
    tab.keyboard.press("Enter")
    expect(result).to_contain_text("if the arms had been shown with these probabilities")
    tab.fill("#target-other", "nonsense")
    tab.keyboard.press("Enter")
    expect(tab.locator("#evaluate-error")).to_contain_text("nonsense")

    address = api.create("scarce", ["red", "blue"], "ms:sigma2=1", window=3600)
    api.decide("scarce", 4)
    tab.goto(address)
    expect(tab.locator("#tile-decisions")).to_have_text("4")
    expect(tab.locator("#results")).to_be_empty()
    tab.get_by_role("button", name="Estimate").click()
    expect(result).to_contain_text("The log cannot be used to estimate")
    expect(result).to_contain_text("Reason:")
    expect(tab.locator("#evaluate-error")).to_be_empty()
    expect(tab.locator("#message-text")).to_be_empty()


def test_refused_intervals_show_the_reason(api, tab) -> None:
    address = api.create("boundless", ["red", "blue"], "ms:sigma2=1", window=3600)
    api.decide("boundless", 10)
    tab.goto(address)
    expect(tab.locator("#arms-refusal")).to_contain_text("There are no intervals")
    _, state = api.request("GET", "/v1/experiments/boundless/state")
    expect(tab.locator("#arms-refusal")).to_contain_text(state["interval"]["refusal"])
    expect(tab.locator("#arms .interval").first).to_have_attribute("visibility", "hidden")


def test_visitors_who_return(api, tab) -> None:
    address = api.create("returning", ["red", "blue"])
    body = {"decisions": [{"unit": f"user-{n % 20}"} for n in range(100)]}
    _, response = api.request("POST", "/v1/experiments/returning/decisions:batch", body)
    rewards = [{"decision": each["decision"]["id"], "value": 1} for each in response["results"]]
    assert api.request("POST", "/v1/rewards:batch", {"rewards": rewards})[0] == 200
    tab.goto(address)
    expect(tab.locator("#arms-pending")).to_contain_text("The decisions are of 20 different units")
    expect(tab.locator("#arms-refusal")).to_contain_text("Visitors return (100 decisions, 20 units)")
    expect(tab.locator("#arms .interval").first).to_have_attribute("visibility", "hidden")


def test_changes_of_an_experiment(api, tab) -> None:
    address = api.create("changing", ["red", "blue"])
    tab.goto(address)
    tab.click("#add-arm")
    expect(tab.locator("#arm-name")).to_be_focused()
    # While a dialog is open, the rest of the page cannot get the focus.
    for _ in range(6):
        tab.keyboard.press("Tab")
        assert tab.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    tab.fill("#arm-name", "red")
    tab.keyboard.press("Enter")
    expect(tab.locator("#arm-error")).to_contain_text("red")
    tab.fill("#arm-name", "green")
    tab.keyboard.press("Enter")
    expect(tab.locator("#arms tr")).to_have_count(3)
    expect(tab.locator("#add-arm")).to_be_focused()

    tab.get_by_role("button", name="Retire red").click()
    expect(tab.locator("#confirm-title")).to_contain_text("red")
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("button", name="Retire red")).to_be_focused()
    tab.keyboard.press("Enter")
    tab.click("#confirm-yes")
    expect(tab.locator("#arms tr").last).to_contain_text("retired")
    expect(tab.locator("#title-experiment")).to_be_focused()  # the button is gone

    tab.click("#change-policy")
    expect(tab.locator("#policy-spec")).to_have_value("uniform")
    assert api.request("PATCH", "/v1/experiments/changing", {"policy": "ts"}, **{"If-Match": "*"})[0] == 200
    tab.fill("#policy-spec", "ms+")
    tab.keyboard.press("Enter")
    expect(tab.locator("#message-text")).to_contain_text("Someone else has changed the experiment")
    expect(tab.locator("#experiment-policy")).to_contain_text("ts")
    tab.click("#change-policy")
    tab.fill("#policy-spec", "ms+:booster=8")
    tab.keyboard.press("Enter")
    expect(tab.locator("#experiment-policy")).to_contain_text("ms+:booster=8")

    for button, text in (("reset", "reset once"), ("archive", "reset once")):
        tab.click(f"#{button}")
        tab.click("#confirm-yes")
        expect(tab.locator("#experiment-since")).to_contain_text(text)
    expect(tab.locator("#experiment-status")).to_have_text("archived")
    for hidden in ("#pause", "#add-arm", "#archive", "#arms button"):
        assert tab.locator(hidden).first.is_hidden()
    tab.click(".crumb a >> visible=true")
    card = tab.locator("#list li", has_text="changing")
    expect(card).to_have_count(0)
    tab.check("#list-archived")
    expect(card).to_contain_text("archived")


def test_the_log_is_downloaded(example_page, tab) -> None:
    tab.goto(example_page)
    with tab.expect_download() as found:
        tab.click("#download")
    assert found.value.suggested_filename == "example.parquet"
    assert Path(found.value.path()).read_bytes()[:4] == b"PAR1"


def test_names_are_never_interpreted_as_markup(api, tab) -> None:
    address = api.create("hostile", HOSTILE)
    api.decide("hostile", 100)
    tab.goto(address)
    expect(tab.locator("#arms tr")).to_have_count(len(HOSTILE))
    expect(tab.locator("#legend li")).to_have_count(len(HOSTILE) + 1)
    assert tab.evaluate("document.scripts.length") == 1
    assert tab.evaluate("document.images.length") == 0
    assert tab.title() == "hostile · maillard"
    text = tab.evaluate("document.body.textContent")
    assert HOSTILE[0] in text
    assert "\\u202egnp.exe\\u2066" in text
    assert "\u202e" not in text
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.scrollingElement.scrollWidth") <= width
    tab.get_by_role("button", name="Retire \\u202e").click()
    tab.click("#confirm-yes")
    expect(tab.locator("#arms tr").last).to_contain_text("gnp.exe")
    _, shown = api.request("GET", "/v1/experiments/hostile")
    assert shown["retired"] == [HOSTILE[2]]
    tab.select_option("#target-arm", HOSTILE[3])
    tab.click("#evaluate")
    expect(tab.locator(".result")).to_contain_text(HOSTILE[3])


def test_every_diagnostic_has_a_label() -> None:
    labels = (DASHBOARD / "diagnostic_labels.js").read_text(encoding="utf8")
    shown = {
        field.name for field in fields(Diagnostics) if re.match(r"(int|float|bool|str)\b", str(field.type))
    }
    assert shown <= set(re.findall(r"^  (\w+): \"", labels, re.MULTILINE))
    assert len(shown) >= 18


def test_no_file_creates_markup_from_text() -> None:
    for file in DASHBOARD.glob("*.js"):
        found = re.findall(
            r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function|localStorage)\b",
            file.read_text(encoding="utf8"),
        )
        assert found == [], file.name
    page = (DASHBOARD / "index.html").read_text(encoding="utf8")
    assert not re.search(
        r"\son\w+=|\sstyle=|<style|<script(?! type=\"module\" src=\"dashboard\.js\"></script>)", page
    )
    assert set(re.findall(r'modulepreload" href="(.*?)"', page)) == {
        file.name for file in DASHBOARD.glob("*.js") if file.name not in ("dashboard.js", "api_docs.js")
    }


CONTRAST = """() => {
  const parse = (text) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const light = (rgb) => rgb.slice(0, 3)
    .map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true })
      || node.closest(".hidden, option")) continue;
    const style = getComputedStyle(node);
    const [one, two] = [light(parse(node.closest("svg") ? style.fill : style.color)), light(ground(node))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) low.push(
      `${node.className || node.tagName}: ${text.data.trim().slice(0, 40)} ${ratio.toFixed(2)}`);
  }
  return low;
}"""


def check_looks(tab: Page, widths: Iterable[int]) -> None:
    """Check that the page fits each width, and that its text is legible, in light and dark."""
    grounds = set()
    for scheme, width in itertools.product(("light", "dark"), widths):
        tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.scrollingElement.scrollWidth") <= width
        assert tab.evaluate(CONTRAST) == []
        assert serious_violations(tab) == []
        grounds.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


def test_accessibility_in_light_and_dark_at_all_widths(api, example_page, tab) -> None:
    for address in (example_page, f"{api.service.url}/#/", f"{api.service.url}/#/new"):
        tab.goto("about:blank")
        tab.goto(address)
        expect(tab.locator("main h1 >> visible=true")).to_have_count(1)
        if address == example_page:
            expect(tab.locator("#chart path")).to_have_count(4)
            tab.click("#verify")
            expect(tab.locator("#verified")).to_contain_text("Verified")
            tab.fill("#target-other", "ms+:booster=16")
            tab.click("#evaluate")
            expect(tab.locator(".result")).to_contain_text("if the policy had been ms+")
            tab.click(".result summary")
            expect(tab.locator(".result .details")).to_contain_text("Decisions used")
        check_looks(tab, WIDTHS)
        levels = tab.evaluate(
            "[...document.querySelectorAll('h1, h2, h3')].filter(each => each.checkVisibility())"
            ".map(each => Number(each.tagName[1]))"
        )
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
        fields = "[...document.querySelectorAll('input, select, textarea')]"
        assert tab.evaluate(f"{fields}.filter(each => !each.labels.length && !each.ariaLabel).length") == 0
        ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
        assert len(ids) == len(set(ids))


def test_updates_keep_the_focus_and_requests_never_overlap(api, tab) -> None:
    address = api.create("followed", ["red", "blue"])
    requests: list[tuple[str, int]] = []

    def count_requests(event: str, change: int) -> None:
        tab.on(event, lambda request: requests.extend([(event, change)] * request.url.endswith("/state")))

    count_requests("request", 1)
    count_requests("requestfinished", -1)
    count_requests("requestfailed", -1)
    tab.goto(address)
    button = tab.get_by_role("button", name="Retire blue")
    button.focus()
    handle = button.element_handle()
    api.decide("followed", 30)
    expect(tab.locator("#tile-decisions")).to_have_text("30")
    assert tab.evaluate("each => each === document.activeElement", handle)
    assert max(itertools.accumulate(change for _, change in requests)) == 1

    # A hidden page sends no requests.
    set_hidden = (
        "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    tab.evaluate(set_hidden, True)
    api.decide("followed", 3)
    tab.wait_for_timeout(300)
    before = len(requests)
    tab.wait_for_timeout(2500)
    assert len(requests) == before
    with tab.expect_request("**/state"):
        tab.evaluate(set_hidden, False)
    expect(tab.locator("#tile-decisions")).to_have_text("33")


@pytest.mark.parametrize(
    ("text", "arms"),
    [("A, B,C, D", ["A", "B", "C", "D"]), ("Buy now, pay later\nBuy", ["Buy now, pay later", "Buy"])],
)
def test_arms_on_one_line_are_separated_by_commas(api, tab, text, arms) -> None:
    name = f"commas-{len(arms)}"
    tab.goto(f"{api.service.url}/#/new")
    tab.fill("#new-name", name)
    tab.fill("#new-arms", text)
    tab.locator("#new-name").press("Enter")
    expect(tab.locator("#title-experiment")).to_have_text(name)
    assert api.request("GET", f"/v1/experiments/{name}")[1]["arms"] == arms


def test_the_form_knows_durations_and_when_a_decision_counts(api, tab) -> None:
    tab.goto(f"{api.service.url}/#/new")
    tab.fill("#new-name", "clicks")
    tab.fill("#new-arms", "A, B")
    tab.fill("#new-window", "1 hour")
    tab.fill("#new-default", "0")
    tab.locator("#new-name").press("Enter")
    expect(tab.locator("#new-window-wrong")).to_contain_text("enter a number such as 90, and choose its unit")
    expect(tab.locator("#new-window")).to_be_focused()
    tab.fill("#new-window", "1e300")  # only the service knows the longest window
    tab.locator("#new-name").press("Enter")
    expect(tab.locator("#new-window-wrong")).to_contain_text("from 1e-6 to 1e9 seconds")
    tab.fill("#new-window", "60")
    tab.select_option("#new-window-unit", "minutes")
    tab.select_option("#new-learn", "provisional")
    tab.locator("#new-name").press("Enter")
    expect(tab.locator("#title-experiment")).to_have_text("clicks")
    _, shown = api.request("GET", "/v1/experiments/clicks")
    assert (shown["policy"], shown["reward"]["window"]) == ("kl-ms+:floor=0.1", 3600.0)
    assert shown["reward"]["learn"] == "provisional"
    api.decide("clicks", 7)
    expect(tab.locator("#arms-refusal")).to_contain_text("No window has closed yet: 7 decisions are open.")
    expect(tab.locator("#arms-pending")).to_contain_text(
        "7 decisions are pending (the reward may still arrive); the next window closes at"
    )
    expect(tab.locator("#arms-pending")).to_contain_text("biases the policy toward the default")
    expect(tab.locator("#arms tr").first).to_contain_text("no final reward yet")


def test_two_arms_are_compared(api, example_page, tab) -> None:
    tab.goto(example_page)
    expect(tab.locator("#tile-decisions")).to_have_text("1,000")
    arms = [each["arm"] for each in api.request("GET", "/v1/experiments/example/state")[1]["arms"]]
    tab.select_option("#target-arm", arms[0])
    tab.select_option("#target-against", arms[1])
    tab.click("#evaluate")
    statement = tab.locator(".result .statement").first
    expect(statement).to_contain_text("The difference between the mean reward")
    expect(statement).to_contain_text("with 98.33% confidence")
    expect(statement).to_contain_text("So it is undecided which one is better.")


def test_a_policy_that_does_not_fit_clicks_gets_a_hint(api, tab) -> None:
    tab.goto(api.create("gaussian", ["A", "B"], "ts", low=0, high=1))
    expect(tab.locator("#experiment-hints")).to_contain_text("kl-ms+ or thompson")


def test_a_late_response_does_not_overwrite_another_experiment(api, example_page, tab) -> None:
    api.create("other", ["one", "two"])
    delayed: list[Any] = []

    def delay(route: Any) -> None:
        delayed.append((route, route.fetch()))

    tab.route("**/example/state", delay)
    tab.goto(example_page)
    while not delayed:
        tab.wait_for_timeout(50)
    tab.evaluate("location.hash = '#/experiments/other'")
    expect(tab.locator("#arms tr")).to_have_count(2)
    for route, original in delayed:
        route.fulfill(response=original)
    tab.wait_for_timeout(300)
    assert tab.locator("#arms tr th").all_inner_texts() == ["one", "two"]
    expect(tab.locator("#title-experiment")).to_have_text("other")
    tab.unroute_all(behavior="wait")


def test_a_lost_connection_is_shown_and_restored(tmp_path, monitored_page, tab) -> None:
    with serving(tmp_path / "decisions.db") as service:
        tab.goto(Api(service, tmp_path).create("home", ["red", "blue"]))
        expect(tab.locator("#connection")).to_have_text("Live")
        service.kill()
        expect(tab.locator("#connection")).to_have_text("No connection; trying again")
        expect(tab.locator("#arms tr")).to_have_count(2)  # the last data stay visible
        tab.click("#pause")
        expect(tab.locator("#message-text")).to_contain_text("may or may not have been made")
        service.start()
        tab.evaluate("dispatchEvent(new Event('online'))")  # or a few seconds later
        expect(tab.locator("#connection")).to_have_text("Live")


def test_the_link_of_the_first_start_opens_the_dashboard(tmp_path, monitored_page, tab) -> None:
    """The key in the link is used and removed from the address bar and from the history."""
    log = tmp_path / "decisions.db"
    with serving(log, no_keys=False) as service:
        secret = log.with_name("decisions.db.admin-key").read_text().strip()
        sent: list[str] = []
        tab.on("request", lambda request: sent.append(request.url))
        tab.goto(f"{service.url}/#key={secret}")
        expect(tab.locator("#list-empty")).to_be_visible()
        expect(tab.locator("#new-link")).to_be_visible()  # needs the scope admin
        assert tab.url == f"{service.url}/"
        assert secret not in tab.content()
        tab.reload()
        expect(tab.locator("#list-empty")).to_be_visible()  # the tab keeps the key
        tab.click("#forget")
        expect(tab.locator("#key-secret")).to_be_focused()

        # A link that is opened in the same tab, without loading the page again.
        tab.evaluate("secret => { location.hash = `key=${secret}`; }", secret)
        expect(tab.locator("#list-empty")).to_be_visible()
        assert tab.url == f"{service.url}/"
        tab.goto(f"{service.url}/#/new")
        for _ in range(3):
            tab.go_back()
            assert secret not in tab.url
        assert not [url for url in sent if secret in url.partition("#")[0]]
        assert secret not in service.output


def test_a_service_that_requires_keys(tmp_path, browser) -> None:  # noqa: F811
    store = open_store(str(tmp_path / "decisions.db"))
    _, admin = api_keys.create(store, "admin", ["admin"])
    _, reader = api_keys.create(store, "reader", ["read"])
    store.close()
    monitored_page = MonitoredPage(browser)
    tab = monitored_page.tab
    with serving(tmp_path / "decisions.db", no_keys=False) as service:
        api = Api(service, tmp_path)
        body = {"experiment": "home", "arms": ["crimson", "azure"], "policy": "uniform"}
        assert api.request("POST", "/v1/experiments", body, Authorization=f"Bearer {admin}")[0] == 201
        tab.goto(f"{service.url}/#/experiments/home")
        expect(tab.locator("#key-secret")).to_be_focused()
        assert tab.get_attribute("#key-secret", "type") == "password"
        tab.keyboard.type("mk_wrong")
        tab.keyboard.press("Enter")
        expect(tab.locator("#key-error")).to_contain_text("does not know this key")
        for secret, allowed in ((reader, False), (admin, True)):
            tab.fill("#key-secret", secret)
            tab.keyboard.press("Enter")
            expect(tab.locator("#arms tr >> visible=true")).to_have_count(2)
            assert "MAILLARD_KEY" in tab.locator("#code-first").inner_text()
            for button in ("#pause", "#add-arm", "#change-policy", "#reset", "#archive"):
                assert tab.locator(button).is_visible() == allowed
            assert tab.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 1, ""]
            assert secret not in tab.content()
            tab.click("#forget")
            expect(tab.locator("#key-secret")).to_be_focused()
            assert tab.evaluate("sessionStorage.length") == 0
            assert "azure" not in tab.content()
    monitored_page.close()
