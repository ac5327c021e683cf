"""What the dashboard says first: the verdict on an experiment, and traffic and leaders in the list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from maillard import Bandit, Reward
from maillard.cli.demo import SCENARIOS
from tests.browser import browser, serious_violations  # noqa: F401  # a fixture
from tests.service.api import wait_until
from tests.service.test_dashboard import HOSTILE, Api, check_looks, monitored_page, tab  # noqa: F401  # fixtures
from tests.serving import serving

UNIT = Reward(low=0, high=1)
CLEAR = {"green": 900, "blue": 100, "orange": 780}  # rewards of 1 in 1,500 decisions each


def fill(
    log: Any, name: str, wins: Mapping[str, int], reward: Reward = UNIT, each: int = 1500, **more: Any
) -> None:
    """An experiment with so many rewards of 1 for each arm."""
    with Bandit(list(wins), "uniform", reward=reward, log=log, experiment=name, **more) as bandit:
        for arm, count in wins.items():
            made = bandit.choose(size=each, eligible=[arm])
            bandit.rewards([{"decision": d.id, "value": float(n < count)} for n, d in enumerate(made)])


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    log = tmp_path_factory.mktemp("log") / "decisions.db"
    fill(log, "clear", CLEAR)
    fill(log, "tie", {"A": 500, "B": 500})
    fill(log, "clicks", {"A": 20, "B": 40}, Reward.clicks(window="1d"), each=50)
    fill(log, "hostile", {HOSTILE[0]: 900, HOSTILE[2]: 100}, each=1000)
    Bandit(["A", "B"], reward=UNIT, log=log, experiment="new").close()
    with serving(log) as service:
        api = Api(service, log)

        def counted() -> bool:
            found = api.request("GET", "/v1/experiments")[1]["experiments"]
            return [each["decisions"] for each in found if each["experiment"] == "clear"] == [4500]

        wait_until(counted)
        yield api


def colour(node: Locator) -> str:
    """The colour in which a mark is drawn."""
    return str(node.evaluate("each => getComputedStyle(each).backgroundColor"))


def test_the_verdict_names_the_arms_with_their_marks(api: Api, tab: Page) -> None:  # noqa: F811
    tab.goto(f"{api.service.url}/#/experiments/clear")
    _, state = api.request("GET", "/v1/experiments/clear/state")
    text = state["verdict"]["text"]
    assert re.fullmatch(
        r"green leads; blue is ruled out; orange is undecided, .* more decisions needed\.", text
    )
    expect(tab.locator("#verdict")).to_have_text(text)
    names = tab.locator("#verdict .named")
    assert names.all_inner_texts() == ["green", "blue", "orange"]
    rows = tab.locator("#arms tr")
    for index in range(3):
        name = names.nth(index)
        row = rows.filter(has_text=name.inner_text())
        assert colour(name.locator(".swatch")) == colour(row.locator(".swatch"))

    expect(tab.locator("#verdict-explanation")).to_be_hidden()
    tab.click("#verdict-meaning summary")
    expect(tab.locator("#verdict-explanation")).to_have_text(state["verdict"]["explanation"])
    check_looks(tab, (360, 1280))

    tab.goto(f"{api.service.url}/#/experiments/hostile")
    expect(tab.locator("#verdict .named").first).to_contain_text("<script>")
    assert "\u202e" not in tab.locator("#verdict").inner_text()
    expect(tab.locator("#verdict-explanation")).to_be_hidden()  # closed again
    tab.goto(f"{api.service.url}/#/experiments/new")
    expect(tab.locator("#verdict")).to_have_text("No verdict yet: there are no rewards.")


# The words and numbers of the table of arms that are broken over two lines.
_BROKEN = """() => {
    const broken = [];
    for (const cell of document.querySelectorAll(".arms :is(th, td)")) {
        const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        for (let text; text = texts.nextNode();) for (const word of text.textContent.matchAll(/\\S+/g)) {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            if (range.getClientRects().length > 1) broken.push(word[0]);
        }
    }
    return broken;
}"""


@pytest.mark.parametrize("name", ["clear", "clicks"])
def test_the_table_of_arms_breaks_no_word_or_number(api: Api, tab: Page, name: str) -> None:  # noqa: F811
    tab.goto(f"{api.service.url}/#/experiments/{name}")
    expect(tab.locator("#arms tr").first).to_contain_text("Retire")
    for width in (360, 900, 1280):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate(_BROKEN) == []


def test_which_of_two_arms_is_better_is_said_in_words(api: Api, tab: Page) -> None:  # noqa: F811
    address = api.create("unequal", ["A", "B"])
    _, made = api.request("POST", "/v1/experiments/unequal/decisions:batch", {"decisions": [{}] * 1000})
    rewards = [
        {"decision": each["decision"]["id"], "value": float(each["decision"]["arm"] == "A")}
        for each in made["results"]
    ]
    assert api.request("POST", "/v1/rewards:batch", {"rewards": rewards})[0] == 200
    for arms, verdict in (("AB", "the first one"), ("BA", "the second one")):
        tab.goto("about:blank")
        tab.goto(address)
        tab.select_option("#target-arm", arms[0])
        tab.select_option("#target-against", arms[1])
        tab.click("#evaluate")
        expect(tab.locator(".result .statement")).to_contain_text(f"So {verdict} is better.")


def test_the_policy_of_segments_is_shown_as_it_was_written(api: Api, tab: Page) -> None:  # noqa: F811
    policy = "kl-ms+:floor=0.5"
    body = {"experiment": "by-device", "arms": ["A", "B"], "policy": policy, "reward": {"low": 0, "high": 1}}
    assert api.request("POST", "/v1/experiments", body | {"segments": ["device"]})[0] == 201
    tab.goto(f"{api.service.url}/#/experiments/by-device")
    expect(tab.locator("#experiment-policy")).to_have_text(f"{policy} in each segment")


def test_only_a_new_verdict_is_announced(api: Api, tab: Page) -> None:  # noqa: F811
    """Numbers that change with every update are not. The service's states here are made from a real one."""
    verdicts = [(["green", " leads; ", "blue", f" is undecided, about {n} more"], n) for n in (900, 800)]
    verdicts.append((["green", " is best: ", "blue", " is ruled out."], 0))
    shown = verdicts[0]

    def change(route: Route) -> None:
        state = (original := route.fetch()).json()
        parts = [{"text": each, "arm": each if each in CLEAR else None} for each in shown[0]]
        state["verdict"] |= {"text": "".join(shown[0]), "parts": parts}
        route.fulfill(response=original, json=state)

    tab.route("**/state", change)
    tab.goto(f"{api.service.url}/#/experiments/clear")
    expect(tab.locator("#verdict")).to_have_text("".join(verdicts[0][0]))
    tab.evaluate(
        "window.news = []; const region = document.getElementById('verdict-news');"
        "new MutationObserver(() => news.push(region.textContent)).observe(region, {childList: true})"
    )
    for shown in verdicts[1:]:  # `change` reads it
        expect(tab.locator("#verdict")).to_have_text("".join(shown[0]))
    expect(tab.locator("#verdict-news")).to_have_text("")  # it is removed after some seconds
    assert [each for each in tab.evaluate("news") if each] == ["green is best: blue is ruled out."]
    tab.unroute_all(behavior="wait")


