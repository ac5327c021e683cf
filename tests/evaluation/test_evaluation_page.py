"""The HTML report of an evaluation: self-contained, and text from a log is escaped."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from maillard import Bandit, FixedArm, MaillardError, Reward, simulate_log
from maillard.evaluation import Comparison, Report, compare, evaluate_each
from maillard.evaluation.evaluation_page import render, write_page
from maillard.html_report import page_rendering
from tests.browser import browser, serious_violations  # noqa: F401  # a fixture

HOSTILE = [
    '<script>document.title = "taken"</script>',
    '"><img src=x onerror="document.title = 1">',
    "{{ 7 * 7 }}{% raw %}</style></title>",
    "\u202egnp.exe\u2066 --> ]]> &lt;b&gt;",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> list[Report]:
    """A log whose file, experiment and arms have hostile names."""
    folder = tmp_path_factory.mktemp("logs") / "<b>&amp;'\""
    folder.mkdir()
    path, draw = folder / "decisions.db", np.random.default_rng(5)
    with Bandit(HOSTILE, "uniform", reward=Reward(low=0, high=1), log=path, experiment=HOSTILE[0]) as bandit:
        for _ in range(2):
            made = bandit.choose(size=300)
            bandit.rewards([{"decision": each.id, "value": float(draw.random() < 0.5)} for each in made])
            bandit.reset()
    return evaluate_each(path, [*map(FixedArm, HOSTILE), "uniform"], epoch="all")


@pytest.fixture(scope="module")
def ordinary() -> list[Report | Comparison]:
    """An adaptive log without a floor: missing estimates, warnings, estimates and a difference."""
    log = simulate_log("ms+", "bernoulli:0.6,0.3,0.5", horizon=3000, seed=1)
    reports = evaluate_each(log, ["arm:0", "arm:1", "dist:0.5,0.5,0"], min_effective_size=500)
    return [*reports, compare(log, "arm:0", "arm:2")]


@pytest.fixture(scope="module")
def html(ordinary, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_page(ordinary, path, {"made with": "care"})
    text: str = path.read_text(encoding="utf8")
    return text


def opened(browser: Browser, text: str, path: Path, **options: Any) -> tuple[Any, list[str]]:  # noqa: F811
    path.write_text(text, encoding="utf8")
    events: list[str] = []
    tab = browser.new_context(viewport={"width": 1280, "height": 900}, **options).new_page()
    tab.on("console", lambda message: events.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: events.append(f"error: {error}"))
    tab.on("request", lambda request: events.append(request.url))
    tab.on("dialog", lambda dialog: events.append(f"dialog: {dialog.message}"))
    tab.goto(path.as_uri())
    tab.wait_for_load_state("networkidle")
    return tab, [each for each in events if each != path.as_uri() and not each.startswith("data:")]


def test_names_from_a_log_are_escaped(browser, hostile, tmp_path) -> None:  # noqa: F811
    text = render(hostile, {HOSTILE[1]: HOSTILE[2]})
    tab, events = opened(browser, text, tmp_path / "page.html")
    assert events == []
    assert tab.evaluate("document.scripts.length") == 0
    assert tab.evaluate("document.images.length") == 0
    assert tab.evaluate("document.querySelectorAll('style').length") == 1
    assert tab.title() == "What would other choices have earned?"
    assert tab.evaluate("document.querySelectorAll('b, img, script, main style').length") == 0
    body = tab.evaluate("document.body.textContent")
    for name in HOSTILE[:3]:
        assert name in body
    assert "49" not in re.findall(r"\d+", tab.evaluate("document.querySelector('#title2').textContent"))
    # Characters that change the text direction are shown as escape sequences.
    assert "\\u202egnp.exe\\u2066 --> ]]> &lt;b&gt;" in body
    assert "\u202e" not in text
    assert hostile[0].source in body


def test_without_escaping_names_would_be_markup(hostile, monkeypatch) -> None:
    environment = page_rendering.page_environment
    assert HOSTILE[0] not in render(hostile[0])
    unescaped = lambda package: environment(package).overlay(autoescape=False)  # noqa: E731
    monkeypatch.setattr(page_rendering, "page_environment", unescaped)
    assert HOSTILE[0] in render(hostile[0])


def test_the_page_shows_the_whole_evaluation(browser, ordinary, html, tmp_path) -> None:  # noqa: F811
    tab, events = opened(browser, html, tmp_path / "page.html")
    assert events == []
    body = " ".join(tab.evaluate("document.body.textContent").split())
    for report in ordinary[:3]:
        for each in report.values():
            assert (each.refusal or each.assumes) in body
            assert each.caveat in body
        assert f"{report.diagnostics.rows:,}" in body
    assert "How much reward would a decision have had with “1” every time?" in body
    assert "“0” 0.5 of the time and “1” 0.5 of the time" in body
    assert (
        "How much more reward would a decision have had with “0” every time than with “2” every time?" in body
    )
    assert "care" in body
    overlap = tab.locator("table", has_text="Overlap by arm and epoch")
    assert overlap.locator("tbody tr").count() == 3
    # A forest plot for each target with an estimate and for the difference, a histogram for each target.
    assert tab.locator("figure svg").count() == sum(
        any(each.value is not None for each in one.values()) + isinstance(one, Report)
        for one in [*ordinary, ordinary[-1].first, ordinary[-1].second]
    )


def test_the_page_is_valid_html(browser, html, tmp_path) -> None:  # noqa: F811
    tab, _ = opened(browser, html, tmp_path / "page.html", color_scheme="dark")
    for width in (360, 768, 1280):
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.scrollingElement.scrollWidth") <= width
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(ids) == len(set(ids))
    links = tab.evaluate("[...document.querySelectorAll('a')].map(each => each.getAttribute('href'))")
    assert {each.removeprefix("#") for each in links} <= set(ids)
    levels = tab.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(each => Number(each.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert tab.locator("[role=img]").count() == tab.locator("figure").count()
    # Figures use the colour variables of the page, and no other colours.
    assert not re.findall(
        r"#[0-9a-f]{6}", "".join(tab.locator("figure").evaluate_all("all => all.map(e => e.innerHTML)"))
    )


def test_the_page_has_no_serious_accessibility_problem(browser, ordinary, hostile, tmp_path) -> None:  # noqa: F811
    for name, reports in (("ordinary", ordinary), ("hostile", hostile), ("one", ordinary[:1])):
        tab, _ = opened(browser, render(reports, {"made with": "care"}), tmp_path / f"{name}.html")
        tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        for scheme, width in itertools.product(("light", "dark"), (360, 1280)):
            tab.emulate_media(color_scheme=scheme)
            tab.set_viewport_size({"width": width, "height": 800})
            assert serious_violations(tab) == []
    tab.evaluate("document.querySelector('[role=img]').removeAttribute('aria-label')")  # the negative control
    assert serious_violations(tab) == ["svg-img-alt"]


def test_a_page_with_one_target(ordinary) -> None:
    text = render(ordinary[0])
    assert "<h1>How much reward would a decision have had with “0” every time?</h1>" in text
    assert text == render([ordinary[0]])
    assert "<nav" not in text


def test_the_page_states_why_an_estimate_is_missing(ordinary) -> None:
    log = simulate_log("ms+:floor=0.3", "bernoulli:0.6,0.3", horizon=500, seed=1)
    text = render(evaluate_each(log, ["arm:1"], ["ips"], min_effective_size=1e6))
    assert "This log cannot answer." in text
    assert "even uniform choices" in text
    assert "Estimates with" not in text.replace("Estimates with their intervals", "")


def test_bad_calls(ordinary, tmp_path) -> None:
    with pytest.raises(MaillardError, match="at least one report"):
        render([])
    with pytest.raises(MaillardError, match="a plain file that is not a log"):
        write_page(ordinary[0], tmp_path)


def test_without_jinja_the_error_says_what_to_install(ordinary, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MaillardError, match=r"a page needs jinja2: pip install 'maillard\[evaluation\]'"):
        render(ordinary[0])
