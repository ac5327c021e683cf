"""The documentation site: what is generated is complete, and the built site works without other hosts.

The tests with the mark `site` need the built site; `make site` runs them after it has built it.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest

import maillard
from docs.site import command_pages, generated_pages, http_pages, python_pages
from docs.site.accessibility import accessible
from docs.site.docstrings import restructured
from maillard.cli import main
from maillard.service.openapi import openapi_document
from tests.browser import browser, serious_violations  # noqa: F401  # a fixture

ROOT = Path(__file__).parent.parent
SITE = ROOT / "site"
SECTIONS = ("tutorials", "how-to", "reference", "explanation")
# One page of each type: start, section, tutorial, guide, reference, explanation, and the generated ones.
TYPES = [
    "index.html",
    "how-to/index.html",
    "tutorials/contexts.html",
    "how-to/plan.html",
    "reference/policies.html",
    "explanation/coverage.html",
    "reference/glossary.html",
    "project/readme.html",
    "project/changelog.html",
    "api/python.html",
    "api/decisions.html",
    "api/policy-classes.html",
    "api/cli.html",
    "api/http.html",
    "genindex.html",
    "search.html",
]


def test_the_python_reference_has_every_public_name() -> None:
    directives = re.findall(
        r"^\.\. auto\w+:: maillard\.([\w.]+)", "\n".join(python_pages.pages().values()), re.MULTILINE
    )
    assert len(directives) == len(set(directives))
    packages = {name for name in maillard.__all__ if inspect.ismodule(getattr(maillard, name))}
    assert set(maillard.__all__) - packages == {name for name in directives if "." not in name}


def test_the_command_reference_has_every_command_and_option() -> None:
    page = command_pages.page()
    headings = re.findall(r"^##+ maillard (.*)$", page, re.MULTILINE)
    assert set(main.commands) <= set(headings)
    assert {"keys create", "keys list", "keys revoke"} <= set(headings)
    for command in main.commands.values():
        for parameter in command.params:
            assert all(f"`{name}" in page or f", {name}" in page for name in parameter.opts if name[0] == "-")


def test_the_http_reference_has_every_operation_and_object() -> None:
    page = http_pages.page().replace("\\", "")
    document = openapi_document(personalizer=True)
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"\n### {method.upper()} {path}\n" in page
    for name in document["components"]["schemas"]:
        assert f"\n### {name}\n" in page
    for name in re.findall(r"\(#(http-\w+)\)", page):
        assert f"({name})=" in page


@pytest.mark.parametrize("section", SECTIONS)
def test_every_page_is_in_the_list_and_the_toctree_of_its_section(section: str) -> None:
    text = (ROOT / "docs" / section / "index.md").read_text(encoding="utf8")
    listed = re.findall(r"\]\(([\w-]+)\.md", text)
    trees = "".join(re.findall(r"^```{toctree}\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    linked = re.findall(r"<([\w-]+)>$", trees, re.MULTILINE)
    pages = {path.stem for path in (ROOT / "docs" / section).glob("*.md")} - {"index"}
    assert sorted(linked) == sorted(pages)
    assert set(listed) == pages


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("The `floor`.\n\n    p = 1\n\nEnd", "The ``floor``.\n\n::\n\n    p = 1\n\nEnd"),
        ("Options:\n- of `a`\n  and b_\n- c * d", "Options:\n\n- of ``a``\n  and b\\_\n- c \\* d"),
        (">>> a * b_\n3", ">>> a * b_\n3"),
        ("Call f(**options) or `f(*x)`.", "Call f(\\*\\*options) or ``f(*x)``."),
    ],
)
def test_docstrings_become_restructured_text(docstring: str, expected: str) -> None:
    assert restructured(docstring.splitlines()) == expected.splitlines()


def test_links_to_the_root_of_the_repository_lead_to_its_pages() -> None:
    text = "see [this](../../README.md#install), [that](../VISION.md) and [tally](tally.md)"
    expected = "see [this](/project/readme.md#install), [that](/project/vision.md) and [tally](tally.md)"
    assert generated_pages.with_project_links(text) == expected


def test_the_parameters_of_a_signature_are_no_list_of_definitions() -> None:
    given = "(\n<dl>\n<dd>x,</dd>\n</dl>\n)<dl><dt>a</dt><dd>b</dd></dl>"
    expected = '(\n<div class="sig-params">\n<div>x,</div>\n</div>\n)<dl><dt>a</dt><dd>b</dd></dl>'
    assert accessible(given) == expected


FITS = "document.documentElement.scrollWidth <= window.innerWidth"  # no wider than the screen


class _Page(HTMLParser):
    """The ids of a page, its links, and the addresses that it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.ids |= {values["id"]} if "id" in values else set()
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in ("link", "img", "script", "source", "iframe"):
            self.loaded += [values[name] for name in ("href", "src") if name in values]