def test_the_list_shows_traffic_and_leaders(api: Api, tab: Page) -> None:  # noqa: F811
    tab.goto(f"{api.service.url}/#/")
    cards = tab.locator("#list li")
    expected = {
        "clear": ("green leads", "4,500 decisions"),
        "tie": (None, "3,000 decisions"),  # both arms are equal
        "clicks": (None, "100 decisions"),  # no window has closed
        "new": (None, "no decisions yet"),
        "hostile": (f"{HOSTILE[0]} leads", "2,000 decisions"),
    }
    for name, (leader, decisions) in expected.items():
        card = cards.filter(has=tab.get_by_role("link", name=name, exact=True))
        expect(card.locator(".traffic-summary")).to_contain_text(decisions)
        if leader is None:
            expect(card.locator(".leader")).to_be_hidden()
        else:
            expect(card.locator(".leader")).to_have_text(leader)
        recent = card.locator(".traffic-summary .note")
        count = decisions.removesuffix(" decisions")
        expect(recent).to_have_text("" if name == "new" else f"{count} in the last 24 hours")
        expect(card.locator(".hours")).to_be_visible(visible=name != "new")
        if name == "clear":
            heights = [float(bar.get_attribute("height") or 0) for bar in card.locator("rect").all()]
            assert len(heights) == 24
            assert heights.index(max(heights)) in (22, 23)  # an hour may have ended since
    check_looks(tab, (360, 1280))


