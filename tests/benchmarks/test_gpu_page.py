"""docs/how-to/gpu.md matches the measurements in docs/data/gpu.json."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.gpu import DATA, END, PAGE, START, table, write_page


def test_the_page_matches_the_measurements(tmp_path: Path) -> None:
    found = json.loads(DATA.read_text(encoding="utf8"))
    page = PAGE.read_text(encoding="utf8")
    assert page.split(START)[1].split(END)[0].strip() == table(found)


def test_another_number_changes_the_page(tmp_path: Path) -> None:
    found = json.loads(DATA.read_text(encoding="utf8"))
    page = tmp_path / "gpu.md"
    page.write_text(PAGE.read_text(encoding="utf8"), encoding="utf8")
    found["cells"][0]["speed"] *= 2
    write_page(found, page)
    assert page.read_text(encoding="utf8") != PAGE.read_text(encoding="utf8")
