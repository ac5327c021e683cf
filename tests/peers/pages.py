"""Runs the code of other libraries on the pages of the documentation, and compares its output.

A block that begins with "```python peers" runs in the peers' environment. It must print exactly the block
"```text" that follows it; without one, nothing. The blocks "```python" above the first of them on a page make
the data of both libraries, so they run there, too, and so do blocks that begin with "```python both" further
down. (All "```python" and "```python both" blocks run in tests/test_docs.py.)
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from tests.peers.comparing import Comparison, run_script

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^```python(?P<where> peers| both)?\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A block of a page, and the output that the page shows."""

    line: int
    code: str
    shown: str


def blocks(text: str) -> list[Block]:
    """The blocks of a page that run in the peers' environment."""
    found = list(_BLOCK.finditer(text))
    first = next((place for place, match in enumerate(found) if match["where"] == " peers"), len(found))
    return [
        Block(text[: match.start()].count("\n") + 1, match["code"], match["shown"] or "")
        for place, match in enumerate(found)
        if match["where"] or place < first < len(found)
    ]


def compare_pages(folder: Path) -> tuple[str, Comparison]:
    """Run the blocks of all pages; return a description and the comparison."""
    pages: dict[str, list[Block]] = {}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if path.parent.name not in ("api", "project"):  # which `make site` generates
            pages[path.relative_to(ROOT).as_posix()] = blocks(path.read_text(encoding="utf8"))
    pages = {page: made for page, made in pages.items() if made}
    given = {page: [(block.line, block.code) for block in made] for page, made in pages.items()}
    (folder / "blocks.json").write_text(json.dumps(given), encoding="utf8")
    printed, found = run_script("check_pages.py", folder), Comparison()
    for page, made in pages.items():
        for block, output in zip(made, printed[page], strict=True):
            found.equal(f"{page}, line {block.line}", block.shown.splitlines(), output.splitlines())
    return f"{found.count} blocks on {len(pages)} pages", found
