"""docs/explanation/speed.md matches the measurements in docs/data/speed.json."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from benchmarks.speed_page import DATA, PAGE, collect, write_page


def measured() -> Any:
    return json.loads(DATA.read_text(encoding="utf8"))


def test_the_page_matches_the_measurements(tmp_path: Path) -> None:
    page = tmp_path / "speed.md"
    page.write_text(PAGE.read_text(encoding="utf8"), encoding="utf8")
    write_page(measured(), page)
    assert page.read_text(encoding="utf8") == PAGE.read_text(encoding="utf8")
    changed = copy.deepcopy(measured())
    changed["simulation"]["cells"][0]["ratio"] *= 10  # the control
    write_page(changed, page)
    assert page.read_text(encoding="utf8") != PAGE.read_text(encoding="utf8")


def test_benchmarks_that_were_not_run_keep_their_results(tmp_path: Path) -> None:
    (tmp_path / "policies.json").write_text("[1]", encoding="utf8")
    assert collect(tmp_path, {"policies": [], "service": [2]}) == {"policies": [1], "service": [2]}
