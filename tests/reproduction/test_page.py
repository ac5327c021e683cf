"""The HTML report of a reproduction in a browser: self-contained, escaped and accessible."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from playwright.sync_api import Browser, BrowserContext, Page

from maillard import figures
from maillard.figures import COLOURS, GRID, INK, MUTED
from maillard.reproduction import reproduction_page
from maillard.reproduction.report_content import (
    VERDICTS,
    ClaimResult,
    DataTable,
    Panel,
    ReportSection,
    ReproductionReport,
)
from tests.browser import browser, serious_violations  # noqa: F401 - a fixture

NASTY = """<script>alert("1")</script> & 'quotes' </style> {{ 7 * 7 }} Σ Δ² √(KT ln K) 漢字 עברית"""
LONG = "Donaudampfschifffahrtsgesellschaft" * 4
TABLE = DataTable(
    ("policy", NASTY, "huge", "small", "whole", "holds", LONG),
    (
        ("ms+", None, 1.5e300, -1.25e-9, 10**18, True, 0.1),
        (NASTY, LONG, float("inf"), 0.0, -20_000, False, None),
        (None, "", float("nan"), 0.123456, 3, None, 12345.678),
    ),
)
EMPTY = DataTable((), ())


def drawing(name: str, width: int = 320) -> str:
    """A small SVG drawing like those of matplotlib, with every colour of the figures."""
    lines = "".join(
        f'<path id="{name}-{i}" d="M 0 {9 * i} L {width} {9 * i}" style="fill: none; stroke: {colour}"/>'
        for i, colour in enumerate((INK, MUTED, GRID, *COLOURS))
    )
    return f"""<?xml version="1.0" encoding="utf-8" standalone="no"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
 width="{width}pt" height="240pt" viewBox="0 0 {width} 240"
 role="img" aria-labelledby="{name}-title {name}-desc">
