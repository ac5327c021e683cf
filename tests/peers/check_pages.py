"""Run code blocks of the documentation, and print what each of them prints, as JSON.

It runs in the peers' environment: `.peers/bin/python check_pages.py FOLDER`.

The folder has blocks.json: for each page, its blocks as pairs of a line number and the code. The blocks of a
page share their variables, and an empty working directory. This script does not import maillard.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any


def run(page: str, blocks: list[tuple[int, str]]) -> list[str]:
    """Return what each block prints."""
    namespace: dict[str, Any] = {"__name__": page}
    outputs = []
    for line, code in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("\n" * line + code, page, "exec", dont_inherit=True), namespace)
        outputs.append(printed.getvalue())
    return outputs


def main(folder: Path) -> None:
    """Run all pages."""
    warnings.simplefilter("ignore")
    pages = json.loads((folder / "blocks.json").read_text(encoding="utf8"))
    outputs = {}
    for number, (page, blocks) in enumerate(pages.items()):
        working = folder / str(number)
        working.mkdir()
        os.chdir(working)
        outputs[page] = run(page, blocks)
    print(json.dumps(outputs))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
