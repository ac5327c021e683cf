"""A fixture for tests of web pages: the installed Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

# The list of the address bar is a web page of its own in each window: it takes as much time as the page that
# is tested. Playwright has a list, too, but Chromium obeys only the last, so this repeats what matters here.
_FEATURES = (
    "WebUIOmniboxPopup,WebUIOmniboxFullPopup,WebUIOmniboxAimPopup,"
    "HttpsUpgrades,LensOverlay,MediaRouter,OptimizationHints,PaintHolding,ThirdPartyStoragePartitioning"
)
_FLAGS = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={_FEATURES}",
]


# Per module: playwright runs an event loop, and tests of other modules need their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, started once per module. Without it, tests are skipped, or fail if CI=true."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        stop = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        stop("web pages are not tested: Chromium is not installed; run `make browser`")
    # Chromium's sandbox does not run as root.
    flags = _FLAGS + (["--no-sandbox"] if os.geteuid() == 0 else [])
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=flags)
        yield started
        started.close()


def serious_violations(page: Page) -> list[str]:
    """The rules of axe-core that a page breaks, of impact serious or critical."""
    found = Axe().run(page).response["violations"]
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]