@pytest.mark.site
def test_internal_links_of_the_site_lead_somewhere() -> None:
    pages = {path: _Page(path) for path in SITE.rglob("*.html")}
    assert len(pages) > 50
    broken = [address for page in pages.values() for address in page.loaded if urlsplit(address).netloc]
    for path, page in pages.items():
        for address in page.links + page.loaded:
            parts = urlsplit(address)
            if parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            found = target.exists()
            if found and parts.fragment and target in pages:
                found = unquote(parts.fragment) in pages[target].ids
            if not found:
                broken.append(f"{path.relative_to(SITE)} -> {address}")
    assert broken == []


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a server of the site on loopback."""
    assert (SITE / "index.html").exists(), "run `make site`"

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format, *values) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def visit(address, browser):  # noqa: F811
    """Open a page of the site as on a phone; requests to other hosts are recorded and aborted."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    foreign: list[str] = []

    def route(route) -> None:
        if route.request.url.startswith((address, "data:")):
            route.continue_()
        else:
            foreign.append(route.request.url)
            route.abort()

    context.route("**/*", route)
    page = context.new_page()
    page.errors, page.foreign = [], foreign
    page.on("pageerror", lambda error: page.errors.append(str(error)))

    def open_page(name: str):
        response = page.goto(address + name, wait_until="load")
        assert response is not None
        assert response.ok
        return page

    yield open_page
    context.close()
    assert foreign == []
    assert page.errors == []


@pytest.mark.site
def test_every_page_loads_nothing_from_other_hosts_and_fits_a_phone(visit) -> None:
    names = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    assert set(TYPES) < set(names)
    wide = [name for name in names if not visit(name).evaluate(FITS)]
    assert wide == []


@pytest.mark.site
@pytest.mark.parametrize("name", TYPES)
def test_a_page_is_accessible(name, visit) -> None:
    page = visit(name)
    assert serious_violations(page) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert serious_violations(page) == []


@pytest.mark.site
def test_a_page_that_loads_from_another_host_is_found(visit) -> None:
    page = visit("index.html")
    page.evaluate("document.body.style.width = '2000px'")
    assert not page.evaluate(FITS)
    with page.expect_event("requestfailed"):  # an address that nobody has
        page.evaluate("document.querySelector('article img').src = 'http://192.0.2.1/x.png'")
    assert page.foreign.pop() == "http://192.0.2.1/x.png"


@pytest.mark.site
def test_a_picture_without_a_description_is_found(visit) -> None:
    page = visit("index.html")
    page.evaluate("document.querySelector('article img').removeAttribute('alt')")
    assert serious_violations(page) == ["image-alt"]


def _found(visit, words: str) -> list[str]:
    """The addresses of the results of a search, best first."""
    page = visit(f"search.html?q={quote(words)}")
    page.wait_for_function(  # the results appear one after the other, the summary when all are there
        "/found \\d+ page|finished/.test(document.querySelector('.search-summary')?.innerText ?? '')"
    )
    links: list[str] = page.eval_on_selector_all("#search-results li > a", "all => all.map((a) => a.href)")
    return links


def _without_query(link: str) -> str:
    return re.sub(r"\?[^#]*", "", link)


@pytest.mark.site
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("floor", "how-to/plan.html"),
        ("propensity", "reference/glossary.html"),
        ("Thompson", "reference/policies.html"),
        ("delayed reward", "how-to/late-rewards.html"),
        ("which policy", "how-to/choose-policy.html"),
        ("A/B test", "reference/glossary.html#a-b-test"),
        ("revenue", "how-to/evaluation.html"),
    ],
)
def test_the_first_three_results_of_the_search_have(words, expected, visit) -> None:
    assert any(expected in _without_query(link) for link in _found(visit, words)[:3])


@pytest.mark.site
@pytest.mark.parametrize("words", ["variance proxy", "floor", "delay"])
def test_the_search_shows_the_changelog_last(words, visit) -> None:
    from_changelog = ["changelog.html" in link for link in _found(visit, words)]
    assert any(from_changelog)
    assert not from_changelog[0]
    assert from_changelog == sorted(from_changelog)