<title id="{name}-title">A title</title><desc id="{name}-desc">A description</desc>{lines}
<use xlink:href="#{name}-0" y="200"/></svg>"""


def panel(
    name: str, *, title: str = "Ten arms", alt: str = "Curves that rise.", table: DataTable = TABLE
) -> Panel:
    return Panel(name, title, alt, Figure(), table)


def claim(i: int, verdict: str) -> ClaimResult:
    return ClaimResult(
        f"claim{i}",
        f"Section {i}, {NASTY}",
        NASTY * 3 if i % 2 else LONG,
        f"Reading {i} {NASTY}",
        LONG if i % 3 == 0 else "A paired z-test.",
        f"z = {i}.5 {NASTY}",
        verdict,
        0.999,
        10**7 if verdict == "open" else None,
        EMPTY if i % 4 == 0 else TABLE,
        (None, "regret", "beyond", "a section that was left out")[i % 4],
    )


REPORT = ReproductionReport(
    f"Maillard sampling {NASTY}",
    (NASTY, LONG),
    f"A small run. {NASTY}",
    (
        ReportSection(
            "regret",
            f"Regret {NASTY}",
            (NASTY, LONG),
            (panel("one", alt=NASTY * 20), panel("two", title=LONG), panel("wide one")),
        ),
        ReportSection("nothing", "Nothing", ()),
        ReportSection("tables", LONG, ("Text.",), tables=(TABLE, TABLE)),
        ReportSection("beyond", "Further", ("Text.",), (panel("three"),), beyond=True),
    ),
    tuple(claim(i, verdict) for i, (verdict, _) in enumerate(itertools.product(VERDICTS, range(6)))),
    {"seed": "1", "sum": "0123456789abcdef" * 8, NASTY: NASTY},
)
SVGS = {
    "one": drawing("one"),
    "two": drawing("two"),
    "wide one": drawing("wide-one", 900),
    "three": drawing("three"),
}
HTML = reproduction_page.render(REPORT, SVGS)

# The contrast of each visible text with its background, as defined by WCAG 2.
CONTRASTS = """() => {
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const over = (top, below) => {
    const alpha = top[3] ?? 1;
    return [0, 1, 2].map(i => alpha * top[i] + (1 - alpha) * below[i]);
  };
  const ground = element => element === null ? [255, 255, 255]
    : over(channels(getComputedStyle(element).backgroundColor), ground(element.parentElement));
  const luminance = colour => colour.map(x => x / 255)
    .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("svg") || !element.checkVisibility()) continue;
    const behind = ground(element);
    const text = luminance(over(channels(getComputedStyle(element).color), behind));
    const [darker, lighter] = [text, luminance(behind)].sort((a, b) => a - b);
    const where = element.className + ": " + walker.currentNode.data.slice(0, 40);
    found.push([(lighter + 0.05) / (darker + 0.05), where]);
  }
  return found;
}"""


@dataclass
class Opened:
    """A page with the messages and requests of its loading."""

    page: Page
    context: BrowserContext
    events: list[str]

    def js(self, code: str) -> Any:
        return self.page.evaluate(code)


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opened]:  # noqa: F811 - pytest's way
    path = tmp_path / "index.html"
    path.write_text(HTML, encoding="utf-8")
    # Smooth scrolling would make each click wait.
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    tab, events = context.new_page(), []
    tab.on("console", lambda message: events.append(f"console {message.type}: {message.text}"))
    tab.on("pageerror", lambda error: events.append(f"error: {error}"))
    tab.on("request", lambda request: events.append(f"request: {request.url}"))
    tab.goto(path.as_uri())
    events.remove(f"request: {path.as_uri()}")
    yield Opened(tab, context, events)
    context.close()


def test_the_page_is_self_contained(opened: Opened) -> None:
    opened.page.wait_for_load_state("networkidle")
    # The icon is in the page too; some browsers count it as a request.
    assert [event for event in opened.events if not event.startswith("request: data:")] == []
    assert opened.js("document.scripts.length") == 0


def test_no_text_becomes_markup(opened: Opened) -> None:
    assert opened.js("document.querySelector('h1').textContent") == REPORT.title
    assert opened.js("document.querySelector('#claim-claim1 blockquote').textContent") == NASTY * 3
    assert opened.js("document.querySelector('[role=img]').getAttribute('aria-label')") == NASTY * 20
    assert opened.js("document.querySelectorAll('main style').length") == 0
    assert "<script" not in HTML


def test_nothing_makes_the_page_scroll_sideways(opened: Opened) -> None:
    opened.js("document.querySelectorAll('details').forEach(details => { details.open = true })")
    for width in (360, 768, 1280, 1800):
        opened.page.set_viewport_size({"width": width, "height": 800})
        assert opened.js("innerWidth") == width
        assert opened.js("document.scrollingElement.scrollWidth") <= width


def test_the_page_has_no_serious_accessibility_problem(opened: Opened) -> None:
    opened.js("document.querySelectorAll('details').forEach(details => { details.open = true })")
    for scheme, width in itertools.product(("light", "dark"), (360, 1280)):
        opened.page.emulate_media(color_scheme=scheme)
        opened.page.set_viewport_size({"width": width, "height": 800})
        assert serious_violations(opened.page) == []
    opened.js("document.querySelector('[role=img]').removeAttribute('aria-label')")  # the negative control
    assert serious_violations(opened.page) == ["role-img-alt"]


def test_panels_are_side_by_side_on_wide_screens(opened: Opened) -> None:
    columns = "getComputedStyle(document.querySelector('.panels')).gridTemplateColumns.split(' ').length"
    counts = []
    for width in (360, 1280, 1800):
        opened.page.set_viewport_size({"width": width, "height": 800})
        counts.append(opened.js(columns))
    assert counts == [1, 2, 3]


def test_each_figure_has_a_name_and_its_numbers(opened: Opened) -> None:
    figures = opened.page.locator("figure")
    assert figures.count() == 4
    for figure in figures.all():
        snapshot = figure.aria_snapshot()
        assert re.match(r"- figure \"?.+", snapshot)
        assert re.search(r"- img \".+\"", snapshot)
        assert figure.locator("table").count() == 1
        assert figure.locator("tbody th[scope=row]").count() == len(TABLE.rows)
        assert figure.locator("thead th[scope=col]").count() == len(TABLE.columns)
    assert opened.js(
        "[...document.querySelectorAll('table')].every(table => table.caption.textContent.trim())"
    )


def test_headings_keep_their_order(opened: Opened) -> None:
    levels = opened.js(
        "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_identifiers_are_unique_and_links_have_targets(opened: Opened) -> None:
    ids = opened.js("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))
    links = opened.js("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    files = {link for link in links if not link.startswith("#")}
    assert files == {
        f"figures/{name}.{end}" for name in ("one", "two", "wide%20one", "three") for end in ("svg", "png")
    }
    named = opened.js(
        "[...document.querySelectorAll('[aria-labelledby]')].flatMap(e => "
        "e.getAttribute('aria-labelledby').split(' '))"
    )
    assert set(named) <= set(ids)


def test_the_dark_color_scheme_has_light_text(opened: Opened) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    ink, curve = (f"getComputedStyle(document.getElementById('one-{i}')).stroke" for i in (0, 3))
    assert opened.js(ink) == _rgb(INK)
    assert opened.js(curve) == _rgb(COLOURS[0])
    assert min(_parts(opened.js(ground))) > 230
    opened.page.emulate_media(color_scheme="dark")
    assert max(_parts(opened.js(ground))) < 40
    assert min(_parts(opened.js(ink))) > 200
    opened.page.emulate_media(color_scheme="dark", media="print")  # paper is white
    assert opened.js(ink) == _rgb(INK)
    assert opened.js(ground) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_sufficient_contrast(opened: Opened, scheme: Any) -> None:
    opened.page.emulate_media(color_scheme=scheme)
    opened.js("document.querySelectorAll('details').forEach(details => { details.open = true })")
    found = opened.js(CONTRASTS)
    assert len(found) > 500
    assert [(ratio, text) for ratio, text in found if ratio < 4.5] == []


def test_verdicts_are_counted_and_filter_the_claims(opened: Opened) -> None:
    shown = "[...document.querySelectorAll('.claim')].filter(claim => claim.checkVisibility()).length"
    assert opened.js("[...document.querySelectorAll('.count')].map(count => count.textContent)") == ["6"] * 4
    assert opened.js(shown) == 24
    for verdict in VERDICTS:
        opened.page.locator(".score").get_by_role("link", name=f"6 {verdict}", exact=True).click()
        assert opened.js(shown) == 6
        assert opened.page.locator(".claim:visible .badge").all_inner_texts() == [verdict] * 6
    opened.page.locator("#section-regret .chip").first.click()  # to a claim that was filtered out
    assert opened.js(shown) == 24
    opened.page.locator(".score").get_by_role("link", name="6 open", exact=True).click()
    opened.page.emulate_media(media="print")
    assert opened.js(shown) == 24


def test_sections_beyond_the_paper_are_marked(opened: Opened) -> None:
    assert opened.page.locator("h2", has_text="beyond the paper").all_inner_texts() == [
        "Further beyond the paper"
    ]


def test_printing_shows_figures_and_evidence(opened: Opened) -> None:
    opened.page.emulate_media(media="print")
    assert all(svg.is_visible() for svg in opened.page.locator("figure .drawing svg").all())
    assert opened.page.locator("#claim-claim1 table").bounding_box()["height"] > 50
    assert not opened.page.locator(".contents").is_visible()
    assert opened.page.pdf(prefer_css_page_size=True).startswith(b"%PDF")


def test_a_keyboard_reaches_the_report(opened: Opened) -> None:
    opened.page.keyboard.press("Tab")
    assert opened.js("document.activeElement.textContent") == "Skip to the report"
    assert opened.js("document.activeElement.getBoundingClientRect().top") >= 0
    assert opened.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    opened.page.keyboard.press("Enter")
    assert opened.js("document.activeElement.id") == "main"


def test_the_same_report_gives_the_same_page() -> None:
    assert reproduction_page.render(REPORT, SVGS) == HTML


def test_figures_use_the_colour_variables_of_the_page() -> None:
    figure = figures.bars(["ms+", "ts"], [1.0, 2.0], [0.1, 0.2], label="regret")
    report = ReproductionReport(
        "Bars", (), None, (ReportSection("bars", "Bars", (), (panel("bars"),)),), (), {}
    )
    html = reproduction_page.render(report, {"bars": figures.svg(figure, prefix="bars-", title="Bars")})
    colours = set(re.findall(r"#[0-9a-f]{6}\b", html[html.index("<figure") : html.index("</figure")]))
    assert colours == set()


def test_no_colour_of_the_figures_is_left_in_a_drawing() -> None:
    body = HTML[HTML.index("<body>") :]
    assert not re.search("|".join((INK, MUTED, GRID, *COLOURS)), body, re.IGNORECASE)
    assert body.count("var(--ink)") == len(SVGS)
    assert "<?xml" not in body


def test_a_report_without_content_is_rendered() -> None:
    bare = reproduction_page.render(ReproductionReport("Bare", (), None, (), (), {}), {})
    assert "<h1>Bare</h1>" in bare
    assert 'id="ledger"' not in bare


def test_a_panel_without_a_drawing_is_an_error() -> None:
    report = replace(REPORT, claims=())
    with pytest.raises(KeyError, match="three"):
        reproduction_page.render(report, {name: svg for name, svg in SVGS.items() if name != "three"})


def _parts(colour: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", colour)][:3]


def _rgb(colour: str) -> str:
    red, green, blue = bytes.fromhex(colour[1:])
    return f"rgb({red}, {green}, {blue})"
