"""The code that the dashboard shows works as it is shown, in Python and with curl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from maillard import Bandit, Features, Reward
from maillard.decisions.stores import open_store
from maillard.service import api_keys
from tests.browser import browser  # noqa: F401  # a fixture
from tests.service.test_dashboard import Api, monitored_page, tab  # noqa: F401  # fixtures
from tests.serving import serving

FEATURES = Features({"device": ["phone", "desktop"], "member": bool, "age": (20, 40)})
NAMES = 'It\'s "q" \\ $HOME `x` é'
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "features": {"features": FEATURES},
    "segments": {"segments": ["device", NAMES]},
    "attributes": {"features": FEATURES, "model": "shared", "arms": {"a": {"age": 20}, "b": {"age": 30}}},
    "actions": {"features": FEATURES, "model": "shared", "arms": []},
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    log = tmp_path_factory.mktemp("log") / "decisions.db"
    for name, options in EXPERIMENTS.items():
        given = {"arms": ["red", "blue"], **options}
        Bandit(reward=Reward(low=0, high=1), log=log, experiment=name, **given).close()
    with serving(log) as service:
        yield Api(service, log)


def run_python(code: str, **environment: str) -> str:
    """Run a program in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_shell(command: str, **environment: str) -> Any:
    """Run a curl command; return the JSON of the response."""
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    return json.loads(done.stdout)


def read(tab: Page, language: str, *blocks: str) -> list[str]:  # noqa: F811
    """Choose a language; return the code of these blocks."""
    tab.get_by_label(language, exact=True).locator("visible=true").check(force=True)
    expect(tab.locator(f"#code-{blocks[0]}")).to_contain_text({"Python": "import", "curl": "curl"}[language])
    return [tab.locator(f"#code-{each}").inner_text() for each in blocks]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_first_decision_of_an_experiment(api: Api, tab: Page, name: str) -> None:  # noqa: F811
    tab.goto(f"{api.service.url}/#/experiments/{name}")
    expect(tab.locator("#code-first")).to_contain_text(f'experiment="{name}"')
    program = "\n".join(read(tab, "Python", "first", "first-reward"))
    decide, reward = read(tab, "curl", "first", "first-reward")
    arm = run_python(program).strip()
    decision = run_shell(decide)
    allowed = {"attributes": {"a", "b"}, "actions": {"article-17", "article-18"}}.get(name, {"red", "blue"})
    assert {arm, decision["arm"]} <= allowed
    outcome = run_shell(reward.replace("DECISION_ID", decision["id"]))
    assert (outcome["decision"], outcome["outcome"]) == (decision["id"], "applied")
    state = api.request("GET", f"/v1/experiments/{name}/state")[1]
    assert name == "actions" or sum(each["final"] for each in state["arms"]) == 2


@pytest.mark.parametrize("language", ["Python", "curl"])
def test_three_steps_from_an_empty_service_with_keys(tmp_path, tab: Page, language: str) -> None:  # noqa: F811
    log = tmp_path / "decisions.db"
    store = open_store(str(log))
    _, secret = api_keys.create(store, "admin", ["admin"])
    store.close()
    with serving(log, no_keys=False) as service:
        tab.goto(f"{service.url}/#key={secret}")
        expect(tab.locator("#list-empty")).to_be_visible()
        create, decide, reward = read(tab, language, "create", "decide", "reward")
        if language == "Python":
            assert run_python(f"{create}\n{decide}\n{reward}", MAILLARD_KEY=secret).strip() in (
                "blue",
                "orange",
            )
        else:
            assert run_shell(create, MAILLARD_KEY=secret)["experiment"] == "home"
            decision = run_shell(decide, MAILLARD_KEY=secret)["id"]
            assert run_shell(reward.replace("DECISION_ID", decision), MAILLARD_KEY=secret)["applied"]
        expect(tab.locator("#list li")).to_contain_text("1 decision")

        # The tab remembers the language, in every view.
        tab.goto(f"{service.url}/#/experiments/home")
        tab.reload()
        expect(tab.locator("#code-first")).to_contain_text(
            {"Python": "client.choose", "curl": "curl"}[language]
        )
        assert tab.evaluate("[localStorage.length, document.cookie]") == [0, ""]
