"""A browser for tests of web pages: the Chromium of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

_FLAGS = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# Per module: playwright runs an event loop, and tests of other modules need their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, started once for a module; without it tests are skipped, or fail where CI=true."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        complain = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        complain("PAGES ARE NOT TESTED: there is no Chromium; `make browser` installs it where it may")
    # Chromium's sandbox does not run as root.
    flags = _FLAGS + (["--no-sandbox"] if os.geteuid() == 0 else [])
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=flags)
        yield started
        started.close()
