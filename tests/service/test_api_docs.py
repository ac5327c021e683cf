"""The page /docs: complete, with examples that work as they are shown, and no request to another host."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from maillard.decisions.stores import open_store
from maillard.service import api_docs, api_keys
from maillard.service.api_examples import PARAMETERS
from maillard.service.openapi import openapi_document
from tests.browser import browser, serious_violations  # noqa: F401  # a fixture
from tests.service.test_dashboard import MonitoredPage, check_looks
from tests.serving import Service, serving

DOCUMENT = openapi_document(personalizer=True)
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
# Every operation, in an order in which all succeed: the experiment is created first and archived last.
ORDER = [
    "create_experiment", "decide", "decide_batch", "read_decision", "reward", "reward_batch", "rank",
    "reward_event", "activate_event", "evaluate", "verify", "export", "pause", "resume", "add_arm",
    "retire_arm", "change_experiment", "erase_unit", "reset",
]  # fmt: skip


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    """A service and the secret of an API key."""
    log = tmp_path_factory.mktemp("log") / "decisions.db"
    store = open_store(str(log))
    _, secret = api_keys.create(store, "admin", ["admin"])
    store.close()
    with serving(log, no_keys=False, options=["--personalizer", "news"]) as service:
        yield service, secret


@pytest.fixture
def service(started: tuple[Service, str]) -> Service:
    return started[0]


@pytest.fixture
def secret(started: tuple[Service, str]) -> str:
    return started[1]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:  # noqa: F811
    monitored = MonitoredPage(browser)
    yield monitored.tab
    monitored.close()


def test_it_has_every_operation_object_and_error() -> None:
    html = api_docs.docs_page(DOCUMENT).decode()
    for name in OPERATIONS:
        assert f'id="operation-{name}"' in html
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert f'id="object-{name}"' in html
        for field in schema.get("properties", ()):
            assert f"<code>{field}</code>" in html
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)
    for scope in ("decide", "reward", "read", "admin"):
        assert f"Needs the scope <code>{scope}</code>." in html
    shown = set(re.findall(r'<th scope="row">(\d{3})</th>', html)) | set(re.findall(r"\d{3}", _links(html)))
    assert shown == {status for _, _, each in OPERATIONS.values() for status in each["responses"]}
    assert "rank" not in api_docs.docs_page(openapi_document()).decode()


def _links(html: str) -> str:
    return " ".join(re.findall(r'<a href="#errors">(.*?)</a>', html))


def test_names_and_descriptions_are_escaped() -> None:
    document = json.loads(json.dumps(DOCUMENT).replace("Bandit decisions", "<script>alert(1)</script> & 'x'"))
    html = api_docs.docs_page(document).decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; 'x'" in html
    assert html.count("<script") == 1


def test_the_fields_of_objects_are_described() -> None:
    fields = DOCUMENT["components"]["schemas"]["RewardBatchEntry"]["properties"]
    assert fields["at"]["description"].startswith("When the reward occurred")  # inherited
    html = api_docs.docs_page(DOCUMENT).decode()
    assert "How long after its decision a reward may arrive: seconds, or a number with a unit" in html


def test_every_example_works_as_it_is_shown(service: Service, secret: str, tmp_path: Path) -> None:
    """All curl commands, and examples of responses with the fields and types of the real ones."""
    decision = PARAMETERS["id"]  # replaced by the id of a decision in this log
    others = [name for name in OPERATIONS if name not in (*ORDER, "archive")]
    for name in (*ORDER, *others, "archive"):
        method, path, operation = OPERATIONS[name]
        command = api_docs.curl_command(method, path, operation).replace(api_docs.ADDRESS, service.url)
        command = command.replace(PARAMETERS["id"], decision)
        done = subprocess.run(
            ["bash", "-c", f"{command} -s -w '\\n%{{http_code}}'"], cwd=tmp_path, capture_output=True,
            text=True, timeout=120, check=True, env={"MAILLARD_KEY": secret},
        )  # fmt: skip
        body, _, status = done.stdout.rpartition("\n")
        assert status in operation["responses"], (name, body)
        assert status.startswith("2"), (name, body)
        for each in operation["responses"].values():
            example = each.get("content", {}).get("application/json", {}).get("example")
            if example is not None:
                assert _shape(example) == _shape(json.loads(body)), name
        if name == "decide":
            decision = json.loads(body)["id"]
    assert (tmp_path / "log.parquet").read_bytes()[:4] == b"PAR1"


def _shape(value: Any) -> Any:
    """The fields and types of a JSON value."""
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shape(each) for each in value]
    return "null" if value is None else "number" if isinstance(value, int | float) else type(value).__name__


def test_it_needs_no_key_and_loads_nothing_from_other_hosts(service: Service, page: Page) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{service.url}/docs")
    expect(page.locator("#filter")).to_be_visible()  # its script has run
    assert all(url.startswith(f"{service.url}/") for url in requested)
    assert len(requested) >= 5
    assert not [url for url in requested if "/v1/" in url]
    assert page.evaluate("[document.scripts.length, document.images.length]") == [1, 0]


def test_the_first_steps_lead_to_their_operations(service: Service, page: Page) -> None:
    page.goto(f"{service.url}/docs")
    links = page.locator(".first-steps a")
    expect(links).to_have_count(3)
    for index, name in enumerate(("create_experiment", "decide", "reward")):
        expect(page.locator(f"#operation-{name} .content")).to_be_hidden()
        links.nth(index).click()
        expect(page.locator(f"#operation-{name} .content")).to_be_visible()


def test_the_filter_and_links_between_operations_and_objects(service: Service, page: Page) -> None:
    page.goto(f"{service.url}/docs")
    shown = page.locator(".operation:visible")
    expect(shown).to_have_count(len(OPERATIONS))
    page.fill("#filter", "reward batch")
    expect(shown).to_have_count(1)
    expect(page.locator("#filtered")).to_have_text("1 operation found.")
    expect(page.get_by_role("heading", name="Experiments")).to_be_hidden()
    shown.locator("summary").press("Enter")  # the keyboard is enough
    expect(shown).to_contain_text(f"curl -X POST {service.url}/v1/rewards:batch")
    shown.get_by_role("link", name="RewardBatchRequest").click()
    expect(page.locator("#object-RewardBatchRequest")).to_contain_text("array of RewardBatchEntry")
    expect(page.locator("#object-RewardBatchRequest .content")).to_be_visible()
    page.fill("#filter", "nonsense")
    expect(page.locator("#filtered")).to_have_text("0 operations found.")
    page.goto("about:blank")
    page.goto(f"{service.url}/docs#operation-rank")
    expect(page.locator("#operation-rank .content")).to_be_visible()


def test_reads_can_be_tried_with_the_key_of_the_tab(service: Service, secret: str, page: Page) -> None:
    page.goto(f"{service.url}/docs#operation-read_permissions")
    operation = page.locator("#operation-read_permissions")
    operation.get_by_role("button").click()
    expect(operation.get_by_role("status")).to_contain_text("Open the dashboard in this tab and enter a key")
    page.goto(f"{service.url}/#key={secret}")
    page.get_by_role("link", name="HTTP API").click()  # in the footer
    page.click("#operation-read_permissions summary")
    operation.get_by_role("button").click()
    expect(operation.locator("form pre")).to_contain_text('"admin"')
    assert secret not in page.content()

    page.click("#operation-read_state summary")
    state = page.locator("#operation-read_state")
    state.get_by_role("button").click()
    expect(state.get_by_role("status")).to_have_text("Enter a value for experiment.")
    state.get_by_role("textbox").fill("a/b <b>")
    with page.expect_request("**/v1/experiments/a%2Fb%20%3Cb%3E/state"):
        state.get_by_role("textbox").press("Enter")
    expect(state.get_by_role("status")).to_contain_text("Status 404. ")
    with_forms = {each.removeprefix("operation-") for each in page.evaluate(
        "[...document.querySelectorAll('.operation:has(form)')].map(each => each.id)")}  # fmt: skip
    assert {OPERATIONS[name][0] for name in with_forms} == {"GET"}
    assert {name for name, (method, _, _) in OPERATIONS.items() if method == "GET"} - with_forms == {"export"}


def test_it_is_accessible_in_light_and_dark_at_all_widths(service: Service, page: Page) -> None:
    page.goto(f"{service.url}/docs")
    expect(page.locator("#filter")).to_be_visible()
    check_looks(page, (360, 1280))
    for name in ("operation-decide", "operation-list_experiments", "object-NewExperiment"):
        page.click(f"#{name} summary")
    expect(page.locator("#operation-decide .content")).to_be_visible()
    check_looks(page, (360, 768, 1280))
    page.evaluate("document.querySelector('#filter').labels[0].remove()")  # the negative control
    page.evaluate("document.querySelector('#filter').removeAttribute('placeholder')")
    assert serious_violations(page) == ["label"]


def test_it_works_without_scripts(service: Service, browser: Browser) -> None:  # noqa: F811
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{service.url}/docs")
    assert page.locator("#filter").is_hidden()
    page.click("#operation-decide summary")
    assert "curl -X POST" in page.locator("#operation-decide .content").inner_text()
    context.close()