_SLOW_LEADERS = """
import time
from maillard.service import service_state
from maillard.service.handlers import experiment_handlers
from maillard.service.log_monitor import Monitor
made, start, find = [], Monitor.__init__, experiment_handlers.find_leaders
def remember(self, *args, **options):
    made.append(self)
    start(self, *args, **options)
def wait(states):
    while not made[0].complete:
        time.sleep(0.01)
    return find(states)
Monitor.__init__, experiment_handlers.find_leaders, service_state._MONITOR_TIME = remember, wait, 0
"""


def test_a_list_is_complete_only_if_it_counts_all_decisions(tmp_path: Path) -> None:
    """Here the monitor reads the rest of the log while the leaders are found."""
    fill(tmp_path / "log.db", "long", CLEAR)
    with serving(tmp_path / "log.db", prelude=_SLOW_LEADERS) as service:
        api = Api(service, tmp_path)
        found = api.request("GET", "/v1/experiments")[1]
        assert not found["complete"]
        assert found["experiments"][0]["decisions"] < 4500
        for _ in range(100):
            found = api.request("GET", "/v1/experiments")[1]
            if found["complete"]:
                break
        assert found["complete"]
        assert found["experiments"][0]["decisions"] == 4500


def test_a_list_that_is_not_complete_says_so(api: Api, tab: Page) -> None:  # noqa: F811
    """Reading takes minutes only for very large logs, so this test changes the response of the service."""

    def change(route: Route) -> None:
        original = route.fetch()
        route.fulfill(response=original, json=original.json() | {"complete": False})

    tab.route("**/v1/experiments", change)
    tab.goto(f"{api.service.url}/#/")
    card = tab.locator("#list li").filter(has=tab.get_by_role("link", name="clear", exact=True))
    expect(card).to_contain_text("at least 4,500 decisions")
    tab.unroute_all(behavior="wait")


@pytest.mark.parametrize(
    ("arms", "hues"),
    [
        (SCENARIOS["buttons"].arms, ["blue", "orange", "green"]),
        (["red", "blue"], ["red", "blue"]),
        (["A", "Green", "B", "green", "C"], ["blue", "green", "orange", "purple", "light blue"]),
    ],
)
def test_arms_with_names_of_colours_are_drawn_in_them(api: Api, tab: Page, arms, hues) -> None:  # noqa: F811
    known = {
        "blue": "#4e5acc", "orange": "#de6006", "green": "#009c54", "purple": "#9c4296",
        "light blue": "#3c90fc", "red": "#b43c12",
    }  # fmt: skip
    name = f"colours-{len(arms)}"
    tab.goto(api.create(name, list(arms)))
    api.decide(name, 60)
    swatches = tab.locator("#arms .swatch")
    expect(swatches).to_have_count(len(arms))
    expect(tab.locator("#legend li")).to_have_count(len(arms) + 1)
    lines = tab.locator("#legend .key line")
    for index, hue in enumerate(hues):
        rgb = ", ".join(str(int(known[hue][at : at + 2], 16)) for at in (1, 3, 5))
        assert colour(swatches.nth(index)) == f"rgb({rgb})"
        stroke = lines.nth(index + 1).evaluate("each => getComputedStyle(each).stroke")
        assert stroke == f"rgb({rgb})"


def test_no_view_has_a_serious_accessibility_problem(api: Api, tab: Page) -> None:  # noqa: F811
    """Views that no other test checks: messages, dialogs, an error, and estimates that are refused."""
    tab.goto(f"{api.service.url}/#/experiments/none")
    expect(tab.locator("#title-error")).to_be_visible()
    check_looks(tab, (360, 1280))
    tab.goto(f"{api.service.url}/#/new")
    tab.fill("#new-window", "soon")
    tab.locator("#new-name").press("Enter")
    expect(tab.locator("#new-window-wrong")).not_to_be_empty()
    check_looks(tab, (360, 1280))
    tab.goto(f"{api.service.url}/#/experiments/clicks")
    expect(tab.locator("#arms tr")).to_have_count(2)
    tab.get_by_role("button", name="Estimate").click()
    expect(tab.locator(".result")).to_contain_text("Reason:")
    check_looks(tab, (360, 1280))
    for button, dialog in (("add-arm", "arm"), ("change-policy", "policy"), ("archive", "confirm")):
        tab.click(f"#{button}")
        expect(tab.locator(f"#dialog-{dialog}")).to_be_visible()
        for scheme in ("light", "dark"):
            tab.emulate_media(color_scheme=scheme)
            assert serious_violations(tab) == []
        tab.keyboard.press("Escape")
    tab.evaluate("document.body.append(document.createElement('button'))")  # the negative control
    assert serious_violations(tab) == ["button-name"]
